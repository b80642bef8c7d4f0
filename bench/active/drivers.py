"""The four applications of dataClay's paper (arXiv 2111.06851), over blocks reached in any way.

A driver stores its blocks when it is made, runs (which is what is timed), and then drops what it
has stored meanwhile. It runs with a result of one of these kinds:

- *volatile*: what methods return comes to the driver, which adds it up;
- *stored*: what methods return is stored as new blocks, and read back where the driver needs it;
- *in place*: what is there already is changed, and is stored when the method ends.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Protocol

import numpy as np

if TYPE_CHECKING:
    from collections.abc import Callable

    from bench.active.kernels import Values
    from bench.active.way import Way

VOLATILE, STORED, IN_PLACE = "volatile", "stored", "in place"
BINS = 140
DEGREES = (5.0, 2.0)
CENTRES, ITERATIONS, DIMENSIONS = 20, 10, 512


@dataclass(frozen=True)
class Sizes:
    """How many blocks of how many bytes; matrices for multiplication have sides of their own."""

    name: str
    count: int
    size: int
    side: int
    grid: tuple[int, int, int]
    """Blocks of the left matrix downwards, across (the right one downwards), the right across."""


SMALL = Sizes("small", 20, 2 << 20, 512, (4, 4, 2))
BIG = Sizes("big", 2, 20 << 20, 1600, (2, 2, 1))
QUICK_SMALL = Sizes("small", 4, 256 << 10, 128, (2, 2, 2))
QUICK_BIG = Sizes("big", 1, 2560 << 10, 400, (2, 2, 1))


class Driver(Protocol):
    """An application on one way's blocks."""

    name: str
    results: tuple[str, ...]

    def __init__(self, way: Way, sizes: Sizes) -> None:
        """Store its blocks."""

    def describe(self) -> str:
        """Say what it works on."""

    def run(self, result: str) -> Any:
        """Do all of it once, and return what `answer` understands."""

    def answer(self, found: Any) -> Values:
        """Return what was found as an array that can be compared; in no time's account."""

    def clean(self) -> None:
        """Drop what a run has stored."""


class Stored:
    """What drivers have in common: their way, and what they have stored since they cleaned."""

    name: str
    results: tuple[str, ...]

    def __init__(self, way: Way, sizes: Sizes) -> None:
        """Take them."""
        self.way = way
        self.sizes = sizes
        self.made: list[Any] = []

    def called(self, result: str, method: str, own: Any, *others: Any) -> Any:
        """Call a method; its result is one for the caller, or a new block."""
        if result == VOLATILE:
            return self.way.ask(method, own, *others)
        kept = self.way.keep(method, own, *others)
        self.made.append(kept)
        return kept

    def total(self, result: str, parts: list[Any]) -> Values:
        """Add up what was called for."""
        found: Values = np.sum(parts if result == VOLATILE else [*map(self.way.get, parts)], axis=0)
        return found

    def first_rows(self, result: str, parts: list[Any]) -> Values:
        """Return the first row of each of many blocks."""
        blocks = parts if result == VOLATILE else [self.way.get(part) for part in parts]
        return np.concatenate([np.array(block[0]) for block in blocks])

    def answer(self, found: Any) -> Values:
        """Return the sum as it is."""
        total: Values = found
        return total

    def clean(self) -> None:
        """Drop what a run has stored."""
        self.way.drop(self.made)
        self.made = []


class Histogram(Stored):
    """Count F-distributed numbers in bins of uneven widths."""

    name = "histogram"
    results: tuple[str, ...] = (VOLATILE, STORED)

    def __init__(self, way: Way, sizes: Sizes) -> None:
        super().__init__(way, sizes)
        self.edges = np.concatenate([[0.0], np.geomspace(0.01, 1000.0, BINS)])
        random = np.random.default_rng(1)
        self.blocks = [way.put(random.f(*DEGREES, sizes.size // 8)) for _ in range(2 * sizes.count)]

    def describe(self) -> str:
        """Say what it works on."""
        return f"{2 * self.sizes.count} x {self.sizes.size / 2**20:g} MiB, {BINS} bins"

    def run(self, result: str) -> Values:
        """Add up the blocks' counts."""
        parts = [self.called(result, "histogram", block, self.edges) for block in self.blocks]
        return self.total(result, parts)


class KMeans(Stored):
    """Find 20 centres of points in 10 iterations, each of which looks at every point."""

    name = "k-means"
    results: tuple[str, ...] = (VOLATILE, STORED)
    iterations = ITERATIONS

    def __init__(self, way: Way, sizes: Sizes) -> None:
        super().__init__(way, sizes)
        random = np.random.default_rng(2)
        self.start = random.random((CENTRES, DIMENSIONS))
        shape = (sizes.size // (8 * DIMENSIONS), DIMENSIONS)
        self.blocks = [way.put(random.random(shape)) for _ in range(sizes.count)]

    def describe(self) -> str:
        """Say what it works on."""
        size = f"{self.sizes.count} x {self.sizes.size / 2**20:g} MiB"
        return f"{size}, {CENTRES} centres, {DIMENSIONS} dimensions, {self.iterations} iterations"

    def run(self, result: str) -> Values:
        """Move the centres, once in each iteration."""
        centres = self.start
        for _ in range(self.iterations):
            parts = [self.called(result, "nearest", block, centres) for block in self.blocks]
            sums = self.total(result, parts)
            centres = sums[:, :-1] / np.maximum(sums[:, -1:], 1)
        return centres


class Addition(Stored):
    """Add up two matrices block by block; the result is as large as each."""

    name = "matrix addition"
    results: tuple[str, ...] = (VOLATILE, STORED)

    def __init__(self, way: Way, sizes: Sizes) -> None:
        super().__init__(way, sizes)
        random = np.random.default_rng(3)
        self.left, self.right = (
            [way.put(random.random((sizes.size // 4096, 512))) for _ in range(sizes.count)]
            for _ in range(2)
        )

    def describe(self) -> str:
        """Say what it works on."""
        return f"2 x {self.sizes.count} x {self.sizes.size / 2**20:g} MiB"

    def run(self, result: str) -> tuple[str, list[Any]]:
        """Add up the blocks, in pairs."""
        pairs = zip(self.left, self.right, strict=True)
        return result, [self.called(result, "add", left, right) for left, right in pairs]

    def answer(self, found: Any) -> Values:
        """Return the first row of each block of the result."""
        return self.first_rows(*found)


class Multiplication(Stored):
    """Multiply two matrices of square blocks; in place it is a fused multiply and add."""

    name = "matrix multiplication"
    results: tuple[str, ...] = (VOLATILE, STORED, IN_PLACE)

    def __init__(self, way: Way, sizes: Sizes) -> None:
        super().__init__(way, sizes)
        random = np.random.default_rng(4)
        square = (sizes.side, sizes.side)
        down, middle, across = sizes.grid
        self.left = [[way.put(random.random(square)) for _ in range(middle)] for _ in range(down)]
        self.right = [
            [way.put(random.random(square)) for _ in range(across)] for _ in range(middle)
        ]
        self.ready: list[Any] = []
        self.clean()

    def describe(self) -> str:
        """Say what it works on."""
        down, middle, across = self.sizes.grid
        sides = f"blocks of {self.sizes.side} x {self.sizes.side}"
        return f"{down} x {middle} by {middle} x {across} {sides}"

    def run(self, result: str) -> tuple[str, list[Any]]:
        """Multiply."""
        down, middle, across = self.sizes.grid
        found: list[Any] = []
        for row in range(down):
            for column in range(across):
                pairs = [(self.left[row][k], self.right[k][column]) for k in range(middle)]
                total = self.ready[len(found)] if result == IN_PLACE else None
                found.append(self.block(result, total, pairs))
        return result, found

    def block(self, result: str, total: Any, pairs: list[tuple[Any, Any]]) -> Any:
        """Make one block of the result."""
        if total is None:
            (left, right), *pairs = pairs
            total = self.called(result, "times", left, right)
        for left, right in pairs:
            if result == VOLATILE:
                total += self.way.ask("times", left, right)
            else:
                self.way.change("fma", total, left, right)
        return total

    def answer(self, found: Any) -> Values:
        """Return the first row of each block of the result."""
        return self.first_rows(*found)

    def clean(self) -> None:
        """Drop what runs have stored, and make zeros to add to."""
        self.made += self.ready
        super().clean()
        down, _, across = self.sizes.grid
        square = (self.sizes.side, self.sizes.side)
        self.ready = [self.way.put(np.full(square, 0.0)) for _ in range(down * across)]


DRIVERS: tuple[Callable[[Way, Sizes], Driver], ...] = (
    Histogram,
    KMeans,
    Addition,
    Multiplication,
)
