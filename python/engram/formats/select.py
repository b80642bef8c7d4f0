"""Part of a file or pool: which members, by patterns of paths, and which indices, by dimension.

A pattern is a path whose components may have ``*``, ``?`` and ``[...]``; ``**`` stands for any
number of components. What is named brings what is in it and the groups that it is in. A slice
belongs to a dimension's name and applies wherever that dimension stands; it keeps the dimension,
also where it leaves one index. A pattern or a slice that meets nothing is an error.
"""

from __future__ import annotations

import fnmatch
import re
from typing import TYPE_CHECKING

from engram.errors import ArgumentError, NotFoundError

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence

    from engram.formats.blocks import Region

    Patterns = str | Iterable[str] | None
    Slices = str | Iterable[str] | Mapping[str, slice | int] | None

_SLICE = re.compile(r"([^=]+)=\s*(-?\d*)\s*(?:(:)\s*(-?\d*)\s*(?::\s*(-?\d*)\s*)?)?")
_SHOWN = 5


class Selection:
    """What of a file or pool is wanted; everything, if nothing is said."""

    def __init__(self, patterns: Patterns = None, slices: Slices = None) -> None:
        """Take patterns such as ``"group/var*"`` and slices such as ``"time=0:10"``."""
        given = [patterns] if isinstance(patterns, str) else list(patterns or ())
        self._patterns = {text: tuple(text.strip("/").split("/")) for text in given}
        self._slices = _parsed(slices)
        self._unmet_patterns = set(self._patterns)
        self._unmet_dims = set(self._slices)

    @property
    def is_all(self) -> bool:
        """Whether everything is wanted, whole."""
        return not self._patterns and not self._slices

    def chosen(self, paths: Sequence[str]) -> set[str]:
        """Return which of a tree's paths are wanted, with the groups that they are in.

        Parameters
        ----------
        paths
            The paths of all groups and objects, relative to the root, which is ``""``.

        Raises
        ------
        NotFoundError
            A pattern meets none of them.

        """
        if not self._patterns:
            return set(paths)
        wanted = {""}
        for path in paths:
            parts = tuple(path.split("/"))
            for text, pattern in self._patterns.items():
                if any(_matches(parts[:n], pattern) for n in range(1, len(parts) + 1)):
                    self._unmet_patterns.discard(text)
                    wanted.update("/".join(parts[:n]) for n in range(1, len(parts) + 1))
        for text in sorted(self._unmet_patterns):
            there = [p for p in paths if p]
            shown = ", ".join(there[:_SHOWN]) + (" ..." if len(there) > _SHOWN else "")
            message = f"no member matches {text!r}: there are {shown or 'none'}"
            raise NotFoundError(message)
        return wanted

    def region(self, dims: tuple[str, ...] | None, shape: tuple[int, ...]) -> Region:
        """Return the slices of an array that are wanted: whole ones where nothing is said.

        Each has a start, a stop and a step within the axis; steps are positive.
        """
        region = []
        for name, length in zip(dims or (None,) * len(shape), shape, strict=True):
            asked = self._slices.get(name, slice(None)) if name is not None else slice(None)
            if name in self._slices:
                self._unmet_dims.discard(name)
            start, stop, step = asked.indices(length)
            region.append(slice(start, max(start, stop), step))
        return tuple(region)

    def length(self, name: str, length: int) -> int:
        """Return how long a dimension of this length is once it is sliced."""
        asked = self._slices.get(name)
        return length if asked is None else len(range(*asked.indices(length)))

    def check_dims(self) -> None:
        """Say so if a slice has met no dimension; to be called after the last `region`."""
        for name in sorted(self._unmet_dims):
            message = f"no array has a dimension {name!r} to be sliced; `engram info` shows `dims`"
            raise NotFoundError(message)


def _matches(parts: tuple[str, ...], pattern: tuple[str, ...]) -> bool:
    """Whether a path's components match a pattern's, all of them."""
    if not pattern:
        return not parts
    if pattern[0] == "**":
        return any(_matches(parts[n:], pattern[1:]) for n in range(len(parts) + 1))
    if not parts or not fnmatch.fnmatchcase(parts[0], pattern[0]):
        return False
    return _matches(parts[1:], pattern[1:])


def _parsed(given: Slices) -> dict[str, slice]:
    """Return slices by dimension, from a mapping or from texts such as ``time=0:10``."""
    if given is None:
        return {}
    if isinstance(given, str):
        given = [given]
    found: dict[str, slice] = {}
    items = given.items() if hasattr(given, "items") else map(_parse, given)
    for name, value in items:
        asked = _single(value) if isinstance(value, int) else value
        if not isinstance(asked, slice):
            message = (
                f"{value!r} of the dimension {name!r} is no slice: give slice(0, 10) or an int"
            )
            raise ArgumentError(message)
        if asked.step is not None and asked.step < 1:
            message = (
                f"the slice of {name!r} has the step {asked.step}; only positive ones are read"
            )
            raise ArgumentError(message)
        if name in found:
            message = f"the dimension {name!r} is sliced twice; give one slice"
            raise ArgumentError(message)
        found[name] = asked
    return found


def _parse(text: str) -> tuple[str, slice | int]:
    """Read ``time=0:10``, ``time=::2`` or ``time=5``."""
    found = _SLICE.fullmatch(text)
    if found is None or not (found[2] or found[3]):
        message = f'{text!r} is no slice of a dimension: write "time=0:10", "time=::2" or "time=5"'
        raise ArgumentError(message)
    name, start, colon, stop, step = found.groups()
    if not colon:
        return name.strip(), int(start)
    bounds = [int(part) if part else None for part in (start, stop, step)]
    return name.strip(), slice(*bounds)


def _single(index: int) -> slice:
    """Return the slice of one index."""
    return slice(index, None if index == -1 else index + 1)
