"""What of an array is asked for: an index such as `3,:,10:20:2`, one part for each dimension."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, NamedTuple

from engram.errors import ArgumentError

if TYPE_CHECKING:
    from collections.abc import Sequence

_PART = re.compile(r"\s*(-?\d{1,18})?\s*(?:(:)\s*(-?\d{1,18})?\s*(?:(:)\s*(\d{1,18})?)?)?\s*")
_MOST = 4096
"""So many characters an index has at most."""
_PLANE = 2


class Pick(NamedTuple):
    """What is selected of each dimension: one index, or a range of them."""

    parts: tuple[int | range, ...]

    @property
    def dims(self) -> list[int]:
        """The dimensions of which a range is selected."""
        return [dim for dim, part in enumerate(self.parts) if isinstance(part, range)]

    @property
    def ranges(self) -> list[range]:
        """Those ranges."""
        return [part for part in self.parts if isinstance(part, range)]

    @property
    def shape(self) -> tuple[int, ...]:
        """The shape of what is selected."""
        return tuple(len(part) for part in self.ranges)

    def key(self, *ranges: range) -> tuple[int | slice, ...]:
        """Return numpy's index of a part of it: of each range, this one."""
        rest = iter(ranges)
        return tuple(_slice(next(rest)) if isinstance(part, range) else part for part in self.parts)


def _slice(part: range) -> slice:
    return slice(part.start, part.stop, part.step)


def read(index: str | None, shape: Sequence[int], wanted: int | None = None) -> Pick:
    """Read an index of an array.

    Parameters
    ----------
    index
        Its text: a part for each dimension, `3`, `:`, `a:b` or `a:b:s`, with commas between them.
        None or "" takes the last dimensions as a whole, and the first place of the others.
    shape
        The array's shape.
    wanted
        How many ranges there have to be; None: any number.

    Raises
    ------
    ArgumentError
        If it is no index, leads out of the array, or has another number of ranges.

    """
    if not index:
        ranges = len(shape) if wanted is None else wanted
        first = max(len(shape) - ranges, 0)
        text = ["0"] * first + [":"] * (len(shape) - first)
    else:
        text = index.split(",") if len(index) <= _MOST else []
    if len(text) != len(shape):
        raise ArgumentError(
            f"index {(index or '')[:80]!r} has {len(text)} parts, and the array {len(shape)} "
            "dimensions: give one for each, such as 0,:,10:20"
        )
    pick = Pick(tuple(_part(each, size) for each, size in zip(text, shape, strict=True)))
    if wanted is not None and len(pick.dims) != wanted:
        kind = {1: "a line has one range", _PLANE: "an image has two ranges"}[wanted]
        raise ArgumentError(
            f"index {index!r} has {len(pick.dims)} ranges, and {kind}: "
            "write : where a dimension is meant as a whole, and a number elsewhere"
        )
    return pick


def _part(text: str, size: int) -> int | range:
    found = _PART.fullmatch(text)
    if found is None or not text.strip():
        raise ArgumentError(f"{text[:80]!r} is no part of an index: write 3, :, 2:9 or 2:9:3")
    first, colon, last, _, step = found.groups()
    if colon is None:
        at = int(first)
        if not -size <= at < size:
            raise ArgumentError(f"index {at} leads out of a dimension of {size} places")
        return at % size
    if step is not None and int(step) == 0:
        raise ArgumentError(f"{text!r} has step 0: give one from 1 on")
    ends = slice(*(None if each is None else int(each) for each in (first, last, step)))
    return range(*ends.indices(size))
