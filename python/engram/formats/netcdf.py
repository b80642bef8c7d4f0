"""netCDF, classic and netCDF-4, through netCDF4; values raw, neither masked nor scaled.

A netCDF-4 file is an HDF5 file, and netCDF4 does not show all of one: opaque variables,
attributes of user-defined types, datasets and attributes that HDF5 alone knows. Those are read
through h5py beside it, so that nothing is dropped in silence. HDF5 files of other programs are
read as netCDF if they have dimension scales; but not where they hold links that netCDF's library
takes for variables of their own (soft, external) or follows for ever (cycles): those are HDF5.
"""

from __future__ import annotations

import functools
import warnings
from typing import TYPE_CHECKING, Any

import h5py
import netCDF4
import numpy as np
from h5py import h5d, h5ds, h5l

from engram.errors import EngramError, FormatError
from engram.formats import classic, h5objects, h5types, text
from engram.formats.blocks import Region, regions
from engram.formats.hdf5 import has_signature, open_file
from engram.formats.names import name_problem
from engram.formats.source import ArrayNode, Declined, GroupNode, Source, TextNode

if TYPE_CHECKING:
    from pathlib import Path
    from typing import BinaryIO

    from engram.formats.source import Attributes, Origin

Array = np.ndarray[Any, Any]

_PHONY = "phony_dim_"
_RENAMED = "_nc4_non_coord_"
_LOST = "\N{REPLACEMENT CHARACTER}"
_TEXT_BYTES = 64
_STORAGE_FILTERS = ("zlib", "szip", "zstd", "bzip2", "blosc", "shuffle", "fletcher32")


class NetCDFSource(Source):
    """A netCDF file of any kind."""

    def __init__(
        self, path: Path, data: netCDF4.Dataset, beside: h5py.File | None, links: list[str]
    ) -> None:
        """Walk the file's structure; both handles are closed with the source.

        Parameters
        ----------
        path
            The file.
        data
            It, opened with netCDF4.
        beside
            It, opened with h5py, where it is an HDF5 file.
        links
            The paths of all that h5py sees.

        """
        super().__init__(path, data.data_model)
        self._data = data
        self._beside = beside
        self._links = frozenset(links)
        self._types: dict[str, dict[str, Any]] = {}
        data.set_auto_maskandscale(False)
        data.set_auto_chartostring(False)
        data.set_always_mask(False)
        seen: set[str] = set()
        waiting: list[tuple[netCDF4.Dataset, str]] = [(data, "")]
        while waiting:
            group, at = waiting.pop()
            seen.add(at)
            self.nodes.append(GroupNode(at, functools.partial(self._describe_group, group, at)))
            for name in group.variables:
                self._variable(group, at, name, seen)
            for name, inner in group.groups.items():
                below = _joined(at, name)
                why = name_problem(name)
                if why is None:
                    waiting.append((inner, below))
                else:
                    self.leave_out(below, "group and all in it", why)
        if beside is not None:
            self._hidden(beside, [link for link in links if link not in seen], seen)

    def close(self) -> None:
        """Close the file."""
        self._data.close()
        if self._beside is not None:
            self._beside.close()

    def _variable(self, group: netCDF4.Dataset, at: str, name: str, seen: set[str]) -> None:
        """Add a variable to the nodes."""
        path = _joined(at, name)
        variable = group.variables[name]
        dataset = self._dataset(at, name)
        if dataset is not None:
            seen.add(dataset.name.lstrip("/"))
            if _is_undimensioned(dataset):
                # netCDF's library invents dimensions here; the file has none.
                seen.discard(path)
                return
        why = name_problem(name) or _problem(variable)
        if why is not None:
            self.leave_out(path, "variable", why)
            return
        dims = tuple(variable.dimensions) or None

        def describe() -> tuple[Attributes, Origin]:
            return self._describe_variable(variable, dataset, path)

        shape = tuple(int(n) for n in variable.shape)
        if variable.dtype is str:
            node = TextNode(path, shape, dims, describe, lambda: self._load_text(variable, path))
            self.nodes.append(node)
            return
        chunks = variable.chunking() if self._beside is not None else None
        stored = tuple(chunks) if isinstance(chunks, (list, tuple)) and shape else None
        dtype = h5types.plain(np.dtype(variable.dtype))

        def read(out: Array, region: Region) -> None:
            out[region] = variable[region] if shape else variable[...]

        self.nodes.append(ArrayNode(path, shape, dtype, dims, stored, describe, read))

    def _dataset(self, at: str, name: str) -> h5py.Dataset | None:
        """Return the HDF5 dataset of a variable."""
        if self._beside is None:
            return None
        renamed = _joined(at, _RENAMED + name)
        return self._beside[renamed if renamed in self._links else _joined(at, name)]

    def _hidden(self, beside: h5py.File, links: list[str], seen: set[str]) -> None:
        """Add what netCDF4 does not show, and note the user-defined types."""
        for path in links:
            at, _, name = path.rpartition("/")
            if at not in seen:
                continue  # in a group that has been left out, and told
            why = name_problem(name)
            if why is not None:
                self.leave_out(path, "member", why)
                continue
            member = beside[path]
            if isinstance(member, h5py.Datatype):
                self._types.setdefault(at, {})[name] = h5types.describe_named(member.id)
            elif isinstance(member, h5py.Dataset) and not h5objects.is_bare_dimension(member):
                node = h5objects.dataset_node(self, member, path)
                if node is not None:
                    self.nodes.append(node)

    def _describe_group(self, group: netCDF4.Dataset, path: str) -> tuple[Attributes, Origin]:
        """Read a group's attributes and origin."""
        beside = None if self._beside is None else self._beside[f"/{path}"]
        values, types = self._attributes(group, beside, path)
        origin: Origin = {"format": self.format}
        if not path:
            origin["source"] = self.path.name
            if self._beside is not None and "_NCProperties" in self._beside.attrs:
                origin["provenance"] = _as_text(self._beside.attrs["_NCProperties"])
        dimensions = {
            name: {"size": len(dimension), "unlimited": bool(dimension.isunlimited())}
            for name, dimension in group.dimensions.items()
            if not name.startswith(_PHONY)
        }
        if dimensions:
            origin["dimensions"] = dimensions
        if types:
            origin["attributes"] = types
        if path in self._types:
            origin["types"] = self._types[path]
        origin["order"] = [*group.variables, *group.groups]
        return values, origin

    def _describe_variable(
        self, variable: netCDF4.Variable[Any], dataset: h5py.Dataset | None, path: str
    ) -> tuple[Attributes, Origin]:
        """Read a variable's attributes and origin."""
        values, types = self._attributes(variable, dataset, path)
        origin: Origin = {"format": self.format}
        if types:
            origin["attributes"] = types
        if dataset is None:
            return values, origin
        kind = h5types.describe(dataset.id.get_type())
        if kind is not None and (variable.dtype is str or dataset.dtype.kind != "S"):
            origin["type"] = {**kind, **_type_name(variable)}
        chunks = variable.chunking()
        if chunks != "contiguous":
            origin["chunks"] = list(chunks or ())
        filters: dict[str, Any] = dict(variable.filters() or {})
        used = {name: filters[name] for name in _STORAGE_FILTERS if filters.get(name)}
        if used:
            origin["filters"] = {**used, "complevel": filters.get("complevel")}
        plist = dataset.id.get_create_plist()
        if plist.fill_value_defined() != h5d.FILL_VALUE_USER_DEFINED:
            origin["fill"] = "none"
        return values, origin

    def _attributes(
        self,
        owner: netCDF4.Dataset | netCDF4.Variable[Any],
        beside: h5py.Group | h5py.Dataset | None,
        path: str,
    ) -> tuple[Attributes, dict[str, Any]]:
        """Read attributes through netCDF4, and through h5py those that it does not show."""
        values: Attributes = {}
        types: dict[str, Any] = {}
        try:
            names = [n for n in owner.ncattrs() if n not in h5objects.NETCDF_ATTRIBUTES]
            for name in names:
                values[name], exact = _attribute(owner, name)
                if not exact:
                    self.note(path, f"attribute {name}", text.NOT_UTF8)
        except (RuntimeError, KeyError):
            # An attribute that netCDF's library cannot read makes all of them unreadable to it.
            if beside is None:
                raise
            values = {}
        if beside is None:
            return values, types
        further, further_types = h5objects.attributes(self, beside, path, skip=frozenset(values))
        types.update(further_types)
        for name, value in values.items():
            if isinstance(value, (str, np.ndarray)) and _is_string_type(beside, name):
                types[name] = {"string": "variable"}
        return {**values, **further}, types

    def _load_text(self, variable: netCDF4.Variable[Any], path: str) -> Array:
        """Read a variable of strings."""
        shape = tuple(int(n) for n in variable.shape)
        if not shape:
            value = str(variable[...])
            return self._load_bytes(variable, path) if _LOST in value else text.scalar(value)
        out = np.empty(shape, text.string_dtype())
        for region in regions(shape, None, _TEXT_BYTES):
            block = variable[region]
            if any(_LOST in value for value in block.flat):
                return self._load_bytes(variable, path)
            out[region] = block.astype(text.string_dtype())
        return out

    def _load_bytes(self, variable: netCDF4.Variable[Any], path: str) -> Array:
        """Read a variable of strings of which one may not be UTF-8, through h5py."""
        at, _, name = path.rpartition("/")
        dataset = self._dataset(at, name)
        if dataset is None or dataset.shape != tuple(variable.shape):
            self.note(path, "variable", f"not UTF-8; {_LOST} stands where it is not")
            return np.array(variable[...], dtype=object).astype(text.string_dtype())
        flat = np.array(dataset[()], dtype=object)
        out, exact = text.text_array([bytes(v) for v in flat.flat], flat.shape)
        if not exact:
            self.note(path, "variable", text.NOT_UTF8)
        return out


def _problem(variable: netCDF4.Variable[Any]) -> str | None:
    """Say why a variable's type has no like here."""
    kind = variable.datatype
    if isinstance(kind, netCDF4.VLType) and variable.dtype is not str:
        return f"variable-length sequences of {kind.dtype} ({kind.name}) have no fixed size"
    return None


def _type_name(variable: netCDF4.Variable[Any]) -> dict[str, str]:
    """Return the name of a variable's user-defined type, if it has one."""
    kind = variable.datatype
    if isinstance(kind, (netCDF4.EnumType, netCDF4.CompoundType)):
        return {"name": kind.name}
    return {}


def _attribute(owner: netCDF4.Dataset | netCDF4.Variable[Any], name: str) -> tuple[Any, bool]:
    """Return an attribute's value as ours, and whether its text is UTF-8."""
    value = owner.getncattr(name)
    if isinstance(value, str):
        if _LOST not in value:
            return value, True
        return text.text_value(owner.getncattr(name, encoding="latin-1").encode("latin-1"))
    if isinstance(value, bytes):  # netCDF4's way with the fill value of characters
        return np.array(value, dtype=f"S{len(value) or 1}"), True
    if isinstance(value, list):
        if not any(_LOST in v for v in value):
            return np.array(value, dtype=text.string_dtype()), True
        found = owner.getncattr(name, encoding="latin-1")
        return text.text_array([v.encode("latin-1") for v in found], (len(found),))
    return value, True


def _is_string_type(beside: h5py.Group | h5py.Dataset, name: str) -> bool:
    """Whether an attribute is of NC_STRING, which netCDF4 gives as it gives NC_CHAR."""
    if name not in beside.attrs:
        return False
    return h5types.is_text(beside.attrs.get_id(name).dtype)


def _is_undimensioned(dataset: h5py.Dataset) -> bool:
    """Whether an HDF5 dataset has axes, and no dimension for any of them."""
    if dataset.ndim == 0 or h5ds.is_scale(dataset.id):
        return False
    return not ("DIMENSION_LIST" in dataset.attrs or "_Netcdf4Coordinates" in dataset.attrs)


def _joined(at: str, name: str) -> str:
    """Return the path of a member of a group."""
    return f"{at}/{name}" if at else name


def _members(beside: h5py.File) -> list[str]:
    """Return the paths of all links of a file.

    Raises
    ------
    Declined
        A link is not a hard one, or leads where another has led.

    """
    paths: list[str] = []
    reasons: list[str] = []
    root = beside["/"].id
    met: set[int] = set()

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

    met.add(h5py.h5o.get_info(root).addr)
    root.links.visit(visit, info=True)
    if reasons:
        raise Declined(reasons[0])
    return paths


def _require_dimensions(beside: h5py.File) -> list[str]:
    """Return the paths of all links, if netCDF wrote the HDF5 file, or it has dimension scales.

    Raises
    ------
    Declined
        It was not and has none, or has links by which netCDF's library is misled.

    """
    paths = _members(beside)
    if "_NCProperties" in beside.attrs or "_nc3_strict" in beside.attrs:
        return paths
    for path in paths:
        try:
            member = beside[path]
        except (KeyError, OSError, RuntimeError, UnicodeError) as error:
            reason = f"{path} cannot be opened: {error}"
            raise Declined(reason) from None
        if isinstance(member, h5py.Dataset) and h5ds.is_scale(member.id):
            return paths
    reason = "it has no dimension scales"
    raise Declined(reason)


def _as_text(value: Any) -> str:
    """Return an attribute of text as `str`."""
    return value.decode("utf-8", "replace") if isinstance(value, bytes) else str(value)


class NetCDFFormat:
    """netCDF: classic, 64-bit offset, 64-bit data, and netCDF-4."""

    name = "netcdf"
    rank = 10
    suffixes = (".nc", ".nc4", ".cdf", ".netcdf")

    def matches(self, file: BinaryIO, nbytes: int) -> bool:
        """Whether the signature of classic netCDF or of HDF5 is there."""
        head = file.read(len(classic.MAGIC) + 1)
        if head[:-1] == classic.MAGIC and head[-1] in classic.VERSIONS:
            return True
        return has_signature(file, nbytes)

    def open(self, path: Path) -> Source:
        """Open and walk the file."""
        with path.open("rb") as file:
            is_classic = file.read(len(classic.MAGIC)) == classic.MAGIC
        if is_classic:
            classic.check_length(path)
            return self._source(path, None, [])
        beside = open_file(path)
        try:
            return self._source(path, beside, _require_dimensions(beside))
        except BaseException:
            beside.close()
            raise

    @staticmethod
    def _source(path: Path, beside: h5py.File | None, links: list[str]) -> Source:
        """Open the file with netCDF4."""
        data = None
        try:
            with warnings.catch_warnings():
                # What netCDF4 warns of skipping is found through h5py.
                warnings.simplefilter("ignore")
                data = netCDF4.Dataset(str(path.absolute()), "r")
            return NetCDFSource(path, data, beside, links)
        except (EngramError, Declined):
            if data is not None:
                data.close()
            raise
        except (OSError, RuntimeError, ValueError, KeyError, IndexError) as error:
            if data is not None:
                data.close()
            if beside is not None:
                reason = f"netCDF's library refuses it: {error}"
                raise Declined(reason) from None
            message = f"{path}: netCDF's library cannot open it: {error}. The file is damaged"
            raise FormatError(message) from None


FORMAT = NetCDFFormat()
