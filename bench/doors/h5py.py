"""h5py's names: small datasets, and a slice of a large one, beside h5py on the same filesystem."""

from __future__ import annotations

from itertools import count
from typing import TYPE_CHECKING, Any

import h5py
import numpy as np

from bench.harness import PLACES, Bound, Contestant, Line, measure, timed
from engram import destroy
from engram.compat import h5py as compat

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from bench.setting import Setting

SMALL = np.arange(32.0)  # 256 B
MANY = 500
LARGE = (16, 1 << 20)  # 128 MiB of float64, of which half is read


def lines(setting: Setting) -> Iterator[Line]:
    """Create small datasets, read them, and read a slice of a large one."""
    number = setting.scaled(MANY)
    made = Line("create a dataset of 256 B", "us", [Bound("engram", "h5py", "speed", 5)])
    read = Line(
        "look a dataset of 256 B up, and read it", "us", [Bound("engram", "h5py", "speed", 5)]
    )
    part = Line("read a slice of 64 MiB", "ms", [Bound("engram", "h5py", "speed", 1.5)])
    for place in range(PLACES):
        ours = setting.folder / f"compat-{place}"
        files = {
            "engram": compat.File(ours, "w", size="1 GiB"),
            "h5py": h5py.File(setting.folder / f"h5py-{place}.h5", "w"),
        }
        for file in files.values():
            file["large"] = np.random.default_rng(place).random(LARGE)
        for line, work in ((made, creating), (read, reading), (part, slicing)):
            contestants = [Contestant(name, work(file, number)) for name, file in files.items()]
            measure(line, contestants, setting.rounds)
        for file in files.values():
            file.close()
        destroy(ours)
        (setting.folder / f"h5py-{place}.h5").unlink()
    yield from (made, read, part)


def creating(file: Any, number: int) -> Callable[[], float]:
    """Create datasets in a group of their own, each round anew."""
    rounds = count()

    def work(group: Any) -> None:
        for name in range(number):
            group.create_dataset(f"{name}", data=SMALL)

    def turn() -> float:
        group = file.create_group(f"round-{next(rounds)}")
        return timed(lambda: work(group), number)

    return turn


def reading(file: Any, number: int) -> Callable[[], float]:
    """Read what was created."""

    def work(group: Any) -> None:
        for name in range(number):
            group[f"{name}"][...]

    return lambda: timed(lambda: work(file["round-0"]), number)


def slicing(file: Any, number: int) -> Callable[[], float]:
    """Read half of the large dataset."""
    del number
    return lambda: timed(lambda: file["large"][4:12])
