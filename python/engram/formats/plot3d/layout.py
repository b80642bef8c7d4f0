"""Layouts: what a Plot3D file can be, and which of that a file is.

Nothing in the format says of which kind a file is, nor how its numbers are written. All that can be
known is how long it is. So each layout that the header could be of is worked out, and the one is
taken that gives the file's length exactly, and every one of Fortran's record markers. Where several
do, the suffix decides; where that does not, the file is refused. Streams have no markers: there the
first real number must be one, and not the next integer of a longer header, and a suffix that stands
for one kind of file alone is believed. So it is for text, whose header ends with a line, and whose
number of blocks has one for itself.

A header is the number of blocks, in a file of many, and the lengths of each block: along i, j and
k, without k in two dimensions; in a function file the number of functions behind these. A block of
a grid is x, y and z, and may have iblank behind them. One of a solution is four numbers, and then
density, momentum in each direction, and energy.
"""

from __future__ import annotations

import itertools
import math
from dataclasses import dataclass
from typing import TYPE_CHECKING, Literal

import numpy as np

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence

Order = Literal["<", ">"]

GRID, SOLUTION, FUNCTION = "grid", "solution", "function"
FORTRAN, STREAM, ASCII = "fortran", "stream", "ascii"
IBLANK = "iblank"
CONDITIONS = ("mach", "alpha", "re", "time")
"""The numbers before a block's solution, in their order."""

SUFFIXES = {
    GRID: (".xyz", ".x", ".g", ".grd"),
    SOLUTION: (".q",),
    FUNCTION: (".f", ".fun"),
}
ANY_KIND = ".p3d"
"""The suffix that says nothing of the kind."""

BLOCKS_MOST = 1 << 20
FUNCTIONS_MOST = 1 << 20
INT_BYTES = 4

_AXES = ("x", "y", "z")
_POINTS_MOST = 1 << 44


@dataclass(frozen=True, slots=True)
class Block:
    """A block: its shape in numpy's order (k, j, i), and how many functions it has."""

    shape: tuple[int, ...]
    functions: int = 0

    @property
    def points(self) -> int:
        """How many points it has."""
        return math.prod(self.shape)


@dataclass(frozen=True, slots=True)
class Layout:
    """How a file lies.

    Attributes
    ----------
    file
        Which of the three it is.
    encoding
        How its numbers are written.
    blocks
        Its blocks.
    is_multi
        Whether the number of blocks stands first.
    real
        Bytes of a real number; text has none.
    has_iblank
        Whether a grid has iblank.
    order
        ``"<"`` or ``">"``: the byte order.
    marker
        Bytes of a marker before and behind each record; 0 where there are no records.

    """

    file: str
    encoding: str
    blocks: tuple[Block, ...]
    is_multi: bool
    real: int = 8
    has_iblank: bool = False
    order: Order = "<"
    marker: int = 0

    @property
    def axes(self) -> int:
        """How many dimensions its blocks have."""
        return len(self.blocks[0].shape)

    def header(self) -> list[list[int]]:
        """Return the integers of the header, record by record."""
        lengths: list[int] = []
        for block in self.blocks:
            lengths += block.shape[::-1]
            lengths += [block.functions] if self.file == FUNCTION else []
        return [[len(self.blocks)], lengths] if self.is_multi else [lengths]

    def names(self, block: Block) -> list[str]:
        """Return the names of a block's arrays, in their order."""
        if self.file == GRID:
            return [*_AXES[: self.axes], *([IBLANK] if self.has_iblank else [])]
        if self.file == FUNCTION:
            return [f"f{n}" for n in range(1, block.functions + 1)]
        return solution_names(self.axes)

    def size(self, name: str) -> int:
        """Return the bytes of one number of an array; 1 in text, where numbers are counted."""
        if self.encoding == ASCII:
            return 1
        return INT_BYTES if name == IBLANK else self.real

    def lengths(self) -> Iterator[int]:
        """Yield the bytes of each record, the header's first, without its markers."""
        unit = 1 if self.encoding == ASCII else INT_BYTES
        for ints in self.header():
            yield unit * len(ints)
        arrays = self.size("x") * {GRID: self.axes, SOLUTION: self.axes + 2, FUNCTION: 1}[self.file]
        arrays += self.size(IBLANK) if self.has_iblank else 0
        for block in self.blocks:
            if self.file == SOLUTION:
                yield self.size("mach") * len(CONDITIONS)
            yield arrays * block.points * (block.functions if self.file == FUNCTION else 1)

    def total(self) -> int:
        """Return how long such a file is: its bytes, or numbers in text."""
        return sum(length + 2 * self.marker for length in self.lengths())

    def __str__(self) -> str:
        """Say what it is."""
        blocks = f"{len(self.blocks)} blocks by number" if self.is_multi else "one block"
        numbers = "text"
        if self.encoding != ASCII:
            order = "little" if self.order == "<" else "big"
            numbers = f"{8 * self.real}-bit {order}-endian"
            numbers += f" records with {8 * self.marker}-bit markers" if self.marker else " stream"
        more = " with iblank" if self.has_iblank else ""
        return f"{self.axes}-dimensional {self.file} of {blocks}{more}, {numbers}"


def solution_names(axes: int) -> list[str]:
    """Return the names of a solution's arrays."""
    return ["density", *[f"momentum_{axis}" for axis in _AXES[:axes]], "energy"]


def begins_with_a_real(layout: Layout, head: bytes) -> bool:
    """Whether what is behind a stream's header can be its first number.

    It is none if it looks like one more integer of the header: small integers, seen as real
    numbers, are less than any that are not subnormal.
    """
    found = head[: layout.real]
    if len(found) < layout.real:
        return False
    first = abs(float(np.frombuffer(found, f"{layout.order}f{layout.real}")[0]))
    return not 0 < first < float(np.finfo(f"f{layout.real}").tiny)


def header_bytes(layout: Layout) -> int:
    """Return how long a stream's header is."""
    return INT_BYTES * sum(map(len, layout.header()))


def kind_of(name: str) -> str | None:
    """Return which kind of file a suffix stands for; None if it stands for none alone."""
    for file, suffixes in SUFFIXES.items():
        if name.lower().endswith(suffixes):
            return file
    return None


def possible(
    encoding: str, order: Order, marker: int, ints: Callable[[int, int], Sequence[int] | None]
) -> Iterator[Layout]:
    """Yield the layouts that a header could be of.

    Parameters
    ----------
    encoding, order, marker
        As `Layout` has them.
    ints
        ``ints(record, count)`` reads all integers of a record of the header (0 or 1), of which
        there have to be so many; None if there are not.

    """
    for is_multi, axes, file in itertools.product(
        (True, False), (3, 2), (GRID, SOLUTION, FUNCTION)
    ):
        columns = axes + (file == FUNCTION)
        count = 1
        if is_multi:
            found = ints(0, 1)
            if found is None or not 1 <= found[0] <= BLOCKS_MOST:
                continue
            count = found[0]
        lengths = ints(int(is_multi), columns * count)
        if lengths is None or min(lengths) < 1:
            continue
        rows = [lengths[n : n + columns] for n in range(0, len(lengths), columns)]
        blocks = tuple(
            Block(tuple(row[:axes][::-1]), row[axes] if file == FUNCTION else 0) for row in rows
        )
        if max(block.functions for block in blocks) > FUNCTIONS_MOST:
            continue
        if sum(block.points * max(1, block.functions) for block in blocks) > _POINTS_MOST:
            continue
        reals = (8,) if encoding == ASCII else (4, 8)
        for real, iblank in itertools.product(reals, (False, True) if file == GRID else (False,)):
            yield Layout(file, encoding, blocks, is_multi, real, iblank, order, marker)
