"""Files by the preload library, beside a tmpfs: one process and four, lists, maps, starts, a build.

The same program runs twice: plainly in a folder of a tmpfs, and by `engram.run`'s environment below
a prefix of a pool that lies there, too.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
import time
from contextlib import ExitStack, contextmanager
from statistics import median
from typing import TYPE_CHECKING, NamedTuple

import engram
from bench.files import build, calls, mdtest, paper
from bench.files.crew import Crew
from bench.files.turns import TMPFS, by_turns
from bench.harness import Bound, Line
from bench.own import rust

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping
    from pathlib import Path

    from bench.files.turns import Phases
    from bench.setting import Setting

PRELOAD = "engram, preload"
LISTED = 100_000
MAPPED_BYTES, QUICK_MAPPED_BYTES = 256 << 20, 32 << 20
STARTS = 20
BOUNDS = {
    "create": [(TMPFS, 1.2)],
    "stat": [(TMPFS, 2.0)],
    "open": [(TMPFS, 1.5)],
    "unlink": [(TMPFS, 1.0)],
    "write 4 KiB": [(TMPFS, 4.0)],
    "read 4 KiB": [(TMPFS, 2.5)],
    "append 100 B": [(TMPFS, 2.0)],
    "write 128 KiB": [(TMPFS, 1.0), ("memcpy", 0.85)],
    "read 128 KiB": [(TMPFS, 1.0), ("memcpy", 0.85)],
}
"""By work: against whom, and how many times as fast at least."""
ONE = {"create file": 1.2, "stat file": 2.0, "remove file": 1.0}
"""mdtest of one process: how many times as fast as a tmpfs at least."""
FOUR = {"create file": 0.6, "stat file": 1.0, "remove file": 0.6}
"""The same of four together: how many times as fast as our own one at least."""
SUM = """
import json, mmap, sys, time
import numpy as np

def taken(array):
    start = time.perf_counter()
    total = int(array.sum())
    return time.perf_counter() - start, total

start = time.perf_counter()
with open(sys.argv[1], "rb") as file:
    shown = np.frombuffer(mmap.mmap(file.fileno(), 0, prot=mmap.PROT_READ), np.uint64)
opened = time.perf_counter() - start
first, total = taken(shown)
second, again = taken(shown)
private = shown.copy()
taken(private)
own, same = taken(private)
assert total == again == same
print(json.dumps({"first": opened + first, "second": second, "private": own}))
"""
"""Map a file and sum its numbers: as it is opened, once more, and in private memory."""


class Side(NamedTuple):
    """A folder, and the environment in which a program finds it."""

    folder: Path
    environment: Mapping[str, str]

    def run(self, *command: str | Path) -> str:
        """Run a program to its end; give what it says."""
        done = subprocess.run(  # noqa: S603 - our own words
            [str(word) for word in command],
            env=dict(self.environment),
            check=True,
            stdout=subprocess.PIPE,
            text=True,
        )
        return done.stdout


@contextmanager
def sides(setting: Setting, size: int) -> Iterator[dict[str, Side]]:
    """Give a folder of a tmpfs, and a prefix of a new pool there."""
    plain, pool, prefix = (setting.folder / name for name in ("plain", "run.pool", "run"))
    plain.mkdir()
    engram.create(pool, size=size).close()
    settings = engram.run_environment(pool=pool, prefix=prefix, env=os.environ)
    yield {PRELOAD: Side(prefix, settings), TMPFS: Side(plain, os.environ)}
    engram.destroy(pool)
    plain.rmdir()


def lines(setting: Setting) -> Iterator[Line]:
    """Measure everything."""
    yield from single(setting)
    yield from together(setting)
    yield from listed(setting)
    yield from mapped(setting)
    yield from started(setting)
    yield from built(setting)


def single(setting: Setting) -> Iterator[Line]:
    """Names and bytes, a call at a time."""
    count = setting.scaled(calls.FILES)
    mib = calls.QUICK_MIB if setting.quick else calls.MIB

    def work(side: Side) -> Callable[[], Phases]:
        return lambda: once(side, count, mib)

    with sides(setting, (mib << 21) + (256 << 20)) as both:
        found = by_turns({who: work(side) for who, side in both.items()}, setting.rounds)
    for phase, title in calls.TITLES.items():
        samples = found[phase] | {"memcpy": found["memcpy"][PRELOAD]}
        bounds = [Bound(PRELOAD, peer, "speed", limit) for peer, limit in BOUNDS[phase]]
        used = {PRELOAD, *(bound.peer for bound in bounds)}
        shown = {who: taken for who, taken in samples.items() if who in used}
        yield Line(f"preloaded: {title}", "us", bounds, shown)


def once(side: Side, count: int, mib: int) -> Phases:
    """Do a round of calls in a process of its own."""
    said = json.loads(side.run(rust.PROGRAM, "calls", side.folder, str(count), str(mib)))
    found: Phases = {}
    for phase, by_who in said.items():
        found[phase] = by_who["calls"][0]
        if "memcpy" in by_who and phase == "write 128 KiB":
            found["memcpy"] = by_who["memcpy"][0]
    return found


def together(setting: Setting) -> Iterator[Line]:
    """Names of files in one folder, as mdtest makes them: one process, and four."""
    items = setting.scaled(mdtest.ITEMS)
    samples: dict[int, dict[str, dict[str, list[float]]]] = {}
    with sides(setting, mdtest.POOL_BYTES) as both:
        for ranks in mdtest.PROCESSES:
            runs = {who: names(side, ranks, items // ranks) for who, side in both.items()}
            rounds = mdtest.QUICK if setting.quick else mdtest.REPETITIONS
            samples[ranks] = by_turns(runs, rounds)
    for phase, limit in ONE.items():
        bounds = [Bound(PRELOAD, TMPFS, "speed", limit)]
        yield Line(f"preloaded: {mdtest.title(1, phase)}", "us", bounds, samples[1][phase])
    for phase, limit in FOUR.items():
        four, one = samples[4][phase], samples[1][phase]
        shown = {f"{PRELOAD}, four": four[PRELOAD], f"{PRELOAD}, one": one[PRELOAD]}
        shown |= {f"{TMPFS}, four": four[TMPFS], f"{TMPFS}, one": one[TMPFS]}
        bounds = [
            Bound(f"{PRELOAD}, four", f"{PRELOAD}, one", "speed", limit),
            Bound(f"{TMPFS}, four", f"{TMPFS}, one", "show"),
            Bound(f"{PRELOAD}, four", f"{TMPFS}, four", "show"),
        ]
        line = Line(f"preloaded: {mdtest.title(4, phase)}", "us", bounds, shown)
        rate, theirs = 1 / median(four[PRELOAD]), paper.GEKKOFS[phase] / paper.GEKKOFS_NODES
        line.remarks.append(
            f"{rate:,.0f} a second; GekkoFS's share of a node, elsewhere: {theirs:,.0f}"
        )
        yield line


def names(side: Side, ranks: int, items: int) -> Callable[[], Phases]:
    """Return a repetition of mdtest's shape."""
    return lambda: mdtest.loops(side.folder, ranks, items, side.environment)


def listed(setting: Setting) -> Iterator[Line]:
    """List a large folder, and look at each of its files."""
    count = setting.scaled(LISTED)

    def work(side: Side) -> Callable[[], Phases]:
        return lambda: json.loads(side.run(rust.PROGRAM, "list", side.folder, str(count)))

    with sides(setting, mdtest.POOL_BYTES) as both, ExitStack() as stack:
        for side in both.values():
            crew = Crew(f"calls={side.folder}", 1, side.environment)
            stack.enter_context(crew).run(lambda _: f"create {count}")
            stack.callback(crew.run, lambda _: f"unlink {count}")
        found = by_turns({who: work(side) for who, side in both.items()}, setting.rounds)
    for phase, what in (("first", ""), ("again", ", once more")):
        title = f"preloaded: list a folder of {count:,} files, and stat each{what}"
        yield Line(title, "us", [Bound(PRELOAD, TMPFS, "speed", 1.0)], found[phase])


def mapped(setting: Setting) -> Iterator[Line]:
    """Map a file, and sum its numbers by numpy."""
    size = QUICK_MAPPED_BYTES if setting.quick else MAPPED_BYTES
    make = "import sys, numpy; numpy.arange(int(sys.argv[2]) // 8).tofile(sys.argv[1])"

    def work(side: Side) -> Callable[[], Phases]:
        return lambda: json.loads(side.run(sys.executable, "-c", SUM, side.folder / "numbers"))

    with sides(setting, size * 2) as both:
        for side in both.values():
            side.run(sys.executable, "-c", make, side.folder / "numbers", str(size))
        found = by_turns({who: work(side) for who, side in both.items()}, setting.rounds)
        for side in both.values():
            side.run("rm", side.folder / "numbers")
    title = f"preloaded: map a file of {size >> 20} MiB and sum it"
    yield Line(f"{title}, first", "ms", [Bound(PRELOAD, TMPFS, "speed", 1.0)], found["first"])
    samples = {**found["second"], "private array": found["private"][PRELOAD]}
    bounds = [Bound(PRELOAD, "private array", "speed", 0.97), Bound(PRELOAD, TMPFS, "show")]
    yield Line(f"{title}, second", "ms", bounds, samples)


def started(setting: Setting) -> Iterator[Line]:
    """Start a program that does nothing, and one that looks at a path."""

    def work(side: Side, *command: str) -> Callable[[], Phases]:
        def run() -> Phases:
            start = time.perf_counter()
            for _ in range(STARTS):
                side.run(*command)
            return {"start": (time.perf_counter() - start) / STARTS}

        return run

    added = "what the library adds"
    with sides(setting, mdtest.POOL_BYTES) as both:
        runs = {f"true, {who}": work(side, "true") for who, side in both.items()}
        runs |= {
            f"test, {who}": work(side, "test", "-d", str(side.folder)) for who, side in both.items()
        }
        found = by_turns(runs, setting.rounds)["start"]
    for what, title, limit_s in (
        ("true", "start a program that does nothing", 2e-3),
        ("test", "start a program that looks at a path", 3e-3),
    ):
        ours, theirs = found[f"{what}, {PRELOAD}"], found[f"{what}, {TMPFS}"]
        more = [mine - plain for mine, plain in zip(ours, theirs, strict=True)]
        samples = {added: more, PRELOAD: ours, TMPFS: theirs}
        yield Line(f"preloaded: {title}", "ms", [Bound(added, "", "value", limit_s)], samples)


def built(setting: Setting) -> Iterator[Line]:
    """Clone and build a C library."""
    repository = build.repository(setting)
    if repository is None:
        return
    with sides(setting, build.POOL_BYTES) as both:
        runs = {
            who: build.work(repository, side.folder, side.environment) for who, side in both.items()
        }
        samples = by_turns(runs, build.QUICK if setting.quick else build.ROUNDS)
    for phase, what in build.TITLES.items():
        shown = Bound(PRELOAD, TMPFS, "show")
        bound = Bound(PRELOAD, TMPFS, "time", 1.3) if phase == "both" else shown
        yield Line(f"preloaded: {what} of a C library", "ms", [bound], samples[phase])
