"""Making datasets: what `create_dataset` is given, as an array of the pool."""

from __future__ import annotations

import math
import warnings
from typing import TYPE_CHECKING, Any

import numpy as np

from engram import _engram
from engram.batch import Batch
from engram.compat.h5py import dtypes, refused, values
from engram.compat.h5py.base import Empty
from engram.compat.h5py.dataset import Dataset, fill_in, fill_words
from engram.compat.h5py.parts import PartsDataset
from engram.compat.h5py.storage import Asked, Storage, storage
from engram.compat.h5py.words import TRACKED
from engram.formats import origin
from engram.handle import make
from engram.member import new_member

if TYPE_CHECKING:
    from engram.compat.h5py.file import File
    from engram.compat.h5py.links import Spot

_STORAGE = Asked._fields
_WITHOUT_MEANING = frozenset({
    "track_times", "rdcc_nslots", "rdcc_nbytes", "rdcc_w0", "allow_unknown_filter", "efile_prefix",
    "virtual_prefix",
})  # fmt: skip
_FULL_BYTES = 1 << 20
"""Fill values of no more bytes are put at once."""


class Wanted:
    """A dataset that is asked for.

    Attributes
    ----------
    shape
        Its shape; None for no dataspace.
    dtype
        Its dtype, as h5py calls it.
    data
        Its values, or None.
    storage
        How it is stored.
    fill
        Its fill value, or None.
    words
        What is said of it, beside its dtype and shape.

    """

    def __init__(self, shape: Any, dtype: Any, data: Any, more: dict[str, Any]) -> None:
        wanted = None if dtype is None else _dtype(dtype)
        if data is not None and not isinstance(data, Empty):
            data = values.new_array(data, wanted)
        if shape is None:
            if data is None:
                if wanted is None:
                    raise TypeError("One of data, shape or dtype must be specified")
                data = Empty(wanted)
            shape = data.shape
        else:
            shape = (int(shape),) if isinstance(shape, int | np.integer) else tuple(shape)
            if data is not None and (data.shape is None or math.prod(shape) != data.size):
                raise ValueError(
                    f"Shape tuple is incompatible with data: {shape} is not {data.shape}"
                )
        if wanted is None and data is None:
            warnings.warn(
                "a dataset without data and dtype is of float32, as ever in h5py: give dtype=",
                DeprecationWarning,
                stacklevel=3,
            )
            wanted = np.dtype("f4")
        wanted = data.dtype if wanted is None else wanted
        if wanted.subdtype is not None and data is not None and not isinstance(data, Empty):
            shape = shape[: len(shape) - len(wanted.shape)]
        dtypes.check_storable(wanted)
        self.shape: tuple[int, ...] | None = None if isinstance(data, Empty) else shape
        self.dtype = wanted
        self.data = None if isinstance(data, Empty) else data
        self.storage = self._stored(more)
        self.fill = more.get("fillvalue")
        self.words = self._said(more)

    def _stored(self, more: dict[str, Any]) -> Storage:
        asked = Asked(**{name: more[name] for name in _STORAGE if name in more})
        return storage(asked, self.shape, dtypes.split_array(self.dtype)[0])

    def _said(self, more: dict[str, Any]) -> dict[str, Any]:
        said = dict(self.storage.words)
        told = dtypes.words_of(self.dtype)
        if told is not None:
            said["type"] = told
        if self.fill is not None:
            try:
                said["fill"] = fill_words(self.fill, dtypes.split_array(self.dtype)[0])
            except (TypeError, ValueError) as error:
                message = f"fillvalue {self.fill!r} is none of {self.dtype}: {error}"
                raise ValueError(message) from error
        if more.get("track_order"):
            said["tracked"] = {"attributes": TRACKED}
        if self.shape is None:
            said["dataspace"] = "null"
        return {"format": "HDF5", **said} if said else said


def _dtype(dtype: Any) -> np.dtype[Any]:
    is_named = hasattr(dtype, "dtype") and not isinstance(dtype, type)
    found: np.dtype[Any] = np.dtype(dtype.dtype if is_named else dtype)
    return found


def check_keywords(more: dict[str, Any]) -> None:
    """Refuse keywords of `create_dataset` that are none, or that a pool cannot do.

    Raises
    ------
    TypeError
        If one is unknown.

    """
    if more.get("external"):
        refused.refuse("external=", "a pool's arrays lie in the pool: add a device (add_device)")
    for name in ("dcpl", "dapl"):
        if more.get(name) is not None:
            refused.refuse(f"{name}=", refused.LOW_LEVEL)
    for name in ("track_times", "track_order"):
        if more.get(name) not in {None, True, False}:
            raise TypeError(f"{name} must be either True or False")
    known = {*_STORAGE, *_WITHOUT_MEANING, "fillvalue", "track_order", "external", "dcpl", "dapl"}
    unknown = sorted(more.keys() - known)
    if unknown:
        raise TypeError(f"create_dataset() got an unexpected keyword argument {unknown[0]!r}")


def put(file: File, at: Spot, wanted: Wanted) -> Dataset:
    """Put what is wanted under a name of a group."""
    if dtypes.is_variable(wanted.dtype):
        return PartsDataset.made(file, at, wanted)
    item, inner = dtypes.split_array(wanted.dtype)
    is_text = dtypes.is_text(item)
    shape = (0,) if wanted.shape is None else (*wanted.shape, *inner)
    data = None
    if wanted.data is not None:
        data = values.written(wanted.data, item).reshape(shape)
        data = data if is_text else np.asarray(data, item)
    elif wanted.fill is not None and wanted.shape is not None and is_text:
        data = np.full(shape, values.as_text(wanted.fill)[()], np.dtypes.StringDType())
    elif _is_filled(wanted, item) and math.prod(shape) * item.itemsize <= _FULL_BYTES:
        data = np.full(shape, values.written(wanted.fill, item), item)
    is_chunked = wanted.storage.chunks is not None and not is_text
    new = new_member(
        shape=shape,
        dtype=np.dtypes.StringDType() if is_text else item,
        origin=origin.encode(wanted.words),
        chunks=(*wanted.storage.chunks, *inner) if is_chunked and wanted.storage.chunks else None,
        codec=wanted.storage.codec if is_chunked else None,
    )
    place = (file._ns, at.gid, at.name)
    if data is not None or not _is_filled(wanted, item):
        return Dataset(file, make(file._ns, _engram.put_array(*place, data, new)))
    if is_chunked:
        with Batch(file._ns):
            made = Dataset(file, make(file._ns, _engram.put_array(*place, None, new)))
            fill_in(made, tuple(slice(0, n) for n in wanted.shape or ()), wanted.fill)
        return made
    allocation = _engram.allocate(*place, new)
    try:
        allocation.array[...] = values.written(wanted.fill, item)
    except BaseException:
        allocation.abandon()
        raise
    allocation.publish()
    found = _engram.find(*place)
    if found is None:
        raise KeyError(at.name)
    return Dataset(file, make(file._ns, found))


def _is_filled(wanted: Wanted, item: np.dtype[Any]) -> bool:
    """Whether a fill value is to be written."""
    if wanted.fill is None or wanted.data is not None or not wanted.shape:
        return wanted.fill is not None and wanted.shape == () and wanted.data is None
    if 0 in wanted.shape:
        return False
    return values.written(wanted.fill, item).tobytes() != np.zeros((), item).tobytes()
