"""Arrays of a pool as xarray reads them: nothing is read until values are asked for.

An array in one piece is then numpy on the pool's own memory, read-only and not copied; a chunked
one gives the box that is asked for. Each is known by its id, not by its name: values of one dataset
are never of two versions, and what was replaced since is `NotFoundError`.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np
from xarray.backends import BackendArray
from xarray.coding.strings import create_vlen_dtype
from xarray.core import indexing

from engram import tokens
from engram.array import Array
from engram.blob import Blob
from engram.chunked import ChunkedArray, read_of_shape
from engram.errors import NotFoundError

if TYPE_CHECKING:
    from engram._engram import ObjectInfo
    from engram.xarray.place import Place

TEXT = create_vlen_dtype(str)
"""The dtype by which xarray knows strings of variable length."""


class PoolArray(BackendArray):
    """An array or blob of a pool, for xarray.

    Strings of variable length are shown as Python's. Single bytes that no file has given are shown
    with a dimension of length 1 after the others, as netCDF has texts of one character: otherwise
    xarray would join the texts of the last dimension.
    """

    def __init__(self, place: Place, name: str, oid: int, info: ObjectInfo) -> None:
        self.place = place
        self.name = name
        self.oid = oid
        self.is_blob = info.kind == "blob"
        self.is_chunked = info.chunks is not None
        self.stored_dtype = np.dtype("u1") if self.is_blob else info.dtype
        self.stored_shape = (info.nbytes,) if self.is_blob else tuple(info.shape)
        is_bytes = self.stored_dtype == np.dtype("S1") and bool(self.stored_shape)
        self.as_characters = is_bytes and not info.origin
        self.dtype = TEXT if self.stored_dtype.kind == "T" else self.stored_dtype

    @property
    def shape(self) -> tuple[int, ...]:
        """The shape, as xarray sees it; of one that grows, what it was when it was opened."""
        return (*self.stored_shape, 1) if self.as_characters else self.stored_shape

    def clip(self, sizes: dict[int, int]) -> None:
        """Leave out what lies behind a length, of some dimensions."""
        self.stored_shape = tuple(sizes.get(i, n) for i, n in enumerate(self.stored_shape))

    def __getitem__(self, key: indexing.ExplicitIndexer) -> Any:
        return indexing.explicit_indexing_adapter(
            key, self.shape, indexing.IndexingSupport.BASIC, self._read
        )

    async def async_getitem(self, key: indexing.ExplicitIndexer) -> Any:
        """Give the values at once: they are in memory already."""
        return self[key]

    def _read(self, key: tuple[Any, ...]) -> Any:
        try:
            return self._selected(key)
        except NotFoundError as error:
            raise NotFoundError(
                f"{self.name!r} was deleted, replaced or cut since the dataset was opened "
                f"({error}): open it again"
            ) from None

    def _selected(self, key: tuple[Any, ...]) -> Any:
        inner = key[: len(self.stored_shape)]
        inner = tuple(map(self._bounded, inner, self.stored_shape))
        handle = self.handle()
        if self.stored_dtype.kind == "T":
            part = np.asarray(handle[...][inner]).astype(object)
        elif self.is_blob:
            part = handle.view()[inner]
        elif self.is_chunked:
            part = read_of_shape(handle, inner, self.stored_shape)
        else:
            part = handle.view()[inner]
        if not self.as_characters:
            return part
        return np.asarray(part)[..., np.newaxis][(..., key[-1])]

    @staticmethod
    def _bounded(part: Any, length: int) -> Any:
        """Return a slice within the shape that xarray knows: the array may have grown since."""
        if not isinstance(part, slice):
            return part
        found = range(*part.indices(length))
        stop: int | None = found.stop if found.stop >= 0 else None
        return slice(found.start, stop, found.step)

    def handle(self) -> Any:
        """Return the array's handle, in a pool that is open."""
        namespace = self.place.namespace()
        if self.is_blob:
            return Blob(namespace, self.oid, None, self.stored_shape)
        kind = ChunkedArray if self.is_chunked else Array
        return kind(namespace, self.oid, self.stored_dtype, self.stored_shape)

    def __dask_tokenize__(self) -> object:
        """By what name dask knows the values: the same one for as long as they cannot change."""
        namespace = self.place.namespace()
        is_kept = self.is_chunked or self.stored_dtype.kind == "T"
        return tokens.of_object(namespace, self.oid, is_kept=is_kept)
