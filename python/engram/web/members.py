"""Members of a group, a page at a time: a group of a million is read no further than is shown."""

from __future__ import annotations

import time
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

import engram
from engram import _engram
from engram.active.stored.layout import OBJECTS
from engram.errors import ArgumentError, NotFoundError
from engram.group import TABLE_MARK
from engram.web.served import ServedCluster
from engram.web.wire import dtype_text

if TYPE_CHECKING:
    from collections.abc import Iterator

    from engram._engram import _Found
    from engram.web.served import Served
    from engram.web.working import Work

MOST = 1000
_COUNTED = 1000
"""Members of a group are counted up to here."""
_LOOK_S = 1.0
"""So long names are looked through for a text; the page may go on from there."""
_GROUP, _ARRAY, _BLOB = 0, 1, 2


class Asked(NamedTuple):
    """A page of a group's members."""

    path: str
    """The group's, without a slash at either end."""
    after: str | None
    """The name after which it begins; None: from the first one."""
    limit: int
    """The most members."""
    contains: str
    """A text that names have to have, in upper or lower case; it is folded."""


def listed(served: Served, asked: Asked, work: Work) -> dict[str, Any]:
    """Return a page of a group's members.

    Raises
    ------
    ArgumentError
        If it is no group, or `limit` is none.

    """
    if not 1 <= asked.limit <= MOST:
        raise ArgumentError(f"limit {asked.limit} is none: give one of 1 to {MOST}")
    if isinstance(served, ServedCluster):
        return _of_cluster(served, asked, work)
    group = served.found(asked.path)
    if not isinstance(group, engram.Group):
        raise _no_group(asked.path)
    told = _Page(group, asked, work).read()
    if asked.after is None and not asked.contains and told["after"] is None:
        told["total"] = len(told["members"])
    return told


def _no_group(path: str) -> ArgumentError:
    return ArgumentError(f"{path!r} is no group, and has no members: ask what object it is")


class _Page:
    """A page of a group of a pool."""

    def __init__(self, group: engram.Group, asked: Asked, work: Work) -> None:
        self._namespace, self._gid = group._namespace, group._id
        self._path, self._after, self._limit, self._contains = asked
        self._work = work

    def read(self) -> dict[str, Any]:
        """Return the members, and after which name to go on."""
        after = self._after
        found: list[dict[str, Any]] = []
        until = time.monotonic() + _LOOK_S
        while True:
            most = MOST if self._contains else self._limit - len(found)
            page, after = _engram.members(self._namespace, self._gid, after, most)
            for name, facts in page:
                if self._contains in name.casefold():
                    found.append(self._told(name, facts))
                    if len(found) == self._limit:
                        more = after is not None or name != page[-1][0]
                        return {**self._head(found), "after": name if more else None}
            if after is None or time.monotonic() > until:
                return {**self._head(found), "after": after}
            self._work.go_on()

    def _head(self, found: list[dict[str, Any]]) -> dict[str, Any]:
        return {"path": self._path, "members": found}

    def _told(self, name: str, facts: _Found) -> dict[str, Any]:
        kind, member, dtype, shape = facts
        path = f"{self._path}/{name}" if self._path else name
        told: dict[str, Any] = {"name": name, "path": path}
        if kind == _GROUP:
            return told | self._of_group(member)
        if kind == _BLOB:
            return told | {"kind": blob_kind(self._namespace, member), "bytes": (shape or (0,))[0]}
        told["kind"] = "array"
        if dtype is not None and shape is not None:
            told |= {"dtype": dtype_text(dtype), "shape": list(shape)}
            if dtype.kind != "T":
                told["bytes"] = dtype.itemsize * int(np.prod(shape, dtype=object))
        return told

    def _of_group(self, gid: int) -> dict[str, Any]:
        kind = "group"
        try:
            if _engram.contains(self._namespace, gid, TABLE_MARK):
                return {"kind": "table"}
            names = len(_engram.names(self._namespace, gid, None, _COUNTED))
        except NotFoundError:  # deleted meanwhile
            return {"kind": kind, "members": 0}
        if self._path == OBJECTS:
            kind = "active"
        return {"kind": kind, **({"members": names} if names < _COUNTED else {"many": True})}


def blob_kind(namespace: _engram.Namespace, oid: int) -> str:
    """Return what a blob is: bytes of a program, or a link."""
    try:
        kind = _engram.posix_of(namespace, False, oid).kind
    except NotFoundError:
        return "blob"
    return "link" if kind == "symlink" else "blob" if kind == "file" else "file"


def _of_cluster(served: ServedCluster, asked: Asked, work: Work) -> dict[str, Any]:
    from engram.cluster.listing import NameGroup, is_group  # noqa: PLC0415 - a pool needs neither

    path, after, limit, contains = asked
    group = served.found(path)
    if not is_group(group):
        raise _no_group(path)
    begun = after or ""
    found: list[tuple[str, Any]] = []
    for name, thing in group.listed() if isinstance(group, NameGroup) else group.listed(begun):
        work.go_on()
        if name.encode() > begun.encode() and contains in name.casefold():
            found.append((name, thing))
        if len(found) > limit:
            break
    page = [_member(path, name, thing, is_group=is_group(thing)) for name, thing in found[:limit]]
    return {"path": path, "members": page, "after": page[-1]["name"] if found[limit:] else None}


def _member(path: str, name: str, thing: Any, *, is_group: bool) -> dict[str, Any]:
    told: dict[str, Any] = {"name": name, "path": f"{path}/{name}" if path else name}
    if is_group:
        return told | {"kind": "group"}
    if isinstance(thing, engram.Table):
        return told | {"kind": "table"}
    dtype = getattr(thing, "dtype", None)
    if dtype is None or isinstance(thing, engram.Blob):
        return told | {"kind": "blob", "bytes": thing.nbytes}
    told |= {"kind": "array", "dtype": dtype_text(dtype), "shape": list(thing.shape)}
    return told | ({"bytes": thing.nbytes} if dtype.kind != "T" else {})


def paths_of(namespace: _engram.Namespace, oids: Any) -> Iterator[str]:
    """Yield the paths of objects that are there still."""
    return (path for path in _engram.paths_of(namespace, oids) if path is not None)
