"""What a value was: noted before an inner method may change it, and put back if that raises.

Every container and object within is noted with what it holds, and each is put back itself, so that
a caller that has one of them in hand still has it afterwards. Active objects are not entered: their
fields are noted by themselves.
"""

import enum
import types
from collections import deque
from collections.abc import Callable, Iterable, MutableMapping
from typing import Any, Final

import numpy as np

_FIXED: Final = (
    *(bool, int, float, complex, str, bytes, type(None), range, slice, type, enum.Enum, np.generic),
    *(types.FunctionType, types.BuiltinFunctionType, types.ModuleType),
)

Undo = Callable[[], None]


class Memento:
    """What a value held, at any depth."""

    __slots__ = ("_undo",)

    def __init__(self, value: Any) -> None:
        self._undo: list[Undo] = []
        seen: dict[int, Any] = {}
        waiting = [value]
        while waiting:
            each = waiting.pop()
            if isinstance(each, _FIXED) or id(each) in seen:
                continue
            if hasattr(type(each), "_engram_reference"):
                continue
            seen[id(each)] = each
            waiting.extend(self._note(each))

    def put_back(self) -> None:
        """Let everything hold again what it held."""
        for undo in self._undo:
            undo()

    def _note(self, each: Any) -> Iterable[Any]:
        """Note what one thing holds; give that."""
        if isinstance(each, list | bytearray | deque):
            held = list(each)
            self._undo.append(lambda: _refill(each, held))
            return () if isinstance(each, bytearray) else held
        if isinstance(each, dict):
            pairs = list(each.items())
            self._undo.append(lambda: _refill_dict(each, pairs))
            return [part for pair in pairs for part in pair]
        if isinstance(each, set):
            members = set(each)
            self._undo.append(lambda: _refill_set(each, members))
            return members
        if isinstance(each, np.ndarray):
            if each.flags.writeable:
                contents = each.copy()
                self._undo.append(lambda: each.__setitem__(..., contents))
            return ()
        state = _attributes(each)
        if state:
            self._undo.append(lambda: _set_attributes(each, state))
        inside: list[Any] = list(each) if isinstance(each, tuple | frozenset) else []
        return [*inside, *state.values()]


def _refill(each: Any, held: list[Any]) -> None:
    each.clear()
    each.extend(held)


def _refill_dict(each: dict[Any, Any], pairs: list[tuple[Any, Any]]) -> None:
    each.clear()
    MutableMapping.update(each, pairs)  # item by item, also of a Counter


def _refill_set(each: set[Any], members: set[Any]) -> None:
    each.clear()
    each |= members


def _attributes(each: Any) -> dict[str, Any]:
    """Give an object's attributes: those of its `__dict__`, and those in slots."""
    slots = [_slots_of(base) for base in type(each).__mro__]
    names = [name for some in slots for name in some if hasattr(each, name)]
    return getattr(each, "__dict__", {}) | {name: getattr(each, name) for name in names}


def _slots_of(base: type) -> list[str]:
    slots = base.__dict__.get("__slots__", ())
    names = (slots,) if isinstance(slots, str) else slots
    return [name for name in names if name not in {"__dict__", "__weakref__"}]


def _set_attributes(each: Any, state: dict[str, Any]) -> None:
    for name in _attributes(each).keys() - state.keys():
        object.__delattr__(each, name)
    for name, value in state.items():
        object.__setattr__(each, name, value)
