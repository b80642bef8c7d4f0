"""Cards: one for each kind of thing in a pool, and the one door to them.

A card is a line that says what it is, and parts that open at a click; what is most often wanted is
open. Each part that reads the pool may be refused by it, and then gives the reason instead.
"""

from collections.abc import Callable, Iterable, Mapping
from typing import Any

import numpy as np

from engram import owners
from engram.array import Array
from engram.attrs import Attributes
from engram.blob import Blob
from engram.errors import EngramError
from engram.explanation import Explanation
from engram.group import Group
from engram.handle import Handle
from engram.index_stats import IndexStats
from engram.namespace import Namespace, Namespaces
from engram.notebook import parts, queries, stored, values
from engram.notebook.preview import preview
from engram.pool import Pool
from engram.query import QueryResult
from engram.size import human
from engram.table import Table
from engram.tree import Node, Tree, dtype_of, members, shape_of

_ATTRIBUTES = 100
_FIELDS = 50
_NAMESPACES = 100
_BYTES = 64
_ROWS, _COLUMNS, _CELL = 10, 20, 40
"""Rows and columns of a table that its card shows, and characters of each value."""

_LIMITS = {"depth": 3, "limit": 50, "most": 300}
"""Levels, members of a group and lines in all of what a group's card lists."""

_SURVIVES = {
    "process": "what was written survives the death of any process",
    "system": "what was written survives loss of power too",
}


def card(thing: Any) -> str:
    """Show a thing of a pool as HTML, one line; one that cannot be shown, by its `repr`.

    That is a handle, attributes, a tree, a query's result or explanation, the index's figures, or
    an active object.
    """
    try:
        with np.errstate(all="ignore"):  # values are anything, signalling NaN too
            return parts.whole(_body(thing))
    except Exception:  # noqa: BLE001 - a cell's output is never worth a traceback
        return f"<code>{parts.text(repr(thing))}</code>"


def _body(thing: Any) -> str:
    for kind, make in _KINDS:
        if isinstance(thing, kind):
            return make(thing) + (_browser(thing) if isinstance(thing, Handle) else "")
    if type(thing).__module__.startswith("engram.cluster."):
        from engram.notebook import clusters  # noqa: PLC0415 - one node needs none of it

        return clusters.body(thing)
    from engram.notebook import active  # noqa: PLC0415 - nothing else needs active objects

    return active.body(thing)


def _browser(handle: Handle) -> str:
    """Name the command that shows what a handle is of in a browser; nothing of what is closed."""
    if isinstance(handle, Pool):  # whose default namespace may be another user's
        return parts.serve(handle.path) if handle else ""
    return parts.serve(str(handle._namespace.pool_path), handle._namespace.name)


def _array(array: Array) -> str:
    line = parts.head("Array", array.path, shape_of(array), dtype_of(array), human(array.nbytes))
    return (
        line
        + parts.section("Values", lambda: _values(array), is_open=True)
        + _fields(array)
        + attributes(array)
        + parts.section("Stored", lambda: parts.facts(stored.facts(array)))
    )


def _values(array: Array) -> str:
    plain, part = values.shown(array)
    said = "".join(parts.note(line) for line in (values.encoded(array), part) if line)
    picture = ""
    if array.dtype.itemsize <= values.ITEM:
        picture = preview(array)
    return f"{picture}{said}<pre>{parts.lines(plain)}</pre>"


def _fields(array: Array) -> str:
    """List a record's fields, if the dtype has any."""
    fields = array.dtype.fields
    if not fields:
        return ""
    rows = [(name, str(kind[0]), str(kind[1])) for name, kind in list(fields.items())[:_FIELDS]]
    more = parts.more(len(fields) - len(rows))
    made = parts.table(("field", "dtype", "offset"), rows) + more
    return parts.fold("Fields", made, count=f"({len(fields):,})")


def _blob(blob: Blob) -> str:
    first = blob[: min(_BYTES, blob.nbytes)]
    after = "…" if blob.nbytes > len(first) else ""
    return (
        parts.head("Blob", blob.path, human(blob.nbytes))
        + parts.fold("First bytes", f"<pre>{parts.text(first)}{after}</pre>", is_open=True)
        + attributes(blob)
        + parts.section("Stored", lambda: parts.facts(stored.facts(blob)))
    )


def _table(table: Table) -> str:
    rows = len(table)
    return (
        parts.head(
            "Table", table.path, f"{rows:,} row{'' if rows == 1 else 's'}", human(table.nbytes)
        )
        + parts.section("Rows", lambda: _rows_of(table), is_open=True)
        + parts.section("Columns", lambda: _columns_of(table))
        + attributes(table)
        + parts.section("Stored", lambda: parts.facts(stored.facts(table)))
    )


def _rows_of(table: Table) -> str:
    names = table.column_names[:_COLUMNS]
    found = table.read(names, slice(0, _ROWS))
    columns = [[str(value)[:_CELL] for value in column.to_pylist()] for column in found.columns]
    made = parts.table(names, list(zip(*columns, strict=True)))
    return made + parts.more(len(table) - found.num_rows)


def _columns_of(table: Table) -> str:
    fields = list(table.schema)
    made = parts.table(("column", "type"), [(f.name, str(f.type)) for f in fields[:_ATTRIBUTES]])
    return made + parts.more(len(fields) - _ATTRIBUTES)


def _group(group: Group) -> str:
    where = "" if group.namespace == "default" else f"namespace {group.namespace}"
    return (
        parts.head("Group", f"{group.path}/", members(group), where)
        + _members(group)
        + attributes(group)
        + parts.section("Stored", lambda: parts.facts(stored.facts(group)))
    )


def _namespace(namespace: Namespace) -> str:
    line = parts.head("Namespace", namespace.name, members(namespace))
    return (
        line
        + parts.section("Space", lambda: _space(namespace), is_open=True)
        + _members(namespace)
        + attributes(namespace)
    )


def _pool(pool: Pool) -> str:
    if not pool:
        return parts.head("Pool", pool.path, "closed")
    line = parts.head("Pool", pool.path, f"mode {pool.mode}", f"durability {pool.durability}")
    survives = parts.text(f"{pool.durability}: {_SURVIVES.get(pool.durability, '')}")
    return (
        line
        + parts.section("Space", lambda: _space(pool), is_open=True)
        + _members(pool)
        + attributes(pool)
        + parts.section("Namespaces", lambda: _namespaces(pool.namespaces))
        + parts.section("Devices", lambda: _devices(pool))
        + parts.fold("Pool", parts.facts((("durability", survives), ("uuid", pool.uuid))))
    )


def _space(namespace: Namespace) -> str:
    """Show how much of the bound is used, and what else there is of space."""
    space = namespace.space
    used = f"{human(space.used)} of {human(space.size)} used"
    rows = [
        ("used", parts.text(used) + parts.bar(space.used, space.size)),
        ("waiting for views or writers", human(space.pending)),
        ("catalog", human(space.catalog)),
        ("processes", f"{len(space.pids):,}"),
    ]
    return parts.facts(rows)


def _devices(pool: Pool) -> str:
    heads = ("", "path", "filesystem", "medium", "survives power loss", "free")
    rows = [
        (d.index, d.path, d.filesystem, d.medium, "yes" if d.durable else "no", human(d.free))
        for d in pool.devices
    ]
    return parts.table(heads, rows)


def _namespaces(namespaces: Namespaces) -> str:
    infos = sorted(namespaces._pool.namespaces(), key=lambda info: info.name)
    rows = [
        (info.name, owners.user(info.owner), owners.unix_group(info.group), f"{info.mode:04o}")
        for info in infos[:_NAMESPACES]
    ]
    made = parts.table(("name", "owner", "group", "mode"), rows)
    return made + parts.more(len(infos) - len(rows))


def _members(group: Group) -> str:
    def made() -> str:
        tree = Tree(group, _LIMITS["depth"], _LIMITS["limit"], most=_LIMITS["most"])
        if not tree.root.below:
            return parts.soft("none")
        return _rows(tree.root.below)

    return parts.section("Members", made, is_open=True)


def _tree(tree: Tree) -> str:
    groups, objects = tree.counts
    line = parts.head("Tree", tree.root.name, f"{groups:,} groups", f"{objects:,} objects")
    return f"{line}<div class='engram-body'>{_rows(tree.root.below, is_open=True)}</div>"


def _rows(nodes: Iterable[Node], *, is_open: bool = False) -> str:
    return f"<ul>{''.join(_row(node, is_open=is_open) for node in nodes)}</ul>"


def _row(node: Node, *, is_open: bool) -> str:
    name = parts.name(node.name)
    if not node.below:
        cells = " ".join(parts.soft(column) for column in node.columns)
        return f"<li><div class='engram-row'><span>{name}</span> {cells}</div></li>"
    mark = " open" if is_open else ""
    below = _rows(node.below, is_open=is_open)
    cut = node.below[-1].rest
    inner = parts.soft(f"(more than {len(node.below) - 1:,})" if cut else f"({len(node.below):,})")
    return f"<li><details{mark}><summary>{name} {inner}</summary>{below}</details></li>"


def attributes(handle: Any) -> str:
    """Make the part of a thing's attributes; of the reason, where they cannot be read."""
    try:
        number = f"({len(handle.attrs):,})"
    except EngramError:  # told again, with its reason, by the part itself
        number = ""
    return parts.section("Attributes", lambda: _attributes_table(handle.attrs), count=number)


def _attributes_table(attrs: Mapping[str, Any]) -> str:
    """Make a table of attributes: names, values, dtypes."""
    found = list(attrs.items())
    if not found:
        return parts.soft("none")
    rows = []
    for name, value in found[:_ATTRIBUTES]:
        plain, kind = values.of_attribute(value)
        rows.append(
            f"<tr><th>{parts.name(name)}</th><td>{parts.lines(plain)}</td>"
            f"<td class='engram-soft'>{parts.text(kind)}</td></tr>"
        )
    made = f"<table><tbody>{''.join(rows)}</tbody></table>"
    return made + parts.more(len(found) - len(rows))


def _attributes_card(attrs: Attributes) -> str:
    found = len(attrs)
    line = parts.head("Attributes", "", f"{found:,}")
    return f"{line}<div class='engram-body'>{_attributes_table(attrs)}</div>"


def _namespaces_card(namespaces: Namespaces) -> str:
    line = parts.head("Namespaces", "", f"{len(namespaces):,}")
    return f"{line}<div class='engram-body'>{_namespaces(namespaces)}</div>"


_KINDS: tuple[tuple[type, Callable[[Any], str]], ...] = (
    (Pool, _pool),
    (Namespace, _namespace),
    (Group, _group),
    (Table, _table),
    (Array, _array),
    (Blob, _blob),
    (Attributes, _attributes_card),
    (Namespaces, _namespaces_card),
    (Tree, _tree),
    (QueryResult, queries.result),
    (Explanation, queries.explanation),
    (IndexStats, queries.stats),
)
