"""A pool against a plain dict: whatever one does, the other does too."""

import shutil
import tempfile
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import (
    Bundle,
    RuleBasedStateMachine,
    consumes,
    initialize,
    invariant,
    precondition,
    rule,
)
from numpy.typing import NDArray

import engram
from engram import _engram
from support import TEXT, assert_exactly

SHM = Path("/dev/shm")

names = st.sampled_from(["a", "b", "c"])
paths = st.lists(names, min_size=1, max_size=3).map("/".join)
values = st.one_of(
    st.integers(-9, 9).map(lambda n: np.full((3, 4), n, "<i4")),
    st.integers(-9, 9).map(lambda n: np.full((40, 50), n, ">f8")),
    st.integers(0, 9).map(lambda n: np.full(n, "text " * n, TEXT)),
    st.integers(0, 9).map(lambda n: np.zeros((n, 2), [("x", "f4"), ("s", "S3")])),
    st.just(np.array("2024-02-29", "<M8[D]")),
    st.binary(max_size=40),
    st.binary(min_size=5000, max_size=6000),
)
attributes = st.one_of(st.integers(-9, 9), st.text(max_size=5), st.binary(max_size=5))


class Node:
    """An array or blob (`value`) or a group (`members`) of the model."""

    def __init__(self, value: Any = None) -> None:
        self.value = value
        self.members: dict[str, Node] = {}
        self.attrs: dict[str, Any] = {}

    def find(self, path: str) -> "Node | None":
        """Give the node at a path."""
        node: Node | None = self
        for name in path.split("/"):
            node = None if node is None or node.value is not None else node.members.get(name)
        return node

    def parent(self, path: str) -> "tuple[Node, str] | None":
        """Give the group that a path's last name is in, made if it must be; None if it cannot."""
        *above, last = path.split("/")
        node = self
        for name in above:
            if name in node.members and node.members[name].value is not None:
                return None
            node = node.members.setdefault(name, Node())
        return node, last

    def can_hold(self, path: str) -> bool:
        """Tell whether nothing above a path is an object."""
        parts = path.split("/")
        above = ("/".join(parts[:n]) for n in range(1, len(parts)))
        return all((node := self.find(p)) is None or node.value is None for p in above)

    def copy(self) -> "Node":
        """Give a copy, down to the last value."""
        copied = Node(self.value.copy() if isinstance(self.value, np.ndarray) else self.value)
        copied.attrs = dict(self.attrs)
        copied.members = {name: member.copy() for name, member in self.members.items()}
        return copied


class PoolAgainstDict(RuleBasedStateMachine):
    """Rules are what users do; the invariant is that both tell the same."""

    views = Bundle("views")

    def __init__(self) -> None:
        super().__init__()
        self.home = Path(tempfile.mkdtemp(prefix="engram-test-", dir=SHM if SHM.is_dir() else None))
        self.pool = engram.create(self.home / "pool", size="64 MiB", force=True)
        self.model = Node()
        self.before: Node | None = None
        self.batch: engram.Batch | None = None

    def teardown(self) -> None:
        if self.batch is not None:
            self.batch.__exit__(None, None, None)
        self.pool.close()
        problems, _, _ = _engram.verify(self.home / "pool")  # in no new process: so it is quick
        assert problems == []
        shutil.rmtree(self.home)

    @initialize()
    def begin(self) -> None:
        """Begin with an empty pool."""
        assert list(self.pool) == []

    # What users do

    @rule(path=paths, value=values)
    def put(self, path: str, value: Any) -> None:
        """Put or replace."""
        there = self.model.find(path)
        if not self.model.can_hold(path) or (there is not None and there.value is None):
            with pytest.raises(engram.EngramError):
                self.pool[path] = value
            return
        self.pool[path] = value
        parent, last = self.model.parent(path) or (self.model, path)
        parent.members[last] = Node(value)

    @rule(path=paths, value=values, unit=attributes)
    def create(self, path: str, value: Any, unit: Any) -> None:
        """Create what is not there."""
        if isinstance(value, bytes):
            make: Any = self.pool.create_blob
        else:
            make = self.pool.create_array
        if not self.model.can_hold(path) or self.model.find(path) is not None:
            with pytest.raises(engram.EngramError):
                make(path, data=value, attrs={"unit": unit})
            return
        make(path, data=value, attrs={"unit": unit})
        parent, last = self.model.parent(path) or (self.model, path)
        parent.members[last] = Node(value)
        parent.members[last].attrs["unit"] = unit

    @rule(path=paths, fails=st.booleans(), n=st.sampled_from([0, 10, 3000]))
    def allocate(self, path: str, fails: bool, n: int) -> None:
        """Fill in place, or fail to."""
        if not self.model.can_hold(path) or self.model.find(path) is not None:
            return
        try:
            with self.pool.allocate(path, shape=n, dtype="f4") as buf:
                buf[...] = 5
                if fails:
                    raise ZeroDivisionError  # noqa: TRY301 - it is the block that fails
        except ZeroDivisionError:
            return
        parent, last = self.model.parent(path) or (self.model, path)
        parent.members[last] = Node(np.full(n, 5, "f4"))

    @rule(path=paths)
    def group(self, path: str) -> None:
        """Require a group."""
        there = self.model.find(path)
        if not self.model.can_hold(path) or (there is not None and there.value is not None):
            with pytest.raises(engram.EngramError):
                self.pool.require_group(path)
            return
        self.pool.require_group(path)
        parent, last = self.model.parent(path) or (self.model, path)
        parent.members.setdefault(last, Node())

    @rule(path=paths)
    def delete(self, path: str) -> None:
        """Delete, with all below."""
        if self.model.find(path) is None:
            with pytest.raises(engram.NotFoundError):
                del self.pool[path]
            return
        del self.pool[path]
        parent, last = self.model.parent(path) or (self.model, path)
        del parent.members[last]

    @rule(old=paths, new=paths)
    def move(self, old: str, new: str) -> None:
        """Move to a free name."""
        node = self.model.find(old)
        within = new == old or new.startswith(f"{old}/")
        free = self.model.can_hold(new) and self.model.find(new) is None
        if node is None or within or not free:
            if old != new:
                with pytest.raises(engram.EngramError):
                    self.pool.move(old, new)
            return
        self.pool.move(old, new)
        parent, last = self.model.parent(old) or (self.model, old)
        del parent.members[last]
        parent, last = self.model.parent(new) or (self.model, new)
        parent.members[last] = node

    @rule(path=paths, n=st.integers(0, 2))
    def write_in_place(self, path: str, n: int) -> None:
        """Write a slice."""
        node = self.model.find(path)
        if self.batch is not None or node is None or not isinstance(node.value, np.ndarray):
            return
        if node.value.ndim != 2 or node.value.dtype.names:
            return
        node.value = node.value.copy()
        node.value[n::2, 1] = n
        array: Any = self.pool[path]
        array[n::2, 1] = n

    @rule(path=paths, key=names, value=attributes)
    def annotate(self, path: str, key: str, value: Any) -> None:
        """Set an attribute."""
        node = self.model.find(path)
        if node is None:
            return
        node.attrs[key] = value
        self.pool[path].attrs[key] = value

    @rule(path=paths, key=names)
    def forget(self, path: str, key: str) -> None:
        """Delete an attribute."""
        node = self.model.find(path)
        if node is None or key not in node.attrs:
            return
        del node.attrs[key]
        del self.pool[path].attrs[key]

    @rule(target=views, path=paths)
    def look(self, path: str) -> tuple[NDArray[Any], NDArray[Any]] | None:
        """Take a view, to be compared whenever it is let go of."""
        node = self.model.find(path)
        if node is None or not isinstance(node.value, np.ndarray) or node.value.dtype == TEXT:
            return None
        array: Any = self.pool[path]
        if array.ndim == 2 and not array.dtype.names:
            return None  # written in place by another rule
        return array.view(), node.value.copy()

    @rule(view=consumes(views))
    def let_go(self, view: tuple[NDArray[Any], NDArray[Any]] | None) -> None:
        """Compare a view with what it was taken of."""
        if view is not None:
            assert_exactly(view[0], view[1])

    @precondition(lambda self: self.batch is None)
    @rule()
    def begin_batch(self) -> None:
        """Begin a batch."""
        self.before = self.model.copy()
        self.batch = self.pool.batch()
        self.batch.__enter__()

    @precondition(lambda self: self.batch is not None)
    @rule(fails=st.booleans())
    def end_batch(self, fails: bool) -> None:
        """End a batch, well or not."""
        assert self.batch is not None
        batch, self.batch = self.batch, None
        if fails:
            batch.__exit__(ZeroDivisionError, ZeroDivisionError(), None)
            assert self.before is not None
            self.model = self.before
        else:
            batch.__exit__(None, None, None)

    @precondition(lambda self: self.batch is None)
    @rule()
    def reopen(self) -> None:
        """Close and open again."""
        self.pool.close()
        self.pool = engram.open(self.home / "pool", force=True)

    # What must hold

    @invariant()
    def both_tell_the_same(self) -> None:
        """Compare names, values and attributes, all the way down."""
        self._compare(self.pool, self.model)

    def _compare(self, group: engram.Group, node: Node) -> None:
        assert list(group) == sorted(node.members)
        assert len(group) == len(node.members)
        for name, expected in node.members.items():
            found = group[name]
            assert dict(found.attrs) == expected.attrs
            if isinstance(expected.value, bytes):
                assert isinstance(found, engram.Blob)
                assert found[...] == expected.value
            elif expected.value is not None:
                assert isinstance(found, engram.Array)
                assert_exactly(found[...], expected.value)
            else:
                assert isinstance(found, engram.Group)
                self._compare(found, expected)


TestPoolAgainstDict = PoolAgainstDict.TestCase
TestPoolAgainstDict.settings = settings(max_examples=40, stateful_step_count=40, deadline=None)
