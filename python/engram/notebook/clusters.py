"""The cards of a cluster, and of an array whose parts lie on several nodes.

They are made of what the thing itself tells: this module knows no cluster, and imports none.
"""

import math
from collections.abc import Iterable
from itertools import islice
from typing import Any

from engram.notebook import parts
from engram.notebook.cards import attributes_table
from engram.size import human

_NODES = 50
_NAMES = 50
_BOXES = 1024
"""As many boxes are drawn."""
_LISTED = 20
_WIDTH, _TALLEST, _LOWEST = 320, 200, 24
_GOLDEN = 137.508
"""Degrees from one colour to the next: of any number of nodes, neighbours differ."""
_FEW_DIMS = 2


def body(thing: Any) -> str:
    """Make the card of something of a cluster.

    Raises
    ------
    TypeError
        If it has none.

    """
    kind = type(thing).__name__
    if kind == "Cluster":
        return _cluster(thing)
    if kind == "ClusterArray":
        return _array(thing)
    raise TypeError(f"{kind} has no card")


def _cluster(cluster: Any) -> str:
    members = cluster.members
    away = [each for each in members if each.state != "serving"]
    told = f"{len(away):,} of them not there" if away else "all there"
    number = f"{len(members):,} node{'' if len(members) == 1 else 's'}"
    line = parts.head("Cluster", cluster.url(), number, told if members else "", _epoch(cluster))
    return (
        line
        + parts.section("Nodes", lambda: _nodes(cluster, members), is_open=True)
        + parts.section("Away", lambda: _away(away), is_open=True) * bool(away)
        + parts.section("Names", lambda: _names(cluster), is_open=True)
    )


def _epoch(cluster: Any) -> str:
    return f"epoch {cluster.epoch}"


def _nodes(cluster: Any, members: list[Any]) -> str:
    if not members:
        return parts.soft("none: start one with engram.cluster.serve")
    rows = []
    for each in members[:_NODES]:
        space = cluster.space(each.node)
        free = "" if space is None else f"{human(space.free)} of {human(space.size)}"
        own = "this host's" if each.node == cluster.node else ""
        rows.append((each.host, each.state, free, each.weight, each.path, each.node, own))
    heads = ("host", "state", "free", "weight", "pool", "node", "")
    return parts.table(heads, rows) + parts.more(len(members) - len(rows))


def _away(away: list[Any]) -> str:
    rows = [
        (each.host, each.state, f"{each.since:%Y-%m-%d %H:%M:%S} UTC" if each.since else "")
        for each in away[:_NODES]
    ]
    return parts.table(("host", "state", "since"), rows) + parts.more(len(away) - len(rows))


def _names(cluster: Any) -> str:
    handles = list(islice(cluster._handles(""), _NAMES))
    if not handles:
        return parts.soft("none")
    made = parts.table(("name", "", "shape", "parts"), [_named(*each) for each in handles])
    return made + parts.more(len(cluster.names()) - len(handles))


def _named(path: str, thing: Any) -> tuple[object, ...]:
    if type(thing).__name__ == "ClusterArray":
        shape = " x ".join(map(str, thing.shape)) or "scalar"
        return path, thing.dtype, shape, len(thing.parts)
    nodes = len(thing.nodes)
    return f"{path}/", "group", "", "on one node" if nodes == 1 else f"over {nodes} nodes"


def _array(array: Any) -> str:
    dims = array.dims or ()
    named = [f"{dim}: {n}" for dim, n in zip(dims, array.shape, strict=False)]
    shape = ", ".join(named or map(str, array.shape)) or "scalar"
    nbytes = math.prod(array.shape) * array.dtype.itemsize
    every = array.parts
    number = f"{len(every):,} part{'' if len(every) == 1 else 's'}"
    title = array.cluster.url(array.path)
    state = "sealed" if array.sealed else "written in place"
    facts = [
        ("generation", f"{array.generation:,}"),
        ("replicas", f"{array.replicas:,}"),
        ("state", parts.text(f"{state}: {_STATES[array.sealed]}")),
    ]
    count = f"({len(array.attrs):,})"
    return (
        parts.head("Array", title, shape, str(array.dtype), human(nbytes), number)
        + parts.section("Boxes", lambda: _boxes(array, every), is_open=True)
        + parts.section("Attributes", lambda: attributes_table(array.attrs), count=count)
        + parts.section("Published", lambda: parts.facts(facts), is_open=True)
        + parts.section("Parts", lambda: _parts(array, every))
    )


_STATES = {
    True: "nothing of it is written again, and each part has a checksum",
    False: "each node writes its own parts; publish() ends that",
}


def _hosts(array: Any) -> dict[str, str]:
    return {each.node: each.host for each in array.cluster.members}


def _parts(array: Any, every: list[Any]) -> str:
    hosts = _hosts(array)
    rows = [
        (part.number, _box(part), human(part.nbytes), _at(part, hosts)) for part in every[:_LISTED]
    ]
    made = parts.table(("part", "box", "bytes", "at"), rows)
    return made + parts.more(len(every) - len(rows))


def _box(part: Any) -> str:
    pairs = zip(part.box.offsets, part.box.counts, strict=True)
    return "[" + ", ".join(f"{at}:{at + n}" for at, n in pairs) + "]"


def _at(part: Any, hosts: dict[str, str]) -> str:
    return ", ".join(hosts.get(node, node) for node in part.nodes)


def _boxes(array: Any, every: list[Any]) -> str:
    """Draw the boxes along the last two long dimensions, and say which colour is which node."""
    hosts = _hosts(array)
    nodes = sorted({node for part in every for node in part.nodes}, key=lambda n: hosts.get(n, n))
    if not every:
        return parts.soft("none: it has no items")
    long = [axis for axis, length in enumerate(array.shape) if length > 1][-_FEW_DIMS:]
    shown = [part for part in every if _is_first(part, long)]
    picture = _drawn(array.shape, long, shown[:_BOXES], nodes, hosts)
    kept = ", ".join(":" if axis in long else "0" for axis in range(len(array.shape)))
    note = f"at [{kept}]; " if len(long) < len(array.shape) and array.shape else ""
    cut = f"{_BOXES:,} of {len(shown):,} boxes; " if len(shown) > _BOXES else ""
    note += f"{cut}a colour is the first holder"
    return picture + parts.note(note) + _legend(array, every, nodes, hosts)


def _is_first(part: Any, long: list[int]) -> bool:
    """Whether a box is at the beginning of all dimensions that are not drawn."""
    pairs = enumerate(part.box.offsets)
    return all(axis in long or at == 0 for axis, at in pairs)


def _drawn(
    shape: tuple[int, ...],
    long: list[int],
    boxes: Iterable[Any],
    nodes: list[str],
    hosts: dict[str, str],
) -> str:
    rows, columns = ([1, 1, *(shape[axis] for axis in long)])[-2:]
    height = min(max(_WIDTH * rows // columns, _LOWEST), _TALLEST)
    across, down = _WIDTH / columns, height / rows
    made = []
    for part in boxes:
        ends = [(part.box.offsets[axis], part.box.counts[axis]) for axis in long]
        (top, tall), (left, wide) = ([(0, 1), (0, 1), *ends])[-2:]
        title = parts.text(f"part {part.number} {_box(part)}: {_at(part, hosts)}")
        made.append(
            f"<rect x='{left * across:.1f}' y='{top * down:.1f}' width='{wide * across:.1f}' "
            f"height='{tall * down:.1f}' fill='{_colour(nodes.index(part.node))}' "
            f"fill-opacity='.75' stroke='currentColor' stroke-width='.7'><title>{title}</title>"
            "</rect>"
        )
    return (
        f"<svg width='{_WIDTH}' height='{height}' viewBox='-1 -1 {_WIDTH + 2} {height + 2}' "
        f"role='img'>{''.join(made)}</svg>"
    )


def _colour(number: int) -> str:
    return f"hsl({(200 + number * _GOLDEN) % 360:.0f},55%,55%)"


def _legend(array: Any, every: list[Any], nodes: list[str], hosts: dict[str, str]) -> str:
    """List the nodes that hold something, with their colour and how much it is."""
    held: dict[str, list[int]] = {node: [] for node in nodes}
    for part in every:
        for node in part.nodes:
            held[node].append(part.nbytes)
    rows = [
        f"<tr><td><svg width='12' height='12'><rect width='12' height='12' rx='2' "
        f"fill='{_colour(number)}' fill-opacity='.75'/></svg></td>"
        f"<td>{parts.name(hosts.get(node, node))}</td><td>{len(held[node]):,} boxes</td>"
        f"<td>{human(sum(held[node]))}</td><td>{parts.soft(_where(array, node))}</td></tr>"
        for number, node in enumerate(nodes[:_LISTED])
    ]
    made = f"<table><tbody>{''.join(rows)}</tbody></table>"
    return made + parts.more(len(nodes) - len(rows))


def _where(array: Any, node: str) -> str:
    return "this host" if node == array.cluster.node else node
