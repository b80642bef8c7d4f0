"""How long one commit holds up the program that makes it: the middle, the tail and the worst.

Maintenance of the index is done by threads that have committed, a step after a commit. So most
commits cost what their rows cost, and some a step more. A step is bounded, and these lines show it:
the processor's time of the thread for each of many commits, at p50, p99, p99.9 and the worst.

    python -m bench.own.pauses FOLDER OBJECTS

fills a pool with so many objects, in batches of 1000, then puts 20,000 with a commit each, and
tells both distributions as JSON, in seconds.
"""

from __future__ import annotations

import json
import random
import sys
import time
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

import engram
from bench.harness import Bound, Line

if TYPE_CHECKING:
    from collections.abc import Iterator

    from bench.setting import Setting

OBJECTS = 200_000
BATCH = 1000
SINGLE = 20_000
VALUES = np.arange(4.0)
POOL_BYTES = 1 << 30
KINDS = ("float64", "cloud", "vapour", "ozone")
STEP_S = 0.010
"""What one step of maintenance may take of a thread."""
PARTS = {"p50": 0.5, "p99": 0.99, "p99.9": 0.999, "worst": 1.0}


def attributes(number: int, chance: random.Random) -> dict[str, Any]:
    """Describe one object: two keys are nearly unique, the others repeat."""
    return {
        "step": number // 100,
        "orbit": number % 16,
        "temperature": round(chance.uniform(-60.0, 40.0), 6),
        "pressure": chance.randrange(1000),
        "token": f"{chance.getrandbits(64):016x}",
        "kind": KINDS[number % len(KINDS)],
        "level": number % 7,
        "valid": number % 3 == 0,
    }


class Pauses:
    """A pool that is filled, with the seconds that each commit took of this thread."""

    def __init__(self, folder: Path) -> None:
        self.pool = engram.create(folder / "pauses.pool", size=POOL_BYTES)
        self.chance = random.Random(25)  # noqa: S311 - the same for all
        self.count = 0

    def put(self) -> None:
        """Put one object."""
        described = attributes(self.count, self.chance)
        self.pool.create_array(f"x{self.count:08d}", data=VALUES, attrs=described)
        self.count += 1

    def batches(self, objects: int) -> list[float]:
        """Put so many objects in batches; what the end of each took."""
        taken = []
        for _ in range(objects // BATCH):
            batch = self.pool.batch()
            batch.__enter__()
            for _ in range(BATCH):
                self.put()
            start = time.thread_time()
            batch.__exit__(None, None, None)
            taken.append(time.thread_time() - start)
        return taken

    def singles(self, objects: int) -> list[float]:
        """Put so many objects, one commit each; what each took."""
        taken = []
        for _ in range(objects):
            start = time.thread_time()
            self.put()
            taken.append(time.thread_time() - start)
        return taken

    def close(self) -> None:
        """Close the pool and remove it."""
        path = self.pool.path
        self.pool.close()
        engram.destroy(path)


def parts(seconds: list[float]) -> dict[str, float]:
    """Return the parts of a distribution."""
    ordered = sorted(seconds)
    last = len(ordered) - 1
    return {name: ordered[min(int(part * len(ordered)), last)] for name, part in PARTS.items()}


def lines(setting: Setting) -> Iterator[Line]:
    """Show how commits of one put, and the ends of batches, are distributed."""
    batched = Line("end of a batch of 1000, by commits", "ms", [])
    single = Line("a put with a commit, by commits", "us", [])
    for line in (batched, single):
        line.remarks.append("processor time of the thread; no median of rounds but of commits")
    for _ in range(1 if setting.quick else 3):
        pauses = Pauses(setting.folder)
        for line, taken in (
            (batched, pauses.batches(setting.scaled(OBJECTS))),
            (single, pauses.singles(setting.scaled(SINGLE))),
        ):
            for name, part in parts(taken).items():
                line.samples.setdefault(name, []).append(part)
        pauses.close()
    # The put itself is in it, and on a shared machine some of what others do to the cache.
    single.bounds.append(Bound("worst", "", "value", 1.5 * STEP_S))
    yield batched
    yield single


def main() -> None:
    """Fill a pool, and tell."""
    pauses = Pauses(Path(sys.argv[1]))
    batched = parts(pauses.batches(int(sys.argv[2])))
    single = parts(pauses.singles(SINGLE))
    pauses.close()
    print(json.dumps({"batch": batched, "single": single}))  # noqa: T201 - the answer


if __name__ == "__main__":
    main()
