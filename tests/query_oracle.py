"""Queries answered by brute force in plain Python: what the engine is compared with.

Nothing here knows the engine's cells, index or parser. Objects are read through handles; what a
condition means is written from the design's section 8 alone. Conditions write themselves in the
query language.
"""

from __future__ import annotations

import dataclasses
import datetime as dt
import fractions
import math
import re
from dataclasses import dataclass
from functools import cmp_to_key
from typing import TYPE_CHECKING, Any

import numpy as np

import engram

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator

_NS_UNITS = {
    "ns": 1,
    "us": 10**3,
    "ms": 10**6,
    "s": 10**9,
    "m": 60 * 10**9,
    "h": 3600 * 10**9,
    "D": 86_400 * 10**9,
    "W": 7 * 86_400 * 10**9,
}
_FINE_UNITS = {"ps": 10**3, "fs": 10**6, "as": 10**9}
_EPOCH = dt.date(1970, 1, 1).toordinal()
_BARE = re.compile(r"[A-Za-z_][A-Za-z0-9_]*")
_WORDS = {
    *("and", "or", "not", "in", "between", "contains", "startswith", "endswith", "like", "exists"),
    *("under", "order", "by", "limit", "asc", "desc", "true", "false", "group", "inf", "nan"),
}


@dataclass(frozen=True)
class Item:
    """One comparable value: its kind (number, time, text or other), and what is compared."""

    kind: str
    value: Any = None
    of_array: bool = dataclasses.field(default=False, compare=False)
    """Whether it is the one item of an array, which contains it as a whole."""


OTHER = Item("other")
Value = Item | list[Item]


def value_of(stored: Any) -> Value:
    """Give what an attribute's value is to a query: one item, or a list of none or several."""
    if isinstance(stored, str):
        return Item("text", str(stored).rstrip("\0") if isinstance(stored, np.str_) else stored)
    if isinstance(stored, bytes):
        return _bytes(bytes(stored))
    array = np.asarray(stored)
    if array.dtype.kind == "V":
        return OTHER
    items = [_item(array.dtype, array[place]) for place in np.ndindex(array.shape)]
    if len(items) != 1:
        return items
    return dataclasses.replace(items[0], of_array=array.ndim > 0)


def _bytes(raw: bytes) -> Item:
    try:
        return Item("text", raw.rstrip(b"\0").decode())
    except UnicodeDecodeError:
        return OTHER


def _item(dtype: np.dtype[Any], one: Any) -> Item:
    if dtype.kind in "biu":
        return Item("number", int(one))
    if dtype.kind == "f":
        return Item("number", float(one))
    if dtype.kind == "M":
        return _time(np.datetime64(one))
    if dtype.kind == "S":
        return _bytes(bytes(one))
    if dtype.kind in "UT":
        text = str(one)
        return Item("text", text.rstrip("\0") if dtype.kind == "U" else text)
    return OTHER


def _time(when: np.datetime64) -> Item:
    unit, step = np.datetime_data(when.dtype)
    count = int(when.astype("i8"))
    if unit == "generic" or np.isnat(when):
        return OTHER
    count *= step
    if unit in {"Y", "M"}:
        months = count * 12 if unit == "Y" else count
        year, month = 1970 + months // 12, months % 12 + 1
        shift = 0
        while year < 1:  # which Python's calendar has not; it repeats after 400 years
            year, shift = year + 400, shift - 146_097
        while year > dt.MAXYEAR:
            year, shift = year - 400, shift + 146_097
        days = dt.date(year, month, 1).toordinal() - _EPOCH + shift
        ns = days * _NS_UNITS["D"]
    elif unit in _FINE_UNITS:
        ns = count // _FINE_UNITS[unit]
    else:
        ns = count * _NS_UNITS[unit]
    return Item("time", ns)


def literal_items(value: Any) -> list[Item]:
    """Give what a literal may be compared as: a text also as the times that it names."""
    if not isinstance(value, str):
        return [Item("number", value)]
    found = [Item("text", value)]
    if re.fullmatch(r"\d{4}(-\d\d(-\d\d([T ]\d\d(:\d\d(:\d\d(\.\d{1,9})?)?)?)?)?)?", value):
        first = np.datetime64(value.replace(" ", "T"))
        if np.datetime_data(first.dtype)[0] in {"Y", "M", "D"}:  # the whole of it
            next_ns = _time(first + 1).value
            found.append(Item("time", range(_time(first).value, next_ns)))
        else:
            found.append(_time(first))
    return found


def _like(pattern: str) -> re.Pattern[str]:
    made, place = "", 0
    while place < len(pattern):
        letter = pattern[place]
        if letter == "\\" and place + 1 < len(pattern):
            place += 1
            made += re.escape(pattern[place])
        else:
            made += {"%": ".*", "_": "."}.get(letter, re.escape(letter))
        place += 1
    return re.compile(made, re.DOTALL)


_COMPARE: dict[str, Callable[[Any, Any], bool]] = {
    "=": lambda a, b: a == b,
    "!=": lambda a, b: a != b,
    "<": lambda a, b: a < b,
    "<=": lambda a, b: a <= b,
    ">": lambda a, b: a > b,
    ">=": lambda a, b: a >= b,
}


_TEXTUAL: dict[str, Callable[[str, str], bool]] = {
    "contains": lambda text, part: part in text,
    "startswith": str.startswith,
    "endswith": str.endswith,
    "like": lambda text, pattern: _like(pattern).fullmatch(text) is not None,
}


def _compared(item: Item, operator: str, literal: Any) -> bool:
    alike = [known.value for known in literal_items(literal) if known.kind == item.kind]
    return any(_COMPARE[operator](*_beside(item.value, known)) for known in alike)


def _beside(value: Any, known: Any) -> tuple[Any, Any]:
    """Give two things that compare as a value and a literal do: a range equals all in it."""
    if isinstance(known, range):
        return (0, 0) if value in known else (value, known[0])
    return value, known


@dataclass(frozen=True)
class Thing:
    """An object as a query sees it: what is built in, its attributes, its groups' attributes."""

    oid: int
    fields: dict[str, tuple[Value, ...]]
    """By name as in the language; several values where any of them may be meant (an owner)."""

    parents: tuple[str, ...]
    """The paths of the groups above it, the root's ("") last."""


# Conditions


class Condition:
    """What is true or false of a thing; `str()` of it is the query language."""

    def holds(self, thing: Thing, root: str) -> bool:
        """Whether it is true of a thing, asked at a group."""
        raise TypeError(root, thing)


@dataclass(frozen=True)
class Every(Condition):
    """True of everything."""

    def holds(self, thing: Thing, root: str) -> bool:
        del thing, root
        return True

    def __str__(self) -> str:
        return ""


@dataclass(frozen=True)
class Test(Condition):
    """A field beside literals."""

    __test__ = False  # no test of pytest's

    field: str
    operator: str
    literals: tuple[Any, ...] = ()

    def holds(self, thing: Thing, root: str) -> bool:
        del root
        return any(self._is_true(value) for value in thing.fields.get(self.field, ()))

    def _is_true(self, value: Value) -> bool:
        operator, literals = self.operator, self.literals
        if operator == "exists":
            return True
        if isinstance(value, list):
            return operator == "contains" and any(_compared(i, "=", literals[0]) for i in value)
        if operator == "between":
            low, high = literals
            return _compared(value, ">=", low) and _compared(value, "<=", high)
        if operator in _COMPARE:
            return _compared(value, operator, literals[0])
        whole = operator == "contains" and value.of_array
        is_text = value.kind == "text" and isinstance(literals[0], str)
        if operator in _TEXTUAL and is_text and not whole:
            return _TEXTUAL[operator](value.value, literals[0])
        return operator in {"in", "contains"} and any(_compared(value, "=", v) for v in literals)

    def __str__(self) -> str:
        name, words = written(self.field), [literal_text(literal) for literal in self.literals]
        if self.operator == "exists":
            return f"exists({name})"
        if self.operator == "in":
            return f"{name} in ({', '.join(words)})"
        return f"{name} {self.operator} {' and '.join(words)}"


@dataclass(frozen=True)
class Denied(Condition):
    """A test with "not" within: the field is there, and the test is not true of it."""

    test: Test

    def holds(self, thing: Thing, root: str) -> bool:
        return self.test.field in thing.fields and not self.test.holds(thing, root)

    def __str__(self) -> str:
        field = written(self.test.field)
        if self.test.operator == "exists":
            return f"not {field} is null and {field} is null"
        return str(self.test).replace(f"{field} ", f"{field} not ", 1)


@dataclass(frozen=True)
class Null(Condition):
    """A field is there, or not."""

    field: str
    wanted: bool

    def holds(self, thing: Thing, root: str) -> bool:
        del root
        return (self.field in thing.fields) is self.wanted

    def __str__(self) -> str:
        return f"{written(self.field)} is {'not ' if self.wanted else ''}null"


@dataclass(frozen=True)
class Under(Condition):
    """In a group, at any depth."""

    path: str

    def holds(self, thing: Thing, root: str) -> bool:
        path = self.path
        if path.startswith("/"):
            path = path[1:]
        elif root:
            path = f"{root}/{path}"
        return path in thing.parents

    def __str__(self) -> str:
        return f"under({literal_text(self.path)})"


@dataclass(frozen=True)
class Not(Condition):
    """Plain negation."""

    inner: Condition

    def holds(self, thing: Thing, root: str) -> bool:
        return not self.inner.holds(thing, root)

    def __str__(self) -> str:
        return f"not ({self.inner})"


@dataclass(frozen=True)
class Both(Condition):
    """All or any of some."""

    word: str
    parts: tuple[Condition, ...]

    def holds(self, thing: Thing, root: str) -> bool:
        decide = all if self.word == "and" else any
        return decide(part.holds(thing, root) for part in self.parts)

    def __str__(self) -> str:
        return f" {self.word} ".join(f"({part})" for part in self.parts)


def written(field: str) -> str:
    """Write a field in the language: in backquotes where it would not be a bare word."""
    if field.startswith("@"):
        return field
    head, key = ("group.", field[6:]) if field.startswith("group.") else ("", field)
    key, dot, part = key.partition(".")
    plain = _BARE.fullmatch(key) and key.lower() not in _WORDS
    return head + (key if plain else "`" + key.replace("`", "``") + "`") + dot + part


def literal_text(literal: Any) -> str:
    """Write a literal in the language."""
    if isinstance(literal, str):
        escaped = literal.replace("\\", "\\\\").replace('"', '\\"')
        escaped = escaped.replace("\n", "\\n").replace("\t", "\\t")
        return f'"{escaped}"'
    return repr(literal)


# Things


def things(root: engram.Group) -> list[Thing]:
    """Read every object of a namespace; one of mode "none" has no attributes to a query."""
    found: list[Thing] = []

    def group(above: engram.Group, path: str, chain: list[tuple[str, dict[str, Any]]]) -> None:
        here = [(path, dict(above.attrs.items())), *chain]
        for name, member in above.items():
            inner = f"{path}/{name}" if path else name
            if isinstance(member, engram.Group):
                group(member, inner, here)
            else:
                found.append(_thing(member, inner, here))

    group(root, "", [])
    return sorted(found, key=lambda thing: thing.oid)


def _thing(member: Any, path: str, chain: list[tuple[str, dict[str, Any]]]) -> Thing:
    info = member._info()
    is_blob = isinstance(member, engram.Blob)
    shape = (member.nbytes,) if is_blob else member.shape
    plain = {
        "name": Item("text", path.rpartition("/")[2]),
        "path": Item("text", path),
        "group": Item("text", path.rpartition("/")[0]),
        "dtype": Item("text", "bytes" if is_blob else str(member.dtype)),
        "shape": Item("text", str(shape)),
        "ndim": Item("number", len(shape)),
        "size": Item("number", math.prod(shape)),
        "nbytes": Item("number", member.nbytes),
        "scope": Item("text", "shared"),
        "created": Item("time", info.created),
        "modified": Item("time", info.modified),
    }
    fields: dict[str, tuple[Value, ...]] = {f"@{name}": (item,) for name, item in plain.items()}
    fields["@owner"] = (Item("text", member.owner), Item("number", info.owner))
    for _, attrs in reversed(chain):  # the nearest comes last, and stays
        fields |= {f"group.{key}": (value_of(value),) for key, value in attrs.items()}
    if info.index != "none":
        fields |= {key: (value_of(value),) for key, value in member.attrs.items()}
        fields |= _parts(member.attrs.items())
    return Thing(member.oid, fields, tuple(path for path, _ in chain))


def _parts(attrs: Iterable[tuple[str, Any]]) -> dict[str, tuple[Value, ...]]:
    """Give the fields of attributes whose dtype is a structure."""
    return {
        f"{key}.{name}": (value_of(np.asarray(value)[name]),)
        for key, value in attrs
        for name in getattr(getattr(value, "dtype", None), "names", None) or ()
    }


def text_of(thing: Thing, field: str) -> str:
    """Give a field that is a text."""
    (item,) = thing.fields[field]
    assert isinstance(item, Item)
    return str(item.value)


# Answers


def answer(
    all_things: list[Thing],
    condition: Condition,
    root: str = "",
    order: tuple[tuple[str, bool], ...] = (),
    limit: int | None = None,
) -> list[int]:
    """Give the OIDs of what a query finds, in its order."""
    hits = [t for t in all_things if root in t.parents and condition.holds(t, root)]
    hits.sort(key=lambda thing: thing.oid)
    for field, descending in reversed(order):
        hits = list(_ordered(hits, field, descending=descending))
    return [thing.oid for thing in hits][:limit]


_RANKS = {"number": 0, "nan": 1, "time": 2, "text": 3, "other": 4}


def _ordered(hits: list[Thing], field: str, *, descending: bool) -> Iterator[Thing]:
    """Order by one field, stably; what lacks it comes last."""
    keyed = [(_order_item(thing, field), thing) for thing in hits]
    there = [pair for pair in keyed if pair[0] is not None]

    def compare(a: Any, b: Any) -> int:
        x, y = (b[0], a[0]) if descending else (a[0], b[0])
        if x[0] != y[0]:
            return int(x[0] - y[0])
        return 0 if x[1] is None or x[1] == y[1] else (-1 if x[1] < y[1] else 1)

    yield from (thing for _, thing in sorted(there, key=cmp_to_key(compare)))
    yield from (thing for item, thing in keyed if item is None)


def _order_item(thing: Thing, field: str) -> tuple[int, Any] | None:
    values = thing.fields.get(field)
    if values is None:
        return None
    value = values[0]
    if isinstance(value, list):
        return _RANKS["other"], None
    if value.kind == "number" and math.isnan(value.value):
        return _RANKS["nan"], None
    return _RANKS[value.kind], value.value


def attribute_counts(all_things: list[Thing], oids: Iterable[int]) -> dict[str, int]:
    """Count how many of some things have each attribute."""
    wanted, counts = set(oids), dict[str, int]()
    for thing in all_things:
        if thing.oid in wanted:
            for key in thing.fields:
                if not key.startswith("@") and "." not in key:
                    counts[key] = counts.get(key, 0) + 1
    return dict(sorted(counts.items(), key=lambda pair: pair[0].encode()))


def figures(
    all_things: list[Thing], condition: Condition, root: str, by: tuple[str, ...], field: str
) -> dict[tuple[Any, ...], tuple[int, int, float | None]] | None:
    """Give, for each group, how many there are, how many have a field, and the mean of numbers.

    None where a value cannot be in a mean, or in the key of a group.
    """
    groups: dict[tuple[Any, ...], list[Thing]] = {} if by else {(): []}
    for thing in all_things:
        if root not in thing.parents or not condition.holds(thing, root):
            continue
        key = tuple(_order_item(thing, each) for each in by)
        if any(item is not None and item[0] == _RANKS["other"] for item in key):
            return None
        groups.setdefault(key, []).append(thing)
    made: dict[tuple[Any, ...], tuple[int, int, float | None]] = {}
    for key, members in groups.items():
        items = [_order_item(thing, field) for thing in members]
        there = [item for item in items if item is not None]
        if any(rank not in {_RANKS["number"], _RANKS["nan"]} for rank, _ in there):
            return None
        numbers = [math.nan if value is None else value for _, value in there]
        mean = None if not numbers else _mean(numbers)
        made[key] = (len(members), len(there), mean)
    return made


def _mean(numbers: list[Any]) -> float:
    if any(math.isnan(n) or math.isinf(n) for n in numbers):
        return float(sum(float(n) for n in numbers))
    whole = sum(fractions.Fraction(n) for n in numbers)
    try:
        return float(whole) / len(numbers)
    except OverflowError:
        return math.copysign(math.inf, whole)
