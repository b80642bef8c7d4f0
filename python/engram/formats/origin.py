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
    from engram.formats.source import Origin

VERSION = 1

SPLIT = "split"
"""The word of a group for how the array was stored whose parts it has."""


MEMBERS = "members"
"""The word of a group for what was said later of objects in it, by their ids in hexadecimal."""


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
