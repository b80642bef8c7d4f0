"""What an index selects for a write on another node: boxes, each of which is a request of its own.

How many they are is known from the index and the shape alone, before there is memory for values.
"""

from __future__ import annotations

import math
from itertools import pairwise, product
from typing import TYPE_CHECKING, Any

import numpy as np

from engram.cluster.boxes import Box, bounding
from engram.selection import Selection, is_basic

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Sequence

_Axis = range | np.ndarray[Any, Any]


class Excerpt:
    """The smallest array that has all that an index selects.

    Attributes
    ----------
    shape
        The excerpt's shape.
    key
        The index into the excerpt.
    count
        How many boxes of the array it is.

    """

    def __init__(self, key: Any, shape: tuple[int, ...]) -> None:
        """Work out what `key` selects of an array of this shape.

        Raises
        ------
        IndexError
            If numpy would refuse the index.

        """
        # Of all items that are selected, their numbers in the excerpt; None if it has no others.
        self._numbers: np.ndarray[Any, Any] | None = None
        self._axes: Sequence[_Axis]
        if _is_plain(key):
            self._axes, self.key = _stepped(key, shape)
        else:
            selection = Selection(key, shape)
            self._axes, self.key = selection.axes, selection.key
            self._numbers = selection.numbers()
        self.shape = tuple(map(len, self._axes))
        if self._numbers is not None and len(self._numbers) == math.prod(self.shape):
            self._numbers = None
        if self._numbers is None:
            self.count = math.prod(map(_count, self._axes))
        else:
            self.count = len(self._ends(self._numbers)) - 1

    def boxes(self) -> Iterator[tuple[Box, Box]]:
        """Give the boxes, each after where it is in the excerpt."""
        for part in self._parts():
            place = Box(tuple(at for at, _ in part), tuple(n for _, n in part))
            corner = zip(self._axes, place.offsets, strict=True)
            yield place, Box(tuple(int(axis[at]) for axis, at in corner), place.counts)

    def _parts(self) -> Iterable[tuple[tuple[int, int], ...]]:
        """Give where boxes are in the excerpt: along each axis where one begins, and its length."""
        if self._numbers is None:
            yield from product(*map(_runs, self._axes))
            return
        for begin, end in pairwise(self._ends(self._numbers)):
            *above, last = np.unravel_index(int(self._numbers[begin]), self.shape)
            yield (*((int(at), 1) for at in above), (int(last), end - begin))

    def _ends(self, numbers: np.ndarray[Any, Any]) -> list[int]:
        """Cut numbers into runs of neighbours along the last axis: where each begins, and the end.

        Where a row ends and the next one begins, the coordinate becomes smaller.
        """
        if not len(numbers):
            return [0]
        coordinates = np.asarray(self._axes[-1])[numbers % self.shape[-1]]
        cuts = (np.diff(numbers) != 1) | (np.diff(coordinates) != 1)
        return [0, *(np.flatnonzero(cuts) + 1).tolist(), len(numbers)]


def _is_plain(key: Any) -> bool:
    """Whether an index has integers, slices and at most one `...`: what they select needs no list.

    A slice with a step has one box for each of its items.
    """
    parts = key if isinstance(key, tuple) else (key,)
    return is_basic(key) and None not in parts and parts.count(Ellipsis) <= 1


def _stepped(key: Any, shape: tuple[int, ...]) -> tuple[list[range], Any]:
    """Give the coordinates along each axis, and the index into what they are."""
    box, rest = bounding(shape, key)
    steps = [one.step or 1 if isinstance(one, slice) else 1 for one in rest if one is not Ellipsis]
    sides = zip(box.offsets, box.counts, steps, strict=True)
    axes = [range(at, at + count, abs(step)) for at, count, step in sides]
    turned = [
        slice(None, None, -1 if (one.step or 1) < 0 else 1) if isinstance(one, slice) else one
        for one in rest
    ]
    return axes, tuple(turned)


def _count(axis: _Axis) -> int:
    """Count the runs of neighbours in coordinates that ascend."""
    if isinstance(axis, range):
        return min(len(axis), 1) if axis.step == 1 else len(axis)
    return int((np.diff(axis) != 1).sum()) + 1 if len(axis) else 0


def _runs(axis: _Axis) -> list[tuple[int, int]]:
    """Give the runs of neighbours in coordinates that ascend: where each begins, and its length."""
    if isinstance(axis, range) and axis.step == 1:
        return [(0, len(axis))] if axis else []
    ends = [0, *(np.flatnonzero(np.diff(axis) != 1) + 1).tolist(), len(axis)]
    return [(a, b - a) for a, b in pairwise(ends) if b > a]
