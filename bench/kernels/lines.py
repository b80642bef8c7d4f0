"""VPIC-IO and BDCATS-IO: particles written and read by one, two and four processes.

A time is that of all processes together over all objects, from the moment when all are asked to
the moment when all have answered. The mount's peak is measured with as many processes: plain
copies of 512 KiB between private memory and warm pages of a mapping of a file on the same mount;
beside it the same with `pwrite` and `preadv`. It stands in each line as the time that an object of
that size would take, so a ratio of 0.5 to it is half of the peak.
"""

from __future__ import annotations

import shutil
from typing import TYPE_CHECKING

import engram
from bench.harness import Bound, Contestant, Line, measure, timed
from bench.kernels.crew import Crew
from bench.kernels.names import BATCHED, CALLS, ENGRAM, KERNELS, LIMITS, MIQS, MODES, PEAK
from bench.kernels.particles import sized
from bench.kernels.stores import PIECE, PIECES
from bench.kernels.worker import POOL

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from bench.setting import Setting

POOL_BYTES = 4 << 30
PROCESSES = (1, 2, 4)
COUNTS = {256: 2048, 512: 2048, 4 << 10: 2048, 32 << 10: 512, 512 << 10: 64, 4 << 20: 8}
OBJECTS_READ = 4096
ROUNDS = 5
QUICK = (256, 512 << 10)


def lines(setting: Setting) -> Iterator[Line]:
    """Both kernels, for each number of processes and each size of an object."""
    rounds = min(setting.rounds, ROUNDS)
    for processes in PROCESSES:
        folder = setting.folder / "kernels"
        folder.mkdir()
        crew = Crew(folder, processes)
        peaks = {kind: peak(crew, kind, rounds) for kind in (PEAK, CALLS)}
        for nbytes, count in COUNTS.items():
            if setting.quick and nbytes not in QUICK:
                continue
            engram.create(folder / POOL, size=POOL_BYTES).close()
            crew.ask("open", nbytes, count)
            for line in both(crew, rounds, nbytes, count):
                for kind, found in peaks.items():
                    kernel = "write" if line.title.startswith(KERNELS["write"]) else "read"
                    line.samples[kind] = [second * nbytes for second in found[kernel]]
                yield line
            crew.ask("close")
            engram.destroy(folder / POOL)
        crew.close()
        shutil.rmtree(folder)


def both(crew: Crew, rounds: int, nbytes: int, count: int) -> Iterator[Line]:
    """Write and read, with so many bytes an object."""
    processes = len(crew.processes)
    units = count * processes
    written = [Contestant(name, writing(crew, name, units)) for name in (*MODES, BATCHED, MIQS)]
    yield measure(titled("write", nbytes, processes), written, rounds)
    for name in (*MODES, BATCHED, MIQS):
        crew.ask("check", name)
    passes = max(OBJECTS_READ // count, 1) if nbytes < PIECE else 1
    read = [
        Contestant(name, reading(crew, name, passes, units * passes)) for name in (ENGRAM, MIQS)
    ]
    yield measure(titled("read", nbytes, processes), read, rounds)


def titled(kernel: str, nbytes: int, processes: int) -> Line:
    """Return a line with nothing in it yet."""
    limit = LIMITS[kernel].get(nbytes)
    against = Bound(ENGRAM, MIQS, "speed", limit) if limit else Bound(ENGRAM, MIQS, "show")
    bounds = [against, Bound(ENGRAM, PEAK, "show"), Bound(MIQS, PEAK, "show")]
    people = "1 process" if processes == 1 else f"{processes} processes"
    return Line(f"{KERNELS[kernel]}: {kernel} {sized(nbytes)}, {people}", "us", bounds)


def writing(crew: Crew, name: str, units: int) -> Callable[[], float]:
    """Return a round of writing, in a place that is empty."""
    turn = -1

    def run() -> float:
        nonlocal turn
        turn += 1
        crew.ask("begin", name, turn)
        return timed(lambda: crew.ask("write", name), units)

    return run


def reading(crew: Crew, name: str, passes: int, units: int) -> Callable[[], float]:
    """Return a round of reading what the last round of writing wrote."""
    return lambda: timed(lambda: crew.ask("read", name, passes), units)


def peak(crew: Crew, kind: str, rounds: int) -> dict[str, list[float]]:
    """Seconds for each byte at the mount's peak, all processes together."""
    crew.ask("peak", "calls" if kind == CALLS else "mapping")
    units = PIECE * PIECES * len(crew.processes)
    contestants = [
        Contestant("write", lambda: timed(lambda: crew.ask("peak_write"), units)),
        Contestant("read", lambda: timed(lambda: crew.ask("peak_read"), units)),
    ]
    found = measure(Line(kind, "us", []), contestants, rounds).samples
    crew.ask("peak_close")
    return found
