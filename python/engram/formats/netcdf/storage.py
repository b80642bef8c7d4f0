"""How a variable is stored in a netCDF-4 file: chunks, filters, fill value, as it was if it fits.

What `origin` tells is a hint. Chunks of another number of axes are ignored; a filter that is not
available here, or refuses the variable, is left away and noted.
"""

from __future__ import annotations

import base64
import math
from typing import TYPE_CHECKING, Any

import h5py
import numpy as np
from h5py import h5d, h5p, h5z

from engram.formats import text
from engram.formats.hdf5.plugins import LAST_OWN, shown
from engram.formats.netcdf.forms import CHARS, COMPOUND, ENUM, NUMBERS, OPAQUE, STRINGS
from engram.formats.netcdf.kinds import DEFAULT_FILLS
from engram.formats.netcdf.plan import fill_value

if TYPE_CHECKING:
    from engram.formats.netcdf.plan import Variable
    from engram.formats.target import Tree

_ORDERED = h5p.CRT_ORDER_TRACKED | h5p.CRT_ORDER_INDEXED
_ZSTD, _BZIP2, _BLOSC = 32015, 307, 32001
_EXACT = {1, 2, 3, 4, _BZIP2, 32000, _BLOSC, 32004, 32008, _ZSTD, 32026}
"""Filters that give back every bit."""
_SZIP_CODINGS = {"ec": h5z.SZIP_EC_OPTION_MASK, "nn": h5z.SZIP_NN_OPTION_MASK}
_CHUNK_BYTES = 4 << 20
_COMPACT_BYTES = 60_000


def creation() -> h5p.PropDCID:
    """Return how every dataset is made: with its attributes in their order, and no times."""
    made = h5p.create(h5p.DATASET_CREATE)
    made.set_attr_creation_order(_ORDERED)
    made.set_obj_track_times(False)
    return made


def plugins_of(variable: Variable) -> list[str]:
    """Return the names of the filters that a variable came with and that are not HDF5's own."""
    return [shown(code) for _, code, _ in _filters(variable) if code > LAST_OWN]


def creation_of(variable: Variable, tree: Tree, *, plugins: bool = True) -> h5p.PropDCID:
    """Return how a variable's dataset is made; without filters of `plugins`, if they fail."""
    made = creation()
    _set_fill(made, variable, tree)
    chunks = chunks_of(variable)
    if chunks is None:
        if (
            variable.item.origin.get("layout") == "compact"
            and variable.item.nbytes < _COMPACT_BYTES
        ):
            made.set_layout(h5d.COMPACT)
        return made
    made.set_layout(h5d.CHUNKED)
    made.set_chunk(chunks)
    for name, code, values in _filters(variable):
        if code > LAST_OWN and not plugins:
            continue
        _add_filter(made, variable, tree, (name, code, values))
    return made


def chunks_of(variable: Variable) -> tuple[int, ...] | None:
    """Return a variable's chunk shape; None if it is stored in one piece."""
    item, shape = variable.item, variable.shape
    if not shape:
        return None
    kept = item.origin.get("chunks")
    grows = [d.unlimited for d in variable.dims or ()]
    if isinstance(kept, list) and len(kept) == len(shape) and all(_is_length(n) for n in kept):
        return tuple(
            n if can else max(1, min(n, length))
            for n, length, can in zip(kept, shape, grows, strict=True)
        )
    if not any(grows) and not item.origin.get("filters"):
        return None
    # One record at a time; a run of records, where records are small.
    chunk = [1 if can else max(1, n) for n, can in zip(shape, grows, strict=True)]
    for axis in range(len(shape)):
        nbytes = variable.form.dtype.itemsize * math.prod(chunk)
        if grows[axis] and axis == 0 and nbytes < 1 << 12:
            chunk[axis] = max(1, min(max(shape[axis], 1), (1 << 12) // nbytes))
        while nbytes > _CHUNK_BYTES and chunk[axis] > 1:
            chunk[axis] = -(-chunk[axis] // 2)
            nbytes = variable.form.dtype.itemsize * math.prod(chunk)
    return tuple(chunk)


def _is_length(n: object) -> bool:
    """Whether it can be the length of a chunk."""
    return isinstance(n, int) and 0 < n < 1 << 32


def _set_fill(made: h5p.PropDCID, variable: Variable, tree: Tree) -> None:
    """Set the fill value: none where there was none, else that of _FillValue, else netCDF's."""
    form = variable.form
    if variable.item.origin.get("fill") == "none":
        if form.kind in {NUMBERS, CHARS}:
            made.set_fill_time(h5d.FILL_TIME_NEVER)
        return
    if text.of_objects(form.dtype):
        return
    if form.kind == STRINGS:
        made.set_fill_value(np.array("", h5py.string_dtype()))
        return
    given = fill_value(variable)
    if given is None:
        given = _told_fill(variable)
    if form.kind != OPAQUE:
        made.set_fill_value(_as_fill(given, variable))
    elif given is not None:
        _set_opaque_fill(made, _as_fill(given, variable), variable, tree)


def _as_fill(given: Any, variable: Variable) -> np.ndarray[Any, Any]:
    """Return a fill value, or netCDF's where none is given, in the dtype that h5py wants."""
    form = variable.form
    code = form.dtype.str[1:]
    array = np.zeros((), form.dtype)
    if given is not None:
        array[()] = given
    elif form.kind in {NUMBERS, ENUM} and code in DEFAULT_FILLS:
        array[()] = DEFAULT_FILLS[code]
    if form.kind == ENUM:
        members = variable.item.origin["type"]["enum"]
        return array.astype(h5py.enum_dtype(members, form.dtype))
    return array.view(_in_characters(form.dtype)) if form.kind == COMPOUND else array


def _set_opaque_fill(
    made: h5p.PropDCID, value: np.ndarray[Any, Any], variable: Variable, tree: Tree
) -> None:
    """Set the fill value of opaque values, if h5py can: it gives them no tag."""
    if _tag(variable):
        why = "left away: h5py gives none to opaque values with a tag"
        tree.note(variable.item.path, "fill value", why)
    else:
        made.set_fill_value(value)


def _tag(variable: Variable) -> object:
    """Return the tag of a variable's opaque type."""
    told = variable.item.origin.get("type")
    return told.get("opaque") if isinstance(told, dict) else None


def _in_characters(dtype: np.dtype[Any]) -> np.dtype[Any]:
    """Return a structured dtype with its bytes as single characters, as the file has them."""
    if dtype.subdtype is not None:
        return np.dtype((_in_characters(dtype.base), dtype.shape))
    if dtype.names is None:
        width = dtype.itemsize
        return np.dtype(("S1", (width,))) if dtype.kind == "S" and width > 1 else dtype
    fields: Any = dtype.fields
    return np.dtype(
        {
            "names": list(dtype.names),
            "formats": [_in_characters(fields[name][0]) for name in dtype.names],
            "offsets": [fields[name][1] for name in dtype.names],
            "itemsize": dtype.itemsize,
        }
    )


def _told_fill(variable: Variable) -> Any:
    """Return the fill value that no attribute tells of, if it is one of the dtype."""
    told = variable.item.origin.get("fill")
    if not isinstance(told, str) or variable.form.dtype != variable.item.dtype:
        return None
    try:
        found = base64.b64decode(told, validate=True)
    except ValueError:
        return None
    dtype = variable.form.dtype
    return np.frombuffer(found, dtype)[0] if len(found) == dtype.itemsize else None


def _filters(variable: Variable) -> list[tuple[str, int, tuple[int, ...]]]:
    """Return the filters that a variable came with: name, HDF5's number, and parameters."""
    kept = variable.item.origin.get("filters")
    if isinstance(kept, dict) and "pipeline" in kept:
        kept = kept["pipeline"]
    if isinstance(kept, list):
        return [
            (str(f.get("name") or f["id"]), int(f["id"]), tuple(f.get("values", ())))
            for f in kept
            if isinstance(f, dict) and isinstance(f.get("id"), int)
        ]
    return _in_words(kept) if isinstance(kept, dict) else []


def _in_words(kept: dict[str, Any]) -> list[tuple[str, int, tuple[int, ...]]]:
    """Return the filters that netCDF's words tell of, in the order of netCDF's library."""
    level = kept.get("complevel")
    number = level if isinstance(level, int) else 0
    found: list[tuple[str, int, tuple[int, ...]]] = []
    for word, code, values in (
        ("fletcher32", h5z.FILTER_FLETCHER32, ()),
        ("shuffle", h5z.FILTER_SHUFFLE, ()),
        ("zlib", h5z.FILTER_DEFLATE, (number,)),
        ("zstd", _ZSTD, (number,)),
        ("bzip2", _BZIP2, (number or 9,)),
    ):
        if kept.get(word):
            found.append((word, code, values))
    szip, blosc = kept.get("szip"), kept.get("blosc")
    if isinstance(szip, dict):
        coding = _SZIP_CODINGS.get(str(szip.get("coding")), h5z.SZIP_NN_OPTION_MASK)
        found.append(("szip", h5z.FILTER_SZIP, (coding, int(szip.get("pixels_per_block", 32)))))
    if isinstance(blosc, dict):
        found.append(("blosc", _BLOSC, _blosc_values(blosc, level)))
    return found


def _blosc_values(facts: dict[str, Any], level: object) -> tuple[int, ...]:
    """Return blosc's parameters, of which the first four are its own to set."""
    names = ("blosclz", "lz4", "lz4hc", "snappy", "zlib", "zstd")
    compressor = str(facts.get("compressor", "")).removeprefix("blosc_")
    code = names.index(compressor) if compressor in names else 0
    given = level if isinstance(level, int) else 4
    return (0, 0, 0, 0, given, int(facts.get("shuffle", 1)), code)


def _add_filter(
    made: h5p.PropDCID, variable: Variable, tree: Tree, wanted: tuple[str, int, tuple[int, ...]]
) -> None:
    """Add a filter, or note that it cannot be had."""
    name, code, values = wanted
    if code not in _EXACT:
        tree.note(variable.item.path, f"filter {name}", "left away: it may change values")
        return
    try:
        available = h5z.filter_avail(code)
        if available and code == h5z.FILTER_SZIP:
            made.set_szip(
                values[0] & (h5z.SZIP_EC_OPTION_MASK | h5z.SZIP_NN_OPTION_MASK), values[1]
            )
        elif available and code == h5z.FILTER_DEFLATE:
            made.set_deflate(*values[:1])
        elif available and code == h5z.FILTER_SHUFFLE:
            made.set_shuffle()
        elif available and code == h5z.FILTER_FLETCHER32:
            made.set_fletcher32()
        elif available:
            made.set_filter(code, h5z.FLAG_OPTIONAL, values)
    except (ValueError, RuntimeError, OSError) as error:
        tree.note(variable.item.path, f"filter {name}", f"left away: {error}")
        return
    if not available:
        why = "left away: it is not installed here (hdf5plugin has many)"
        tree.note(variable.item.path, f"filter {name}", why)
