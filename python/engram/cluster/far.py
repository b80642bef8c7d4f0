"""What lies below a subtree on another node: arrays and blobs, read and written over the network.

A handle is looked up once: shape, dtype and attributes are those of that moment. Values are read as
they are when they are asked for; where the object was replaced meanwhile, that is an error.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Iterator, MutableMapping
from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING, Any

import numpy as np

from engram import _engram, later
from engram.cluster.boxes import Box, bounding
from engram.errors import ArgumentError, CorruptError

if TYPE_CHECKING:
    from engram.cluster.trees import ClusterGroup

_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
_BOX_BYTES = 64 << 20
"""The largest box that a node is asked for at once."""


class FarObject:
    """An object on another node."""

    def __init__(self, tree: ClusterGroup, path: str, head: bytes, value: bytes | None) -> None:
        self._tree = tree
        self.path = path
        """Its name in the cluster."""
        self._head, self._value = head, value
        self._kind, self.dtype, self.shape, dims, attrs, told = _engram.unpacked(head)
        if told is None:
            raise CorruptError(f"{path!r}: a node has not told what it is")
        self.dims: tuple[str, ...] | None = None if dims is None else tuple(dims)
        """The names of the dimensions, if they have some."""
        self.attrs = FarAttributes(self, dict(attrs))
        """The attributes."""
        self._id, self._generation, self.nbytes, created, modified, self.owner, self._in_one = told
        self.created = _EPOCH + timedelta(microseconds=created // 1000)
        self.modified = _EPOCH + timedelta(microseconds=modified // 1000)

    def __reduce__(self) -> tuple[Any, ...]:
        return _looked_up, (self._tree, self.path)

    def _repr_html_(self) -> str:
        return later.card(self)

    @property
    def node(self) -> str:
        """The node on which it lies."""
        return self._tree.home(self.path)

    @property
    def name(self) -> str:
        """The last step of its path."""
        return self.path.rpartition("/")[2]

    def _below(self) -> str:
        return self._tree.below(self.path)

    def _tag(self) -> str:
        return f'"{self._id:x}/{self._generation:x}"'

    def _load(self, offsets: list[int], counts: list[int]) -> bytes:
        data: bytes = self._tree.asked(
            lambda tree: tree.load(self._below(), self._id, offsets, counts)
        )
        return data

    def _store(self, offsets: list[int], counts: list[int], data: bytes) -> None:
        self._tree.asked(lambda tree: tree.store(self._below(), self._id, offsets, counts, data))

    def _whole(self) -> bytes:
        """Give its value's bytes."""
        if self._value is not None:
            return self._value
        if self._in_one:
            out = bytearray(self.nbytes)
            self._tree.asked(lambda tree: tree.pull(self._below(), self._tag(), out))
            return bytes(out)
        raise ArgumentError(f"{self.path!r} lies in pieces: read boxes of it")


def _looked_up(tree: ClusterGroup, path: str) -> Any:
    return tree[tree.inside(path)]


class FarAttributes(MutableMapping[str, Any]):
    """The attributes of what lies on another node, as they were when it was looked up."""

    def __init__(self, of: FarObject | ClusterGroup, known: dict[str, Any]) -> None:
        self._of, self._known = of, known

    def __getitem__(self, key: str) -> Any:
        return self._known[key]

    def __iter__(self) -> Iterator[str]:
        return iter(self._known)

    def __len__(self) -> int:
        return len(self._known)

    def __repr__(self) -> str:
        return repr(self._known)

    def __setitem__(self, key: str, value: Any) -> None:
        self.update({key: value})

    def update(self, *given: Any, **more: Any) -> None:
        """Set several, in one commit."""
        changed = dict(*given, **more)
        tree, below = _place_of(self._of)
        head = _engram.packed_attrs(changed)
        tree.asked(lambda own: own.set_attrs(below, head))
        # What they are is told as the node would tell it.
        self._known |= dict(_engram.unpacked(head)[4])

    def __delitem__(self, key: str) -> None:
        if key not in self._known:
            raise KeyError(key)
        tree, below = _place_of(self._of)
        tree.asked(lambda own: own.drop_attr(below, key))
        del self._known[key]


def _place_of(thing: FarObject | ClusterGroup) -> tuple[ClusterGroup, str]:
    if isinstance(thing, FarObject):
        return thing._tree, thing._below()
    return thing, thing.below(thing.path)


class FarBlob(FarObject):
    """Bytes on another node."""

    def __repr__(self) -> str:
        return f"<engram blob {self._tree.cluster.url(self.path)} {self.nbytes} bytes>"

    def __len__(self) -> int:
        return self.nbytes

    def __bytes__(self) -> bytes:
        return self._whole()

    def __getitem__(self, key: slice) -> bytes:
        if not isinstance(key, slice):
            raise ArgumentError(f"a blob on another node is read by slices, not by {key!r}")
        start, stop, step = key.indices(self.nbytes)
        if step != 1:
            return bytes(self)[key]
        if self._value is not None:
            return self._value[key]
        pieces = range(start, max(start, stop), _BOX_BYTES)
        return b"".join(self._load([at], [min(_BOX_BYTES, stop - at)]) for at in pieces)


class FarArray(FarObject):
    """An array on another node."""

    def __repr__(self) -> str:
        return f"<engram array {self._tree.cluster.url(self.path)} {self.dtype} {self.shape}>"

    @property
    def ndim(self) -> int:
        """The number of dimensions."""
        return len(self.shape)

    @property
    def size(self) -> int:
        """The number of items."""
        return math.prod(self.shape)

    def __len__(self) -> int:
        if not self.shape:
            raise TypeError("an array without dimensions has no length")
        return self.shape[0]

    def __array__(self, dtype: Any = None, copy: bool | None = None) -> np.ndarray[Any, Any]:
        if copy is False:
            raise ValueError(f"{self.path!r} lies on another node: numpy cannot have it uncopied")
        return np.asarray(self[...], dtype=dtype)

    def __getitem__(self, key: Any) -> Any:
        """Read what numpy's index asks for: the smallest box that has it, and of that the rest."""
        if self._value is not None or self._kind == "strings":
            return _engram.array_of_packed(self._head, self._whole())[key]
        box, rest = bounding(self.shape, key)
        out = np.empty(box.counts, self.dtype)
        if box.counts == self.shape and self._in_one and out.nbytes == self.nbytes:
            raw = out.reshape(-1).view(np.uint8) if out.size else np.empty(0, np.uint8)
            self._tree.asked(lambda tree: tree.pull(self._below(), self._tag(), raw))
            return out[rest]
        for piece in _pieces(box, self.dtype.itemsize):
            offsets, counts = list(piece.offsets), list(piece.counts)
            data = self._load(offsets, counts)
            place = Box(
                tuple(at - begin for at, begin in zip(offsets, box.offsets, strict=True)),
                piece.counts,
            )
            out[place.slices] = np.frombuffer(data, self.dtype).reshape(piece.counts)
        return out[rest]

    def __setitem__(self, key: Any, value: Any) -> None:
        """Write a box in place: an index of whole numbers and slices without steps."""
        if self._kind == "strings":
            raise ArgumentError(f"{self.path!r} has strings: store it anew as a whole")
        box, rest = bounding(self.shape, key)
        steps = [one.step for one in rest if isinstance(one, slice)] if rest != key else [2]
        if any(step not in {None, 1} for step in steps):
            raise ArgumentError(
                f"{self.path!r} lies on another node, where boxes are written: {key!r} is none"
            )
        block = np.empty(box.counts, self.dtype)
        block[rest] = value
        for piece in _pieces(box, self.dtype.itemsize):
            offsets, counts = list(piece.offsets), list(piece.counts)
            inside = Box(
                tuple(at - begin for at, begin in zip(offsets, box.offsets, strict=True)),
                piece.counts,
            )
            data = np.ascontiguousarray(block[inside.slices]).tobytes()
            self._store(offsets, counts, data)
        self._value = None


def _pieces(box: Box, itemsize: int) -> Iterator[Box]:
    """Cut a box into some that are asked for at once: along the first dimensions."""
    if math.prod(box.counts) * itemsize <= _BOX_BYTES or not box.counts:
        if math.prod(box.counts):
            yield box
        return
    counts = list(box.counts)
    for dim, length in enumerate(counts):
        row = math.prod(counts[dim + 1 :]) * itemsize
        counts[dim] = max(1, min(length, _BOX_BYTES // max(row, 1)))
        if row <= _BOX_BYTES:
            break
    steps = [
        range(at, at + n, step) for at, n, step in zip(box.offsets, box.counts, counts, strict=True)
    ]
    for corner in itertools.product(*steps):
        ends = zip(corner, counts, box.offsets, box.counts, strict=True)
        yield Box(corner, tuple(min(step, at + n - c) for c, step, at, n in ends))
