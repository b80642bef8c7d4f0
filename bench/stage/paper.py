"""The white paper's Table 3, scaled: jobs on one slow file system, directly and by stages.

A node is a process with a pool of its own. The file system is an emulation (`bench/stage/slow.py`).
"""

from __future__ import annotations

import subprocess
import sys
import time
from contextlib import contextmanager
from functools import partial
from typing import TYPE_CHECKING

import engram
from bench.harness import Bound, Contestant, Line, measure
from bench.own import rust
from bench.stage import slow
from bench.stage.made import MIB

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from pathlib import Path

    from bench.setting import Setting
    from bench.stage.elsewhere import Elsewhere

JOBS, SIZE = 3, 256 * MIB
AGAIN_JOBS, AGAIN_SIZE, TIMES = 2, 40 * MIB, 10
ROUNDS, QUICK = 3, 1
DIRECT, AT_ONCE, IN_TURN, LOOKED_AT = "directly", "at once", "in turn", "in turn, readback"
AT_ONCE_LIMIT, IN_TURN_LIMIT, REUSE_LIMIT = 1 - 0.1438, 1 - 0.3019, 1 - 0.7014


def lines(setting: Setting, elsewhere: Elsewhere) -> Iterator[Line]:
    """Measure jobs that read and write their file once, and ten times."""
    rounds = QUICK if setting.quick else ROUNDS
    what = "emulated Lustre" if elsewhere.pfs is None else "a file system that was given"
    with given(setting, elsewhere) as shared:
        place = lambda _number: shared  # noqa: E731 - one for all
        slots = setting.folder / "slots"
        engram.stage.set_slots(slots, 1)
        size = setting.scaled(SIZE)

        way = partial(jobs, setting, place, JOBS, size)
        contestants = ways(way, slots)
        bounds = [
            Bound(AT_ONCE, DIRECT, "time", AT_ONCE_LIMIT),
            Bound(IN_TURN, DIRECT, "time", IN_TURN_LIMIT),
            Bound(LOOKED_AT, DIRECT, "show"),
        ]
        title = f"{JOBS} jobs read and write {size // MIB} MiB each, {what}"
        yield measure(Line(title, "ms", bounds), contestants, rounds)
        size = setting.scaled(AGAIN_SIZE)
        way = partial(jobs, setting, place, AGAIN_JOBS, size, times=TIMES)
        contestants = [Contestant(DIRECT, partial(way, staged=False)), Contestant(AT_ONCE, way)]
        title = f"{AGAIN_JOBS} jobs, {TIMES} times {size // MIB} MiB each, {what}"
        bound = Bound(AT_ONCE, DIRECT, "time", REUSE_LIMIT)
        yield measure(Line(title, "ms", [bound]), contestants, rounds)


def ways(way: partial[float], slots: Path) -> list[Contestant]:
    """Give the ways of jobs to their files: the paper's three, and one that is looked at again."""
    return [
        Contestant(DIRECT, partial(way, staged=False)),
        Contestant(AT_ONCE, way),
        Contestant(IN_TURN, partial(way, slots=slots)),
        Contestant(LOOKED_AT, partial(way, slots=slots, verify="readback")),
    ]


@contextmanager
def given(setting: Setting, elsewhere: Elsewhere) -> Iterator[Path]:
    """Give the file system of the jobs."""
    if elsewhere.pfs is not None:
        yield elsewhere.pfs
        return
    rust.build()
    with slow.mounted(setting.folder / "slow") as shared:
        yield shared


def jobs(
    setting: Setting,
    place: Callable[[int], Path],
    count: int,
    size: int,
    *,
    staged: bool = True,
    slots: Path | None = None,
    verify: str = "written",
    times: int = 1,
) -> float:
    """Time jobs that begin at once, each on a file of its own in its node's folder."""
    running = []
    pools = []
    for number in range(count):
        file = place(number) / f"file-{number}"
        # Sparse, so that making it takes none of the bucket; its bytes are read as any others.
        with file.open("wb") as made:
            made.truncate(size)
        words = [sys.executable, "-m", "bench.stage.job", str(file), "--times", str(times)]
        if staged:
            pool = setting.folder / f"node-{number}.pool"
            engram.create(pool, size=2 * size + 16 * MIB, force=True).close()
            pools.append(pool)
            words += ["--pool", str(pool), "--verify", verify]
        if slots is not None:
            words += ["--slots", str(slots)]
        running.append(
            subprocess.Popen(  # noqa: S603 - our own module
                words, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True, cwd=rust.ROOT
            )
        )
    for job in running:
        assert job.stdout is not None  # noqa: S101 - it is a pipe
        job.stdout.readline()
    start = time.perf_counter()
    for job in running:
        assert job.stdin is not None  # noqa: S101 - it is a pipe
        job.stdin.close()
    failed = sum(job.wait() != 0 for job in running)
    taken_s = time.perf_counter() - start
    for pool in pools:
        engram.destroy(pool, force=True)
    if failed:
        raise RuntimeError(f"{failed} of {count} jobs failed")
    return taken_s
