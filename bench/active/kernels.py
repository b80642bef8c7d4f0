"""What the applications do to blocks: plain functions over numpy arrays, and a clock on them.

Every way runs these very functions, wherever its blocks are; `spent` tells how long they took in
this process, which is the time of the methods alone.
"""

from __future__ import annotations

import time
from collections import Counter
from typing import TYPE_CHECKING, Any

import numpy as np

if TYPE_CHECKING:
    from collections.abc import Callable

    Values = np.ndarray[Any, Any]


def histogram(values: Values, edges: Values) -> Values:
    """Count the values in each of the bins, which are of uneven widths."""
    counts: Values = np.histogram(values, edges)[0]
    return counts


def nearest(points: Values, centres: Values) -> Values:
    """Add up the points (rows) that are nearest to each centre; the last column counts them."""
    distances = (centres**2).sum(axis=1) - 2 * (points @ centres.T)
    chosen = np.zeros(distances.shape)
    chosen[np.arange(len(points)), distances.argmin(axis=1)] = 1
    sums: Values = np.column_stack([chosen.T @ points, chosen.sum(axis=0)])
    return sums


def add(left: Values, right: Values) -> Values:
    """Add up two blocks."""
    total: Values = left + right
    return total


def times(left: Values, right: Values) -> Values:
    """Multiply two blocks as matrices."""
    product: Values = left @ right
    return product


def fma(left: Values, right: Values, out: Values) -> None:
    """Multiply two blocks as matrices, and add the product to a third one where that lies."""
    out += left @ right


def words(text: Values) -> Counter[bytes]:
    """Count each word of a text, which is an array of bytes."""
    return Counter(text.tobytes().split())


KERNELS: dict[str, Callable[..., Any]] = {
    function.__name__: function for function in (histogram, nearest, add, times, fma, words)
}


class _Clock:
    """How long kernels have run in this process."""

    spent_s = 0.0


def run(name: str, *arguments: Any, **named: Any) -> Any:
    """Run a kernel by its name."""
    start = time.perf_counter()
    result = KERNELS[name](*arguments, **named)
    _Clock.spent_s += time.perf_counter() - start
    return result


def spent() -> float:
    """Seconds that kernels took in this process since this was asked last."""
    taken_s, _Clock.spent_s = _Clock.spent_s, 0.0
    return taken_s
