"""Active objects that several processes change at once: nothing lost, nothing half."""

from __future__ import annotations

import contextlib
import gc
import os
import random
import threading
import time
import traceback
from collections.abc import Callable

import numpy as np
import pytest

import engram
from engram import active
from test_active_batches import Undone
from test_active_moves import Sites, groups, sites

__all__ = ["sites"]

Work = Callable[[], object]


class Pair(engram.ActiveObject):
    """Two numbers that are the same, an array of that length, and another pair."""

    left: int = 1
    right: int = 1
    data: np.ndarray = np.ones(1)
    other: Pair | None = None

    @engram.activemethod(timeout=0.05)
    def add(self, between: Work | None = None) -> None:
        before = self.left
        if between is not None:
            between()
        self.left = self.right = before + 1

    @engram.activemethod
    def put(self, n: int) -> None:
        self.data = np.full(n, n)
        self.left = self.right = n

    @engram.activemethod
    def add_to_other(self) -> None:
        assert self.other is not None
        self.other.left += 1
        self.other.right += 1

    @engram.activemethod
    def look(self, between: Work) -> tuple[int, int]:
        return self.left, between() or self.right  # type: ignore[return-value]

    @engram.activemethod(read_only=True)
    def look_again(self, between: Work) -> tuple[int, int]:
        return self.left, between() or self.right  # type: ignore[return-value]

    @engram.activemethod(read_only=True)
    def all_of_it(self) -> tuple[int, int, int]:
        return len(self.data), self.left, self.right


def elsewhere(*works: Work) -> None:
    """Do things in processes of their own, at once."""
    children = []
    for work in works:
        child = os.fork()
        if not child:
            try:
                work()
            except BaseException:  # noqa: BLE001 - the parent asks how it ended
                traceback.print_exc()
                os._exit(1)
            os._exit(0)
        children.append(child)
    ends = [os.waitpid(child, 0)[1] for child in children]
    assert ends == [0] * len(works)


@pytest.fixture
def pair(pool: engram.Pool) -> Pair:
    assert pool
    made = Pair()
    made.make_persistent("pair")
    return made


def once(work: Work) -> Work:
    """Do something elsewhere, the first time."""
    left = [work]
    return lambda: elsewhere(left.pop()) if left else None


# Changes


def test_a_method_in_a_batch_keeps_others_out_until_that_has_ended(
    pool: engram.Pool, pair: Pair
) -> None:
    def refused() -> None:
        with pytest.raises(engram.BusyError):
            pair.add()

    with pool.batch():
        pair.add()
        pair.add()
        elsewhere(refused)
    elsewhere(pair.add)
    with pytest.raises(Undone), pool.batch():
        pair.add()
        raise Undone
    elsewhere(pair.add)
    assert (pair.left, pair.right) == (5, 5)


def test_a_batch_that_ends_in_a_fork_keeps_the_locks_of_its_own_process(
    pool: engram.Pool, pair: Pair
) -> None:
    with pool.batch():
        pair.add()
        elsewhere(lambda: None)

        def refused() -> None:
            with pytest.raises(engram.BusyError):
                pair.add()

        elsewhere(refused)
    elsewhere(pair.add)
    assert pair.left == 3


@pytest.mark.parametrize("batched", [True, False])
def test_what_others_assign_while_a_method_runs_is_not_lost(
    pool: engram.Pool, pair: Pair, batched: bool
) -> None:
    def assign() -> None:
        pair.left = 50

    with pytest.raises(engram.BusyError, match="left"):
        if not batched:
            pair.add(once(assign))
        with pool.batch():
            pair.add(once(assign))
    assert (pair.left, pair.right) == (50, 1)


def test_what_another_objects_method_adds_meanwhile_is_not_lost(pair: Pair) -> None:
    second = Pair(other=pair)
    second.make_persistent("second")
    with pytest.raises(active.ConflictError):
        pair.add(once(second.add_to_other))
    assert (pair.left, pair.right) == (2, 2)
    pair.add()
    assert (pair.left, pair.right) == (3, 3)


def test_many_processes_add_in_batches_and_without(pool: engram.Pool, pair: Pair) -> None:
    def until_done(batched: bool) -> None:
        for _ in range(200):
            while True:
                with contextlib.suppress(engram.BusyError):
                    with pool.batch() if batched else contextlib.nullcontext():
                        pair.add()
                    break

    elsewhere(*(lambda batched=batched: until_done(batched) for batched in (True, True, False)))
    assert (pair.left, pair.right) == (601, 601)


# Looks


def test_a_method_does_not_see_half_of_a_change(pair: Pair) -> None:
    with pytest.raises(active.ConflictError, match="read_only=True"):
        pair.look(once(pair.add))
    assert pair.look(lambda: None) == (2, 2)
    assert pair.look_again(once(pair.add)) == (3, 3)

    def another() -> None:
        pair.other = Pair()

    assert pair.look(once(another)) == (3, 3)  # not of what it looks at


def test_methods_beside_assignments_see_one_moment(pair: Pair) -> None:
    def put() -> None:
        for _ in range(500):
            pair.put(random.choice([1, 10, 1000, 60_000]))  # noqa: S311

    def look() -> None:
        for _ in range(1500):
            assert len(set(pair.all_of_it())) == 1
            assert len(pair.data) in {1, 10, 1000, 60_000}

    elsewhere(put, put, look)


def test_versions_beside_assignments_raise_no_false_errors(pair: Pair) -> None:
    def versions() -> None:
        for number in range(2000):
            version = pair.new_version()
            if number % 2:
                version.consolidate_version()
            else:
                version.delete()

    def assign() -> None:
        for number in range(1000):
            with contextlib.suppress(active.ConflictError):
                pair.put(number % 7 + 1)
            pair.data = np.ones(number % 5 + 1)
            assert len(pair.data) > 0

    elsewhere(versions, assign)
    assert active.gc().reachable == 1


def test_a_number_that_is_none_is_what_it_was(pool: engram.Pool) -> None:
    class Reading(engram.ActiveObject):
        value: float = float("nan")
        notes: list[str] = []

        @engram.activemethod
        def set(self, value: float) -> float:
            before = self.value
            self.notes.append("set")
            self.value = value
            return before

    assert pool
    reading = Reading()
    reading.make_persistent()
    assert np.isnan(reading.set(float("nan")))
    assert np.isnan(reading.set(2.0))
    assert reading.get_properties() == {"value": 2.0, "notes": ["set", "set"]}


# Moves


def test_processes_that_move_an_object_to_and_fro_do_not_lose_it(sites: Sites) -> None:
    moved = Pair(data=np.arange(10))
    moved.make_persistent("moved")
    holder = Pair(other=moved)
    holder.make_persistent("holder")

    def move() -> None:
        for _ in range(150):
            Pair.get_by_alias("moved").move(random.choice(sites))  # noqa: S311
            time.sleep(0.001)

    def look() -> None:
        for _ in range(500):
            assert Pair.get_by_alias("moved").data.sum() == 45

    elsewhere(move, move, look)
    assert holder.other is not None
    assert holder.other.data.tolist() == list(range(10))
    assert Pair.get_by_alias("moved") is holder.other
    for pool in sites:
        active.gc(pool)
    assert groups(sites.here) + groups(sites.there) <= 3


def test_an_object_that_was_deleted_is_not_made_persistent_in_silence(pair: Pair) -> None:
    pair.delete()
    with pytest.raises(active.ObjectDeletedError):
        pair.make_persistent()
    holder = Pair()
    holder.make_persistent()
    with pytest.raises(active.ObjectDeletedError, match=str(pair).split()[1]):
        holder.other = pair


def test_a_version_that_is_consolidated_while_it_moves_leaves_the_original(
    sites: Sites, monkeypatch: pytest.MonkeyPatch
) -> None:
    original = Pair(data=np.arange(3))
    original.make_persistent("original")
    version = original.new_version()
    version.left = 5
    copy_to = Pair._copy_to
    consolidate = once(version.consolidate_version)

    def copied(self: Pair, *args: object) -> int:
        consolidate()
        return copy_to(self, *args)  # type: ignore[arg-type]

    monkeypatch.setattr(Pair, "_copy_to", copied)
    with contextlib.suppress(engram.BusyError):
        version.move(sites.there)
    assert Pair.get_by_alias("original").left == 5
    assert Pair.get_by_alias("original").data.tolist() == [0, 1, 2]
    for pool in sites:
        active.gc(pool)


def test_a_method_may_move_its_object_and_go_on_reading(sites: Sites) -> None:
    class Mover(engram.ActiveObject):
        data: np.ndarray
        label: str = "a"
        other: str = "b"

        @engram.activemethod
        def move_away(self, target: object) -> str:
            total = self.data.sum()
            self.move(target)
            return f"{total:g}{self.label}{self.other}"

    moved = Mover(np.ones(3))
    moved.make_persistent("mover")
    assert moved.move_away(sites.there) == "3ab"
    assert moved.move_away(0) == "3ab"
    assert moved.get_location() == f"{sites.there.path}#0"


def test_an_object_made_in_a_batch_is_moved_within_its_pool_in_it(pool: engram.Pool) -> None:
    made = Pair(data=np.ones(3))
    with pool.batch():
        made.make_persistent()
        made.move(0)
    assert made.get_location() == f"{pool.path}#0"
    assert made.data.tolist() == [1, 1, 1]


def test_a_move_that_misses_something_does_not_call_the_object_deleted(
    sites: Sites, monkeypatch: pytest.MonkeyPatch
) -> None:
    moved = Pair()
    moved.make_persistent("moved")

    def missing(self: Pair, home: object) -> str:
        raise engram.NotFoundError(f"no class for {self!r} in {home!r}")

    monkeypatch.setattr(Pair, "_class_there", missing)
    with pytest.raises(engram.NotFoundError, match="no class"):
        moved.move(sites.there)
    assert moved.get_location() == sites.here.path


def test_what_a_method_deletes_its_versions_keep(pair: Pair) -> None:
    class Wiper(engram.ActiveObject):
        data: np.ndarray

        @engram.activemethod
        def wipe(self) -> None:
            del self.data

    wiper = Wiper(np.ones(3))
    wiper.make_persistent()
    version = wiper.new_version()
    wiper.wipe()
    assert version.data.tolist() == [1, 1, 1]
    with pytest.raises(AttributeError, match="no value"):
        _ = wiper.data
    assert pair.left == 1


def test_a_reference_into_a_pool_that_is_gone_is_an_error(sites: Sites) -> None:
    far = Pair()
    far.make_persistent(backend_id=sites.there)
    near = Pair(other=far)
    near.make_persistent("near")
    del far
    gc.collect()
    sites.there.close()
    engram.destroy(sites.there.path)
    with pytest.raises(engram.NotFoundError):
        _ = near.other
    assert near.left == 1


def test_a_replica_is_read_as_one_sync_left_it(sites: Sites) -> None:
    class Both(engram.ActiveObject):
        one: np.ndarray
        two: np.ndarray

        @engram.activemethod(read_only=True)
        def look(self, between: Work) -> tuple[float, float]:
            return float(self.one[0]), between() or float(self.two[0])  # type: ignore[return-value]

    both = Both(np.zeros(1), np.zeros(1))
    both.make_persistent("both")
    replica = both.new_replica(sites.there)

    def change() -> None:
        both.one, both.two = np.ones(1), np.ones(1)
        both.sync()

    assert replica.look(once(change)) == (1, 1)


def test_the_locks_of_a_batch_go_with_its_thread(pool: engram.Pool, pair: Pair) -> None:
    def leave() -> None:
        batch = pool.batch()
        batch.__enter__()
        pair.add()
        assert pair.left == 2

    thread = threading.Thread(target=leave)
    thread.start()
    thread.join()
    gc.collect()
    pair.add()
    assert pair.left == 2


def test_a_move_where_this_thread_has_the_lock_does_not_wait_for_itself(sites: Sites) -> None:
    moved = Pair()
    moved.make_persistent("moved")
    moved.add(lambda: moved.move(sites.there))
    moved.move(sites.here)
    with sites.here.batch():
        moved.add()
        moved.move(sites.here)
    assert moved.left == 3
