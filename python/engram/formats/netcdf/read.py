"""netCDF through netCDF4: classic files here, netCDF-4 files in `netcdf4`.

Values stay raw, neither masked nor scaled, and characters stay characters.
"""

from __future__ import annotations

import functools
from typing import TYPE_CHECKING, Any

import netCDF4
import numpy as np

from engram.formats import text
from engram.formats.blocks import Region, pieces, region_shape
from engram.formats.hdf5 import types as h5types
from engram.formats.names import name_problem
from engram.formats.netcdf import classic
from engram.formats.netcdf.read4 import open_netcdf4
from engram.formats.source import ArrayNode, GroupNode, Source, TextNode

if TYPE_CHECKING:
    from pathlib import Path

    from engram.formats.source import Attributes, Origin

    Variable = netCDF4.Variable[Any]

Array = np.ndarray[Any, Any]

LOST = "\N{REPLACEMENT CHARACTER}"
"""What netCDF4 puts where text is not UTF-8."""

_PHONY = "phony_dim_"
_TEXT_BYTES = 64


class NetCDFSource(Source):
    """A netCDF file, as netCDF4 shows it."""

    def __init__(self, path: Path, data: netCDF4.Dataset, nuls: dict[str, dict[str, int]]) -> None:
        """Walk the file's structure; `data` is closed with the source, `nuls` of its header."""
        super().__init__(path, data.data_model)
        self._data = data
        self._nuls = nuls
        data.set_auto_maskandscale(False)
        data.set_auto_chartostring(False)
        data.set_always_mask(False)
        self.seen: set[str] = set()
        waiting: list[tuple[netCDF4.Dataset, str]] = [(data, "")]
        while waiting:
            group, at = waiting.pop()
            self.seen.add(at)
            self.nodes.append(GroupNode(at, functools.partial(self._describe_group, group, at)))
            for name, variable in group.variables.items():
                self._add(variable, joined(at, name))
            for name, inner in group.groups.items():
                below = joined(at, name)
                why = name_problem(name)
                if why is None:
                    waiting.append((inner, below))
                else:
                    self.leave_out(below, "group and all in it", why)

    def close(self) -> None:
        """Close the file."""
        self._data.close()

    def _add(self, variable: Variable, path: str) -> None:
        """Add a variable to the nodes."""
        self.seen.add(path)
        why = name_problem(variable.name) or _problem(variable)
        if why is not None:
            self.leave_out(path, "variable", why)
            return
        dims = tuple(variable.dimensions) or None
        shape = tuple(int(n) for n in variable.shape)
        describe = functools.partial(self._describe_variable, variable, path)
        if is_text(variable):
            load = functools.partial(self._load_text, variable, path)
            self.nodes.append(TextNode(path, shape, dims, describe, load))
            return

        def read(out: Array, region: Region) -> None:
            out[...] = variable[region] if shape else variable[...]

        dtype = h5types.plain(np.dtype(variable.dtype))
        chunks = self._chunks(variable) if shape else None
        self.nodes.append(ArrayNode(path, shape, dtype, dims, chunks, describe, read))

    def _chunks(self, variable: Variable) -> tuple[int, ...] | None:
        """Return the file's chunk shape of a variable; classic files have none."""
        del variable
        return None

    def _describe_group(self, group: netCDF4.Dataset, path: str) -> tuple[Attributes, Origin]:
        """Read a group's attributes and origin."""
        values, types = self._attributes(group, path)
        origin: Origin = {"format": self.format}
        if not path:
            origin["source"] = self.path.name
        dimensions = {
            name: {"size": len(dimension), "unlimited": bool(dimension.isunlimited())}
            for name, dimension in group.dimensions.items()
            if not name.startswith(_PHONY)
        }
        if dimensions:
            origin["dimensions"] = dimensions
        if types:
            origin["attributes"] = types
        origin["order"] = [*group.variables, *group.groups]
        return values, origin

    def _describe_variable(self, variable: Variable, path: str) -> tuple[Attributes, Origin]:
        """Read a variable's attributes and origin."""
        values, types = self._attributes(variable, path)
        return values, {"format": self.format, **({"attributes": types} if types else {})}

    def _attributes(
        self, owner: netCDF4.Dataset | Variable, path: str
    ) -> tuple[Attributes, dict[str, Any]]:
        """Return the attributes, and what of their types only `origin` can hold."""
        values: Attributes = {}
        for name in owner.ncattrs():
            values[name], exact = _attribute(owner, name)
            if not exact:
                self.note(path, f"attribute {name}", text.NOT_UTF8)
        return values, {name: {"nuls": count} for name, count in self._nuls.get(path, {}).items()}

    def _load_text(self, variable: Variable, path: str, region: Region) -> Array:
        """Read a region of a variable of strings."""
        shape = tuple(int(n) for n in variable.shape)
        if not shape:
            value = str(variable[...])
            return self._load_lost(variable, path, region) if LOST in value else text.scalar(value)
        out = np.empty(region_shape(region), text.string_dtype())
        for part, place in pieces(region, None, _TEXT_BYTES):
            block = variable[part]
            if any(LOST in value for value in block.flat):
                return self._load_lost(variable, path, region)
            out[place] = block.astype(text.string_dtype())
        return out

    def _load_lost(self, variable: Variable, path: str, region: Region) -> Array:
        """Read a variable of strings of which one may not be UTF-8."""
        self.note(path, "variable", f"{LOST} stands where it is not UTF-8")
        return np.array(variable[region], dtype=object).astype(text.string_dtype())


def is_text(variable: Variable) -> bool:
    """Whether a variable is of strings, for which netCDF4 gives the dtype `str`."""
    dtype: Any = variable.dtype
    return dtype is str


def joined(at: str, name: str) -> str:
    """Return the path of a member of a group."""
    return f"{at}/{name}" if at else name


def _problem(variable: Variable) -> str | None:
    """Say why a variable's type has no like here."""
    kind = variable.datatype
    if isinstance(kind, netCDF4.VLType) and variable.dtype is not str:
        return f"variable-length sequences of {kind.dtype} ({kind.name}) have no fixed size"
    return None


def _attribute(owner: netCDF4.Dataset | Variable, name: str) -> tuple[Any, bool]:
    """Return an attribute's value as ours, and whether its text is UTF-8."""
    value = owner.getncattr(name)
    if isinstance(value, str) and LOST in value:
        return text.text_value(owner.getncattr(name, encoding="latin-1").encode("latin-1"))
    if isinstance(value, bytes):  # netCDF4's way with the fill value of characters
        return np.array(value, dtype=f"S{len(value) or 1}"), True
    return value, True


def open_netcdf(path: Path) -> Source:
    """Open and walk a netCDF file of any kind."""
    with path.open("rb") as file:
        is_classic = file.read(len(classic.MAGIC)) == classic.MAGIC
    if is_classic:
        nuls = classic.check_length(path)
        return NetCDFSource(path, netCDF4.Dataset(str(path.absolute()), "r"), nuls)
    return open_netcdf4(path)
