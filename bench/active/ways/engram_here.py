"""Engram, in this process: methods see the arrays that are stored, and nothing is copied."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import engram
import engram.active
from bench.active import kernels
from bench.active.ways.engram_blocks import Block, Tally

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence
    from pathlib import Path

    from bench.active.kernels import Values


class Here:
    """A pool of its own, with its defaults; a handle is an object."""

    name = "engram"
    kind: type[Block] = Block
    emulate: str | None = None
    durability = "auto"
    most_bytes = 1 << 30

    def __init__(self, folder: Path) -> None:
        self.path = folder / "pool"
        self.pool = engram.create(
            self.path, size=self.most_bytes, durability=self.durability, emulate=self.emulate
        )

    def put(self, values: Values) -> Block:
        block = self.kind(data=values)
        block.make_persistent(backend_id=self.pool)
        return block

    def put_many(self, many: Sequence[Values]) -> list[Block]:
        with self.pool.batch():
            return [self.put(values) for values in many]

    def get(self, handle: Block) -> Values:
        return handle.data

    def ask(self, method: str, own: Block, *others: Any) -> Any:
        return own.ask(method, others)

    def keep(self, method: str, own: Block, *others: Any) -> Block:
        with engram.active.use(self.pool):
            return own.keep(method, others)

    def change(self, method: str, own: Block, *others: Any) -> None:
        own.change(method, others)

    def drop(self, handles: Sequence[Block]) -> None:
        for block in handles:
            block.delete()

    def spent(self) -> float:
        return kernels.spent()

    def tally(self) -> Tally:
        """Store one."""
        tally = Tally()
        tally.make_persistent(backend_id=self.pool)
        return tally

    def counter(self) -> Callable[[], object]:
        return self.tally().increment

    def make_small(self, count: int) -> None:
        for _ in range(count):
            Tally().make_persistent(backend_id=self.pool)

    def nothing(self) -> Callable[[], object]:
        return self.tally().nothing

    def close(self) -> None:
        self.pool.close()
        engram.destroy(self.path)


class Roomy(Here):
    """The same with a larger pool."""

    most_bytes = 12 << 30
