"""What to draw of an array: a line, an image, a map or points, and against what.

Dimensions decide. Two that are latitude and longitude make a map; one whose points have a latitude
and a longitude each makes points on a map; else the last two longer than one make an image, and a
single one a line. Of every other dimension one index is taken, the first unless another is asked
for. Nothing here knows what draws it: `engram info` draws the same in a terminal.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Literal

import numpy as np

from engram import conventions
from engram.cli import describe
from engram.conventions import Role
from engram.conventions.reading import Reading, can_be_drawn, extremes
from engram.errors import ArgumentError

if TYPE_CHECKING:
    from collections.abc import Mapping

    from numpy.typing import NDArray

    import engram

Kind = Literal["line", "image", "map", "points"]

_PLANE = 2
MOST = 1200
"""An image is read with no more points than this along each dimension, a line with 16 times."""
_LINE_SHARE = 16
_LOOKED_AT = 1 << 26
"""So many values of a line are looked at; of a longer one, values at equal distances."""


@dataclass
class Axis:
    """One direction of the picture."""

    label: str
    values: NDArray[Any]
    """Places: float64, of one dimension, or of two on a curvilinear grid."""
    times: list[Any] | None = None
    """The same as times, if they are times."""
    down: bool = False
    """Larger values lie lower."""
    role: Role = Role.other
    ends: tuple[Any, Any] | None = None
    """The first and the last place of all, were they read or not."""


@dataclass
class Choice:
    """What is drawn."""

    kind: Kind
    title: str
    label: str
    values: NDArray[Any]
    """float64: (x,) of a line, (y, x) of an image or a map, (point,) of points."""
    x: Axis
    y: Axis | None = None
    fixed: list[str] = field(default_factory=list)
    """The other dimensions' places, such as "time = 2003-05-01 (0 of 31)"."""
    step: int = 1
    """One of so many values was read."""
    whole: tuple[int, ...] = ()
    """How many values there are along each direction of `values`."""
    dated: bool = False
    """The values are days since 1970."""
    indices: NDArray[Any] | None = None
    """The index of each value of a line, where these are the extremes of very many."""


def choose(array: engram.Array, at: Mapping[str, int] | None = None, most: int = MOST) -> Choice:
    """Decide what to draw of an array, and read it.

    Parameters
    ----------
    array
        An array of numbers or times, of at least one dimension.
    at
        Indices of dimensions that are not to be drawn.
    most
        The most points along each direction of an image.

    Raises
    ------
    ArgumentError
        If it has no numbers, times or dimension, or `at` names none of its dimensions or places.

    """
    if not can_be_drawn(array.dtype):
        dtype = describe.dtype_text(array.dtype)
        message = (
            f"{array.path} has values of dtype {dtype}, and only numbers and times can be drawn"
        )
        raise ArgumentError(message)
    if not array.ndim or not array.size:
        what = "a single value" if array.size else f"empty, of shape {array.shape}"
        message = f"{array.path} is {what}: there is nothing to draw; `engram info` shows it"
        raise ArgumentError(message)
    places = _Dimensions(array)
    indices = places.indices(at or {})
    shown = places.shown(set(indices))
    key: list[Any] = [indices.get(dim, 0) for dim in range(array.ndim)]
    limit = most if len(shown) == _PLANE else most * _LINE_SHARE
    places.steps = {dim: -(-array.shape[dim] // limit) for dim in shown}
    for dim in shown:
        key[dim] = places.picked(dim)
    reading, found = Reading(array), None
    if len(shown) == 1 and array.shape[shown[0]] > limit and places.grid(shown) is None:
        values, found = _peaks(array, reading, key, places, limit)
    else:
        values = reading.numbers(np.asarray(array[tuple(key)]))
    values = reading.settled(values)
    title = conventions.title(array)
    choice = Choice("line", title, reading.label, values, places.axis(shown[-1]))
    choice.indices, choice.dated = found, reading.are_dates(values)
    if not choice.dated and reading.counts_days:
        choice.label += " [days since 1970-01-01]"
    choice.step = math.prod(places.steps.values())
    choice.whole = tuple(array.shape[dim] for dim in shown)
    choice.fixed = [places.place(dim, key[dim]) for dim in range(array.ndim) if dim not in shown]
    if len(shown) == _PLANE:
        _as_plane(choice, places, shown)
    else:
        _as_points(choice, places, shown[0])
    return choice


def _peaks(
    array: engram.Array, reading: Reading, key: list[Any], places: _Dimensions, most: int
) -> tuple[NDArray[Any], NDArray[Any]]:
    """Read the extremes of a long line, and their indices, which are those of its axis then."""
    (dim,) = places.steps
    step = places.steps[dim] = -(-array.shape[dim] // _LOOKED_AT)

    def read(start: int, end: int) -> NDArray[Any]:
        part = slice(start * step, min(end * step, array.shape[dim]), step)
        here = tuple(part if number == dim else index for number, index in enumerate(key))
        return reading.numbers(np.asarray(array[here]))

    values, indices = extremes(read, -(-array.shape[dim] // step), most)
    places.chosen[dim] = indices * step
    return values, indices * step


def _as_plane(choice: Choice, places: _Dimensions, shown: list[int]) -> None:
    """Make an image or a map of two dimensions."""
    choice.kind = "image"
    choice.y = places.axis(shown[0])
    across = {choice.y.role, choice.x.role}
    if across == {Role.latitude, Role.longitude}:
        choice.kind = "map"
    elif grid := places.grid(shown):
        choice.kind, (choice.y, choice.x) = "map", grid
    upright = (Role.latitude, Role.y, Role.z)
    flat = (Role.longitude, Role.x)
    turned = (choice.x.role in upright and choice.y.role not in upright) or (
        choice.y.role in flat and choice.x.role not in flat
    )
    if turned or (choice.y.role is Role.time and choice.x.role is Role.other):
        choice.values, choice.whole = choice.values.T, choice.whole[::-1]
        choice.x, choice.y = choice.y, choice.x


def _as_points(choice: Choice, places: _Dimensions, dim: int) -> None:
    """Make points on a map of one dimension, if each has a latitude and a longitude."""
    if choice.x.values.ndim == 1 and (grid := places.grid([dim])):
        choice.kind, (choice.y, choice.x) = "points", grid


class _Dimensions:
    """The dimensions of an array, and where their points are."""

    def __init__(self, array: engram.Array) -> None:
        self._array = array
        self._names = array.dims or tuple(f"dim {i}" for i in range(array.ndim))
        self.steps: dict[int, int] = {}
        """One of so many places is read of a dimension."""
        self.chosen: dict[int, NDArray[Any]] = {}
        """Or these alone."""
        self._coordinates = [conventions.coordinate(array, name) for name in array.dims or ()]
        self._coordinates += [None] * (array.ndim - len(self._coordinates))
        self._roles = [
            Role.other if found is None else conventions.role(found) for found in self._coordinates
        ]

    def indices(self, at: Mapping[str, int]) -> dict[int, int]:
        """Return the indices that are asked for, by the dimensions' numbers."""
        found = {}
        for name, index in at.items():
            known = name in self._names or (name.isdecimal() and int(name) < len(self._names))
            if not known:
                message = (
                    f"{self._array.path} has no dimension {name!r}: it has "
                    f"{', '.join(map(str, self._names))}"
                )
                raise ArgumentError(message)
            dim = self._names.index(name) if name in self._names else int(name)
            size = self._array.shape[dim]
            if not -size <= index < size:
                message = f"{name} has {size} places: give one of 0 to {size - 1}, not {index}"
                raise ArgumentError(message)
            found[dim] = index % size
        return found

    def shown(self, taken: set[int]) -> list[int]:
        """Return the one or two dimensions to draw."""
        shape = self._array.shape
        free = [dim for dim in range(len(shape)) if dim not in taken]
        if not free:
            message = "every dimension is fixed by --at: leave one or two to draw"
            raise ArgumentError(message)
        long = [dim for dim in free if shape[dim] > 1] or free[-1:]
        for wanted in ((Role.latitude, Role.longitude), (Role.y, Role.x)):
            of_role = [dim for dim in long if self._roles[dim] in wanted]
            if len({self._roles[dim] for dim in of_role}) == len(of_role) == _PLANE:
                return of_role
        if self.grid(long[-1:]):
            return long[-1:]
        return long[-_PLANE:]

    def picked(self, dim: int) -> Any:
        """Return which indices of a dimension are drawn, as an index of NumPy's."""
        return self.chosen.get(dim, slice(None, None, self.steps.get(dim, 1)))

    def axis(self, dim: int) -> Axis:
        """Return the places of a dimension: its coordinate's values, or indices."""
        found = self._coordinates[dim]
        name, size = self._names[dim], self._array.shape[dim]
        indices = np.arange(size, dtype="f8")[self.picked(dim)]
        if found is None:
            return Axis(f"{name} (index)", indices, down=True, ends=(0.0, size - 1.0))
        raw = np.asarray(found)[self.picked(dim)]
        times = conventions.times(found, raw) if self._roles[dim] is Role.time else None
        if times is not None and None not in times:
            ends = conventions.times(found, np.asarray(found[:: max(size - 1, 1)])) or times
            title = conventions.title(found)
            return Axis(title, indices, times, role=Role.time, ends=(ends[0], ends[-1]))
        # A date that is missing leaves no place for its value.
        values = conventions.decoded(found, raw) if raw.dtype.kind != "M" else np.full(1, np.nan)
        steps = np.diff(values)
        ordered = np.all(steps > 0) or np.all(steps < 0)
        if not ordered or not np.all(np.isfinite(values)):
            return Axis(f"{name} (index)", indices, down=True, ends=(0.0, size - 1.0))
        axis = Axis(conventions.label(found), values, role=self._roles[dim])
        axis.down = conventions.points_down(found)
        both = conventions.decoded(found, np.asarray(found[:: max(size - 1, 1)]))
        axis.ends = both[0], both[-1]
        return axis

    def grid(self, shown: list[int]) -> tuple[Axis, Axis] | None:
        """Return the latitude and the longitude of each point, if the array names such."""
        if self._array.dims is None or not shown:
            return None
        dims = tuple(self._names[dim] for dim in shown)
        shape = tuple(self._array.shape[dim] for dim in shown)
        found = {}
        for each in conventions.auxiliaries(self._array):
            if each.dims == dims and each.shape == shape and each.dtype.kind in "iuf":
                found[conventions.role(each)] = each
        if not {Role.latitude, Role.longitude} <= found.keys():
            return None
        axes = []
        for role in (Role.latitude, Role.longitude):
            key = tuple(self.picked(dim) for dim in shown)
            values = conventions.decoded(found[role], np.asarray(found[role][key]))
            if conventions.text(found[role], "units") in {"radians", "radian", "rad"}:
                values = np.rad2deg(values)
            if not np.all(np.isfinite(values)):
                return None
            axes.append(Axis(conventions.title(found[role]), values, role=role))
        return axes[0], axes[1]

    def place(self, dim: int, index: int) -> str:
        """Return a dimension's name with the place that was taken of it."""
        name, size, found = self._names[dim], self._array.shape[dim], self._coordinates[dim]
        if found is None:
            return f"{name}: {index} of {size}"
        raw = np.asarray(found[index : index + 1])
        times = conventions.times(found, raw) if self._roles[dim] is Role.time else None
        if times is not None and None not in times:
            shown = conventions.iso(times)[0]
        else:
            units = conventions.text(found, "units")
            value = conventions.decoded(found, raw)[0] if raw.dtype.kind != "M" else index
            shown = f"{value:g}" + (f" {units}" if units not in {"", "1"} else "")
        return f"{name} = {shown} ({index} of {size})" if size > 1 else f"{name} = {shown}"
