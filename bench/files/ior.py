"""Bytes as IOR writes and reads them: `ior -b 1g -a POSIX -t 128k`, 4 processes, scaled.

Shared: a file for all, each process in a part of its own. With `-F`: a file for each.
"""

from __future__ import annotations

import os
from pathlib import Path
from statistics import median
from typing import TYPE_CHECKING

from bench.files import paper, programs
from bench.files.crew import Crew
from bench.files.places import places
from bench.files.turns import MOUNT, NULL, TMPFS, by_turns
from bench.harness import Bound, Line

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from bench.files.turns import Phases
    from bench.setting import Setting

RANKS = 4
BLOCK, QUICK_BLOCK = 256 << 20, 32 << 20
BLOCK_LEAST = 16 << 20
REPETITIONS, QUICK = 10, 2
TRANSFER = 128 << 10
ROOM = 12
"""Of the free memory, a process's block takes so small a part: pools and caches hold it, too."""
MODES = {"shared": (), "file each": ("-F",)}
"""The paper's two ways, and what IOR is told."""
PHASES = {"write": "write", "read": "read", "read anew": "read, nothing kept by the kernel,"}
LIMITS = {"write": 0.7, "read": 0.8, "read anew": 0.8}
"""How fast a mount is at least, beside a file system that does nothing."""


def block(setting: Setting) -> int:
    """Return how many bytes each process writes: a power of two that the memory has room for."""
    most = QUICK_BLOCK if setting.quick else BLOCK
    lines = Path("/proc/meminfo").read_text(encoding="ascii").splitlines()
    free = next(int(line.split()[1]) << 10 for line in lines if line.startswith("MemAvailable"))
    while most > BLOCK_LEAST and most * RANKS * ROOM > free:
        most //= 2
    return most


def scale(setting: Setting) -> str:
    """Say what is run, and with how much of what the paper had."""
    who = "ior" if programs.found("ior") else "loops of IOR's shape"
    return f"{who}, -b {block(setting) >> 20}m for 1g, -a POSIX -t 128k, {RANKS} processes"


def lines(setting: Setting) -> Iterator[Line]:
    """Measure both ways."""
    size = block(setting)
    for mode in MODES:
        with places(setting, RANKS * size + (512 << 20)) as folders:
            runs = {who: work(at, mode, size) for who, at in folders.items()}
            samples = by_turns(runs, QUICK if setting.quick else REPETITIONS)
        for phase in PHASES:
            bounds = [Bound(MOUNT, NULL, "speed", LIMITS[phase]), Bound(MOUNT, TMPFS, "show")]
            yield Line(title(mode, phase), "us", bounds, samples[phase])


def title(mode: str, phase: str) -> str:
    """Name a line."""
    return f"IOR, {RANKS} processes, {mode}: {PHASES[phase]} 128 KiB"


def work(folder: Path, mode: str, size: int) -> Callable[[], Phases]:
    """Return a repetition in a folder: seconds for each transfer, all processes together."""
    program = programs.found("ior")
    transfers = RANKS * size / TRANSFER

    def once() -> Phases:
        taken = ior(program, folder, mode, size) if program else loops(folder, mode, size)
        for file in folder.glob("ior*"):
            file.unlink()
        return {phase: seconds / transfers for phase, seconds in taken.items()}

    return once


def forget(folder: Path) -> None:
    """Have the kernel drop the pages of IOR's files; a tmpfs has no others."""
    for file in folder.glob("ior*"):
        opened = os.open(file, os.O_RDONLY)
        os.posix_fadvise(opened, 0, 0, os.POSIX_FADV_DONTNEED)
        os.close(opened)


def loops(folder: Path, mode: str, size: int) -> Phases:
    """Do the same without IOR."""
    shared = mode == "shared"

    def told(word: str) -> Callable[[int], str]:
        def line(rank: int) -> str:
            path = folder / ("ior" if shared else f"ior.{rank}")
            return f"{word} {path} {rank * size if shared else 0} {size} {TRANSFER}"

        return line

    with Crew(f"calls={folder}", RANKS) as crew:
        crew.run(lambda _: "stat 0")  # it has begun
        taken = {"write": crew.run(told("write")), "read": crew.run(told("read"))}
        forget(folder)
        return taken | {"read anew": crew.run(told("read"))}


def ior(program: Path, folder: Path, mode: str, size: int) -> Phases:
    """Run IOR: it writes, reads, and reads again once the kernel has dropped its pages."""
    words = ("-b", str(size), "-a", "POSIX", "-t", "128k", "-k", "-o", str(folder / "ior"))
    mib = RANKS * size / (1 << 20)

    def seconds(*more: str) -> Iterator[tuple[str, float]]:
        said = programs.run(RANKS, program, *words, *MODES[mode], *more)
        for what, rate in programs.BANDWIDTH.findall(said):
            yield what, mib / float(rate)

    taken = dict(seconds("-w", "-r"))
    forget(folder)
    return taken | {"read anew": dict(seconds("-r"))["read"]}


def rate(taken: float) -> float:
    """Return MiB/s."""
    return TRANSFER / (1 << 20) / taken


def table(found: list[Line]) -> paper.Rates:
    """Return MiB/s as the paper's table 2 has them, echofs's beside."""
    by_title = {line.title: line for line in found}
    rates: paper.Rates = {}
    for mode, theirs in paper.BYTES.items():
        for phase in PHASES:
            samples = by_title[title(mode, phase)].samples
            ours = {who: rate(median(taken)) for who, taken in samples.items()}
            there = {paper.ECHOFS: theirs[phase]} if phase in theirs else {}
            rates[f"{mode}: {phase}"] = there | ours
    return rates
