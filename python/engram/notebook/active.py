"""The card of an active object: its fields, its methods, where it is."""

import reprlib
from typing import TYPE_CHECKING, Any

from engram import _engram
from engram.active.stored.forms import MISSING
from engram.active.stored.values import name_of
from engram.notebook import parts
from engram.size import human

if TYPE_CHECKING:
    from engram.active.object import ActiveObject

_MOST = 100
"""Fields and methods that are shown."""

_LARGE = 1 << 16
"""Bytes of an encoded value from which on it is not decoded to be shown."""

_short = reprlib.Repr()
_short.maxstring = _short.maxother = 80


def body(obj: "ActiveObject") -> str:
    """Show an active object: what its card has in it."""
    cls = type(obj)
    state = "persistent" if obj.is_persistent else "volatile"
    made = parts.head("Active object", name_of(cls), state)
    made += parts.section("Fields", lambda: _fields(obj), is_open=True)
    made += parts.section("Methods", lambda: _methods(cls), count=f"({len(cls._signatures()):,})")
    if obj.is_persistent:
        made += parts.section("Stored", lambda: parts.facts(_stored(obj)))
    return made


def _fields(obj: "ActiveObject") -> str:
    facts = list(type(obj)._facts().items())
    rows = [(name, fact.kind, _value(obj, name)) for name, fact in facts[:_MOST]]
    more = parts.more(len(facts) - len(rows))
    return parts.table(("field", "annotation", "value"), rows) + more


def _value(obj: "ActiveObject", name: str) -> str:
    """Show a field's value, shortly; a large one is not read."""
    if obj._volatile is not None:
        return _shown(obj._volatile[name]) if name in obj._volatile else "-"
    found = _engram.find(obj._home.namespace, obj._gid, name)
    if found is not None and found[0] != 1:
        nbytes = _engram.object_info(obj._home.namespace, found[1]).nbytes
        if nbytes > _LARGE:
            return f"{human(nbytes)} encoded"
    loaded = obj._field(name).load(obj)
    if loaded is MISSING:
        return "-"
    return _array(loaded.value[3], loaded.value[2]) if loaded.member else _shown(loaded.value)


def _shown(value: Any) -> str:
    shape, dtype = getattr(value, "shape", None), getattr(value, "dtype", None)
    if shape is not None and dtype is not None:
        return _array(shape, dtype)
    return _short.repr(value)


def _array(shape: Any, dtype: Any) -> str:
    return f"array {' x '.join(map(str, shape)) or 'of one value'}, {dtype}"


def _methods(cls: "type[ActiveObject]") -> str:
    rows = [(signature,) for signature in cls._signatures()[:_MOST]]
    return parts.table(("method",), rows) if rows else parts.soft("none")


def _stored(obj: "ActiveObject") -> list[tuple[str, str]]:
    return [
        ("aliases", ", ".join(sorted(map(parts.text, obj.get_aliases()))) or parts.soft("none")),
        ("id", parts.text(obj.get_id())),
        ("location", parts.text(obj.get_location())),
    ]
