"""Sizes in bytes, as people write them: "4 GiB" is 4294967296, "1.5 TB" is 1500000000000."""

import operator
import re
import reprlib
from typing import SupportsIndex

from engram.errors import ArgumentError

_BINARY = {prefix: 1024**power for power, prefix in enumerate("kmgtpe", start=1)}
_DECIMAL = {prefix: 1000**power for power, prefix in enumerate("kmgtpe", start=1)}
_PATTERN = re.compile(
    r"([0-9]{1,999})(?:\.([0-9]{1,999}))?\s*(?:([kmgtpe])(i)?)?(?:b|bytes)?", re.IGNORECASE
)

_SHORT = reprlib.Repr()
_SHORT.maxstring = _SHORT.maxlong = _SHORT.maxother = 60

MAX_SIZE = 2**63 - 1
"""The largest size, in bytes."""


def parse(size: str | SupportsIndex) -> int:
    """Bytes in `size`: a whole number, or a string such as "4 GiB", "512MiB", "1.5 TB" or "4096".

    KiB, MiB ... are powers of 1024; kB, MB ... powers of 1000. Fractions are rounded down.

    Raises
    ------
    ArgumentError
        If it is neither, negative, or above 2**63 - 1 bytes.

    """
    remedy = 'give bytes, or a string such as "4 GiB" or "500 MB"'
    if isinstance(size, str):
        match = _PATTERN.fullmatch(size.strip())
        if match is None:
            raise ArgumentError(f"size {_shown(size)} cannot be read: {remedy}")
        whole, part, prefix, binary = match.groups(default="")
        unit = (_BINARY if binary else _DECIMAL)[prefix.lower()] if prefix else 1
        nbytes: int = int(whole + part) * unit // 10 ** len(part)
    else:
        try:
            nbytes = operator.index(size)
        except TypeError:
            raise ArgumentError(f"size {_shown(size)} is no whole number: {remedy}") from None
    if not 0 <= nbytes <= MAX_SIZE:
        raise ArgumentError(f"size {_shown(size)} is not within 0 and 2**63 - 1 bytes: {remedy}")
    return nbytes


def _shown(size: object) -> str:
    """Return a size as an error shows it: the middle of a long one is left out."""
    try:
        return _SHORT.repr(size)
    except ValueError:  # Python writes no whole number of thousands of digits
        return "of thousands of digits"


def human(nbytes: int) -> str:
    """`nbytes` in the largest binary unit that it fills, such as "1.5 GiB" or "256 B"."""
    unit, value = "B", float(nbytes)
    for prefix in "KMGTPE":
        if round(value, 1) < 1024:  # noqa: PLR2004 - what shows as 1024.0 is of the next unit
            break
        unit, value = f"{prefix}iB", value / 1024
    return f"{nbytes} B" if unit == "B" else f"{value:.1f} {unit}".replace(".0 ", " ")
