"""Which names netCDF can carry, and names for what has none."""

from __future__ import annotations

import unicodedata
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Container

NAME_BYTES = 256
RESERVED = frozenset(
    {
        "_NCProperties",
        "_Netcdf4Coordinates",
        "_Netcdf4Dimid",
        "_nc3_strict",
        "CLASS",
        "DIMENSION_LIST",
        "NAME",
        "REFERENCE_LIST",
    }
)
"""Attributes that netCDF-4 keeps for itself: its library writes them, and does not show them."""


def name_problem(name: str) -> str | None:
    """Say why a name cannot be one in a netCDF file; None if it can."""
    first = name[:1]
    if not (first.isascii() and (first.isalnum() or first == "_")) and first.isascii():
        return f"the name {name!r} begins with neither a letter, a digit nor '_'"
    if name.endswith(" "):
        return f"the name {name!r} ends with a space"
    if "/" in name or any(ord(c) < ord(" ") or c == "\x7f" for c in name):
        return f"the name {name!r} has a '/' or a control character"
    if unicodedata.normalize("NFC", name) != name:
        return f"the name {name!r} is not in Unicode's normal form C, the only one in netCDF"
    if len(name.encode()) > NAME_BYTES:
        return f"the name {name[:40]!r} has more than {NAME_BYTES} bytes"
    return None


def unused(wanted: str, taken: Container[str]) -> str:
    """Return a name that is not taken: the one that is wanted, or with a number after it."""
    name, number = wanted, 1
    while name in taken:
        number += 1
        name = f"{wanted}_{number}"
    return name
