"""Blobs: bytes under a name."""

from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from engram import _engram, tokens
from engram.array import Array
from engram.errors import ArgumentError
from engram.handle import Handle, makers

if TYPE_CHECKING:
    from engram.index import IndexMode


class Blob(Handle):
    """Bytes in a pool: `b[...]`, `b[10:20]` are bytes, `b.view()` is uint8 on its memory."""

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
        """How many bytes it has."""
        return self._nbytes

    @property
    def size(self) -> int:
        """How many bytes it has."""
        return self._nbytes

    def __len__(self) -> int:
        return self._nbytes

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
        if key is Ellipsis or key == ():
            return _engram.read_blob(self._namespace, self._id)
        if isinstance(key, slice):
            start, stop, step = key.indices(self._nbytes)
            if step == 1:
                return _engram.read_blob(self._namespace, self._id, start, max(start, stop))
            return _engram.read_blob(self._namespace, self._id)[key]
        if isinstance(key, int | np.integer):
            return int(self._as_array()[key])
        raise ArgumentError(f"a blob cannot be indexed by {key!r}: use an integer, a slice or ...")

    def __setitem__(self, key: Any, value: Any) -> None:
        """Write bytes in place, as many as `key` selects; a blob keeps its size.

        Raises
        ------
        BusyError
            If the blob was deleted or replaced meanwhile; nothing is written.
        ArgumentError
            If there are more or fewer bytes than `key` selects.
        ReadOnlyError
            If the pool was opened with mode "r".

        """
        if isinstance(value, bytes | bytearray | memoryview):
            value = np.frombuffer(value, np.uint8)
            selected = range(self._nbytes) if key is Ellipsis else None
            if isinstance(key, slice):
                selected = range(self._nbytes)[key]
            if selected is not None and len(selected) != len(value):
                raise ArgumentError(
                    f"{len(value)} bytes cannot be written over {len(selected)}: a blob keeps its "
                    "size; replace it with group[name] = bytes"
                )
        self._as_array()[key] = value

    def view(self, mode: str = "r") -> NDArray[np.uint8]:
        """Give a uint8 array of shape (nbytes,) on the pool's own memory, as `Array.view` does."""
        return self._as_array().view(mode)

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
        return Array(self._namespace, self._id, np.dtype(np.uint8), (self._nbytes,))

    def __repr__(self) -> str:
        return self._shown(f"{self._nbytes} bytes")


makers[2] = Blob
