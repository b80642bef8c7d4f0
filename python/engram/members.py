"""All members of a group, a page at a time; deleting them; what to say of one that is missing."""

from collections.abc import ItemsView, Iterator, ValuesView
from contextlib import nullcontext, suppress
from typing import TYPE_CHECKING, Any

from engram import _engram
from engram.batch import Batch
from engram.errors import NotFoundError, PoolFullError

if TYPE_CHECKING:
    from engram.group import Group

_FEW = 16
"""As many names are looked at for the message of a missing one, however many there are."""


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
    at_once = _engram.check_deletable(group._namespace, group._id, names)
    try:
        with Batch(group._namespace) if at_once else nullcontext():
            _delete_each(group, names)
    except PoolFullError:  # one by one needs little room, and makes some
        _delete_each(group, names)


def _delete_each(group: "Group", names: list[str]) -> None:
    for name in names:
        with suppress(NotFoundError):  # somebody else was faster
            del group[name]


def missing(group: "Group", path: str) -> str:
    """Say that there is no member at `path`, how far there is one, and what is near."""
    head = path.rstrip("/")
    while "/" in head.strip("/"):  # what there is of the way is told of as far as it goes
        head = head.rpartition("/")[0]
        inner = group.get(head)
        if inner is not None and inner._is_group and not inner._has_members:
            return (
                f"there is no {path!r}: {head!r} is a table, whose columns are pool[{head!r}][name]"
            )
        if inner is not None and inner._is_group:
            return missing(inner, path[len(head) + 1 :])
    at = _engram.path_of(group._namespace, True, group._id)
    where = f"group {at!r}" if at else f"namespace {group.namespace!r}"
    first = _engram.names(group._namespace, group._id, None, _FEW)
    start = path.strip("/").split("/")[0][:-2] or None  # names that begin alike come next
    alike = _engram.names(group._namespace, group._id, start, _FEW) if start else []
    from difflib import get_close_matches  # noqa: PLC0415 - for errors alone

    near = get_close_matches(path, {*first, *alike}, n=3)
    hint = f"it has {', '.join(map(repr, near or first[:5]))}" if first else "it is empty"
    more = ", ..." if len(first) > len(near or first[:5]) else ""
    return f"there is no {path!r} in {where}: {hint}{more}"
