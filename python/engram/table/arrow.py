"""pyarrow, loaded when a table is read or written; and which columns are arrays of their own."""

from typing import Any

import numpy as np

from engram.extras import Library

_PURPOSE = "the content of a table"

pa: Any = Library("pyarrow", "pyarrow", _PURPOSE)
compute: Any = Library("pyarrow.compute", "pyarrow", _PURPOSE)

_NUMBERS = {
    *("int8", "int16", "int32", "int64", "uint8", "uint16", "uint32", "uint64"),
    *("halffloat", "float", "double"),
}


def dtype_of(kind: Any) -> np.dtype[Any] | None:
    """Return the dtype of the array that a column of an Arrow type is; None if it is none.

    Whole numbers, floats, times and durations lie in memory as numpy has them. Arrow counts times
    with a zone in UTC.
    """
    if str(kind) in _NUMBERS:
        plain: np.dtype[Any] = np.dtype(kind.to_pandas_dtype())
        return plain
    if pa.types.is_timestamp(kind):
        return np.dtype(f"M8[{kind.unit}]")
    if pa.types.is_duration(kind):
        return np.dtype(f"m8[{kind.unit}]")
    return None


def missing_value(dtype: np.dtype[Any]) -> Any:
    """Return what an array has where a value is missing: as numpy has it, or else 0."""
    if dtype.kind in "mM":
        return np.array("NaT", dtype)
    return dtype.type(np.nan if dtype.kind == "f" else 0)
