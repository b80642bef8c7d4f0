"""Blocks of arrays in chunks: which are looked at where all would be too many.

Of an array in chunks, a step saves no reading unless it leads over whole chunks. So if more bytes
of chunks would be read than a request may, whole blocks at equal distances are. A block is a chunk,
or a part of a large one that is not compressed.
"""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, NamedTuple

if TYPE_CHECKING:
    from collections.abc import Sequence

    from engram.web.picks import Pick
    from engram.web.sources import Source

DECODED_MOST = 4 << 30
"""So many bytes of chunks are read for one request."""
_BLOCKS_MOST = 1 << 14
_BLOCK = 4 << 20
"""A block of a chunk that is not compressed has so many bytes at most."""


class Blocks(NamedTuple):
    """How what is selected is cut into blocks."""

    lengths: list[int]
    """The length of a block along each range."""
    most: int
    """So many may be read."""


def blocks_of(source: Source, pick: Pick, ranges: Sequence[range]) -> Blocks | None:
    """Return the blocks of what is selected; None if all of it may be read."""
    if source.chunks is None:
        return None
    lengths = [source.chunks[dim] for dim in pick.dims]
    count = math.prod(map(spanned, ranges, lengths))
    nbytes = source.chunk_bytes if source.is_packed else _nbytes(source, lengths)
    if count * nbytes <= DECODED_MOST:
        return None
    while not source.is_packed and nbytes > _BLOCK and max(lengths) > 1:
        longest = lengths.index(max(lengths))
        lengths[longest] = -(-lengths[longest] // 2)
        nbytes = _nbytes(source, lengths)
    return Blocks(lengths, max(min(DECODED_MOST // nbytes, _BLOCKS_MOST), 1))


def _nbytes(source: Source, lengths: list[int]) -> int:
    return math.prod(lengths) * source.dtype.itemsize


def spanned(along: range, length: int) -> int:
    """Count the blocks in which places of a range lie."""
    if not along:
        return 0
    return min(len(along), along[-1] // length - along[0] // length + 1)


def cut(along: range, length: int, most: int) -> list[range]:
    """Cut a range at the ends of blocks; of more than `most`, take those at equal distances."""
    count = spanned(along, length)
    taken = min(count, most)
    chosen = [(2 * at + 1) * count // (2 * taken) for at in range(taken)]
    if count == len(along):  # no two places lie in one
        return [along[at : at + 1] for at in chosen]
    first = along[0] // length
    return [_within(along, (first + at) * length, length) for at in chosen]


def _within(along: range, start: int, length: int) -> range:
    """Return the places of a range that lie in a block."""
    begin, end = (max(-(-(at - along.start) // along.step), 0) for at in (start, start + length))
    return along[begin:end]


def shared(counts: tuple[int, int], sides: tuple[int, int], most: int) -> tuple[int, int]:
    """Return of how many rows and columns of blocks `most` are made, in a picture's proportions."""
    rows = min(counts[0], max(math.isqrt(most * sides[0] // sides[1]), 1))
    columns = min(counts[1], max(most // rows, 1))
    return min(counts[0], max(most // columns, 1)), columns


def fewer(counts: list[int], most: int) -> list[int]:
    """Return of how many blocks along each range `most` are made: fewer of the first ones."""
    taken = list(counts)
    for place, count in enumerate(counts):
        others = math.prod(taken) // count
        taken[place] = min(count, max(most // others, 1))
    return taken
