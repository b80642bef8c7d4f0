"""`origin`: what a file says beyond names, values, dimensions and attributes, kept for export.

It is JSON in the object's or group's record, and never read by anything but an export. The same
words mean the same in every format:

    format      how the file was read, e.g. "NETCDF4"
    type        what a dtype cannot say: {"enum": …}, {"string": …}, {"opaque": …}, {"compound": …}
    dataspace   "null" for a dataset of no dataspace, which stands here as an empty array
    chunks, filters, layout, maxshape, fill, endian      how an array is stored
    attributes  name -> type, where an attribute's value alone does not say it
    attribute_order  the names of the attributes in the file's order, where that is not by name
    dimensions  of a group: name -> {"size", "unlimited"}, unused ones included
    dimension_groups  of an array: the groups of its dimensions, where they are not the nearest ones
    types, links, order, source      of a group
    split       of a group: how the array was stored whose parts are in it, with its type and shape
    members     of a group: an object's id -> words that were said of it later, and count more
    object, tracked, comment, ...    of HDF5 alone: see `engram.formats.hdf5.facts`
"""

from __future__ import annotations

import base64
import json
from typing import TYPE_CHECKING, Any

import numpy as np

if TYPE_CHECKING:
    from collections.abc import Mapping

    from engram.formats.source import Origin

VERSION = 1

SPLIT = "split"
"""The word of a group for how the array was stored whose parts it has."""


MEMBERS = "members"
"""The word of a group for what was said later of objects in it, by their ids in hexadecimal."""

_OF_IDS = (b'"members"', b'"alias"', b'"aliases"')
"""Words that know members by their ids, as they stand in JSON."""


def with_later(words: Origin, of_group: Origin, oid: int) -> Origin:
    """Return an object's words with those that its group has of it; None takes one back."""
    members = of_group.get(MEMBERS)
    said = members.get(f"{oid:x}") if isinstance(members, dict) else None
    if not isinstance(said, dict):
        return words
    found = {"format": "HDF5", **words}
    nested = found.get("hdf5")  # what an HDF5 file is that was read as netCDF
    target = dict(nested) if isinstance(nested, dict) else found
    for name, fact in said.items():
        if fact is None:
            target.pop(name, None)
        else:
            target[name] = fact
    return {**found, "hdf5": target} if target is not found else found


def words_of_copy(kept: bytes, of_group: bytes, oid: int) -> bytes:
    """Return the words of a copy of one object: its own, with what its group has of it."""
    if f'"{oid:x}"'.encode() not in of_group:
        return kept
    return encode(with_later(decode(kept), decode(of_group), oid))


def renumbered(kept: list[tuple[int, bytes]], ids: Mapping[int, int]) -> list[tuple[int, bytes]]:
    """Return the words of copies, by the ids of what they are of: what they say of others by ids.

    What is said of others that were not copied is left out, and so are further names of objects
    where the group that lists them all (the root of an HDF5 file) was not.
    """
    is_listed = any(b'"aliases"' in encoded for _, encoded in kept)
    return [(id_, _renumbered(encoded, ids, is_listed=is_listed)) for id_, encoded in kept]


def _renumbered(encoded: bytes, ids: Mapping[int, int], *, is_listed: bool) -> bytes:
    if not any(word in encoded for word in _OF_IDS):
        return encoded
    words = decode(encoded)

    def new(id_: object) -> str | None:
        found = ids.get(int(id_, 16)) if isinstance(id_, str) else None
        return None if found is None else f"{found:x}"

    if isinstance(members := words.get(MEMBERS), dict):
        words[MEMBERS] = {new(id_): said for id_, said in members.items() if new(id_)}
    if isinstance(links := words.get("links"), dict):
        kept = {
            n: v for n, v in links.items() if "alias" not in v or (is_listed and new(v["alias"]))
        }
        words["links"] = {
            name: {**link, "alias": new(link["alias"])} if "alias" in link else link
            for name, link in kept.items()
        }
    if isinstance(aliases := words.get("aliases"), dict):
        words["aliases"] = {
            new(id_): [[new(group), name] for group, name in names if new(group)]
            for id_, names in aliases.items()
            if new(id_)
        }
    return encode(words)


def encode(origin: Origin) -> bytes:
    """Return the origin as JSON; nothing for an empty one."""
    if not origin:
        return b""
    stated = {"version": VERSION, **origin}
    return _ENCODER.encode(stated).encode("utf-8", "backslashreplace")


def decode(encoded: bytes) -> Origin:
    """Return an origin that `encode` has made; an empty one for nothing, and for anything else."""
    if not encoded:
        return {}
    try:
        found = json.loads(encoded)
    except ValueError:
        return {}
    return found if isinstance(found, dict) else {}


def raw(value: np.ndarray[Any, Any]) -> str:
    """Return a value's bytes, in its own byte order, as base64."""
    return base64.b64encode(value.tobytes()).decode("ascii")


def _plain(value: object) -> object:
    """Return a numpy scalar as a Python one, for JSON."""
    if isinstance(value, np.generic):
        return value.item()
    if isinstance(value, bytes):
        return value.decode("utf-8", "backslashreplace")
    message = f"{value!r} has no place in an origin"
    raise TypeError(message)


_ENCODER = json.JSONEncoder(separators=(",", ":"), ensure_ascii=False, default=_plain)
