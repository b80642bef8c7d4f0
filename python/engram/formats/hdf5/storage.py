"""How a dataset is stored: HDF5's creation properties, of what an origin says and still fits."""

from __future__ import annotations

import base64
from typing import TYPE_CHECKING, Any

import h5py
import numpy as np
from h5py import h5d, h5p, h5s, h5z

from engram.formats.blocks import block_shape
from engram.formats.hdf5.plugins import shown
from engram.formats.target import GroupItem

if TYPE_CHECKING:
    from h5py import h5t

    from engram.formats.source import Origin
    from engram.formats.target import ArrayItem, Item

_CHUNK_BYTES = 1 << 20
_COMPACT_BYTES = 60_000
_USERS_VALUES = {1: 1, 2: 0, 3: 0, 4: 2, 5: 0, 6: 2}
"""HDF5's own filters by id, with how many of their values are a user's; it works out the others."""

_EXACT = frozenset({1, 2, 3, 4, 5, 307, 32000, 32001, 32004, 32008, 32015, 32026})
"""Filters that give back every bit."""

_NETCDF_FILTERS = (
    ("shuffle", 2, ()),
    ("zlib", 1, ("complevel",)),
    ("zstd", 32015, ("complevel",)),
    ("bzip2", 307, ("complevel",)),
    ("fletcher32", 3, ()),
)
"""netCDF's words for filters, in their order, with HDF5's ids."""

_TRACKED = h5p.CRT_ORDER_TRACKED | h5p.CRT_ORDER_INDEXED

Filter = tuple[int, int, tuple[int, ...]]


def track(plist: Any, item: Item) -> None:
    """Keep the order of creation where the origin's object kept it."""
    told = item.origin.get("tracked")
    if item.origin.get("format") != "HDF5" and item.origin:
        told = {"links": _TRACKED, "attributes": _TRACKED}  # netCDF keeps the order of everything
    if not isinstance(told, dict):
        return
    if isinstance(told.get("attributes"), int):
        plist.set_attr_creation_order(told["attributes"])
    if isinstance(item, GroupItem) and isinstance(told.get("links"), int):
        plist.set_link_creation_order(told["links"])


class Storage:
    """How one array will lie in the file.

    Attributes
    ----------
    space
        The dataspace.
    plist
        The creation properties.
    chunks
        The chunk shape, or None.
    filters
        The numbers of its filters.
    is_exact
        Whether every filter gives back every bit.
    notes
        What of the origin cannot be had here.

    """

    def __init__(
        self,
        item: ArrayItem,
        tid: h5t.TypeID,
        shape: tuple[int, ...],
        unlimited: tuple[bool, ...],
        *,
        exact_only: bool = False,
        failing: frozenset[int] = frozenset(),
    ) -> None:
        """Work out how `item` is stored.

        Parameters
        ----------
        item
            The array.
        tid
            The datatype it is written as.
        shape
            The shape of the dataset, which lacks the axes of an array type.
        unlimited
            Which axes have an unlimited dimension.
        exact_only
            Leave away filters that may not give back every bit.
        failing
            Filters to be left away, of which the caller tells.

        """
        self._origin = origin = item.origin
        self._shape = shape
        self.notes: list[str] = []
        self.plist = h5p.create(h5p.DATASET_CREATE)
        self.plist.set_obj_track_times(False)
        track(self.plist, item)
        self._maximum = self._maxshape(origin, unlimited)
        if origin.get("dataspace") == "null" and shape == (0,):
            self.space = h5s.create(h5s.NULL)
        else:
            limits = tuple(h5s.UNLIMITED if n is None else n for n in self._maximum)
            self.space = h5s.create_simple(shape, limits) if shape else h5s.create(h5s.SCALAR)
        filters = self._filters(exact_only=exact_only, failing=failing)
        self.filters = [code for code, _, _ in filters]
        self.is_exact = all(code in _EXACT for code, _, _ in filters)
        self.chunks = self._chunked(item, filters)
        for one in filters if self.chunks else ():
            self.plist.set_filter(*one)
        if self.chunks is None and origin.get("layout") == "compact":
            if item.nbytes <= _COMPACT_BYTES:
                self.plist.set_layout(h5d.COMPACT)
        elif origin.get("layout") in {"virtual", "external"}:
            self.notes.append(f"its values lie in this file, not as a {origin['layout']} dataset")
        self._set_times(origin)
        self._set_fill(item, tid)

    def _maxshape(self, origin: Origin, unlimited: tuple[bool, ...]) -> tuple[int | None, ...]:
        """Return the dataset's maximum shape."""
        told = origin.get("maxshape")
        if isinstance(told, list) and len(told) == len(self._shape):
            limits = zip(told, self._shape, strict=True)
            return tuple(None if most is None else max(int(most), n) for most, n in limits)
        axes = zip(unlimited, self._shape, strict=True)
        return tuple(None if grows else n for grows, n in axes)

    def _chunked(self, item: ArrayItem, filters: list[Filter]) -> tuple[int, ...] | None:
        """Set the chunk shape, if there is to be one."""
        told = self._origin.get("chunks")
        grows = self._maximum != self._shape
        fits = isinstance(told, list) and len(told) == len(self._shape) and all(told)
        if not self._shape or not (fits or grows or filters) or 0 in self._maximum:
            return None  # where nothing can ever be, HDF5 has no chunks
        wanted: tuple[int, ...] = tuple(told) if isinstance(told, list) and fits else ()
        if not wanted:
            longest = tuple(max(1, n) for n in self._shape)
            wanted = block_shape(longest, None, max(1, item.dtype.itemsize), _CHUNK_BYTES)
        axes = zip(wanted, self._maximum, strict=True)
        chunks = tuple(n if most is None else min(n, most) for n, most in axes)
        self.plist.set_chunk(chunks)
        return chunks

    def _filters(self, *, exact_only: bool, failing: frozenset[int]) -> list[Filter]:
        """Return the filters of the origin that can be applied here."""
        told = self._origin.get("filters")
        wanted = _netcdf_filters(told) if isinstance(told, dict) else _hdf5_filters(told)
        kept = []
        for code, flags, values in wanted:
            if exact_only and code not in _EXACT:
                why = f"filter {shown(code)} is left away: it does not keep these values"
                self.notes.append(why)
            elif code in failing:
                continue
            elif _can_encode(code):
                kept.append((code, flags, values))
            else:
                self.notes.append(f"filter {shown(code)} is left away: it is not installed")
        return kept

    def _set_times(self, origin: Origin) -> None:
        """Set when space is taken and filled."""
        if isinstance(origin.get("fill_time"), int):
            self.plist.set_fill_time(origin["fill_time"])
        if isinstance(origin.get("alloc_time"), int):
            self.plist.set_alloc_time(origin["alloc_time"])

    def _set_fill(self, item: ArrayItem, tid: h5t.TypeID) -> None:
        """Set the fill value."""
        told = _fill_value(item, tid)
        if told is None:
            return
        try:
            self.plist.set_fill_value(told)
        except (RuntimeError, TypeError, ValueError) as error:
            self.notes.append(f"its fill value is left away: {error}")


def _fill_value(item: ArrayItem, tid: h5t.TypeID) -> np.ndarray[Any, Any] | None:
    """Return the fill value that was told, as h5py wants it."""
    told = item.origin.get("fill")
    if item.origin.get("format") != "HDF5":
        value = item.attrs.get("_FillValue")
        fits = getattr(value, "dtype", None) == item.dtype and getattr(value, "size", 0) == 1
        return np.asarray(value).reshape(()) if fits else None
    if not isinstance(told, str):
        return None
    dtype = tid.dtype
    string = h5py.check_string_dtype(dtype)
    if string is not None and string.length is None:
        return np.array(told.encode(), dtype=dtype)
    try:
        found: np.ndarray[Any, Any] = np.frombuffer(base64.b64decode(told), dtype.base)
    except ValueError:
        return None
    if string is not None:  # h5py takes strings of variable length alone, and HDF5 converts them
        return np.array(found.tobytes().rstrip(b"\0"), dtype=h5py.string_dtype(string.encoding))
    return found.reshape(()) if found.size == 1 else None


def _hdf5_filters(told: object) -> list[Filter]:
    """Return the filters that an HDF5 file had."""
    found = []
    for one in told if isinstance(told, list) else ():
        code, values = int(one["id"]), tuple(int(v) for v in one["values"])
        found.append((code, int(one["flags"]), values[: _USERS_VALUES.get(code, len(values))]))
    return found


def _netcdf_filters(told: dict[str, Any]) -> list[Filter]:
    """Return the filters that netCDF's library told of."""
    return [
        (code, h5z.FLAG_OPTIONAL, tuple(int(told.get(name) or 0) for name in values))
        for word, code, values in _NETCDF_FILTERS
        if told.get(word)
    ]


def _can_encode(code: int) -> bool:
    """Whether HDF5 has a filter here, and can write with it."""
    if not h5z.filter_avail(code):
        return False
    return bool(h5z.get_filter_info(code) & h5z.FILTER_CONFIG_ENCODE_ENABLED)
