"""Word count, as the NEXTGenIO project has it: 64 texts are prepared, persisted, and counted.

The project's files are of 32 and of 128 MB each. In `lines` all 64 together are of 32 and 128 MiB,
so that a run takes seconds and every way can be had: `SCALE` says so in the results. In `whole`
each is, as the project has it, and Engram is measured beside memory only, with pools in memory and
on a disk; that takes an hour, 20 GiB of memory and 40 of disk. Words are Zipf-distributed, seeds
fixed.
"""

from __future__ import annotations

import gc
import tempfile
import time
from collections import Counter
from itertools import pairwise
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np

from bench.active import asks
from bench.active.ways.engram_here import Roomy
from bench.active.ways.engram_media import Background, Disk
from bench.active.ways.limit import Limit
from bench.harness import Bound, Line

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence

    from bench.active.kernels import Values
    from bench.active.way import Fleet, Way

FILES = 64
SCALE = 1 / 64
SIZES = (512 << 10, 2 << 20)
QUICK_SIZES = (8 << 10, 32 << 10)
WHOLE_SIZES = (32 << 20, 128 << 20)
PIECE = 2 << 20
"""Bytes of text that are made of words; more is that again and again."""
VOCABULARY, LONGEST, EXPONENT = 20_000, 12, 1.3
EACH, BATCHED = "", ", batched"
BATCHING = ("engram", "redis")
STEPS = ("prepare", "persist", "count", "settle")
"""The last one is of ways that persist in the background: it waits until all is on the disk."""


def vocabulary() -> list[bytes]:
    """Return different words, the shorter the more frequent."""
    random = np.random.default_rng(5)
    letters = np.frombuffer(b"etaoinshrdlucmfwypvbgkqjxz", np.uint8)
    found: dict[bytes, None] = {}
    while len(found) < VOCABULARY:
        length = 2 + min(len(found) * LONGEST // VOCABULARY + int(random.integers(3)), LONGEST)
        found[letters[random.integers(len(letters), size=length)].tobytes()] = None
    return list(found)


def texts(folder: Path, size: int) -> list[Path]:
    """Write the files, each of `size` bytes."""
    known = vocabulary()
    places = []
    for number in range(FILES):
        random = np.random.default_rng(100 + number)
        chosen = (random.zipf(EXPONENT, min(size, PIECE) // 3) - 1) % VOCABULARY
        text = b" ".join([known[place] for place in chosen.tolist()])
        while len(text) < size:
            text += b" " + text
        place = folder / f"text-{size}-{number:02d}"
        place.write_bytes(text[: size - 1] + b"\n")
        places.append(place)
    return places


def lines(
    fleet: Fleet, folder: Path, rounds: int, *, quick: bool, tell: Callable[[str], None]
) -> Iterator[Line]:
    """Measure texts of each size."""
    for size in QUICK_SIZES if quick else SIZES:
        start = time.monotonic()
        places = texts(folder, size)
        ways = fleet.fresh()
        title = f"word count, {FILES} files of {size >> 10} KiB: "
        yield from measured(title, ways, places, rounds)
        for place in places:
            place.unlink()
        tell(f"{title}{time.monotonic() - start:.1f} s")


def whole(disk: Path, memory: Path, tell: Callable[[str], None]) -> Iterator[Line]:
    """Measure texts of the project's sizes, once, beside memory only."""
    for size in WHOLE_SIZES:
        start = time.monotonic()
        title = f"word count, {FILES} files of {size >> 20} MiB: "
        with (
            tempfile.TemporaryDirectory(prefix="engram-bench-", dir=disk) as folder,
            tempfile.TemporaryDirectory(prefix="engram-", dir=memory) as here,
        ):
            places = texts(Path(folder), size)
            ways: list[Way] = [Limit(Path(here)), Roomy(Path(here))]
            ways += [kind(Path(tempfile.mkdtemp(dir=folder))) for kind in (Disk, Background)]
            try:
                yield from measured(title, ways, places, 1, warm=False)
            finally:
                for way in ways:
                    way.close()
        tell(f"{title}{time.monotonic() - start:.1f} s")


def measured(
    title: str, ways: Sequence[Way], places: Sequence[Path], rounds: int, *, warm: bool = True
) -> list[Line]:
    """Let each way prepare, persist and count, by turns; each text alone, and all in a batch."""
    of_all = [
        Bound("engram", "limit", "time", asks.WORDS_AT_MOST),
        Bound("engram, batched", "limit", "time", asks.WORDS_AT_MOST),
        *asks.of_method("redis"),
    ]
    found = {step: Line(title + step, "ms", asks.of_method("redis")) for step in STEPS}
    found["all"] = Line(f"{title}all", "ms", of_all)
    for turn in range(rounds + warm):
        expected: Counter[bytes] | None = None
        for way in ways:
            for batched in (EACH, BATCHED):
                if batched and way.name not in BATCHING:
                    continue
                spent_s, counted = once(way, places, batched=bool(batched))
                expected = counted if expected is None else expected
                if counted != expected:
                    raise ValueError(f"{way.name} counts something else")
                if turn >= warm:
                    for step, each_s in zip((*STEPS, "all"), spent_s, strict=True):
                        if step == "settle" and not hasattr(way, "settle"):
                            continue
                        samples = found[step].samples.setdefault(way.name + batched, [])
                        samples.append(each_s)
    return [line for line in found.values() if line.samples]


def once(
    way: Way, places: Sequence[Path], *, batched: bool
) -> tuple[tuple[float, ...], Counter[bytes]]:
    """Seconds of each step and of all, and what was counted."""
    gc.collect()
    times = [time.perf_counter()]
    prepared: list[Values] = [np.fromfile(place, np.uint8) for place in places]
    times.append(time.perf_counter())
    kept = way.put_many(prepared) if batched else [way.put(text) for text in prepared]
    times.append(time.perf_counter())
    del prepared
    counted: Counter[bytes] = Counter()
    for text in kept:
        counted.update(way.ask("words", text))
    times.append(time.perf_counter())
    if settle := getattr(way, "settle", None):
        settle()
    times.append(time.perf_counter())
    way.drop(kept)
    steps = tuple(after - before for before, after in pairwise(times))
    return (*steps, times[-1] - times[0]), counted
