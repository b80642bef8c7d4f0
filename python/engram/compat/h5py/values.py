"""Values as h5py takes and gives them, and as a pool keeps them.

h5py takes what numpy takes, but for what HDF5 has no type for; it gives strings of variable length
as objects: bytes in datasets, `str` in attributes. A pool has them as numpy's `StringDType`.
Numbers that do not fit a dtype are the nearest that do, as HDF5 has it, and not wrapped.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from engram.compat.h5py.dtypes import check_string_dtype, is_text, string_dtype
from engram.compat.h5py.refused import REFERENCES, Reference, RegionReference, refuse

Array = np.ndarray[Any, Any]
DType = np.dtype[Any]

_TEXT = np.dtypes.StringDType()


def item_type(data: Any) -> type | None:
    """Return the type of which all items of nested lists are; None if there are several."""
    if isinstance(data, np.ndarray):
        if data.dtype.kind != "O" or data.dtype.metadata:
            return None
        kinds = {type(item) for item in data.flat}
    elif isinstance(data, list | tuple):
        kinds = {item_type(item) for item in data}  # type: ignore[misc]  # None among them
    else:
        return type(data)
    return kinds.pop() if len(kinds) == 1 else None


def new_array(data: Any, dtype: DType | None) -> Array:
    """Return what is given for something new as an array, whose dtype says what it is."""
    if isinstance(data, np.ndarray):
        if data.dtype.kind == "O" and not data.dtype.metadata:
            noted = dtype if dtype is not None and dtype.kind == "O" else _noted_dtype(data)
            return data if noted is None else np.asarray(data, noted).view(noted)
        return data
    if dtype is not None:
        info = check_string_dtype(dtype)
        if dtype.kind == "S" and info is not None and info.encoding == "utf-8":
            return as_fixed(data, dtype)
        if dtype.kind == "T":
            return np.asarray(data, _TEXT)
        found = np.asarray(data, dtype.base if dtype.subdtype else dtype, order="C")
        return found.view(dtype) if dtype.kind == "O" else found
    noted = _noted_dtype(data)
    found = np.asarray(data, noted, order="C")
    return found if noted is None else found.view(noted)


def _noted_dtype(data: Any) -> DType | None:
    kind = item_type(data)
    if kind is Reference or kind is RegionReference:
        refuse("references", REFERENCES)
    if kind is bytes:
        return string_dtype("ascii")
    return string_dtype() if kind is str else None


def as_text(values: Any) -> Array:
    """Return strings, or the bytes of strings, as a pool keeps them."""
    found = np.asarray(values, object) if not isinstance(values, np.ndarray) else values
    if found.dtype.kind in "OS":
        kept = np.empty(found.shape, object)
        kept.reshape(-1)[:] = [_text_of(item) for item in found.reshape(-1).tolist()]
        found = kept
    elif found.dtype.kind not in "UT":
        raise TypeError(f"Can't implicitly convert non-string objects to strings: {found.dtype}")
    text = found.astype(_TEXT)
    if any("\0" in item for item in found.reshape(-1).tolist()):
        raise ValueError("VLEN strings do not support embedded NULLs: keep such bytes as np.void")
    return text


def _text_of(item: Any) -> str:
    if isinstance(item, str):
        item.encode()  # tells of what is no text
        return str(item)
    if isinstance(item, bytes):
        return item.decode("utf-8")
    if item is None or (isinstance(item, int) and item == 0):  # what HDF5 has where nothing is
        return ""
    raise TypeError(f"Can't implicitly convert non-string objects to strings: {item!r}")


def as_objects(text: Any, *, encoded: bool = True) -> Any:
    """Return strings of a pool as h5py gives them: objects, of bytes or of `str`."""
    if isinstance(text, str):
        return text.encode() if encoded else text
    found = np.empty(text.shape, string_dtype())
    items = text.reshape(-1).tolist()
    found.reshape(-1)[:] = [item.encode() for item in items] if encoded else items
    return found


def as_fixed(data: Any, dtype: DType) -> Array:
    """Return strings as UTF-8 of a fixed width."""
    found = np.asarray(data, object)
    items = [item.encode() if isinstance(item, str) else item for item in found.reshape(-1)]
    return np.array(items, dtype).reshape(found.shape)


def fitted(values: Array, dtype: DType) -> Array:
    """Return numbers as those of a dtype that are nearest, where numpy would wrap them."""
    if dtype.kind not in "iu" or values.dtype.kind not in "iuf":
        return values
    if np.can_cast(values.dtype, dtype, "safe"):
        return values
    limits = np.iinfo(dtype)
    if values.dtype.kind == "f":
        found = np.trunc(np.nan_to_num(values, nan=0, posinf=np.inf, neginf=-np.inf))
        made = np.zeros(values.shape, dtype)
        inside = (found >= float(limits.min)) & (found < float(limits.max) + 1)
        made[inside] = found[inside].astype(dtype)
        made[found >= float(limits.max)] = limits.max
        made[found < float(limits.min)] = limits.min
        return made
    low, high = np.iinfo(values.dtype).min, np.iinfo(values.dtype).max
    return np.clip(values, max(low, limits.min), min(high, limits.max)).astype(dtype)


def written(value: Any, dtype: DType) -> Array:
    """Return what is assigned to a part of a dataset of a dtype as a pool keeps it.

    A dataset's dtype is what h5py calls it: with its notes.
    """
    if is_text(dtype):
        return as_text(value)
    if dtype.kind == "S":
        info = check_string_dtype(dtype)
        if info is not None and info.encoding == "utf-8" and item_type(value) is str:
            return as_fixed(value, dtype)
    if isinstance(value, np.ndarray):
        if value.dtype.kind == "O" and dtype.kind != "O":
            made = np.asarray(value.tolist(), dtype.base)
            value = made if value.size else made.reshape(value.shape)
        return fitted(value, dtype.base)
    return np.asarray(value, dtype.base, order="C")
