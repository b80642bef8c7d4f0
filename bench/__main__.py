"""`python -m bench`: measure every line of the table, print it and keep it as JSON."""

from __future__ import annotations

import argparse
import shutil
import sys
import tempfile
import time
from pathlib import Path
from typing import TYPE_CHECKING

from rich.console import Console

from bench import report
from bench.evaluation import asking, building, papers, reading
from bench.kernels import lines as kernels
from bench.kernels import serialization
from bench.own import chunks, files, large, modes, opening, pair, pauses, rust, small
from bench.setting import Setting

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from bench.harness import Line

LINES: dict[str, Callable[[Setting], Iterator[Line]]] = {
    "put": large.put,
    "fill": large.fill,
    "sum": large.total,
    "pages": large.pages,
    "create": small.create,
    "read": small.read,
    "rust": rust.small,
    "growth": rust.growth,
    "open": opening.lines,
    "pair": pair.lines,
    "pauses": pauses.lines,
    "files": files.lines,
    "chunks": chunks.lines,
    "queries": asking.asked,
    "million": asking.growth,
    "policies": asking.policies,
    "index-bytes": building.sizes,
    "index-time": building.construction,
    "search-space": building.space,
    "load-factor": building.load_factor,
    "end-to-end": reading.lines,
    "kernels": kernels.lines,
    "serialization": serialization.lines,
    "modes": modes.lines,
    "papers-size": papers.lines,
}
ALONE = {"papers-size"}  # measured where it is asked for by name: it takes most of an hour
RESULTS = Path(__file__).parent / "results"
MEMORY = Path("/dev/shm")  # noqa: S108 - the kernel's shared memory is what is meant
ROOM = 6 << 30
COLUMNS = 150


def main() -> int:
    """Measure what the arguments ask for; 1 if `--strict` and a bound was missed."""
    chosen = arguments()
    console = Console(highlight=False, width=None if sys.stdout.isatty() else COLUMNS)
    lines: list[Line] = []
    start = time.monotonic()
    where = chosen.where or (MEMORY if shutil.disk_usage(MEMORY).free > ROOM else None)
    with tempfile.TemporaryDirectory(prefix="engram-bench-", dir=where) as folder:
        console.print(f"Measuring in {folder}; building the Rust program first")
        rust.build()
        setting = Setting(Path(folder), chosen.quick, console.print, files=chosen.files)
        for name in chosen.only or [name for name in LINES if name not in ALONE]:
            for line in LINES[name](setting):
                console.print(f"[dim]{time.monotonic() - start:5.0f} s[/]  {line.title}")
                lines.append(line)
    console.print(report.table(lines))
    held = report.contents(lines, quick=chosen.quick, absent=setting.absent)
    report.write(chosen.out, held)
    missed = sum(met is False for line in lines for _, _, met in line.judged())
    console.print(f"\n{missed} bounds missed; {time.monotonic() - start:.0f} s; {chosen.out}")
    return 1 if missed and chosen.strict else 0


def arguments() -> argparse.Namespace:
    """Return the arguments."""
    parser = argparse.ArgumentParser(prog="python -m bench", description=__doc__)
    parser.add_argument("--quick", action="store_true", help="fewer rounds, a tenth of the objects")
    parser.add_argument("--only", action="append", choices=list(LINES), help="one part; repeatable")
    parser.add_argument("--out", type=Path, help="the JSON file")
    parser.add_argument("--where", type=Path, help="a folder to measure in (default: /dev/shm)")
    parser.add_argument(
        "--files", type=Path, help="a folder of HDF5 granules that the evaluation asks of"
    )
    parser.add_argument("--strict", action="store_true", help="exit with 1 if a bound is missed")
    chosen = parser.parse_args()
    if chosen.out is None:
        whole = not (chosen.quick or chosen.only)
        chosen.out = RESULTS / ("latest.json" if whole else "part.json")
    return chosen


if __name__ == "__main__":
    sys.exit(main())
