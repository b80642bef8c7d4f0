"""Moves between pools: to and fro, killed half-way, and with what versions share."""

from __future__ import annotations

import gc
import itertools
import os
import signal
from typing import TYPE_CHECKING, Any, NamedTuple

import pytest

import engram
from active_models import Block
from engram import active
from engram.active.places import moving, ways
from engram.active.stored import collect
from engram.active.stored.home import home_of
from engram.active.stored.layout import CLASS, MOVED
from test_active_places import block
from test_active_versions import State, ones, state

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from pathlib import Path

    from engram.active.stored.home import Home


class Sites(NamedTuple):
    """Two pools, the first of which is in use."""

    here: engram.Pool
    there: engram.Pool


@pytest.fixture
def sites(home: Path) -> Iterator[Sites]:
    """Make them."""
    with (
        engram.create(home / "here", size="32 MiB", force=True) as here,
        engram.create(home / "there", size="32 MiB", force=True) as there,
        active.use(here),
    ):
        yield Sites(here, there)


def groups(pool: engram.Pool) -> int:
    return sum(1 for _ in collect.objects(home_of(pool)))


def test_an_object_that_comes_back_is_its_own_note_again(sites: Sites) -> None:
    moved, holder = block("moved"), block("holder")
    holder.next = moved
    identity = moved.get_id()
    for _ in range(5):
        moved.move(sites.there)
        moved.move(sites.here)
    assert moved.get_id() == identity
    assert (groups(sites.here), groups(sites.there)) == (2, 1)
    assert holder.next is moved
    assert moved.get_aliases() == {"moved"}
    assert Block.get_by_alias("moved", pool=sites.there) is moved


def test_a_way_of_many_notes_is_followed_and_a_circle_told(sites: Sites) -> None:
    holder = block("holder")
    holder.next = last = block(number=3)
    home = home_of(sites.here)
    with home.batch():
        gid = first = int(str(last.get_id()).rpartition(":")[2], 16)
        for _ in range(2000):
            gid = home.create({CLASS: ""}, None)
            home.note(gid, MOVED, first)
            first = gid
        home.add_alias(gid, "far away")
        ends = [home.create({CLASS: ""}, None) for _ in range(2)]
        for one, other in zip(ends, reversed(ends), strict=True):
            home.note(one, MOVED, other)
        home.add_alias(ends[0], "circle")
    assert Block.get_by_alias("far away") is last
    with pytest.raises(engram.CorruptError, match="lead in a circle"):
        Block.get_by_alias("circle")


def test_an_object_that_moves_faster_than_it_is_followed_is_found(
    sites: Sites, monkeypatch: pytest.MonkeyPatch
) -> None:
    moved = block("moved")
    here = home_of(sites.here)
    number = int(str(moved.get_id()).rpartition(":")[2], 16)
    moved.move(sites.there)
    look, left, place = ways.next_of, 0, itertools.cycle(sites)

    def slow_look(home: Home, gid: int) -> tuple[Home, int] | None:
        nonlocal left
        found = look(home, gid)
        if left > 0:
            left -= 1
            with monkeypatch.context() as undone:
                undone.setattr(ways, "next_of", look)
                moved.move(next(place))
        return found

    monkeypatch.setattr(ways, "next_of", slow_look)
    left = 12
    assert ways.end_of(here, number)[0].key[0] == sites.there.uuid
    left = 12
    assert not ways.leads_to_nothing(here, number)
    assert left == 0


@pytest.mark.parametrize("alias", ["named", None])
@pytest.mark.parametrize("before", [False, True])
def test_a_mover_killed_before_the_note_leaves_the_object_where_it_was(
    sites: Sites, monkeypatch: pytest.MonkeyPatch, alias: str | None, before: bool
) -> None:
    made, holder = block(), block("holder")
    made.make_persistent(alias)
    holder.next = made
    if before:  # there is a note there
        made.move(sites.there)
        made.move(sites.here)
    _killed_in(monkeypatch, "_hand_over", lambda: made.move(sites.there))
    assert made.get_location() == str(sites.here.path)
    made.fill(8)
    if alias is not None:
        assert Block.get_by_alias(alias, pool=sites.there) is made
    elif not before:
        assert active.gc(sites.there).objects == 1
    made.move(sites.there)
    assert groups(sites.there) == 1
    assert made.get_location() == str(sites.there.path)
    assert (made.mean(), holder.next) == (8, made)
    made.move(sites.here)
    assert made.mean() == 8


def test_a_mover_killed_after_the_note_has_moved_the_object(
    sites: Sites, monkeypatch: pytest.MonkeyPatch
) -> None:
    made = block("named")
    _killed_in(monkeypatch, "settle", lambda: made.move(sites.there), at=1)
    found = Block.get_by_alias("named", pool=sites.there)
    assert made.get_location() == found.get_location() == str(sites.there.path)
    for pool in (sites.here, sites.there):
        Block.delete_alias("named", pool=pool)
    assert active.gc(sites.here).objects == 1
    assert active.gc(sites.there).objects == 0  # something may refer to it
    assert found.mean() == 1
    found.move(sites.here)
    assert found.mean() == 1


def _killed_in(
    monkeypatch: pytest.MonkeyPatch, name: str, work: Callable[[], object], at: int = 1
) -> None:
    """Do some work in a process that is killed when it calls something of `moving`."""
    times = itertools.count(1)
    real = getattr(moving, name)

    def call(*args: Any) -> Any:
        if next(times) == at:
            os.kill(os.getpid(), signal.SIGKILL)
        return real(*args)

    pid = os.fork()
    if pid == 0:
        monkeypatch.setattr(moving, name, call)
        try:
            work()
        finally:
            os._exit(1)
    assert os.WIFSIGNALED(os.waitpid(pid, 0)[1])


def test_an_object_moves_to_where_its_replica_is(sites: Sites) -> None:
    made = block("named")
    replica = made.new_replica(sites.there)
    made.move(sites.there)
    assert made.get_all_locations() == [str(sites.there.path)]
    assert Block.get_by_alias("named", pool=sites.there) is made
    made.fill(4)
    replica.sync()
    assert replica.mean() == 4


def test_what_refers_to_a_deleted_object_moves_and_has_replicas(sites: Sites) -> None:
    made, target = block("named"), block()
    made.next = target
    target.delete()
    replica = made.new_replica(sites.there)
    made.move(sites.there, recursive=True)
    for each in (made, replica):
        assert each.mean() == 1
        with pytest.raises(active.ObjectDeletedError):
            _ = each.next


# Versions


@pytest.mark.parametrize("first", ["original", "version"])
def test_what_shares_arrays_moves_with_them_and_leaves_them(
    pool: engram.Pool, home: Path, first: str
) -> None:
    with engram.create(home / "far", size="16 MiB", force=True) as far, active.use(pool):
        original = state()
        version = original.new_version()
        (original if first == "original" else version).move(far)
        assert (ones(original), ones(version)) == ([0], [0])
        original.fill("one", 1)
        version.fill("one", 2)
        assert (ones(original), ones(version)) == ([1], [2])
        version.consolidate_version()
        assert ones(original) == [2]


def test_a_move_that_fails_separates_nothing(pool: engram.Pool, home: Path) -> None:
    with engram.create(home / "far", size="16 MiB", force=True) as far, active.use(pool):
        original = state("taken")
        state(None).make_persistent("taken", backend_id=far)
        version = original.new_version()
        with pytest.raises(active.AliasTakenError):
            original.move(far)
        assert version.where("one") == original.where("one")


def test_a_version_of_what_refers_to_a_deleted_object_refers_to_it(pool: engram.Pool) -> None:
    original, target = state(), state(None)
    original.other, original.others = target, [target]
    target.delete()
    version = original.new_version()
    version.label = "version"
    with pytest.raises(active.ObjectDeletedError):
        _ = version.other
    version.consolidate_version()
    assert original.label == "version"
    with pytest.raises(active.ObjectDeletedError):
        _ = original.others
    assert pool


def test_a_method_sees_the_original_and_its_consolidated_version_as_one(pool: engram.Pool) -> None:
    original = state()
    version = original.new_version()
    version.label = [0]
    version.consolidate_version()
    original.extend(1, version)
    assert original.label == version.label == [0, 1, 1]
    version.extend(2, original)
    assert original.label == version.label == [0, 1, 1, 2, 2]
    assert pool


def test_a_consolidated_version_is_the_original_if_nobody_has_that_in_hand(
    pool: engram.Pool,
) -> None:
    version = state().new_version()
    gc.collect()
    version.consolidate_version()
    assert State.get_by_alias("state") is version
    version.label = "again"
    assert version.new_version().label == "again"
    assert pool


def test_a_consolidated_version_moves_as_the_original(pool: engram.Pool, home: Path) -> None:
    with engram.create(home / "far", size="16 MiB", force=True) as far, active.use(pool):
        original = state()
        version = original.new_version()
        version.consolidate_version()
        original.other = original
        version.move(far, recursive=True)
        assert version.get_location() == original.get_location() == str(far.path)
        original.fill("one", 5)
        assert ones(version) == [5]
        assert original.other is original
