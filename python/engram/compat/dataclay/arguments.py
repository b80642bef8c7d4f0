"""The fields that the arguments of a dataClay 2 class without an `__init__` mean.

dataClay's paper declares `data` before `label`, and makes `Block("MyLabel", [1, 2, 3])`. So
arguments go in the declared order, unless one of them is plainly of another sort than its field,
such as a text for an array, and just one other order has each where it can be. All numbers are of
one sort, and so are lists, tuples and sets: between those nothing is ever put in another order.
"""

from collections.abc import Mapping, Sequence
from numbers import Number
from typing import Any, Final

import numpy as np

from engram.active.object import ActiveObject
from engram.errors import ArgumentError

_ARRAYS: Final = ("numpy.ndarray", "np.ndarray")
_KINDS_OF_NUMBERS: Final = "biufc"

_SORTS: Final[dict[str, tuple[type, ...]]] = {
    "number": (Number, np.number, np.bool_),
    "text": (str,),
    "bytes": (bytes, bytearray),
    "list": (list, tuple, set, frozenset, range),
    "dict": (Mapping,),
    "array": (np.ndarray,),
    "object": (ActiveObject,),
}
"""The sorts of values that are told apart."""

_TAKEN: Final[dict[str, frozenset[str]]] = {
    **dict.fromkeys(("int", "float", "bool"), frozenset({"number"})),
    "str": frozenset({"text"}),
    "bytes": frozenset({"bytes"}),
    **dict.fromkeys(("list", "tuple", "set"), frozenset({"list", "array"})),
    "dict": frozenset({"dict"}),
    **dict.fromkeys(_ARRAYS, frozenset({"array", "list", "number"})),
    "storageobject": frozenset({"object"}),
}
"""The sorts that a field of a type can take; of any other type, all."""


def given(owner: str, kinds: Mapping[str, str], args: Sequence[Any], named: Any) -> dict[str, Any]:
    """Give the fields that positional arguments mean, beside those that are named.

    Raises
    ------
    ArgumentError
        If a field is given twice.

    """
    in_order = list(kinds)[: len(args)]
    pairs = list(zip(in_order, args, strict=True))
    if not all(_fits(kinds[name], value) for name, value in pairs):
        free = [name for name in kinds if name not in named]
        ways = _ways([[name for name in free if _fits(kinds[name], value)] for value in args])
        if len(ways) == 1:
            return dict(zip(ways[0], args, strict=True))
    if twice := next((name for name in in_order if name in named), None):
        raise ArgumentError(
            f"{owner} was given {twice!r} twice, by position and by name: give it once"
        )
    return dict(pairs)


def converted(kind: str, value: Any) -> Any:
    """Make an array of a list or tuple of numbers that is given for a field of arrays."""
    if kind not in _ARRAYS or not isinstance(value, list | tuple) or not value:
        return value
    try:
        made = np.array(value)
    except (ValueError, OverflowError):
        return value
    return made if made.dtype.kind in _KINDS_OF_NUMBERS else value


def _fits(kind: str, value: Any) -> bool:
    """Tell whether a field of a docstring's type can take a value; any can take None."""
    taken = _TAKEN.get(kind.partition("<")[0].strip())
    sort = next((sort for sort, types in _SORTS.items() if isinstance(value, types)), None)
    return value is None or taken is None or sort is None or sort in taken


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
