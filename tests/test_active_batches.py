"""Batches that are undone: Python objects are what they were before, whatever became of them."""

from __future__ import annotations

import itertools
import os
import signal
import subprocess
import sys
import threading
from typing import Any

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings, strategies

import engram
from engram import _engram, active
from engram.active.code import classes
from engram.active.stored.home import home_of
from engram.active.undoing import if_undone
from test_active_moves import Sites, sites
from test_active_versions import State

__all__ = ["sites"]


class Undone(Exception):  # noqa: N818 - what a block ends with
    """What a batch ends with that is to be undone."""


def test_what_was_made_persistent_is_volatile_again(pool: engram.Pool) -> None:
    one, two = State(one=np.ones(3), label="a"), State(label="b")
    one.other = two
    with pytest.raises(Undone), pool.batch():
        one.make_persistent("x")
        assert one.is_persistent
        assert two.is_persistent
        one.label = "in the batch"
        raise Undone
    assert not one.is_persistent
    assert not two.is_persistent
    assert one.label == "a"
    assert one.other is two
    assert one.get_id() is None
    one.make_persistent("x")
    assert State.get_by_alias("x") is one
    assert one.one.tolist() == [1, 1, 1]


class Fresh(engram.ActiveObject):
    """A class that no pool has yet."""

    n: int


def test_a_class_that_was_stored_in_an_undone_batch_is_stored_again(pool: engram.Pool) -> None:
    State(label="the home stays").make_persistent("stays")
    stays = State.get_by_alias("stays")
    with pytest.raises(Undone), pool.batch():
        for n in range(3):
            Fresh(n).make_persistent()
        raise Undone
    assert "test_active_batches.Fresh" not in names(pool)
    Fresh(1).make_persistent("one")
    assert "test_active_batches.Fresh" in names(pool)
    assert stays.label == "the home stays"


def test_a_version_of_an_undone_batch_is_not_what_others_have_stored_since(
    pool: engram.Pool,
) -> None:
    State(label="the home stays").make_persistent("stays")
    stays = State.get_by_alias("stays")
    with pytest.raises(Undone), pool.batch():
        Fresh(1).make_persistent("one")
        assert Fresh.get_by_alias("one").n == 1
        raise Undone
    script = f"""
import engram
class Fresh(engram.ActiveObject):
    m: float
Fresh.__module__ = "test_active_batches"
with engram.open({pool.path!r}) as pool, engram.active.use(pool):
    Fresh(2.5).make_persistent("other")
"""
    subprocess.run([sys.executable, "-c", script], check=True, timeout=60)
    Fresh(1).make_persistent("one")
    assert classes.stored_class(home_of(pool), "test_active_batches.Fresh").version == 2
    with pytest.raises(active.ClassChangedError, match="m"):
        Fresh.get_by_alias("other")
    assert stays.label == "the home stays"


def names(pool: engram.Pool) -> list[str]:
    return classes.stored_names(home_of(pool))


def test_what_was_deleted_is_the_object_still(pool: engram.Pool) -> None:
    obj = State(label="a")
    obj.make_persistent("x")
    with pytest.raises(Undone), pool.batch():
        obj.delete()
        raise Undone
    assert obj.label == "a"
    assert State.get_by_alias("x") is obj
    assert State.get_by_id(str(obj.get_id())) is obj


@pytest.mark.parametrize("holds", [True, False], ids=["with the original", "alone"])
def test_a_version_that_was_consolidated_is_one_still(pool: engram.Pool, holds: bool) -> None:
    original = State(one=np.zeros(3), label="old")
    original.make_persistent("x")
    identity = original.get_id()
    version = original.new_version()
    version.label = "new"
    version.fill("one", 7)
    own = version.get_id()
    if not holds:
        del original
    with pytest.raises(Undone), pool.batch():
        version.consolidate_version()
        assert State.get_by_alias("x").label == "new"
        raise Undone
    original = State.get_by_alias("x")
    assert original is not version
    assert (original.label, original.get_id()) == ("old", identity)
    assert (version.label, version.get_id()) == ("new", own)
    assert original.one.tolist() == [0, 0, 0]
    assert version.one.tolist() == [7, 7, 7]
    version.consolidate_version()
    assert original.label == "new"
    assert version.get_id() == original.get_id() == identity


def test_an_inner_batch_that_fails_undoes_what_the_outer_one_did(pool: engram.Pool) -> None:
    obj = State(label="a")
    with pytest.raises(engram.BusyError, match="inner"), pool.batch():
        obj.make_persistent("x")
        with pytest.raises(active.AliasTakenError):
            State(label="b").make_persistent("x")
    assert not obj.is_persistent


def test_a_batch_that_others_were_faster_than_leaves_objects_as_they_were(
    pool: engram.Pool,
) -> None:
    pool.attrs["n"] = 0
    obj = State(label="a")
    with pytest.raises(engram.BusyError), pool.batch():
        pool.attrs["n"] = 1
        obj.make_persistent("x")
        script = f"import engram; engram.open({pool.path!r}).attrs['n'] = 2"
        subprocess.run([sys.executable, "-c", script], check=True, timeout=60)
    assert not obj.is_persistent
    obj.make_persistent("x")


@pytest.mark.parametrize("look", ["is_persistent", "label", "make_persistent", "alias"])
@pytest.mark.parametrize("where", ["here", "in another thread"])
def test_a_batch_that_is_forgotten_leaves_objects_as_they_were(
    pool: engram.Pool, look: str, where: str
) -> None:
    obj = State(label="a")

    def forgetful() -> Any:
        batch = pool.batch()
        batch.__enter__()
        obj.make_persistent("x")
        yield

    generators = [forgetful()]
    next(generators[0])
    assert obj.is_persistent
    if where == "here":
        generators.clear()
    else:
        thread = threading.Thread(target=generators.clear)
        thread.start()
        thread.join()
    if look == "label":
        assert obj.label == "a"
    elif look == "make_persistent":
        obj.make_persistent("x")
        assert State.get_by_alias("x") is obj
    elif look == "alias":
        with pytest.raises(active.AliasNotFoundError):
            State.get_by_alias("x")
    assert obj.is_persistent == (look == "make_persistent")


def test_a_child_leaves_its_parents_batch_to_it(pool: engram.Pool) -> None:
    obj = State(label="a")
    with pool.batch():
        obj.make_persistent("x")
        child = os.fork()
        if not child:
            gone = isinstance(_error(lambda: obj.label), active.ObjectDeletedError)
            os._exit(0 if gone and obj.is_persistent else 1)
        assert os.waitpid(child, 0)[1] == 0
    assert State.get_by_alias("x") is obj
    assert obj.label == "a"


def _error(work: Any) -> BaseException | None:
    try:
        work()
    except engram.EngramError as error:
        return error
    return None


def test_what_a_signal_hits_is_put_back_all_the_same(pool: engram.Pool) -> None:
    hits: list[str] = []

    class Rude(dict[str, Any]):
        """What raises a signal when it is written to, the first time."""

        def __setitem__(self, key: str, value: Any) -> None:
            if not hits:
                hits.append(key)
                signal.raise_signal(signal.SIGINT)
            super().__setitem__(key, value)

    rude = Rude()
    with pytest.raises(KeyboardInterrupt):
        with pytest.raises(Undone), pool.batch():
            if_undone(lambda: rude.__setitem__("done", True))
            raise Undone
        for _ in range(1000):
            pass
    assert rude == {"done": True}
    assert hits == ["done"]


def test_what_takes_two_commits_is_refused_in_a_batch(sites: Sites) -> None:
    obj = State(label="a")
    obj.make_persistent("x")
    far = obj.new_version(sites.there)
    far.label = "b"
    where = obj.get_location()
    for pool in sites:
        with pytest.raises(engram.BusyError, match="end the batch first"), pool.batch():
            obj.move(sites.there)
        with pytest.raises(engram.BusyError, match="end the batch first"), pool.batch():
            obj.new_replica(sites.there)
        with pytest.raises(engram.BusyError, match="end the batch first"), pool.batch():
            far.consolidate_version()
    assert obj.get_location() == where
    assert obj.label == "a"
    assert State.get_by_alias("x") is obj
    far.consolidate_version()
    assert obj.label == "b"
    obj.move(sites.there)
    assert obj.get_location() == sites.there.path


def steps() -> Any:
    whom = strategies.integers(0, 4)
    kind = strategies.sampled_from(
        ["make", "delete", "label", "fill", "refer", "version", "consolidate", "alias"]
    )
    return strategies.lists(strategies.tuples(kind, whom, whom), max_size=12)


_numbers = itertools.count()


class Cast:
    """Some objects, persistent and not, and what may be done with them."""

    def __init__(self) -> None:
        self.all: list[State] = [State(one=np.full(3, n), label=f"{n}") for n in range(5)]

    def do(self, kind: str, whom: int, other: int) -> None:
        """Do one thing; what cannot be done is an error that changes nothing."""
        obj = self.all[whom]
        if _engram.in_batch() and not obj.is_persistent and kind != "make":
            return  # what is done to an ordinary object is in no batch
        if kind == "make":
            obj.make_persistent()
        elif kind == "delete":
            obj.delete()
        elif kind == "label":
            obj.label = f"{obj.label}{other}"
        elif kind == "refer":
            obj.other = self.all[other]
        elif kind == "version":
            self.all[other] = obj.new_version()
        elif kind == "consolidate":
            obj.consolidate_version()
        elif kind == "alias":
            obj.add_alias(f"alias {next(_numbers)}")
        elif kind == "fill" and not obj.is_persistent:
            obj.two = np.full(2, other)

    def try_to(self, steps: list[Any]) -> None:
        """Do what can be done."""
        for step in steps:
            try:
                self.do(*step)
            except (engram.ArgumentError, engram.NotFoundError, active.VersionError):
                continue

    def seen(self) -> list[Any]:
        """Tell what a program sees of them."""
        return [self._seen(obj) for obj in self.all]

    def _seen(self, obj: State) -> Any:
        try:
            found: tuple[Any, ...] = (obj.label, obj.one.tolist(), id(obj.other))
        except active.ObjectDeletedError:
            return "deleted"
        if obj.is_persistent:
            identity = str(obj.get_id())
            found += (identity, State.get_by_id(identity).label, sorted(obj.get_aliases()))
        return found


@given(before=steps(), within=steps(), after=steps())
@settings(
    max_examples=60, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture]
)
def test_nothing_is_left_of_an_undone_batch(
    pool: engram.Pool, before: Any, within: Any, after: Any
) -> None:
    cast = Cast()
    cast.try_to(before)
    was, objects = cast.seen(), list(cast.all)
    with pytest.raises(Undone), pool.batch():
        cast.try_to(within)
        raise Undone
    cast.all = objects
    assert cast.seen() == was
    cast.try_to(after)  # all that can be done with them still can
    assert len(cast.seen()) == len(objects)
