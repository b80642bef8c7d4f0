"""`from_pool`: an array of a pool as dask's, read when and where it is computed.

A block of an array in one piece is numpy on the pool's own memory: a slice of a view, read-only,
and no byte of it is copied. A block of a chunked array is decoded from the chunks that it touches,
so blocks are made of whole chunks unless one asks for others.
"""

from __future__ import annotations

import os
import warnings
from typing import TYPE_CHECKING, Any

import dask.array as da
import numpy as np
from dask.array.core import normalize_chunks
from dask.base import tokenize

from engram.array import Array
from engram.chunked import read_of_shape
from engram.dask.place import DEFAULT, Place, found_at, place_of
from engram.errors import ArgumentError, EngramWarning

if TYPE_CHECKING:
    from collections.abc import Sequence

_TEXT_BYTES = 16
"""What a text is taken to have, where the sizes of blocks are chosen."""


class Source:
    """An array of a pool as a graph of dask's holds it.

    It says where the array is. A process that computes opens the pool when it reads the first
    block, and the scheduler, which reads none, need not have the pool.
    """

    def __init__(self, array: Array) -> None:
        self.shape = tuple(array.shape)
        self.dtype = array.dtype
        self.is_chunked = array.chunks is not None
        self.oid = array.oid
        self.token = tokenize(array)
        self._kind = array._kind
        self._handle: Array | None = array

    @property
    def ndim(self) -> int:
        """The number of dimensions."""
        return len(self.shape)

    def __getitem__(self, key: Any) -> Any:
        array = self._array()
        if self.is_chunked:
            return read_of_shape(array, key, self.shape)
        if self.dtype.kind == "T":
            return array[key]
        whole = array.view()
        part = whole[key]
        return part if isinstance(part, np.ndarray) else whole[(*key, ...)]

    def _array(self) -> Any:
        if self._handle is None:
            self._handle = self._place.handle(self._kind, self.oid)
        return self._handle

    def __dask_tokenize__(self) -> object:
        return ("engram.dask.Source", self.token)

    def __getstate__(self) -> dict[str, Any]:
        place = self._place if self._handle is None else place_of(self._handle, "r")
        return {**self.__dict__, "_handle": None, "_place": place}

    _place: Place


def from_pool(
    array: Array | str | os.PathLike[str],
    chunks: int | Sequence[Any] | str | bool | None = None,
    *,
    namespace: str | None = None,
    name: str | None = None,
) -> da.Array:
    """Give an array of a pool as a dask array, which reads nothing before it is computed.

    Parameters
    ----------
    array
        An array of a pool, or a pool's path followed by that of an array in it.
    chunks
        The blocks, as dask's `from_array` takes them. If they are not given, they are of the size
        that dask is configured for (`array.chunk-size`), and of whole chunks where the array has
        such. True takes the array's own chunks, one each.
    namespace
        The namespace, with a path; else the default one.
    name
        The name of the dask array. Else it is made of the array and its version, if that is
        published or of a snapshot, and is new each time where the values may change.

    Returns
    -------
    dask.array.Array
        An array whose blocks are on the pool's memory, read-only, if the array lies in one piece.

    Raises
    ------
    NotFoundError, PoolNotFoundError
        If there is no such array, or no such pool.
    ArgumentError
        If it is no array, or `chunks` do not fit.

    """
    if isinstance(array, str | os.PathLike):
        found = found_at(array, "r", namespace or DEFAULT)
    elif namespace is not None:
        raise ArgumentError(f"namespace={namespace!r} goes with a path: {array!r} is in one")
    else:
        found = array
    if not isinstance(found, Array):
        raise ArgumentError(
            f"{array!r} is {found!r}, and no array: give an array of a pool, or its path; a group "
            "opens as a dataset, with xarray.open_dataset(path, chunks={})"
        )
    source = Source(found)
    blocks = _blocks(source, found.chunks, chunks)
    return da.from_array(
        source,
        chunks=blocks,
        name=name or f"from-pool-{tokenize(source, blocks)}",
        asarray=False,
        fancy=not source.is_chunked,
        inline_array=True,
        meta=np.empty((0,) * source.ndim, source.dtype),
    )


def _blocks(source: Source, own: tuple[int, ...] | None, chunks: Any) -> tuple[Any, ...]:
    """Return the blocks of a dask array: lengths along each dimension."""
    if chunks is True:
        chunks = own if own is not None else -1
    asked = "auto" if chunks is None else chunks
    sized = np.dtype(f"S{_TEXT_BYTES}") if source.dtype.kind == "T" else source.dtype
    try:
        found = normalize_chunks(asked, source.shape, dtype=sized, previous_chunks=own)
    except (ValueError, TypeError) as error:
        raise ArgumentError(
            f"chunks {chunks!r} do not fit an array of shape {source.shape}: {error}"
        ) from error
    if own is not None and chunks is not None:
        _warn_of_split(found, own)
    return tuple(found)


def _warn_of_split(blocks: Sequence[Sequence[int]], own: Sequence[int]) -> None:
    """Warn if a chunk of the pool lies in several blocks: each of them decodes all of it."""
    for axis, (lengths, length) in enumerate(zip(blocks, own, strict=True)):
        if any(end % length for end in np.cumsum(lengths)[:-1]):
            warnings.warn(
                f"blocks of {lengths[0]} along dimension {axis} split the array's chunks of "
                f"{length}, which are decoded once for each: give multiples of {length}",
                EngramWarning,
                stacklevel=4,
            )
            return
