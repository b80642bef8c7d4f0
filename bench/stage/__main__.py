"""`python -m bench.stage`: stages beside `cp`, `rsync`, `cmp` and `find`.

Sources and pools lie in memory, so that what is measured is the copying. Stage-outs that are read
again go to a disk (`--disk`).
"""

from __future__ import annotations

import argparse
import sys
import time
from contextlib import ExitStack
from pathlib import Path
from typing import TYPE_CHECKING, Any

from rich.console import Console

from bench import report
from bench.files import places
from bench.setting import Setting
from bench.stage import copies, many, network, paper, pauses
from bench.stage.elsewhere import Elsewhere

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from bench.harness import Line

OUT = Path(__file__).parents[1] / "results" / "stage.json"
MEMORY = Path("/dev/shm")  # noqa: S108 - the kernel's shared memory is what is meant
DISK = Path("/var/tmp")  # noqa: S108 - a folder on a disk
COLUMNS = 150
PARTS: dict[str, Callable[[Setting, Elsewhere], Iterator[Line]]] = {
    "copies": copies.lines,
    "many": many.lines,
    "pauses": pauses.lines,
    "paper": paper.lines,
    "network": network.lines,
}


def arguments() -> argparse.Namespace:
    """Return what was chosen."""
    parser = argparse.ArgumentParser(prog="python -m bench.stage", description=__doc__)
    parser.add_argument("--quick", action="store_true", help="fewer rounds and less data")
    parser.add_argument("--only", action="append", choices=PARTS, help="one part; repeatable")
    parser.add_argument("--out", type=Path, help="the JSON file")
    parser.add_argument("--where", type=Path, default=MEMORY, help=f"a folder ({MEMORY})")
    parser.add_argument("--disk", type=Path, default=DISK, help=f"a folder on a disk ({DISK})")
    parser.add_argument("--pfs", type=Path, help="a parallel file system's folder, to be measured")
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
    with ExitStack() as stack:
        folder, disk = (
            stack.enter_context(places.folder(where)) for where in (chosen.where, chosen.disk)
        )
        pfs = stack.enter_context(places.folder(chosen.pfs)) if chosen.pfs else None
        elsewhere = Elsewhere(disk, pfs)
        setting = Setting(folder, chosen.quick, console.print)
        for part in chosen.only or list(PARTS):
            for line in PARTS[part](setting, elsewhere):
                found.append(line)
                setting.tell(f"{time.monotonic() - start:5.0f} s  {line.title}")
    console.print(report.table(found))
    for line in found:
        for remark in line.remarks:
            console.print(f"{line.title}: {remark}")
    held: dict[str, Any] = report.contents(found, quick=chosen.quick, absent=setting.absent)
    report.write(chosen.out, held)
    missed = sum(met is False for line in found for _, _, met in line.judged())
    console.print(f"\n{missed} bounds missed; {chosen.out}")
    return 1 if missed and chosen.strict else 0


if __name__ == "__main__":
    sys.exit(main())
