"""`engram tree`: a group with all that is below it, a line each.

The walk is bounded: `--limit` members of each group, `--depth` levels. What is left out is counted.
"""

from __future__ import annotations

import contextlib
from dataclasses import dataclass, field
from itertools import islice
from typing import TYPE_CHECKING, Annotated, Any

import typer
from rich.text import Text
from rich.tree import Tree

import engram
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
from engram.cli.terminal import counted, plain
from engram.errors import NotFoundError
from engram.size import human

if TYPE_CHECKING:
    from engram.cli.describe import Member

_DEEPEST = 64
"""No deeper than this, whatever is asked: neither JSON nor a terminal has room for more."""


@dataclass
class Node:
    """A member, those below it that are shown, and how many more there are."""

    name: str
    facts: dict[str, Any]
    below: list[Node] = field(default_factory=list)
    more: int = 0


@app.command(
    epilog=examples(
        "engram tree /dev/shm/run",
        "engram tree /dev/shm/run run-17 --depth 2 --limit 20",
        "engram tree --json /dev/shm/run",
    )
)
def tree(
    pool: PoolOrClusterArgument,
    path: WhereArgument = "/",
    *,
    depth: Annotated[
        int | None,
        typer.Option("--depth", "-d", min=1, metavar="LEVELS", help="Go down so many levels."),
    ] = None,
    limit: Annotated[
        int, typer.Option("--limit", min=1, metavar="N", help="At most so many of each group.")
    ] = 100,
    namespace: NamespaceOption = "default",
    json: JsonOption = False,
) -> None:
    """Show a group as a tree, with dtype, shape, dimensions and bytes of what is in it."""
    where = clean(path)
    with opened(pool, namespace) as (handle, root):
        start: Member = root[where] if where else root
        above = handle.path if namespace == "default" else f"{handle.path} ({namespace})"
        node = Node(where or above, _facts(start))
        if isinstance(start, engram.Group):
            _walk(start, node, min(depth or _DEEPEST, _DEEPEST), limit)
    if json:
        terminal.print_json(nested(node))
    else:
        drawing.show(drawn(node))


def _facts(member: Member) -> dict[str, Any]:
    """Return what a line tells, as plain values."""
    told: dict[str, Any] = {"kind": describe.kind(member)}
    if isinstance(member, engram.Array):
        dims = member.dims
        told["dtype"] = describe.dtype_text(member.dtype)
        told["shape"] = list(member.shape)
        if member.chunks is not None:
            told |= {"chunks": list(member.chunks), "codec": member.codec}
        told["dims"] = None if dims is None else list(dims)
    if isinstance(member, engram.Group):
        told["members"] = len(member)
    else:
        told["nbytes"] = member.nbytes
    if isinstance(member, engram.Table):
        told["rows"] = len(member)
    return told


def _walk(group: engram.Group, node: Node, depth: int, limit: int) -> None:
    """Fill in what is below a group; what somebody deletes meanwhile is left out."""
    with contextlib.suppress(NotFoundError):
        for name, member in islice(group.items(), limit):
            with contextlib.suppress(NotFoundError):
                inner = Node(name, _facts(member))
                node.below.append(inner)
                if isinstance(member, engram.Group) and depth > 1:
                    _walk(member, inner, depth - 1, limit)
        node.more = max(len(group) - limit, 0)


def nested(node: Node) -> dict[str, Any]:
    """Return a node as JSON has it."""
    told: dict[str, Any] = {"name": node.name, **node.facts}
    if node.facts["kind"] == "group":
        told["below"] = [nested(inner) for inner in node.below]
        told["left_out"] = node.facts["members"] - len(node.below)
    return told


def drawn(node: Node) -> Tree:
    """Return a node as rich draws it."""
    picture = Tree(_line(node), guide_style=terminal.FAINT)
    for inner in node.below:
        picture.add(drawn(inner))
    if node.more:
        picture.add(Text(f"… and {node.more} more", style=terminal.FAINT))
    return picture


def _line(node: Node) -> Text:
    """Return a node's own line: its name, then what it is."""
    facts = node.facts
    if facts["kind"] == "group":
        line = Text(plain(node.name).rstrip("/") + "/", style=terminal.GROUP)
        if facts["members"] and not node.below:
            line.append(f"  {counted(facts['members'], 'member')}", style=terminal.FAINT)
        return line
    line = Text(plain(node.name))
    if facts["kind"] == "array":
        shape = describe.shape_text(facts["shape"], facts["dims"])
        line.append(f"  {facts['dtype']}", style=terminal.KIND)
        line.append(plain(f"  ({shape})" if facts["shape"] else ""), style=terminal.SHAPE)
        if "chunks" in facts:
            line.append(f"  in chunks of {describe.shape_text(facts['chunks'])}, {facts['codec']}")
        if "parts" in facts:  # of a cluster
            line.append(f"  in {counted(facts['parts'], 'part')}")
    elif facts["kind"] == "table":
        line.append("  table", style=terminal.KIND)
        line.append(f"  ({counted(facts['rows'], 'row')})", style=terminal.SHAPE)
    else:
        line.append("  blob", style=terminal.KIND)
    return line.append(f"  {human(facts['nbytes'])}", style=terminal.FAINT)
