"""Files to stage, pools to stage them into, and programs that copy files, too."""

from __future__ import annotations

import shutil
import subprocess
import time
from contextlib import contextmanager
from typing import TYPE_CHECKING

import numpy as np

import engram

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from pathlib import Path

MIB = 1 << 20
PIECE = 64 * MIB


def files(folder: Path, count: int, size: int, seed: int = 0) -> Path:
    """Make so many files of random bytes, 100 in a folder."""
    random = np.random.default_rng(seed)
    for number in range(count):
        place = folder / f"{number // 100:03}"
        place.mkdir(parents=True, exist_ok=True)
        with (place / f"{number:05}").open("wb") as file:
            for at in range(0, size, PIECE):
                file.write(random.bytes(min(PIECE, size - at)))
    return folder


@contextmanager
def pool(path: Path, size: int) -> Iterator[Path]:
    """Make a pool whose space nobody has touched yet, and destroy it."""
    engram.create(path, size=size, force=True).close()
    try:
        yield path
    finally:
        engram.destroy(path, force=True)


def whole(report: engram.stage.Report) -> None:
    """Refuse to time a stage that has left something out."""
    if not report.whole:
        raise RuntimeError(f"the stage was not whole: {report.troubles[:3]}")


def run(*words: str | Path) -> None:
    """Run a program."""
    subprocess.run(words, check=True, stdout=subprocess.DEVNULL)  # noqa: S603 - our own words


def into_new(folder: Path, copy: Callable[[Path], object]) -> float:
    """Time a copy into a folder that is not there yet; it is removed afterwards."""
    start = time.perf_counter()
    copy(folder)
    taken_s = time.perf_counter() - start
    shutil.rmtree(folder)
    return taken_s
