"""Values as JSON: whatever a pool holds becomes what every browser reads, bounded.

JSON has neither whole numbers beyond 2^53, as a browser reads them, nor NaN, bytes or arrays. Each
of these is an object with one telling key: `int`, `float`, `complex`, `bytes`, `array`, `text`. All
characters beyond ASCII are escaped, so hostile names cannot end a string, and nothing in an answer
looks like HTML.
"""

from __future__ import annotations

import json
import math
from typing import TYPE_CHECKING, Any

import numpy as np

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

_EXACT = 1 << 53
"""Whole numbers up to here are exact as a browser has them."""
_ITEMS = 64
_ITEM = 8
_BYTES = 256
_CHARACTERS = 1 << 14
_ATTRIBUTES = 1000
_HTML = str.maketrans({"<": "\\u003c", ">": "\\u003e", "&": "\\u0026"})
"""What HTML is made of, escaped as JSON has it: no sniffing browser takes an answer for a page."""


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


def plain(value: Any) -> Any:
    """Return a value of an attribute, or an item of an array, as JSON has it: cut if it is long."""
    if isinstance(value, np.generic) and value.dtype.kind in "iuf":
        value = value.item() if value.dtype.itemsize <= _ITEM else float(value)
    for kinds, write in _WRITERS:
        if isinstance(value, kinds):
            return write(value)
    return _text(str(value))


def attributes(attrs: Mapping[str, Any]) -> dict[str, Any]:
    """Return attributes as JSON has them: the first thousand."""
    found: dict[str, Any] = {}
    for name, value in attrs.items():
        if len(found) == _ATTRIBUTES:
            break
        found[name] = plain(value)
    return found


def _text(text: str) -> Any:
    if len(text) <= _CHARACTERS:
        return text
    return {"text": text[:_CHARACTERS], "size": len(text), "cut": True}


def _bytes(value: bytes) -> dict[str, Any]:
    told: dict[str, Any] = {"bytes": value[:_BYTES].hex(), "size": len(value)}
    return told | ({"cut": True} if len(value) > _BYTES else {})


def _array(value: np.ndarray[Any, Any]) -> Any:
    if not value.ndim:
        return plain(value[()])
    told: dict[str, Any] = {"dtype": dtype_text(value.dtype), "shape": list(value.shape)}
    if not value.size:  # of shape (10**9, 0) a list would have so many
        return {"array": [], **told}
    if value.size > _ITEMS:
        first = value.reshape(-1)[:_ITEMS]
        return {"array": [plain(each) for each in first], **told, "cut": True}
    return {"array": _nested(value), **told}


def _nested(value: np.ndarray[Any, Any]) -> list[Any]:
    if value.ndim == 1:
        return [plain(each) for each in value]
    return [_nested(each) for each in value]


def dtype_text(dtype: np.dtype[Any]) -> str:
    """Return a dtype as people write it: float32, >i4, string."""
    return "string" if dtype.kind == "T" else str(dtype)


_WRITERS: tuple[tuple[Any, Callable[[Any], Any]], ...] = (
    (type(None), lambda _: None),
    (bool | np.bool_, bool),
    (int | float, number),
    (str, lambda value: _text(str(value))),
    (bytes | bytearray | memoryview | np.void, lambda value: _bytes(bytes(value))),
    (
        complex | np.complexfloating,
        lambda value: {"complex": [number(float(value.real)), number(float(value.imag))]},
    ),
    (np.datetime64 | np.timedelta64, str),
    (np.ndarray, _array),
    (list | tuple, lambda value: [plain(each) for each in value[:_ITEMS]]),
    (
        dict,
        lambda value: {str(key): plain(each) for key, each in list(value.items())[:_ITEMS]},
    ),
)
"""How values of each kind are written: the first that fits."""
