"""Strings of variable length, too many to be held at once, poured straight into the pool.

What the pool has of them is a table of offsets, then their bytes (`docs/format.md`). So they are
read twice: once to learn how many bytes they have, which is what must be reserved, and once to put
them there. Only a bounded piece of them is in memory at a time.
"""

from __future__ import annotations

import itertools
import math
from typing import TYPE_CHECKING, Any

import numpy as np

from engram import _engram
from engram.errors import BusyError
from engram.formats.blocks import BLOCK_BYTES, pieces, region_shape
from engram.formats.source import reading
from engram.member import new_member

if TYPE_CHECKING:
    from collections.abc import Iterator

    from engram.formats.blocks import Region
    from engram.formats.source import TextNode
    from engram.group import Group

STREAM_FROM = 1 << 16
"""So many strings, and more, are not held at once."""

_TEXT_BYTES = 256
"""What a string is taken to need while it is read: itself, its object, and the library's own."""


class NotText(Exception):  # noqa: N818 - an answer within an import
    """Some of them are not UTF-8."""


def streams(node: TextNode, wanted: Region) -> bool:
    """Whether strings are to be poured piece by piece."""
    return node.raw is not None and math.prod(region_shape(wanted)) >= STREAM_FROM


def pour(
    node: TextNode,
    wanted: Region,
    above: Group,
    name: str,
    **more: Any,
) -> int:
    """Make an array of strings, and return the bytes of their UTF-8.

    What else is said of it is given as `new_member` has it.

    Raises
    ------
    NotText
        Some are not UTF-8; nothing was made.
    BusyError
        They have changed between being counted and being read.

    """
    shape = region_shape(wanted)
    count, total = math.prod(shape), 0
    for block in _blocks(node, wanted):
        total += sum(map(len, block))
    new = new_member(shape=shape, **more)
    nbytes = 8 * (count + 1) + total
    allocation = _engram.allocate_text(above._namespace, above._id, name, nbytes, new)
    try:
        _fill(_blocks(node, wanted), allocation.array, count)
    except BaseException:
        allocation.abandon()
        raise
    allocation.publish()
    return total


def _fill(blocks: Iterator[list[bytes]], memory: np.ndarray[Any, Any], count: int) -> None:
    """Write the table of offsets, and the bytes after it."""
    table, body = memory[: 8 * (count + 1)].view("<u8"), memory[8 * (count + 1) :]
    table[0], place, at = 0, 1, 0
    for block in blocks:
        ends = np.fromiter(itertools.accumulate(map(len, block), initial=at), np.uint64)[1:]
        end = int(ends[-1])
        if end > body.size:
            break
        table[place : place + len(block)] = ends
        body[at:end] = np.frombuffer(b"".join(block), np.uint8)
        place, at = place + len(block), end
    if (place, at) != (count + 1, body.size):
        message = "its strings changed while they were read; import it again"
        raise BusyError(message)


def _blocks(node: TextNode, wanted: Region) -> Iterator[list[bytes]]:
    """Yield the strings in C order, a bounded piece of them at a time."""
    assert node.raw is not None  # noqa: S101 - `streams` has looked
    # Only along one axis do a file's chunks follow each other as its elements do.
    chunks = node.chunks if len(node.shape) == 1 else None
    for part, _ in pieces(wanted, chunks, _TEXT_BYTES, BLOCK_BYTES):
        block: list[bytes] = reading(node.raw, part)
        try:
            b"\0".join(block).decode()
        except UnicodeDecodeError:
            raise NotText from None
        yield block
