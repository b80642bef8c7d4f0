"""Names as mdtest makes, looks at and removes them: `mdtest -I 2000000 -b 1 -z 0`, scaled.

All processes work in one folder, each on names of its own.
"""

from __future__ import annotations

from statistics import median
from typing import TYPE_CHECKING

from bench.files import paper, programs
from bench.files.crew import Crew
from bench.files.places import places
from bench.files.turns import MOUNT, NULL, TMPFS, by_turns
from bench.harness import Bound, Line

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping
    from pathlib import Path

    from bench.files.turns import Phases
    from bench.setting import Setting

ITEMS = 10_000
REPETITIONS, QUICK = 10, 2
PROCESSES = (1, 4)
POOL_BYTES = 256 << 20
WORK = {
    "create dir": "mkdir",
    "stat dir": "stat",
    "remove dir": "rmdir",
    "create file": "create",
    "stat file": "stat",
    "remove file": "unlink",
}
"""What a rank does in each phase."""
LIMITS = {"create": 0.8, "stat": 0.95, "remove": 0.8}
"""How fast a mount is at least, beside a file system that does nothing."""
SAID = {"Directory": "dir", "File": "file", "creation": "create", "removal": "remove"}
"""mdtest's words."""


def scale(setting: Setting) -> str:
    """Say what is run, and with how much of what the paper had."""
    who = "mdtest" if programs.found("mdtest") else "loops of mdtest's shape"
    items = setting.scaled(ITEMS)
    return f"{who}, -I {items} of all processes together for 2000000 each, -b 1 -z 0"


def lines(setting: Setting) -> Iterator[Line]:
    """Measure with one process, and with four."""
    items = setting.scaled(ITEMS)
    for ranks in PROCESSES:
        with places(setting, POOL_BYTES) as folders:
            runs = {who: work(at, ranks, items // ranks) for who, at in folders.items()}
            samples = by_turns(runs, QUICK if setting.quick else REPETITIONS)
        for phase in WORK:
            limit = LIMITS[phase.split()[0]]
            bounds = [Bound(MOUNT, NULL, "speed", limit), Bound(MOUNT, TMPFS, "show")]
            yield Line(title(ranks, phase), "us", bounds, samples[phase])


def title(ranks: int, phase: str) -> str:
    """Name a line."""
    return f"mdtest, {ranks} process{'es' * (ranks > 1)}: {phase}"


def work(folder: Path, ranks: int, items: int) -> Callable[[], Phases]:
    """Return a repetition by so many processes in a folder, each with so many names."""
    program = programs.found("mdtest")
    if program is None:
        return lambda: loops(folder, ranks, items)
    return lambda: mdtest(program, folder, ranks, items)


def loops(
    folder: Path, ranks: int, items: int, environment: Mapping[str, str] | None = None
) -> Phases:
    """Do the same without mdtest; in an environment by which the processes find the folder."""
    with Crew(f"calls={folder}", 1, environment) as single:
        single.run(lambda _: "mkdir 1")
        with Crew(f"calls={folder}/mdtest.0.0", ranks, environment) as crew:
            crew.run(lambda _: "stat 0")  # it has begun
            taken = {phase: crew.run(told(word, items)) for phase, word in WORK.items()}
        single.run(lambda _: "rmdir 1")
    return {phase: seconds / (items * ranks) for phase, seconds in taken.items()}


def told(word: str, items: int) -> Callable[[int], str]:
    """Return what every rank is told."""
    return lambda _: f"{word} {items}"


def mdtest(program: Path, folder: Path, ranks: int, items: int) -> Phases:
    """Run mdtest once."""
    words = ("-I", str(items), "-b", "1", "-z", "0", "-d", str(folder / "mdtest"))
    found: Phases = {}
    for kind, what, rate in programs.RATE.findall(programs.run(ranks, program, *words)):
        found[f"{SAID.get(what, what)} {SAID[kind]}"] = 1 / float(rate)
    return found


def table(found: list[Line], ranks: int) -> paper.Rates:
    """Return operations a second as the paper's table 1 has them, echofs's beside."""
    by_title = {line.title: line for line in found}
    rates: paper.Rates = {}
    for phase, theirs in paper.NAMES[ranks].items():
        samples = by_title[title(ranks, phase)].samples
        ours = {who: 1 / median(taken) for who, taken in samples.items()}
        rates[phase] = {paper.ECHOFS: theirs, **ours}
    return rates
