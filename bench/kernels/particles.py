"""What the kernels store: particles with eight variables, an object for each block and variable.

A block is some particles of one process at one time step. Its eight variables are arrays of four
bytes a particle; each carries eight attributes, of which five are the same for many objects, two
are of the block, and one is nearly unique.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np

if TYPE_CHECKING:
    from numpy.typing import NDArray

    Values = NDArray[np.float32]
    Attributes = dict[str, float | str]

VARIABLES = ("x", "y", "z", "ux", "uy", "uz", "energy", "weight")
UNITS = ("m", "m", "m", "m s-1", "m s-1", "m s-1", "J", "1")
ITEM_BYTES = 4
BLOCKS_PER_STEP = 8
UNIT_BYTES = {"B": 1, "KiB": 1 << 10, "MiB": 1 << 20}


@dataclass(frozen=True)
class Particles:
    """One process's objects of one size: names, attributes and values, the same in each run."""

    rank: int
    nbytes: int
    count: int

    def values(self) -> Values:
        """Values of one object; they are the same for all, as stores do not look at them."""
        numbers = np.random.default_rng(self.rank).random(self.nbytes // ITEM_BYTES)
        return numbers.astype(np.float32)

    def named(self) -> list[tuple[str, Attributes]]:
        """Every object's name and attributes, block by block as a simulation writes them."""
        extremes = np.random.default_rng([self.rank, self.nbytes]).random(self.count)
        return [self.one(i, float(extremes[i])) for i in range(self.count)]

    def one(self, i: int, extreme: float) -> tuple[str, Attributes]:
        """Return the name and attributes of object `i`."""
        block, variable = divmod(i, len(VARIABLES))
        attributes: Attributes = {
            "variable": VARIABLES[variable],
            "units": UNITS[variable],
            "species": "electron",
            "rank": self.rank,
            "particles": self.nbytes // ITEM_BYTES,
            "step": block // BLOCKS_PER_STEP,
            "block": block,
            "largest": extreme,
        }
        return f"{block:06d}-{VARIABLES[variable]}", attributes


def same(found: NDArray[Any], values: Values) -> bool:
    """Whether what was read is what was written."""
    return found.dtype == values.dtype and bool(np.array_equal(found, values))


def sized(nbytes: int) -> str:
    """Return a number of bytes as it is written, in the largest unit that leaves it whole."""
    for unit in ("MiB", "KiB"):
        if nbytes % UNIT_BYTES[unit] == 0:
            return f"{nbytes // UNIT_BYTES[unit]} {unit}"
    return f"{nbytes} B"
