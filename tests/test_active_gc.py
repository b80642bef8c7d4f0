"""Collecting: what no alias leads to goes, and nothing else, whatever others do meanwhile."""

from __future__ import annotations

import dataclasses
import itertools
import multiprocessing
import os
import random
import signal
import threading
import time
from typing import TYPE_CHECKING, Any

import numpy as np
import pytest

import engram
from engram import _engram, active
from engram.active.stored import collect
from engram.active.stored.home import home_of
from support import PATIENCE

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence
    from pathlib import Path


@dataclasses.dataclass
class Pair:
    """A value with a reference in it."""

    left: Any
    right: Any = None


class Node(engram.ActiveObject):
    """Something that refers to others."""

    links: Any = None
    data: np.ndarray = np.zeros(100)
    more: Any = None

    @engram.activemethod
    def swap(self) -> None:
        """Let two fields change their places: one is a blob, the other is not."""
        self.links, self.more = self.more, self.links


def node(alias: str | None = None, links: Any = None) -> Node:
    made = Node(links)
    made.make_persistent(alias)
    return made


def count(pool: engram.Pool) -> int:
    return sum(1 for _ in collect.objects(home_of(pool)))


def in_children(*works: Callable[[], object]) -> list[int]:
    """Do all of it at once, each in a process of its own; give how they ended."""
    children = []
    for work in works:
        pid = os.fork()
        if pid == 0:
            try:
                work()
            except BaseException:  # noqa: BLE001 - it is shown, and the process ends
                import traceback  # noqa: PLC0415 - only who fails needs it

                traceback.print_exc()
                os._exit(1)
            os._exit(0)
        children.append(pid)
    return [os.waitpid(pid, 0)[1] for pid in children]


# What leads to an object


WAYS: dict[str, Callable[[Node], Any]] = {
    "itself": lambda target: target,
    "list": lambda target: [1, [target]],
    "tuple, set and dict": lambda target: ({frozenset({1}): {"a": (target,)}},),
    "key": lambda target: {(1, 2): [target]},
    "dataclass": lambda target: Pair([Pair(target)]),
    "blob": lambda target: ["x" * 5000, target],
    "deep in a blob": lambda target: Pair({"a": "x" * 5000, "b": [Pair((target,))]}),
}


@pytest.mark.parametrize("way", WAYS)
def test_whatever_leads_to_an_object_keeps_it_and_its_end_lets_it_go(
    pool: engram.Pool, way: str
) -> None:
    holder, target = node("holder"), node()
    target.links = last = node()
    holder.links = WAYS[way](target)
    assert active.gc(pool) == (0, 0, 0, 3)
    assert last.data.sum() == 0
    holder.links = None
    assert active.gc(pool) == (2, 1600, 0, 1)
    for each in (target, last):
        with pytest.raises(active.ObjectDeletedError):
            _ = each.data
    assert active.gc(pool) == (0, 0, 0, 1)


def test_cycles_go_as_a_whole_or_stay_as_a_whole(pool: engram.Pool) -> None:
    one, two, three = node(), node(), node()
    one.links, two.links, three.links = [two, one], three, one
    three.add_alias("three")
    assert active.gc(pool).objects == 0
    Node.delete_alias("three")
    assert active.gc(pool, dry_run=True) == (3, 2400, 0, 0)
    assert count(pool) == 3
    assert active.gc(pool).objects == 3
    assert count(pool) == 0


def test_unreachable_ones_are_listed(pool: engram.Pool) -> None:
    node("kept")
    lost = node()
    (found,) = active.unreachable(pool)
    assert found.id == int(str(lost.get_id()).rpartition(":")[2], 16)
    assert found.kind.startswith("test_active_gc.Node@")
    assert found.nbytes == 800


def test_what_is_young_stays_if_so_asked(pool: engram.Pool) -> None:
    node()
    assert active.gc(pool, older_than=3600) == (0, 0, 1, 0)
    assert active.gc(pool, older_than=3600, dry_run=True) == (0, 0, 1, 0)
    assert active.gc(pool, older_than=0).objects == 1


def test_all_space_returns(pool: engram.Pool) -> None:
    active.gc(pool)
    node("class")
    used = pool.used
    for _ in range(3):
        several = [node(links=["x" * 6000]) for _ in range(300)]
        for one, other in itertools.pairwise(several):
            one.more = other
        assert active.gc(pool).objects == 300
        assert pool.used == used


def test_versions_keep_their_originals_and_what_these_lead_to(pool: engram.Pool) -> None:
    original = node(links=node())
    version = original.new_version()
    nested = version.new_version()
    nested.add_alias("nested")
    assert active.gc(pool).objects == 0
    nested.links = None
    nested.consolidate_version()
    assert active.gc(pool).objects == 3  # what the original referred to, and the notes
    assert Node.get_by_alias("nested") is original
    assert original.links is None
    Node.delete_alias("nested")
    assert active.gc(pool).objects == 1
    assert count(pool) == 0


def test_a_version_goes_and_leaves_its_original_and_siblings_what_they_share(
    pool: engram.Pool,
) -> None:
    original = node("original")
    lost, kept = original.new_version(), original.new_version()
    kept.add_alias("kept")
    original.data[...] = 5
    assert active.gc(pool).objects == 1
    assert (original.data.sum(), kept.data.sum()) == (500, 0)
    Node.delete_alias("kept")
    Node.delete_alias("original")
    assert active.gc(pool).objects == 2
    with pytest.raises(active.ObjectDeletedError):
        _ = lost.data


def test_who_shares_arrays_goes_at_once(pool: engram.Pool) -> None:
    for number in range(600):
        original = node(links=number)
        versions = [original.new_version() for _ in range(2)]
        original.data[...] = 1
        assert versions
    assert active.gc(pool) == (1800, 600 * 1600, 0, 0)


def test_moved_ones_and_their_notes_are_followed(pool: engram.Pool, home: Path) -> None:
    with engram.create(home / "far", size="16 MiB", force=True) as far, active.use(pool):
        holder, moved = node("holder"), node(links=node())
        holder.links = moved
        moved.move(far)
        assert active.gc(pool).objects == 0
        assert active.gc(far).objects == 0
        assert Node.get_by_alias("holder").links is moved
        assert moved.links.data.sum() == 0
        replica = node("with replica").new_replica(far)
        assert (active.gc(pool).objects, active.gc(far).objects) == (0, 0)
        assert replica.data.sum() == 0


def test_notes_go_when_nothing_leads_to_them_or_they_lead_to_nothing(
    pool: engram.Pool, home: Path
) -> None:
    with engram.create(home / "far", size="16 MiB", force=True) as far, active.use(pool):
        node().move(far)
        assert active.gc(pool).objects == 1
        back = node()
        for each in (far, pool, far, pool):
            back.move(each)
        assert active.gc(far).objects == 0
        back.delete()
        assert active.gc(far).objects == 1


def test_what_another_pool_or_namespace_refers_to_stays(pool: engram.Pool, home: Path) -> None:
    other = pool.create_namespace("other")
    with engram.create(home / "far", size="16 MiB", force=True) as far, active.use(pool):
        for place in (far, other):
            target, chain, holder = node(), node(), Node()
            target.links = chain
            holder.links = ["x" * 5000, target]
            holder.make_persistent(backend_id=place)
            holder.add_alias("holder")
            assert active.gc(pool).objects == 0
            assert Node.get_by_alias("holder", pool=place).links[1] is target
            assert chain.data.sum() == 0


def test_references_to_deleted_ones_hinder_nothing(pool: engram.Pool) -> None:
    gone, holder, lost = node(), node("holder"), node()
    holder.links, lost.links = [gone, node()], gone
    gone.delete()
    assert active.gc(pool).objects == 1
    assert active.gc(pool, dry_run=True) == (0, 0, 0, 2)


def test_an_object_that_was_assigned_and_is_in_hand_only_is_told_when_it_is_gone(
    pool: engram.Pool,
) -> None:
    holder, lost = node("holder"), node()
    active.gc(pool)
    with pytest.raises(active.ObjectDeletedError):
        holder.links = [lost]
    assert holder.links is None


# While others work


STEPS = ("mark", "delete")


@pytest.mark.parametrize("link", ["field", "container", "alias", "version", "another pool"])
def test_what_is_linked_after_the_look_is_not_collected(
    pool: engram.Pool, home: Path, monkeypatch: pytest.MonkeyPatch, link: str
) -> None:
    far = engram.create(home / "far", size="16 MiB", force=True)
    with far, active.use(pool):
        holder, lost = node("holder"), node()
        lost.links = [node()]
        holding = Node()
        holding.make_persistent("there", backend_id=far)
        collected = collect._delete

        def meanwhile(*words: Any) -> bool:
            if link == "field":
                holder.links = lost
            elif link == "container":
                holder.links = ["x" * 5000, lost]
            elif link == "alias":
                lost.add_alias("found")
            elif link == "version":
                lost.new_version().add_alias("found")
            else:
                holding.links = lost
            return collected(*words)

        monkeypatch.setattr(collect, "_delete", meanwhile)
        done = active.gc(pool)
        assert (done.objects, done.kept >= 2) == (0, True)
        assert lost.links[0].data.sum() == 0
        monkeypatch.undo()
        assert active.gc(pool).objects == 0


@pytest.mark.parametrize("to_blob", [True, False])
def test_what_changes_from_one_field_to_another_during_the_look_is_seen(
    pool: engram.Pool, monkeypatch: pytest.MonkeyPatch, to_blob: bool
) -> None:
    target = node()
    small, large = [target], ["x" * 5000, target]
    holder = node("holder", small if to_blob else large)
    done: list[int] = []
    items = _engram.attr_items

    def and_then_change(*words: Any) -> Any:
        found = list(items(*words))
        if not done:
            done.append(1)
            holder.links = large if to_blob else small
        return found

    monkeypatch.setattr(_engram, "attr_items", and_then_change)
    assert active.gc(pool).objects == 0
    assert done
    assert target.data.sum() == 0


def a_while(collected: Sequence[int]) -> Iterator[None]:
    """Go on for two seconds; on a busy machine, until each collector has met something."""
    begin = time.monotonic()
    while (spent := time.monotonic() - begin) < 2 or (spent < PATIENCE and not all(collected)):
        yield


def linking(seed: int, collected: Sequence[int]) -> None:  # noqa: C901 - one branch for each thing
    """Link unreachable objects to reachable ones, unlink, move references about, for a while."""
    rng = random.Random(seed)  # noqa: S311 - no secret
    roots = [Node.get_by_alias(f"root {number}") for number in range(3)]
    hand: list[Node] = []
    for _ in a_while(collected):
        root = rng.choice(roots)
        try:
            what = rng.randrange(7)
            if what == 0:
                hand.append(node(links=node()))
            elif what == 1 and hand:
                root.links = [hand.pop(), "x" * rng.choice([1, 5000])]
            elif what == 2 and isinstance(links := root.links, list):
                hand.append(links[0])
            elif what == 3:
                root.links = None
            elif what == 4:
                root.swap()
            elif what == 5 and hand:
                root.more = hand.pop().new_version()
            elif what == 6 and hand:
                root.more = Pair(hand.pop())
        except active.ObjectDeletedError:  # what was in hand only
            hand.clear()
        except (active.ConflictError, engram.BusyError):
            continue


def assert_no_reference_dangles(pool: engram.Pool) -> None:
    home = home_of(pool)
    there = set(collect.objects(home))
    reached = collect._reached(home)
    assert reached <= there
    for gid in reached:
        assert collect.references(home, gid) <= there


def test_processes_that_link_while_others_collect_never_hold_what_is_gone(
    pool: engram.Pool,
) -> None:
    for number in range(3):
        node(f"root {number}")
    node(links=Pair(None))  # of this class, too, the processes that are forked know now
    collected = multiprocessing.RawArray("L", 2)

    def collecting(number: int) -> None:
        home = home_of(pool)
        for _ in a_while(collected):
            collected[number] += active.gc(pool).objects
            with collect._as_it_is(home) as then:
                there = set(collect.objects(then))
                assert collect._reached(then) <= there
        assert collected[number] > 0

    works = [lambda seed=seed: linking(seed, collected) for seed in range(2)]
    collectors = [lambda number=number: collecting(number) for number in range(2)]
    assert in_children(*works, *collectors) == [0] * 4
    assert_no_reference_dangles(pool)
    for number in range(3):
        root = Node.get_by_alias(f"root {number}")
        root.get_properties()
    active.gc(pool)
    assert active.gc(pool).kept == 0
    path = pool.path
    pool.close()
    engram.verify(path).check()


def test_a_collector_killed_at_any_moment_leaves_nothing_half_deleted(
    pool: engram.Pool, rng: np.random.Generator
) -> None:
    root = node("root")
    delays = rng.uniform(0, 0.02, 25)
    for delay in delays:
        several = [node(links=["x" * 5000]) for _ in range(30)]
        for one, other in itertools.pairwise(several):
            one.more = other
        root.links = [several[-1], several[0].new_version().new_version()]
        pid = os.fork()
        if pid == 0:
            try:
                root.links = None
                while True:
                    active.gc(pool)
            finally:
                os._exit(1)
        threading.Event().wait(delay)
        os.kill(pid, signal.SIGKILL)
        os.waitpid(pid, 0)
        assert_no_reference_dangles(pool)
        for each in several:
            try:
                each.get_properties()
            except active.ObjectDeletedError:
                continue
    root.links = None
    active.gc(pool)
    assert count(pool) == 1
    path = pool.path
    pool.close()
    engram.verify(path).check()
