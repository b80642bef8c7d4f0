"""The fields that the arguments of a dataClay 2 class without an `__init__` mean.

dataClay's paper declares `data` before `label`, and makes `Block("MyLabel", [1, 2, 3])`. So
arguments go in the declared order if they are of the declared types; else by their types, if just
one way is left.
"""

import re
import sys
from collections.abc import Mapping, Sequence
from numbers import Integral, Real
from typing import Any, Final

import numpy as np

from engram.active.object import ActiveObject
from engram.errors import ArgumentError

_ARRAY: Final = "numpy.ndarray"
_NUMBERS: Final = "biufc"
_SHOWN: Final = 30

_TYPES: Final[dict[str, tuple[type, ...]]] = {
    "int": (Integral,),
    "float": (Real,),
    "bool": (bool, np.bool_),
    "str": (str,),
    "bytes": (bytes, bytearray),
    "None": (type(None),),
    "storageobject": (ActiveObject,),
    "list": (list,),
    "tuple": (tuple,),
    "set": (set, frozenset),
    "dict": (dict,),
}


def given(owner: str, kinds: Mapping[str, str], args: Sequence[Any], named: Any) -> dict[str, Any]:
    """Give the fields that positional arguments mean, beside those that are named.

    Raises
    ------
    ArgumentError
        If they fit in no way, or in more than one.

    """
    in_order = list(kinds)[: len(args)]
    if all(_fits(kinds[name], value) for name, value in zip(in_order, args, strict=True)):
        if not named.keys() & set(in_order):
            return dict(zip(in_order, args, strict=True))
        twice = next(name for name in in_order if name in named)
        raise ArgumentError(f"{owner} was given {twice!r} twice: by position and by name")
    free = [name for name in kinds if name not in named]
    possible = [[name for name in free if _fits(kinds[name], value)] for value in args]
    ways = _ways(possible)
    if len(ways) == 1:
        return dict(zip(ways[0], args, strict=True))
    fields = ", ".join(f"{name} {kinds[name]}" for name in kinds)
    values = ", ".join(f"{_shown(value)} ({type(value).__name__})" for value in args)
    why = "fit more than one way" if ways else "do not fit"
    raise ArgumentError(
        f"{owner} has the fields {fields}, and the arguments {values} {why}: give them in that "
        f"order and of these types, or by name, as in {owner}({next(iter(kinds))}=...)"
    )


def converted(kind: str, value: Any) -> Any:
    """Make an array of a list or tuple of numbers that is given for a field of arrays."""
    if kind == _ARRAY and isinstance(value, list | tuple):
        made = _array_of(value)
        return value if made is None else made
    return value


def _ways(possible: list[list[str]]) -> list[list[str]]:
    """Give the first two ways to take another field for each argument."""
    found: list[list[str]] = []
    order = sorted(range(len(possible)), key=lambda at: len(possible[at]))
    taken: dict[int, str] = {}

    def take(depth: int) -> None:
        if depth == len(order):
            found.append([taken[at] for at in range(len(order))])
            return
        for name in possible[order[depth]]:
            if name not in list(taken.values()) and len(found) < 2:  # noqa: PLR2004 - one, or more
                taken[order[depth]] = name
                take(depth + 1)
                del taken[order[depth]]

    take(0)
    return found


def _fits(kind: str, value: Any) -> bool:
    """Tell whether a value is of a type that a docstring names; None is of all."""
    if value is None or kind == "anything":
        return True
    if kind == _ARRAY:
        is_list = isinstance(value, list | tuple)
        return isinstance(value, np.ndarray) or (is_list and _array_of(value) is not None)
    name, _, inner = kind.partition("<")
    if name.strip() in _TYPES:
        return isinstance(value, _TYPES[name.strip()]) and _holds(value, inner.removesuffix(">"))
    return _is_of_class(kind, value)


def _holds(value: Any, inner: str) -> bool:
    """Tell whether what a container has is of the type that stands in its brackets."""
    if not inner or "<" in inner:
        return True
    parts = [part.strip() for part in inner.split(",")]
    if isinstance(value, dict):
        return len(parts) != 2 or all(  # noqa: PLR2004 - a key and a value
            _fits(parts[0], key) and _fits(parts[1], each) for key, each in value.items()
        )
    if isinstance(value, tuple) and len(parts) > 1:
        return len(parts) == len(value) and all(map(_fits, parts, value))
    return all(_fits(parts[0], each) for each in value)


def _is_of_class(kind: str, value: Any) -> bool:
    """Tell whether a value is of a class that is named with its module, as stubs may have it."""
    module, _, name = kind.rpartition(".")
    found = getattr(sys.modules.get(module), name, None)
    if isinstance(found, type):
        if issubclass(found, np.generic) and isinstance(value, Real):
            return True
        if isinstance(value, found):
            return True
    elif found is not None:  # a name for several types
        return True
    return any(base.__name__ == name for base in type(value).__mro__)


def _array_of(value: Any) -> Any:
    """Make an array of a list of numbers; None if it is none of numbers."""
    try:
        made = np.array(value)
    except (ValueError, OverflowError):
        return None
    return made if made.dtype.kind in _NUMBERS else None


def _shown(value: Any) -> str:
    text = re.sub(r"\s+", " ", repr(value))
    return text if len(text) <= _SHOWN else text[: _SHOWN - 2] + " …"
