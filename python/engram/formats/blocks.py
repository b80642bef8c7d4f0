"""Hyperslabs: how a variable is read in pieces that are bounded and fit the file's chunks.

A piece is a whole number of the file's chunks, so that each chunk is decoded once. It grows from
the last axis to the first, so that it is contiguous in the file and in memory wherever the chunks
allow. One chunk is the least that is read, however large the file made it.
"""

from __future__ import annotations

import itertools
import math
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Iterator

Region = tuple[slice, ...]

BLOCK_BYTES = 16 << 20
"""Bytes of one piece, at most, unless a single chunk of the file is larger."""


def index(region: Region) -> tuple[Any, ...]:
    """Return what indexes an array to give a view of the region, also where it has no axes."""
    return (*region, ...)


def block_shape(
    shape: tuple[int, ...], chunks: tuple[int, ...] | None, itemsize: int, limit: int
) -> tuple[int, ...]:
    """Return the shape of the pieces in which ``shape`` is read.

    Parameters
    ----------
    shape
        The variable's shape, without a zero.
    chunks
        The file's chunk shape, or None where it has none.
    itemsize
        Bytes of one element.
    limit
        Bytes of a piece, at most.

    """
    unit = [min(c, n) for c, n in zip(chunks or (1,) * len(shape), shape, strict=True)]
    block = list(unit)
    for axis in reversed(range(len(shape))):
        others = max(1, itemsize) * math.prod(block[:axis] + block[axis + 1 :])
        multiple = max(1, limit // (others * unit[axis]))
        block[axis] = min(shape[axis], multiple * unit[axis])
        if block[axis] < shape[axis]:
            break
    return tuple(block)


def regions(
    shape: tuple[int, ...],
    chunks: tuple[int, ...] | None,
    itemsize: int,
    limit: int = BLOCK_BYTES,
) -> Iterator[Region]:
    """Yield regions that cover ``shape`` once, in C order; none where there are no elements."""
    if math.prod(shape) == 0:
        return
    block = block_shape(shape, chunks, itemsize, limit)
    axes = [
        [slice(start, min(start + step, length)) for start in range(0, length, step)]
        for length, step in zip(shape, block, strict=True)
    ]
    yield from itertools.product(*axes)
