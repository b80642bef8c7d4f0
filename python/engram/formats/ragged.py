"""Sequences of any length as two arrays of fixed sizes, `offsets` and `values`, and back.

Both are in a group that has the variable's name and attributes. ``values`` has the elements of all
sequences, one after another in C order; ``offsets`` says where each begins and the next one does:
``x[i]`` is ``values[offsets[i]:offsets[i + 1]]``. Of several axes the last is longer by one, so
that ``x[i, j]`` is ``values[offsets[i, j]:offsets[i, j + 1]]``; of none there are two offsets.

A file's sequences are read twice where they are many bytes: once for their lengths, which say what
is to be reserved, and once into the pool's memory, a bounded piece at a time.
"""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Any

import numpy as np

from engram.errors import BusyError
from engram.formats import text
from engram.formats.blocks import BLOCK_BYTES, region_shape
from engram.formats.source import ArrayNode, RaggedNode, TextNode, reading

if TYPE_CHECKING:
    from collections.abc import Iterator

    from engram.formats.blocks import Region
    from engram.formats.source import Attributes, Origin

    Array = np.ndarray[Any, Any]

OFFSETS, VALUES = "offsets", "values"
_FIRST = 64
"""So many sequences are read at first: nothing is known of their lengths."""


def nodes(node: RaggedNode, wanted: Region) -> tuple[ArrayNode, ArrayNode | TextNode]:
    """Return the two arrays of what is wanted of a variable, having read the lengths."""
    found = _Sequences(node, wanted)
    offsets = laid_out(found.ends, region_shape(wanted))

    def read_offsets(out: Array, region: Region) -> None:
        out[...] = offsets[region]

    def nothing() -> tuple[Attributes, Origin]:
        return {}, {}

    shape, dtype = offsets.shape, offsets.dtype
    at = ArrayNode(f"{node.path}/{OFFSETS}", shape, dtype, None, None, nothing, read_offsets)
    path, total = f"{node.path}/{VALUES}", (int(found.ends[-1]),)
    if node.dtype.kind == "T":
        return at, TextNode(path, total, None, nothing, found.strings)
    return at, ArrayNode(path, total, node.dtype, None, None, nothing, found.read)


def laid_out(ends: Array, shape: tuple[int, ...]) -> Array:
    """Return the offsets of sequences of a shape, of the offsets in C order."""
    if len(shape) <= 1:
        return ends
    rows, last = math.prod(shape[:-1]), shape[-1]
    places = np.arange(rows)[:, None] * last + np.arange(last + 1)
    found: Array = ends[places].reshape(*shape[:-1], last + 1)
    return found


def problem(offsets: Array, count: int) -> str | None:
    """Say why an array does not have the offsets of sequences of so many values; None if it has."""
    if offsets.dtype.kind not in "iu" or not offsets.ndim or not offsets.shape[-1]:
        return "its offsets are no integers along an axis"
    if offsets.size and (offsets.min() < 0 or offsets.max() > count):
        return f"its offsets are not all within its {count} values"
    if (offsets[..., 1:] < offsets[..., :-1]).any():
        return "its offsets do not ascend"
    return None


class _Sequences:
    """The sequences of a variable, counted in C order among those that are wanted."""

    def __init__(self, node: RaggedNode, wanted: Region) -> None:
        """Read their lengths, and keep what was read if it is little."""
        self._node = node
        self._wanted = wanted
        self._shape = region_shape(wanted)
        self._last: tuple[int, list[Array]] = (0, [])
        width, total, at, step = node.dtype.itemsize, 0, 0, _FIRST
        lengths: list[int] = []
        kept: list[Array] = []
        count = math.prod(self._shape)
        while at < count:
            block = self._block(at, min(count, at + step))
            here = [len(one) for one in block]
            nbytes = width * sum(here)
            total += nbytes
            lengths += here
            kept = kept + block if total <= BLOCK_BYTES or node.dtype.kind == "T" else []
            at += len(block)
            step = 2 * step if 2 * nbytes < BLOCK_BYTES else max(1, step // 2)
        self.ends = np.zeros(count + 1, np.int64)
        np.cumsum(lengths, out=self.ends[1:])
        if len(kept) == count:
            self._last = (0, kept)

    def _block(self, start: int, stop: int) -> list[Array]:
        """Read the sequences from one place to another."""
        found: list[Array] = []
        for outer in runs(self._shape, start, stop):
            axes = zip(outer, self._wanted, strict=True)
            region = tuple(
                slice(
                    part.start + run.start * (part.step or 1),
                    part.start + (run.stop - 1) * (part.step or 1) + 1,
                    part.step or 1,
                )
                for run, part in axes
            )
            block = np.asarray(reading(self._node.load, region), object)
            empty = np.empty(0, object if self._node.dtype.kind == "T" else self._node.dtype)
            found += [empty if one is None else one for one in block.reshape(-1).tolist()]
        return found

    def read(self, out: Array, region: Region) -> None:
        """Read a run of the values of all sequences, one after another."""
        (part,) = region
        first = int(np.searchsorted(self.ends, part.start, "right")) - 1
        place = part.start
        while place < part.stop:
            block_first, block = self._of(first, part.stop)
            for number, one in enumerate(block[first - block_first :], first):
                start, stop = int(self.ends[number]), int(self.ends[number + 1])
                if len(one) != stop - start:
                    message = "its sequences changed while they were read; import it again"
                    raise BusyError(message)
                until = min(stop, part.stop)
                out[place - part.start : until - part.start] = one[place - start : until - start]
                place = until
                if place == part.stop:
                    return
            first = block_first + len(block)

    def _of(self, first: int, stop: int) -> tuple[int, list[Array]]:
        """Return a block that has a sequence, with the number of its first one.

        The last block is kept: the next values are of its last sequence, or of those after it.
        """
        at, block = self._last
        if not at <= first < at + len(block):
            limit = int(self.ends[first]) + BLOCK_BYTES // max(1, self._node.dtype.itemsize)
            last = int(np.searchsorted(self.ends, min(stop, limit), "left"))
            at, block = self._last = first, self._block(first, max(first + 1, last))
        return at, block

    def strings(self, region: Region) -> Array:
        """Return a run of the strings of all sequences."""
        (part,) = region
        _, sequences = self._last
        every = [value for one in sequences for value in one.tolist()][part]
        return text.text_array(every, (len(every),))[0]


def runs(shape: tuple[int, ...], start: int, stop: int) -> Iterator[Region]:
    """Yield the regions that, one after another, are the elements from one to another in C order.

    There is an element at least.
    """
    if not shape:
        yield ()
        return
    inner = math.prod(shape[1:])
    first, last = start // inner, (stop - 1) // inner
    if first == last or len(shape) == 1:
        for rest in runs(shape[1:], start - first * inner, stop - last * inner):
            yield (slice(first, last + 1), *rest)
        return
    head = start - first * inner
    if head:
        yield from runs(shape, start, start - head + inner)
        first += 1
    tail = stop - last * inner
    until = last + 1 if tail == inner else last
    if first < until:
        yield (slice(first, until), *(slice(0, n) for n in shape[1:]))
    if tail != inner:
        yield from runs(shape, last * inner, stop)
