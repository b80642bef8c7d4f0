"""Which dimensions the groups of a netCDF file have, and which of them each variable uses.

In the pool an array has only its dimensions' names; in netCDF a dimension belongs to a group, has
a length, and is seen by the groups below it. So each name is looked up from the array's group
upwards. The dimensions that the import kept in `origin` come first, unlimited and unused ones
included; their lengths are hints, since arrays may have been sliced or replaced. Of a whole file,
`origin` tells as well where an array's dimensions are, if not there. A name that is
found nowhere becomes a dimension of the array's own group.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from engram.formats.netcdf.naming import unused

if TYPE_CHECKING:
    from collections.abc import Iterator

    from engram.formats.target import ArrayItem, GroupItem, Tree


@dataclass(slots=True)
class Dimension:
    """A dimension of a group.

    Attributes
    ----------
    name
        Its name.
    size
        Its length.
    group
        The path of its group.
    unlimited
        Whether it can grow.
    settled_by
        The first array that uses it, whose length it has; None as long as none does.
    is_kept
        Whether an import has kept it.

    """

    name: str
    size: int
    group: str
    unlimited: bool = False
    settled_by: str | None = None
    is_kept: bool = False


@dataclass(frozen=True, slots=True)
class Conflict:
    """An array that cannot have a dimension of its names."""

    path: str
    why: str


class Dimensions:
    """The dimensions of a tree."""

    def __init__(self, tree: Tree, arrays: list[ArrayItem]) -> None:
        """Find those of a tree's groups, and of the arrays that shall have dimensions."""
        self.of_group: dict[str, dict[str, Dimension]] = {
            group.path: _kept(group) for group in tree.groups
        }
        self.of_array: dict[str, list[Dimension]] = {}
        self.conflicts: list[Conflict] = []
        self.invented: dict[str, list[str]] = {}
        self._is_file = "source" in tree.root.origin  # whose paths are those of the origin
        for item in arrays:
            self._confirm(item)
        for item in arrays:
            self._settle(item)

    def of_width(self, item: ArrayItem, width: int) -> Dimension:
        """Return the dimension of an array's characters: one for all of that width in its group."""
        at = _group_of(item.path)
        name, number = f"string{width}", 1
        while (there := self.of_group[at].get(name)) is not None and there.size != width:
            number += 1
            name = f"string{width}_{number}"
        if there is None:
            there = self.of_group[at][name] = Dimension(name, width, at, settled_by=item.path)
        return there

    def _seen(self, item: ArrayItem, axis: int, name: str) -> Iterator[Dimension]:
        """Yield the dimensions of a name that an array sees: that of its origin, the nearest."""
        told = item.origin.get("dimension_groups") if self._is_file else None
        if isinstance(told, list) and len(told) == len(item.shape):
            found = self.of_group.get(str(told[axis]), {}).get(name)
            if found is not None:
                yield found
        at = _group_of(item.path)
        while True:
            found = self.of_group[at].get(name)
            if found is not None:
                yield found
            if not at:
                return
            at = _group_of(at)

    def _confirm(self, item: ArrayItem) -> None:
        """Settle the dimensions that an array has as `origin` has them."""
        for axis, (name, length) in enumerate(zip(item.dims or (), item.shape, strict=False)):
            nearest = next(self._seen(item, axis, name), None)
            if nearest is not None and nearest.settled_by is None and nearest.size == length:
                nearest.settled_by = item.path

    def _settle(self, item: ArrayItem) -> None:
        """Find, resize or make the dimensions of an array."""
        found: list[Dimension] = []
        for axis, (name, length) in enumerate(zip(self._names(item), item.shape, strict=True)):
            one = self._fitting(item, axis, name, length)
            if one is None:
                return
            found.append(one)
        self.of_array[item.path] = found

    def _names(self, item: ArrayItem) -> tuple[str, ...]:
        """Return the names of an array's dimensions, invented ones if it has none."""
        if item.dims is not None:
            return item.dims
        at, _, own = item.path.rpartition("/")
        names: list[str] = []
        for axis in range(len(item.shape)):
            name = unused(f"{own}_dim_{axis}", {*self.of_group[at], *names})
            names.append(name)
        if names:
            self.invented[item.path] = names
        return tuple(names)

    def _fitting(self, item: ArrayItem, axis: int, name: str, length: int) -> Dimension | None:
        """Return the dimension of an array's axis; None, and a conflict, if there can be none."""
        seen = list(self._seen(item, axis, name))
        if not all(candidate.is_kept for candidate in seen):
            seen = seen[:1]  # netCDF4 and xarray, too, look names up, and end at the nearest
        for candidate in seen:
            if candidate.settled_by is not None and candidate.size == length:
                return candidate
        for candidate in seen:
            if candidate.settled_by is None:
                candidate.settled_by, candidate.size = item.path, length
                return candidate
        at = _group_of(item.path)
        other = self.of_group[at].get(name)
        if other is not None:
            why = (
                f"its dimension {name!r} has the length {length}, in /{other.settled_by} it has "
                f"{other.size}; a dimension has one length in its group"
            )
            self.conflicts.append(Conflict(item.path, why))
            return None
        made = Dimension(name, length, at, settled_by=item.path)
        self.of_group[at][name] = made
        return made


def _group_of(path: str) -> str:
    """Return the path of the group that a path is in."""
    return path.rpartition("/")[0]


def _kept(group: GroupItem) -> dict[str, Dimension]:
    """Return the dimensions that a group's origin tells of."""
    kept = group.origin.get("dimensions")
    if not isinstance(kept, dict):
        return {}
    return {
        name: Dimension(
            name, int(facts["size"]), group.path, bool(facts.get("unlimited")), None, True
        )
        for name, facts in kept.items()
        if isinstance(facts, dict) and isinstance(facts.get("size"), int)
    }
