"""The cards of a cluster, of what is in it, and of what is found there.

They are made of what the thing itself tells: this module knows no cluster, and imports none.
"""

import math
from collections.abc import Iterable
from itertools import islice
from typing import Any

from engram.notebook import parts
from engram.notebook.cards import attributes
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
_CORNER = 6
_BYTES = 64
_TEXTS = 1 << 16
"""Texts on another node are shown up to so many bytes, since they are read as a whole."""


def body(thing: Any) -> str:
    """Make the card of something of a cluster.

    Raises
    ------
    TypeError
        If it has none.

    """
    kind = type(thing).__name__
    if kind not in _KINDS:
        raise TypeError(f"{kind} has no card")
    return _KINDS[kind](thing)


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
        + parts.serve(cluster.url())
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
    return (
        parts.head("Array", title, shape, str(array.dtype), human(nbytes), number)
        + parts.section("Boxes", lambda: _boxes(array, every), is_open=True)
        + attributes(array)
        + parts.section("Published", lambda: parts.facts(facts), is_open=True)
        + parts.section("Parts", lambda: _parts(array, every))
    )


_STATES = {
    True: "nothing of it is written again, and each part has a checksum",
    False: "each node writes its own parts; publish() ends that",
}


def _hosts(thing: Any) -> dict[str, str]:
    return {each.node: each.host for each in thing.cluster.members}


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


def _group(group: Any) -> str:
    number = len(group.nodes)
    where = "on one node" if number == 1 else f"over {number:,} nodes"
    return (
        parts.head("Group", f"{group.cluster.url(group.path)}/", where)
        + parts.section("Members", lambda: _members(group), is_open=True)
        + attributes(group)
        + parts.section("Nodes", lambda: _nodes_of(group.cluster, group.nodes))
    )


def _members(group: Any) -> str:
    found = list(islice(group.listed(), _NAMES + 1))
    if not found:
        return parts.soft("none")
    made = parts.table(("name", "", "shape"), [_member(*each) for each in found[:_NAMES]])
    return made + parts.note("... and more") * (len(found) > _NAMES)


def _member(name: str, thing: Any) -> tuple[object, ...]:
    if hasattr(thing, "listed"):
        return f"{name}/", "group", ""
    dtype = getattr(thing, "dtype", None)  # tables have a shape, and none
    if dtype is not None:
        return name, dtype, _shape(thing)
    return name, type(thing).__name__.removeprefix("Far").lower(), human(thing.nbytes)


def _shape(thing: Any) -> str:
    return " x ".join(map(str, thing.shape)) or "scalar"


def _nodes_of(cluster: Any, nodes: list[str]) -> str:
    there = {each.node: each for each in cluster.members}
    rows = [
        (there[node].host, there[node].state, node) if node in there else ("", "unknown", node)
        for node in nodes[:_NODES]
    ]
    return parts.table(("host", "state", "node"), rows) + parts.more(len(nodes) - len(rows))


def _far(thing: Any) -> str:
    """Show what lies on another node: its first values are asked for."""
    is_blob = type(thing).__name__ == "FarBlob"
    told = () if is_blob else (_dims(thing), str(thing.dtype))
    title = thing._tree.cluster.url(thing.path)
    facts = [
        ("owner", parts.text(thing.owner)),
        ("created", parts.text(f"{thing.created:%Y-%m-%d %H:%M:%S} UTC")),
        ("modified", parts.text(f"{thing.modified:%Y-%m-%d %H:%M:%S} UTC")),
    ]
    return (
        parts.head("Blob" if is_blob else "Array", title, *told, human(thing.nbytes))
        + parts.section("First values", lambda: _first(thing), is_open=True)
        + attributes(thing)
        + parts.section("Node", lambda: _nodes_of(thing._tree.cluster, [thing.node]))
        + parts.section("Stored", lambda: parts.facts(facts))
    )


def _dims(thing: Any) -> str:
    named = [f"{dim}: {n}" for dim, n in zip(thing.dims or (), thing.shape, strict=False)]
    return ", ".join(named or map(str, thing.shape)) or "scalar"


def _first(thing: Any) -> str:
    """Read as little as shows what it is: a corner of the last two dimensions, or a few bytes."""
    if type(thing).__name__ == "FarBlob":
        found = thing[: min(_BYTES, thing.nbytes)]
        return f"<pre>{parts.text(found)}{'…' if thing.nbytes > len(found) else ''}</pre>"
    if thing.dtype.kind == "T" and thing.nbytes > _TEXTS:
        return parts.soft("texts, which are read as a whole: read them to see them")
    if not thing.size:
        return parts.soft("none: it has no items")
    before = max(0, thing.ndim - _FEW_DIMS)
    key = (*[0] * before, *[slice(_CORNER)] * (thing.ndim - before))
    is_cut = before or any(length > _CORNER for length in thing.shape)
    at = ", ".join("0" if isinstance(one, int) else f":{_CORNER}" for one in key)
    note = parts.note(f"at [{at}]") * bool(is_cut)
    return f"{note}<pre>{parts.lines(str(thing[key]))}</pre>"


def _hits(hits: Any) -> str:
    count = len(hits)
    number = f"{count:,} object{'' if count == 1 else 's'}"
    missing = list(hits.missing.items())
    without = f"without {len(missing):,} node{'' if len(missing) == 1 else 's'}" if missing else ""
    return (
        parts.head("Found", hits.cluster.url(), number, without)
        + parts.section("Objects", lambda: _found(hits), is_open=True)
        + parts.section("Missing", lambda: _missing(missing), is_open=True) * bool(missing)
    )


def _found(hits: Any) -> str:
    if not len(hits):
        return parts.soft("none")
    hosts = _hosts(hits)
    rows = [
        (
            hit.path,
            "bytes" if hit.dtype is None else hit.dtype,
            human(hit.nbytes) if hit.dtype is None else _shape(hit),
            "in parts" if hit.node is None else hosts.get(hit.node, hit.node),
        )
        for hit in hits[:_LISTED]
    ]
    return parts.table(("path", "dtype", "shape", "at"), rows) + parts.more(len(hits) - len(rows))


def _missing(missing: list[tuple[str, str]]) -> str:
    return parts.table(("node", "why"), missing[:_NODES]) + parts.more(len(missing) - _NODES)


_KINDS = {
    "Cluster": _cluster,
    "ClusterArray": _array,
    "ClusterGroup": _group,
    "FarArray": _far,
    "FarBlob": _far,
    "Hits": _hits,
}
