"""Large files: in, against `cp` into a tmpfs; out, read again, against `cp`, `fsync` and `cmp`."""

from __future__ import annotations

import shutil
import time
from typing import TYPE_CHECKING

import engram
from bench.harness import Bound, Contestant, Line, measure
from bench.stage import made
from bench.stage.made import MIB

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from bench.setting import Setting
    from bench.stage.elsewhere import Elsewhere

FILES, SIZE = 8, 256 * MIB
OUT_FILES, OUT_SIZE = 4, 128 * MIB
ROUNDS, QUICK = 5, 2
IN_LIMIT, OUT_LIMIT = 0.9, 1.0


def lines(setting: Setting, elsewhere: Elsewhere) -> Iterator[Line]:
    """Measure both ways."""
    yield from inward(setting)
    yield outward(setting, elsewhere.disk)


def inward(setting: Setting) -> Iterator[Line]:
    """Stage-in of a folder that is in memory, hashed."""
    size = setting.scaled(SIZE)
    source = made.files(setting.folder / "large", FILES, size)
    nbytes, rounds = FILES * size, QUICK if setting.quick else ROUNDS

    def new() -> float:
        with made.pool(setting.folder / "new.pool", 2 * nbytes) as path:
            start = time.perf_counter()
            made.whole(engram.stage.bring_in(path, {str(source): "in"}))
            return time.perf_counter() - start

    def copied() -> float:
        return made.into_new(setting.folder / "copied", lambda to: made.run("cp", "-r", source, to))

    contestants = [Contestant("engram", new), Contestant("cp -r", copied)]
    title = f"stage-in of {nbytes // MIB} MiB from memory, hashed, into a new pool"
    bound = Bound("engram", "cp -r", "speed", IN_LIMIT)
    yield measure(Line(title, "ms", [bound]), contestants, rounds)
    with made.pool(setting.folder / "used.pool", 2 * nbytes) as path:

        def again() -> float:
            with engram.open(path) as opened:
                if "in" in opened:
                    del opened["in"]
            start = time.perf_counter()
            made.whole(engram.stage.bring_in(path, {str(source): "in"}))
            return time.perf_counter() - start

        contestants = [Contestant("engram", again), Contestant("cp -r", copied)]
        title = "the same, into space that was used before"
        shown = Bound("engram", "cp -r", "show")
        yield measure(Line(title, "ms", [shown]), contestants, rounds)
    shutil.rmtree(source)


def outward(setting: Setting, disk: Path) -> Line:
    """Stage-out to a disk, read again past the cache, against the same by programs."""
    size = setting.scaled(OUT_SIZE)
    source = made.files(setting.folder / "large", OUT_FILES, size)
    with made.pool(setting.folder / "out.pool", 2 * OUT_FILES * size) as path:
        made.whole(engram.stage.bring_in(path, {str(source): "in"}))

        def staged() -> float:
            return made.into_new(
                disk / "staged",
                lambda to: made.whole(engram.stage.bring_out(path, {"in": str(to)})),
            )

        def copied() -> float:
            return made.into_new(disk / "copied", lambda to: compared(source, to))

        contestants = [Contestant("engram", staged), Contestant("cp, fsync, cmp", copied)]
        title = f"stage-out of {OUT_FILES * size // MIB} MiB to a disk, read again"
        bound = Bound("engram", "cp, fsync, cmp", "speed", OUT_LIMIT)
        line = measure(
            Line(title, "ms", [bound]), contestants, ROUNDS if not setting.quick else QUICK
        )
    shutil.rmtree(source)
    return line


def compared(source: Path, to: Path) -> None:
    """Copy a folder, make it durable, drop it from the cache, and compare each file."""
    made.run("cp", "-r", source, to)
    copies = [path for path in to.rglob("*") if path.is_file()]
    for path in copies:
        # Writes what is left, waits, and drops it: dd has both.
        made.run("dd", f"of={path}", "if=/dev/null", "conv=notrunc,fsync", "oflag=nocache")
    for path in copies:
        made.run("cmp", source / path.relative_to(to), path)
