"""netCDF-4 files, and HDF5 files with dimension scales, through h5py's low level alone.

netCDF4 would have to be asked as well as h5py: it shows no opaque variables, no attributes of
user-defined types, and none of the datasets that HDF5 alone knows. So what its library makes of a
file is read from HDF5 itself (`structure4`), and nothing is dropped in silence. Attributes
stand as netCDF has them: native, one element as a scalar.
"""

from __future__ import annotations

import functools
from typing import TYPE_CHECKING, Any

import h5py
import numpy as np
from h5py import h5d

from engram.errors import FormatError
from engram.formats import text
from engram.formats.blocks import region_shape, whole
from engram.formats.hdf5 import facts, slabs
from engram.formats.hdf5 import objects as h5objects
from engram.formats.hdf5 import types as h5types
from engram.formats.hdf5.low import File, filters, joined
from engram.formats.hdf5.parts import parts
from engram.formats.hdf5.read import HDF5Source
from engram.formats.netcdf.attributes import text_facts
from engram.formats.netcdf.structure4 import Structure
from engram.formats.origin import SPLIT, raw
from engram.formats.source import READ_ERRORS, ArrayNode, Declined, GroupNode, Source, TextNode

if TYPE_CHECKING:
    from pathlib import Path

    from engram.formats.blocks import Region
    from engram.formats.hdf5.low import Dataset, Owner
    from engram.formats.netcdf.structure4 import Place, Variable
    from engram.formats.source import Attributes, Origin, Plain

Array = np.ndarray[Any, Any]

_DEFAULT_FILLS = {
    "i1": -127, "u1": 255, "i2": -32767, "u2": 65535, "i4": -2147483647, "u4": 4294967295,
    "i8": -9223372036854775806, "u8": 18446744073709551614,
    "f4": 9.969209968386869e36, "f8": 9.969209968386869e36,
}  # fmt: skip
"""What netCDF's library shows where nothing was written and no fill value was given."""

_DEFLATE, _SHUFFLE, _FLETCHER32, _SZIP = 1, 2, 3, 4
_BZIP2, _BLOSC, _ZSTD = 307, 32001, 32015
_LEVELS = {_DEFLATE: "zlib", _BZIP2: "bzip2", _ZSTD: "zstd"}
_BLOSC_NAMES = ("blosc_blosclz", "blosc_lz4", "blosc_lz4hc", "blosc_snappy", "blosc_zlib",
                "blosc_zstd")  # fmt: skip
_BLOSC_VALUES = 7
_SZIP_ENTROPY = 4


class NetCDF4Source(Source):
    """A netCDF-4 file, or an HDF5 file with dimension scales."""

    def __init__(self, path: Path, file: File) -> None:
        """Walk the file; it is closed with the source.

        Raises
        ------
        Declined
            It is better read as HDF5.
        FormatError
            It is damaged.

        """
        self._file = file
        self._structure = Structure(path, file)
        root = self._structure.places[0].group
        is_classic = b"_nc3_strict" in root.names
        super().__init__(path, "NETCDF4_CLASSIC" if is_classic else "NETCDF4")
        for inner, why in self._structure.problems:
            self.leave_out(inner, "member", why)
        for place in self._structure.places:
            self._add_group(place)

    def close(self) -> None:
        """Close the file; its handles first, as it is slow to close them with it."""
        self.nodes.clear()
        self._structure.places.clear()
        self._file.close()

    def _add_group(self, place: Place) -> None:
        """Add a group and its variables to the nodes."""
        told = self._attributes(place.group, place.path)
        self.nodes.append(
            GroupNode(place.path, functools.partial(self._describe_group, place, told))
        )
        for variable in place.variables:
            if not variable.is_netcdf:
                self.nodes += h5objects.dataset_nodes(self, variable.dataset, variable.path)
            else:
                self._add(variable)
        for name, dataset in place.bare:
            h5objects.leave_out_attributes(self, dataset, joined(place.path, name))
        for name, owner in place.types.items():
            h5objects.leave_out_attributes(self, owner, joined(place.path, name))

    def _add(self, variable: Variable) -> None:
        """Add a variable to the nodes."""
        path, dataset = variable.path, variable.dataset
        told = self._attributes(dataset, path)
        kind = dataset.kind
        named = self._structure.type_name(kind)
        if kind.problem is not None:
            self._add_parts(variable, told, named)
            return
        variable.kind = kind = self._structure.shown_as(kind)
        describe = functools.partial(self._describe_variable, variable, told, named)
        dims = tuple(dim.name for dim in variable.dims) or None
        if kind.is_text:
            given = told[0].get("_FillValue", "")
            fill = given if isinstance(given, str) else ""
            load = functools.partial(self._load_text, variable, fill)
            raw_text = functools.partial(slabs.text_bytes, dataset)
            has_all = bool(variable.shape) and variable.shape == dataset.shape
            self.nodes.append(
                TextNode(
                    path,
                    variable.shape,
                    dims,
                    describe,
                    load,
                    raw_text if has_all else None,
                    dataset.chunks,
                )
            )
            return
        read, plain = functools.partial(_read, variable), functools.partial(_plain, variable)
        dtype, chunks = kind.plain, dataset.chunks
        self.nodes.append(
            ArrayNode(path, variable.shape, dtype, dims, chunks, describe, read, plain)
        )

    def _add_parts(
        self, variable: Variable, told: tuple[Attributes, dict[str, Any]], named: str | None
    ) -> None:
        """Add a variable whose values have no fixed size, as its parts."""
        path, dataset, kind = variable.path, variable.dataset, variable.dataset.kind
        found = parts(dataset.id.get_type())
        if found is None:
            problem = kind.problem or ""
            why = problem.replace(" have no", f" ({named}) have no") if named else problem
            self.leave_out(path, "variable", why)
            return
        dims = tuple(dim.name for dim in variable.dims) or None

        def describe() -> tuple[Attributes, Origin]:
            values, origin = self._describe_variable(variable, told, named)
            types = {"attributes": origin.pop("attributes")} if "attributes" in origin else {}
            stored = {**origin, **h5objects.split_facts(dataset, dims)}
            if "hdf5" in stored:
                stored["hdf5"] = {**stored["hdf5"], "type": stored["type"]}
            if named:
                stored["type"] = {**stored["type"], "name": named}
            return values, {"format": self.format, **types, SPLIT: stored}

        within = functools.partial(_there, variable)
        shape, is_whole = variable.shape, variable.shape == dataset.shape
        layout = h5objects.Layout(found, shape, dims, describe, None if is_whole else within)
        self.nodes += h5objects.part_nodes(self, dataset, path, layout)

    def _attributes(self, owner: Owner, path: str) -> tuple[Attributes, dict[str, Any]]:
        """Read the attributes, and what of their types only `origin` can hold."""
        try:
            values, types = h5objects.attributes(self, owner, path, flat=True)
        except READ_ERRORS as error:
            message = f"{self.path}: /{path} cannot be read: {error}. The file is damaged"
            raise FormatError(message) from error
        for name, value in values.items():
            if not isinstance(value, dict | list):  # a tree
                values[name] = self._as_netcdf(path, name, value, types)
        return values, types

    def _as_netcdf(self, path: str, name: str, value: Any, types: dict[str, Any]) -> Any:
        """Return an attribute as netCDF has it: one element is a scalar, one text is `str`."""
        if isinstance(value, str):
            types[name] = {"string": "variable"}
            return value
        if value.ndim > 1:
            reason = f"/{path} has an attribute {name} of several dimensions"
            raise Declined(reason)
        kind = types.get(name, {})
        if value.dtype.kind == "T":
            types[name] = {**kind, "string": "variable"}
            return str(value[0]) if value.size == 1 else value
        if value.dtype.kind == "S" and name != "_FillValue":
            return self._text(path, name, value, types)
        if not value.dtype.isnative:
            value = value.astype(value.dtype.newbyteorder("="))
        return value.reshape(()) if value.size == 1 else value

    def _text(self, path: str, name: str, value: Array, types: dict[str, Any]) -> Any:
        """Return text of a fixed length: characters if it is one, strings if it is several."""
        if value.ndim == 0 and b"\0" not in (content := value.tobytes()) and content.isascii():
            types.pop(name, None)  # as most are
            return content.decode("ascii")
        pieces = [piece.partition(b"\0")[0] for piece in value.reshape(-1).tolist()]
        if value.ndim == 0 or "dataspace" in types.get(name, {}):
            raw_text, was = value.tobytes(), types.pop(name, {})
            found, exact = text.text_value(raw_text.replace(b"\0", b""))
            told = {"dataspace": was["dataspace"]} if value.ndim else text_facts(raw_text)
            if told:
                types[name] = told
        elif len(pieces) == 1:
            found, exact = text.text_value(pieces[0])
        else:
            found, exact = text.text_array(pieces, value.shape)
        if not exact:
            self.note(path, f"attribute {name}", text.NOT_UTF8)
        return found

    def _describe_group(
        self, place: Place, told: tuple[Attributes, dict[str, Any]]
    ) -> tuple[Attributes, Origin]:
        """Return a group's attributes and origin."""
        values, types = told
        origin: Origin = {"format": self.format}
        if not place.path:
            origin["source"] = self.path.name
        if place.dimensions:
            origin["dimensions"] = {
                dim.name: {"size": dim.size, "unlimited": dim.unlimited}
                for dim in place.dimensions.values()
            }
        if types:
            origin["attributes"] = types
        origin["order"] = [
            *(v.name for v in place.variables),
            *(below.path.rpartition("/")[2] for below in place.below),
        ]
        if not place.path and b"_NCProperties" in place.group.names:
            value = h5objects.attribute_value(*place.group.attribute(b"_NCProperties"), flat=True)
            origin["provenance"] = "" if value is None else _as_text(value)
        if not self._structure.is_marked:
            origin["hdf5"] = facts.of_group(place.group, h5objects.structural(place.group))
            if not place.path:
                origin["hdf5"].update(facts.of_file(self._file.id, self.path))
        if place.types:
            origin["types"] = {
                name: h5types.describe_named(owner.id) for name, owner in place.types.items()
            }
        return values, origin

    def _describe_variable(
        self, variable: Variable, told: tuple[Attributes, dict[str, Any]], named: str | None
    ) -> tuple[Attributes, Origin]:
        """Return a variable's attributes and origin."""
        values, types = told
        origin: Origin = {"format": self.format, **({"attributes": types} if types else {})}
        groups = self._structure.dimension_groups(variable)
        if groups is not None:
            origin["dimension_groups"] = groups
        dataset = variable.dataset
        kind = variable.kind
        if (kind.told is not None or named) and (kind.is_text or kind.plain.kind != "S"):
            origin["type"] = {**(kind.told or {}), **({"name": named} if named else {})}
        chunks = dataset.chunks
        if chunks is not None:
            origin["chunks"] = list(chunks)
        elif dataset.plist.get_layout() == h5d.COMPACT:
            origin["layout"] = "compact"
        used = _filters(dataset)
        if used:
            origin["filters"] = used
        if dataset.plist.fill_value_defined() != h5d.FILL_VALUE_USER_DEFINED:
            origin["fill"] = "none"
        elif kind.problem is not None or kind.is_text:
            pass
        elif not self._structure.is_marked and "_FillValue" not in values:
            origin["fill"] = raw(_fill(variable))  # netCDF's library would have made it its own
        if not self._structure.is_marked:
            stored = facts.of_attributes(dataset, h5objects.structural(dataset))
            origin["hdf5"] = {**h5objects.dataset_origin(dataset), "attributes": stored}
        return values, origin

    def _load_text(self, variable: Variable, fill: str, region: Region) -> Array:
        """Read a region of a variable of strings, with `fill` where its dataset ends earlier."""
        dataset, path = variable.dataset, variable.path
        if variable.shape == dataset.shape:
            return slabs.load_text(self, dataset, path, region, what="variable")
        there, place = _there(variable, region)
        value = slabs.load_text(self, dataset, path, there, what="variable")
        filler: Any = fill.encode() if value.dtype.kind == "S" else fill
        out: Array = np.full(region_shape(region), filler, value.dtype)
        out[place] = value
        return out


def _read(variable: Variable, out: Array, region: Region) -> None:
    """Read a region of a variable, with the fill value where its dataset ends earlier."""
    dataset = variable.dataset
    if variable.shape == dataset.shape:
        slabs.read(dataset, out, region, variable.kind)
        return
    there, place = _there(variable, region)
    if region_shape(there) != out.shape:
        out[...] = _fill(variable)
    if 0 not in region_shape(there):
        slabs.read(dataset, out[place], there, variable.kind)


def _plain(variable: Variable) -> Plain | None:
    """Say where the values of a variable lie plainly: not where its dataset ends earlier."""
    dataset = variable.dataset
    return dataset.plain(variable.kind) if variable.shape == dataset.shape else None


def _there(variable: Variable, region: Region) -> tuple[Region, Region]:
    """Return what of a region the dataset has, and where that stands in the region."""
    there = tuple(
        slice(min(part.start, length), min(part.stop, length), part.step)
        for part, length in zip(region, variable.dataset.shape or (), strict=True)
    )
    return there, whole(region_shape(there))


def _fill(variable: Variable) -> Array:
    """Return the value of what was never written, without dimensions; not of text."""
    kind = variable.kind
    plist = variable.dataset.plist
    # h5py must be told of objects that they are strings, or it frees what HDF5 keeps.
    value: Array = np.zeros((1,), h5py.string_dtype() if kind.is_text else kind.plain)
    if plist.fill_value_defined() == h5d.FILL_VALUE_USER_DEFINED:
        plist.get_fill_value(value)
    elif kind.plain.kind in "iuf":
        value[0] = _DEFAULT_FILLS[kind.plain.str[1:]]
    return value.reshape(())


def _filters(dataset: Dataset) -> Origin:
    """Return a dataset's filters in netCDF's words; as HDF5 has them where these do not do."""
    used: Origin = {}
    level = 0
    found = list(filters(dataset.plist))
    for code, _, values, _ in found:
        if code in _LEVELS and values:
            used[_LEVELS[code]], level = True, int(values[0])
        elif code == _SHUFFLE:
            used["shuffle"] = True
        elif code == _FLETCHER32:
            used["fletcher32"] = True
        elif code == _SZIP:
            coding = "ec" if values[0] & _SZIP_ENTROPY else "nn"
            used["szip"] = {"coding": coding, "pixels_per_block": values[1]}
        elif code == _BLOSC and len(values) == _BLOSC_VALUES and values[6] < len(_BLOSC_NAMES):
            used["blosc"] = {"compressor": _BLOSC_NAMES[values[6]], "shuffle": values[5]}
            level = int(values[4])
    if len(used) < len(found) or [f[0] for f in found] != sorted((f[0] for f in found), key=_place):
        used["pipeline"] = [{"id": f[0], "flags": f[1], "values": list(f[2])} for f in found]
    return {**used, "complevel": level} if used else {}


def _place(code: int) -> int:
    """Return where netCDF's library puts a filter: what checks and what shuffles go first."""
    return {_FLETCHER32: 0, _SHUFFLE: 1}.get(code, 2)


def _as_text(value: Array) -> str:
    """Return an attribute of text as `str`."""
    raw = value.reshape(-1)[0]
    return raw.decode("utf-8", "replace") if isinstance(raw, bytes) else str(raw)


def open_netcdf4(path: Path) -> Source:
    """Open and walk a netCDF-4 file; as plain HDF5 if it is none, with what is open already."""
    file = File(path)
    try:
        try:
            return NetCDF4Source(path, file)
        except Declined:  # to the next format of HDF5 files, which is this, by rank
            return HDF5Source(path, file)
    except BaseException:
        file.close()
        raise
