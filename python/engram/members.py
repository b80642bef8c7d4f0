"""All members of a group: what `items()` and `values()` give, a page at a time; deleting them."""

from collections.abc import ItemsView, Iterator, ValuesView
from contextlib import nullcontext, suppress
from typing import TYPE_CHECKING, Any

from engram import _engram
from engram.batch import Batch
from engram.errors import NotFoundError, PoolFullError

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


def delete_all(group: "Group") -> None:
    """Delete all members, or none if one of them cannot be deleted."""
    names = list(group)
    at_once = _engram.check_deletable(group._realm, group._id, names)
    try:
        with Batch(group._realm) if at_once else nullcontext():
            _delete_each(group, names)
    except PoolFullError:  # one by one needs little room, and makes some
        _delete_each(group, names)


def _delete_each(group: "Group", names: list[str]) -> None:
    for name in names:
        with suppress(NotFoundError):  # somebody else was faster
            del group[name]
