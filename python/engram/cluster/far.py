"""What lies below a subtree on another node: arrays and blobs, read and written over the network.

A handle is looked up once: shape, dtype and attributes are those of that moment. A small value
comes with the look-up, and is what the first read gives; all else is read as it is when it is asked
for. Where the object was replaced meanwhile, that is an error.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Iterator, MutableMapping
from contextlib import contextmanager
from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING, Any, NoReturn

import numpy as np

from engram import _engram, blob, later
from engram.array import converted
from engram.cluster.alike import Alike, AlikeArray
from engram.cluster.boxes import Box, bounding
from engram.cluster.excerpts import Excerpt
from engram.errors import ArgumentError, BusyError, ConflictError, CorruptError, NotFoundError
from engram.selection import field_names

if TYPE_CHECKING:
    from engram.cluster.cluster import Cluster
    from engram.cluster.trees import ClusterGroup

_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
_BYTE = np.dtype(np.uint8)
_BOX_BYTES = 64 << 20
"""The largest box that a node is asked for at once."""
_TRIES_MOST = 100
"""How often a value is asked for that is written in place meanwhile."""
_WRITES_MOST = 1000
"""The most boxes that an index may select for a write: each is a request of its own."""


class FarObject(Alike):
    """An object on another node."""

    def __init__(self, tree: ClusterGroup, path: str, head: bytes, value: bytes | None) -> None:
        self._tree = tree
        self.path = path
        """Its name in the cluster."""
        # A small value comes with the look-up, for the first read. Later ones ask for it.
        self._head, self._value = head, value
        self._kind, _, _, _, attrs, told = self._said = _engram.unpacked(head)
        if told is None:
            raise CorruptError(f"{path!r}: a node has not told what it is")
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
    def cluster(self) -> Cluster:  # type: ignore[override]  # it is never set
        """The cluster that it is of."""
        return self._tree.cluster

    @property
    def node(self) -> str:
        """The node on which it lies."""
        return self._tree.home(self.path)

    def _sign(self) -> tuple[Any, ...]:
        return self.cluster.name, self._tree.root, self.node, self._id

    def view(self, mode: str = "r") -> NoReturn:
        """Refuse: the memory is another node's.

        Raises
        ------
        ArgumentError
            Always.

        """
        del mode
        raise ArgumentError(
            f"{self.path!r} lies on {self._host()}, whose memory cannot be viewed from here: [...] "
            "copies the values"
        )

    def _host(self) -> str:
        """Name the host of its node."""
        hosts = {each.node: each.host for each in self.cluster.members}
        return f"another node, on the host {hosts.get(self.node, self.node)}"

    def _taken(self) -> bytes | None:
        """Give the value that came with the look-up, once."""
        value, self._value = self._value, None
        return value

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

    def _write(self, dtype: np.dtype[Any], shape: tuple[int, ...], key: Any, value: Any) -> None:
        """Write in place what `key` selects of items of a dtype, in a shape."""
        with self._fitting(dtype, shape, key):
            value = converted(dtype, key, value, len(shape))
            excerpt = Excerpt(key, shape)
        if excerpt.count > _WRITES_MOST:
            raise ArgumentError(
                f"[{key}] of {self.path!r} selects {excerpt.count:,} boxes, and on another node at "
                f"most {_WRITES_MOST:,} are written by one assignment: read a box around them, "
                "change it, and assign the box"
            )
        with self._fitting(dtype, shape, key):
            block = np.zeros(excerpt.shape, dtype)
            block[excerpt.key] = value
        # If it fails midway, some of it is written: what came with the look-up is no longer true.
        self._value = None
        for place, box in excerpt.boxes():
            for piece in _pieces(box, dtype.itemsize):
                begins = zip(piece.offsets, box.offsets, place.offsets, strict=True)
                inside = Box(tuple(at - begin + to for at, begin, to in begins), piece.counts)
                data = np.ascontiguousarray(block[inside.slices]).tobytes()
                self._store(list(piece.offsets), list(piece.counts), data)

    @contextmanager
    def _fitting(self, dtype: np.dtype[Any], shape: tuple[int, ...], key: Any) -> Iterator[None]:
        """Have numpy's refusals of a value say of what."""
        try:
            yield
        except (ValueError, TypeError, OverflowError) as error:
            raise ArgumentError(
                f"the value does not fit into [{key}] of {self.path!r}, of shape {shape} and dtype "
                f"{dtype}: {error}"
            ) from error

    def _pulled(self, out: Any) -> bytes | None:
        """Read all of the value into memory of its bytes; or give it, if it came as a small one.

        It has another generation once it was written in place, and is the same object still.
        """
        for _ in range(_TRIES_MOST):
            try:
                self._tree.asked(lambda tree: tree.pull(self._below(), self._tag(), out))
            except ConflictError:
                found = self._tree.asked(lambda tree: tree.look(self._below()))
                told = None if found is None else _engram.unpacked(found[0])[5]
                if found is None or told is None or (told[0], told[2]) != (self._id, self.nbytes):
                    raise
                self._generation = told[1]
                value: bytes | None = found[1]
                if value is not None:
                    return value
            else:
                return None
        raise BusyError(f"{self.path!r} is written all the time: read it again later")

    def _whole(self) -> bytes:
        """Give its value's bytes."""
        value = self._taken()
        if value is not None:
            return value
        if self._in_one:
            out = bytearray(self.nbytes)
            return self._pulled(out) or bytes(out)
        raise ArgumentError(f"{self.path!r} lies in pieces: read boxes of it")


def _looked_up(tree: ClusterGroup, path: str) -> Any:
    return tree[tree.inside(path)]


class FarAttributes(MutableMapping[str, Any]):
    """The attributes of what lies on another node, as they were when it was looked up."""

    def __init__(self, of: FarObject | ClusterGroup, known: dict[str, Any]) -> None:
        self._of, self._known = of, known

    def __getitem__(self, key: str) -> Any:
        if key not in self:
            names = ", ".join(repr(name) for name in list(self)[:8])
            there = f"it has {names}" if names else "it has none"
            raise NotFoundError(f"there is no attribute {key!r} here: {there}")
        return self._known[key]

    def __contains__(self, key: object) -> bool:
        return isinstance(key, str) and key in self._known

    def __iter__(self) -> Iterator[str]:
        """Give the names in byte order, as a pool does."""
        return iter(sorted(self._known, key=str.encode))

    def __len__(self) -> int:
        return len(self._known)

    def __repr__(self) -> str:
        return repr(dict(self))

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
        self[key]  # it is an error if there is none
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
        return f"<engram blob {self.cluster.url(self.path)} {self.nbytes} bytes>"

    @property
    def size(self) -> int:
        """How many bytes it had when it was looked up."""
        return self.nbytes

    def __len__(self) -> int:
        return self.nbytes

    def __iter__(self) -> Iterator[int]:
        return iter(bytes(self))

    def __bytes__(self) -> bytes:
        return self._read(0, self.nbytes)

    def __array__(self, dtype: Any = None, copy: bool | None = None) -> np.ndarray[Any, Any]:
        """As uint8."""
        if copy is False:
            self.view()
        return np.frombuffer(bytes(self), np.uint8).astype(np.uint8 if dtype is None else dtype)

    def __getitem__(self, key: Any) -> Any:
        """Read bytes: `b[...]`, `b[10:20]`; `b[3]` is one byte's value, as with `bytes`."""
        key = blob.read_by(key)
        if key is Ellipsis:
            return bytes(self)
        if isinstance(key, slice):
            start, stop, step = key.indices(self.nbytes)
            return self._read(start, max(start, stop)) if step == 1 else bytes(self)[key]
        at = self._place(key)
        return self._read(at, at + 1)[0]

    def __setitem__(self, key: Any, value: Any) -> None:
        """Write bytes in place, as many as `key` selects: any index that numpy takes.

        Raises
        ------
        ArgumentError
            If `value` does not fit, or `key` selects too many boxes.
        IndexError
            If the index is out of bounds.

        """
        if blob.is_bytes(value):
            value = blob.as_items(key, value, self.nbytes)
        self._write(_BYTE, (self.nbytes,), key, value)

    def _place(self, key: Any) -> int:
        at = int(key) + self.nbytes * (int(key) < 0)
        if not 0 <= at < self.nbytes:
            raise IndexError(f"index {int(key)} is out of bounds for a blob of {self.nbytes} bytes")
        return at

    def _read(self, start: int, stop: int) -> bytes:
        value = self._taken()
        if value is not None:
            return value[start:stop]
        if self._in_one and (start, stop) == (0, self.nbytes):
            return self._whole()
        pieces = range(start, stop, _BOX_BYTES)
        return b"".join(self._load([at], [min(_BOX_BYTES, stop - at)]) for at in pieces)


class FarArray(FarObject, AlikeArray):
    """An array on another node."""

    def __init__(self, tree: ClusterGroup, path: str, head: bytes, value: bytes | None) -> None:
        super().__init__(tree, path, head, value)
        _, self.dtype, self.shape, dims, _, _ = self._said
        self.dims: tuple[str, ...] | None = None if dims is None else tuple(dims)
        """The names of the dimensions, if they have some."""

    __eq__ = Alike.__eq__
    __ne__ = Alike.__ne__
    __hash__ = Alike.__hash__

    def __repr__(self) -> str:
        return f"<engram array {self.cluster.url(self.path)} {self.dtype} {self.shape}>"

    @property
    def chunks(self) -> None:
        """None of an array in one piece; nodes do not tell the chunks of others.

        Raises
        ------
        AttributeError
            If it is chunked.

        """
        if not self._in_one:
            raise AttributeError(
                f"{self.path!r} is chunked, and its node does not tell how: choose boxes of your "
                "own, such as dask.array.from_array(a, chunks=...)"
            )

    def __getitem__(self, key: Any) -> Any:
        """Read what numpy's index asks for: the smallest box that has it, and of that the rest."""
        if self._kind == "strings":
            return _engram.array_of_packed(self._head, self._whole())[key]
        value = self._taken()
        if value is not None:
            return _engram.array_of_packed(self._head, value)[key]
        box, rest = bounding(self.shape, key)
        out = np.empty(box.counts, self.dtype)
        if box.counts == self.shape and self._in_one and out.nbytes == self.nbytes:
            raw = out.reshape(-1).view(np.uint8) if out.size else np.empty(0, np.uint8)
            small = self._pulled(raw)
            if small is not None:
                return _engram.array_of_packed(self._head, small)[key]
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
        """Write in place what `key` selects, box by box, each by a request of its own.

        Raises
        ------
        ArgumentError
            If `value` does not fit, `key` names fields, or it selects too many boxes.
        IndexError
            If the index is out of bounds.

        """
        self._check_written(key)
        self._write(self.dtype, self.shape, key, value)

    def _check_written(self, key: Any) -> None:
        if self._kind == "strings":
            raise ArgumentError(f"{self.path!r} has strings: store it anew as a whole")
        if self.dtype.names and field_names(key):
            raise ArgumentError(
                f"{self.path!r} lies on another node, where items are written as a whole: read "
                f"them, change the fields {field_names(key)}, and assign the items"
            )


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
