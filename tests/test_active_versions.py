"""Versions: states beside an object, copy on write, that take its place in one commit."""

from __future__ import annotations

import os
import signal
import threading
import traceback
from typing import TYPE_CHECKING, Any

import numpy as np
import pytest
from hypothesis import settings, strategies
from hypothesis.stateful import RuleBasedStateMachine, invariant, precondition, rule

import engram
from engram import active
from support import moments

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from pathlib import Path

LARGE = 5000
"""The length of a text that is kept as a blob."""


class State(engram.ActiveObject):
    """Fields of all forms."""

    one: np.ndarray
    two: np.ndarray
    label: Any = ""
    other: State | None = None
    others: list[State] = []

    @engram.activemethod
    def fill(self, name: str, value: float) -> None:
        getattr(self, name)[...] = value

    @engram.activemethod
    def extend(self, number: int, other: State | None = None) -> None:
        self.label.append(number)
        if other is not None:
            other.extend(number)

    @engram.activemethod(read_only=True)
    def seen(self) -> dict[str, Any]:
        names = ("one", "two", "label")
        return {
            name: np.array(value) if isinstance(value, np.ndarray) else value
            for name in names
            if (value := getattr(self, name, None)) is not None
        }

    @engram.activemethod(read_only=True)
    def where(self, name: str) -> int:
        """Tell where in memory an array lies."""
        return int(getattr(self, name).ctypes.data)


def state(alias: str | None = "state", size: int = 8) -> State:
    made = State(one=np.zeros(size), two=np.ones(size), label="first")
    made.make_persistent(alias)
    return made


def ones(of: State) -> list[float]:
    return sorted(set(of.seen()["one"].tolist()))


def test_a_version_shares_arrays_until_one_of_the_two_writes(pool: engram.Pool) -> None:
    original = state(size=100_000)
    before = pool.used
    version = original.new_version()
    assert pool.used == before
    assert version.where("one") == original.where("one")
    version.fill("one", 5)
    assert (ones(original), ones(version)) == ([0], [5])
    assert pool.used - before >= original.one.nbytes
    assert version.where("two") == original.where("two")


@pytest.mark.parametrize("first", ["original", "version"])
@pytest.mark.parametrize("how", ["fill", "view", "assign"])
def test_who_writes_first_separates_and_the_other_keeps_its_values(
    pool: engram.Pool, first: str, how: str
) -> None:
    original = state()
    version = original.new_version()
    writer, keeper = (original, version) if first == "original" else (version, original)
    if how == "fill":
        writer.fill("one", 3)
    elif how == "view":
        writer.one[...] = 3
    else:
        writer.one = np.full(8, 3.0)
    assert (ones(writer), ones(keeper)) == ([3], [0])
    keeper.fill("one", 4)
    assert (ones(writer), ones(keeper)) == ([3], [4])
    assert pool


def test_siblings_keep_what_they_share_when_the_original_writes_or_goes(pool: engram.Pool) -> None:
    original = state()
    several = [original.new_version() for _ in range(3)]
    original.fill("one", 9)
    assert [ones(each) for each in several] == [[0]] * 3
    several[0].fill("one", 1)
    original.delete()
    assert [ones(each) for each in several] == [[1], [0], [0]]
    several[1].delete()
    assert ones(several[2]) == [0]
    assert ones(several[0].new_version()) == [1]
    assert pool


def test_consolidating_moves_arrays_without_a_copy(pool: engram.Pool) -> None:
    original = state(size=100_000)
    version = original.new_version()
    version.fill("one", 5)
    at, before = version.where("one"), pool.used
    version.consolidate_version()
    assert original.where("one") == at
    assert ones(original) == [5]
    assert before - pool.used >= original.one.nbytes


def test_consolidating_a_version_of_a_version_takes_its_parent_s_array_without_a_copy(
    pool: engram.Pool,
) -> None:
    original = state(size=100_000)
    parent = original.new_version()
    parent.fill("one", 5)
    sibling, version = parent.new_version(), parent.new_version()
    at = parent.where("one")
    version.consolidate_version()
    assert original.where("one") == sibling.where("one") == at
    assert ones(parent) == [5]
    assert parent.get_id() == original.get_id()
    sibling.fill("one", 6)
    assert (ones(original), ones(sibling)) == ([5], [6])
    assert pool


def test_what_a_consolidated_original_writes_is_copied_for_nobody(pool: engram.Pool) -> None:
    original = state(size=100_000)
    version = original.new_version()
    at = original.where("one")
    version.consolidate_version()
    original.fill("one", 2)
    assert original.where("one") == at
    assert pool


def test_consolidating_a_parent_first_leaves_its_version_to_be_consolidated_after(
    pool: engram.Pool,
) -> None:
    original = state()
    parent = original.new_version()
    parent.fill("one", 1)
    version = parent.new_version()
    version.fill("one", 2)
    parent.consolidate_version()
    assert (ones(original), ones(version)) == ([1], [2])
    version.consolidate_version()
    assert ones(original) == [2]
    assert State.get_by_alias("state") is original
    assert pool


@pytest.mark.parametrize("borrowed", [True, False])
def test_a_parent_that_lends_is_consolidated(pool: engram.Pool, borrowed: bool) -> None:
    original = state()
    parent = original.new_version()
    if not borrowed:
        parent.fill("one", 1)
    version = parent.new_version()
    parent.consolidate_version()
    original.fill("one", 7)
    assert ones(version) == ([0] if borrowed else [1])
    version.consolidate_version()
    assert ones(original) == ([0] if borrowed else [1])
    assert pool


def test_a_version_whose_parent_is_deleted_is_consolidated(pool: engram.Pool) -> None:
    original = state()
    parent = original.new_version()
    parent.fill("one", 1)
    version = parent.new_version()
    parent.delete()
    version.consolidate_version()
    assert ones(original) == [1]
    assert pool


def test_a_version_whose_original_is_deleted_stays_what_it_is(pool: engram.Pool) -> None:
    original = state()
    version = original.new_version()
    original.delete()
    with pytest.raises(active.ObjectDeletedError):
        version.consolidate_version()
    assert ones(version) == [0]
    version.fill("one", 3)
    assert ones(version) == [3]
    assert pool


VALUES: list[Any] = [
    *("short", "x" * LARGE, 7, None, [1, 2], list(range(LARGE)), np.arange(5)),
    {"deep": [(1, "x" * LARGE)]},
]


@pytest.mark.parametrize("after", range(len(VALUES)))
@pytest.mark.parametrize("before", range(len(VALUES)))
def test_a_field_of_any_form_takes_the_place_of_any_other(
    pool: engram.Pool, before: int, after: int
) -> None:
    original = state()
    original.label = VALUES[before]
    version = original.new_version()
    assert np.array_equal(version.label, VALUES[before])
    version.label = VALUES[after]
    assert np.array_equal(original.label, VALUES[before])
    version.consolidate_version()
    assert np.array_equal(original.label, VALUES[after])
    assert type(original.label) is type(VALUES[after])
    assert pool


def test_a_field_that_a_version_has_deleted_is_deleted(pool: engram.Pool) -> None:
    original = state()
    version = original.new_version()
    del version.one
    assert ones(original) == [0]
    version.consolidate_version()
    with pytest.raises(AttributeError):
        _ = original.one
    assert pool


def test_references_and_aliases_follow(pool: engram.Pool) -> None:
    original = state("original")
    version = original.new_version()
    version.add_alias("version")
    version.label = "second"
    holder = State(np.zeros(1), np.zeros(1), other=version, others=[original, version])
    holder.make_persistent("holder")
    elsewhere = state("elsewhere")
    version.other = elsewhere
    version_id = version.get_id()
    version.consolidate_version()
    assert holder.other is original
    assert holder.others == [original, original]
    assert State.get_by_alias("version") is original
    assert version_id is not None
    assert State.get_by_id(version_id) is original
    assert original.get_aliases() == {"original", "version"}
    assert original.other is elsewhere
    assert version.get_id() == original.get_id()
    assert version.label == "second"
    State.delete_alias("elsewhere")
    assert active.gc(pool).objects == 0
    State.delete_alias("version")
    assert original.get_aliases() == {"original"}


def test_consolidating_twice_and_what_is_no_version_are_named_errors(pool: engram.Pool) -> None:
    original = state()
    with pytest.raises(active.VersionError, match="is no version"):
        original.consolidate_version()
    version = original.new_version()
    version.consolidate_version()
    with pytest.raises(active.VersionError, match="consolidated already"):
        version.consolidate_version()
    assert ones(original) == [0]
    with pytest.raises(engram.ArgumentError, match="not persistent"):
        State(np.zeros(1), np.zeros(1)).new_version()
    assert pool


def in_child(work: Callable[[], object]) -> int:
    """Do something in a fork of this process; give how that ended."""
    pid = os.fork()
    if pid == 0:
        try:
            work()
        except BaseException:  # noqa: BLE001 - the parent asks how it ended
            os._exit(1)
        os._exit(0)
    return os.waitpid(pid, 0)[1]


def test_a_handle_of_a_version_follows_where_another_process_consolidated_it(
    pool: engram.Pool,
) -> None:
    original = state()
    several = [original.new_version() for _ in range(4)]
    for number, version in enumerate(several):
        version.label = str(number)
        assert in_child(version.consolidate_version) == 0
    reads, writes, deletes, again = several
    assert reads.label == "3"
    writes.label = "written"
    assert original.label == "written"
    with pytest.raises(active.VersionError):
        again.consolidate_version()
    deletes.delete()
    with pytest.raises(active.ObjectDeletedError):
        _ = original.label
    assert pool


def test_a_version_in_another_pool_is_a_copy_whose_values_come_back(
    pool: engram.Pool, home: Path
) -> None:
    with engram.create(home / "far", size="16 MiB", force=True) as far:
        active.use(pool)
        try:
            original = state()
            original.other = state("friend")
            version = original.new_version(far)
            assert version.get_location() == str(home / "far")
            assert version.other is original.other
            version.add_alias("far version")
            nested = version.new_version()
            nested.fill("one", 2)
            assert (ones(original), ones(version)) == ([0], [0])
            State.delete_alias("state")
            State.delete_alias("friend")
            assert active.gc(pool).objects == 0  # the other pool refers to both
            nested.consolidate_version()
            assert ones(original) == [2]
            for each in (pool, far):
                assert State.get_by_alias("far version", pool=each) is original
            assert original.get_aliases() == {"far version"}
            assert nested.get_id() == version.get_id() == original.get_id()
            back = original.new_version(far).new_version(pool)
            back.fill("one", 3)
            back.consolidate_version()
            assert ones(original) == [3]
        finally:
            active.use(None)


def test_the_space_of_versions_returns_to_the_last_byte(pool: engram.Pool) -> None:
    original = state(size=10_000)
    start = pool.used
    for order in ([0, 1, 2], [1, 2], [2, 0, 1]):
        several = [original.new_version()]
        several.append(several[0].new_version())
        several.append(original.new_version())
        for number, version in enumerate(several):
            version.fill("one", number)
            version.label = "x" * LARGE
        for which in order:
            several[which].consolidate_version()
            original.fill("two", which)
        original.label = "short"
        active.gc(pool)
        assert pool.used == start


def test_a_process_killed_while_it_consolidates_leaves_the_one_or_the_other(
    pool: engram.Pool, rng: np.random.Generator
) -> None:
    original = state(size=200)
    original.fill("two", 0)
    seen: set[str] = set()

    def work() -> None:
        number = float(ones(original)[0])
        while True:
            number += 1
            version = original.new_version()
            version.fill("one", number)
            version.fill("two", -number)
            version.label = f"{number}" + "x" * LARGE
            version.consolidate_version()

    for delay in moments(rng.uniform(0.001, 0.03, 60), lambda: len(seen) > 5):
        pid = os.fork()
        if pid == 0:
            try:
                work()
            finally:
                os._exit(1)
        threading.Event().wait(delay)
        os.kill(pid, signal.SIGKILL)
        assert os.WIFSIGNALED(os.waitpid(pid, 0)[1])
        one, two, label = original.seen().values()
        assert set(one) == set(-two)
        assert len(set(one)) == 1
        assert label in {"first", f"{one[0]}" + "x" * LARGE}
        seen.add(label)
        assert State.get_by_alias("state") is original
    assert len(seen) > 5
    path = pool.path
    active.gc(pool)
    pool.close()
    engram.verify(path).check()


def test_processes_that_version_one_object_at_once_mix_nothing(pool: engram.Pool) -> None:
    original = state()

    def work(number: int) -> None:
        for _ in range(15):
            version = original.new_version()
            version.fill("one", number)
            version.label = str(number)
            version.consolidate_version()

    children = []
    for number in range(1, 4):
        pid = os.fork()
        if pid == 0:
            try:
                work(number)
            except BaseException:  # noqa: BLE001 - it is shown, and the process ends
                traceback.print_exc()
                os._exit(1)
            os._exit(0)
        children.append(pid)
    assert [os.waitpid(pid, 0)[1] for pid in children] == [0, 0, 0]
    assert ones(original) == [float(original.label)]
    assert set(original.two) == {1}
    active.gc(pool)
    assert active.gc(pool, dry_run=True).reachable == 1


class Model:
    """What an object should be: its fields, and whose version it is."""

    def __init__(self, fields: dict[str, Any], parent: Model | None = None) -> None:
        self.fields = {name: np.array(v) if name != "label" else v for name, v in fields.items()}
        self.gone = False
        self.became: Model | None = None
        self.original: Model | None = None
        self.between: list[Model] = []
        if parent is not None:
            above = parent.original and parent.original.now()
            orphan = above is None or above.gone
            self.original = parent if orphan else above
            self.between = [] if orphan else [*parent.between, parent]

    def now(self) -> Model:
        return self if self.became is None else self.became.now()

    def consolidate(self) -> None:
        assert self.original is not None
        original = self.original.now()
        original.fields = self.fields
        for each in (self, *self.between):
            if each.became is None and not each.gone:
                each.became = original


class Versions(RuleBasedStateMachine):
    """Objects and versions beside a model of them."""

    pool: engram.Pool

    def __init__(self) -> None:
        super().__init__()
        self.pairs: list[tuple[State, Model]] = []
        self.start = self.pool.used
        self.add(number=0)

    def pick(self, index: int) -> tuple[State, Model]:
        return self.pairs[index % len(self.pairs)]

    @rule(number=strategies.integers(0, 9))
    def add(self, number: int) -> None:
        made = State(one=np.full(4, number), two=np.full(3, -number), label="")
        made.make_persistent()
        self.pairs.append((made, Model(made.seen())))

    @rule(index=strategies.integers(0, 20))
    @precondition(lambda self: len(self.pairs) < 12)
    def new_version(self, index: int) -> None:
        obj, model = self.pick(index)
        if model.now().gone:
            with pytest.raises(active.ObjectDeletedError):
                obj.new_version()
            return
        self.pairs.append((obj.new_version(), Model(model.now().fields, model.now())))

    @rule(
        index=strategies.integers(0, 20),
        name=strategies.sampled_from(["one", "two"]),
        number=strategies.integers(0, 99),
        in_place=strategies.booleans(),
    )
    def write(self, index: int, name: str, number: int, in_place: bool) -> None:
        obj, model = self.pick(index)
        model = model.now()
        if model.gone:
            return
        if in_place and name in model.fields:
            obj.fill(name, number)
            model.fields[name][...] = number
        else:
            setattr(obj, name, np.full(5, number))
            model.fields[name] = np.full(5, number)

    @rule(index=strategies.integers(0, 20), name=strategies.sampled_from(["one", "two"]))
    def remove(self, index: int, name: str) -> None:
        obj, model = self.pick(index)
        if not model.now().gone:
            delattr(obj, name)
            model.now().fields.pop(name, None)

    @rule(index=strategies.integers(0, 20), label=strategies.sampled_from(["", "a", "b" * LARGE]))
    def name(self, index: int, label: str) -> None:
        obj, model = self.pick(index)
        if not model.now().gone:
            obj.label = label
            model.now().fields["label"] = label

    @rule(index=strategies.integers(0, 20))
    def consolidate(self, index: int) -> None:
        obj, model = self.pick(index)
        if model.became is not None or model.original is None:
            with pytest.raises((active.VersionError, active.ObjectDeletedError)):
                obj.consolidate_version()
        elif model.gone or model.original.now().gone:
            with pytest.raises(active.ObjectDeletedError):
                obj.consolidate_version()
        else:
            obj.consolidate_version()
            model.consolidate()

    @rule(index=strategies.integers(0, 20))
    def delete(self, index: int) -> None:
        obj, model = self.pick(index)
        if not model.now().gone:
            obj.delete()
            model.now().gone = True

    @invariant()
    def all_are_as_they_should_be(self) -> None:
        for obj, model in self.pairs:
            if model.now().gone:
                with pytest.raises(active.ObjectDeletedError):
                    obj.seen()
                continue
            seen, fields = obj.seen(), model.now().fields
            assert seen.keys() == fields.keys()
            assert all(np.array_equal(seen[name], fields[name]) for name in fields)

    def teardown(self) -> None:
        active.gc(self.pool)
        assert self.pool.used == self.start


@pytest.fixture
def machine(pool: engram.Pool) -> Iterator[type[Versions]]:
    """Give the state machine, at work in a pool."""
    state(None)  # from here on the pool keeps the class
    active.gc(pool)
    Versions.pool = pool
    yield Versions
    del Versions.pool


def test_any_order_of_work_on_versions_is_as_the_model_says(machine: type[Versions]) -> None:
    Versions.TestCase.settings = settings(max_examples=40, stateful_step_count=25)
    test = machine.TestCase("runTest")
    test.runTest()
