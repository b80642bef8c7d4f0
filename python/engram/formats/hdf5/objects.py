"""HDF5's groups, datasets and attributes, as nodes. Used for plain HDF5 and beside netCDF4."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import h5py
import numpy as np
from h5py import h5a, h5d, h5ds, h5t

from engram.formats import text
from engram.formats.blocks import pieces, region_shape
from engram.formats.hdf5 import facts
from engram.formats.hdf5 import types as h5types
from engram.formats.origin import raw
from engram.formats.source import ArrayNode, TextNode

if TYPE_CHECKING:
    from engram.formats.blocks import Region
    from engram.formats.source import Attributes, Origin, Source

Array = np.ndarray[Any, Any]

NETCDF_ATTRIBUTES = frozenset(
    {"_Netcdf4Dimid", "_Netcdf4Coordinates", "_nc3_strict", "_NCProperties"}
)
_SCALE_ATTRIBUTES = frozenset({"CLASS", "NAME", "REFERENCE_LIST"})
_DIMENSION_ATTRIBUTES = frozenset({"DIMENSION_LIST", "DIMENSION_LABELS"})
_NO_VARIABLE = b"This is a netCDF dimension but not a netCDF variable"
_TEXT_BYTES = 64
"""What a string is taken to need while it is read, to bound the pieces of a text variable."""


def is_scale(dataset: h5py.Dataset) -> bool:
    """Whether it is a dimension scale."""
    return bool(h5ds.is_scale(dataset.id))


def is_bare_dimension(dataset: h5py.Dataset) -> bool:
    """Whether it only stands for a netCDF dimension that has no variable."""
    return is_scale(dataset) and h5ds.get_scale_name(dataset.id).startswith(_NO_VARIABLE)


def attributes(
    source: Source, obj: h5py.Group | h5py.Dataset, path: str
) -> tuple[Attributes, dict[str, Any]]:
    """Read an object's attributes.

    Parameters
    ----------
    source
        Where what cannot be represented is told.
    obj
        The group or dataset.
    path
        Its path, for the report.

    Returns
    -------
    The values by name, and what of their types only `origin` can hold, by name.

    """
    hidden = _structural(obj)
    values: Attributes = {}
    types: dict[str, Any] = {}
    for name in obj.attrs:
        if isinstance(name, bytes):
            source.leave_out(path, f"attribute {name!r}", "its name is not UTF-8")
            continue
        if name in hidden:
            continue
        attr = obj.attrs.get_id(name)
        try:
            dtype = attr.dtype
        except TypeError as error:
            source.leave_out(path, f"attribute {name}", f"its type has no like here: {error}")
            continue
        why = h5types.problem(dtype)
        if why is not None:
            source.leave_out(path, f"attribute {name}", why)
            continue
        values[name], exact = _attribute(attr, dtype)
        if not exact:
            source.note(path, f"attribute {name}", text.NOT_UTF8)
        kind = h5types.describe(attr.get_type()) or {}
        if attr.shape is None:
            kind["dataspace"] = "null"
        if kind:
            types[name] = kind
    return values, types


def leave_out_attributes(source: Source, obj: h5py.Dataset | h5py.Datatype, path: str) -> None:
    """Name the attributes of what does not become an object, so that they go with it."""
    hidden = _structural(obj)
    for name in obj.attrs:
        if name not in hidden:
            source.leave_out(path, f"attribute {name}", "belongs to what is no object here")


def _structural(obj: h5py.Group | h5py.Dataset | h5py.Datatype) -> frozenset[str]:
    """Return the attributes that are the file's structure, told as dimensions instead."""
    if not isinstance(obj, h5py.Dataset):
        return NETCDF_ATTRIBUTES
    hidden = NETCDF_ATTRIBUTES | _DIMENSION_ATTRIBUTES
    return hidden | _SCALE_ATTRIBUTES if is_scale(obj) else hidden


def _attribute(attr: h5a.AttrID, dtype: np.dtype[Any]) -> tuple[Any, bool]:
    """Return an attribute's value as ours, and whether its text is UTF-8."""
    is_text = h5types.is_text(dtype)
    kind = text.string_dtype() if is_text else h5types.plain(dtype.base)
    if attr.shape is None:
        return np.empty((0,), kind), True
    inner = dtype.shape  # of an array type
    value = np.zeros((*attr.shape, *inner), dtype.base)
    attr.read(value, mtype=h5t.py_create(dtype))
    if not is_text:
        # An array even of no dimensions: scalars lose their byte order, and trailing NULs.
        return value.astype(kind, copy=False), True
    if value.ndim == 0:
        return text.text_value(bytes(value[()]))
    return text.text_array(list(value.flat), value.shape)


def dimensions(source: Source, dataset: h5py.Dataset, path: str) -> tuple[str, ...] | None:
    """Return the names of a dataset's dimensions: labels, or the names of attached scales."""
    if dataset.shape is None or dataset.ndim == 0:
        return None
    attached = "DIMENSION_LIST" in dataset.attrs
    if not attached and "DIMENSION_LABELS" not in dataset.attrs:
        return (path.rpartition("/")[2],) if is_scale(dataset) and dataset.ndim == 1 else None
    names: list[str] = []
    for axis in dataset.dims:
        name = axis.label
        if not name and attached and len(axis):
            name = (axis[0].name or "").rpartition("/")[2]
        names.append(name)
    if all(names):
        return tuple(names)
    if any(names):
        source.note(path, "dimension names", f"only some are given: {names}")
    return None


def dataset_origin(dataset: h5py.Dataset) -> Origin:
    """Return how a dataset is stored."""
    origin: Origin = {"format": "HDF5", **facts.of_object(dataset.id)}
    kind = h5types.describe(dataset.id.get_type())
    if kind is not None:
        origin["type"] = kind
    if dataset.shape is None:
        return {**origin, "dataspace": "null"}
    origin.update(facts.of_storage(dataset.id))
    return {**origin, **_layout(dataset), **_fill(dataset), **_scales(dataset)}


def _layout(dataset: h5py.Dataset) -> Origin:
    """Return how a dataset's values lie in its file."""
    stored: Origin = {}
    if dataset.maxshape != dataset.shape:
        stored["maxshape"] = list(dataset.maxshape)
    plist = dataset.id.get_create_plist()
    layout = plist.get_layout()
    if layout == h5d.CHUNKED:
        stored["chunks"] = list(dataset.chunks)
    elif layout == h5d.COMPACT:
        stored["layout"] = "compact"
    elif layout == h5d.VIRTUAL:
        stored["layout"] = "virtual"
    elif plist.get_external_count():
        stored["layout"] = "external"
    filters = [plist.get_filter(i) for i in range(plist.get_nfilters())]
    if filters:
        stored["filters"] = [
            {"id": code, "flags": flags, "values": list(values), "name": name}
            for code, flags, values, name in filters
        ]
    return stored


def _fill(dataset: h5py.Dataset) -> Origin:
    """Return the fill value that a user has given a dataset."""
    defined = dataset.id.get_create_plist().fill_value_defined()
    if defined != h5d.FILL_VALUE_USER_DEFINED:
        return {}
    if h5types.is_text(dataset.dtype):
        return {"fill": dataset.fillvalue}
    return {"fill": raw(np.asarray(dataset.fillvalue, dtype=dataset.dtype.base))}


def _scales(dataset: h5py.Dataset) -> Origin:
    """Return what a dataset has to do with dimension scales."""
    found: Origin = {}
    if is_scale(dataset):
        found["scale"] = h5ds.get_scale_name(dataset.id)
    if "DIMENSION_LABELS" in dataset.attrs:
        found["labels"] = [axis.label for axis in dataset.dims]
    if "DIMENSION_LIST" in dataset.attrs:
        found["scales"] = [[scale.name for scale in axis.values()] for axis in dataset.dims]
    return found


def dataset_node(source: Source, dataset: h5py.Dataset, path: str) -> ArrayNode | TextNode | None:
    """Return the node of a dataset; None, and a word in the report, if it cannot have one."""
    try:
        dtype = dataset.dtype
    except TypeError as error:
        source.leave_out(path, "dataset", f"its type has no like here: {error}")
        return None
    why = h5types.problem(dtype)
    if why is not None:
        source.leave_out(path, "dataset", why)
        return None
    _check_virtual(source, dataset, path)

    def describe() -> tuple[Attributes, Origin]:
        values, types = attributes(source, dataset, path)
        origin = dataset_origin(dataset)
        return values, {**origin, "attributes": types} if types else origin

    dims = dimensions(source, dataset, path)
    shape = (0,) if dataset.shape is None else tuple(dataset.shape)
    if h5types.is_text(dtype):
        return TextNode(path, shape, dims, describe, lambda r: _load_text(source, dataset, path, r))
    inner = dtype.subdtype[1] if dtype.subdtype is not None else ()
    chunks = (*dataset.chunks, *inner) if dataset.shape is not None and dataset.chunks else None
    return ArrayNode(
        path,
        (*shape, *inner),
        h5types.plain(dtype.base),
        None if inner else dims,
        chunks,
        describe,
        lambda out, region: _read(dataset, out, region),
    )


def _check_virtual(source: Source, dataset: h5py.Dataset, path: str) -> None:
    """Say where a virtual dataset's values come from: what is missing reads as fill values."""
    if dataset.shape is None or not dataset.is_virtual:
        return
    origin_files = sorted({piece.file_name for piece in dataset.virtual_sources()})
    missing = [f for f in origin_files if f != "." and not (source.path.parent / f).exists()]
    if missing:
        source.note(
            path, "virtual dataset", f"fill values stand where files are missing: {missing}"
        )


def _read(dataset: h5py.Dataset, out: Array, region: Region) -> None:
    """Read a region into `out`, without a copy in between where `out` is contiguous."""
    if dataset.dtype.subdtype is not None:
        out[...] = dataset[region[: dataset.ndim]][(..., *region[dataset.ndim :])]
    elif out.ndim == 0:
        out[()] = dataset[()]
    elif out.flags.c_contiguous:
        # h5py's own dtype tells HDF5 of enums, character sets and opaque tags.
        dataset.read_direct(out.view(dataset.dtype), region)
    else:
        out[...] = dataset[region]


def _load_text(source: Source, dataset: h5py.Dataset, path: str, region: Region) -> Array:
    """Read a region of a dataset of variable-length strings."""
    if dataset.shape is None:
        return np.empty((0,), text.string_dtype())
    if dataset.ndim == 0:
        value, exact = text.text_array([dataset[()]], ())
    else:
        value, exact = np.empty(region_shape(region), text.string_dtype()), True
        for part, place in pieces(region, dataset.chunks, _TEXT_BYTES):
            block = dataset[part]
            piece, exact = text.text_array(list(block.flat), block.shape)
            if not exact:
                whole = dataset[region]
                value = text.bytes_array(list(whole.flat), whole.shape)
                break
            value[place] = piece
    if not exact:
        source.note(path, "dataset", text.NOT_UTF8)
    return value
