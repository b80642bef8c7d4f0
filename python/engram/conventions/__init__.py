"""What attributes say of an array, by the CF conventions: coordinates, units, times, gaps.

It is for showing alone: what is stored stays raw. Attributes come from any file, so each may be of
any type; one that makes no sense is as if it were not there.
"""

from __future__ import annotations

import contextlib
import enum
from typing import TYPE_CHECKING, Any

import numpy as np

from engram.array import Array
from engram.decoded import encoding_for_show, named, numbers
from engram.errors import ArgumentError, EngramError

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

    from numpy.typing import NDArray

    from engram.group import Group

_NUMBERS = "biufc"
_DEGREES_EAST = {"degrees_east", "degree_east", "degree_e", "degrees_e", "degreee", "degreese"}
_DEGREES_NORTH = {"degrees_north", "degree_north", "degree_n", "degrees_n", "degreen", "degreesn"}
_PRESSURE = {"pa", "hpa", "mbar", "millibar", "millibars", "bar", "dbar", "decibar"}


class Role(enum.Enum):
    """What a coordinate measures."""

    longitude = "longitude"
    latitude = "latitude"
    x = "x"
    y = "y"
    z = "z"
    time = "time"
    other = ""


def text(array: Array, name: str) -> str:
    """Return an attribute that is a text; "" if there is none."""
    value = array.attrs.get(name)
    if isinstance(value, bytes):
        value = value.decode("utf-8", "replace")
    return value.strip() if isinstance(value, str) else ""


def title(array: Array) -> str:
    """Return what an array is called."""
    return text(array, "long_name") or text(array, "standard_name") or array.name


def label(array: Array) -> str:
    """Return what an array is called, with its units."""
    units = text(array, "units")
    return f"{title(array)} [{units}]" if units not in {"", "1"} else title(array)


def role(array: Array) -> Role:
    """Return what an array measures, if it is a coordinate."""
    units, standard = text(array, "units").lower(), text(array, "standard_name")
    name = array.name.lower()
    if standard == "longitude" or units in _DEGREES_EAST or (not standard and name in _LONGITUDE):
        return Role.longitude
    if standard == "latitude" or units in _DEGREES_NORTH or (not standard and name in _LATITUDE):
        return Role.latitude
    if " since " in units or standard == "time" or array.dtype.kind == "M":
        return Role.time
    axis, positive = text(array, "axis").upper(), text(array, "positive").lower()
    if axis == "X" or standard in {"projection_x_coordinate", "grid_longitude"}:
        found = Role.x
    elif axis == "Y" or standard in {"projection_y_coordinate", "grid_latitude"}:
        found = Role.y
    elif axis == "Z" or positive == "up" or points_down(array):
        found = Role.z
    else:
        found = Role.other
    return found


_LONGITUDE = {"lon", "longitude"}
_LATITUDE = {"lat", "latitude"}


def points_down(array: Array) -> bool:
    """Whether larger values of a coordinate lie lower, as depths and pressures do."""
    return text(array, "positive").lower() == "down" or text(array, "units").lower() in _PRESSURE


def coordinate(array: Array, dim: str) -> Array | None:
    """Return the variable that gives a dimension's places.

    It is of the dimension's name, beside the array or above; else the time that the array's
    `coordinates` name.
    """
    size = dict(zip(array.dims or (), array.shape, strict=False)).get(dim)
    for group in _above(array):
        found = named(group, dim)
        if isinstance(found, Array) and found.shape == (size,):
            if found.dims in (None, (dim,)) and found.dtype.kind in "biufM":
                return None if found == array else found
            break
    timely = (each for each in auxiliaries(array) if each.dims == (dim,))
    return next((each for each in timely if role(each) is Role.time), None)


def auxiliaries(array: Array) -> list[Array]:
    """Return the variables that its `coordinates` attribute names, beside it or above."""
    found = []
    for name in text(array, "coordinates").split():
        for group in _above(array):
            member = None
            with contextlib.suppress(EngramError):
                member = group.get(name)
            if isinstance(member, Array):
                found.append(member)
                break
    return found


def _above(array: Array) -> Iterator[Group]:
    """Yield the group that an array is in, and those above it."""
    group = array.parent
    yield group
    while group.path:
        group = group.parent
        yield group


def is_number(dtype: np.dtype[Any]) -> bool:
    """Whether values of a dtype can be drawn and averaged."""
    return dtype.kind in _NUMBERS


def decoded(array: Array, raw: NDArray[Any]) -> NDArray[Any]:
    """Return values of an array as numbers that are meant: missing ones NaN, packed ones unpacked.

    `raw` are some of its values, of any shape. What comes is float64, complex as complex128.
    """
    encoding = encoding_for_show(array)
    return encoding.numbers(raw, np.dtype("c16" if raw.dtype.kind == "c" else "f8"))


def is_packed(attrs: Mapping[str, Any]) -> bool:
    """Whether values are stored otherwise than they are meant."""
    return any(len(numbers(attrs.get(name))) == 1 for name in ("scale_factor", "add_offset"))


def days(array: Array) -> tuple[float, float] | None:
    """Return what makes days since 1970 of values that are times: the offset, and the factor.

    None if they are no times, or their calendar is not the one of matplotlib and of `datetime`.
    """
    units = encoding_for_show(array).times
    return None if units is None else units.days


def times(array: Array, raw: NDArray[Any]) -> list[Any] | None:
    """Return values of an array as times: datetimes, or cftime's where the calendar has others.

    None if they are no times, or the times of its calendar cannot be told.
    """
    found = raw
    if raw.dtype.kind != "M":
        encoding = encoding_for_show(array)
        if encoding.times is None:
            return None
        try:
            found = encoding.decode(raw)
        except ArgumentError:
            return None
    told = found.astype("M8[us]") if found.dtype.kind == "M" else found
    whens: list[Any] = told.ravel().tolist()
    # Of years that Python does not have, it makes numbers.
    return None if any(isinstance(when, int) for when in whens) else whens


def iso(whens: list[Any]) -> list[str]:
    """Return times as ISO 8601, as short as tells all: days, minutes or seconds."""
    told = [("-" if when is None else when.isoformat()) for when in whens]
    midnight = all(word == "-" or word[10:19] in ("T00:00:00", " 00:00:00") for word in told)
    return [word.replace(" ", "T")[: 10 if midnight else 19] for word in told]
