"""What is told of a group, an array, a blob: the same words for every verb, and in JSON.

Facts are plain values, as JSON has them; `readable` makes of them what people read.
"""

from __future__ import annotations

import datetime as dt
from typing import TYPE_CHECKING, Any

import numpy as np

import engram
from engram import owners
from engram.cli import literals, terminal
from engram.size import human

if TYPE_CHECKING:
    from collections.abc import Sequence

    from engram.group import Group

    Member = Group | engram.Array | engram.Blob | engram.Table

_SHOWN_ATTRIBUTE = 200
_FEW = 12
_KIB = 1 << 10
_TOLD_PLAINLY = {"source", "codecs", "layout", "maxshape"}
"""What of an origin says something to people as it is; the rest is for export."""


def kind(member: Member) -> str:
    """Return the word for what a member is."""
    if isinstance(member, engram.Group):
        return "group"
    if isinstance(member, engram.Table):
        return "table"
    return "blob" if isinstance(member, engram.Blob) else "array"


def facts(name: str, member: Member) -> dict[str, Any]:
    """Return what is to be told of a member, as plain values."""
    about = member._info()
    shown: dict[str, Any] = {"name": name, "path": member.path, "kind": kind(member)}
    if isinstance(member, engram.Group):
        shown["members"] = len(member)
    elif isinstance(member, engram.Table):
        schema = member.schema
        shown["rows"] = len(member)
        shown["columns"] = [f"{field.name}: {field.type}" for field in schema]
        shown["parts"] = member.num_parts
        shown["nbytes"] = member.nbytes
    else:
        if isinstance(member, engram.Array):
            shown["dtype"] = dtype_text(member.dtype)
            shown["shape"] = list(member.shape)
            shown["dims"] = None if member.dims is None else list(member.dims)
            if member.chunks is not None:
                shown |= {"chunks": list(member.chunks), "codec": member.codec}
                shown["stored_nbytes"] = member.stored_nbytes
        shown["nbytes"] = member.nbytes
        shown["oid"] = member.oid
    shown["scope"] = about.scope
    shown["owner"] = owners.user(about.owner)
    shown["created"] = time(about.created)
    shown["modified"] = time(about.modified)
    return shown


def readable(shown: dict[str, Any]) -> dict[str, str]:
    """Return facts as people read them."""
    rows = {}
    for name, value in shown.items():
        if value is None or (name == "name" and shown.get("path") == value):
            continue
        if name in ("size", "used"):
            rows[name] = human(value)
        elif name == "nbytes":
            rows["bytes"] = human(value) + (f" ({value})" if value >= _KIB else "")
        elif name == "oid":
            rows[name] = f"{value:#x}"  # as everywhere that people read it
        elif name == "stored_nbytes":
            rows["takes"] = human(value)
        elif name in ("shape", "chunks"):
            rows[name] = shape_text(value)
        elif name == "devices":
            rows[name] = "; ".join(
                f"{d['path']} ({d['filesystem']}, {d['medium']}, {human(d['free'])} free)"
                for d in value
            )
        elif isinstance(value, list):
            rows[name] = ", ".join(str(v) for v in value)
        else:
            rows[name] = str(value)
    return rows


def dtype_text(dtype: np.dtype[Any]) -> str:
    """Return a dtype as people write it: float32, >i4, string."""
    return "string" if dtype.kind == "T" else str(dtype)


def shape_text(shape: Sequence[int], dims: Sequence[str] | None = None) -> str:
    """Return a shape as people write it: 3 x 4, y: 3, x: 4 where dimensions have names, scalar."""
    if not shape:
        return "scalar"
    if dims:
        return ", ".join(f"{dim}: {n}" for dim, n in zip(dims, shape, strict=True))
    return " x ".join(map(str, shape))


def layout_text(array: engram.Array) -> str:
    """Return how an array lies, if it is not in one piece: (64 x 64, lz4)."""
    return "" if array.chunks is None else f" ({shape_text(array.chunks)}, {array.codec})"


def attribute_text(value: Any) -> str:
    """Return an attribute's value on one line, with its dtype where that is not plain."""
    if isinstance(value, str):
        shown, kind_ = value, ""
    elif isinstance(value, dict | list):
        shown, kind_ = literals.tree(value), ""
    else:
        array = np.asarray(value)
        shown = np.array2string(array, threshold=_FEW, separator=" ").replace("\n", "")
        kind_ = "" if array.dtype.kind in "TU" else f"  ({array.dtype})"
    if len(shown) > _SHOWN_ATTRIBUTE:
        shown = shown[:_SHOWN_ATTRIBUTE] + " …"
    return shown + kind_


def origin_text(origin: dict[str, Any]) -> str:
    """Return what is known of the file that something came from, in words."""
    words = [str(origin["format"])] if "format" in origin else []
    for name, value in origin.items():
        if name == "chunks" and isinstance(value, list):
            words.append(f"chunks {shape_text(value)}")
        elif name == "filters" and isinstance(value, dict):
            on = {key: each for key, each in value.items() if each not in (False, None)}
            words += [key if each is True else f"{key} {each}" for key, each in on.items()]
        elif name == "dimensions" and isinstance(value, dict):
            words.append(f"dimensions {', '.join(map(_dimension, value.items()))}")
        elif name in _TOLD_PLAINLY:
            words.append(f"{name} {value}")
    return "; ".join(words)


def _dimension(named: tuple[str, Any]) -> str:
    """Return a dimension of a file as people write it."""
    name, facts = named
    if not isinstance(facts, dict):
        return name
    return f"{name}: {facts.get('size')}" + (" (unlimited)" if facts.get("unlimited") else "")


def time(nanoseconds: int) -> str:
    """Return a time since 1970 as ISO 8601 in local time, to the second."""
    return terminal.iso(dt.datetime.fromtimestamp(nanoseconds // 10**9, dt.UTC))
