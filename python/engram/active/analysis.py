"""What a method does to fields, as far as its code tells.

A guess that only decides what a method waits for: whether it has its object's lock from the
beginning, and whether arrays it had in hand are looked after at its end. A change that it overlooks
is found when the changes are committed (`transaction.py`); `@activemethod(locks=, read_only=)`
overrules it.
"""

import dis
import types
from collections.abc import Callable, Container, Iterator
from typing import Any, NamedTuple

_STORES = {"STORE_ATTR", "DELETE_ATTR"}
_LOADS = {"LOAD_ATTR", "LOAD_METHOD"}
_INTO_ARRAYS = {"STORE_SUBSCR", "DELETE_SUBSCR", "STORE_SLICE"}
_CHANGERS = {
    *("append", "extend", "insert", "remove", "pop", "clear", "sort", "reverse", "add", "discard"),
    *("update", "setdefault", "popitem", "appendleft", "popleft", "extendleft", "subtract"),
}
_ARRAY_CHANGERS = {
    *("sort", "fill", "put", "partition", "itemset", "at", "copyto", "byteswap", "resize"),
    *("place", "putmask", "fill_diagonal", "shuffle", "random", "readinto"),
}


class Traits(NamedTuple):
    """What a method does."""

    changes: bool
    """Whether it changes fields."""
    fills: bool
    """Whether it writes into arrays."""


def traits_of(
    cls: type, function: Callable[..., Any], fields: Container[str], containers: Container[str]
) -> Traits:
    """Look through a method, and through the methods of its class that it calls.

    `containers` are those of the fields whose values may be changed in place, arrays apart.
    """
    changes = fills = False
    done: set[str] = set()
    waiting = [function]
    while waiting:
        for code in _codes(waiting.pop().__code__):
            names = set(code.co_names)
            inner, into = _effects(code, fields, containers)
            changes |= inner
            fills |= into or bool(names & _ARRAY_CHANGERS) or "out" in _words(code)
            for name in names - done:
                done.add(name)
                called = getattr(cls.__dict__.get(name), "function", None) or _function(cls, name)
                if isinstance(called, types.FunctionType):
                    waiting.append(called)
    return Traits(changes, fills)


def _function(cls: type, name: str) -> Any:
    """Find a method that the class or a base of it defines in Python."""
    for base in cls.__mro__:
        if base.__module__.startswith("engram.active"):
            return None
        found = base.__dict__.get(name)
        if found is not None:
            return getattr(found, "function", found)
    return None


def _codes(code: types.CodeType) -> Iterator[types.CodeType]:
    yield code
    for constant in code.co_consts:
        if isinstance(constant, types.CodeType):
            yield from _codes(constant)


def _words(code: types.CodeType) -> set[str]:
    """Give the keywords of a code's calls."""
    return {
        word
        for constant in code.co_consts
        if isinstance(constant, tuple)
        for word in constant
        if isinstance(word, str)
    }


def _effects(
    code: types.CodeType, fields: Container[str], containers: Container[str]
) -> tuple[bool, bool]:
    """Tell whether one code object changes fields, and whether it writes into arrays."""
    changes = fills = False
    touches = changing = False
    for step in dis.get_instructions(code):
        if step.opname in _STORES and step.argval in fields:
            changes = True
        elif step.opname in _LOADS:
            touches |= step.argval in containers
            changing |= step.argval in _CHANGERS
        elif step.opname in _INTO_ARRAYS:
            fills = changing = True
        elif step.opname == "BINARY_OP" and step.argrepr.endswith("="):
            fills = True
        elif step.opname == "LOAD_GLOBAL" and step.argval in {"setattr", "delattr"}:
            changes = True
    return changes or (touches and changing), fills
