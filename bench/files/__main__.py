"""`python -m bench.files`: files by `Fs` and by a mount, beside system calls on tmpfs, by turns.

What echofs's authors measured, on another machine, stands beside: 2 Xeons, NVDIMMs and mdtest.
"""

from __future__ import annotations

import argparse
import sys
import tempfile
from pathlib import Path
from typing import TYPE_CHECKING

from rich.console import Console

import engram
from bench import report
from bench.harness import Bound, Line
from bench.own import rust

if TYPE_CHECKING:
    from collections.abc import Iterator

OUT = Path(__file__).parents[1] / "results" / "posix.json"
MEMORY = Path("/dev/shm")  # noqa: S108 - the kernel's shared memory is what is meant
COLUMNS = 150
FILES, MIB, ROUNDS = 20_000, 1024, 9
QUICK = (2_000, 64, 3)
MOUNT = "engram, mount"
TITLES = {
    "create": "create and close a file",
    "stat": "stat a file by its name",
    "open": "open and close a file",
    "unlink": "unlink a file",
    "write 4 KiB": "write 4 KiB within 1 MiB",
    "read 4 KiB": "read 4 KiB within 1 MiB",
    "append 100 B": "append 100 B",
    "write 128 KiB": "write 128 KiB of a large file, in space touched before",
    "read 128 KiB": "read 128 KiB of a large file",
}
BOUNDS = {
    "create": [("tmpfs", 1.0)],
    "stat": [("tmpfs", 2.0)],
    "open": [("tmpfs", 1.5)],
    "unlink": [("tmpfs", 1.0)],
    "write 4 KiB": [("tmpfs", 4.0)],
    "read 4 KiB": [("tmpfs", 2.5)],
    "append 100 B": [("tmpfs", 2.0)],
    "write 128 KiB": [("tmpfs", 1.0), ("memcpy", 0.85)],
    "read 128 KiB": [("tmpfs", 1.0), ("memcpy", 0.85)],
}
"""By work: against whom, and how many times as fast at least."""
ECHOFS = {"create": 20_258, "stat": 35_778, "unlink": 30_658}
"""Operations a second of its mount, one process (the white paper's table 1)."""


def lines(folder: Path, quick: bool, absent: dict[str, str]) -> Iterator[Line]:
    """Measure names and bytes; a mount takes part where FUSE is offered."""
    files, mib, rounds = QUICK if quick else (FILES, MIB, ROUNDS)
    plain, place, pool = folder / "plain", folder / "mount", folder / "mounted.pool"
    plain.mkdir()
    place.mkdir()
    engram.create(pool, size=(mib << 21) + (256 << 20)).close()
    others = [f"tmpfs={plain}"]
    try:
        mount = engram.mount(pool, place, cache="job")
    except engram.UnsupportedError as refusal:
        absent[MOUNT] = str(refusal)
        mount = None
    else:
        others.append(f"{MOUNT}={place}")
    try:
        found = rust.run("files", folder, files, mib, rounds, *others)
    finally:
        if mount is not None:
            mount.unmount()
        engram.destroy(pool)
    for work, title in TITLES.items():
        bounds = [Bound("engram", peer, "speed", limit) for peer, limit in BOUNDS[work]]
        bounds.append(Bound(MOUNT, "tmpfs", "show"))
        line = Line(title, "us", bounds, found[work])
        if work in ECHOFS:
            line.remarks.append(f"echofs, elsewhere: {1e6 / ECHOFS[work]:.0f} us")
        yield line


def main() -> int:
    """Measure, show and write down; 1 if `--strict` and a bound was missed."""
    parser = argparse.ArgumentParser(prog="python -m bench.files", description=__doc__)
    parser.add_argument("--quick", action="store_true", help="fewer rounds and less data")
    parser.add_argument("--out", type=Path, help="the JSON file")
    parser.add_argument("--where", type=Path, default=MEMORY, help=f"a folder ({MEMORY})")
    parser.add_argument("--strict", action="store_true", help="exit with 1 if a bound is missed")
    chosen = parser.parse_args()
    out = chosen.out or OUT.with_name("part.json" if chosen.quick else OUT.name)
    console = Console(highlight=False, width=None if sys.stdout.isatty() else COLUMNS)
    rust.build()
    absent = {"null fs": "a FUSE file system that does nothing is not measured yet"}
    with tempfile.TemporaryDirectory(prefix="engram-posix-", dir=chosen.where) as folder:
        found = list(lines(Path(folder), chosen.quick, absent))
    console.print(report.table(found))
    for line in found:
        for remark in line.remarks:
            console.print(f"{line.title}: {remark}")
    report.write(out, report.contents(found, quick=chosen.quick, absent=absent))
    missed = sum(met is False for line in found for _, _, met in line.judged())
    console.print(f"\n{missed} bounds missed; {out}")
    return 1 if missed and chosen.strict else 0


if __name__ == "__main__":
    sys.exit(main())
