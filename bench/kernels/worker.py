"""One process of the kernels: `python -m bench.kernels.worker FOLDER RANK`.

It does what each line of its input says and answers with a line, so that all processes begin
together and the one that asks them has the time of all.
"""

from __future__ import annotations

import sys
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np

import engram
from bench.kernels.names import BATCHED, MIQS, MODES
from bench.kernels.particles import Particles, same
from bench.kernels.stores import Hdf5, Own, OwnBatched, Peak, PeakOfCalls

if TYPE_CHECKING:
    from bench.kernels.stores import Store

INLINE_BYTES = 1 << 10
POOL = "kernels.pool"


class Worker:
    """What one process can be asked to do."""

    def __init__(self, folder: Path, rank: int) -> None:
        self.folder = folder
        self.rank = rank
        self.stores: dict[str, Store] = {}
        self.pool: engram.Pool | None = None

    def open(self, nbytes: int, count: int) -> None:
        """Open every store, empty, for `count` objects of `nbytes` bytes."""
        particles = Particles(self.rank, nbytes, count)
        self.values, self.objects = particles.values(), particles.named()
        self.out = np.empty_like(self.values)
        self.again = nbytes > INLINE_BYTES
        self.pool = engram.open(self.folder / POOL)
        for name, index in MODES.items():
            self.stores[name] = Own(self.pool, self.rank, index)
        self.stores[BATCHED] = OwnBatched(self.pool, self.rank)
        self.stores[MIQS] = Hdf5(self.folder, self.rank)

    def begin(self, name: str, turn: int) -> None:
        """Make a store ready for a round."""
        self.stores[name].begin(turn, again=self.again)

    def write(self, name: str) -> None:
        """Write all objects."""
        self.stores[name].write(self.objects, self.values)

    def read(self, name: str, passes: int) -> None:
        """Read all objects, several times."""
        for _ in range(passes):
            self.stores[name].read(self.objects, self.out)

    def check(self, name: str) -> None:
        """See that what was written is there; RuntimeError if not."""
        store, last = self.stores[name], self.objects[-1:]
        self.out[...] = 0
        found = store.group[last[0][0]][...] if isinstance(store, Own) else self.out
        store.read(last, self.out)
        if not same(found, self.values):
            message = f"{name} gives other values back than were written"
            raise RuntimeError(message)

    def close(self) -> None:
        """Close every store."""
        for store in self.stores.values():
            store.close()
        self.stores.clear()
        if self.pool is not None:
            self.pool.close()

    def peak(self, calls: str) -> None:
        """Make ready to measure the mount's peak, by a mapping or by calls."""
        self.plain = (PeakOfCalls if calls == "calls" else Peak)(self.folder, self.rank)

    def peak_write(self) -> None:
        """Write at the mount's peak."""
        self.plain.write()

    def peak_read(self) -> None:
        """Read at the mount's peak."""
        self.plain.read()

    def peak_close(self) -> None:
        """End of that."""
        self.plain.close()


def main() -> None:
    """Do what is asked, a line each: a method and its arguments, with tabs between."""
    worker = Worker(Path(sys.argv[1]), int(sys.argv[2]))
    print("ready", flush=True)  # noqa: T201 - the answer
    for request in sys.stdin:
        method, *words = request.rstrip("\n").split("\t")
        getattr(worker, method)(*(int(word) if word.isdigit() else word for word in words))
        print("done", flush=True)  # noqa: T201 - the answer


if __name__ == "__main__":
    main()
