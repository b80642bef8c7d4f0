"""What indexing costs a put: 256 B arrays with eight attributes, in each mode.

Each mode by turns, from Rust and from Python. "Drain not running" is a put with its row in the
queue and nobody who takes it out; "running beside" is the same while the process's own thread
indexes what is put. What is left in the queue is drained between rounds, outside of any time. The
queue's memory is what a process grows by, apart from the pool, while it puts.
"""

from __future__ import annotations

from itertools import count
from pathlib import Path
from typing import TYPE_CHECKING

import engram
from bench.harness import Bound, Contestant, Line, measure, timed
from bench.kernels.particles import Particles
from bench.own import rust

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from bench.setting import Setting

MODES = ("none", "async", "sync")
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
        pool._realm.set_draining(draining)
        grown: dict[str, list[float]] = {}
        puts = setting.scaled(PUTS)
        contestants = [Contestant(mode, putting(pool, mode, puts, grown)) for mode in MODES]
        line = titled("", draining)
        yield measure(line, contestants, setting.rounds)
    title = f"memory that {puts:,} puts with 8 attributes take, {PARTS[draining][0]}"
    yield Line(title, "B", [], grown)
    engram.destroy(path)


def putting(
    pool: engram.Pool, mode: str, puts: int, grown: dict[str, list[float]]
) -> Callable[[], float]:
    """Return a round of puts, in a group that is new in each round."""
    particles = Particles(0, NBYTES, puts)
    values, objects = particles.values(), particles.named()
    rounds = count()

    def run() -> float:
        turn = next(rounds)
        group = pool.create_group(f"{mode}/{turn}", index=mode)

        def each() -> None:
            for name, attributes in objects:
                group.create_array(name, values, attrs=attributes)

        before = anonymous_bytes()
        taken_s = timed(each, puts)
        if turn:
            grown.setdefault(mode, []).append(float(anonymous_bytes() - before))
        pool.drain_index()
        return taken_s

    return run


def anonymous_bytes() -> int:
    """Memory of this process that no file stands behind."""
    for line in Path("/proc/self/status").read_text(encoding="utf-8").splitlines():
        if line.startswith("RssAnon:"):
            return int(line.split()[1]) << 10
    return 0
