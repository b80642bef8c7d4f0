"""Datasets whose values have no fixed size: sequences, and records with texts or sequences.

A pool has them as an import does (`engram.formats.hdf5.parts`): as a group that says so in its
word `split`, with an array for each field, and `offsets` and `values` for sequences. Here such a
group is a dataset again. A change of a part puts all of it anew, at once for all: these are for
tables that are written once. HDF5's own description of the type is kept with it, which h5py makes.
"""

from __future__ import annotations

import base64
from typing import TYPE_CHECKING, Any

import numpy as np

from engram import _engram
from engram.batch import Batch
from engram.compat.h5py import dtypes, values, words
from engram.compat.h5py.dataset import Dataset, Kind, Shape, _is_all
from engram.compat.h5py.errors import MissingError
from engram.extras import library
from engram.formats import origin, ragged
from engram.formats.origin import SPLIT
from engram.handle import make
from engram.member import new_member

if TYPE_CHECKING:
    from engram.array import Array
    from engram.compat.h5py.file import File
    from engram.compat.h5py.links import Spot
    from engram.compat.h5py.making import Wanted
    from engram.compat.h5py.selection import Selected

    Values = np.ndarray[Any, Any]

_NEEDS = "a dataset of values without a fixed size"


class PartsDataset(Dataset):
    """A dataset that is a group of its parts."""

    __slots__ = ()

    _is_group = True

    def __init__(self, file: File, gid: int) -> None:  # a group has no array
        self._file = file
        self._id = gid
        self._kind: Kind | None = None

    @classmethod
    def made(cls, file: File, at: Spot, wanted: Wanted) -> PartsDataset:
        """Make one."""
        h5t = library("h5py.h5t", "hdf5", _NEEDS)
        item, inner = dtypes.split_array(wanted.dtype)
        if inner or wanted.shape is None:
            raise TypeError(f"{wanted.dtype} cannot be kept in parts: leave the array type out")
        kind = {"hdf5": base64.b64encode(h5t.py_create(item, logical=True).encode()).decode()}
        told = {**wanted.words, "type": kind, "shape": list(wanted.shape), "dims": []}
        told.pop("format", None)
        said = origin.encode({"format": "HDF5", SPLIT: told})
        place = (file._ns, at.gid, at.name)
        with Batch(file._ns):
            gid = _engram.create_group(*place, attrs=None, origin=said, exist_ok=False)
            whole = _blank(item, wanted.shape)
            if wanted.data is not None:
                whole[...] = _cells(wanted.data, item, wanted.shape)
            _store(file._ns, gid, item, whole)
        return cls(file, gid)

    @property
    def _split(self) -> words.Words:
        found = words.of_group(self._namespace, self._id).get(SPLIT)
        return found if isinstance(found, dict) else {}

    def _look(self) -> Kind:
        h5t = library("h5py.h5t", "hdf5", _NEEDS)
        dtype = h5t.decode(base64.b64decode(self._split["type"]["hdf5"])).dtype
        item, inner = dtypes.split_array(dtype)
        self._kind = Kind(dtype, item, inner, is_null=False, is_text=False, is_plain=False)
        return self._kind

    def _words(self) -> words.Words:
        return self._split

    def _say(self, **said: Any) -> None:
        words.change_group(self._namespace, self._id, lambda found: found[SPLIT].update(said))

    @property
    def shape(self) -> Any:
        """The shape."""
        self._file._check()
        return tuple(self._split["shape"])

    @shape.setter
    def shape(self, shape: Any) -> None:
        self.resize(shape)

    @property
    def chunks(self) -> Shape | None:
        """The shape of a chunk that was asked for; None if none was."""
        told = self._split.get("chunks")
        return tuple(told) if told else None

    def _whole(self) -> Any:
        kind = self._kind or self._look()
        return _load(self._namespace, self._id, kind.item, (*self.shape, *kind.inner))

    def _single(self, args: tuple[Any, ...], kind: Kind) -> Any:
        del kind
        if not _is_all(args):
            raise ValueError("Illegal slicing argument for scalar dataspace: read it with [()]")
        found = self._whole()
        return found if args else found[()]

    def _read(self, selected: Selected, kind: Kind) -> Any:
        del kind
        return selected.of(self._whole())

    def _write(self, selected: Selected, value: Any, kind: Kind) -> None:
        whole = self._whole()
        selected.put(whole, _cells(value, kind.item, selected.shape))
        self._put(whole, kind)

    def _write_fields(
        self, names: tuple[str, ...], selected: Selected, value: Any, kind: Kind
    ) -> None:
        whole = self._whole()
        part = selected.of(whole)
        given = getattr(value, "dtype", None)
        for name in names:
            is_record = given is not None and given.names is not None
            part[name] = np.asarray(value[name] if is_record else value, kind.item[name].base)
        selected.put(whole, part)
        self._put(whole, kind)

    def _put(self, whole: Values, kind: Kind) -> None:
        with Batch(self._namespace):
            _store(self._namespace, self._id, kind.item, whole)

    def _resize(self, old: Shape, new: Shape) -> None:
        kind, whole = self._kind or self._look(), self._whole()
        common = tuple(slice(0, min(a, b)) for a, b in zip(old, new, strict=True))
        made = _blank(kind.item, new)
        made[common] = whole[common]
        with Batch(self._namespace):
            _store(self._namespace, self._id, kind.item, made)
            raw = origin.decode(_engram.group_info(self._namespace, self._id).origin)
            raw[SPLIT]["shape"] = list(new)
            _engram.set_origin(self._namespace, self._id, origin.encode(raw))

    @property
    def fillvalue(self) -> Any:
        """What stands where nothing was written."""
        return _blank((self._kind or self._look()).item, (1,))[0]

    def flush(self) -> None:
        """Do nothing: what was put is as durable as the pool is."""


def is_one(raw: bytes) -> bool:
    """Whether a group's origin says that it is a dataset in parts."""
    return b'"split"' in raw and isinstance(origin.decode(raw).get(SPLIT), dict)


def _blank(dtype: np.dtype[Any], shape: Shape) -> Values:
    """Return an array where nothing was written: sequences of nothing, and texts of nothing."""
    made = np.zeros(shape, dtype)
    _fill_blank(made, dtype)
    return made


def _fill_blank(made: Values, dtype: np.dtype[Any]) -> None:
    base = dtypes.check_vlen_dtype(dtype)
    if dtypes.is_text(dtype):
        made.fill(b"")
    elif base is not None:
        for place in np.ndindex(made.shape):
            made[place] = np.zeros(0, base)
    for name in dtype.names or ():
        _fill_blank(made[name], dtype[name].base)


def _cells(value: Any, dtype: np.dtype[Any], shape: Shape) -> Any:
    """Return what is assigned to cells of a shape."""
    base = dtypes.check_vlen_dtype(dtype)
    if base is None:
        given = value if isinstance(value, np.ndarray) else np.asarray(value, dtype)
        return given if given.dtype == dtype or given.dtype.names is None else given.astype(dtype)
    if not shape:
        return _cell(value, base)
    is_one_for_all = isinstance(value, np.ndarray) and value.dtype.kind != "O" and value.ndim == 1
    each: Any = [value] * shape[0] if is_one_for_all and len(shape) == 1 else value
    made = np.empty(shape, object)
    if len(each) != shape[0]:
        raise TypeError(f"Can't broadcast {len(each)} sequences -> {shape}")
    for place in np.ndindex(shape):
        cell = each
        for index in place:
            cell = cell[index]
        made[place] = _cell(cell, base)
    return made


def _cell(value: Any, base: Any) -> Values:
    dtype = np.dtype(base)
    if dtypes.is_text(dtype):
        return np.asarray(value, object)
    if isinstance(value, np.ndarray) and value.dtype.kind == "O" and value.ndim == 0:
        value = value[()]
    found = np.atleast_1d(np.asarray(value))
    if found.ndim != 1:
        raise TypeError(f"a sequence has one dimension, not {found.ndim}")
    return values.fitted(found, dtype).astype(dtype)


def _at(namespace: _engram.Namespace, gid: int, name: str) -> Any:
    found = _engram.find(namespace, gid, name)
    if found is None:
        raise MissingError(f"the part {name!r} of a dataset is gone: it was deleted as an array")
    return make(namespace, found)


def _load(namespace: _engram.Namespace, gid: int, dtype: np.dtype[Any], shape: Shape) -> Values:
    base = dtypes.check_vlen_dtype(dtype)
    if base is not None:
        return _load_sequences(namespace, gid, np.dtype(base), shape)
    made = np.zeros(shape, dtype)
    for name in dtype.names or ():
        item = dtype[name].base
        field = _at(namespace, gid, name)
        if dtypes.is_text(item):
            made[name] = values.as_objects(np.asarray(field[...]))
        elif dtypes.is_variable(item):
            made[name] = _load(namespace, field._id, item, made[name].shape)
        else:
            made[name] = np.asarray(field[...]).reshape(made[name].shape)
    return made


def _load_sequences(
    namespace: _engram.Namespace, gid: int, base: np.dtype[Any], shape: Shape
) -> Values:
    offsets = np.asarray(_at(namespace, gid, ragged.OFFSETS)[...])
    flat: Any = _at(namespace, gid, ragged.VALUES)[...]
    flat = values.as_objects(flat) if dtypes.is_text(base) else flat
    why = ragged.problem(offsets, len(flat))
    if why is not None:
        raise MissingError(f"a dataset's parts do not fit together: {why}")
    made = np.empty(shape, dtypes.vlen_dtype(base))
    starts, stops = offsets[..., :-1].reshape(-1), offsets[..., 1:].reshape(-1)
    cells = made.reshape(-1)
    for place in range(cells.size):
        cells[place] = flat[starts[place] : stops[place]].copy()
    return made


def _store(namespace: _engram.Namespace, gid: int, dtype: np.dtype[Any], whole: Values) -> None:
    """Put all parts anew."""
    base = dtypes.check_vlen_dtype(dtype)
    if base is not None:
        _store_sequences(namespace, gid, np.dtype(base), whole)
        return
    for name in dtype.names or ():
        item, part = dtype[name].base, whole[name]
        if dtypes.is_text(item):
            _put(namespace, gid, name, values.as_text(part))
        elif dtypes.is_variable(item):
            place = (namespace, gid, name)
            inner = _engram.create_group(*place, attrs=None, origin=b"", exist_ok=True)
            _store(namespace, inner, item, part)
        else:
            _put(namespace, gid, name, np.ascontiguousarray(part))


def _store_sequences(
    namespace: _engram.Namespace, gid: int, base: np.dtype[Any], whole: Values
) -> None:
    cells = whole.reshape(-1)
    ends = np.zeros(cells.size + 1, np.int64)
    np.cumsum([0 if cell is None else len(cell) for cell in cells], out=ends[1:])
    flat = [cell for cell in cells if cell is not None and len(cell)]
    if dtypes.is_text(base):
        joined: Values = values.as_text(np.concatenate(flat) if flat else np.empty(0, object))
    else:
        joined = np.concatenate(flat).astype(base) if flat else np.zeros(0, base)
    _put(namespace, gid, ragged.OFFSETS, ragged.laid_out(ends, whole.shape))
    _put(namespace, gid, ragged.VALUES, joined)


def _put(namespace: _engram.Namespace, gid: int, name: str, data: Values) -> Array:
    array: Array = make(
        namespace, _engram.put_array(namespace, gid, name, data, new_member(overwrite=True))
    )
    return array
