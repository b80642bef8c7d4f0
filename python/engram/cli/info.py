"""`engram info`: a pool, or one member of it, at a glance."""

from __future__ import annotations

import contextlib
import json
from typing import TYPE_CHECKING, Any

import numpy as np
from rich.text import Text

import engram
from engram import conventions
from engram.cli import describe, drawing, terminal
from engram.cli.app import (
    JsonOption,
    NamespaceOption,
    PoolOrClusterArgument,
    WhereArgument,
    app,
    clean,
    examples,
    opened,
)
from engram.cli.ns import facts_of
from engram.cli.preview import preview
from engram.cli.summary import shown as shown_summary
from engram.cli.summary import span, summary
from engram.cli.terminal import plain

if TYPE_CHECKING:
    from engram.cli.describe import Member
    from engram.pool import Pool

_FIRST_ROWS = 5
_FIRST_VALUES = 12


@app.command(
    epilog=examples(
        "engram info /dev/shm/run",
        "engram info /dev/shm/run run-17/step-0400/T",
        "engram info /dev/shm/run run-17 --json",
    )
)
def info(
    pool: PoolOrClusterArgument,
    path: WhereArgument = "/",
    *,
    namespace: NamespaceOption = "default",
    json: JsonOption = False,
) -> None:
    """Show a pool, or a group, array or blob in it: what it is, attributes, values, a drawing.

    Values are told as they are meant (missing ones left out, packed ones unpacked); the first ones
    as they are stored.
    """
    where = clean(path)
    with opened(pool, namespace) as (handle, root):
        member: Member = root[where] if where else root
        if where:
            facts = describe.facts(where, member)
        elif namespace == "default":
            facts = _pool_facts(handle)
        else:
            (facts,) = facts_of(handle, namespace)
            facts = {"pool": str(handle.path), "kind": "namespace", **facts}
        attributes = dict(member.attrs.items())
        facts |= _origin(member) | (_values(member) if isinstance(member, engram.Array) else {})
        if json:
            told = {}
            if isinstance(member, engram.Array | engram.Blob):
                told = {"first_values": _first(member)[0]}
            terminal.print_json({**facts, **told, "attributes": attributes})
            return
        first = None if isinstance(member, engram.Group) else first_values(member)
        drawn = preview(member) if isinstance(member, engram.Array) else None
    drawing.print_facts(describe.readable(_worded(facts, attributes)))
    if attributes:
        drawing.print_title("attributes")
        rows = {name: describe.attribute_text(value) for name, value in attributes.items()}
        drawing.print_facts(rows, indent=2)
    if first is not None:
        drawing.print_title("values")
        drawing.show(Text("\n".join(plain(line) for line in first.split("\n"))))
    for line in drawn or ():
        drawing.show(line)


def first_values(member: engram.Array | engram.Blob | engram.Table) -> str:
    """Return the first values of an array, bytes of a blob, or rows of a table, as text."""
    if isinstance(member, engram.Table):
        rows = member.read(rows=slice(0, _FIRST_ROWS)).to_pylist()
        lines = [*map(_row, rows), *(["…"] if len(member) > len(rows) else [])]
        return "\n".join(lines) or "no rows"
    values, more = _first(member)
    if isinstance(values, bytes):
        return f"{values!r}" + (" …" if more else "")
    if not values.size:
        return "none: a dimension is zero"
    if values.ndim == 0:
        return plain(values[()])
    text = np.array2string(values, max_line_width=terminal.text_width(), separator=" ")
    return text + (" …" if more else "")


def _row(row: dict[str, Any]) -> str:
    return ", ".join(f"{name}: {value}" for name, value in row.items())


def _first(member: engram.Array | engram.Blob) -> tuple[Any, bool]:
    """Return the first values, as they are stored, and whether there are more."""
    if isinstance(member, engram.Blob):
        head = bytes(member[: 4 * _FIRST_VALUES])
        return head, member.nbytes > len(head)
    if member.size == 0:
        return np.empty(0, member.dtype), False
    region = (0,) * (member.ndim - 1) + (slice(0, _FIRST_VALUES),) if member.ndim else ()
    values = np.asarray(member[region])
    return values, member.size > values.size


def _values(array: engram.Array) -> dict[str, Any]:
    """Return what an array's values are like."""
    told = {"summary": summary(array), "times": span(array)}
    return {name: value for name, value in told.items() if value is not None}


def _origin(member: Member) -> dict[str, Any]:
    """Return what an import kept of the file."""
    with contextlib.suppress(ValueError):  # of an importer that is not ours
        kept = json.loads(member._origin or b"{}")
        if isinstance(kept, dict) and kept:
            return {"origin": {name: value for name, value in kept.items() if name != "version"}}
    return {}


def _worded(facts: dict[str, Any], attributes: dict[str, Any]) -> dict[str, Any]:
    """Return facts with those that are more than a value in words."""
    worded = {name: value for name, value in facts.items() if name != "summary"}
    units = attributes.get("units")
    if "summary" in facts:
        packed = conventions.is_packed(attributes)
        text = shown_summary(facts["summary"], units if isinstance(units, str) else "")
        worded["range"] = text + (" (unpacked)" if packed else "")
    if "times" in facts:
        worded["times"] = " to ".join(dict.fromkeys(facts["times"]))
    if "origin" in facts:
        worded["origin"] = describe.origin_text(facts["origin"])
    return worded


def _pool_facts(pool: Pool) -> dict[str, Any]:
    """Return what is to be told of a pool, as plain values."""
    return {
        "path": str(pool.path),
        "kind": "pool",
        "uuid": pool.uuid,
        "size": pool.size,
        "used": pool.used,
        "durability": pool.durability,
        "checksums": pool.checksums,
        **({"emulated": pool.emulated} if pool.emulated else {}),
        "devices": [
            {
                "path": str(d.path),
                "filesystem": d.filesystem,
                "medium": d.medium,
                "free": d.free,
            }
            for d in pool.devices
        ],
        "namespaces": list(pool.namespaces),
        "members": len(pool),
    }
