"""`python -m bench.files`: files by `Fs` and by a mount, beside tmpfs and a null FUSE file system.

What echofs's authors measured, on another machine, stands beside (`bench/files/paper.py`).
"""

from __future__ import annotations

import argparse
import sys
import time
from pathlib import Path
from typing import TYPE_CHECKING, Any

from rich.console import Console

from bench import report
from bench.files import build, calls, ecdf, folders, ior, mdtest, paper, places, preload
from bench.files.turns import MOUNT
from bench.own import rust
from bench.setting import Setting

if TYPE_CHECKING:
    from bench.harness import Line

OUT = Path(__file__).parents[1] / "results" / "posix.json"
MEMORY = Path("/dev/shm")  # noqa: S108 - the kernel's shared memory is what is meant
COLUMNS = 150
PARTS = {
    "calls": calls.lines,
    "mdtest": mdtest.lines,
    "ior": ior.lines,
    "ecdf": ecdf.lines,
    "folders": folders.lines,
    "build": build.lines,
    "preload": preload.lines,
}


def arguments() -> argparse.Namespace:
    """Return what was chosen."""
    parser = argparse.ArgumentParser(prog="python -m bench.files", description=__doc__)
    parser.add_argument("--quick", action="store_true", help="fewer rounds and less data")
    parser.add_argument("--only", action="append", choices=PARTS, help="one part; repeatable")
    parser.add_argument("--out", type=Path, help="the JSON file")
    parser.add_argument("--where", type=Path, default=MEMORY, help=f"a folder ({MEMORY})")
    parser.add_argument("--strict", action="store_true", help="exit with 1 if a bound is missed")
    chosen = parser.parse_args()
    if chosen.out is None:
        whole = not (chosen.quick or chosen.only)
        chosen.out = OUT if whole else OUT.with_name("part.json")
    return chosen


def measured(setting: Setting, parts: list[str]) -> dict[str, list[Line]]:
    """Measure these parts, and tell of each line when it is there."""
    found: dict[str, list[Line]] = {}
    start = time.monotonic()
    for part in parts:
        found[part] = []
        for line in PARTS[part](setting):
            found[part].append(line)
            setting.tell(f"{time.monotonic() - start:5.0f} s  {line.title}")
    return found


def beside(found: dict[str, list[Line]]) -> dict[str, paper.Rates]:
    """Return rates as the paper's tables have them, its own among them."""
    tables: dict[str, paper.Rates] = {}
    if "mdtest" in found:
        for ranks in mdtest.PROCESSES:
            tables[f"table 1, processes: {ranks}"] = mdtest.table(found["mdtest"], ranks)
    if "ior" in found:
        tables["table 2"] = ior.table(found["ior"])
    return tables


def main() -> int:
    """Measure, show and write down; 1 if `--strict` and a bound was missed."""
    chosen = arguments()
    console = Console(highlight=False, width=None if sys.stdout.isatty() else COLUMNS)
    rust.build()
    with places.folder(chosen.where) as folder:
        setting = Setting(folder, chosen.quick, console.print)
        scales = {"mdtest": mdtest.scale(setting), "ior": ior.scale(setting)}
        found = measured(setting, chosen.only or list(PARTS))
    lines = [line for part in found.values() for line in part]
    console.print(report.table(lines))
    for line in lines:
        for remark in line.remarks:
            console.print(f"{line.title}: {remark}")
    held: dict[str, Any] = report.contents(lines, quick=chosen.quick, absent=setting.absent)
    held |= {"scales": scales, "paper": beside(found)}
    for title, rates in held["paper"].items():
        unit = "MiB/s" if title == "table 2" else "operations a second"
        console.print(paper.drawn(f"\nThe paper's {title}: {unit}", rates))
        slower = [name for name, met in paper.met(rates, MOUNT).items() if not met]
        console.print(f"the mount here is slower than echofs there: {', '.join(slower) or 'no'}")
    for part, scale in scales.items():
        if part in found:
            console.print(f"{part}: {scale}")
    held["percentiles, MiB/s"] = ecdf.percentiles(found.get("ecdf", []))
    report.write(chosen.out, held)
    missed = sum(met is False for line in lines for _, _, met in line.judged())
    console.print(f"\n{missed} bounds missed; {chosen.out}")
    return 1 if missed and chosen.strict else 0


if __name__ == "__main__":
    sys.exit(main())
