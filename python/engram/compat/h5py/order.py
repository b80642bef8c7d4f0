"""The names of a group, in their order, and the datatypes that are named in it.

A pool lists members in byte order of their names, as HDF5 does. Where the order of creation is
tracked (`track_order=True`), names come in the order that the group's words have; what has been
made since comes behind, by its id, which rises.
"""

from __future__ import annotations

import base64
from typing import TYPE_CHECKING, Any

import numpy as np

from engram import _engram
from engram.compat.h5py import links, words
from engram.extras import library

if TYPE_CHECKING:
    from engram.compat.h5py.datatype import Datatype
    from engram.compat.h5py.links import Spot

_PAGE = 4096
_TYPES, _ORDER = "types", "order"


def names_of(namespace: _engram.Namespace, gid: int) -> list[str]:
    """Return the names of a group's members, links and datatypes, in their order."""
    said = words.of_group(namespace, gid)
    if not said:
        return _plain_names(namespace, gid)
    more = [*(said.get(links.LINKS) or {}), *(said.get(_TYPES) or {})]
    order = said.get(_ORDER)
    if not (said.get("tracked") or {}).get("links") or not isinstance(order, list | None):
        names = _plain_names(namespace, gid)
        there = set(names)
        others = [name for name in more if name not in there]
        return sorted([*names, *others], key=str.encode) if others else names
    members = {name: found[1] for name, found in _members(namespace, gid)}
    known = [name for name in order or () if name in members or name in more]
    rest = sorted(set(members).difference(known), key=members.__getitem__)
    return [*dict.fromkeys([*known, *rest, *more])]


def sorted_names(namespace: _engram.Namespace, gid: int) -> list[str]:
    """Return the same in byte order, as `visit` goes."""
    return sorted(names_of(namespace, gid), key=str.encode)


def _plain_names(namespace: _engram.Namespace, gid: int) -> list[str]:
    found: list[str] = []
    after = None
    while page := _engram.names(namespace, gid, after, _PAGE):
        found += page
        after = page[-1]
    return found


def _members(namespace: _engram.Namespace, gid: int) -> list[tuple[str, Any]]:
    found: list[tuple[str, Any]] = []
    after = None
    while True:
        page, after = _engram.members(namespace, gid, after, _PAGE)
        found += page
        if after is None:
            return found


def keep(namespace: _engram.Namespace, gid: int, last: str) -> None:
    """Keep the order of a group's names in its words, if it is tracked: `last` comes last."""
    said = words.of_group(namespace, gid)
    if not (said.get("tracked") or {}).get("links"):
        return
    names = [*(name for name in names_of(namespace, gid) if name != last), last]
    words.change_group(namespace, gid, lambda found: found.update({_ORDER: names}))


def forget(namespace: _engram.Namespace, gid: int, name: str) -> None:
    """Take a name that is gone out of the order: what gets it next comes last."""
    said = words.of_group(namespace, gid)
    if name in (said.get(_ORDER) or ()):
        names = [one for one in said[_ORDER] if one != name]
        words.change_group(namespace, gid, lambda found: found.update({_ORDER: names}))


def settle(namespace: _engram.Namespace, gid: int) -> None:
    """Keep the order of a group's names in its words, for an export."""
    said = words.of_group(namespace, gid)
    if (said.get("tracked") or {}).get("links"):
        names = names_of(namespace, gid)
        if names != said.get(_ORDER):
            words.change_group(namespace, gid, lambda found: found.update({_ORDER: names}))


def types_of(namespace: _engram.Namespace, gid: int) -> dict[str, Any]:
    """Return the datatypes that are named in a group."""
    if b'"types"' not in _engram.group_info(namespace, gid).origin:
        return {}
    found = words.of_group(namespace, gid).get(_TYPES)
    return found if isinstance(found, dict) else {}


def put_type(namespace: _engram.Namespace, at: Spot, given: np.dtype[Any] | Datatype) -> None:
    """Name a datatype: HDF5's own description of it is kept."""
    h5t = library("h5py.h5t", "hdf5", f"{at.name!r}: a named datatype")
    dtype = given if isinstance(given, np.dtype) else given.dtype
    encoded = base64.b64encode(h5t.py_create(dtype, logical=True).encode()).decode()
    words.change_group(
        namespace, at.gid, lambda w: w.setdefault(_TYPES, {}).update({at.name: {"hdf5": encoded}})
    )


def take_type(namespace: _engram.Namespace, at: Spot) -> None:
    """Remove a named datatype."""
    words.change_group(namespace, at.gid, lambda w: w[_TYPES].pop(at.name, None))
