"""Opening a pool of many objects, each time in a process of its own.

    python -m bench.own.opening POOL

opens the pool once and prints the seconds that it took.
"""

from __future__ import annotations

import subprocess
import sys
from typing import TYPE_CHECKING

import engram
from bench.harness import Bound, Contestant, Line, measure, timed
from bench.own import rust

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from pathlib import Path

    from bench.setting import Setting

FEW, MANY = 1_000, 1_000_000
LIMIT_S = 10e-3


def lines(setting: Setting) -> Iterator[Line]:
    """Open a pool of very many objects beside one of few."""
    numbers = (setting.scaled(MANY), FEW)
    names = [f"{number:,} objects" for number in numbers]
    pools = [setting.folder / f"open-{number}" for number in numbers]
    for pool, number in zip(pools, numbers, strict=True):
        rust.run("build", pool, number)
    contestants = [Contestant(n, opening(p)) for n, p in zip(names, pools, strict=True)]
    bounds = [Bound(names[0], "", "value", LIMIT_S), Bound(names[0], names[1], "time", 1.5)]
    line = Line("open a pool", "ms", bounds)
    yield measure(line, contestants, setting.rounds * 2)
    for pool in pools:
        engram.destroy(pool)


def opening(pool: Path) -> Callable[[], float]:
    """One opening in a new process."""
    command = [sys.executable, "-m", "bench.own.opening", str(pool)]

    def run() -> float:
        done = subprocess.run(command, check=True, capture_output=True, text=True)  # noqa: S603
        return float(done.stdout)

    return run


def main() -> None:
    """Open once."""
    print(timed(lambda: engram.open(sys.argv[1])))  # noqa: T201 - the answer


if __name__ == "__main__":
    main()
