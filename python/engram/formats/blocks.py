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
    from collections.abc import Iterator, Sequence

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


def whole(shape: tuple[int, ...]) -> Region:
    """Return the region that is all of an array."""
    return tuple([slice(0, length, 1) for length in shape])


def region_shape(region: Region) -> tuple[int, ...]:
    """Return the shape of what a region selects."""
    return tuple([len(range(part.start, part.stop, part.step or 1)) for part in region])


def start_of(place: Region, shape: tuple[int, ...]) -> int | None:
    """Return the first element of a place in an array in C order; None if its elements are apart.

    The place has steps of 1, as `pieces` gives it.
    """
    start, is_cut = 0, False
    for part, length in zip(place, shape, strict=True):
        start = start * length + part.start
    for part, length in zip(reversed(place), reversed(shape), strict=True):
        count = part.stop - part.start
        if is_cut and count > 1:
            return None
        is_cut = is_cut or count < length
    return start


def pieces(
    wanted: Region, chunks: tuple[int, ...] | None, itemsize: int, limit: int = BLOCK_BYTES
) -> Iterator[tuple[Region, Region]]:
    """Yield each piece of a wanted region, and where it stands among what is wanted.

    The pieces end where the file's chunks end, so that each chunk is decoded once, however the
    wanted region lies.

    Parameters
    ----------
    wanted
        Slices with a start, a stop and a positive step.
    chunks
        The file's chunk shape, or None where it has none.
    itemsize
        Bytes of one element.
    limit
        Bytes from the first to the last element of a piece, at most, unless a chunk is larger.

    """
    shape = region_shape(wanted)
    if 0 in shape:
        return
    nbytes = itemsize
    for part in wanted:
        nbytes *= part.stop - part.start
    if nbytes <= limit:
        yield wanted, whole(shape)
        return
    spans = tuple(
        # A chunk is not cut, however little of it is wanted.
        -(-part.stop // chunk) * chunk - part.start // chunk * chunk
        for part, chunk in zip(wanted, chunks or (1,) * len(wanted), strict=True)
    )
    block = block_shape(spans, chunks, itemsize, limit)
    axes = [_cut(part, step) for part, step in zip(wanted, block, strict=True)]
    for found in itertools.product(*axes):
        yield tuple(part for part, _ in found), tuple(place for _, place in found)


def _cut(part: slice, block: int) -> Sequence[tuple[slice, slice]]:
    """Cut a slice at the multiples of a block; give each piece, and its place in the whole."""
    step = part.step or 1
    cut = []
    start, place = part.start, 0
    while start < part.stop:
        stop = min(part.stop, (start // block + 1) * block)
        count = -(-(stop - start) // step)
        cut.append((slice(start, stop, step), slice(place, place + count, 1)))
        start, place = start + count * step, place + count
    return cut


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
