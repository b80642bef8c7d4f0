"""What `items()` and `values()` of a group give: members, read a page at a time."""

from collections.abc import ItemsView, Iterator, ValuesView
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from engram.group import Group


class Items(ItemsView[str, Any]):
    """Items, read in pages."""

    _mapping: "Group"

    def __iter__(self) -> Iterator[tuple[str, Any]]:
        return self._mapping._members()


class Values(ValuesView[Any]):
    """Values, read in pages."""

    _mapping: "Group"

    def __iter__(self) -> Iterator[Any]:
        return (member for _, member in self._mapping._members())
