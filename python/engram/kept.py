"""What is put comes back as it was, or is refused: numpy would change some of it without a word.

numpy makes `[1, "a"]` two strings, `[0.5, 2**53 + 1]` two floats of which the second is another
number, and of a Series or a DataArray it takes the values and drops the rest.
"""

from collections.abc import Iterator
from typing import Any

import numpy as np
from numpy.typing import NDArray

from engram.errors import ArgumentError

_EXACT = 2**53
"""Whole numbers up to this are numbers of double precision, too."""
_WHAT_TO_DO = {
    "DataFrame": "put it as a table, group[name] = data",
    "Series": "give data.to_numpy() for the values alone, or put data.to_frame() as a table",
    "DataArray": "group[name] = data keeps it all; data.to_numpy() is the values alone",
    "Variable": "group[name] = data keeps it all; data.to_numpy() is the values alone",
    "Dataset": "write it with data.engram.to_pool(group)",
    "DataTree": "write it with data.engram.to_pool(group)",
}


def check(what: str, data: Any, made: NDArray[Any]) -> None:
    """Refuse what numpy has made of a sequence, or of another library's object, if it is not equal.

    `what` names it in the error.

    Raises
    ------
    ArgumentError
        If it is not equal, with what to do.

    """
    if not isinstance(data, list | tuple):
        name = type(data).__name__
        instead = _WHAT_TO_DO.get(name, "give data.to_numpy(), or numpy.asarray(data), for those")
        raise ArgumentError(
            f"{what} is of type {name} of {type(data).__module__.partition('.')[0]}, and an array "
            f"keeps its values alone: {instead}"
        )
    kind = made.dtype.kind
    if kind in "US":
        _check_strings(what, data, str if kind == "U" else bytes)
    elif kind in "fc" and {*map(type, data)} != {float}:
        _check_numbers(what, data)


def _check_strings(what: str, data: Any, expected: type[str] | type[bytes]) -> None:
    for item in _leaves(data):
        if not isinstance(item, expected):
            raise ArgumentError(
                f"{what} has strings beside {item!r}, of type {type(item).__name__}, which would "
                "become a string: give items of one type, or str(...) of each"
            )
        if item[-1:] in {"\0", b"\0"}:
            raise ArgumentError(
                f"{what} has {item!r}, and numpy drops zeros at the end of strings of fixed width: "
                "give a numpy array of StringDType, or of bytes as uint8"
            )


def _check_numbers(what: str, data: Any) -> None:
    for item in _leaves(data):
        if isinstance(item, int) and abs(item) > _EXACT and int(float(item)) != item:
            raise ArgumentError(
                f"{what} has {item} among numbers that it is put into one dtype with, float64, "
                "which has no such number: give a numpy array of the dtype that you want"
            )


def _leaves(data: Any) -> Iterator[Any]:
    """Yield the items of a sequence of sequences."""
    for item in data:
        if isinstance(item, list | tuple):
            yield from _leaves(item)
        elif isinstance(item, np.ndarray):
            yield from item.ravel()
        else:
            yield item
