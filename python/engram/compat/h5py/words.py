"""What is said of a member beside its value and its attributes: the words of its `origin`.

A pool keeps them as an import does (`engram.formats.origin`), so that a file which was imported
shows what it was, and an export writes the file that a program meant. A group's words can be
changed. An object's are its own from when it was made; what is said later (a scale's name, labels,
the type of an attribute) is kept in the group's word `members`, by the object's id, and counts
before the object's own. `engram.formats.gather` puts both together in the same way.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from engram import _engram
from engram.formats import origin
from engram.lock import Lock

if TYPE_CHECKING:
    from collections.abc import Callable

    Words = dict[str, Any]

_PATIENCE = 60.0
"""Seconds that a change of words waits for another's."""

TRACKED = 3
"""HDF5's flags for an order of creation that is kept, and indexed."""


def of_group(namespace: _engram.Namespace, gid: int) -> Words:
    """Return a group's words."""
    raw = _engram.group_info(namespace, gid).origin
    return as_hdf5(origin.decode(raw)) if raw else {}


def of_object(namespace: _engram.Namespace, oid: int) -> Words:
    """Return an object's words."""
    info = _engram.object_info(namespace, oid)
    above = _engram.group_info(namespace, info.parent).origin
    found = origin.decode(info.origin) if info.origin else {}
    if b'"members"' in above:
        found = origin.with_later(found, origin.decode(above), oid)
    return as_hdf5(found)


def as_hdf5(words: Words) -> Words:
    """Return words as of an HDF5 file, where it was read as netCDF from that."""
    facts = words.get("hdf5")
    if not isinstance(facts, dict):
        return words
    kept = {name: words[name] for name in ("links", "aliases", "order") if name in words}
    return {**words, **facts, **kept}


def change_group(namespace: _engram.Namespace, gid: int, change: Callable[[Words], None]) -> None:
    """Change a group's words: nobody else does meanwhile."""
    with Lock(namespace, True, gid, "w", _PATIENCE):
        words = origin.decode(_engram.group_info(namespace, gid).origin)
        words.setdefault("format", "HDF5")
        change(words)
        _engram.set_origin(namespace, gid, origin.encode(words))


def change_object(namespace: _engram.Namespace, oid: int, **said: Any) -> None:
    """Say something more of an object, which counts from now on; None takes it back."""
    parent = _engram.object_info(namespace, oid).parent

    def change(words: Words) -> None:
        members = words.setdefault(origin.MEMBERS, {})
        members[f"{oid:x}"] = {**members.get(f"{oid:x}", {}), **said}

    change_group(namespace, parent, change)


def carry(
    namespace: _engram.Namespace, parent: int, oid: int, to: tuple[_engram.Namespace, int, int]
) -> None:
    """Say of one object what was said later of another: of a copy, or of the same one elsewhere."""
    raw = _engram.group_info(namespace, parent).origin
    if b'"members"' not in raw:
        return
    said = origin.decode(raw).get(origin.MEMBERS, {}).get(f"{oid:x}")
    if said is None:
        return
    other, gid, new = to

    def change(words: Words) -> None:
        words.setdefault(origin.MEMBERS, {})[f"{new:x}"] = said

    change_group(other, gid, change)
