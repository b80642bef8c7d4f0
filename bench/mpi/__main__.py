"""`python -m bench.mpi`: the S3D kernel behind each interface, at 1, 2 and 4 ranks.

All on one filesystem, true ranks, one global array a variable; ADIOS2's wheel is serial, so its
ranks write a file each. Times are of the slowest rank, from before a file or pool is opened until
after it is closed. Every value that is read is checked.

A pool is there before the job and after it, with space that it has taken once; a file is made and
removed. So `engram` puts new arrays into a pool that was made beforehand, and what was in it is
deleted after each round; `engram, new pool` also makes the pool, and takes its space from the
kernel, within the time; and `engram, emulated persistent memory` is a pool that was made with
`emulate="pmem"`, as if the node's memory were what the papers had.

pMEMCPY's modes are shown in a pool that survives a loss of power, on a disk: ranks store their
parts, which are made durable `once` each (A, without MAP_SYNC) or `as written`, piece by piece (B,
with it), and load them again, from memory, as each mode has left it.

Each side that makes files begins when a file of twice their size was written and removed: for its
ranks' own memory, and for the files. So all find memory that was in use a moment ago.

`add up` is a read whose values are then added up; Engram's program loads none, and adds up views.
"""

from __future__ import annotations

import argparse
import json
import shutil
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

from rich.console import Console

import engram
from bench import report
from bench.compare.memory import have_memory
from bench.harness import Bound, Line
from bench.mpi import build
from bench.mpi.names import ADD_UP, EMULATED, MODES, NEW_POOL, PEERS

ROOT = Path(__file__).parents[2]
RESULTS = ROOT / "bench" / "results"
MEMORY = Path("/dev/shm")  # noqa: S108 - the kernel's shared memory is what is meant
OPERATIONS = {
    "write": (1.15, 2.5),
    "read": (2.0, 5.0),
    "read otherwise": (None, None),
    ADD_UP: (None, None),
}
NEW_POOL_AGAINST_ADIOS2 = 1.15
SIDE, QUICK_SIDE = 300, 128
VARIABLES = 10
# Ranks share two processors here, and a machine that is not the whole of a node has no cores to
# bind them to.
MPIRUN = ("mpirun", "--allow-run-as-root", "--oversubscribe", "--bind-to", "none")
# Of each peer the quicker way on tmpfs: independent access, but for PnetCDF, whose program is
# collective; collective HDF5 was two to eight times slower at four ranks.


def bounds(operation: str, there: list[str]) -> list[Bound]:
    """Return what is asked of an operation, and what is shown: like beside like first."""
    adios2, netcdf = OPERATIONS[operation]
    required = {"adios2": adios2, "netcdf": netcdf, "pnetcdf": netcdf}
    first = []
    if operation == "write":
        new = {name: NEW_POOL_AGAINST_ADIOS2 if name == "adios2" else 1.0 for name in there}
        first = [Bound(NEW_POOL, PEERS[name], "speed", limit) for name, limit in new.items()]
    # What is looked at where it lies is not slowed down.
    shown = [Bound("engram", EMULATED, "show")] if operation != ADD_UP else []
    return (
        first
        + shown
        + [
            Bound("engram", PEERS[name], "speed", limit)
            if limit
            else Bound("engram", PEERS[name], "show")
            for name in there
            for limit in (required.get(name),)
        ]
    )


def launch(program: Path, path: Path, ranks: int, side: int) -> dict[str, float]:
    """Let as many ranks write and read; the seconds of each operation."""
    command = [*MPIRUN, "-n", str(ranks), str(program), str(path)]
    sizes = [*([str(side)] * 3), str(VARIABLES)]
    done = subprocess.run([*command, *sizes], stdout=subprocess.PIPE, text=True, check=True)
    found: dict[str, float] = json.loads(done.stdout)
    return found


def kernel(
    programs: dict[str, Path], folder: Path, ranks: int, side: int, rounds: int
) -> list[Line]:
    """Let every program write and read by turns."""
    peers = [name for name in programs if name != "engram"]
    size = VARIABLES * side**3 * 8
    lines = {
        operation: Line(
            f"{ranks} rank{'s' * (ranks > 1)}: {operation} {size / 2**30:.1f} GiB",
            "ms",
            bounds(operation, peers),
        )
        for operation in OPERATIONS
    }
    pools = {"engram": folder / "pool", EMULATED: folder / "emulated"}
    contestants = [
        *(("engram", title) for title in (*pools, NEW_POOL)),
        *((name, PEERS[name]) for name in peers),
    ]
    for title, path in pools.items():
        emulate = "pmem" if title == EMULATED else None
        engram.create(path, size=size + (64 << 20), prefault=True, emulate=emulate).close()
    for turn in range(rounds + 1):
        for name, title in contestants:
            place = folder / "data"
            place.mkdir()
            if title not in pools:
                have_memory(place / "memory", 2 * size)
            found = launch(programs[name], pools.get(title, place / "file"), ranks, side)
            shutil.rmtree(place)
            if title in pools:
                with engram.open(pools[title]) as pool:
                    pool.clear()
            for operation, seconds in found.items():
                if turn > 0 and (operation, title) != (ADD_UP, EMULATED):
                    lines[operation].samples.setdefault(title, []).append(seconds)
    for path in pools.values():
        engram.destroy(path)
    return list(lines.values())


def rows(*command: str | Path) -> list[dict[str, Any]]:
    """Return what a program prints, a line of JSON a round, without the first."""
    words = [str(word) for word in command]
    done = subprocess.run(words, stdout=subprocess.PIPE, text=True, check=True)
    return [json.loads(line) for line in done.stdout.splitlines()][1:]


def block(program: Path, folder: Path, rounds: int) -> list[Line]:
    """Store and load 64 MiB of an array beside memcpy."""
    found = rows(program, folder, str(rounds + 1))
    store = Line("store one rank's 64 MiB", "ms", [Bound("engram", "memcpy", "speed", 0.9)])
    load = Line("load one rank's 64 MiB", "ms", [Bound("engram", "memcpy", "show")])
    for line, ours, theirs in ((store, "store", "memcpy in"), (load, "load", "memcpy out")):
        line.samples = {
            "engram": [sample[ours] for sample in found],
            "memcpy": [sample[theirs] for sample in found],
        }
    engram.destroy(folder / "pool")
    return [store, load]


def modes(program: Path, folder: Path, ranks: int, rounds: int) -> list[Line]:
    """Store 64 MiB into a pool on a disk, durable once or piece by piece, and load it again."""
    size = 64 << 20
    with engram.create(folder / "pool", size=2 * size, durability="system", prefault=True) as pool:
        pool.create_array("A", shape=(size // 8,), dtype="f8")
    launched = (*MPIRUN, "-n", str(ranks))
    found = rows(*launched, program, folder / "pool", str(rounds + 1))
    engram.destroy(folder / "pool")
    made = []
    for operation, title in MODES.items():
        bound = Bound("once", "as written", "show")
        line = Line(f"{ranks} rank{'s' * (ranks > 1)}: {title}", "ms", [bound])
        line.samples = {
            mode: [sample[operation][mode] for sample in found] for mode in ("once", "as written")
        }
        made.append(line)
    return made


def main() -> int:
    """Measure; 1 if `--strict` and a bound was missed."""
    parser = argparse.ArgumentParser(prog="python -m bench.mpi", description=__doc__)
    parser.add_argument("--quick", action="store_true", help="a smaller rectangle, fewer rounds")
    parser.add_argument("--strict", action="store_true", help="exit with 1 if a bound is missed")
    parser.add_argument("--ranks", type=int, nargs="+", default=[1, 2, 4], help="how many (1 2 4)")
    parser.add_argument("--rounds", type=int, default=5, help="rounds of each (5)")
    parser.add_argument("--where", type=Path, default=MEMORY, help=f"where to write ({MEMORY})")
    parser.add_argument("--disk", type=Path, default=ROOT, help="a folder on a disk (this one)")
    parser.add_argument("--out", type=Path, default=RESULTS / "mpi.json", help="the results' file")
    chosen = parser.parse_args()
    console = Console(highlight=False, width=None if sys.stdout.isatty() else 150)
    start = time.monotonic()
    absent: dict[str, str] = {}
    lines: list[Line] = []
    side, rounds = (QUICK_SIDE, 2) if chosen.quick else (SIDE, chosen.rounds)
    with (
        tempfile.TemporaryDirectory(prefix="engram-bench-") as tools,
        tempfile.TemporaryDirectory(prefix="engram-bench-", dir=chosen.where) as folder,
    ):
        prefix = Path(tools) / "prefix"
        build.install(prefix)
        programs = {"engram": build.compiled("engram", Path(tools), prefix)}
        for name, title in PEERS.items():
            try:
                programs[name] = build.compiled(name, Path(tools), prefix)
            except build.CannotBuildError as reason:
                absent[title] = str(reason)
                console.print(f"{title} is left out: {reason}")
        lines += block(build.alone("block", Path(tools), prefix), Path(folder), 3 * rounds)
        program = build.alone("modes", Path(tools), prefix)
        with tempfile.TemporaryDirectory(prefix="engram-bench-", dir=chosen.disk) as disk:
            for ranks in chosen.ranks:
                lines += modes(program, Path(disk), ranks, rounds)
        for ranks in chosen.ranks:
            lines += kernel(programs, Path(folder), ranks, side, rounds)
            console.print(f"[dim]{time.monotonic() - start:5.0f} s[/]  {ranks} ranks")
    console.print(report.table(lines))
    held = report.contents(lines, quick=chosen.quick, absent=absent)
    held["libraries"] = build.versions()
    report.write(chosen.out, held)
    missed = sum(met is False for line in lines for _, _, met in line.judged())
    console.print(f"\n{missed} bounds missed; {time.monotonic() - start:.0f} s; {chosen.out}")
    return 1 if missed and chosen.strict else 0


if __name__ == "__main__":
    sys.exit(main())
