"""Suites of file systems on mounts: pjdfstest, fsx, and appending by two at once.

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
import mounted

if TYPE_CHECKING:
    from collections.abc import Iterator

    Cache = Literal["job", "shared", "none"]

HERE = Path(__file__).resolve().parent
SHM = Path("/dev/shm")
SEEDS = 10
OPERATIONS = 200_000
LINES = 200_000
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


def outcomes(folder: Path) -> dict[str, str]:
    """Run pjdfstest in a folder; give how each of its tests ended."""
    program, settings = mounted.TOOLS / "pjdfstest", HERE / "pjdfstest.toml"
    command = [str(program), "-c", str(settings), "-p", str(folder)]
    said = subprocess.run(command, check=False, capture_output=True, text=True)
    found = dict(re.findall(r"^(\S+::\S+)\s+(ok|skipped|FAILED)$", said.stdout, re.MULTILINE))
    if len(found) < 300:  # of 398
        raise Failure(f"pjdfstest has not run: {said.stdout[-500:]}{said.stderr[-500:]}")
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


def fsx(point: Path, cache: Cache, seeds: tuple[int, ...], operations: int) -> str:
    """Run fsx with these seeds at once, each on a file of its own."""
    told = (HERE / "fsx.toml").read_text(encoding="utf-8")
    for name in FSX[cache]:
        told = re.sub(rf"(?m)^{name} = .*", f"{name} = 0", told)
    with tempfile.TemporaryDirectory(prefix="engram-test-") as folder, pool_at(point, cache):
        settings = Path(folder) / "fsx.toml"
        settings.write_text(told, encoding="utf-8")
        words = [str(mounted.TOOLS / "fsx"), "-q", "-f", str(settings), "-P", folder]
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


def appending(point: Path, cache: Cache, lines: int) -> str:
    """Have two processes append lines to one file."""
    with pool_at(point, cache):
        mounted.append((point / "log", point / "log"), lines, patience=600)
        mounted.check_appended((point / "log").read_bytes(), lines)
    return f"{lines} lines of each of two processes: none lost, torn or doubled"


def main() -> int:
    """Run everything; give the exit code."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--operations", type=int, default=OPERATIONS, help="of fsx, for each seed")
    parser.add_argument("--seeds", type=int, default=SEEDS, help="of fsx")
    parser.add_argument("--lines", type=int, default=LINES, help="that are appended")
    given = parser.parse_args()
    if mounted.WHY_NOT:
        say(f"skipped: {mounted.WHY_NOT}")
        return 0
    mounted.clear()
    failed = 0

    def step(what: str, run: object, *arguments: object) -> None:
        nonlocal failed
        assert callable(run)
        begun = time.monotonic()
        try:
            with mounted.place() as point:
                told = run(point, *arguments)
        except (Failure, AssertionError, engram.EngramError) as error:
            failed += 1
            told = f"FAILED\n{error}"
        say(f"{what}: {told} ({time.monotonic() - begun:.0f} s)")

    if os.geteuid() == 0:
        expected = tmpfs()
        for cache in CACHES:
            step(f"pjdfstest, cache {cache}", pjdfstest, cache, expected)
    else:
        say("pjdfstest is skipped: it becomes other users, which takes root")
    for cache in CACHES:
        step(f"appending, cache {cache}", appending, cache, given.lines)
    for cache in CACHES:
        # All seeds where others may write, too, as it is if nothing is said; else two of them.
        last = given.seeds if cache == "shared" else min(2, given.seeds)
        for seed in range(1, last + 1, 2):
            seeds = tuple(range(seed, min(seed + 2, last + 1)))
            step(f"fsx, cache {cache}", fsx, cache, seeds, given.operations)
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
