"""netCDF-4 files: netCDF4 for structure and values, h5py beside it for what netCDF4 does not show.

A netCDF-4 file is an HDF5 file. netCDF4 shows no opaque variables, no attributes of user-defined
types, and none of the datasets that HDF5 alone knows; all of these are read through h5py, so that
nothing is dropped in silence. HDF5 files of other programs are read as netCDF if they have
dimension scales.

netCDF's library trusts its file, so the order matters: h5py reads all links and attributes first,
which checks them. A file is declined, and read as plain HDF5, if it has links that netCDF's
library takes for variables of their own (soft, external) or follows until it aborts (cycles), or
attributes of several dimensions. Damaged attributes, which that library answers with a wild
`free` on closing, end the import before it sees them.
"""

from __future__ import annotations

import warnings
from typing import TYPE_CHECKING, Any

import h5py
import netCDF4
import numpy as np
from h5py import h5d, h5ds, h5l, h5o

from engram.errors import FormatError
from engram.formats import text
from engram.formats.hdf5 import objects as h5objects
from engram.formats.hdf5 import types as h5types
from engram.formats.names import name_problem
from engram.formats.netcdf.read import NetCDFSource, is_text, joined
from engram.formats.source import READ_ERRORS, Declined

if TYPE_CHECKING:
    from pathlib import Path

    from engram.formats.blocks import Region
    from engram.formats.netcdf.read import Array, Variable
    from engram.formats.source import Attributes, Origin

_RENAMED = "_nc4_non_coord_"
_FILTERS = ("zlib", "szip", "zstd", "bzip2", "blosc", "shuffle", "fletcher32")
_MARKS = ("_NCProperties", "_nc3_strict")


class NetCDF4Source(NetCDFSource):
    """A netCDF-4 file, or an HDF5 file with dimension scales."""

    def __init__(self, path: Path, beside: h5py.File) -> None:
        """Check and walk the file; `beside` is closed with the source.

        Raises
        ------
        Declined
            It is better read as HDF5.
        FormatError
            It is damaged.

        """
        self._beside = beside
        self._links = _hard_links(beside)
        self._types: dict[str, dict[str, Any]] = {}
        self._read: dict[str, tuple[Attributes, dict[str, Any]]] = {}
        self.path = path
        self.left_out, self.noted = [], []
        self._read_attributes()
        kept = self.left_out, self.noted
        super().__init__(path, _open(path))
        self.left_out += kept[0]
        self.noted += kept[1]
        try:
            self._add_hidden()
        except BaseException:
            self._data.close()
            raise

    def close(self) -> None:
        """Close the file."""
        super().close()
        self._beside.close()

    def _read_attributes(self) -> None:
        """Read all attributes through h5py, and decline what is not netCDF."""
        is_netcdf = any(mark in self._beside.attrs for mark in _MARKS)
        for path in ("", *self._links):
            try:
                member = self._beside[f"/{path}"]
                if isinstance(member, h5py.Datatype):
                    continue
                if isinstance(member, h5py.Dataset):
                    is_netcdf = is_netcdf or h5objects.is_scale(member)
                values, types = h5objects.attributes(self, member, path)
            except READ_ERRORS as error:
                message = f"{self.path}: /{path} cannot be read: {error}. The file is damaged"
                raise FormatError(message) from error
            for name in values:
                values[name] = self._as_netcdf(path, name, values[name], types)
            self._read[path] = values, types
        if not is_netcdf:
            reason = "it has no dimension scales"
            raise Declined(reason)

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
        native = value.astype(value.dtype.newbyteorder("="), copy=False)
        return native.reshape(()) if native.size == 1 else native

    def _text(self, path: str, name: str, value: Array, types: dict[str, Any]) -> Any:
        """Return text of a fixed length: characters if it is one, strings if it is several."""
        pieces = [piece.replace(b"\0", b"") for piece in value.reshape(-1).tolist()]
        if value.ndim == 0 or "dataspace" in types.get(name, {}):
            types.pop(name, None)
            found, exact = text.text_value(b"".join(pieces))
        elif len(pieces) == 1:
            found, exact = text.text_value(pieces[0])
        else:
            found, exact = text.text_array(pieces, value.shape)
        if not exact:
            self.note(path, f"attribute {name}", text.NOT_UTF8)
        return found

    def _stored(self, path: str) -> str:
        """Return the path of a variable's dataset: not its own where a dimension has its name."""
        at, _, name = path.rpartition("/")
        renamed = joined(at, _RENAMED + name)
        return renamed if renamed in self._links else path

    def _add(self, variable: Variable, path: str) -> None:
        """Add a variable, unless netCDF's library has invented dimensions for it."""
        stored = self._stored(path)
        if not _is_undimensioned(self._beside[f"/{stored}"]):
            self.seen.add(stored)
            super()._add(variable, path)

    def _chunks(self, variable: Variable) -> tuple[int, ...] | None:
        """Return the file's chunk shape of a variable."""
        chunks = variable.chunking()
        return tuple(chunks) if isinstance(chunks, list) else None

    def _add_hidden(self) -> None:
        """Add what netCDF4 does not show, and note the user-defined types."""
        for path in self._links:
            at, _, name = path.rpartition("/")
            if path in self.seen or at not in self.seen:
                continue  # seen, or in a group that has been left out, and told
            why = name_problem(name)
            if why is not None:
                self.leave_out(path, "member", why)
                continue
            member = self._beside[f"/{path}"]
            if isinstance(member, h5py.Datatype):
                self._types.setdefault(at, {})[name] = h5types.describe_named(member.id)
                h5objects.leave_out_attributes(self, member, path)
            elif isinstance(member, h5py.Dataset) and h5objects.is_bare_dimension(member):
                h5objects.leave_out_attributes(self, member, path)
            elif isinstance(member, h5py.Dataset):
                node = h5objects.dataset_node(self, member, path)
                if node is not None:
                    self.nodes.append(node)

    def _describe_group(self, group: netCDF4.Dataset, path: str) -> tuple[Attributes, Origin]:
        """Read a group's attributes and origin."""
        values, origin = super()._describe_group(group, path)
        if not path and "_NCProperties" in self._beside.attrs:
            origin["provenance"] = _as_text(self._beside.attrs["_NCProperties"])
        if path in self._types:
            origin["types"] = self._types[path]
        return values, origin

    def _describe_variable(self, variable: Variable, path: str) -> tuple[Attributes, Origin]:
        """Read a variable's attributes and origin."""
        values, origin = super()._describe_variable(variable, path)
        dataset = self._beside[f"/{self._stored(path)}"]
        kind = h5types.describe(dataset.id.get_type())
        if kind is not None and (is_text(variable) or dataset.dtype.kind != "S"):
            origin["type"] = {**kind, **_type_name(variable)}
        chunks = self._chunks(variable)
        if chunks is not None:
            origin["chunks"] = list(chunks)
        filters: dict[str, Any] = dict(variable.filters() or {})
        used = {name: filters[name] for name in _FILTERS if filters.get(name)}
        if used:
            origin["filters"] = {**used, "complevel": filters.get("complevel")}
        plist = dataset.id.get_create_plist()
        if plist.fill_value_defined() != h5d.FILL_VALUE_USER_DEFINED:
            origin["fill"] = "none"
        return values, origin

    def _attributes(
        self, owner: netCDF4.Dataset | Variable, path: str
    ) -> tuple[Attributes, dict[str, Any]]:
        """Return the attributes, and what of their types only `origin` can hold."""
        stored = path if isinstance(owner, netCDF4.Dataset) else self._stored(path)
        return self._read[stored]

    def _load_lost(self, variable: Variable, path: str, region: Region) -> Array:
        """Read a variable of strings of which one may not be UTF-8, through h5py."""
        dataset = self._beside[f"/{self._stored(path)}"]
        if dataset.shape != tuple(variable.shape) or not h5types.is_text(dataset.dtype):
            return super()._load_lost(variable, path, region)
        flat = np.array(dataset[region], dtype=object)
        out, exact = text.text_array(list(flat.flat), flat.shape)
        if not exact:
            self.note(path, "variable", text.NOT_UTF8)
        return out


def _open(path: Path) -> netCDF4.Dataset:
    """Open the file with netCDF4.

    Raises
    ------
    Declined
        netCDF's library refuses it, which h5py does not.

    """
    with warnings.catch_warnings():
        # What netCDF4 warns of skipping is found through h5py.
        warnings.simplefilter("ignore")
        try:
            return netCDF4.Dataset(str(path.absolute()), "r")
        except READ_ERRORS as error:
            reason = f"netCDF's library refuses it: {error}"
            raise Declined(reason) from None


def _hard_links(beside: h5py.File) -> list[str]:
    """Return the paths of all links of a file.

    Raises
    ------
    Declined
        A link is not a hard one, or leads where another has led.

    """
    paths: list[str] = []
    reasons: list[str] = []
    root = beside["/"].id
    met: set[int] = {h5o.get_info(root).addr}

    def visit(name: bytes, link: h5l.LinkInfo) -> bool | None:
        if link.type != h5l.TYPE_HARD:
            reasons.append("it has soft or external links")
        elif link.u in met:
            reasons.append("an object has several hard links")
        else:
            met.add(link.u)
            paths.append(name.decode("utf-8", "surrogateescape"))
            return None
        return True

    root.links.visit(visit, info=True)
    if reasons:
        raise Declined(reasons[0])
    return paths


def _is_undimensioned(dataset: h5py.Dataset) -> bool:
    """Whether an HDF5 dataset has axes, and no dimension for any of them."""
    if dataset.ndim == 0 or h5ds.is_scale(dataset.id):
        return False
    return not ("DIMENSION_LIST" in dataset.attrs or "_Netcdf4Coordinates" in dataset.attrs)


def _type_name(variable: Variable) -> dict[str, str]:
    """Return the name of a variable's user-defined type, if it has one."""
    kind = variable.datatype
    if isinstance(kind, (netCDF4.EnumType, netCDF4.CompoundType)):
        return {"name": kind.name}
    return {}


def _as_text(value: Any) -> str:
    """Return an attribute of text as `str`."""
    return value.decode("utf-8", "replace") if isinstance(value, bytes) else str(value)
