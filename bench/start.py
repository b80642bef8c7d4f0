"""`make bench-start`: how long a shell waits: for an import, for a verb, for an installation.

Each is a process of its own, timed from outside until it ends, beside one that imports numpy and
does nothing else: what a user of arrays waits for anyway. They go by turns, warm: bytecode is
written before, whatever the environment says, and a first round is not counted. Output goes into a
pipe; `ls` is asked on a terminal too.

With `--wheel`, also an installation into an empty environment, up to the first array stored, beside
that of numpy alone. Both come from pip's own cache and index.
"""

from __future__ import annotations

import argparse
import os
import pty
import subprocess
import sys
import tempfile
import time
import venv
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np
from rich.console import Console

import engram
from bench import report
from bench.harness import Bound, Contestant, Line, measure

if TYPE_CHECKING:
    from collections.abc import Iterator

OUT = Path(__file__).parent / "results" / "start.json"
MEMORY = Path("/dev/shm")  # noqa: S108 - the kernel's shared memory is what is meant
COLUMNS = 150
NUMPY = ("-c", "import numpy")
DONT_WRITE = "PYTHONDONTWRITEBYTECODE"
IMPORTS, LISTS, INSTALLS = 1.4, 2.0, 1.5
"""At most so many times the peer's time."""
FIRST = """
import sys, numpy, engram
with engram.create(sys.argv[1], size="16 MiB", force=True) as pool:
    pool["first"] = numpy.arange(6.0)
"""


def taken(*words: str, terminal: bool = False) -> float:
    """Return the seconds that a command takes, until it has ended."""
    given = {name: value for name, value in os.environ.items() if name != DONT_WRITE}
    master, slave = pty.openpty() if terminal else (-1, -1)
    out = slave if terminal else subprocess.DEVNULL
    start = time.perf_counter()
    subprocess.run(words, check=True, stdout=out, stderr=subprocess.PIPE, env=given)  # noqa: S603
    seconds = time.perf_counter() - start
    for descriptor in (master, slave) if terminal else ():
        os.close(descriptor)
    return seconds


def python(name: str, *words: str, terminal: bool = False) -> Contestant:
    """Make a contestant of a Python process."""
    return Contestant(name, lambda: taken(sys.executable, *words, terminal=terminal))


def started(pool: Path, rounds: int) -> Iterator[Line]:
    """Measure an import, and verbs that look into a small pool."""
    verbs = {
        "ls": ("ls", str(pool)),
        "ls -l": ("ls", "-l", str(pool)),
        "info": ("info", str(pool)),
        "query": ("query", str(pool), "orbit = 4"),
        "--help": ("--help",),
    }
    peer = python("numpy", *NUMPY)
    line = Line("import engram", "ms", [Bound("engram", "numpy", "time", IMPORTS)])
    yield measure(line, [python("engram", "-c", "import engram"), peer], rounds)
    for title, words in verbs.items():
        limit = LISTS if title == "ls" else 0.0
        bound = Bound("engram", "numpy", "time" if limit else "show", limit)
        line = Line(f"engram {title}, beside import numpy", "ms", [bound])
        yield measure(line, [python("engram", "-m", "engram.cli", *words), peer], rounds)
    bound = Bound("engram", "numpy", "time", LISTS)
    line = Line("engram ls on a terminal, beside import numpy", "ms", [bound])
    shown = python("engram", "-m", "engram.cli", *verbs["ls"], terminal=True)
    yield measure(line, [shown, peer], rounds)


def installed(wheel: Path, folder: Path, rounds: int) -> Line:
    """Measure installations into empty environments; of the wheel, with a first array stored."""
    number = iter(range(1 << 30))

    def install(what: str, *code: str) -> float:
        place = folder / f"env-{next(number)}"
        venv.create(place, with_pip=True)
        own = str(place / "bin" / "python")
        pip = ("-m", "pip", "install", "--quiet", "--disable-pip-version-check")
        return taken(own, *pip, what) + (taken(own, *code, str(place / "pool")) if code else 0.0)

    line = Line(
        "pip install, to the first array", "ms", [Bound("engram", "numpy", "time", INSTALLS)]
    )
    contestants = [
        Contestant("engram", lambda: install(str(wheel), "-c", FIRST)),
        Contestant("numpy", lambda: install("numpy")),
    ]
    return measure(line, contestants, rounds)


def main() -> int:
    """Measure, print the table, and write it down; 1 if `--strict` and a bound was missed."""
    parser = argparse.ArgumentParser(prog="python -m bench.start", description=__doc__)
    parser.add_argument("--rounds", type=int, default=15, help="rounds that count (15)")
    parser.add_argument("--wheel", type=Path, help="a wheel, to be installed beside numpy")
    parser.add_argument("--out", type=Path, default=OUT, help="the JSON file")
    parser.add_argument("--strict", action="store_true", help="exit with 1 if a bound is missed")
    chosen = parser.parse_args()
    console = Console(highlight=False, width=None if sys.stdout.isatty() else COLUMNS)
    with tempfile.TemporaryDirectory(prefix="engram-start-", dir=MEMORY) as folder:
        place = Path(folder) / "pool"
        with engram.create(place, size="64 MiB") as pool:
            run = pool.create_group("run-17", attrs={"orbit": 4})
            for name in "TPQ":
                run.create_array(name, data=np.arange(100.0), attrs={"units": "K"})
        lines = []
        for line in started(place, chosen.rounds):
            console.print(line.title)
            lines.append(line)
        if chosen.wheel is not None:
            rounds = max(chosen.rounds // 5, 1)
            lines.append(installed(chosen.wheel.resolve(), Path(folder), rounds))
    console.print(report.table(lines))
    absent = {} if chosen.wheel else {"pip install": "no wheel is given (--wheel)"}
    report.write(chosen.out, report.contents(lines, quick=False, absent=absent))
    missed = sum(met is False for line in lines for _, _, met in line.judged())
    console.print(f"\n{missed} bounds missed; {chosen.out}")
    return 1 if missed and chosen.strict else 0


if __name__ == "__main__":
    sys.exit(main())
