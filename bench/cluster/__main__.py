"""`python -m bench.cluster`: clusters beside what they are made of.

All nodes are processes of this host, over loopback: only ratios count.
"""

from __future__ import annotations

import argparse
import shutil
import sys
import tempfile
import time
from pathlib import Path
from typing import TYPE_CHECKING, Any

from rich.console import Console

from bench import report
from bench.cluster import arrays, calls, members, objects, ranks, wire
from bench.setting import Setting

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from bench.harness import Line

OUT = Path(__file__).parents[1] / "results" / "cluster.json"
MEMORY = Path("/dev/shm")  # noqa: S108 - the kernel's shared memory is what is meant
COLUMNS = 150
PARTS: dict[str, Callable[[Setting], Iterator[Line]]] = {
    "wire": wire.lines,
    "arrays": arrays.lines,
    "objects": objects.lines,
    "calls": calls.lines,
    "members": members.lines,
    "ranks": ranks.lines,
}


def arguments() -> argparse.Namespace:
    """Return what was chosen."""
    parser = argparse.ArgumentParser(prog="python -m bench.cluster", description=__doc__)
    parser.add_argument("--quick", action="store_true", help="fewer rounds and less data")
    parser.add_argument("--only", action="append", choices=PARTS, help="one part; repeatable")
    parser.add_argument("--out", type=Path, help="the JSON file")
    parser.add_argument("--strict", action="store_true", help="exit with 1 if a bound is missed")
    chosen = parser.parse_args()
    if chosen.out is None:
        whole = not (chosen.quick or chosen.only)
        chosen.out = OUT if whole else OUT.with_name("part.json")
    return chosen


def main() -> int:
    """Measure, show and write down; 1 if `--strict` and a bound was missed."""
    chosen = arguments()
    console = Console(highlight=False, width=None if sys.stdout.isatty() else COLUMNS)
    found: list[Line] = []
    start = time.monotonic()
    absent: dict[str, str] = {}
    for part in chosen.only or list(PARTS):
        folder = Path(tempfile.mkdtemp(prefix="engram-bench-", dir=MEMORY))
        try:
            setting = Setting(folder, chosen.quick, console.print, absent)
            for line in PARTS[part](setting):
                found.append(line)
                setting.tell(f"{time.monotonic() - start:5.0f} s  {line.title}")
        finally:
            shutil.rmtree(folder, ignore_errors=True)
    held: dict[str, Any] = report.contents(found, quick=chosen.quick, absent=absent)
    report.write(chosen.out, held)
    console.print(report.table(found))
    for line in found:
        for remark in line.remarks:
            console.print(f"{line.title}: {remark}")
    missed = sum(met is False for line in found for _, _, met in line.judged())
    console.print(f"\n{missed} bounds missed; {chosen.out}")
    return 1 if missed and chosen.strict else 0


if __name__ == "__main__":
    sys.exit(main())
