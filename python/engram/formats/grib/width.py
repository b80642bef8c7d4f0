"""How wide numbers have to be to hold what messages say: float32 where that is exact, else float64.

A packed value is ``(reference + n * 2**binary) / 10**decimal``, and n has so many bits. The bits of
n alone decide nothing: 16 of them beside a reference value of 100000 may need more than the 24 that
float32 has. Where the numbers of a message settle it, no value is decoded; else the values do.
"""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Any

import numpy as np

if TYPE_CHECKING:
    from collections.abc import Iterable

Array = np.ndarray[Any, Any]

_SCALED = {"grid_simple", "grid_ccsds", "grid_png"}
"""Packings whose n is a whole number without a sign."""

_IEEE, _IEEE_SINGLE = "grid_ieee", 1
_DIGITS = 24
_LEAST, _MOST = -149, 128
"""The exponents of float32's least number, and of what is beyond its greatest."""


def dtype_of(fields: Any, ids: Iterable[Any]) -> np.dtype[Any]:
    """Return float32 if it holds every value of some messages exactly, else float64."""
    single = all(_is_single(fields.get_field(each)) for each in ids)
    return np.dtype("f4" if single else "f8")


def _is_single(message: Any) -> bool:
    """Whether float32 holds a message's values."""
    packing = message["packingType"]
    if packing == _IEEE and message.get("precision") == _IEEE_SINGLE:
        return True
    if packing in _SCALED and message["decimalScaleFactor"] == 0:
        scale, bits = message["binaryScaleFactor"], message["bitsPerValue"]
        if holds_scaled(float(message["referenceValue"]), int(scale), int(bits)):
            return True
    return is_held(np.asarray(message["values"]))


def holds_scaled(reference: float, scale: int, bits: int) -> bool:
    """Whether float32 holds ``reference + n * 2**scale`` for every n of so many bits.

    All of these are multiples of a power of two. If the largest is at most ``2**24`` times that,
    float32 holds each of them.
    """
    if not math.isfinite(reference) or not _LEAST <= scale <= _MOST:
        return False
    unit = scale if bits else None
    if reference:
        over, under = reference.as_integer_ratio()
        own = (over & -over).bit_length() - under.bit_length()
        unit = own if unit is None else min(unit, own)
    if unit is None:  # all are zero
        return True
    most = max(abs(reference), abs(reference + math.ldexp((1 << bits) - 1, scale)))
    return unit >= _LEAST and most <= math.ldexp(1, unit + _DIGITS) and most < 2.0**_MOST


def is_held(values: Array) -> bool:
    """Whether float32 holds values exactly; what is missing is no matter."""
    with np.errstate(over="ignore", invalid="ignore"):
        single = values.astype("f4")
    return np.array_equal(single, values, equal_nan=True)
