"""`python -m bench.doors`: each door beside what its users have today, in one run, by turns.

A door is a module of this folder whose `lines(setting)` yields what was measured. A door with a
library that is not installed is left out and named.
"""

from __future__ import annotations

import argparse
import importlib
import sys
import tempfile
import time
from pathlib import Path
from typing import TYPE_CHECKING

from rich.console import Console

from bench import report
from bench.setting import Setting

if TYPE_CHECKING:
    from bench.harness import Line

HERE = Path(__file__).parent
RESULTS = HERE.parent / "results"
MEMORY = Path("/dev/shm")  # noqa: S108 - the kernel's shared memory is what is meant
COLUMNS = 150


def doors() -> list[str]:
    """Return the names of all doors."""
    return sorted(file.stem for file in HERE.glob("[a-z]*.py"))


def arguments() -> argparse.Namespace:
    """Return what was chosen."""
    parser = argparse.ArgumentParser(prog="python -m bench.doors", description=__doc__)
    parser.add_argument("--quick", action="store_true", help="fewer rounds and less data")
    parser.add_argument("--only", action="append", choices=doors(), help="one door; repeatable")
    parser.add_argument("--out", type=Path, help="the JSON file")
    parser.add_argument("--where", type=Path, default=MEMORY, help=f"a folder ({MEMORY})")
    parser.add_argument("--strict", action="store_true", help="exit with 1 if a bound is missed")
    chosen = parser.parse_args()
    if chosen.out is None:
        whole = not (chosen.quick or chosen.only)
        chosen.out = RESULTS / ("doors.json" if whole else "part.json")
    return chosen


def measured(setting: Setting, names: list[str]) -> list[Line]:
    """Measure these doors, and tell of each line when it is there."""
    found: list[Line] = []
    start = time.monotonic()
    for name in names:
        try:
            door = importlib.import_module(f"bench.doors.{name}")
        except ImportError as refusal:
            setting.absent[name] = str(refusal)
            setting.tell(f"{name} is left out: {refusal}")
            continue
        for line in door.lines(setting):
            setting.tell(f"{time.monotonic() - start:5.0f} s  {line.title}")
            found.append(line)
    return found


def main() -> int:
    """Measure what the arguments ask for; 1 if `--strict` and a bound was missed."""
    chosen = arguments()
    console = Console(highlight=False, width=None if sys.stdout.isatty() else COLUMNS)
    with tempfile.TemporaryDirectory(prefix="engram-doors-", dir=chosen.where) as folder:
        setting = Setting(Path(folder), chosen.quick, console.print)
        lines = measured(setting, chosen.only or doors())
    console.print(report.table(lines))
    report.write(chosen.out, report.contents(lines, quick=chosen.quick, absent=setting.absent))
    missed = sum(met is False for line in lines for _, _, met in line.judged())
    console.print(f"\n{missed} bounds missed; {chosen.out}")
    return 1 if missed and chosen.strict else 0


if __name__ == "__main__":
    sys.exit(main())
