"""Engram as a store that is not active: copies of arrays are taken out, and results are put."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

from bench.active import kernels
from bench.active.ways.engram_blocks import Block
from bench.active.ways.engram_here import Here

if TYPE_CHECKING:
    from collections.abc import Callable


def copied(argument: Any) -> Any:
    """Return a copy of a block's values; what is no block stays as it is."""
    return np.array(argument.data) if isinstance(argument, Block) else argument


class Copy(Here):
    """The same objects; all is computed on private copies."""

    name = "engram-copy"

    def ask(self, method: str, own: Block, *others: Any) -> Any:
        return kernels.run(method, *map(copied, (own, *others)))

    def keep(self, method: str, own: Block, *others: Any) -> Block:
        return self.put(self.ask(method, own, *others))

    def change(self, method: str, own: Block, *others: Any) -> None:
        values = copied(own)
        kernels.run(method, *map(copied, others), out=values)
        own.data = values

    def counter(self) -> Callable[[], object]:
        tally = self.tally()

        def increment() -> None:
            tally.value += 1

        return increment
