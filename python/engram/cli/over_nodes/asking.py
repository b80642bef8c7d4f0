"""`engram query` of a cluster: every node is asked, and what they find is merged."""

from __future__ import annotations

import json as as_json
from typing import TYPE_CHECKING, Any

import typer

from engram.cli import describe, terminal
from engram.cli.app import LEFT_OUT
from engram.cli.over_nodes import facts
from engram.cli.query import params_of
from engram.cluster.listing import found_at, is_group
from engram.errors import ArgumentError

if TYPE_CHECKING:
    from engram.cluster import Cluster, Hit, Hits

_HEADINGS = ("dtype", "shape", "node", "path")


def query_(
    cluster: Cluster,
    expression: str,
    *,
    below: str,
    order_by: list[str] | None,
    limit: int | None,
    offset: int | None,
    param: list[str] | None,
    count: bool,
    names: bool,
    paths: bool,
    partial: bool,
    json: bool,
) -> None:
    """Find arrays in parts, and what lies below groups.

    With `partial`, nodes that do not answer are named, and the exit code says that they are
    missing.
    """
    if sum((count, names, paths)) > 1:
        raise ArgumentError("--count, --names and --paths exclude each other: give one of them")
    given: Any = {"order_by": order_by or None, "limit": limit, "offset": offset}
    given |= {"params": params_of(param), "partial": partial}
    found = _found(cluster, expression, below, given)
    for node, why in sorted(found.missing.items()):
        host = facts.hosts_of(cluster).get(node, "?")
        terminal.note(f"without {host} ({node}): {why}")
    if count:
        terminal.print_json(len(found)) if json else terminal.say(str(len(found)))
    elif names or paths:
        words = [hit.path.rpartition("/")[2] if names else hit.path for hit in found]
        terminal.print_json(words) if json else terminal.print_lines(words)
    elif json:
        terminal.print_json([_told(hit) for hit in found])
    elif len(found):
        hosts = facts.hosts_of(cluster)
        rows = (_row(hit, hosts) for hit in found)
        terminal.print_stream(_HEADINGS, rows, key="path")
    else:
        terminal.say("no objects")
    if found.missing:
        raise typer.Exit(LEFT_OUT)


def _found(cluster: Cluster, expression: str, below: str, given: Any) -> Hits:
    text = expression or None
    if below:
        if not is_group(found_at(cluster, below)):
            raise ArgumentError(f"{below!r} is no group: give --below a group, or none for all")
        within = f"under({as_json.dumps(below, ensure_ascii=False)})"
        text = f"{within} and ({text})" if text else within
    return cluster.query(text, **given)


def _told(hit: Hit) -> dict[str, Any]:
    """Return a hit as plain values."""
    return {
        "path": hit.path,
        "node": hit.node,
        "dtype": None if hit.dtype is None else describe.dtype_text(hit.dtype),
        "shape": list(hit.shape),
        "dims": None if hit.dims is None else list(hit.dims),
        "nbytes": hit.nbytes,
        "attributes": hit.attrs,
    }


def _row(hit: Hit, hosts: dict[str, str]) -> tuple[str, ...]:
    is_blob = hit.dtype is None
    return (
        "blob" if hit.dtype is None else describe.dtype_text(hit.dtype),
        "-" if is_blob else describe.shape_text(hit.shape),
        "in parts" if hit.node is None else hosts.get(hit.node, hit.node),
        hit.path,
    )
