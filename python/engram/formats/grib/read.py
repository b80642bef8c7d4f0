"""GRIB through cfgrib and eccodes: messages become variables over coordinates, as cfgrib has them.

Values are decoded: GRIB's packing has no raw form that could be computed with. They are float32
where that holds every value of a variable exactly, else float64; missing ones are NaN. A message's
values are in memory while they are copied, and no others.
"""

from __future__ import annotations

import functools
import itertools
from typing import TYPE_CHECKING, Any

import numpy as np
from cfgrib import dataset

from engram.formats.blocks import index as view_of
from engram.formats.grib import cubes, keep, messages, width
from engram.formats.names import name_problem
from engram.formats.source import ArrayNode, GroupNode, Source

if TYPE_CHECKING:
    from pathlib import Path

    from engram.formats.blocks import Region
    from engram.formats.grib.cubes import Cube, CubeGroup
    from engram.formats.source import Attributes, Origin

Array = np.ndarray[Any, Any]

_CONVENTIONS = "CF-1.7"


class GRIBSource(Source):
    """A GRIB file, as hypercubes."""

    def __init__(self, path: Path) -> None:
        """Read the keys of every message."""
        super().__init__(path, "GRIB")
        found = messages.index(self)
        cached = set(dataset.GEOCACHE)
        try:
            with messages.reading(self):
                groups = cubes.groups(found)
        finally:
            for key in set(dataset.GEOCACHE) - cached:  # cfgrib would keep each grid for ever
                del dataset.GEOCACHE[key]
        self._fields = found
        self.note("", "values", "decoded, since GRIB's packing has no raw form; missing are NaN")
        if "" not in groups:
            facts = {"source": path.name, "order": list(groups)}
            self._add_group("", {}, facts)
        for name, group in groups.items():
            order = [*group.coords, *group.cubes]
            facts = {"order": order} if name else {"order": order, "source": path.name}
            attrs = {**group.common, "Conventions": _CONVENTIONS}
            if "GRIB_centreDescription" in attrs:
                attrs["institution"] = attrs["GRIB_centreDescription"]
            self._add_group(name, attrs, facts)
            self._add_members(name, group)

    def _add_group(self, path: str, attrs: Attributes, facts: Origin) -> None:
        """Add a group to the nodes."""
        said = {"format": "GRIB", **facts, keep.SUMS: keep.sums(attrs)}
        self.nodes.append(GroupNode(path, lambda: (attrs, said)))

    def _add_members(self, at: str, group: CubeGroup) -> None:
        """Add a group's coordinates and variables to the nodes."""
        common = group.common
        for name, coordinate in group.coords.items():
            data = np.asarray(coordinate.data)
            self._add(at, name, coordinate, data.shape, data.dtype, None, _copy(data), data)
        for name, cube in group.cubes.items():
            data = cube.variable.data
            chunks = (1,) * (len(data.shape) - data.geo_ndim) + data.shape[-data.geo_ndim :]
            own = {k: v for k, v in cube.common.items() if k not in common}
            cube.variable.attributes.update(own)
            read = functools.partial(self._read, cube)
            with messages.reading(self):
                dtype = width.dtype_of(self._fields, cube.messages.values())
            self._add(at, name, cube.variable, data.shape, dtype, chunks, read, cube)
            path = f"{at}/{name}".strip("/")
            if cube.absent:
                places = cube.absent + len(cube.messages)
                why = f"{cube.absent} of its {places} places have no message in the file: NaN"
                self.note(path, "variable", why)
            if cube.doubt is not None:
                self.note(path, "variable", cube.doubt)
            if "latitude" not in cube.coords:
                grid = cube.variable.attributes.get("GRIB_gridType")
                self.note(path, "variable", f"its grid ({grid}) has no latitudes and longitudes")

    def _add(  # noqa: PLR0917 - each says one thing of a node
        self,
        at: str,
        name: str,
        variable: Any,
        shape: tuple[int, ...],
        dtype: np.dtype[Any],
        chunks: tuple[int, ...] | None,
        read: Any,
        kept: Array | Cube,
    ) -> None:
        """Add an array to the nodes."""
        path = f"{at}/{name}".strip("/")
        why = name_problem(name)
        if why is not None:
            self.leave_out(path, "variable", why)
            return
        attrs = {key: _plain(value) for key, value in variable.attributes.items()}
        dims = tuple(variable.dimensions) or None
        describe = functools.partial(self._describe, attrs, shape, kept)
        self.nodes.append(ArrayNode(path, shape, dtype, dims, chunks, describe, read))

    def _describe(
        self, attrs: Attributes, shape: tuple[int, ...], kept: Array | Cube
    ) -> tuple[Attributes, Origin]:
        """Return an array's attributes, and what it keeps for an export."""
        facts: Origin = {"format": "GRIB", keep.SUMS: keep.sums(attrs), "shape": shape}
        if isinstance(kept, np.ndarray):
            return attrs, {**facts, "values": keep.sum_of(kept)}
        with messages.reading(self):
            return attrs, {**facts, **keep.of_cube(self._fields, kept.messages, kept.scan)}

    def _read(self, cube: Cube, out: Array, region: Region) -> None:
        """Read a region of a variable, message by message."""
        data, placed = cube.variable.data, cube.messages
        outer, inner = region[: -data.geo_ndim], region[-data.geo_ndim :]
        ranges = [range(part.start, part.stop, part.step or 1) for part in outer]
        for at in itertools.product(*(range(len(places)) for places in ranges)):
            place = tuple(places[n] for places, n in zip(ranges, at, strict=True))
            if place not in placed:
                out[at] = np.nan
                continue
            with messages.reading(self):
                values = np.asarray(self._fields.get_field(placed[place])["values"])
            values = np.where(values == data.missing_value, np.nan, values)
            out[at] = cube.scan.arranged(values)[inner]


def _copy(data: Array) -> Any:
    """Return a reader of values that are in memory."""

    def read(out: Array, region: Region) -> None:
        out[...] = data[view_of(region)]

    return read


def _plain(value: Any) -> Any:
    """Return an attribute's value as one of ours."""
    return np.array(value) if isinstance(value, list | tuple) else value


def open_grib(path: Path) -> Source:
    """Open and walk a GRIB file."""
    return GRIBSource(path)
