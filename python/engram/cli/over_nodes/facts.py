"""What is told of what is in a cluster: the same words for every verb, and in JSON."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Any

import engram
from engram.cli import describe, drawing, terminal
from engram.cluster import ClusterArray, ClusterGroup, FarBlob
from engram.cluster.listing import NameGroup
from engram.size import human

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Sequence

    from engram.cluster import Cluster
    from engram.cluster.boxes import Box

_FEW = 3


def kind(thing: Any) -> str:
    """Return the word for what something is."""
    if isinstance(thing, NameGroup | ClusterGroup):
        return "group"
    if isinstance(thing, engram.Table):
        return "table"
    return "blob" if isinstance(thing, FarBlob | engram.Blob) else "array"


def of(cluster: Cluster, name: str, thing: Any) -> dict[str, Any]:
    """Return what is to be told of something, as plain values."""
    told: dict[str, Any] = {"name": name, "path": thing.path, "kind": kind(thing)}
    if isinstance(thing, ClusterGroup):
        told["nodes"] = thing.nodes
        told["spread"] = "node" if len(thing.nodes) == 1 else "hash"
    elif isinstance(thing, engram.Table):
        told |= {"rows": len(thing), "nbytes": thing.nbytes, "nodes": [cluster.node]}
    elif not isinstance(thing, NameGroup):
        told |= _of_object(cluster, thing)
    return told


def _of_object(cluster: Cluster, thing: Any) -> dict[str, Any]:
    told: dict[str, Any] = {}
    if kind(thing) == "array":
        told["dtype"] = describe.dtype_text(thing.dtype)
        told["shape"] = list(thing.shape)
        told["dims"] = None if thing.dims is None else list(thing.dims)
    told["nbytes"] = nbytes_of(thing)
    if isinstance(thing, ClusterArray):
        told["parts"] = len(thing.parts)
        told["generation"] = thing.generation
        told["replicas"] = thing.replicas
        told["sealed"] = thing.sealed
        told["nodes"] = list(thing.holders())
    else:
        told["nodes"] = [getattr(thing, "node", cluster.node)]
    return told


def nbytes_of(thing: Any) -> int:
    """Return how many bytes a value has; of an array in parts, of all items once."""
    if isinstance(thing, ClusterArray):
        return math.prod(thing.shape) * thing.dtype.itemsize
    return int(thing.nbytes)


def bytes_at(cluster: Cluster, thing: Any) -> Iterator[tuple[str, int]]:
    """Yield how many bytes of something lie on each node."""
    if isinstance(thing, ClusterArray):
        for part in thing.parts:
            for node in part.nodes:
                yield node, part.nbytes
    elif not isinstance(thing, NameGroup | ClusterGroup):
        yield getattr(thing, "node", None) or str(cluster.node), thing.nbytes


def boxes(array: ClusterArray) -> Iterator[dict[str, Any]]:
    """Yield the parts of an array, as plain values."""
    for part in array.parts:
        yield {
            "part": part.number,
            "offsets": list(part.box.offsets),
            "counts": list(part.box.counts),
            "nbytes": part.nbytes,
            "nodes": list(part.nodes),
        }


def box_text(box: Box) -> str:
    """Return a box as an index of numpy's."""
    pairs = zip(box.offsets, box.counts, strict=True)
    return "[" + ", ".join(f"{at}:{at + n}" for at, n in pairs) + "]"


def few(words: Sequence[str]) -> str:
    """Return some of many words."""
    more = f" and {len(words) - _FEW} more" if len(words) > _FEW else ""
    return ", ".join(words[:_FEW]) + more


def hosts_of(cluster: Cluster) -> dict[str, str]:
    """Return the host of each node."""
    return {each.node: each.host for each in cluster.members}


def nodes_of(cluster: Cluster) -> list[dict[str, Any]]:
    """Return what the map has of each node, as plain values."""
    return [
        {
            "node": each.node,
            "host": each.host,
            "state": each.state,
            "since": each.since,
            "address": each.address,
            "pool": each.path,
            "weight": each.weight,
        }
        for each in cluster.members
    ]


def of_cluster(cluster: Cluster) -> dict[str, Any]:
    """Return what is to be told of a cluster."""
    return {
        "path": cluster.url(),
        "kind": "cluster",
        "epoch": cluster.epoch,
        "names": len(cluster.names()),
        "node": cluster.node,
        "members": nodes_of(cluster),
    }


def print_nodes(nodes: Iterable[dict[str, Any]]) -> None:
    """Print a line for each node."""
    headings = ["host", "state", "pool", "address", "node"]
    rows = []
    for each in nodes:
        since = f" since {terminal.iso(each['since'])}" if each["since"] else ""
        row = [each["host"], each["state"] + since, each["pool"], each["address"], each["node"]]
        if "holds" in each:
            free = each["space"]
            row[2:2] = [human(each["holds"]), "-" if free is None else human(free.free)]
        rows.append(row)
    if rows and len(rows[0]) > len(headings):
        headings[2:2] = ["holds", "free"]
    if rows:
        drawing.print_table(headings, rows, key="node", right=("holds", "free"), indent=2)
    else:
        terminal.say("  none yet")
