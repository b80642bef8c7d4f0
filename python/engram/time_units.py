"""Times as numbers: "days since 2000-01-01" and its calendar, by the CF conventions.

Three calendars count days as numpy does, at least since 1582, and become datetimes by numpy alone:
`standard` (also called `gregorian`) and `proleptic_gregorian`. Of the first, an epoch before the
reform of 1582 is a date of the Julian calendar. What lies before the reform is the same day under
the name that numpy gives it. Times of all other calendars are objects of cftime's, for numpy has no
30th of February.
"""

import re
from collections.abc import Mapping
from typing import Any, Self

import numpy as np
from numpy.typing import NDArray

from engram.errors import ArgumentError
from engram.extras import library

_SINCE = r"""\s* (?P<unit>[a-z]+) \s+ since \s+
    (?P<year>[+-]?\d+) (?: - (?P<month>\d{1,2}) (?: - (?P<day>\d{1,2}) )? )?
    (?: [T\s]\s* (?P<hour>\d{1,2}) (?: : (?P<minute>\d{1,2})
        (?: : (?P<second>\d{1,2}) (?: [.] (?P<fraction>\d*) )? )? )? )?
    \s* (?P<zone> Z | UTC | GMT | [+-]?\d{1,2} (?: :?\d{2} )? )? \s*"""
"""What units of times read like; it is compiled where the first are read."""
_NS = 1
_DAY_NS = 86_400 * 10**9
_LENGTHS_NS = {
    **dict.fromkeys(("nanosecond", "nanosec", "nsec", "ns"), _NS),
    **dict.fromkeys(("microsecond", "microsec", "usec", "us"), 10**3),
    **dict.fromkeys(("millisecond", "millisec", "msec", "ms"), 10**6),
    **dict.fromkeys(("second", "sec", "s"), 10**9),
    **dict.fromkeys(("minute", "min"), 60 * 10**9),
    **dict.fromkeys(("hour", "hr", "h"), 3600 * 10**9),
    **dict.fromkeys(("day", "d"), _DAY_NS),
    **dict.fromkeys(("week",), 7 * _DAY_NS),
}
_NUMPY = {"standard", "gregorian", "proleptic_gregorian"}
_OTHERS = {"noleap", "365_day", "all_leap", "366_day", "360_day", "julian", "tai", "utc"}
_REFORM = (1582, 10, 15)
_MOST = 2**63 - 1


class TimeUnits:
    """A unit, an epoch and a calendar: what makes numbers times.

    Parameters
    ----------
    units
        Such as ``"hours since 1900-01-01 00:00:00"``.
    calendar
        One of the CF conventions'; that of most files if it is empty.

    Raises
    ------
    ArgumentError
        If the units or the calendar are none that can be told.

    """

    def __init__(self, units: str, calendar: str = "") -> None:
        self.units = units
        self.calendar = calendar.strip().lower() or "standard"
        if self.calendar not in _NUMPY | _OTHERS:
            known = ", ".join(sorted(_NUMPY | _OTHERS))
            raise ArgumentError(f"calendar {calendar!r} is unknown: the known ones are {known}")
        found = re.fullmatch(_SINCE, units, re.VERBOSE | re.IGNORECASE)
        if found is None:
            raise ArgumentError(
                f"units {units!r} are no times: they must read like 'days since 2000-01-01 00:00'"
            )
        unit = found["unit"].lower()
        length = _LENGTHS_NS.get(unit) or _LENGTHS_NS.get(unit.removesuffix("s"))
        if length is None:
            raise ArgumentError(
                f"units {units!r}: a {unit.removesuffix('s')} has no one length; read the numbers "
                "as they are, and tell the times by hand"
            )
        self._length_ns = length
        self._epoch_ns = self._read_epoch(found)

    @classmethod
    def of(cls, attrs: Mapping[str, Any]) -> Self | None:
        """Make what an array's attributes say; None if they speak of no times."""
        units, calendar = attrs.get("units"), attrs.get("calendar", "")
        if not isinstance(units, str) or " since " not in units.lower():
            return None
        return cls(units, calendar if isinstance(calendar, str) else "")

    @property
    def dtype(self) -> np.dtype[Any]:
        """What times are told in: datetimes of numpy's, or objects of cftime's."""
        if self.calendar not in _NUMPY:
            return np.dtype(object)
        return np.dtype("M8[ns]" if self._length_ns == _NS else "M8[us]")

    @property
    def scale(self) -> tuple[int, int]:
        """Where zero lies in nanoseconds since 1970, and how many nanoseconds one is."""
        return self._epoch_ns, self._length_ns

    @property
    def days(self) -> tuple[float, float] | None:
        """Where zero lies in days since 1970, and how many days one is; None if numpy has none."""
        if self.calendar not in _NUMPY:
            return None
        return self._epoch_ns / _DAY_NS, self._length_ns / _DAY_NS

    def decode(self, numbers: NDArray[Any], missing: NDArray[np.bool_]) -> NDArray[Any]:
        """Tell the times of `numbers`, of any shape; `missing` ones are NaT (None in objects).

        Raises
        ------
        ArgumentError
            If one lies beyond what a datetime of numpy's can be.
        UnsupportedError
            If the calendar needs cftime, and it is not installed.

        """
        missing = missing | ~np.isfinite(numbers)
        numbers = np.where(missing, 0, numbers)
        if self.calendar not in _NUMPY:
            return self._by_cftime(numbers, missing)
        unit_ns = _NS if self._length_ns == _NS else 10**3
        found = np.asarray(self._counted(numbers, unit_ns)).view(self.dtype)
        found[missing] = np.datetime64("NaT")
        return found

    def _counted(self, numbers: NDArray[Any], unit_ns: int) -> NDArray[np.int64]:
        """Count units of `unit_ns` since 1970, exactly where the numbers are whole."""
        epoch, rest = divmod(self._epoch_ns, unit_ns)
        if numbers.dtype.kind in "iu":
            least, most = (int(numbers.min()), int(numbers.max())) if numbers.size else (0, 0)
            ends = [number * self._length_ns // unit_ns + epoch for number in (least, most)]
            self._require(ends, numbers)
            if self._length_ns % unit_ns == 0:
                return numbers.astype("i8") * (self._length_ns // unit_ns) + epoch
            return numbers.astype("i8") // (unit_ns // self._length_ns) + epoch
        days, part = np.divmod(numbers.astype("f8"), 1)
        # The whole part is exact, and the rest is rounded once.
        length = self._length_ns / unit_ns
        limits = [float(days.min()), float(days.max())] if days.size else [0.0, 0.0]
        self._require([int(limit * length) + epoch for limit in limits], numbers)
        parts = np.rint(part * length + rest / unit_ns).astype("i8")
        whole = days.astype("i8") * int(length) if length >= 1 else np.rint(days * length)
        return np.asarray(whole + parts + epoch, "i8")

    def _require(self, ends: list[int], numbers: NDArray[Any]) -> None:
        """Refuse what numpy would wrap."""
        if any(not -_MOST <= end <= _MOST for end in ends):
            raise ArgumentError(
                f"{numbers.min()} to {numbers.max()} {self.units} lies beyond the years that a "
                f"{self.dtype} holds: read the numbers as they are"
            )

    def _by_cftime(self, numbers: NDArray[Any], missing: NDArray[np.bool_]) -> NDArray[Any]:
        """Tell times of a calendar that numpy does not know."""
        cftime = library("cftime", "cli", f"times of the calendar {self.calendar!r}")
        try:
            told = cftime.num2date(
                numbers, self.units, self.calendar, only_use_cftime_datetimes=True
            )
        except (ValueError, OverflowError) as error:
            raise ArgumentError(f"{self.units!r} in {self.calendar!r}: {error}") from None
        found = np.empty(numbers.shape, object)
        found[...] = told
        found[missing] = None
        return found

    def _read_epoch(self, found: re.Match[str]) -> int:
        """Return the epoch in nanoseconds since 1970, by a calendar that numpy has."""
        year, month, day = (int(found[part] or 1) for part in ("year", "month", "day"))
        hour, minute, second = (int(found[part] or 0) for part in ("hour", "minute", "second"))
        good = 1 <= month <= 12 and 1 <= day <= 31 and hour <= 24 and minute < 60 and second < 61  # noqa: PLR2004
        if not good:
            raise ArgumentError(f"units {self.units!r}: there is no such day and hour")
        julian = self.calendar in {"standard", "gregorian"} and (year, month, day) < _REFORM
        days = _day_number(year, month, day, julian=julian)
        seconds = days * 86_400 + hour * 3600 + minute * 60 + second - _zone_s(found["zone"])
        fraction = (found["fraction"] or "").ljust(9, "0")[:9]
        return seconds * 10**9 + int(fraction)


def _day_number(year: int, month: int, day: int, *, julian: bool) -> int:
    """Return the days since 1970-01-01 of a date, which may be of the Julian calendar."""
    years, months = year - (month < 3), (month + 9) % 12  # noqa: PLR2004 - years begin in March
    days = 365 * years + years // 4 + (153 * months + 2) // 5 + day - 1
    if julian:
        return days - 719_470
    return days - years // 100 + years // 400 - 719_468


def _zone_s(zone: str | None) -> int:
    """Return how many seconds a zone is east of Greenwich."""
    if not zone or zone[0] in "ZzUuGg":
        return 0
    sign = -1 if zone[0] == "-" else 1
    hours, _, minutes = zone.lstrip("+-").partition(":")
    if not minutes and len(hours) > 2:  # noqa: PLR2004 - as +0530
        hours, minutes = hours[:-2], hours[-2:]
    return sign * (int(hours) * 3600 + int(minutes or 0) * 60)
