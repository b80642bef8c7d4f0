"""`python -m bench.databases`: find objects, beside DuckDB, SQLite and a brute-force search.

All sides hold the same objects and have answered alike before they are timed. They take turns
within each round; times are medians of rounds, ratios are medians of the rounds' own; the first
round warms up.
"""

from __future__ import annotations

import argparse
import shutil
import sys
import tempfile
import time
from pathlib import Path

from rich.console import Console

from bench import report
from bench.databases import lines
from bench.setting import Setting

RESULTS = Path(__file__).parents[1] / "results"
MEMORY = Path("/dev/shm")  # noqa: S108 - the kernel's shared memory is what is meant
ROOM = 4 << 30
COUNTS = [1_000_000, 5_000_000]
QUICK = [100_000]


def main() -> int:
    """Measure; 1 if `--strict` and a bound was missed."""
    chosen = arguments()
    console = Console(highlight=False, width=None if sys.stdout.isatty() else 150)
    start = time.monotonic()
    found = []
    where = chosen.where or (MEMORY if shutil.disk_usage(MEMORY).free > ROOM else None)
    with tempfile.TemporaryDirectory(prefix="engram-databases-", dir=where) as folder:
        setting = Setting(Path(folder), chosen.quick, console.print)
        for line in lines.everything(setting, chosen.objects):
            console.print(f"[dim]{time.monotonic() - start:5.0f} s[/]  {line.title}")
            found.append(line)
    console.print(report.table(found))
    held = report.contents(found, quick=chosen.quick, absent=setting.absent)
    for line, told in zip(found, held["lines"], strict=True):
        told["remarks"] = line.remarks
    report.write(chosen.out, held)
    missed = sum(met is False for line in found for _, _, met in line.judged())
    console.print(f"\n{missed} bounds missed; {time.monotonic() - start:.0f} s; {chosen.out}")
    return 1 if missed and chosen.strict else 0


def arguments() -> argparse.Namespace:
    """Return what was chosen."""
    parser = argparse.ArgumentParser(prog="python -m bench.databases", description=__doc__)
    parser.add_argument("--quick", action="store_true", help="fewer rounds, a tenth of the objects")
    parser.add_argument(
        "--objects", type=int, action="append", help="how many; repeatable (1000000, 5000000)"
    )
    parser.add_argument("--where", type=Path, help="a folder to measure in (default: /dev/shm)")
    parser.add_argument("--strict", action="store_true", help="exit with 1 if a bound is missed")
    parser.add_argument("--out", type=Path, help="the results")
    chosen = parser.parse_args()
    if chosen.out is None:
        whole = not chosen.quick and chosen.objects is None
        chosen.out = RESULTS / ("databases.json" if whole else "part.json")
    if chosen.objects is None:
        chosen.objects = QUICK if chosen.quick else COUNTS
    return chosen


if __name__ == "__main__":
    sys.exit(main())
