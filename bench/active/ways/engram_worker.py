"""Engram, in a worker: another process has the pool open, and runs the methods."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

from bench.active.ways.engram_here import Here
from engram.active import Executor, use

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from bench.active.ways.engram_blocks import Block


class Worker(Here):
    """The same objects; calls are submitted, and waited for one by one."""

    name = "engram-worker"

    def __init__(self, folder: Path) -> None:
        super().__init__(folder)
        self.first = self.put(np.zeros(1))
        with use(self.pool):
            self.executor = Executor(workers=1)
            self.executor.__enter__()
        self.spent()

    def ask(self, method: str, own: Block, *others: Any) -> Any:
        return own.ask.submit(method, others, executor=self.executor).result()

    def keep(self, method: str, own: Block, *others: Any) -> Block:
        with use(self.pool):
            return own.keep.submit(method, others, executor=self.executor).result()

    def change(self, method: str, own: Block, *others: Any) -> None:
        own.change.submit(method, others, executor=self.executor).result()

    def spent(self) -> float:
        return self.first.spent.submit(executor=self.executor).result()

    def counter(self) -> Callable[[], object]:
        increment = self.tally().increment
        return lambda: increment.submit(executor=self.executor).result()

    def nothing(self) -> Callable[[], object]:
        nothing = self.tally().nothing
        return lambda: nothing.submit(executor=self.executor).result()

    def close(self) -> None:
        self.executor.__exit__(None, None, None)
        super().close()
