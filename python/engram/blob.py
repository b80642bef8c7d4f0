"""Blobs: bytes under a name."""

from contextlib import suppress
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from engram import _engram, tokens
from engram.array import Array
from engram.errors import ArgumentError, EngramError
from engram.handle import Handle, makers

if TYPE_CHECKING:
    from collections.abc import Sequence

    from engram.index import IndexMode

_BYTE = np.dtype(np.uint8)


class Blob(Handle):
    """Bytes in a pool: `b[...]`, `b[10:20]` are bytes, `b.view()` is uint8 on its memory.

    A file that programs write through a mount, or `open_file`, is a blob as well: its size is the
    one it has at the moment, and its memory may be in several pieces, which a view shows as one.
    """

    __slots__ = ("_nbytes",)

    _kind = 2

    def __init__(
        self,
        namespace: _engram.Namespace,
        oid: int,
        dtype: np.dtype[Any] | None,
        shape: tuple[int, ...],
    ) -> None:
        del dtype  # always uint8
        self._namespace = namespace
        self._id = oid
        self._nbytes = shape[0]

    @property
    def oid(self) -> int:
        """The object's id: unique in the pool, and never used again."""
        return self._id

    @property
    def index(self) -> "IndexMode":
        """When its attributes come into the index: "sync", "async" or "none"."""
        return _engram.object_info(self._namespace, self._id).index

    @property
    def nbytes(self) -> int:
        """How many bytes it has now; of one that is gone, how many it had."""
        with suppress(EngramError):
            self._nbytes = _engram.object_info(self._namespace, self._id).nbytes
        return self._nbytes

    @property
    def size(self) -> int:
        """How many bytes it has now."""
        return self.nbytes

    def __len__(self) -> int:
        return self.nbytes

    @property
    def nlink(self) -> int:
        """How many names it has: one, and one for each `Group.link`."""
        return self.posix.nlink

    @property
    def segments(self) -> "Sequence[tuple[int, int]]":
        """Where it has memory: (offset, bytes) of each piece; what is between is a hole.

        A small one, which lies in the catalog, has none.
        """
        file = _engram.File(self._namespace, self._id, False)
        try:
            return file.segments()
        finally:
            file.close()

    def __bytes__(self) -> bytes:
        return _engram.read_blob(self._namespace, self._id)

    def __getitem__(self, key: Any) -> Any:
        """Copy out bytes: `b[...]`, `b[10:20]`; `b[3]` is one byte's value, as with `bytes`.

        Raises
        ------
        NotFoundError
            If the blob was deleted or replaced.
        ArgumentError
            If `key` is no integer, slice or `...`.

        """
        key = read_by(key)
        if key is Ellipsis:
            return _engram.read_blob(self._namespace, self._id)
        if not isinstance(key, slice):
            return int(self.view()[key])
        if key.step in {None, 1}:
            return _engram.read_blob(self._namespace, self._id, key)
        return _engram.read_blob(self._namespace, self._id)[key]

    def __setitem__(self, key: Any, value: Any) -> None:
        """Write bytes in place, as many as `key` selects; `open_file` also changes the size.

        Raises
        ------
        BusyError
            If the blob was deleted or replaced meanwhile; nothing is written.
        ArgumentError
            If there are more or fewer bytes than `key` selects.
        ReadOnlyError
            If the pool was opened with mode "r".

        """
        if is_bytes(value):
            value = as_items(key, value, self.nbytes, ", or use open_file")
        self._as_array()[key] = value

    def view(self, mode: str = "r") -> NDArray[np.uint8]:
        """Give a uint8 array of shape (nbytes,) on the pool's own memory, as `Array.view` does.

        One of a file is as long as the file is now. A view for writing gives its holes memory.
        """
        if mode not in {"r", "r+"}:
            raise ArgumentError(f'mode {mode!r} is unknown: use "r" or "r+"')
        return _engram.view(self._namespace, self._id, _BYTE, None, mode == "r+")

    def flush(self) -> None:
        """Make all in-place writes so far as durable as the pool is."""
        _engram.flush(self._namespace, self._id)

    def __array__(self, dtype: Any = None, copy: bool | None = None) -> NDArray[Any]:
        """As uint8, without a copy where that can be: read-only."""
        return self._as_array().__array__(dtype, copy)

    def __dask_tokenize__(self) -> object:
        """By what name dask knows the bytes, as `Array.__dask_tokenize__`."""
        return tokens.of_object(self._namespace, self._id)

    def _as_array(self) -> Array:
        return Array(self._namespace, self._id, _BYTE, (self.nbytes,))

    def __repr__(self) -> str:
        return self._shown(f"{self.nbytes} bytes")


makers[2] = Blob


def read_by(key: Any) -> Any:
    """Give the integer, the slice or the `...` that a blob is read by, wherever it lies.

    Raises
    ------
    ArgumentError
        If `key` is none of these. A bool is none: it would select all, or nothing.

    """
    if key is Ellipsis or (isinstance(key, tuple) and not key):
        return Ellipsis
    if isinstance(key, slice) or (
        isinstance(key, int | np.integer) and not isinstance(key, bool | np.bool_)
    ):
        return key
    raise ArgumentError(f"a blob cannot be indexed by {key!r}: use an integer, a slice or ...")


def is_bytes(value: Any) -> bool:
    """Whether something is bytes, and is written into a blob as they are."""
    return isinstance(value, bytes | bytearray | memoryview)


def as_items(key: Any, value: Any, nbytes: int, instead: str = "") -> NDArray[np.uint8]:
    """Give bytes as the items that are written to `[key]` of a blob of this size.

    Raises
    ------
    ArgumentError
        If there are more or fewer than `key` selects.

    """
    if isinstance(value, memoryview) and not value.c_contiguous:
        value = value.tobytes()
    items = np.frombuffer(value, np.uint8)
    selected = range(nbytes) if key is Ellipsis else None
    if isinstance(key, slice):
        selected = range(nbytes)[key]
    if selected is not None and len(selected) != len(items):
        raise ArgumentError(
            f"{len(items)} bytes cannot be written over {len(selected)}: in place a blob keeps its "
            f"size; replace it with group[name] = bytes{instead}"
        )
    return items
