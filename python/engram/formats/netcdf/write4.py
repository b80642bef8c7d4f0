"""Writing netCDF-4 through HDF5: what makes an HDF5 file a netCDF-4 file, in one place.

netCDF-4 is HDF5 with conventions. Each dimension is a *dimension scale*: the variable of its name,
if that has the dimension first, else a dataset without values that says so. A variable's dimensions
are the scales attached to it; one that is itself a scale cannot have any, so that
`_Netcdf4Coordinates` lists its dimensions' numbers, which `_Netcdf4Dimid` gives to each scale. A
variable that only has a dimension's name is stored under another. A type that a variable uses is
committed in a group. Groups and attributes keep the order in which they were made.

Written so, and not through netCDF's library, a file comes back with all that it had: that library
writes no opaque types, no attributes of user-defined types, no compound types but aligned ones, and
few filters. What is written in memory's own layout is written without a conversion.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import h5py
import numpy as np
from h5py import h5a, h5d, h5ds, h5f, h5fd, h5g, h5o, h5p, h5s, h5t

from engram.formats import text
from engram.formats.blocks import index, regions
from engram.formats.hdf5.build import build, in_memory
from engram.formats.hdf5.outfile import OutFile
from engram.formats.hdf5.trees import stored
from engram.formats.hdf5.values import DatasetWriter, write_attribute
from engram.formats.netcdf import attributes, storage
from engram.formats.netcdf.forms import HIDDEN, STRINGS
from engram.formats.netcdf.types4 import STRING, Types, text_type

if TYPE_CHECKING:
    from pathlib import Path

    from engram.formats.netcdf.attributes import Attribute
    from engram.formats.netcdf.dimensions import Dimension
    from engram.formats.netcdf.plan import Group, Plan, Variable
    from engram.formats.target import Tell

_ORDERED = h5p.CRT_ORDER_TRACKED | h5p.CRT_ORDER_INDEXED
_NO_VARIABLE = "This is a netCDF dimension but not a netCDF variable."
_RENAMED = "_nc4_non_coord_"
_TEXT_BYTES = 64


def write4(plan: Plan, path: Path, tell: Tell) -> None:
    """Write a netCDF-4 file."""
    with OutFile(path) as out:

        def checked(at: str, nbytes: int) -> None:
            out.check()
            tell(at, nbytes)

        file = _create(out)
        try:
            _Writer(plan, file, checked).run()
        finally:
            file.close()
            out.check()


def _create(out: OutFile) -> h5f.FileID:
    """Create the file, whose root keeps the order of its members and attributes."""
    create = h5p.create(h5p.FILE_CREATE)
    create.set_link_creation_order(_ORDERED)
    create.set_attr_creation_order(_ORDERED)
    access = h5p.create(h5p.FILE_ACCESS)
    access.set_libver_bounds(h5f.LIBVER_V18, h5f.LIBVER_LATEST)  # as netCDF's library has them
    access.set_fclose_degree(h5f.CLOSE_STRONG)
    access.set_fileobj_driver(h5fd.fileobj_driver, out)
    return h5f.create(b"export", h5f.ACC_TRUNC, create, access)


class _Writer:
    """One file being written."""

    def __init__(self, plan: Plan, file: h5f.FileID, tell: Tell) -> None:
        """Begin with numbers for the dimensions."""
        self._plan = plan
        self._file = file
        self._tell = tell
        self._root = h5g.open(file, b"/")
        self._places: dict[str, h5g.GroupID] = {"": self._root}
        dims = [d for group in plan.groups.values() for d in group.dims.values()]
        self._numbers = {id(d): number for number, d in enumerate(dims)}
        self._scales: dict[int, h5d.DatasetID] = {}
        self._types = Types(plan)

    def run(self) -> None:
        """Write groups, types, dimensions and variables; then attach them; then their values."""
        if self._plan.kind.is_classic:
            _put_number(self._root, b"_nc3_strict", np.int32(1))
        made: list[tuple[Variable, h5d.DatasetID]] = []
        for path, group in self._plan.groups.items():
            place = self._place(path)
            self._types.commit(place, path)
            self._put_attributes(place, group.attrs)
            made += self._members(place, group)
        _put_text(self._root, b"_NCProperties", _provenance())
        for variable, dataset in made:
            self._attach(variable, dataset)
        for variable, dataset in made:
            self._tell(variable.item.path, 0)
            self._put_attributes(dataset, variable.attrs)
            self._write_values(variable, dataset)

    def _place(self, path: str) -> h5g.GroupID:
        """Return a group of the file, made if need be."""
        if path not in self._places:
            above, _, name = path.rpartition("/")
            create = h5p.create(h5p.GROUP_CREATE)
            create.set_link_creation_order(_ORDERED)
            create.set_attr_creation_order(_ORDERED)
            made = h5g.create(self._places[above], name.encode(), gcpl=create)
            self._places[path] = made
        return self._places[path]

    def _members(self, place: h5g.GroupID, group: Group) -> list[tuple[Variable, h5d.DatasetID]]:
        """Make a group's dimensions and variables."""
        coordinates = {v.name for v in group.variables if v.is_coordinate}
        for dimension in group.dims.values():
            if dimension.name not in coordinates:
                self._bare_dimension(place, dimension)
        made = []
        for variable in group.variables:
            if variable.form.kind == HIDDEN:
                self._hidden(place, variable)
                continue
            hides = variable.name in group.dims and not variable.is_coordinate
            name = (_RENAMED if hides else "") + variable.name
            dataset = self._dataset(place, name, variable)
            if variable.is_coordinate and variable.dims:
                self._make_scale(dataset, variable.dims[0], variable.name)
            made.append((variable, dataset))
        return made

    def _hidden(self, place: h5g.GroupID, variable: Variable) -> None:
        """Write a dataset of HDF5 alone, as the format for that does."""
        item, tree = variable.item, self._plan.tree
        self._tell(item.path, 0)
        told = item.origin.get("maxshape")
        grows = [n is None for n in told] if isinstance(told, list) else []
        unlimited = tuple(grows) if len(grows) == len(item.shape) else (False,) * len(item.shape)
        writer = DatasetWriter(self._file, item, build, unlimited, self._tell)
        made = writer.write()
        for why in writer.notes:
            tree.note(item.path, "array", why)
        types = item.origin.get("attributes")
        attrs, as_trees = stored(item.attrs)
        for name, value in attrs.items():
            words = types.get(name) if isinstance(types, dict) else None
            note = write_attribute(made, name, value, words or {}, build)
            note = as_trees.get(name, note)
            if note is not None:
                tree.note(item.path, f"attribute {name}", note)
        h5o.link(made, place, variable.name.encode())

    def _bare_dimension(self, place: h5g.GroupID, dimension: Dimension) -> None:
        """Make a dimension that has no variable: a dataset that holds nothing."""
        create = storage.creation()
        most = h5s.UNLIMITED if dimension.unlimited else dimension.size
        if dimension.unlimited:
            create.set_chunk((1,))
        space = h5s.create_simple((dimension.size,), (most,))
        dataset = h5d.create(place, dimension.name.encode(), h5t.IEEE_F32BE, space, create)
        self._make_scale(dataset, dimension, f"{_NO_VARIABLE}{dimension.size:10}")

    def _make_scale(self, dataset: h5d.DatasetID, dimension: Dimension, name: str) -> None:
        """Make a dataset the scale of a dimension."""
        h5ds.set_scale(dataset, name.encode())
        number = self._numbers[id(dimension)]
        _put_number(dataset, b"_Netcdf4Dimid", np.int32(number))
        self._scales[id(dimension)] = dataset

    def _dataset(self, place: h5g.GroupID, name: str, variable: Variable) -> h5d.DatasetID:
        """Make a variable's dataset, without its values."""
        shape = variable.shape
        if not shape:
            space = h5s.create(h5s.SCALAR)
        else:
            axes = zip(variable.dims or (), shape, strict=True)
            most = tuple(h5s.UNLIMITED if d.unlimited else n for d, n in axes)
            space = h5s.create_simple(shape, most)
        tid = self._types.of_variable(variable)
        tree = self._plan.tree
        try:
            create = storage.creation_of(variable, tree)
            return h5d.create(place, name.encode(), tid, space, create)
        except (ValueError, RuntimeError, OSError) as error:
            names = ", ".join(storage.plugins_of(variable))
            if not names:
                raise
            # Some plugins work with the HDF5 library alone that they were built for.
            why = f"{names}: left away, as it fails here: {error}"
            tree.note(variable.item.path, "filters", why)
            create = storage.creation_of(variable, tree, plugins=False)
            return h5d.create(place, name.encode(), tid, space, create)

    def _attach(self, variable: Variable, dataset: h5d.DatasetID) -> None:
        """Give a variable its dimensions."""
        dims = variable.dims
        if not dims:
            return
        numbers = np.array([self._numbers[id(d)] for d in dims], "i4")
        _put_number(dataset, b"_Netcdf4Coordinates", numbers)
        if not variable.is_coordinate:
            for axis, dimension in enumerate(dims):
                h5ds.attach_scale(dataset, self._scales[id(dimension)], axis)
            for axis, label in enumerate(_labels(variable)):
                h5ds.set_label(dataset, axis, label.encode())

    def _put_attributes(self, owner: Any, found: list[Attribute]) -> None:
        """Write attributes, in their order."""
        for attribute in found:
            name = attribute.name.encode()
            if attribute.kind == attributes.TEXT:
                _put_text(owner, name, attribute.value, is_null="dataspace" in attribute.facts)
            elif attribute.kind == attributes.STRINGS:
                _put_strings(owner, name, attribute.value)
            elif attribute.kind == attributes.NUMBERS:
                _put_number(owner, name, attribute.value)
            else:
                tid, inner = self._types.of_value(attribute.value.dtype, attribute.facts)
                value = np.asarray(attribute.value, order="C")
                space = h5s.create_simple(value.shape) if value.ndim else h5s.create(h5s.SCALAR)
                h5a.create(owner, name, tid, space).write(value, mtype=inner)

    def _write_values(self, variable: Variable, dataset: h5d.DatasetID) -> None:
        """Write a variable's values, a bounded piece at a time, from the pool's own memory."""
        item, form = variable.item, variable.form
        is_text = form.kind == STRINGS
        values = item.load()
        # h5py's own, of objects, for strings.
        tid = None if is_text else self._types.in_memory(variable) or dataset.get_type()
        if text.of_objects(item.dtype):
            tid = in_memory(dataset.get_type())
        width = _TEXT_BYTES if is_text else item.dtype.itemsize
        chunks = storage.chunks_of(variable)
        chunks = chunks[: len(item.shape)] if chunks else None
        for region in regions(item.shape, chunks, width):
            piece = values[index(region)]
            nbytes = piece.nbytes
            if form.convert is not None:
                piece = form.convert(piece)
            if is_text:
                piece = _as_objects(piece)
            piece = np.ascontiguousarray(piece)
            if variable.shape:
                space = dataset.get_space()
                start = [s.start for s in region] + [0] * bool(form.width)
                space.select_hyperslab(tuple(start), piece.shape)
                dataset.write(h5s.create_simple(piece.shape), space, piece, mtype=tid)
            else:
                dataset.write(h5s.ALL, h5s.ALL, piece, mtype=tid)
            self._tell(item.path, nbytes)


def _labels(variable: Variable) -> list[str]:
    """Return the labels that axes had beside their dimensions, which netCDF shows as attribute."""
    stored = variable.item.origin.get("hdf5")
    told = stored.get("labels") if isinstance(stored, dict) else None
    if not isinstance(told, list) or len(told) != len(variable.shape):
        return []
    return [one if isinstance(one, str) else "" for one in told]


def _as_objects(piece: Any) -> np.ndarray[Any, Any]:
    """Return strings as h5py takes them: objects, each `str` or bytes."""
    return np.array(piece, dtype=object).astype(h5py.string_dtype())


def _put_text(owner: Any, name: bytes, value: bytes, *, is_null: bool = False) -> None:
    """Write an attribute of text."""
    if is_null and not value:
        h5a.create(owner, name, text_type(1), h5s.create(h5s.NULL))
        return
    tid = text_type(max(len(value), 1))
    made = h5a.create(owner, name, tid, h5s.create(h5s.SCALAR))
    made.write(np.array(value, f"S{max(len(value), 1)}"), mtype=tid)


def _put_strings(owner: Any, name: bytes, values: list[bytes]) -> None:
    """Write an attribute of strings."""
    if not values:
        h5a.create(owner, name, STRING, h5s.create(h5s.NULL))
        return
    made = h5a.create(owner, name, STRING, h5s.create_simple((len(values),)))
    made.write(_as_objects(values))


def _put_number(owner: Any, name: bytes, value: np.generic | np.ndarray[Any, Any]) -> None:
    """Write an attribute of numbers: of one dimension, or of none for the file's own."""
    array = np.asarray(value)
    tid = h5t.py_create(array.dtype)
    if not array.size:
        h5a.create(owner, name, tid, h5s.create(h5s.NULL))
        return
    space = h5s.create_simple(array.shape) if array.ndim else h5s.create(h5s.SCALAR)
    h5a.create(owner, name, tid, space).write(np.ascontiguousarray(array), mtype=tid)


def _provenance() -> bytes:
    """Return what wrote the file, in the form of netCDF's library."""
    hdf5 = h5py.version.hdf5_version
    return f"version=2,h5py={h5py.version.version},hdf5={hdf5}".encode()
