"""An array's values as numbers to draw: dates as days, durations in their unit, magnitudes.

Of a line with more values than a picture has room for, each short stretch gives its least and its
largest value, so that no peak is lost.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

from engram import conventions

if TYPE_CHECKING:
    from collections.abc import Callable

    from numpy.typing import NDArray

    from engram.array import Array

_PIECE = 1 << 20
_DAY = np.timedelta64(1, "D")
_FIRST_DAY, _LAST_DAY = -719_162.0, 2_932_896.0
"""The years 1 and 9999, in days since 1970: what can be drawn as dates."""
_NOISE = 16
"""A magnitude is told from another if they differ by more than so many of its dtype's steps."""


class Reading:
    """How values of an array become numbers: float64, missing ones NaN."""

    def __init__(self, array: Array) -> None:
        self._array = array
        self._days = None if array.dtype.kind in "mM" else conventions.days(array)
        self.magnitude = array.dtype.kind == "c"
        """What is drawn of complex values is how large they are."""
        self.counts_days = self._days is not None or array.dtype.kind == "M"
        """The numbers are days since 1970."""
        self.label = self._labelled()

    def numbers(self, raw: NDArray[Any]) -> NDArray[Any]:
        """Return some of the array's values, of any shape, as numbers."""
        if raw.dtype.kind == "M":
            midnight = raw.astype("M8[D]")
            values: NDArray[Any] = midnight.astype("i8") + (raw - midnight) / _DAY
            values[np.isnat(raw)] = np.nan
            return values
        if raw.dtype.kind == "m":
            values = raw.astype("i8").astype("f8") * np.datetime_data(raw.dtype)[1]
            values[np.isnat(raw)] = np.nan
            return values
        values = conventions.decoded(self._array, raw)
        if self._days is not None:
            values = self._days[0] + self._days[1] * values
        return np.abs(values) if self.magnitude else values

    def are_dates(self, values: NDArray[Any]) -> bool:
        """Whether these numbers are days, all in years that a calendar has."""
        known = values[np.isfinite(values)]
        return self.counts_days and bool(
            known.size and known.min() >= _FIRST_DAY and known.max() <= _LAST_DAY
        )

    def settled(self, values: NDArray[Any]) -> NDArray[Any]:
        """Return numbers without what is noise alone: magnitudes that are the same."""
        known = values[np.isfinite(values)]
        if self.magnitude and known.size:
            noise = _NOISE * np.finfo(self._array.dtype).eps * known.max()
            if known.max() - known.min() <= noise:
                return np.where(np.isfinite(values), np.median(known), values)
        return values

    def _labelled(self) -> str:
        """Return what the numbers are, with their unit."""
        array = self._array
        if array.dtype.kind == "m":
            unit = np.datetime_data(array.dtype)[0]
            return f"{conventions.title(array)} [{unit}]"
        if self.counts_days:
            return conventions.title(array)
        label = conventions.label(array)
        return f"|{label}|" if self.magnitude else label


def can_be_drawn(dtype: np.dtype[Any]) -> bool:
    """Whether values of a dtype are numbers, or times."""
    return conventions.is_number(dtype) or dtype.kind in "mM"


def extremes(
    read: Callable[[int, int], NDArray[Any]], size: int, most: int
) -> tuple[NDArray[Any], NDArray[Any]]:
    """Return the least and the largest value of each stretch of a line, and their indices.

    Parameters
    ----------
    read
        Gives the values from one index to another, float64.
    size
        How many values there are.
    most
        About so many are returned, of all there are.

    """
    width = -(-size // max(most // 2, 1))
    piece = max(_PIECE // width, 1) * width
    values, indices = [], []
    for start in range(0, size, piece):
        found = read(start, min(start + piece, size))
        padded = np.append(found, np.full(-len(found) % width, np.nan)).reshape(-1, width)
        unknown = np.isnan(padded)
        least = np.where(unknown, np.inf, padded).argmin(axis=1)
        largest = np.where(unknown, -np.inf, padded).argmax(axis=1)
        both = np.sort([least, largest], axis=0).T + width * np.arange(len(padded))[:, np.newaxis]
        chosen = np.unique(both)
        values.append(found[chosen])
        indices.append(start + chosen)
    return np.concatenate(values), np.concatenate(indices)
