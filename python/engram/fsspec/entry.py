"""What fsspec is told of a member: a blob is a file, a group a directory, an array an array.

An array is listed with the type "array", the size of its values, its dtype and shape. It is no
file: libraries that read a folder of files (a dataset of Parquet) leave it alone. Who opens it all
the same reads its values in C order, as they lie in memory.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

from engram import _engram
from engram.array import Array
from engram.errors import UnsupportedError
from engram.fsspec.errors import FileMissingError, IsGroupError
from engram.handle import make

if TYPE_CHECKING:
    from collections.abc import Iterator

    from numpy.typing import NDArray

    from engram._engram import _Found
    from engram.fsspec.place import Place

GROUP, ARRAY, BLOB = range(3)
"""The kinds of members, as the natives number them; 3 is a chunked array."""

_SECOND = 10**9
_PAGE = 1024
"""Members are listed this many at a time, each page as it is at one moment."""

Entry = dict[str, Any]


def entry_of(place: Place) -> Entry | None:
    """Tell what is at a place, if anything."""
    while True:
        found = place.find()
        if found is None:
            return None
        try:
            return told_of(place, found)
        except LookupError:  # it went between the two looks
            continue


def told_of(place: Place, found: _Found) -> Entry:
    """Tell of a member that was found.

    Raises
    ------
    NotFoundError
        If it is gone.

    """
    if found[0] == GROUP:
        return _group(place.path, found, _engram.group_info(place.namespace, found[1]))
    return _object(place.path, found, _engram.object_info(place.namespace, found[1]))


def names_in(place: Place, group: int) -> Iterator[str]:
    """Give the paths of a group's members."""
    after = None
    while names := _engram.names(place.namespace, group, after, _PAGE):
        yield from (_below(place, name) for name in names)
        after = names[-1]


def entries_in(place: Place, group: int) -> Iterator[Entry]:
    """Tell of a group's members."""
    after = None
    while True:
        found, after = _engram.members(place.namespace, group, after, _PAGE)
        yield from _told(place.namespace, [(_below(place, name), facts) for name, facts in found])
        if after is None:
            return


def bytes_at(place: Place) -> tuple[NDArray[np.uint8], _Found]:
    """Give the bytes of the file or array at a place, of one moment, and what was found there.

    They are the pool's own memory where they lie in it as they are read.

    Raises
    ------
    FileMissingError
        If there is none.
    IsGroupError
        If there is a group.
    UnsupportedError
        If there is text of variable length.

    """
    while True:
        found = place.find()
        if found is None:
            raise missing(place)
        if found[0] == GROUP:
            raise IsGroupError(f"{place.path} is a group, and no file: list it with ls")
        try:
            return bytes_of(make(place.namespace, found), place.path), found
        except LookupError:  # replaced between the looks: look again
            continue


def missing(place: Place) -> FileMissingError:
    """Return what to say of a place where nothing is."""
    return FileMissingError(f"{place.path} does not exist: list what is there with ls, or glob")


def bytes_of(member: Any, path: str) -> NDArray[np.uint8]:
    """Give the bytes of a blob, or of an array in C order, read-only.

    Raises
    ------
    UnsupportedError
        If it is text of variable length.

    """
    if not isinstance(member, Array):
        found: NDArray[np.uint8] = member.view()
        return found
    if member.dtype.kind == "T":
        raise UnsupportedError(
            f"{path} is text of variable length, which has no bytes as a file: read it as "
            f"pool[{member.path!r}][...]"
        )
    found = np.empty(0, np.uint8)
    if member.nbytes:
        values = member.view() if member.chunks is None else member[...]
        found = np.ascontiguousarray(values).reshape(-1).view(np.uint8)
    found.flags.writeable = False
    return found


def _below(place: Place, name: str) -> str:
    return f"{place.path}/{name}"


def _told(namespace: _engram.Namespace, members: list[tuple[str, _Found]]) -> Iterator[Entry]:
    """Tell of members that were found; of those that are gone since, nothing."""
    oids = np.array([found[1] for _, found in members if found[0] != GROUP], np.uint64)
    objects = iter(_engram.object_infos(namespace, oids) if len(oids) else [])
    for path, found in members:
        if found[0] != GROUP:
            info = next(objects)
            if info is not None:
                yield _object(path, found, info)
            continue
        try:
            group = _engram.group_info(namespace, found[1])
        except LookupError:
            continue
        yield _group(path, found, group)


def _group(path: str, found: _Found, info: _engram.GroupInfo) -> Entry:
    return {**_facts(path, "directory", 0, found[1]), **_times(info)}


def _object(path: str, found: _Found, info: _engram.ObjectInfo) -> Entry:
    kind, oid, dtype, shape = found
    if kind == BLOB:
        return {**_facts(path, "file", info.nbytes, oid), **_times(info)}
    told = {**_facts(path, "array", info.nbytes, oid), **_times(info)}
    return {**told, "dtype": str(dtype), "shape": shape}


def _facts(path: str, kind: str, nbytes: int, member: int) -> Entry:
    return {"name": path, "size": nbytes, "type": kind, "ino": member}


def _times(info: _engram.GroupInfo | _engram.ObjectInfo) -> Entry:
    return {"created": info.created / _SECOND, "mtime": info.modified / _SECOND}
