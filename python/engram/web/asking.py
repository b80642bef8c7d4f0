"""Queries on the page: what they find, what a word may go on with, and how they are answered."""

from __future__ import annotations

import re
import time
from collections import Counter
from typing import TYPE_CHECKING, Any

from engram import _engram, results
from engram.errors import ArgumentError, QueryError
from engram.expression import BUILTINS
from engram.expression import attr as field_of
from engram.query import Asked, QueryResult, ask
from engram.size import human
from engram.web import wire
from engram.web.served import ServedCluster, ServedPool, pool_of

if TYPE_CHECKING:
    from collections.abc import Iterator

    from engram.explanation import Explanation
    from engram.namespace import Namespace
    from engram.web.served import Served

LIMIT_MOST = 1000
_OFFSET_MOST = 1_000_000
_CHOICES = 50
_COLUMNS = 12
_SEGMENTS = 200
_ATTRIBUTE, _GROUPS, _BUILTIN = 0, 1, 2
_HAD = ("path", "dtype", "shape")
_WORD = re.compile(r"[@`\w.]*\Z")
_REST = re.compile(r"[\w.]*`?")
_OPERATORS = (
    *("=", "!=", "<", "<=", ">", ">=", "between", "in", "contains", "startswith", "endswith"),
    *("like", "and", "or", "not"),
)
_FUNCTIONS = {
    "exists": "exists(KEY): the attribute is there",
    "under": 'under("GROUP"): lies in this group, at any depth',
}
_COMPARED = re.compile(
    r"((?<![\w.])@?\w[\w.]*|`(?:[^`]|``)+`)\s*(?:=|!=|<=?|>=?|contains|like)\s*\"?[^\s\"]*\Z"
)
_LOOKED_AT = 512
"""So many characters before the place, and behind it, are looked at for what a word may become."""
_VALUES_LOOKED_AT = 500
_CHOICE_MOST = 200
"""A longer text is no choice."""
_READ = 16
"""Attributes of so many objects are read at once."""


def found(served: Served, text: str, order: str, limit: int, offset: int) -> dict[str, Any]:
    """Return a page of what a query finds.

    Raises
    ------
    QueryError
        If it is ill-formed.
    ArgumentError
        If `limit` or `offset` is none.

    """
    if not 1 <= limit <= LIMIT_MOST:
        raise ArgumentError(f"limit {limit} is none: give one of 1 to {LIMIT_MOST}")
    if not 0 <= offset <= _OFFSET_MOST:
        raise ArgumentError(f"offset {offset} is none: give one of 0 to {_OFFSET_MOST:,}")
    begun = time.perf_counter()
    _check(text, order)
    if isinstance(served, ServedCluster):
        told = _of_cluster(served, text, order, limit, offset)
    else:
        told = _of_pool(pool_of(served, "a query"), text, order, limit, offset)
    return told | {"seconds": round(time.perf_counter() - begun, 6)}


def _check(text: str, order: str) -> None:
    """Refuse what is ill-formed; only an error of the query's own text has a place in it."""
    _engram.Query(text, None, None, False, None, False, False)
    try:
        _engram.Query("", order or None, None, False, None, False, False)
    except QueryError as error:
        said = str(error).split("\n")[0].partition(": ")[2]
        raise QueryError(f"the order {order!r} is none: {said}") from None


def _asked(root: Namespace, text: str, order: str = "", limit: int | None = None) -> QueryResult:
    """Ask what somebody is writing: half a word is no typing error."""
    asked = Asked(order or None, limit, by_hand=False)
    return ask(root._namespace, root._id, text or None, asked)


def _of_pool(served: ServedPool, text: str, order: str, limit: int, offset: int) -> dict[str, Any]:
    root = served.root
    result = _asked(root, text, order, offset + limit + 1)
    oids = result.oids()
    page = oids[offset : offset + limit]
    named = [_name(kind, key) for kind, key in result._query.fields if key not in _HAD]
    columns = {name: name for name in named[:_COLUMNS]} or _columns(root, page)
    wanted = list(dict.fromkeys(["@path", "@dtype", "@shape", *columns]))
    rows = [
        _row(every, place, columns)
        for every in _read(root, page, wanted)
        for place in range(len(every["@path"]))
    ]
    return {"columns": list(columns.values()), "rows": rows, "more": len(oids) > offset + limit}


def _columns(root: Namespace, oids: Any) -> dict[str, str]:
    """Return the attributes that most of the objects have, as fields and as they are called."""
    keys = _engram.attribute_keys_of(root._namespace, oids)
    return {str(field_of(key)): key for key, _ in keys[:_COLUMNS]}


def _read(root: Namespace, oids: Any, names: list[str]) -> Iterator[dict[str, list[Any]]]:
    """Yield fields of the objects, those of a few at a time: a value may be large."""
    for start in range(0, len(oids), _READ):
        yield results.lists_of(root._namespace, oids[start : start + _READ], names)


def _row(every: dict[str, list[Any]], place: int, columns: dict[str, str]) -> dict[str, Any]:
    """Return what a listing says of an object."""
    dtype = every["@dtype"][place]
    row: dict[str, Any] = {"path": every["@path"][place]}
    row["kind"] = "blob" if dtype == "bytes" else "array"
    if dtype != "bytes":
        row |= {"dtype": dtype, "shape": _shape(every["@shape"][place])}
    attrs = {called: every[name][place] for name, called in columns.items()}
    row["attrs"] = {
        key: wire.plain(each, wire.LISTED) for key, each in attrs.items() if each is not None
    }
    return row


def _name(kind: int, key: str) -> str:
    """Return a field as queries call it."""
    word = str(field_of(key)) if kind != _BUILTIN else key
    return f"{('', 'group.', '@')[kind]}{word}"


def _shape(text: str) -> list[int]:
    return [int(each) for each in re.findall(r"\d+", text)]


def _of_cluster(
    served: ServedCluster, text: str, order: str, limit: int, offset: int
) -> dict[str, Any]:
    within = f"under({wire.dumps(served.below).decode()})" if served.below else ""
    whole = f"{within} and ({text})" if within and text else within or text
    hits = served.cluster.query(
        whole or None, order_by=order or None, limit=offset + limit + 1, partial=True
    )
    rows, keys = [], Counter[str]()
    for hit in hits[offset : offset + limit]:
        row: dict[str, Any] = {"path": served.relative(hit.path)}
        row["kind"] = "blob" if hit.dtype is None else "array"
        if hit.dtype is not None:
            row |= {"dtype": wire.dtype_text(hit.dtype), "shape": list(hit.shape)}
        row |= {"attrs": wire.attributes(hit.attrs, wire.LISTED), "node": hit.node}
        keys.update(row["attrs"].keys())
        rows.append(row)
    columns = [key for key, _ in keys.most_common(_COLUMNS)]
    for row in rows:
        row["attrs"] = {key: row["attrs"][key] for key in columns if key in row["attrs"]}
    more = len(hits) > offset + limit
    return {"columns": columns, "rows": rows, "more": more, "missing": dict(hits.missing)}


def completed(served: Served, text: str, at: int) -> dict[str, Any]:
    """Return what a word of a query may become.

    Returns
    -------
    dict
        from and to: the word around the place `at`; choices, each with its kind.

    """
    at = min(max(at, 0), len(text))
    before = text[max(at - _LOOKED_AT, 0) : at]
    word = _WORD.search(before)
    begun = word[0] if word else ""
    rest = _REST.match(text[at : at + _LOOKED_AT])
    is_first = not text[: at - len(begun)].strip()
    found = _choices(served, before, is_first=is_first)
    choices = [each for each in found if _fits(each["text"], begun.lower())]
    end = at + (len(rest[0]) if rest else 0)
    return {"from": at - len(begun), "to": end, "choices": choices[:_CHOICES]}


def _fits(word: str, begun: str) -> bool:
    return word.lower().startswith(begun) and word.lower() != begun


def _choices(served: Served, before: str, *, is_first: bool) -> list[dict[str, str]]:
    keys = _keys(served)
    found = _values(served, before)
    found += [{"text": str(field_of(key)), "kind": "key", "note": note} for key, note in keys]
    found += [{"text": f"@{name}", "kind": "key", "note": "of every object"} for name in BUILTINS]
    if not is_first:
        found += [{"text": each, "kind": "operator"} for each in _OPERATORS]
    found += [
        {"text": f"{name}(", "kind": "function", "note": note} for name, note in _FUNCTIONS.items()
    ]
    return found


def _keys(served: Served) -> list[tuple[str, str]]:
    """Return the keys of attributes that the index knows, those that occur most first."""
    if not isinstance(served, ServedPool):
        return []
    served.check()
    counts: Counter[str] = Counter()
    for group in served.root.index_stats().groups:
        for key, number in group.keys.items():
            if not key.startswith("@"):
                counts[key] += number
    if not counts:  # nothing is sealed yet
        counts.update(served.root.query(limit=_VALUES_LOOKED_AT).attribute_keys())
    return [(key, _counted(number, "object")) for key, number in counts.most_common(1000)]


def _values(served: Served, before: str) -> list[dict[str, str]]:
    """Return values that an attribute has which is compared just before the place.

    There are none of what looks like an attribute and is none, such as `not`.
    """
    compared = _COMPARED.search(before)
    if compared is None or not isinstance(served, ServedPool) or compared[1].startswith("@"):
        return []
    name = compared[1]
    try:
        result = _asked(served.root, f"exists({name})", limit=_VALUES_LOOKED_AT)
    except QueryError:
        return []
    texts: Counter[str] = Counter()
    for columns in _read(served.root, result.oids(), [name]):
        for value in columns[name]:
            if not isinstance(value, str) or len(value) > _CHOICE_MOST:
                continue
            texts['"' + value.replace("\\", "\\\\").replace('"', '\\"') + '"'] += 1
    return [
        {"text": text, "kind": "value", "note": _counted(number, "object")}
        for text, number in texts.most_common(_CHOICES)
    ]


def _counted(number: int, what: str) -> str:
    return f"{number:,} {what}{'' if number == 1 else 's'}"


def explained(served: Served, text: str) -> dict[str, Any]:
    """Return how a query is answered: as text, and as a tree."""
    begun = time.perf_counter()
    told = _asked(pool_of(served, "an explanation").root, text).explain()
    seconds = time.perf_counter() - begun
    return {"text": str(told), "tree": _tree(told, seconds)}


def _tree(told: Explanation, seconds: float) -> dict[str, Any]:
    read = [segment for segment in told.segments if segment.read]
    skipped = Counter(segment.why for segment in told.segments if not segment.read)
    conditions = [
        {"label": each.test, "detail": each.how, "children": []} for each in told.conditions
    ]
    segments = [
        {
            "label": f"segment {each.segment}",
            "detail": f"family {each.family}, thread {each.worker}, {human(each.nbytes)}"
            + (f"; {each.why}" if each.why else ""),
            "rows": each.hits,
            "children": [],
        }
        for each in read[:_SEGMENTS]
    ]
    left = [
        {"label": f"{count:,} not read", "detail": why, "children": []}
        for why, count in skipped.most_common(_SEGMENTS)
    ]
    judged = [
        {"label": name, "rows": count, "children": []}
        for name, count in told.records.items()
        if count
    ]
    share = f"{len(read):,} of {len(told.segments):,} segments read"
    return {
        "label": told.query or "all objects",
        "detail": f"by {_counted(told.threads, 'thread')}",
        "rows": told.hits,
        "seconds": round(seconds, 6),
        "children": [
            {"label": "conditions", "children": conditions},
            {"label": "index", "detail": share, "children": [*segments, *left]},
            {"label": "records", "detail": "objects judged by their records", "children": judged},
        ],
    }
