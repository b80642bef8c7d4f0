"""`engram info`: a pool, or one member of it, at a glance."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np
from rich.text import Text

import engram
from engram.cli import describe, terminal
from engram.cli.app import (
    JsonOption,
    NamespaceOption,
    PoolArgument,
    WhereArgument,
    app,
    clean,
    examples,
    opened,
)
from engram.cli.terminal import plain

if TYPE_CHECKING:
    from engram.cli.describe import Member
    from engram.pool import Pool

_FIRST_VALUES = 12


@app.command(
    epilog=examples("engram info /dev/shm/run", "engram info /dev/shm/run run-17/step-0400/T")
)
def info(
    pool: PoolArgument,
    path: WhereArgument = "",
    *,
    namespace: NamespaceOption = "default",
    json: JsonOption = False,
) -> None:
    """Show a pool, or a group, array or blob in it, with its attributes."""
    where = clean(path)
    with opened(pool, namespace) as (handle, root):
        if where:
            member: Member = root[where]
            shown = describe.facts(where, member)
            first = None if isinstance(member, engram.Group) else first_values(member)
        else:
            member, first = root, None
            shown = _pool_facts(handle) if namespace == "default" else describe.facts("/", root)
        attributes = dict(member.attrs.items())
        if json:
            terminal.print_json({**shown, "attributes": attributes})
            return
    terminal.print_facts(describe.readable(shown))
    if attributes:
        terminal.print_title("attributes")
        rows = {name: describe.attribute_text(value) for name, value in attributes.items()}
        terminal.print_facts(rows, indent=2)
    if first is not None:
        terminal.print_title("values")
        terminal.show(Text("\n".join(plain(line) for line in first.split("\n"))))


def first_values(member: engram.Array | engram.Blob) -> str:
    """Return the first values of an array, or bytes of a blob, as text."""
    if isinstance(member, engram.Blob):
        head = member[...][: 4 * _FIRST_VALUES]
        return f"{head!r}" + (" …" if member.nbytes > len(head) else "")
    if member.size == 0:
        return "none: a dimension is zero"
    if member.ndim == 0:
        return plain(member[()])
    region = (0,) * (member.ndim - 1) + (slice(0, _FIRST_VALUES),)
    line = np.asarray(member[region])
    text = np.array2string(line, max_line_width=terminal.text_width(), separator=" ")
    return text + (" …" if member.size > line.size else "")


def _pool_facts(pool: Pool) -> dict[str, Any]:
    """Return what is to be told of a pool, as plain values."""
    return {
        "path": str(pool.path),
        "kind": "pool",
        "uuid": pool.uuid,
        "size": pool.size,
        "used": pool.used,
        "durability": pool.durability,
        "devices": [
            {"path": str(d.path), "filesystem": d.filesystem, "free": d.free} for d in pool.devices
        ],
        "namespaces": list(pool.namespaces),
        "members": len(pool),
    }
