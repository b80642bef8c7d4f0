"""Facts beside the value: where it lies, whose it is, what an import kept of its file."""

import json
from typing import Any

from engram import _engram
from engram.array import Array
from engram.blob import Blob
from engram.handle import Handle
from engram.notebook import parts
from engram.size import human

_FACTS = (
    *("format", "source", "type", "chunks", "codecs", "filters", "layout", "maxshape"),
    "dimensions",
)
"""The facts of an imported file that are shown, in this order."""


def facts(handle: Handle) -> list[tuple[str, str]]:
    """List where something lies, whose it is, and what an import kept of its file, as HTML."""
    rows = []
    if isinstance(handle, Array | Blob):
        rows = [("where", _where(handle)), ("id", f"<code>{handle.oid:#x}</code>")]
    rows += [
        ("owner", parts.text(handle.owner)),
        ("created", handle.created.isoformat(sep=" ", timespec="seconds")),
        ("modified", handle.modified.isoformat(sep=" ", timespec="seconds")),
    ]
    return rows + _origin(handle._origin)


def _where(handle: Array | Blob) -> str:
    """Tell where a value lies; of a chunked one how, and what it takes."""
    if isinstance(handle, Array) and handle.chunks is not None:
        chunks = " x ".join(map(str, handle.chunks))
        return f"in chunks of {chunks}, {handle.codec}: {human(handle.stored_nbytes)}"
    inline = _engram.object_info(handle._namespace, handle._id).inline
    return "in the catalog, with its record" if inline else "in memory of its own (an extent)"


def _origin(origin: bytes) -> list[tuple[str, str]]:
    """List what the file that something was imported from says beyond values and attributes."""
    if not origin:
        return []
    try:
        found = json.loads(origin)
    except ValueError:
        return [("imported", "what is kept of its file cannot be read")]
    if not isinstance(found, dict):
        return []
    if isinstance(found.get("zarr"), dict):  # a document of Zarr's, in its own words
        found = found["zarr"] | found
    rows = [(f"file: {name}", found[name]) for name in _FACTS if name in found]
    return [(name, parts.text(_plain(value))) for name, value in rows]


def _plain(value: Any) -> str:
    """Write a fact of a file shortly: filters by name, what is off left out."""
    if isinstance(value, list) and value and all(isinstance(v, dict) for v in value):
        return ", ".join(str(v.get("name") or v.get("id")) for v in value)
    if isinstance(value, list):
        return " x ".join("unlimited" if v is None else str(v) for v in value)
    if isinstance(value, dict):
        kept = {k: v for k, v in value.items() if v is not False and v is not None}
        return ", ".join(k if v is True else f"{k} {_inner(v)}" for k, v in kept.items())
    return str(value)


def _inner(value: Any) -> str:
    return f"({_plain(value)})" if isinstance(value, dict) else _plain(value)
