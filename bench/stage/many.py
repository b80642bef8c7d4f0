"""Many small files: in and out, against `cp -r` and `rsync`; and in again, unchanged."""

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

FILES, SIZE = 10_000, 4096
ROUNDS, QUICK = 5, 2
POOL_BYTES = 256 * MIB
IN_LIMIT, OUT_LIMIT, RSYNC_LIMIT, AGAIN_LIMIT = 1.0, 0.8, 3.0, 2.0
ENGRAM, CP, RSYNC = "engram", "cp -r", "rsync -a"


def lines(setting: Setting, _elsewhere: Elsewhere) -> Iterator[Line]:
    """Measure both ways, and again."""
    count = setting.scaled(FILES)
    rounds = QUICK if setting.quick else ROUNDS
    source = made.files(setting.folder / "small", count, SIZE)
    copied, mirrored = setting.folder / "copied", setting.folder / "mirrored"
    peers = [
        Contestant(CP, lambda: made.into_new(copied, lambda to: made.run("cp", "-r", source, to))),
    ]
    if shutil.which("rsync") is None:
        setting.absent[RSYNC] = "rsync is not installed"
    else:
        mirror = lambda to: made.run("rsync", "-a", f"{source}/", to)  # noqa: E731 - a word for it
        peers.append(Contestant(RSYNC, lambda: made.into_new(mirrored, mirror)))

    def inward() -> float:
        with made.pool(setting.folder / "many.pool", POOL_BYTES) as path:
            start = time.perf_counter()
            made.whole(engram.stage.bring_in(path, {str(source): "in"}))
            return time.perf_counter() - start

    bounds = [Bound(ENGRAM, CP, "speed", IN_LIMIT), Bound(ENGRAM, RSYNC, "speed", RSYNC_LIMIT)]
    title = f"stage-in of {count} files of 4 KiB"
    yield measure(Line(title, "ms", bounds), [Contestant(ENGRAM, inward), *peers], rounds)
    with made.pool(setting.folder / "many.pool", POOL_BYTES) as path:
        made.whole(engram.stage.bring_in(path, {str(source): "in"}))

        def outward() -> float:
            # The stage's log would know the files of the round before.
            with engram.open(path) as opened:
                for one in engram.stage.stages(opened):
                    if one.direction == "out":
                        engram.stage.drop(opened, one.name, keep_files=True)
            return made.into_new(
                setting.folder / "out",
                lambda to: made.whole(
                    engram.stage.bring_out(path, {"in": str(to)}, verify="written")
                ),
            )

        bounds = [
            Bound(ENGRAM, CP, "speed", OUT_LIMIT),
            Bound(ENGRAM, RSYNC, "speed", RSYNC_LIMIT),
        ]
        title = f"stage-out of {count} files of 4 KiB"
        yield measure(Line(title, "ms", bounds), [Contestant(ENGRAM, outward), *peers], rounds)
        yield again(setting, path, source, count)
    shutil.rmtree(source)


def again(setting: Setting, path: Path, source: Path, count: int) -> Line:
    """Bring in what is there and has not changed, against a look at both sides by `find`."""
    reference = setting.folder / "reference"
    reference.touch()
    other = setting.folder / "other"
    made.run("cp", "-a", source, other)

    def staged() -> float:
        start = time.perf_counter()
        report = engram.stage.bring_in(path, {str(source): "in"})
        taken_s = time.perf_counter() - start
        if report.files_reused != count:
            raise RuntimeError(f"{count - report.files_reused} files were copied again")
        return taken_s

    def found() -> float:
        start = time.perf_counter()
        made.run("find", source, other, "-newer", reference)
        return time.perf_counter() - start

    contestants = [Contestant(ENGRAM, staged), Contestant("find -newer", found)]
    title = f"stage-in of the same {count} files again, unchanged"
    line = Line(title, "ms", [Bound(ENGRAM, "find -newer", "time", AGAIN_LIMIT)])
    measure(line, contestants, QUICK if setting.quick else ROUNDS)
    shutil.rmtree(other)
    return line
