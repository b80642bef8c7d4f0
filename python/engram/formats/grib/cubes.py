"""Hypercubes: a file's messages as variables over coordinates, and these as groups.

Where cfgrib finds one hypercube for a variable, that is it. Where it does not (keys that a variable
has once have several values) the messages are parted by the first such key; where two messages have
one place in it, the second goes into another hypercube; and where most places would be empty, they
are parted by a coordinate. So each message is in one hypercube.

Hypercubes whose coordinates agree share a group: the root, if all do. If not, groups are named by
the type of level, and numbered.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

import numpy as np
from cfgrib import dataset

from engram.formats.grib.grid import Scan
from engram.formats.grib.messages import GRID, SINGLE

if TYPE_CHECKING:
    from collections.abc import Iterator

_ENCODE = ("parameter", "time", "geography", "vertical")
_LEVEL = "level"
_UNKNOWN = ("undef", "unknown")
_EMPTY_AT_MOST = 0.75


@dataclass(frozen=True, slots=True)
class Cube:
    """A variable.

    Attributes
    ----------
    name
        Its name.
    variable
        Its dimensions, attributes, and places of messages, as cfgrib has them.
    coords
        Its coordinates.
    common
        Its attributes that a group has, if all its variables have the same.
    scan
        How its messages scan their grid.
    doubt
        What is not sure about its coordinates; None if nothing is.

    """

    name: str
    variable: Any
    coords: dict[str, Any]
    common: dict[str, Any]
    scan: Scan
    doubt: str | None

    @property
    def messages(self) -> dict[tuple[int, ...], Any]:
        """The message at each place along the dimensions that are not the grid's."""
        return {place: ids[0] for place, ids in self.variable.data.field_id_index.items()}

    @property
    def absent(self) -> int:
        """How many places have no message."""
        data = self.variable.data
        places: int = math.prod(data.shape[: -data.geo_ndim])
        return places - len(data.field_id_index)

    @property
    def level(self) -> str:
        """The type of level."""
        found = str(self.variable.attributes.get("GRIB_typeOfLevel", _UNKNOWN[1]))
        return found.replace("/", "_") or _UNKNOWN[1]


@dataclass(slots=True)
class CubeGroup:
    """Hypercubes whose coordinates agree."""

    cubes: dict[str, Cube] = field(default_factory=dict)
    coords: dict[str, Any] = field(default_factory=dict)

    def takes(self, cube: Cube) -> bool:
        """Add a hypercube, if it agrees with those that are there."""
        mine = {name: cube.coords[name] for name in cube.coords if name in self.coords}
        if cube.name in {*self.cubes, *self.coords} or set(cube.coords) & {*self.cubes, cube.name}:
            return False
        if not all(_alike(self.coords[name], value) for name, value in mine.items()):
            return False
        lengths = {**self.lengths}
        for name, length in zip(cube.variable.dimensions, cube.variable.data.shape, strict=True):
            if lengths.setdefault(name, length) != length:
                return False
        self.cubes[cube.name] = cube
        self.coords.update(cube.coords)
        return True

    @property
    def lengths(self) -> dict[str, int]:
        """The lengths of the dimensions."""
        return {
            name: length
            for cube in self.cubes.values()
            for name, length in zip(cube.variable.dimensions, cube.variable.data.shape, strict=True)
        }

    @property
    def common(self) -> dict[str, Any]:
        """The attributes that all its variables have, with the same values."""
        first, *others = [cube.common for cube in self.cubes.values()]
        return {k: v for k, v in first.items() if all(other.get(k) == v for other in others)}


def groups(index: Any) -> dict[str, CubeGroup]:
    """Return all hypercubes of an index, as groups by name; one group alone is the root, ``""``."""
    cubes = [cube for param in index["paramId"] for cube in _cubes(index.subindex(paramId=param))]
    whole = CubeGroup()
    if all(whole.takes(cube) for cube in cubes):
        return {"": whole}
    found: dict[str, CubeGroup] = {}
    for cube in cubes:
        count = 1
        while not found.setdefault(_numbered(cube.level, count), CubeGroup()).takes(cube):
            count += 1
    return found


def _numbered(name: str, count: int) -> str:
    """Return a name for the first, second ... of its kind."""
    return name if count == 1 else f"{name}_{count}"


def _cubes(index: Any) -> Iterator[Cube]:
    """Yield hypercubes that have all the messages of an index, which are of one parameter."""
    for key in (*SINGLE, GRID):
        if len(index[key]) > 1:
            yield from _parted(index, key)
            return
    try:
        cube = _cube(index)
    except dataset.DatasetBuildError as error:
        yield from _parted(index, error.args[1])
        return
    places = len(cube.messages) + cube.absent
    if cube.absent > places * _EMPTY_AT_MOST:
        yield from _parted(index, _parting(index, cube))
        return
    yield cube
    used = set(cube.messages.values())
    rest = [(values, [i for i in ids if i not in used]) for values, ids in index.iter_index()]
    rest = [(values, ids) for values, ids in rest if ids]
    if rest:
        others = type(index)(index.fieldset, index.index_keys, field_ids_index=rest)
        yield from _cubes(others)


def _parted(index: Any, key: str) -> Iterator[Cube]:
    """Yield the hypercubes for each value of a key."""
    for value in index[key]:
        yield from _cubes(index.subindex({key: [value]}))


def _parting(index: Any, cube: Cube) -> str:
    """Return the key to part a hypercube by: what leaves the fewest places, in the fewest parts."""
    data = cube.variable.data
    names = cube.variable.dimensions[: -data.geo_ndim]

    def cost(axis: int) -> tuple[int, int]:
        parts: dict[int, list[set[int]]] = {}
        for place in cube.messages:
            seen = parts.setdefault(place[axis], [set() for _ in names])
            for values, at in zip(seen, place, strict=True):
                values.add(at)
        return sum(math.prod(map(len, seen)) for seen in parts.values()), len(parts)

    chosen = names[min(range(len(names)), key=cost)]
    keys: dict[str, str] = {key.partition(":")[0]: key for key in index.index_keys}
    return keys.get(chosen, keys[_LEVEL])


def _cube(index: Any) -> Cube:
    """Return the hypercube that all messages of an index make."""
    _, variable, coords = dataset.build_variable_components(index, _ENCODE, errors="ignore")
    attrs = variable.attributes
    named = [attrs.get("GRIB_cfVarName"), attrs.get("GRIB_shortName")]
    names = [str(name) for name in named if name is not None and name not in _UNKNOWN]
    common = dataset.enforce_unique_attributes(index, dataset.GLOBAL_ATTRIBUTES_KEYS)
    attrs.update(dataset.enforce_unique_attributes(index, SINGLE))
    for key in common:
        attrs.pop(key)
    name = names[0] if names else f"paramId_{attrs.get('GRIB_paramId', 0)}"
    coords, first = dict(coords), index.first()
    scan = Scan.of(first, attrs, variable.data.shape[-variable.data.geo_ndim :])
    doubt = None if scan.is_usual else _rescan(scan, first, coords, attrs)
    return Cube(name, variable, coords, common, scan, doubt)


def _rescan(scan: Scan, first: Any, coords: dict[str, Any], attrs: dict[str, Any]) -> str | None:
    """Take the coordinates of a grid in the order of its values; return what is not sure."""
    if "latitude" not in coords:
        return None
    names = ("latitude", "longitude")
    plane = coords["latitude"].data.ndim > 1
    found = scan.coordinates(first, plane=plane)
    for name, data in zip(names, found or (), strict=False):
        old = coords[name]
        facts = {k: v for k, v in old.attributes.items() if k != "stored_direction"}
        coords[name] = dataset.Variable(old.dimensions, data, facts)
    if plane or found is None:
        grid = attrs.get("GRIB_gridType")
        return f"a {grid} grid in a rare scanning order: compare its coordinates with its source's"
    return None


def _alike(one: Any, other: Any) -> bool:
    """Whether two coordinates are the same."""
    return one.dimensions == other.dimensions and np.array_equal(one.data, other.data)
