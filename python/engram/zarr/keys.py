"""Keys, and where their values are: the key `a/b/c` is the blob at that path below the group.

Any program finds a store's values under these names, and a list of what is below a prefix is a list
of a group. Two things are as Zarr has them, and not as a folder of files does:

- A key may be the beginning of another one, as `a` is of `a/b`. Then `a` is a group, and the value
  of the key is the blob `__value__` in it. (Zarr keeps names that begin so for itself.)
- A group without keys below it is nothing. The last key of a group can be deleted while somebody
  else puts one there, so groups stay, and are not listed while nothing is in them.

Members that are no blobs are no keys: a store neither shows nor deletes them.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from engram import _engram
from engram.errors import InvalidNameError, NotFoundError

if TYPE_CHECKING:
    from collections.abc import Iterator

GROUP = 0
BLOB = 2
VALUE = "__value__"
"""The name of a key's value where the key is the beginning of another."""

BYTE = np.dtype(np.uint8)
_DOCUMENT = "zarr.json"
_PAGE = 1024
_END: tuple[str, Any] = ("", None)
_TRIES = 1000
"""So often is a key looked up that is replaced each time before it has been read."""


class Place(NamedTuple):
    """A group, for natives."""

    namespace: _engram.Namespace
    gid: int


class Found(NamedTuple):
    """A key's value."""

    oid: int
    nbytes: int


def check(key: Any) -> str:
    """Return a key that can be one.

    Raises
    ------
    TypeError
        If it is no text.
    InvalidNameError
        If no member of a group can be called so.

    """
    if not isinstance(key, str):
        message = f"{key!r} is no key: a key of a store is a str"
        raise TypeError(message)
    if not key or key[0] == "/" or VALUE in key.split("/"):
        message = (
            f"{key!r} cannot be a key: a key is names with slashes between them, and none of them "
            f"is {VALUE!r}"
        )
        raise InvalidNameError(message)
    return key


def member(place: Place, path: str) -> Any:
    """Return what natives find at a path below a group; None also where the group is gone."""
    if path[:1] == "/":  # which would begin at the namespace's root
        return None
    try:
        return _engram.find(place.namespace, place.gid, path)
    except InvalidNameError:  # so nothing is called that
        return None


def find(place: Place, key: str) -> Found | None:
    """Return where a key's value is; None if it has none.

    Raises
    ------
    NotFoundError
        If the group is gone.

    """
    found = None
    if VALUE not in key or VALUE not in key.split("/"):
        found = member(place, key)
    if found is not None and found[0] == GROUP:
        found = member(Place(place.namespace, found[1]), VALUE)
    if found is not None and found[0] == BLOB:
        return Found(found[1], found[3][0])
    check_there(place)
    return None


def check_there(place: Place) -> None:
    """Raise `NotFoundError` if a group is gone: there nothing is missing, all is."""
    _engram.group_info(*place)


def value(place: Place, key: str) -> np.ndarray[Any, Any] | None:
    """Return a key's value, on the pool's own memory and read-only; None if it has none."""
    for left in reversed(range(_TRIES)):
        found = find(place, key)
        if found is None:
            return None
        try:
            return _engram.view(place.namespace, found.oid, BYTE, (found.nbytes,), False)
        except NotFoundError:  # replaced since it was found
            if not left:
                raise
    return None


def group(place: Place, prefix: str) -> Place | None:
    """Return the group of all keys that begin with a prefix and a slash; None if there is none."""
    inner = prefix.strip("/")
    if not inner:
        return place
    found = member(place, inner)
    return Place(place.namespace, found[1]) if found is not None and found[0] == GROUP else None


def members(place: Place) -> Iterator[tuple[str, Any]]:
    """Yield what is in a group, and what natives find of it, a page at a time."""
    after = None
    while True:
        found, after = _engram.members(place.namespace, place.gid, after, _PAGE)
        yield from found
        if after is None:
            return


def walk(place: Place, above: str = "") -> Iterator[tuple[str, Found | None]]:
    """Yield the keys below a group, and where their values are; None for what is no blob.

    Parameters
    ----------
    place
        The group.
    above
        Its own key, or `""`, with which all others begin.

    """
    stack = [(above, members(place))]
    while stack:
        above, left = stack[-1]
        name, found = next(left, _END) if len(stack) == 1 else _next(left)
        if found is None:
            stack.pop()
            continue
        key = f"{above}/{name}" if above else name
        if found[0] == GROUP:
            stack.append((key, members(Place(place.namespace, found[1]))))
        elif found[0] == BLOB and (name != VALUE or above):
            yield above if name == VALUE else key, Found(found[1], found[3][0])
        else:
            yield key, None


def _next(left: Iterator[tuple[str, Any]]) -> tuple[str, Any]:
    """Return the next member of a group below; none if it was deleted meanwhile."""
    try:
        return next(left, _END)
    except NotFoundError:
        return _END


def below(place: Place, prefix: str = "") -> Iterator[tuple[str, Found]]:
    """Yield the keys that begin with a prefix, which may end within a name."""
    above, _, start = prefix.rpartition("/")
    inner = None if prefix[:1] == "/" else group(place, above)  # no key begins with a slash
    if inner is None:
        return
    above = above.strip("/")
    for name, found in members(inner):
        if not name.startswith(start):
            continue
        key = f"{above}/{name}" if above else name
        if found[0] == BLOB and name != VALUE:
            yield key, Found(found[1], found[3][0])
        elif found[0] == GROUP:
            for each, where in walk(Place(place.namespace, found[1]), key):
                if where is not None and each.startswith(prefix):
                    yield each, where


def has_keys(place: Place) -> bool:
    """Whether there is any key below a group, or the group's own."""
    try:
        if any(_engram.contains(*place, name) for name in (_DOCUMENT, VALUE)):
            return True
        return any(found is not None for _, found in walk(place))
    except NotFoundError:  # deleted meanwhile
        return False


def names(place: Place, prefix: str) -> Iterator[str]:
    """Yield the names that come next in keys which begin with a prefix and a slash."""
    inner = group(place, prefix)
    if inner is None:
        return
    for name, found in members(inner):
        if found[0] == GROUP:
            if has_keys(Place(place.namespace, found[1])):
                yield name
        elif found[0] == BLOB and name != VALUE:
            yield name
