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
_WHOLE = {"DataArray", "Variable", "Dataset", "DataTree"}


_ITEMS = {bool, int, float, complex, str, bytes, np.float64, np.int64, np.float32, np.str_}
"""Types of items that have nothing beside their value: most sequences have no others."""
_DEPTH = 65
"""Deeper ones, such as a list that is in itself, are more than numpy has dimensions for."""
_LABELLED = {"pandas", "polars", "pyarrow", "xarray"}


def check(what: str, data: Any, made: NDArray[Any]) -> None:
    """Refuse what numpy has made of a sequence, or of another library's object, if it is not equal.

    `what` names it in the error.

    Raises
    ------
    ArgumentError
        If it is not equal, with what to do.

    """
    if not isinstance(data, list | tuple):
        raise ArgumentError(
            f"{what} is a {kind_of(data)}, of which an array would keep the values alone: "
            f"{instead_of(data)}"
        )
    kind = made.dtype.kind
    if kind in "US":
        _check_strings(what, data, str if kind == "U" else bytes)
    elif kind in "fc" and {*map(type, data)} != {float}:
        _check_numbers(what, data)


def check_given(what: str, data: Any, labels: bool = False, depth: int = 0) -> None:
    """Refuse masked values, also in a sequence of sequences, before numpy makes an array of them.

    With `labels`, a sequence of what has labels, which would go, is refused, too.

    Raises
    ------
    ArgumentError
        If there is one, with what to do.

    """
    if not isinstance(data, list | tuple):
        _check_mask(what, data)
        return
    if depth == _DEPTH or {*map(type, data)} <= _ITEMS:
        return
    for item in data:
        if type(item) not in _ITEMS:
            check_given(what, item, labels, depth + 1)
            is_array = hasattr(type(item), "__array__")
            if labels and is_array and kind_of(item).partition(" ")[0] in _LABELLED:
                raise ArgumentError(
                    f"{what} has a {kind_of(item)} among its items, of which an array would keep "
                    f"the values alone: put each for itself, or its to_numpy(), the values alone"
                )


def _check_mask(what: str, data: Any) -> None:
    if not isinstance(data, np.ma.MaskedArray):
        return
    mask = np.ma.getmask(data)
    if mask is not np.ma.nomask and np.atleast_1d(np.ascontiguousarray(mask)).view(bool).any():
        raise ArgumentError(
            f"{what} has masked values, and a pool keeps no masks: store data.filled(value), and "
            "numpy.ma.getmaskarray(data) beside it if it is needed"
        )


def kind_of(data: Any) -> str:
    """Name a type of another library, such as "pandas Series"."""
    return f"{type(data).__module__.partition('.')[0]} {type(data).__name__}"


def instead_of(data: Any) -> str:
    """Say what to do with what is more than an array."""
    name = type(data).__name__
    if name in {"Dataset", "DataTree"}:
        return "write it with data.engram.to_pool(group)"
    if name in _WHOLE:
        whole = "put it as a member, group[name] = data"
    elif hasattr(data, "columns") or hasattr(data, "schema"):
        whole = "use create_table(name, data), or group[name] = data"
    elif hasattr(data, "to_frame"):
        index = " with its index" if hasattr(data, "iloc") else ""
        whole = f"put its to_frame(), a table of one column{index}"
    elif hasattr(data, "__len__"):
        made = "pandas.DataFrame" if kind_of(data).startswith("pandas") else "pyarrow.table"
        whole = f"put {made}({{name: it}}), a table of one column"
    else:
        return "give its to_numpy()"
    return f"{whole}, or its to_numpy(), the values alone"


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
