"""What is asked of arguments before they are used: errors name the argument and its value."""

import operator
import os
from collections.abc import Iterable
from pathlib import Path
from typing import Any

from engram.errors import ArgumentError

_MOST = 2**63 - 1


def whole_number(what: str, value: Any, least: int = 0, most: int = _MOST) -> int:
    """Give a whole number from `least` to `most`."""
    try:
        number = None if isinstance(value, str) else operator.index(value)
    except TypeError:
        number = None
    if number is None or not least <= number <= most:
        raise ArgumentError(f"{what} {value!r} is no number: give a whole one from {least} on")
    return number


def truth(what: str, value: Any) -> bool:
    """Give a truth value: no text, which would pass for true whatever it says."""
    if type(value).__name__ in {"bool", "bool_"} or (isinstance(value, int) and value in {0, 1}):
        return bool(value)
    raise ArgumentError(f"{what} {value!r} is no truth value: give True or False")


def file_path(what: str, value: Any) -> Path:
    """Give the path of a file."""
    try:
        text = os.fspath(value)
    except TypeError:
        text = None
    if not isinstance(text, str):
        raise ArgumentError(f"{what} {value!r} is no path: give a str or a pathlib.Path")
    return Path(text)


def several(what: str, values: Any) -> list[Any]:
    """Give a list of what comes as any iterable, but not as one text."""
    if isinstance(values, str | bytes | os.PathLike) or not isinstance(values, Iterable):
        raise ArgumentError(f"{what} {values!r} is no list: give a list, also of one")
    return list(values)
