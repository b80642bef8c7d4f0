"""Data of twice the memory that the run may have: pools on a disk, in a cgroup with a limit.

A child process does it all, in the group: it stores the data, so that the page cache counts for the
group, and runs the applications. The kernel takes pages back, and reads them again. The parent
makes the group, or says why it cannot: `python -m bench.active.beyond` is the child.
"""

from __future__ import annotations

import json
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from bench.active import applications
from bench.active.applications import WHOLE
from bench.active.drivers import (
    STORED,
    VOLATILE,
    Addition,
    Histogram,
    KMeans,
    Multiplication,
    Sizes,
)
from bench.active.limited import RefusedError, filesystem, limited
from bench.active.way import Fleet
from bench.harness import Bound, Line

if TYPE_CHECKING:
    from collections.abc import Callable

    from bench.active.drivers import Driver

ROOT = Path(__file__).parents[2]
NAME = "data of twice the memory"
NOTE = (
    "{data} MiB of data in a cgroup of {limit} MiB, on {filesystem}. Medians of a run through all "
    "of it. A look at all data read {read} MiB from the disk, as a mean over histogram, matrix "
    "addition and k-means with volatile results (an iteration of k-means is one look). "
    "`limit-files` is numpy on mapped files; what it stores, it writes to files and syncs. Sums of "
    "matrices with volatile results are looked at, and dropped."
)
FLEET = ("limit-files", "engram", "engram-pre-copy", "engram-copy")
FITTING = ("ext4", "xfs")
LIMIT_MIB, QUICK_LIMIT_MIB = 192, 64
TIMES = 2
BLOCK_MIB = 4
SIDE = 724
"""Of a square block of as much."""
ACROSS = 4
"""A matrix to be multiplied has so many blocks on its short side; the long one is the other's."""
ROUNDS = 3
SPARE = 2.5
"""How much of the disk each way may take beside the data: stored sums are half of it."""
BOUNDS = tuple(Bound("engram", other, "show") for other in FLEET if other != "engram")


class Twice(KMeans):
    """Two iterations: each reads all of the data from the disk."""

    name = "k-means, 2 iterations"
    iterations = 2


class Sequential(Addition):
    """Volatile sums are looked at one by one, and dropped: they would not fit in memory."""

    def run(self, result: str) -> tuple[str, list[Any]]:
        """Add up the blocks, in pairs; of each volatile sum its first row stays."""
        if result != VOLATILE:
            return super().run(result)
        pairs = zip(self.left, self.right, strict=True)
        return result, [np.array(self.way.ask("add", *pair)[:1]) for pair in pairs]


def sizes(data_mib: int) -> Sizes:
    """Return blocks of which two for each count are that much."""
    count = data_mib // BLOCK_MIB // 2
    return Sizes("large", count, BLOCK_MIB << 20, SIDE, (ACROSS, count // ACROSS, ACROSS))


def read_bytes() -> int:
    """Return how much the kernel has read from disks for this process."""
    said = Path("/proc/self/io").read_text(encoding="ascii").splitlines()
    return int(dict(line.split(": ") for line in said)["read_bytes"])


def run(folder: Path, data_mib: int, rounds: int, *, quick: bool) -> tuple[list[Line], float]:
    """Measure, in this process; how many MiB of the disk each look at all data took, too."""
    blocks = sizes(data_mib)
    kinds: dict[Callable[..., Driver], Sizes] = {Histogram: blocks}
    if not quick:
        kinds[Sequential] = blocks
        kinds[Twice] = replace(blocks, count=2 * blocks.count)  # it has one for each count
        kinds[Multiplication] = blocks
    found = []
    taken_bytes = looks = 0
    for kind, theirs in kinds.items():
        fleet = Fleet(FLEET, Path(tempfile.mkdtemp(dir=folder)), print, once=False)
        try:
            drivers = [(way, kind(way, theirs)) for way in fleet.fresh()]
            for result in (VOLATILE, STORED):
                line = Line(f"{NAME}: {drivers[0][1].name}, {result}", "ms", [*BOUNDS])
                before = read_bytes()
                applications.race(drivers, {(result, WHOLE): line}, rounds)
                if result == VOLATILE and kind is not Multiplication:
                    taken_bytes += read_bytes() - before
                    looks += len(drivers) * (rounds + 1) * iterations(kind)
                found.append(line)
        finally:
            fleet.close()
            shutil.rmtree(fleet.folder)
    return found, taken_bytes / looks / 2**20


def iterations(kind: Callable[..., Driver]) -> int:
    """Return how often a run looks at all data."""
    return Twice.iterations if kind is Twice else 1


def lines(
    disk: Path, rounds: int, *, quick: bool, tell: Callable[[str], None]
) -> tuple[list[Line], dict[str, Any]]:
    """Measure in a child that has half the memory; the lines, and what it ran in.

    Raises
    ------
    RefusedError
        If there is no such group or no such disk, or if the kernel ended the child.

    """
    start = time.monotonic()
    limit_mib = QUICK_LIMIT_MIB if quick else LIMIT_MIB
    data_mib = TIMES * limit_mib
    there = filesystem(disk)
    if there not in FITTING:
        raise RefusedError(f"--disk is on {there}, not on a disk's ext4 or xfs")
    needed_mib = SPARE * data_mib * len(FLEET)
    if shutil.disk_usage(disk).free < needed_mib * 2**20:
        raise RefusedError(f"--disk has less than {needed_mib:.0f} MiB")
    with (
        tempfile.TemporaryDirectory(prefix="engram-bench-", dir=disk) as folder,
        limited(limit_mib << 20) as group,
    ):
        asked = [folder, str(data_mib), str(min(rounds, ROUNDS)), str(int(quick))]
        child = [sys.executable, "-m", "bench.active.beyond", *asked]
        ended = subprocess.run([*group.command, *child], cwd=ROOT, check=False)
        if ended.returncode == -signal.SIGKILL:
            raise RefusedError(f"the kernel ended a run that had {limit_mib} MiB of memory")
        ended.check_returncode()
        held, read = json.loads((Path(folder) / "found.json").read_text(encoding="utf-8"))
        about = {"limit": limit_mib, "data": data_mib, "filesystem": there, "read": round(read)}
    tell(f"{NAME}: {time.monotonic() - start:.1f} s")
    return [Line(title, "ms", [*BOUNDS], samples) for title, samples in held], about


def main() -> None:
    """Measure as the child; the lines go to a file."""
    folder, data_mib, rounds, quick = sys.argv[1:]
    found, read = run(Path(folder), int(data_mib), int(rounds), quick=quick == "1")
    held = json.dumps([[(line.title, line.samples) for line in found], read])
    (Path(folder) / "found.json").write_text(held, encoding="utf-8")


if __name__ == "__main__":
    main()
