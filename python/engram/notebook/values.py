"""Values as text: the first and the last of them, whatever the array's size.

At most a few dozen items are looked at. Strings of variable length can be read as a whole only, so
they are shown where the whole is small.
"""

from typing import Any

import numpy as np
from numpy.typing import NDArray

from engram import _engram
from engram.array import Array
from engram.attrs import Attributes
from engram.size import human

_STRINGS = 1 << 20
"""Bytes of strings that are read for a few of them."""

ITEM = 4096
"""Bytes of one item that is shown; a record can be of any size."""

_PACKED = ("scale_factor", "add_offset")
"""With these attributes the numbers stored are not those meant, by netCDF's conventions."""

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
        return summary(np.asarray(array[(*key[:-1], *first)]), threshold=60), part
    values = array[...] if array.dtype.kind == "T" or array.chunks is not None else array.view()
    return summary(values[key], threshold=60), part


def packing(array: Array) -> str:
    """Tell that the values of a packed array are shown as they are stored; "" if it is not."""
    attrs = array.attrs
    found = [f"{name} {np.asarray(attrs[name])}" for name in _PACKED if _is_number(attrs, name)]
    return f"raw values, as stored: {' and '.join(found)} not applied" if found else ""


def _is_number(attrs: Attributes, name: str) -> bool:
    found = np.asarray(attrs.get(name, ""))
    return found.size == 1 and found.dtype.kind in "iuf"


def summary(values: NDArray[Any], *, threshold: int = 20) -> str:
    """Write an array's values, only the outer ones if they are more than `threshold`."""
    edge = 4 if values.ndim < _PLANE else 3
    if values.dtype.kind in "mM" and np.datetime_data(values.dtype)[0] == "generic":
        values = values.view(values.dtype.str[0] + "i8")  # numpy writes no times without a unit
    return np.array2string(
        values, threshold=threshold, edgeitems=edge, precision=6, max_line_width=88, separator=", "
    )


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
