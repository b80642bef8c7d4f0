"""`to_pool`: a dask array written to a pool by all that compute it, and seen whole or not at all.

Space is taken before anything is computed. Each task writes its block there, in place and without a
lock, whichever process it runs in; the last commit gives the array its name (`staging.py`).
"""

from __future__ import annotations

import contextlib
import math
from typing import TYPE_CHECKING, Any, NamedTuple, Never

import dask
import dask.array as da
import numpy as np

from engram import _engram
from engram.batch import Batch
from engram.dask.place import group_at
from engram.dask.staging import Staging
from engram.errors import ArgumentError, ExistsError, NotFoundError
from engram.group import Group
from engram.member import new_member
from engram.selection import shape_of

if TYPE_CHECKING:
    import os
    from collections.abc import Mapping, Sequence

    from dask.delayed import Delayed
    from numpy.typing import DTypeLike

    from engram.array import Array
    from engram.index import IndexMode


class _UndoneError(Exception):
    """What takes back a batch that was only to tell whether it would do."""


def to_pool(
    x: da.Array,
    group: Group | str | os.PathLike[str],
    name: str,
    *,
    compute: bool = True,
    overwrite: bool = False,
    dtype: DTypeLike | None = None,
    chunks: int | Sequence[int] | bool | None = None,
    codec: str | None = None,
    dims: Sequence[str] | None = None,
    attrs: Mapping[str, Any] | None = None,
    device: int | str | os.PathLike[str] | None = None,
    index: IndexMode | None = None,
    namespace: str | None = None,
    **options: Any,
) -> Array | Delayed:
    """Write a dask array to a pool: whole, or not at all.

    Parameters
    ----------
    x
        The dask array.
    group
        A group of a pool, or a pool's path followed by that of a group.
    name
        The name of the array there; groups on the way are made.
    compute
        Whether to compute it at once. Else a Delayed is returned, which has its space already.
    overwrite
        Whether to replace an object of that name, once the new one is whole.
    dtype
        The dtype to store; else that of `x`.
    chunks, codec, dims, attrs, device, index
        As for `create_array`. A chunk in which two blocks of `x` meet is encoded twice.
    namespace
        The namespace, with a path; else the default one.
    options
        What `compute()` of dask takes, such as `scheduler="threads"`.

    Returns
    -------
    The array in the pool, or a Delayed of it.

    Raises
    ------
    ExistsError
        If the name is taken; with `overwrite`, by a group.
    ArgumentError
        If `x` is no dask array of numpy's, its shape is unknown, or an option does not fit.
    PoolFullError
        If there is no room: told before anything is computed.
    ReadOnlyError
        If the pool was opened with mode "r", or the group is read-only.

    """
    checked = _checked(x, dtype)
    target = group_at(group, namespace)
    said = {"dims": dims, "device": device, "index_mode": index, "chunks": chunks, "codec": codec}
    attrs = dict(attrs or {})
    _try(target, name, checked, {**said, "attrs": attrs, "overwrite": overwrite})
    staging = Staging.create(target, checked.shape, checked.dtype, **said)
    place = _Name(target._id, name, attrs, overwrite)
    with staging.abandoned_on_error():
        stored = da.store(checked, _Target(staging, checked), lock=False, compute=False)
        if not compute:
            return dask.delayed(_published, pure=False)(stored, staging, place)
        stored.compute(**options)
        return _published(None, staging, place)


class _Target:
    """What a task writes its block to."""

    def __init__(self, staging: Staging, x: da.Array) -> None:
        self._staging = staging
        self._shape = x.shape
        self._dtype = x.dtype

    def __setitem__(self, key: Any, value: Any) -> None:
        if isinstance(value, np.ma.MaskedArray):
            raise _masked()
        self._check(key, np.asarray(value))
        try:
            self._staging[key] = value
        except NotFoundError as error:
            raise NotFoundError(
                f"the array that was being written to {self._staging.place} is gone ({error}): "
                "what it was written for has failed, or has ended; compute it again"
            ) from None

    def _check(self, key: Any, block: np.ndarray[Any, Any]) -> None:
        """Refuse a block that is not as dask was told it would be: numpy would repeat or cut it."""
        wanted = shape_of(key, self._shape)
        if block.shape != wanted or not np.can_cast(block.dtype, self._dtype, "same_kind"):
            raise ArgumentError(
                f"a block of x has the shape {block.shape} and dtype {block.dtype}, and should "
                f"have {wanted} and {self._dtype}: say what a function makes of blocks, with "
                "map_blocks(..., dtype=, chunks=)"
            )

    def __dask_tokenize__(self) -> object:
        return self._staging.__dask_tokenize__()


class _Name(NamedTuple):
    """Under what an array is to be found."""

    parent: int
    name: str
    attrs: dict[str, Any]
    overwrite: bool


def _published(stored: object, staging: Staging, place: _Name) -> Any:
    """Publish what was stored, as a task."""
    del stored
    return staging.publish(place.parent, place.name, place.attrs, overwrite=place.overwrite)


def _masked() -> ArgumentError:
    return ArgumentError(
        "x is an array of masked arrays, and an array of a pool has no mask: fill it first, with "
        "dask.array.ma.filled(x, value)"
    )


def _checked(x: Any, dtype: Any) -> da.Array:
    """Return the array in the dtype that is stored; refuse what cannot be.

    Raises
    ------
    ArgumentError
        If it is no dask array of known shape, and of numpy's arrays of fixed-size items.

    """
    if not isinstance(x, da.Array):
        raise ArgumentError(
            f"x is {type(x).__name__}, and no dask array: put it with group[name] = x, or wrap it "
            "with dask.array.asarray"
        )
    if any(math.isnan(length) for length in x.shape):
        raise ArgumentError(
            f"x has the shape {x.shape}, with lengths that are unknown before it is computed: call "
            "x.compute_chunk_sizes() first"
        )
    if isinstance(x._meta, np.ma.MaskedArray):
        raise _masked()
    if type(x._meta) is not np.ndarray and not isinstance(x._meta, np.generic):
        raise ArgumentError(
            f"x is made of {type(x._meta).__name__}, and a pool has numpy's arrays: convert its "
            "blocks with x.map_blocks(numpy.asarray)"
        )
    found = x if dtype is None else x.astype(np.dtype(dtype))
    if found.dtype.hasobject:
        raise ArgumentError(
            f"x is of dtype {found.dtype}, whose items have no fixed size to be written in place: "
            "give dtype='U16' or the like, or put it whole, with group[name] = x.compute()"
        )
    return found


def _try(group: Group, name: str, x: da.Array, said: dict[str, Any]) -> None:
    """Refuse at once what would be refused at the end: in a batch that is taken back."""
    if not isinstance(name, str) or not name.strip("/"):
        raise ArgumentError(f"name {name!r} is no name: give one such as 'T'")
    if _engram.in_batch():
        raise ArgumentError(
            f"{name!r} cannot be written in a batch, of which other threads and processes see "
            "nothing before it ends: call to_pool outside of it, as it is one commit by itself"
        )
    if isinstance(group.get(name), Group):
        raise ExistsError(f"{name!r} is a group: delete it first, or use another name")
    said = {**said, "chunks": None, "codec": None}  # which the staging array is refused for
    new = new_member(shape=(0,) * x.ndim, dtype=x.dtype, **said)
    with contextlib.suppress(_UndoneError), Batch(group._namespace):
        _engram.put_array(group._namespace, group._id, name, None, new)
        _undo()


def _undo() -> Never:
    raise _UndoneError
