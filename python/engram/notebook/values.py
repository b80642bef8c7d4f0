"""Values as text: the first and the last of them, whatever the array's size.

At most a few dozen items are looked at. Strings of variable length can be read as a whole only, so
they are shown where the whole is small.
"""

import re
from collections.abc import Callable
from typing import Any

import numpy as np
from numpy.typing import NDArray

from engram import _engram
from engram.array import Array
from engram.decoded import encoding_for_show
from engram.errors import EngramError
from engram.size import human

_STRINGS = 1 << 20
"""Bytes of strings that are read for a few of them."""

ITEM = 4096
"""Bytes of one item that is shown; a record can be of any size."""

_THRESHOLD = 60
"""Of more values only the outer ones are written."""

_CHUNKED = 1 << 20
"""Of a chunked array with more bytes only the first items are read."""
_FIRST = 6
_PLANE = 2
"""As many dimensions are shown, the last ones; the others at 0."""


def shown(array: Array) -> tuple[str, str]:
    """Give the values as lines of text, and which part of the array they are."""
    if array.size == 0:
        return "no values: a dimension is of length 0", ""
    if array.dtype.kind == "T":
        nbytes = _engram.object_info(array._namespace, array._id).nbytes
        if nbytes > _STRINGS:
            return f"{human(nbytes)} of strings, not read for this", ""
    elif array.dtype.itemsize > ITEM:
        return f"each item is {human(array.dtype.itemsize)}, not shown", ""
    before = max(array.ndim - _PLANE, 0)
    part = f"values at [{'0, ' * before}...]" if before else ""
    key: tuple[Any, ...] = (*[0] * before, ...)
    if array.chunks is not None and array.nbytes > _CHUNKED:
        first = tuple(slice(0, _FIRST) for _ in range(array.ndim - before))
        part = f"values at [{'0, ' * before}{', '.join([f':{_FIRST}'] * len(first))}]"
        return _meant(array, np.asarray(array[(*key[:-1], *first)])), part
    values = array[...] if array.dtype.kind == "T" or array.chunks is not None else array.view()
    return _meant(array, values[key]), part


def _meant(array: Array, raw: NDArray[Any]) -> str:
    """Write stored values as they are meant, decoding those alone that are written."""
    encoding = encoding_for_show(array)
    if encoding.is_plain:
        return summary(raw, threshold=_THRESHOLD)
    told: list[str] = []

    def write(item: Any) -> str:
        found = encoding.decode(np.asarray(item, array.dtype))[()]
        told.append(f"{found:.6g}" if isinstance(found, float | np.floating) else _plain(found))
        return told[-1]

    try:
        summary(raw, threshold=_THRESHOLD, write=write)
    except EngramError:  # times beyond those that there are
        return summary(raw, threshold=_THRESHOLD)
    width = max(map(len, told), default=0)
    return summary(raw, threshold=_THRESHOLD, write=lambda item: write(item).rjust(width))


def _plain(item: Any) -> str:
    """Write an item; a time no longer than it must be."""
    if not isinstance(item, np.datetime64):
        return str(item)
    return re.sub(r"(T00:00:00)?([.]0+)?$", "", str(item))


def encoded(array: Array) -> str:
    """Tell how the values that are shown are stored; "" if they are stored as they are meant."""
    encoding = encoding_for_show(array)
    if encoding.is_plain:
        return ""
    attrs = array.attrs
    said = ", ".join(f"{name} {attrs[name]}" for name in sorted(encoding.used) if name in attrs)
    return f"values as they are meant; stored as {array.dtype} with {said}"


def summary(
    values: NDArray[Any], *, threshold: int = 20, write: Callable[[Any], str] | None = None
) -> str:
    """Write an array's values, only the outer ones if they are more than `threshold`.

    `write` writes an item, if numpy is not to.
    """
    edge = 4 if values.ndim < _PLANE else 3
    if values.dtype.kind in "mM" and np.datetime_data(values.dtype)[0] == "generic":
        values = values.view(values.dtype.str[0] + "i8")  # numpy writes no times without a unit
    how: Any = {"threshold": threshold, "edgeitems": edge, "precision": 6, "max_line_width": 88}
    if write is not None:
        how["formatter"] = {"all": write}
    return np.array2string(values, separator=", ", **how)


def of_attribute(value: Any) -> tuple[str, str]:
    """Give an attribute's value as text, and its type."""
    if isinstance(value, str):
        return value, "str"
    array = np.asarray(value)
    shape = f" {array.shape}" if array.shape else ""
    if array.dtype.itemsize > ITEM and array.dtype.kind not in "SU":
        return f"each item is {human(array.dtype.itemsize)}, not shown", f"{array.dtype}{shape}"
    plain = str(value) if not array.shape else summary(array)
    return plain, f"{array.dtype}{shape}"
