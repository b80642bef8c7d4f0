"""Attributes as text: on one line, exact, and the same for the same value, wherever it was made.

`run-17/T` has `units = str "K"` and `orbit = int16 4`: a key, a dtype with the lengths of the
dimensions, and the value as JSON has it. Beside JSON there are `nan`, `inf`, `-inf`, `NaT`, times
in ISO 8601, complex numbers as [real, imaginary], and bytes as hexadecimal digits (`0x6162`). A
dict or a list is a `tree`.
"""

from __future__ import annotations

import functools
import json
import math
import re
from typing import TYPE_CHECKING, Any

import numpy as np

if TYPE_CHECKING:
    from collections.abc import Callable

_PLAIN = re.compile(r"[\w.+/@%-]+")
"""What needs no quotes; a shell reads it as one word, too."""

_LONG = 8
"""Numbers of more bytes than so many have bytes that mean nothing, and are told by numpy."""

_BITS = {2: 0x7E00, 4: 0x7FC00000, 8: 0x7FF8000000000000}
"""The bits of the NaN that computing gives, without its sign, by the bytes of the number."""


def quoted(text: str) -> str:
    """Return text as a string of JSON, in which what would not show as itself is escaped."""
    shown = json.dumps(text, ensure_ascii=False)
    if shown.isprintable():
        return shown
    return "".join(c if c.isprintable() else json.dumps(c)[1:-1] for c in shown)


def word(text: str) -> str:
    """Return a path or a key: as it is, where that is one word, else quoted."""
    return text if _PLAIN.fullmatch(text) and text.isprintable() else quoted(text)


def split_word(text: str) -> tuple[str, str]:
    """Split what `word` gave from what follows it.

    Raises
    ------
    ValueError
        If the text does not begin so.

    """
    if text.startswith('"'):
        found, end = json.JSONDecoder().raw_decode(text)
        return str(found), text[end:]
    match = _PLAIN.match(text)
    if match is None:
        message = f"{text[:40]!r} begins with no word"
        raise ValueError(message)
    return match[0], text[match.end() :]


def attribute(value: Any) -> str:
    """Return an attribute's dtype and value as text."""
    if isinstance(value, str):
        return f"str {quoted(value)}"
    if isinstance(value, dict | list):
        return f"tree {tree(value)}"
    array = np.asarray(value)
    lengths = f"[{', '.join(map(str, array.shape))}]" if array.shape else ""
    return f"{dtype_text(array.dtype)}{lengths} {_items(array)}"


def tree(value: Any) -> str:
    """Return a tree, or what is in it, as JSON has it; numpy's values with their dtypes."""
    if isinstance(value, dict):
        return f"{{{', '.join(f'{quoted(key)}: {tree(item)}' for key, item in value.items())}}}"
    if isinstance(value, list):
        return f"[{', '.join(map(tree, value))}]"
    if isinstance(value, np.ndarray | np.generic):
        return attribute(value)
    if isinstance(value, bytes):
        return f"0x{value.hex()}"
    if value is None or (isinstance(value, int) and not isinstance(value, bool)):
        return json.dumps(value)  # a whole number of any length
    return _items(np.array(value))


@functools.lru_cache(maxsize=256)
def dtype_text(dtype: np.dtype[Any]) -> str:
    """Return a dtype with all that it says: float32, >i4, string, and the fields of a structure."""
    return "string" if dtype.kind == "T" else " ".join(str(dtype).split())


def _items(array: np.ndarray[Any, Any]) -> str:
    """Return all items of an array as nested lists."""
    if array.ndim:
        return f"[{', '.join(_items(array[place, ...]) for place in range(len(array)))}]"
    return _item(array[()], array.dtype)


_AS: dict[str, Callable[[Any], str]] = {
    "b": lambda value: "true" if value else "false",
    "U": lambda value: quoted(str(value)),
    "T": lambda value: quoted(str(value)),
    "S": lambda value: f"0x{bytes(value).hex()}",
    "V": lambda value: f"0x{bytes(value).hex()}",
}
"""How an item is written, by the kind of its dtype; as numpy does, if it does not say."""


def _item(value: Any, dtype: np.dtype[Any]) -> str:
    """Return one item of an array."""
    if dtype.names is not None:
        fields = (f"{quoted(name)}: {_items(np.asarray(value[name]))}" for name in dtype.names)
        return f"{{{', '.join(fields)}}}"
    if dtype.kind in "fc":
        return _number(value, dtype)
    if dtype.kind == "m" and not np.isnat(value):
        return str(value.astype(np.int64))
    how = _AS.get(dtype.kind, str)
    return how(value)


def _number(value: Any, dtype: np.dtype[Any]) -> str:
    """Return a number that may have a fraction, with all of its digits."""
    if dtype.kind == "c":
        part = np.dtype(f"f{dtype.itemsize // 2}")
        return f"[{_number(value.real, part)}, {_number(value.imag, part)}]"
    if dtype.itemsize > _LONG:
        return str(value)
    if math.isnan(value):
        return _nan(value, dtype)
    return str(dtype.newbyteorder("=").type(value))


def _nan(value: Any, dtype: np.dtype[Any]) -> str:
    """Return what is no number: `nan`, with its bits where they are not the usual ones."""
    bits = int(np.asarray(value, dtype.newbyteorder("=")).view(f"u{dtype.itemsize}"))
    sign = bits >> (8 * dtype.itemsize - 1)
    rest = bits & ~(1 << (8 * dtype.itemsize - 1))
    shown = "nan" if rest == _BITS[dtype.itemsize] else f"nan:{rest:x}"
    return f"-{shown}" if sign else shown
