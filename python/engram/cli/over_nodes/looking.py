"""`engram ls`, `tree`, `info` and `stats` of a cluster: names, boxes, holders and nodes."""

from __future__ import annotations

import contextlib
import heapq
import sys
from collections import Counter
from itertools import islice
from typing import TYPE_CHECKING, Any

import numpy as np
from rich.text import Text

from engram.cli import describe, drawing, terminal
from engram.cli.over_nodes import facts
from engram.cli.terminal import counted, plain
from engram.cli.tree import Node, drawn, nested
from engram.cluster import ClusterArray
from engram.cluster.listing import found_at, is_group, walked
from engram.errors import NotFoundError
from engram.size import human

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

    from engram.cluster import Cluster

_HEADINGS = ("kind", "dtype", "shape", "bytes", "parts", "nodes", "name")
_DEEPEST = 64
_BOXES = 20
_FIRST_VALUES = 12


def ls_(cluster: Cluster, path: str, *, long: bool, recursive: bool, json: bool) -> None:
    """List what is in a group."""
    start = found_at(cluster, path)
    if is_group(start):
        found = walked(start) if recursive else start.listed()
    else:
        found = iter([(path, start)])
    if json:
        terminal.print_json([facts.of(cluster, name, thing) for name, thing in found])
    elif long:
        terminal.print_stream(_HEADINGS, _rows(cluster, found), key="name", right=("bytes",))
    else:
        for name, thing in found:
            sys.stdout.write(plain(name) + ("/" if is_group(thing) else "") + "\n")


def _rows(cluster: Cluster, found: Iterable[tuple[str, Any]]) -> Iterator[tuple[str, ...]]:
    """Yield what `ls -l` shows of each."""
    hosts = facts.hosts_of(cluster)
    for name, thing in found:
        told = facts.of(cluster, name, thing)
        nodes = [hosts.get(node, node) for node in told.get("nodes", [])]
        yield (
            told["kind"],
            told.get("dtype", "-"),
            describe.shape_text(told["shape"]) if "shape" in told else "-",
            human(told["nbytes"]) if "nbytes" in told else "-",
            str(told.get("parts", "-")),
            facts.few(nodes) or "-",
            name + ("/" if is_group(thing) else ""),
        )


def tree_(cluster: Cluster, path: str, *, depth: int | None, limit: int, json: bool) -> None:
    """Show a group as a tree."""
    start = found_at(cluster, path)
    top = Node(path or cluster.url(), _line(cluster, start))
    _grow(cluster, start, top, min(depth or _DEEPEST, _DEEPEST), limit)
    terminal.print_json(nested(top)) if json else drawing.show(drawn(top))


def _line(cluster: Cluster, thing: Any) -> dict[str, Any]:
    """Return what a line of a tree tells."""
    told = facts.of(cluster, "", thing)
    kept = ("kind", "dtype", "shape", "dims", "nbytes", "rows", "parts", "nodes", "spread")
    line = {key: told[key] for key in kept if key in told}
    if is_group(thing):
        line["members"] = 0
    return {"dims": None, **line} if "shape" in line else line


def _grow(cluster: Cluster, thing: Any, node: Node, depth: int, limit: int) -> None:
    """Fill in what is below; what is removed meanwhile is left out."""
    if not is_group(thing):
        return
    with contextlib.suppress(NotFoundError):
        for name, member in thing.listed():
            node.facts["members"] += 1
            if not depth:
                continue  # they are counted
            if len(node.below) >= limit:
                node.more += 1
                continue
            inner = Node(name, _line(cluster, member))
            node.below.append(inner)
            _grow(cluster, member, inner, depth - 1, limit)


def info_(cluster: Cluster, path: str, *, json: bool) -> None:
    """Show a cluster, or what lies at a path of it."""
    thing = found_at(cluster, path)
    told = facts.of_cluster(cluster) if not path else facts.of(cluster, path, thing)
    attributes = dict(thing.attrs.items())
    first, more = _first(thing)
    if json:
        boxes = {"boxes": list(facts.boxes(thing))} if isinstance(thing, ClusterArray) else {}
        values = {} if first is None else {"first_values": first}
        terminal.print_json({**told, **boxes, **values, "attributes": attributes})
        return
    members = told.pop("members", None) if not path else None
    hosts = facts.hosts_of(cluster)
    if "nodes" in told:
        told["nodes"] = [f"{hosts.get(node, '?')} ({node})" for node in told["nodes"]]
    drawing.print_facts(describe.readable(told))
    if members is not None:
        drawing.print_title("nodes")
        facts.print_nodes(members)
    if isinstance(thing, ClusterArray):
        _print_boxes(thing, hosts)
    if attributes:
        drawing.print_title("attributes")
        rows = {name: describe.attribute_text(value) for name, value in attributes.items()}
        drawing.print_facts(rows, indent=2)
    if first is not None:
        drawing.print_title("values")
        text = f"{first!r}" if isinstance(first, bytes) else np.array2string(first, separator=" ")
        drawing.show(Text(plain(text.replace("\n", " ") + (" …" if more else ""))))


def _first(thing: Any) -> tuple[Any, bool]:
    """Return the first values of an array, or bytes of a blob, and whether there are more."""
    if is_group(thing) or (not hasattr(thing, "nbytes") and not isinstance(thing, ClusterArray)):
        return None, False
    shape = getattr(thing, "shape", None)
    if facts.kind(thing) == "blob":
        head = bytes(thing[: 4 * _FIRST_VALUES])
        return head, thing.nbytes > len(head)
    if facts.kind(thing) != "array" or shape is None:
        return None, False
    if not thing.size:
        return np.empty(0, thing.dtype), False
    region = (0,) * (len(shape) - 1) + (slice(0, _FIRST_VALUES),) if shape else ()
    values = np.asarray(thing[region])
    return values, thing.size > values.size


def _print_boxes(array: ClusterArray, hosts: dict[str, str]) -> None:
    """Print the parts, with their boxes and where they lie."""
    drawing.print_title("parts")
    rows = [
        (
            str(part.number),
            facts.box_text(part.box),
            human(part.nbytes),
            ", ".join(hosts.get(node, node) for node in part.nodes),
        )
        for part in islice(array.parts, _BOXES)
    ]
    drawing.print_table(("part", "box", "bytes", "at"), rows, key="at", right=("bytes",), indent=2)
    if len(array.parts) > _BOXES:
        terminal.say(f"  … and {counted(len(array.parts) - _BOXES, 'more')}; --json has all")


def stats_(cluster: Cluster, path: str, *, top: int, json: bool) -> None:
    """Count what is in a cluster or a group of it, and what lies on each node."""
    start = found_at(cluster, path)
    kinds: Counter[str] = Counter()
    bytes_by_node: Counter[str] = Counter()
    largest: list[tuple[int, str]] = []
    nbytes = 0
    for name, thing in walked(start) if is_group(start) else [("", start)]:
        kinds[facts.kind(thing)] += 1
        whole = "/".join(filter(None, (path, name)))
        for node, size in facts.bytes_at(cluster, thing):
            bytes_by_node[node] += size
            nbytes += size
        if top and not is_group(thing):
            heapq.heappush(largest, (facts.nbytes_of(thing), whole))
            if len(largest) > top:
                heapq.heappop(largest)
    nodes = [
        {**each, "holds": bytes_by_node[each["node"]], "space": cluster.space(each["node"])}
        for each in facts.nodes_of(cluster)
    ]
    told = {
        "cluster": cluster.url(),
        "path": path,
        **{f"{kind}s": kinds[kind] for kind in ("group", "array", "blob", "table")},
        "nbytes": nbytes,
        "largest": [{"path": name, "nbytes": size} for size, name in sorted(largest, reverse=True)],
        "nodes": nodes,
    }
    if json:
        terminal.print_json(told)
        return
    counts = [counted(kinds[kind], kind) for kind in ("array", "blob", "table", "group")]
    terminal.say(f"{cluster.url(path)}: {', '.join(counts)}; {human(nbytes)} with all copies")
    facts.print_nodes(nodes)
    if largest:
        drawing.print_title("largest")
        rows = [(human(size), name) for size, name in sorted(largest, reverse=True)]
        drawing.print_table(("bytes", "name"), rows, key="name", right=("bytes",), indent=2)
