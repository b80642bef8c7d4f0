"""Virtual chunks: how an array in one piece is cut, so that each chunk is one run of its memory.

Zarr's chunks all are of one shape, and one that reaches beyond the array is stored as if it did
not. Memory ends where the array ends; so chunks here never reach beyond. They are whole along the
last dimensions, a divisor of one length, and 1 along the first ones. Where no divisor gives the
size that is asked for, the one that comes nearest does: a length that is a prime gives one chunk.
"""

from __future__ import annotations

import functools
import math

CHUNK_BYTES = 64 << 20
"""Bytes of a virtual chunk, if nothing else is asked for: what a task of dask's is worth."""


def chunk_shape(shape: tuple[int, ...], itemsize: int, limit: int | None) -> tuple[int, ...]:
    """Return the shape of an array's virtual chunks.

    Parameters
    ----------
    shape
        The array's shape.
    itemsize
        Bytes of an item.
    limit
        Bytes of a chunk, more or less; None for one chunk.

    """
    lengths = tuple(max(1, length) for length in shape)
    if not lengths or limit is None or itemsize * math.prod(lengths) <= limit:
        return lengths
    axis, inner = 0, itemsize * math.prod(lengths[1:])
    while inner > limit and axis + 1 < len(lengths):
        axis += 1
        inner //= lengths[axis]
    best = min(_divisors(lengths[axis]), key=lambda part: _distance(part * inner, limit))
    return (*(1,) * axis, best, *lengths[axis + 1 :])


def _distance(nbytes: int, limit: int) -> float:
    """Tell how many times too large or too small a chunk is."""
    return max(nbytes, limit) / max(1, min(nbytes, limit))


@functools.lru_cache(maxsize=256)
def _divisors(length: int) -> tuple[int, ...]:
    small = [part for part in range(1, math.isqrt(length) + 1) if length % part == 0]
    return tuple(small + [length // part for part in reversed(small)])


def begin(place: tuple[int, ...], chunks: tuple[int, ...], shape: tuple[int, ...]) -> int:
    """Return how many items of an array lie before a virtual chunk."""
    before = 0
    for at, part, length in zip(place, chunks, shape, strict=True):
        before = before * length + at * part
    return before
