"""Suites of file systems on mounts, under preload and by both: pjdfstest, fsx, appending, names.

`make posix-suites` runs this. It says what it does and how long that took; its exit code is not 0
if anything failed.
"""

from __future__ import annotations

import argparse
import os
import re
import subprocess
import sys
import tempfile
import time
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Literal

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

from exceptions import FSX, PJDFSTEST

import engram
import front_machine
import mounted
import native
import pjdfstest as suite
import preloaded

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping

    Cache = Literal["job", "shared", "none"]

HERE = Path(__file__).resolve().parent
SHM = Path("/dev/shm")
SEEDS = 10
OPERATIONS = 200_000
LINES = 200_000
EXAMPLES = {"none": 300, "shared": 10}
"""Of the state machine, by cache. One that keeps names has each step of the mount waited for."""
GEKKOFS, NODES = {"create": 46e6, "stat": 44e6, "remove": 22e6}, 512
"""Operations a second of so many nodes, as its authors measured: empty files in one folder."""
PROCESSES, ITEMS = 4, 400_000
"""So many of each: 1,600,000 in all, as 16 processes of mdtest make of 100,000 each."""
CACHES: tuple[Cache, ...] = ("job", "shared", "none")


class Failure(Exception):  # noqa: N818 - what a suite found
    """What a suite has found."""


def say(text: str) -> None:
    sys.stdout.write(f"    {text}\n")
    sys.stdout.flush()


@contextmanager
def pool_at(point: Path, cache: Cache) -> Iterator[Path]:
    """Mount a new pool of 1 GiB; it has no problems afterwards."""
    where = SHM if SHM.is_dir() else None
    with tempfile.TemporaryDirectory(prefix="engram-test-", dir=where) as folder:
        with engram.create(Path(folder) / "pool", size="1 GiB", force=True) as pool:
            with engram.mount(pool, point, cache=cache):
                yield point
            problems = engram.verify(pool.path).problems
        if problems:
            raise Failure(f"the pool has problems: {problems}")


def outcomes(folder: Path, settings: Mapping[str, str] | None = None) -> dict[str, str]:
    """Run pjdfstest in a folder; give how each of its tests ended."""
    found = suite.outcomes(mounted.TOOLS / "pjdfstest", folder, settings)
    if len(found) < 300:  # of 398
        raise Failure(f"pjdfstest has ended after {len(found)} tests")
    return found


def tmpfs() -> dict[str, str]:
    """Give how the tests of pjdfstest end on a tmpfs."""
    with tempfile.TemporaryDirectory(prefix="engram-test-", dir=SHM) as folder:
        Path(folder).chmod(0o755)
        return outcomes(Path(folder))


def pjdfstest(point: Path, cache: Cache, expected: dict[str, str]) -> str:
    """Run pjdfstest on a mount: it ends as on a tmpfs, but for the exceptions."""
    with pool_at(point, cache):
        point.chmod(0o755)
        found = outcomes(point)
    if found.keys() != expected.keys():
        raise Failure(f"other tests than on a tmpfs: {sorted(found.keys() ^ expected.keys())}")
    known = PJDFSTEST[cache]
    worse = [name for name in found if found[name] != expected[name] and name not in known]
    if worse:
        raise Failure("\n".join(f"{name}: {found[name]}, not {expected[name]}" for name in worse))
    passing = [name for name in known if found[name] == expected[name]]
    if passing:
        raise Failure(f"these pass after all, and are exceptions: {passing}")
    count = {word: list(found.values()).count(word) for word in ("ok", "skipped", "FAILED")}
    return (
        f"{count['ok']} passed, {count['skipped']} skipped, {count['FAILED']} failed, "
        f"as on a tmpfs; {len(known)} exceptions"
    )


@contextmanager
def prefix_of() -> Iterator[preloaded.Prefix]:
    """Give a prefix of a new pool of 1 GiB; it has no problems afterwards."""
    with tempfile.TemporaryDirectory(prefix="engram-test-", dir=SHM) as folder:
        Path(folder).chmod(0o755)
        engram.create(Path(folder) / "pool", size="1 GiB", force=True).close()
        prefix = preloaded.Prefix(str(Path(folder) / "pool"), Path(folder) / "seen")
        prefix.run("chmod", "755", prefix.path)
        yield prefix
        problems = engram.verify(prefix.pool).problems
    if problems:
        raise Failure(f"the pool has problems: {problems}")


def pjdfstest_preloaded(_: Path, expected: dict[str, str]) -> str:
    """Run pjdfstest under preload: it ends as on a tmpfs, but for the exceptions."""
    with prefix_of() as prefix:
        found = outcomes(prefix.path, prefix.settings)
    if found.keys() != expected.keys():
        raise Failure(f"other tests than on a tmpfs: {sorted(found.keys() ^ expected.keys())}")
    other = [name for name in found if found[name] != expected[name]]
    worse = [name for name in other if not suite.is_known(name)]
    if worse:
        raise Failure("\n".join(f"{name}: {found[name]}, not {expected[name]}" for name in worse))
    count = {word: list(found.values()).count(word) for word in ("ok", "skipped", "FAILED")}
    return (
        f"{count['ok']} passed, {count['skipped']} skipped, {count['FAILED']} failed; "
        f"{len(other)} exceptions"
    )


def fsx_preloaded(_: Path, seed: int, operations: int) -> str:
    """Run fsx under preload with this seed, and with the next one beside it."""
    with tempfile.TemporaryDirectory(prefix="engram-test-") as folder, prefix_of() as prefix:
        words = [str(mounted.TOOLS / "fsx"), "-q", "-f", str(HERE / "fsx.toml"), "-P", folder]
        running = [
            subprocess.Popen(
                [*words, "-N", str(operations), "-S", str(each), str(prefix.path / str(each))],
                stdout=subprocess.PIPE,
                stderr=subprocess.STDOUT,
                text=True,
                env={**os.environ, **prefix.settings},
            )
            for each in (seed, seed + 1)
        ]
        for process in running:
            said = process.communicate()[0]
            if process.returncode != 0:
                raise Failure(said[-2000:])
    return f"{operations} operations with each of the seeds {seed} and {seed + 1}"


@contextmanager
def both_at(point: Path, cache: Cache) -> Iterator[preloaded.Prefix]:
    """Mount a new pool, and give a prefix of the same; it has no problems afterwards."""
    with prefix_of() as prefix, engram.mount(prefix.pool, point, cache=cache):
        yield prefix


def fsx_by_both(point: Path, cache: Cache, seed: int, operations: int) -> str:
    """Run fsx on a mount and under preload at once, each on a file of its own of one pool."""
    with tempfile.TemporaryDirectory(prefix="engram-test-") as folder:
        words = fsx_words(Path(folder), cache)
        with both_at(point, cache) as prefix:
            running = [
                subprocess.Popen(
                    [*words, "-N", str(operations), "-S", str(each), str(top / str(each))],
                    stdout=subprocess.PIPE,
                    stderr=subprocess.STDOUT,
                    text=True,
                    env={**os.environ, **settings},
                )
                for each, top, settings in (
                    (seed, point, {}),
                    (seed + 1, prefix.path, prefix.settings),
                )
            ]
            said = [process.communicate()[0] for process in running]
            for process, text in zip(running, said, strict=True):
                if process.returncode != 0:
                    raise Failure(text[-2000:])
            for each in (seed, seed + 1):
                see_alike(prefix, point, str(each))
    return f"{operations} operations by each front, with the seeds {seed} and {seed + 1}"


def see_alike(prefix: preloaded.Prefix, point: Path, name: str) -> None:
    """See that a file is the same by both fronts."""
    time.sleep(front_machine.FORGOTTEN)
    below = prefix.run("cksum", prefix.path / name).split()[:2]
    if below != native.run("cksum", point / name).split()[:2]:
        raise Failure(f"{name} is not the same by both fronts")


def fsx_words(folder: Path, cache: Cache) -> list[str]:
    """Give what fsx is started with; it tries nothing that such a mount does not do."""
    told = (HERE / "fsx.toml").read_text(encoding="utf-8")
    for name in FSX[cache]:
        told = re.sub(rf"(?m)^{name} = .*", f"{name} = 0", told)
    settings = folder / "fsx.toml"
    settings.write_text(told, encoding="utf-8")
    return [str(mounted.TOOLS / "fsx"), "-q", "-f", str(settings), "-P", str(folder)]


def fsx(point: Path, cache: Cache, seeds: tuple[int, ...], operations: int) -> str:
    """Run fsx with these seeds at once, each on a file of its own."""
    with tempfile.TemporaryDirectory(prefix="engram-test-") as folder, pool_at(point, cache):
        words = fsx_words(Path(folder), cache)
        running = [
            subprocess.Popen(
                [*words, "-N", str(operations), "-S", str(seed), str(point / f"file{seed}")],
                stdout=subprocess.PIPE,
                stderr=subprocess.STDOUT,
                text=True,
            )
            for seed in seeds
        ]
        said = [process.communicate()[0] for process in running]
        for seed, process, text in zip(seeds, running, said, strict=True):
            if process.returncode != 0:
                raise Failure(f"seed {seed}: {text[-2000:]}")
    without = f"; without {', '.join(FSX[cache])}" if FSX[cache] else ""
    return f"{operations} operations with each of the seeds {seeds}{without}"


def all_fronts(point: Path, cache: Cache, examples: int) -> str:
    """Run the state machine of files that every front reaches, for longer than a test does."""
    with (
        tempfile.TemporaryDirectory(prefix="engram-test-", dir=SHM) as folder,
        engram.create(Path(folder) / "pool", size="1 GiB", force=True) as pool,
    ):
        prefix = preloaded.of(pool, Path(folder))
        front_machine.run(pool, point, prefix, cache, examples)
        problems = engram.verify(pool.path).problems
    if problems:
        raise Failure(f"the pool has problems: {problems}")
    return f"{examples} examples by a mount, two programs and Python"


def names(_: Path, processes: int, items: int) -> str:
    """Have each of some processes make so many empty files in one folder, as mdtest does."""
    with tempfile.TemporaryDirectory(prefix="engram-test-") as folder, prefix_of() as prefix:
        program = Path(folder) / "names"
        native.run("cc", *preloaded.OPTIONS, preloaded.PROGRAMS / "names.c", "-o", program)
        words = (str(processes), str(items))
        said = prefix.run(program, prefix.path, *words, patience=3600)
    rates = {phase: float(rate) for phase, rate in map(str.split, said.splitlines())}
    told = "; ".join(
        f"{phase} {rate:,.0f}/s, {rate / (GEKKOFS[phase] / NODES):.1f} times a node of GekkoFS"
        for phase, rate in rates.items()
    )
    return f"{processes} x {items:,} files: {told}"


def appending(point: Path, cache: Cache, lines: int) -> str:
    """Have two processes append lines to one file."""
    with pool_at(point, cache):
        mounted.append((point / "log", point / "log"), lines, patience=600)
        mounted.check_appended((point / "log").read_bytes(), lines)
    return f"{lines} lines of each of two processes: none lost, torn or doubled"


class Steps:
    """The steps of a run, and how many of them have failed."""

    def __init__(self) -> None:
        self.failed = 0

    def __call__(self, what: str, run: Callable[..., str], *arguments: object) -> None:
        """Do one at a place of its own, and say how it ended."""
        begun = time.monotonic()
        try:
            with mounted.place() as point:
                told = run(point, *arguments)
        except (Failure, AssertionError, engram.EngramError) as error:
            self.failed += 1
            told = f"FAILED\n{error}"
        say(f"{what}: {told} ({time.monotonic() - begun:.0f} s)")


def on_mounts(
    step: Steps, expected: dict[str, str], seeds: int, operations: int, lines: int
) -> None:
    """Run everything on mounts."""
    if mounted.WHY_NOT:
        say(f"suites on mounts are skipped: {mounted.WHY_NOT}")
        return
    for cache in CACHES:
        if expected:
            step(f"pjdfstest, cache {cache}", pjdfstest, cache, expected)
    for cache in CACHES:
        step(f"appending, cache {cache}", appending, cache, lines)
    for cache in CACHES:
        # All seeds where others may write, too, as it is if nothing is said; else two of them.
        last = seeds if cache == "shared" else min(2, seeds)
        for seed in range(1, last + 1, 2):
            both = tuple(range(seed, min(seed + 2, last + 1)))
            step(f"fsx, cache {cache}", fsx, cache, both, operations)


def under_preload(
    step: Steps, expected: dict[str, str], seeds: int, operations: int, items: int
) -> None:
    """Run everything under preload."""
    if not preloaded.LIBRARY.exists():
        say(f"suites under preload are skipped: there is no {preloaded.LIBRARY}")
        return
    if expected:
        step("pjdfstest, preloaded", pjdfstest_preloaded, expected)
    for seed in range(1, seeds, 2):
        step("fsx, preloaded", fsx_preloaded, seed, operations)
    step("names, preloaded", names, PROCESSES, items)


def by_both(step: Steps, operations: int, examples: int) -> None:
    """Run what reaches one pool by a mount and under preload."""
    if mounted.WHY_NOT or not preloaded.LIBRARY.exists():
        why = mounted.WHY_NOT or f"there is no {preloaded.LIBRARY}"
        say(f"suites by both fronts are skipped: {why}")
        return
    for cache in CACHES[1:]:
        step(f"fsx by both fronts, cache {cache}", fsx_by_both, cache, 1, operations)
        share = EXAMPLES[cache] * examples // 100
        step(f"all fronts, cache {cache}", all_fronts, cache, max(share, 1))


def main() -> int:
    """Run everything; give the exit code."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--operations", type=int, default=OPERATIONS, help="of fsx, for each seed")
    parser.add_argument("--seeds", type=int, default=SEEDS, help="of fsx")
    parser.add_argument("--lines", type=int, default=LINES, help="that are appended")
    parser.add_argument("--items", type=int, default=ITEMS, help="names that each process makes")
    parser.add_argument("--examples", type=int, default=100, help="of the state machine, percent")
    parser.add_argument("--only", choices=("mounts", "preload", "both"), help="leave others out")
    given = parser.parse_args()
    mounted.clear()
    step = Steps()
    expected = {}
    if given.only == "both":
        pass
    elif os.geteuid() == 0:
        expected = tmpfs()
    else:
        say("pjdfstest is skipped: it becomes other users, which takes root")
    if given.only in {None, "mounts"}:
        on_mounts(step, expected, given.seeds, given.operations, given.lines)
    if given.only in {None, "preload"}:
        under_preload(step, expected, given.seeds, given.operations, given.items)
    if given.only in {None, "both"}:
        by_both(step, given.operations, given.examples)
    return 1 if step.failed else 0


if __name__ == "__main__":
    sys.exit(main())
