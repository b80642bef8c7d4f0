"""Text of files: variable-length strings as `StringDType`, and bytes where it is not UTF-8."""

from __future__ import annotations

from typing import Any

import numpy as np

Array = np.ndarray[Any, Any]

NOT_UTF8 = "not UTF-8; its bytes are kept as they are"


def string_dtype() -> np.dtype[Any]:
    """Return the dtype of variable-length strings."""
    return np.dtypes.StringDType()


def of_objects(dtype: np.dtype[Any]) -> bool:
    """Whether values are, or have, Python's objects: sequences, or text in records.

    numpy says so of arrays of strings, too.
    """
    return dtype.hasobject and dtype.kind != "T"


def scalar(value: str) -> Array:
    """Return one string as an array of no dimensions."""
    return np.array(value, dtype=string_dtype())


def bytes_array(values: list[bytes], shape: tuple[int, ...]) -> Array:
    """Return bytes as an ``S`` array wide enough for the longest."""
    width = max((len(v) for v in values), default=1) or 1
    return np.array(values, dtype=f"S{width}").reshape(shape)


def text_array(values: list[bytes], shape: tuple[int, ...]) -> tuple[Array, bool]:
    """Return an array of strings, and whether all of them are UTF-8.

    Parameters
    ----------
    values
        The strings' bytes, in C order.
    shape
        The array's shape.

    Returns
    -------
    An array of `StringDType` and True; or of ``S`` and False where any is not UTF-8.

    """
    out = np.empty(len(values), dtype=string_dtype())
    try:
        for place, value in enumerate(values):
            out[place] = value.decode("utf-8")
    except UnicodeDecodeError:
        return bytes_array(values, shape), False
    return out.reshape(shape), True


def text_value(raw: bytes) -> tuple[str | Array, bool]:
    """Return one string and True; or a 0-d ``S`` array and False where it is not UTF-8."""
    try:
        return raw.decode("utf-8"), True
    except UnicodeDecodeError:
        return bytes_array([raw], ()), False
