"""Values as JSON: whatever a pool holds becomes what every browser reads, bounded.

JSON has neither whole numbers beyond 2^53, as a browser reads them, nor NaN, bytes or arrays. Each
of these is an object with one telling key: `int`, `float`, `complex`, `bytes`, `array`, `text`. All
characters beyond ASCII are escaped, so hostile names cannot end a string, and nothing in an answer
looks like HTML.
"""

from __future__ import annotations

import json
import math
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from engram.errors import NotFoundError

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

_EXACT = 1 << 53
"""Whole numbers up to here are exact as a browser has them."""
_ITEM = 8
_ATTRIBUTES = 1000
_HTML = str.maketrans({"<": "\\u003c", ">": "\\u003e", "&": "\\u0026"})
"""What HTML is made of, escaped as JSON has it: no sniffing browser takes an answer for a page."""


class Bounds(NamedTuple):
    """How much of a value is told."""

    items: int
    bytes: int
    characters: int


FULL = Bounds(64, 256, 1 << 14)
"""Of an object's attributes."""
LISTED = Bounds(8, 64, 200)
"""Of values in a listing of many objects."""


def dumps(told: Any) -> bytes:
    """Write an answer; its values are plain already, or `plain` makes them so."""
    text = json.dumps(
        told, ensure_ascii=True, allow_nan=False, separators=(",", ":"), default=plain
    )
    return text.translate(_HTML).encode("ascii")


def number(value: float) -> Any:
    """Return a number as JSON has it."""
    if isinstance(value, int):
        return value if -_EXACT <= value <= _EXACT else {"int": str(value)}
    if math.isfinite(value):
        return float(value)
    return {"float": "nan" if math.isnan(value) else "inf" if value > 0 else "-inf"}


def plain(value: Any, bounds: Bounds = FULL) -> Any:
    """Return a value of an attribute, or an item of an array, as JSON has it: cut if it is long."""
    if isinstance(value, np.generic) and value.dtype.kind in "iuf":
        value = value.item() if value.dtype.itemsize <= _ITEM else float(value)
    for kinds, write in _WRITERS:
        if isinstance(value, kinds):
            return write(value, bounds)
    return _text(str(value), bounds)


def attributes(attrs: Mapping[str, Any], bounds: Bounds = FULL) -> dict[str, Any]:
    """Return attributes as JSON has them: the first thousand, read one after the other."""
    found: dict[str, Any] = {}
    for name in attrs:
        if len(found) == _ATTRIBUTES:
            break
        try:
            found[name] = plain(attrs[name], bounds)
        except NotFoundError:  # deleted meanwhile
            continue
    return found


def _text(text: str, bounds: Bounds) -> Any:
    if len(text) <= bounds.characters:
        return text
    return {"text": text[: bounds.characters], "size": len(text), "cut": True}


def _bytes(value: bytes, bounds: Bounds) -> dict[str, Any]:
    told: dict[str, Any] = {"bytes": value[: bounds.bytes].hex(), "size": len(value)}
    return told | ({"cut": True} if len(value) > bounds.bytes else {})


def _array(value: np.ndarray[Any, Any], bounds: Bounds) -> Any:
    if not value.ndim:
        return plain(value[()], bounds)
    told: dict[str, Any] = {"dtype": dtype_text(value.dtype), "shape": list(value.shape)}
    if not value.size:  # of shape (10**9, 0) a list would have so many
        return {"array": [], **told}
    if value.size > bounds.items:
        first = value.reshape(-1)[: bounds.items]
        return {"array": [plain(each, bounds) for each in first], **told, "cut": True}
    return {"array": _nested(value, bounds), **told}


def _nested(value: np.ndarray[Any, Any], bounds: Bounds) -> list[Any]:
    if value.ndim == 1:
        return [plain(each, bounds) for each in value]
    return [_nested(each, bounds) for each in value]


def dtype_text(dtype: np.dtype[Any]) -> str:
    """Return a dtype as people write it: float32, >i4, string."""
    return "string" if dtype.kind == "T" else str(dtype)


_WRITERS: tuple[tuple[Any, Callable[[Any, Bounds], Any]], ...] = (
    (type(None), lambda _, __: None),
    (bool | np.bool_, lambda value, _: bool(value)),
    (int | float, lambda value, _: number(value)),
    (str, lambda value, bounds: _text(str(value), bounds)),
    (
        bytes | bytearray | memoryview | np.void,
        lambda value, bounds: _bytes(bytes(value), bounds),
    ),
    (
        complex | np.complexfloating,
        lambda value, _: {"complex": [number(float(value.real)), number(float(value.imag))]},
    ),
    (np.datetime64 | np.timedelta64, lambda value, _: str(value)),
    (np.ndarray, _array),
    (
        list | tuple,
        lambda value, bounds: [plain(each, bounds) for each in value[: bounds.items]],
    ),
    (
        dict,
        lambda value, bounds: {
            str(key): plain(each, bounds) for key, each in list(value.items())[: bounds.items]
        },
    ),
)
"""How values of each kind are written: the first that fits."""
