"""`python -m bench.active`: applications on stored objects, whichever way they are reached.

The ways: `limit` is numpy on private arrays; `engram` calls methods in this process, where they see
the arrays that are stored; `engram-worker` calls them in another process that has the pool open;
`engram-copy` gets a copy of each object from the same store, and computes here; `redis` gets bytes
from a server, as quickly as it can be done, `redis-pickle` as programs do as a rule; `dataclay`
calls methods in its backend. They take turns within each round; times are medians of rounds, ratios
are medians of the rounds' own; the first round warms up. All ways have found the same, or the run
fails. Parts with ways of their own: `emulated` (a pool that emulates persistent memory), `beyond`
(data of twice the memory, on a disk, in a cgroup), and `table1` (what the applications are like).
`--add` keeps what the file of results has of other parts.
"""

from __future__ import annotations

import argparse
import gc
import json
import os
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import TYPE_CHECKING, Any

from rich.console import Console

from bench import report
from bench.active import applications, beyond, emulated, small, table1, words
from bench.active.limited import RefusedError
from bench.active.way import WAYS, Fleet

if TYPE_CHECKING:
    from collections.abc import Callable

    from bench.harness import Line

ROOT = Path(__file__).parents[2]
RESULTS = ROOT / "bench" / "results"
MEMORY = Path("/dev/shm")  # noqa: S108 - the kernel's shared memory is what is meant
PARTS = ("applications", "table1", "emulated", "beyond", "words", "small")
WHOLE = "words-whole"
"""A part that has to be asked for: it takes long, and much memory."""


def arguments() -> argparse.Namespace:
    """Return what was chosen."""
    parser = argparse.ArgumentParser(prog="python -m bench.active", description=__doc__)
    parser.add_argument("--quick", action="store_true", help="small blocks, one round, for a look")
    parser.add_argument("--strict", action="store_true", help="exit with 1 if a bound is missed")
    parser.add_argument("--rounds", type=int, default=5, help="rounds of each (5)")
    parser.add_argument(
        "--ways",
        type=lambda text: text.split(","),
        default=list(WAYS),
        help=f"which, with commas between ({','.join(WAYS)})",
    )
    parser.add_argument("--only", choices=(*PARTS, WHOLE), action="append", help="a part alone")
    parser.add_argument("--add", action="store_true", help="keep other parts' results in --out")
    parser.add_argument("--where", type=Path, default=MEMORY, help=f"where pools are ({MEMORY})")
    parser.add_argument(
        "--disk", type=Path, default=Path(tempfile.gettempdir()), help="a folder on ext4 or xfs"
    )
    parser.add_argument("--out", type=Path, default=RESULTS / "active.json", help="the results")
    chosen = parser.parse_args()
    if unknown := set(chosen.ways) - set(WAYS):
        parser.error(f"no such ways: {', '.join(sorted(unknown))}")
    return chosen


def measured(
    chosen: argparse.Namespace, fleet: Fleet, tell: Callable[[str], None]
) -> tuple[list[Line], dict[str, Any]]:
    """Measure all parts that were chosen: the lines, and what else the JSON file is to hold."""
    parts = chosen.only or PARTS
    more: dict[str, Any] = {}
    rounds = 1 if chosen.quick else chosen.rounds
    few = max(rounds // 2, 1)
    found: list[Line] = []
    if "applications" in parts:
        found += applications.lines(fleet, rounds, quick=chosen.quick, tell=tell)
    own = {"quick": chosen.quick, "tell": tell}
    if not chosen.quick:  # what is open has memory
        fleet.close()
    if "table1" in parts:
        more["table1"] = table1.rows(fleet.folder, few, **own)
    if "emulated" in parts:
        found += emulated.lines(fleet.folder, few, **own)
    if "beyond" in parts:
        try:
            lines, more["beyond"] = beyond.lines(chosen.disk, few, **own)
            found += lines
        except RefusedError as refusal:
            fleet.absent[beyond.NAME] = str(refusal)
            tell(f"{beyond.NAME} is left out: {refusal}")
    if "words" in parts:
        found += words.lines(fleet, fleet.folder, few, quick=chosen.quick, tell=tell)
    if WHOLE in parts:
        found += words.whole(chosen.disk, fleet.folder, tell)
    if "small" in parts:
        found += small.lines(fleet, rounds, quick=chosen.quick, tell=tell)
    return found, more


def added(before: dict[str, Any], held: dict[str, Any]) -> dict[str, Any]:
    """Put what was measured into earlier results, in place of lines of the same titles."""
    titles = {line["title"] for line in held["lines"]}
    kept = [line for line in before["lines"] if line["title"] not in titles]
    own: dict[str, Any] = {name: held[name] for name in ("table1", "beyond") if name in held}
    own["lines"] = kept + held["lines"]
    own["parts"] = before["parts"] | held["parts"]
    own["most_mib"] = max(before["most_mib"], held["most_mib"])
    own["seconds"] = before["seconds"] + held["seconds"]
    return before | own


def libraries() -> dict[str, str]:
    """Return the versions of what no package tells."""
    program = shutil.which("redis-server")
    if program is None:
        return {}
    said = subprocess.run([program, "--version"], stdout=subprocess.PIPE, text=True, check=True)
    words_said = dict(word.split("=", 1) for word in said.stdout.split() if "=" in word)
    return {"redis-server": words_said.get("v", said.stdout.strip())}


def memory_mib() -> float:
    """Return the memory that this process and its children have now, shared memory once."""
    children = Path(f"/proc/self/task/{os.getpid()}/children").read_text(encoding="utf-8").split()
    found = 0
    for process in ("self", *children):
        try:
            lines = Path(f"/proc/{process}/smaps_rollup").read_text(encoding="utf-8").splitlines()
        except OSError:  # it has ended
            continue
        found += sum(int(line.split()[1]) for line in lines if line.startswith("Pss:"))
    return found / 1024


def main() -> int:
    """Measure; 1 if `--strict` and a bound was missed."""
    chosen = arguments()
    console = Console(highlight=False, width=None if sys.stdout.isatty() else 150)
    start = time.monotonic()
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(1))  # and servers are ended before

    if chosen.quick:  # each run collects before its time begins: not what has been imported
        gc.freeze()
    most_mib = [0.0]

    def tell(text: str) -> None:
        most_mib.append(memory_mib())
        console.print(f"[dim]{time.monotonic() - start:5.0f} s[/]  {text}")

    with tempfile.TemporaryDirectory(prefix="engram-bench-", dir=chosen.where) as folder:
        fleet = Fleet(chosen.ways, Path(folder), tell, once=chosen.quick)
        try:
            lines, more = measured(chosen, fleet, tell)
        finally:
            fleet.close()
    console.print(report.table(lines))
    held: dict[str, Any] = report.contents(lines, quick=chosen.quick, absent=fleet.absent)
    held |= more
    measured_at = f"{held['when']} (commit {held['commit']})"
    held["parts"] = dict.fromkeys(chosen.only or PARTS, measured_at)
    held["libraries"] = libraries()
    held["rounds"] = 1 if chosen.quick else chosen.rounds
    held["words_scale"] = words.SCALE
    held["most_mib"] = round(max(most_mib))
    held["seconds"] = round(time.monotonic() - start)
    if chosen.add:
        held = added(json.loads(chosen.out.read_text("utf-8")), held)
    report.write(chosen.out, held)
    missed = sum(met is False for line in lines for _, _, met in line.judged())
    console.print(f"\n{missed} bounds missed; {time.monotonic() - start:.0f} s; {chosen.out}")
    return 1 if missed and chosen.strict else 0


if __name__ == "__main__":
    sys.exit(main())
