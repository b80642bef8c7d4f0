"""Active objects of several scopes, namespaces and pools, which refer to each other."""

from __future__ import annotations

import gc
from typing import TYPE_CHECKING

import numpy as np
import pytest

import engram
from active_models import Account, Block
from engram import active

if TYPE_CHECKING:
    from pathlib import Path


def test_private_and_shared_objects_refer_to_each_other(pool: engram.Pool) -> None:
    shared, mine = Block(np.ones(2), "shared"), Block(np.ones(3), "mine")
    shared.make_persistent("shared")
    mine.next = shared
    mine.make_persistent("mine", scope="private")
    mine.tags = ["a"]
    mine.data = np.zeros(5000)
    mine.next = Block(np.ones(4), "mine, too", next=shared)
    mine.add_alias("another")
    objects = pool[".active/objects"]
    scopes = {objects[name].attrs["label"]: objects[name].scope for name in objects}
    assert scopes == {"shared": "shared", "mine": "private", "mine, too": "private"}
    assert pool[".active/aliases/another"].scope == "private"
    shared.next = mine
    assert shared.next.next.next is shared  # type: ignore[union-attr]
    assert active.gc().objects == 0


def test_what_only_something_elsewhere_refers_to_is_not_collected(home: Path) -> None:
    with (
        engram.create(home / "p", size="64 MiB", force=True) as first,
        engram.create(home / "q", size="64 MiB", force=True) as second,
    ):
        here = Block(np.ones(3), "here")
        here.make_persistent("here", backend_id=first)
        there = Block(np.ones(3), "there")
        there.make_persistent(backend_id=second)
        namespace = first.create_namespace("other")
        apart = Block(np.ones(3), "apart")
        apart.make_persistent(backend_id=namespace)
        here.next = there
        there.next = apart
        assert active.gc(second).objects == 0
        assert active.gc(namespace).objects == 0
        identity = here.get_id()
        del here, there, apart
        gc.collect()
    with engram.open(home / "p"):
        again = Block.get_by_id(identity)  # type: ignore[arg-type]
        assert again.next.label == "there"  # type: ignore[union-attr]  # its pool is opened
        assert again.next.next.label == "apart"  # type: ignore[union-attr]


def test_a_method_changes_objects_of_two_scopes(pool: engram.Pool) -> None:
    class Pair(engram.ActiveObject):
        first: Account
        second: Account
        done: int = 0

        @engram.activemethod
        def both(self, *, fail: bool) -> None:
            self.first.transfer(1)
            self.second.transfer(2)
            self.done += 1
            if fail:
                raise RuntimeError

    first, second = Account(), Account()
    first.make_persistent()
    second.make_persistent(scope="private")
    pair = Pair(first, second)
    pair.make_persistent()
    pair.both(fail=False)
    with pytest.raises(RuntimeError):
        pair.both(fail=True)
    assert (first.left, second.left, pair.done) == (999, 998, 1)
    assert pool


def test_published_objects_are_read_and_not_changed(pool: engram.Pool) -> None:
    block = Block(np.arange(4.0), "a")
    block.make_persistent("b")
    pool.publish(".active", closed=True)
    assert Block.get_by_alias("b").mean() == 1.5
    assert not block.data.flags.writeable
    with pytest.raises(engram.ReadOnlyError):
        block.label = "c"
    with pytest.raises(engram.ReadOnlyError):
        block.add_tag("t")
    assert (block.label, block.tags) == ("a", [])


def test_a_reference_opens_no_pool_of_another_user(
    home: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with engram.create(home / "p", size="64 MiB", force=True) as first:
        with engram.create(home / "q", size="64 MiB", force=True) as second:
            there = Block(np.ones(1), "there")
            there.make_persistent(backend_id=second)
            here = Block(np.ones(1), "here", next=there)
            here.make_persistent("here", backend_id=first)
            del there
            gc.collect()
        monkeypatch.setattr("os.geteuid", lambda: 54321)
        with pytest.raises(engram.AccessError, match="open it yourself"):
            here.next  # noqa: B018
        monkeypatch.undo()
        assert here.next.label == "there"  # type: ignore[union-attr]
