"""What an array's values are like: least, largest, mean, how many are missing, first and last time.

The work is bounded: of a large array values at equal distances are looked at, and it is said.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

from engram import conventions

if TYPE_CHECKING:
    import engram

_EXACT = 1e15
MOST = 4 << 20
"""So many values are looked at."""


def summary(array: engram.Array) -> dict[str, Any] | None:
    """Return minimum, maximum, mean, missing (a share of all) and step; None if there are none.

    Packed values are unpacked, missing ones left out. `step` is 1 if every value was looked at.
    Complex values have a mean alone, times none.
    """
    if not array.size or not (conventions.is_number(array.dtype) or array.dtype.kind in "mM"):
        return None
    step = -(-array.size // MOST)
    raw = np.asarray(array).reshape(-1)[::step]
    if raw.dtype.kind in "mM":
        known = raw[~np.isnat(raw)]
        values: dict[str, Any] = {}
    else:
        decoded = conventions.decoded(array, raw)
        known = decoded[~np.isnan(decoded)]
        with np.errstate(invalid="ignore", over="ignore"):  # of infinite ones
            values = {"mean": known.mean()[()]} if known.size else {}
    if known.size and known.dtype.kind != "c":
        values = {"minimum": known.min(), "maximum": known.max(), **values}
    return {**values, "missing": 1 - known.size / raw.size, "step": step}


def shown(told: dict[str, Any], units: str) -> str:
    """Return a summary as people read it."""
    unit = f" {units}" if units not in {"", "1"} and " since " not in units else ""
    if told["missing"] == 1:
        text = "all missing"
    elif "minimum" in told:
        text = f"{number(told['minimum'])} to {number(told['maximum'])}"
        text += f", mean {number(told['mean'])}{unit}" if "mean" in told else ""
    else:
        text = f"mean {told['mean']:.6g}{unit}"
    if 0 < told["missing"] < 1:
        text += f"; {100 * told['missing']:.2g} % missing"
    return text + (f" (one of every {told['step']} values)" if told["step"] > 1 else "")


def number(value: Any) -> str:
    """Return a number as people read it, a time as ISO 8601."""
    if isinstance(value, (np.datetime64, np.timedelta64)):
        return str(value)
    return f"{value:.0f}" if abs(value) < _EXACT and value == round(value) else f"{value:.6g}"


def span(array: engram.Array) -> list[str] | None:
    """Return the first and the last time of a coordinate, as ISO 8601; None if it has none."""
    if array.ndim > 1 or not array.size or array.dtype.kind == "M":
        return None
    flat = np.asarray(array).reshape(-1)
    found = conventions.times(array, flat[:: max(flat.size - 1, 1)])
    return None if found is None else conventions.iso(found)
