"""Grids: a message's values as rows and columns that fit its latitudes and longitudes.

cfgrib takes every grid for one that is scanned along rows, from its first longitude to the east,
and most are. Where a message says otherwise (west, columns first, every other row backwards) its
values are put into rows here, and its coordinates are taken in the order of the values.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np

if TYPE_CHECKING:
    from engram.formats.source import Attributes

Array = np.ndarray[Any, Any]

_PLANE = 2


@dataclass(frozen=True, slots=True)
class Scan:
    """In which order a grid's values are stored.

    Attributes
    ----------
    shape
        The grid's shape: rows and columns, or only values.
    westward
        Whether rows go to the west.
    columns
        Whether a column is stored whole before the next one.
    alternating
        Whether every other row or column is stored backwards.

    """

    shape: tuple[int, ...]
    westward: bool = False
    columns: bool = False
    alternating: bool = False

    @classmethod
    def of(cls, message: Any, attrs: Attributes, shape: tuple[int, ...]) -> Scan:
        """Return how a message scans its grid."""
        if len(shape) != _PLANE:
            return cls(shape)
        return cls(
            shape,
            westward=attrs.get("GRIB_iScansNegatively") == 1,
            columns=attrs.get("GRIB_jPointsAreConsecutive") == 1,
            alternating=message.get("alternativeRowScanning", 0) == 1,
        )

    @property
    def is_usual(self) -> bool:
        """Whether it is the order that cfgrib takes for granted."""
        return not (self.westward or self.columns or self.alternating)

    def arranged(self, stored: Array) -> Array:
        """Return stored values as rows and columns."""
        if len(self.shape) != _PLANE:
            return stored.reshape(self.shape)
        lines = stored.reshape(self.shape[::-1] if self.columns else self.shape)
        if self.alternating:
            lines = lines.copy()
            lines[1::2] = lines[1::2, ::-1]
        return lines.T if self.columns else lines

    def coordinates(self, message: Any, *, plane: bool) -> tuple[Array, Array] | None:
        """Return latitudes and longitudes in the order of `arranged`; None if they are no grid.

        Parameters
        ----------
        message
            A message of this grid.
        plane
            Whether each value has its own latitude and longitude; else each row and column has.

        """
        lines = Scan(self.shape, columns=self.columns)  # eccodes itself tells of every other row
        latitude = lines.arranged(np.asarray(message["latitudes"]))
        longitude = lines.arranged(np.asarray(message["longitudes"]))
        if plane:
            return latitude, longitude
        rows, columns = latitude[:, 0], longitude[0]
        if not (np.all(latitude == rows[:, None]) and np.all(longitude == columns)):
            return None
        return rows, columns
