"""Attributes as JSON, and JSON as attributes.

A text, a truth, a number, and a list of such as an array: these have a like here, with the dtypes
int64 (uint64 above it) and float64. What has none (null, objects, lists of several kinds, integers
beyond 64 bits) stands here as its JSON text. Wherever the value here would not be written as the
very JSON that was read, that JSON is kept in `origin`, and counts as long as the value is the same.
Objects and lists that an export of Engram's has marked are the trees that they were (`trees`).

Fill values follow xarray's convention for Zarr's third version: ``_FillValue`` has the array's
dtype, and a float is written as the base64 of its eight bytes.
"""

from __future__ import annotations

import base64
import json
import struct
from typing import TYPE_CHECKING, Any

import numpy as np

from engram import nested
from engram.formats import trees
from engram.formats.text import string_dtype

if TYPE_CHECKING:
    from engram.formats.source import Attributes

FILL = "_FillValue"
FILLED = {"b": "biuf", "i": "iuf", "u": "iuf", "f": "iuf", "c": "iufc"}
"""The kinds of arrays that xarray opens with a fill value as an attribute, and of which kinds."""

_KINDS = {bool: np.dtype(bool), float: np.dtype("f8"), str: string_dtype()}
_MAX_DEPTH = 16
_FLOAT_BYTES = 8  # JSON's numbers are no longer
_LONG = 1 << 53  # integers below it are exact as floats


def read(
    document: dict[str, Any], dtype: np.dtype[Any] | None = None
) -> tuple[Attributes, dict[str, Any], list[str]]:
    """Return the attributes that a node's document has.

    Parameters
    ----------
    document
        The attributes' JSON.
    dtype
        The array's dtype, for its fill value.

    Returns
    -------
    The values; what `origin` must keep; and the names of those that stand here as JSON text.

    """
    values = trees.of_document(document)
    marked = {*values, trees.MARK} if values else set()
    kept: dict[str, Any] = {}
    as_text = []
    for name, found in document.items():
        if name in marked:
            continue
        value = fill_value(found, dtype) if name == FILL and dtype is not None else None
        if value is None:
            value = value_of(found)
        if value is None:
            value = json.dumps(found, ensure_ascii=not _is_utf8(found))
            as_text.append(name)
        values[name] = value
        if _spelled(_written(name, value, dtype)) != _spelled(found):
            kept[name] = {"json": found}
    return values, kept, as_text


def write(
    attrs: Attributes, kept: object, dtype: np.dtype[Any] | None = None
) -> tuple[dict[str, Any], list[str]]:
    """Return attributes as JSON, and the names and dtypes of those that it changes.

    Parameters
    ----------
    attrs
        The attributes.
    kept
        What `read` asked `origin` to keep; anything else is not looked at.
    dtype
        The array's dtype, for its fill value.

    Raises
    ------
    ValueError
        One has no like in JSON.

    """
    document: dict[str, Any] = {}
    changed = []
    for name, value in attrs.items():
        if _is_tree(value):
            document[name] = json_of(value)
            continue
        known = kept.get(name) if isinstance(kept, dict) else None
        if isinstance(known, dict) and "json" in known:
            again = read({name: known["json"]}, dtype)[0][name]
            if _same(again, value):
                document[name] = known["json"]
                continue
        document[name] = _written(name, value, dtype)
        if not _same(read({name: document[name]}, dtype)[0][name], value):
            changed.append(f"{name} ({np.asarray(value).dtype})")
    return document, changed


def value_of(found: Any) -> Any:
    """Return the value here of a JSON value; None if it has no like."""
    if isinstance(found, str):
        return found if _is_utf8(found) else None
    flat: list[Any] = []
    shape = _flatten(found, flat, 0)
    if shape is None:
        return None
    kinds = {type(value) for value in flat}
    if kinds <= {int, float} and float in kinds:
        exact = all(abs(v) <= _LONG for v in flat if type(v) is int)
        dtype = np.dtype("f8") if exact else None
    elif kinds == {int}:
        dtype = _integer(flat)
    else:
        dtype = _KINDS.get(kinds.pop()) if len(kinds) == 1 else None
        dtype = np.dtype("f8") if not flat else dtype
    if dtype is None or not all(_is_utf8(v) for v in flat):
        return None
    made = np.array(flat, dtype).reshape(shape)
    return made if isinstance(found, list) else made[()]


def json_of(value: Any) -> Any:
    """Return the JSON of an attribute's value.

    Raises
    ------
    ValueError
        It has none.

    """
    if _is_tree(value):
        return trees.as_json(value if isinstance(value, dict | list) else nested.decode(value))[0]
    found = np.asarray(value)
    if found.dtype.kind == "S":
        return np.strings.decode(found, "utf-8").tolist()
    is_long = found.dtype.kind == "f" and found.dtype.itemsize > _FLOAT_BYTES
    if is_long or found.dtype.kind not in "biufUTO":
        message = f"JSON has no {found.dtype}"
        raise ValueError(message)
    return found.tolist()


def _is_tree(value: Any) -> bool:
    """Whether a value is a tree, as it is in a pool or as Python has it."""
    return isinstance(value, dict | list) or trees.is_tree(value)


def marks(attrs: Attributes) -> dict[str, Any]:
    """Return the attribute, as JSON, that tells which others are trees; nothing if none is."""
    forms = {
        name: trees.as_json(nested.decode(value))[1]
        for name, value in attrs.items()
        if trees.is_tree(value)
    }
    return {trees.MARK: forms} if forms else {}


def fill_value(found: Any, dtype: np.dtype[Any]) -> Any:
    """Return a fill value's JSON as a value of the array's dtype; None if it is none of it."""
    try:
        with np.errstate(over="ignore"):
            if dtype.kind == "f" and isinstance(found, str):
                return dtype.type(_number(found))
            if dtype.kind == "c" and isinstance(found, list):
                real, imaginary = found
                return dtype.type(complex(_number(real), _number(imaginary)))
            if dtype.kind in "iu" and type(found) is int:
                return dtype.type(found)
    except (ValueError, TypeError, struct.error, OverflowError):  # no such bytes, or no base64
        pass
    return None


def is_read(value: Any, dtype: np.dtype[Any]) -> bool:
    """Whether xarray opens an array of a dtype that has this fill value as an attribute.

    A number that the dtype lacks, such as NaN among integers, is no value of the array: it masks
    nothing, and xarray fails of it or takes another number for it.
    """
    said = np.asarray(value)
    if said.size != 1 or said.dtype.kind not in FILLED.get(dtype.kind, ""):
        return False
    if dtype.kind not in "iu":
        return True
    limits, number = np.iinfo(dtype), said.item()
    return bool(number == number // 1 and limits.min <= number <= limits.max)


def _written(name: str, value: Any, dtype: np.dtype[Any] | None) -> Any:
    """Return the JSON of an attribute, which may be a fill value."""
    scalar = np.asarray(value)
    if name == FILL and dtype is not None and scalar.size == 1:
        if dtype.kind == "f" and scalar.dtype.kind in "iuf":
            return _packed(float(scalar.item()))
        if dtype.kind == "c" and scalar.dtype.kind in "iufc":
            number = complex(scalar.item())
            return [_packed(number.real), _packed(number.imag)]
        if dtype.kind in "iu" and scalar.dtype.kind in "iu":
            return int(scalar.item())
    return json_of(value)


def _packed(number: float) -> str:
    """Return a float's eight bytes as base64."""
    return base64.b64encode(struct.pack("<d", number)).decode("ascii")


def _number(packed: str) -> float:
    """Return the float whose bytes these are."""
    (number,) = struct.unpack("<d", base64.b64decode(packed, validate=True))
    return float(number)


def _flatten(found: Any, flat: list[Any], depth: int) -> tuple[int, ...] | None:
    """Add the scalars of a nested list, and return its shape; None where it has none."""
    if not isinstance(found, list):
        flat.append(found)
        return ()
    if depth == _MAX_DEPTH:
        return None
    shapes = [_flatten(inner, flat, depth + 1) for inner in found]
    if not shapes:
        return (0,)
    first = shapes[0]
    return None if first is None or any(s != first for s in shapes) else (len(found), *first)


def _integer(flat: list[int]) -> np.dtype[Any] | None:
    """Return the dtype that holds these integers; None if none does."""
    for dtype in (np.int64, np.uint64):
        limits = np.iinfo(dtype)
        if limits.min <= min(flat) and max(flat) <= limits.max:
            return np.dtype(dtype)
    return None


def _is_utf8(found: object) -> bool:
    """Whether all the text in it can be UTF-8: JSON may have halves of surrogate pairs."""
    try:
        json.dumps(found, ensure_ascii=False).encode()
    except UnicodeEncodeError:
        return False
    return True


def _spelled(found: Any) -> str:
    """Return JSON as text, so that 1, 1.0 and true differ, and NaN equals itself."""
    return json.dumps(found, sort_keys=True)


def _same(one: Any, other: Any) -> bool:
    """Whether two values are the same in dtype, shape and every value."""
    if isinstance(one, str) or isinstance(other, str):
        return type(one) is type(other) and one == other
    one, other = np.asarray(one), np.asarray(other)
    if one.dtype != other.dtype or one.shape != other.shape:
        return False
    if one.dtype.kind == "T":
        return bool(one.tolist() == other.tolist())
    return bool(one.tobytes() == other.tobytes())
