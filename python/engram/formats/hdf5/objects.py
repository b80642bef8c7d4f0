"""HDF5's datasets and attributes as nodes. Used for plain HDF5 and for netCDF-4."""

from __future__ import annotations

import functools
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np
from h5py import h5d, h5ds, h5i, h5t

from engram.formats import text, trees
from engram.formats.blocks import region_shape
from engram.formats.hdf5 import facts, slabs
from engram.formats.hdf5 import types as h5types
from engram.formats.hdf5.low import Dataset, filters, joined
from engram.formats.hdf5.parts import NUMBERS, TEXT, Part, Parts, parts
from engram.formats.origin import SPLIT, raw
from engram.formats.source import ArrayNode, GroupNode, RaggedNode, TextNode

if TYPE_CHECKING:
    from collections.abc import Callable

    from engram.formats.blocks import Region
    from engram.formats.hdf5.low import Kind, Owner
    from engram.formats.source import Attributes, Node, Origin, Source

Array = np.ndarray[Any, Any]

NETCDF_ATTRIBUTES = frozenset(
    {b"_Netcdf4Dimid", b"_Netcdf4Coordinates", b"_nc3_strict", b"_NCProperties"}
)
_SCALE_ATTRIBUTES = frozenset({b"CLASS", b"NAME", b"REFERENCE_LIST"})
_DIMENSION_ATTRIBUTES = frozenset({b"DIMENSION_LIST", b"DIMENSION_LABELS"})
_NO_VARIABLE = b"This is a netCDF dimension but not a netCDF variable"


def is_bare_dimension(dataset: Dataset) -> bool:
    """Whether it only stands for a netCDF dimension that has no variable."""
    return dataset.is_scale and h5ds.get_scale_name(dataset.id).startswith(_NO_VARIABLE)


def attributes(
    source: Source, owner: Owner, path: str, *, flat: bool = False
) -> tuple[Attributes, dict[str, Any]]:
    """Read an object's attributes.

    Parameters
    ----------
    source
        Where what cannot be represented is told.
    owner
        The group or dataset.
    path
        Its path, for the report.
    flat
        One element may be given without dimensions, whatever its own: asking for them takes time.

    Returns
    -------
    The values by name, and what of their types only `origin` can hold, by name.

    """
    hidden = structural(owner)
    values: Attributes = {}
    types: dict[str, Any] = {}
    for encoded in owner.names:
        if encoded in hidden:
            continue
        try:
            name = encoded.decode("utf-8")
        except UnicodeDecodeError:
            source.leave_out(path, f"attribute {encoded!r}", "its name is not UTF-8")
            continue
        kind, attr = owner.attribute(encoded)
        if kind.problem is not None:
            source.leave_out(path, f"attribute {name}", kind.problem)
            continue
        if kind.told:
            types[name] = kind.told
        value = attribute_value(kind, attr, flat=flat)
        if value is None:
            types[name] = {**(kind.told or {}), "dataspace": "null"}
            values[name] = np.empty((0,), text.string_dtype() if kind.is_text else kind.plain)
            continue
        values[name] = value
        if kind.is_text:
            values[name], exact = _text(value)
            if not exact:
                source.note(path, f"attribute {name}", text.NOT_UTF8)
    for name in trees.restore(values):
        types.pop(name, None)
    return values, types


def leave_out_attributes(source: Source, owner: Owner, path: str) -> None:
    """Name the attributes of what does not become an object, so that they go with it."""
    hidden = structural(owner)
    for name in owner.names:
        if name not in hidden:
            shown = name.decode("utf-8", "backslashreplace")
            source.leave_out(path, f"attribute {shown}", "belongs to what is no object here")


def structural(owner: Owner) -> frozenset[bytes]:
    """Return the attributes that are the file's structure, told as dimensions instead."""
    if not isinstance(owner, Dataset):
        return NETCDF_ATTRIBUTES
    hidden = NETCDF_ATTRIBUTES | _DIMENSION_ATTRIBUTES
    return hidden | _SCALE_ATTRIBUTES if owner.is_scale else hidden


def attribute_value(kind: Kind, attr: Any, *, flat: bool) -> Array | None:
    """Return an attribute's value as an array, of `bytes` objects for text; None if it has none.

    An array even of no dimensions: scalars lose their byte order, and trailing NULs.
    """
    shape = () if flat and _is_one(kind, attr) else attr.shape
    if shape is None:
        return None
    value: Array = np.zeros((*shape, *kind.inner), kind.plain)
    # As netCDF reads text: all of its bytes, where HDF5 would end a string at a NUL.
    is_raw = flat and kind.of == h5t.STRING and not kind.is_text
    attr.read(value, mtype=kind.tid if is_raw else kind.memory)
    return value


def _is_one(kind: Kind, attr: Any) -> bool:
    """Whether an attribute has one element."""
    try:
        return bool(attr.get_storage_size() == kind.nbytes)
    except RuntimeError:  # it has none
        return False


def _text(value: Array) -> tuple[Any, bool]:
    """Return an attribute of text as ours, and whether it is UTF-8."""
    if value.ndim:
        return text.text_array(list(value.flat), value.shape)
    return text.text_value(bytes(value[()]))


def dimensions(source: Source, dataset: Dataset, path: str) -> tuple[str, ...] | None:
    """Return the names of a dataset's dimensions: labels, or the names of attached scales."""
    if not dataset.shape:
        return None
    rank = len(dataset.shape)
    if not dataset.has_dimension_list and b"DIMENSION_LABELS" not in dataset.names:
        return (path.rpartition("/")[2],) if rank == 1 and dataset.is_scale else None
    names = dataset.labels()
    for axis, scales in enumerate(dataset.scales()):
        if not names[axis] and scales:
            names[axis] = scale_path(scales[0]).rpartition("/")[2]
    if all(names):
        return tuple(names)
    if any(names):
        source.note(path, "dimension names", f"only some are given: {names}")
    return None


def scale_path(scale: h5d.DatasetID) -> str:
    """Return the path of a dimension scale in its file, from the root; empty if it has none."""
    name: bytes = h5i.get_name(scale) or b""
    return name.decode("utf-8", "backslashreplace")


def dataset_origin(dataset: Dataset) -> Origin:
    """Return how a dataset is stored."""
    origin: Origin = {"format": "HDF5", **facts.of_object(dataset.id, dataset.plist)}
    if dataset.kind.told is not None:
        origin["type"] = dataset.kind.told
    origin.update(facts.of_storage(dataset.plist))
    if dataset.shape is None:
        return {**origin, **_fill(dataset), "dataspace": "null"}
    return {**origin, **_layout(dataset), **_fill(dataset), **_scales(dataset)}


def _layout(dataset: Dataset) -> Origin:
    """Return how a dataset's values lie in its file."""
    stored: Origin = {}
    if dataset.maxshape != dataset.shape:
        stored["maxshape"] = list(dataset.maxshape)
    plist = dataset.plist
    layout = plist.get_layout()
    if layout == h5d.CHUNKED:
        stored["chunks"] = list(plist.get_chunk())
    elif layout == h5d.COMPACT:
        stored["layout"] = "compact"
    elif layout == h5d.VIRTUAL:
        stored["layout"] = "virtual"
    elif plist.get_external_count():
        stored["layout"] = "external"
    used = [
        {"id": code, "flags": flags, "values": list(values), "name": name}
        for code, flags, values, name in filters(plist)
    ]
    if used:
        stored["filters"] = used
    return stored


def _fill(dataset: Dataset) -> Origin:
    """Return the fill value that a user has given a dataset, where it has a dtype here."""
    is_given = dataset.plist.fill_value_defined() == h5d.FILL_VALUE_USER_DEFINED
    if not is_given or dataset.kind.problem is not None:
        return {}
    value = np.zeros((1,), dtype=dataset.kind.dtype)
    dataset.plist.get_fill_value(value)
    if dataset.kind.is_text:
        return {"fill": value[0]}
    return {"fill": raw(np.asarray(value[0], dtype=dataset.kind.dtype.base))}


def _scales(dataset: Dataset) -> Origin:
    """Return what a dataset has to do with dimension scales."""
    found: Origin = {}
    if dataset.is_scale:
        found["scale"] = h5ds.get_scale_name(dataset.id)
    if b"DIMENSION_LABELS" in dataset.names:
        found["labels"] = dataset.labels()
    if dataset.has_dimension_list:
        found["scales"] = [[scale_path(s) for s in scales] for scales in dataset.scales()]
    return found


def dataset_nodes(source: Source, dataset: Dataset, path: str) -> list[Node]:
    """Return the nodes of a dataset; none, and a word in the report, if it cannot have any."""
    kind = dataset.kind
    _check_virtual(source, dataset, path)
    if kind.problem is not None:
        return _in_parts(source, dataset, path, kind.problem)

    def describe() -> tuple[Attributes, Origin]:
        values, types = attributes(source, dataset, path)
        origin = dataset_origin(dataset)
        return values, {**origin, "attributes": types} if types else origin

    dims = dimensions(source, dataset, path)
    shape = (0,) if dataset.shape is None else dataset.shape
    chunks = dataset.chunks
    whole = (*shape, *kind.inner)
    units = (*chunks, *kind.inner) if chunks else None
    dims = None if kind.inner else dims
    if kind.is_text:

        def load(region: Region) -> Array:
            return slabs.load_text(source, dataset, path, region, what="dataset")

        if not dataset.shape:
            return [TextNode(path, whole, dims, describe, load)]
        raw_text = functools.partial(slabs.text_bytes, dataset)
        return [TextNode(path, whole, dims, describe, load, raw_text, units)]

    def read(out: Array, region: Region) -> None:
        slabs.read(dataset, out, region)

    plain = functools.partial(dataset.plain, kind)
    return [ArrayNode(path, whole, kind.plain, dims, units, describe, read, plain)]


def _in_parts(source: Source, dataset: Dataset, path: str, problem: str) -> list[Node]:
    """Return the nodes of a dataset whose values have no fixed size; none if it has no like."""
    found = None if dataset.shape is None else parts(dataset.id.get_type())
    if found is None:
        source.leave_out(path, "dataset", problem)
        return []
    dims = dimensions(source, dataset, path)

    def describe() -> tuple[Attributes, Origin]:
        values, types = attributes(source, dataset, path)
        origin: Origin = {"format": "HDF5", **({"attributes": types} if types else {})}
        stored = {**dataset_origin(dataset), **split_facts(dataset, dims)}
        return values, {**origin, SPLIT: stored}

    shape = dataset.shape or ()
    return part_nodes(source, dataset, path, Layout(found, shape, dims, describe))


def split_facts(dataset: Dataset, dims: tuple[str, ...] | None) -> Origin:
    """Return what an export needs to make a dataset of its parts again."""
    kind = h5types.describe_named(dataset.id.get_type())
    return {"type": kind, "shape": list(dataset.shape or ()), "dims": list(dims or ())}


@dataclass(frozen=True, slots=True)
class Layout:
    """How a dataset that comes in as its parts is seen.

    Attributes
    ----------
    parts
        Its parts.
    shape
        Its shape.
    dims
        The names of its dimensions, or None.
    describe
        Reads its attributes and the `origin` of its group.
    within
        Returns what of a region the dataset has, and where that stands in it; None for all.

    """

    parts: Parts
    shape: tuple[int, ...]
    dims: tuple[str, ...] | None
    describe: Callable[[], tuple[Attributes, Origin]]
    within: Callable[[Region], tuple[Region, Region]] | None = None


def part_nodes(source: Source, dataset: Dataset, path: str, layout: Layout) -> list[Node]:
    """Return a dataset's parts as nodes, the groups of compound types before what is in them."""
    found = layout.parts
    for below, why in found.left_out:
        source.leave_out(joined(path, below), "field", why)
    nodes: list[Node] = []
    if found.arrays[0].path:
        nodes.append(GroupNode(path, layout.describe))
    nodes += [GroupNode(joined(path, below), _nothing) for below in found.groups]
    return nodes + [_part_node(source, dataset, path, layout, part) for part in found.arrays]


def _part_node(source: Source, dataset: Dataset, path: str, layout: Layout, part: Part) -> Node:
    """Return the node of one part."""
    at = joined(path, part.path) if part.path else path
    describe = _nothing if part.path else layout.describe
    shape = (*layout.shape, *part.inner)
    dims = None if part.inner else layout.dims
    units = None if dataset.chunks is None else (*dataset.chunks, *part.inner)

    def load(region: Region) -> Array:
        empty: Array = np.full(region_shape(region), None, object)
        return _clipped(layout, region, empty, lambda r: _sequences(dataset, r, part))

    def load_text(region: Region) -> Array:
        def found(there: Region) -> Array:
            return slabs.load_text(source, dataset, at, there, what="field", kind=part)

        empty: Array = np.full(region_shape(region), "", text.string_dtype())
        return _clipped(layout, region, empty, found)

    def read(out: Array, region: Region) -> None:
        def found(there: Region) -> Array:
            values = np.empty(region_shape(there), part.plain)
            slabs.read(dataset, values, there, part)
            return values

        if layout.within is None:
            slabs.read(dataset, out, region, part)
        else:
            out[...] = _clipped(layout, region, np.zeros(out.shape, part.plain), found)

    if part.form == NUMBERS:
        return ArrayNode(at, shape, part.plain, dims, units, describe, read)
    if part.form == TEXT:
        return TextNode(at, shape, dims, describe, load_text, None, units)
    return RaggedNode(at, shape, part.element, dims, describe, load)


def _clipped(
    layout: Layout, region: Region, empty: Array, read: Callable[[Region], Array]
) -> Array:
    """Read a region of a part, with what `empty` has where the dataset ends earlier."""
    if layout.within is None:
        return read(region)
    rank = len(layout.shape)
    there, place = layout.within(region[:rank])
    if 0 in region_shape(there):
        return empty
    found = read((*there, *region[rank:]))
    made = empty.astype(found.dtype)
    made[place] = found
    return made


def _sequences(dataset: Dataset, region: Region, part: Part) -> Array:
    """Read a region of sequences.

    h5py gives the file's bytes, and a dtype without the file's byte order.
    """
    found = slabs.object_block(dataset, region, part)
    if part.element.kind != "T":
        for place, one in enumerate(found.flat):
            found.flat[place] = None if one is None else one.view(part.element)
    return found


def _nothing() -> tuple[Attributes, Origin]:
    """Describe a part, of which the group of the whole says everything."""
    return {}, {}


def _check_virtual(source: Source, dataset: Dataset, path: str) -> None:
    """Say where a virtual dataset's values come from: what is missing reads as fill values."""
    if dataset.shape is None or dataset.plist.get_layout() != h5d.VIRTUAL:
        return
    plist = dataset.plist
    files = {plist.get_virtual_filename(n) for n in range(plist.get_virtual_count())}
    missing = [f for f in sorted(files) if f != "." and not (source.path.parent / f).exists()]
    if missing:
        source.note(
            path, "virtual dataset", f"fill values stand where files are missing: {missing}"
        )
