"""What indexing costs a put: 256 B arrays with eight attributes, in each mode.

Each mode by turns, from Rust and from Python. "Drain not running" is a put that leaves its row in
the queue, and nobody takes it out; "running beside" is the same while somebody drains the queue as
fast as it can: from Rust another thread, from Python another process. What is left is drained
between rounds, outside of any time. Memory is what the process grows by in the rounds of a mode,
the one to warm up too, apart from the pool.
"""

from __future__ import annotations

import subprocess
from itertools import count
from pathlib import Path
from typing import TYPE_CHECKING

import engram
from bench.harness import Bound, Contestant, Line, measure, timed
from bench.kernels.crew import pipe
from bench.kernels.particles import Particles
from bench.own import rust

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from bench.setting import Setting
    from engram.index import IndexMode

MODES: tuple[IndexMode, ...] = ("none", "async", "sync")
NBYTES = 256
PUTS = 4000
PARTS = {False: ("drain not running", 1.25), True: ("drain running beside", 2.0)}
POOL_BYTES = 256 << 20


def lines(setting: Setting) -> Iterator[Line]:
    """From Rust, then from Python; each with the drain off and on."""
    found = rust.repeated("modes", setting.folder, setting.scaled(PUTS), setting.rounds)
    for part, draining in (("still", False), ("beside", True)):
        line = titled("from Rust: ", draining)
        line.samples.update(found[part])
        yield line
    for draining in PARTS:
        yield from python(setting, draining=draining)


def titled(language: str, draining: bool) -> Line:
    """Return a line with nothing in it yet."""
    part, limit = PARTS[draining]
    bounds = [Bound("async", "none", "time", limit), Bound("sync", "none", "show")]
    return Line(f"{language}put 256 B with 8 attributes, {part}", "us", bounds)


def python(setting: Setting, *, draining: bool) -> Iterator[Line]:
    """Put from Python; the time, and the memory that the process grew by."""
    path = setting.folder / "modes.pool"
    with engram.create(path, size=POOL_BYTES) as pool:
        grown: dict[str, list[float]] = {}
        puts = setting.scaled(PUTS)
        contestants = [
            Contestant(mode, putting(pool, mode, puts, grown, draining and mode == "async"))
            for mode in MODES
        ]
        yield measure(titled("", draining), contestants, setting.rounds)
    title = f"memory taken in all rounds, put 256 B with 8 attributes, {PARTS[draining][0]}"
    yield Line(title, "B", [], grown)
    engram.destroy(path)


def putting(
    pool: engram.Pool, mode: IndexMode, puts: int, grown: dict[str, list[float]], draining: bool
) -> Callable[[], float]:
    """Return a round of puts, in a group that is new in each round."""
    particles = Particles(0, NBYTES, puts)
    values, objects = particles.values(), particles.named()
    rounds = count()

    def run() -> float:
        create = pool.create_group(f"{mode}/{next(rounds)}").create_array

        def each() -> None:
            for name, attributes in objects:
                create(name, data=values, attrs=attributes, index=mode)

        drainer = Drainer(pool) if draining else None
        before = anonymous_bytes()
        taken_s = timed(each, puts)
        grown.setdefault(mode, [0.0])[0] += anonymous_bytes() - before
        if mode == "async":
            (drainer or Drainer(pool)).end()
        return taken_s

    return run


class Drainer:
    """A process that drains a pool's queue, until it is ended, and then what is left."""

    def __init__(self, pool: engram.Pool) -> None:
        """Start it and wait until it is at work."""
        self.process = subprocess.Popen(  # noqa: S603
            [str(rust.PROGRAM), "drain", pool.path],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
        )
        if not pipe(self.process.stdout).readline():
            message = f"the draining process ended with {self.process.wait()}"
            raise RuntimeError(message)

    def end(self) -> None:
        """Let it drain what is left, and wait for its end."""
        self.process.communicate()
        if self.process.returncode:
            message = f"the draining process ended with {self.process.returncode}"
            raise RuntimeError(message)


def anonymous_bytes() -> int:
    """Memory of this process that no file stands behind."""
    for line in Path("/proc/self/status").read_text(encoding="utf-8").splitlines():
        if line.startswith("RssAnon:"):
            return int(line.split()[1]) << 10
    return 0
