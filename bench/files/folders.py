"""Large folders, and large files in very many segments."""

from __future__ import annotations

from contextlib import ExitStack
from statistics import median
from typing import TYPE_CHECKING

import engram
from bench.files import null
from bench.files.crew import Crew
from bench.files.turns import MOUNT, NULL, TMPFS, by_turns
from bench.harness import Bound, Line
from bench.own import rust

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from pathlib import Path

    from bench.files.turns import Phases
    from bench.setting import Setting

FEW, MANY, LISTED = 1_000, 1_000_000, 100_000
OPENS = 20_000
CREATED = 20_000
SEGMENTS, READS = 10_000, 100_000
FOLDER = "listed"
"""As the program in `bench/own/rust` names it."""


def lines(setting: Setting) -> Iterator[Line]:
    """Measure by `Fs`, beside a tmpfs; listing by mounts, too."""
    pool, plain = setting.folder / "folders.pool", setting.folder / "folders"
    plain.mkdir()
    many, listed = setting.scaled(MANY), setting.scaled(LISTED)
    counts = (FEW, many, listed, setting.scaled(OPENS), setting.rounds)
    found = rust.run("folders", pool, plain, *counts)
    try:
        yield opened(many, found["open"])
        title = f"list a folder of {listed:,} files, and stat each"
        yield Line(title, "us", [Bound("engram", TMPFS, "speed", 1.0)], found["list"])
        yield from listed_by_mounts(setting, pool, title, listed)
        yield renamed(listed, found["rename"], found["commit"])
    finally:
        engram.destroy(pool)
    yield from pair(setting)
    yield fragmented(setting)


def opened(many: int, samples: dict[str, list[float]]) -> Line:
    """Open a file where there are many names, and where there are few."""
    bounds = [
        Bound("engram, many", "engram, few", "time", 1.5),
        Bound(f"{TMPFS}, many", f"{TMPFS}, few", "show"),
    ]
    return Line(f"open a file in a folder of {many:,} against {FEW:,}", "us", bounds, samples)


def renamed(listed: int, renames: dict[str, list[float]], commits: dict[str, list[float]]) -> Line:
    """Rename a large folder, beside a commit."""
    bounds = [Bound("engram", "a commit", "time", 20), Bound("engram", TMPFS, "show")]
    samples = renames | {"a commit": commits["engram"]}
    return Line(f"rename a folder of {listed:,} files", "us", bounds, samples)


def listed_by_mounts(setting: Setting, pool: Path, title: str, count: int) -> Iterator[Line]:
    """List the folder on mounts made for it alone, so that the kernel knows nothing; then again."""
    place = setting.folder / "listing"
    place.mkdir()

    def listed() -> Phases:
        taken: Phases = rust.run("list", place / FOLDER, count)
        return taken

    def ours() -> Phases:
        with engram.mount(pool, place, cache="job"):
            return listed()

    def nothing() -> Phases:
        with null.mounted(place, FOLDER, count):
            return listed()

    try:
        samples = by_turns({MOUNT: ours, NULL: nothing}, setting.rounds)
    except engram.UnsupportedError as refusal:
        setting.absent[MOUNT] = setting.absent[NULL] = str(refusal)
        return
    for phase, what in (("first", "on a new mount"), ("again", "on a mount, once more")):
        yield Line(f"{title}, {what}", "us", [Bound(MOUNT, NULL, "speed", 0.8)], samples[phase])


def pair(setting: Setting) -> Iterator[Line]:
    """Create files in one folder, by one process and by two."""
    pool, plain = setting.folder / "pair.pool", setting.folder / "pair"
    plain.mkdir()
    engram.create(pool, size=64 << 20).close()
    files = setting.scaled(CREATED)
    with ExitStack() as stack:

        def made(place: str, ranks: int) -> Callable[[], Phases]:
            crew = stack.enter_context(Crew(place, ranks))

            def create() -> Phases:
                taken = crew.run(lambda _: f"create {files // ranks}")
                crew.run(lambda _: f"unlink {files // ranks}")
                return {"create": taken / files}

            return create

        runs = {
            f"{who}, {word}": made(place, ranks)
            for who, place in (("engram", f"fs={pool}"), (TMPFS, f"calls={plain}"))
            for word, ranks in (("one", 1), ("two", 2))
        }
        samples = by_turns(runs, setting.rounds)["create"]
    engram.destroy(pool)
    bounds = [
        Bound("engram, two", "engram, one", "speed", 0.6),
        Bound(f"{TMPFS}, two", f"{TMPFS}, one", "show"),
    ]
    line = Line("create files in one folder, two processes in all", "us", bounds, samples)
    share = median(samples["engram, one"]) / median(samples["engram, two"])
    line.remarks.append(f"{share:.2f} x one, and 0.9 x is the aim")
    yield line


def fragmented(setting: Setting) -> Line:
    """Read pages here and there of a file in very many segments, and of one in one."""
    segments = setting.scaled(SEGMENTS)
    counts = (segments, setting.scaled(READS), setting.rounds)
    samples = rust.run("fragments", setting.folder, *counts)
    bounds = [Bound("many", "one segment", "speed", 0.5)]
    return Line(f"read 4 KiB of a file in {segments:,} segments", "us", bounds, samples)
