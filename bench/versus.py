"""`make versus OLD=<tree>`: the lines of `make bench` on two trees of Engram, round by round.

A change of a few per cent is not seen between two runs of a shared machine. So both trees are
measured in one run: a process for each imports its own `engram` and its own `bench`, and only one
of them works at a time. Each stops before a round, and goes on when the other has done the one
before; which goes first changes with each round. Peers are left out, but for parts that need what
they write: they are shown there, and decide nothing. Where the Rust program does
all rounds of a line in one run, it is run for each round. A part that has no rounds of its own is
measured whole, as often.

`OLD` is a checkout in which `make .venv/bin/.built .venv/bin/.peers` has run. A ratio is the old
time over the new one: below 1, the new tree is slower.
"""

from __future__ import annotations

import argparse
import importlib
import json
import subprocess
import sys
import tempfile
from collections import defaultdict
from pathlib import Path
from statistics import median
from typing import TYPE_CHECKING, Any, TypeAlias

if TYPE_CHECKING:
    from collections.abc import Callable

Answer: TypeAlias = dict[str, dict[str, list[float]]]
"""What a run of the Rust program prints: samples by line and contestant."""

HERE = Path(__file__).resolve().parent.parent
ROUNDS = 5
LEAST = 0.95
WHOLE = (
    *("rust", "growth", "policies", "index-bytes", "index-time", "search-space", "million"),
    "serialization",
)
"""Parts that do not measure by rounds: they are run so often."""
PEERS = ("memcpy", "private array", "h5py", "MIQS+", "SQLite", "DuckDB", "zarr", "peak of")
"""Contestants whose names begin so are left out, where a part has more than those of `Setting`."""
WITH_PEERS = ("kernels", "chunks")
"""Parts that look at what each contestant has written: peers are measured there, too."""


def child(tree: Path, parts: list[str], folder: Path, *, quick: bool) -> None:
    """Measure in this process, one step for each line that comes on the standard input."""
    sys.path[0] = str(tree)
    told, sys.stdout = sys.stdout, sys.stderr
    harness: Any = importlib.import_module("bench.harness")
    setting_module: Any = importlib.import_module("bench.setting")
    setting_module.PEERS.clear()

    def pause() -> None:
        told.write("\n")
        told.flush()
        if not sys.stdin.readline():
            raise SystemExit("the other tree is gone")

    part = ""

    def measure(line: Any, contestants: list[Any], rounds: int) -> Any:
        del rounds
        left_out = () if part in WITH_PEERS else PEERS
        mine = [each for each in contestants if not each.name.startswith(left_out)]
        for turn in range(ROUNDS + 1):
            pause()
            for contestant in mine:
                taken_s = contestant.run()
                if turn > 0:
                    line.samples.setdefault(contestant.name, []).append(taken_s)
        return line

    harness.measure = measure
    lines = importlib.import_module("bench.__main__").LINES
    rust: Any = importlib.import_module("bench.own.rust")
    stage: Any = importlib.import_module("bench.evaluation.setup").Stage
    rust.build()
    at_once, in_turn = (stage.ask, rust.repeated), run_by_turns(stage.ask, rust.run, pause)
    setting = setting_module.Setting(folder, quick, lambda _: None)
    for part in parts:
        stage.ask, rust.repeated = at_once if part in WHOLE else in_turn
        for _ in range(ROUNDS if part in WHOLE else 1):
            pause()
            for line in lines[part](setting):
                report = {"title": line.title, "unit": line.unit, "samples": line.samples}
                told.write(json.dumps(report) + "\n")
    told.write("end\n")
    told.flush()


def run_by_turns(
    ask: Callable[..., Answer], run: Callable[..., Answer], pause: Callable[[], None]
) -> tuple[Callable[..., Answer], Callable[..., Answer]]:
    """Give what stands for `Stage.ask` and `rust.repeated`: a run of the program for each round."""

    def together(work: Callable[[], Answer]) -> Answer:
        whole: Answer = {}
        for _ in range(ROUNDS):
            pause()
            for part, samples in work().items():
                for name, more in samples.items():
                    whole.setdefault(part, {}).setdefault(name, []).extend(more)
        return whole

    def asked(stage: Any, rounds: int, *names: str) -> Answer:
        del rounds
        mine = [name for name in names if not name.startswith(PEERS)]
        return together(lambda: ask(stage, 1, *mine))

    def repeated(*arguments: object) -> Answer:
        return together(lambda: run(*arguments))

    return asked, repeated


class Side:
    """A tree, and the process that measures it.

    Invariant: a round runs within `__init__` and `step` alone, so that two rounds never meet. What
    a pool does in the background may go on beyond its round.
    """

    def __init__(self, tree: Path, parts: list[str], folder: Path, *, quick: bool) -> None:
        """Start the process, and wait until it stops before its first round."""
        self.tree = tree
        python = tree / ".venv" / "bin" / "python"
        words = [str(python), __file__, "--child", str(tree), "--folder", str(folder)]
        words += [word for part in parts for word in ("--only", part)]
        words += ["--quick"] if quick else []
        self.process = subprocess.Popen(  # noqa: S603
            words, cwd=tree, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
        )
        self.samples: dict[tuple[str, str], list[float]] = defaultdict(list)
        self.ended = False
        self.wait()

    def step(self) -> None:
        """Let it work until it stops again."""
        assert self.process.stdin is not None  # noqa: S101 - it is a pipe
        if self.ended:
            return
        self.process.stdin.write("\n")
        self.process.stdin.flush()
        self.wait()

    def wait(self) -> None:
        """Take what it reports, until it stops."""
        assert self.process.stdout is not None  # noqa: S101 - it is a pipe
        while (line := self.process.stdout.readline()) not in {"\n", "end\n"}:
            if not line:
                raise SystemExit(f"the run in {self.tree} ended with {self.process.wait()}")
            report = json.loads(line)
            sys.stderr.write(f"    {self.tree.name}: {report['title']}\n")
            for name, samples in report["samples"].items():
                self.samples[report["title"], name].extend(samples)
        if line == "end\n":
            self.ended = True
            self.process.communicate()


def main() -> int:
    """Measure both trees, print the ratios and keep them; 1 if one is below the least."""
    parser = argparse.ArgumentParser(prog="python -m bench.versus", description=__doc__)
    parser.add_argument("old", type=Path, nargs="?", help="the other checkout, built")
    parser.add_argument("--only", action="append", default=[], help="one part; repeatable")
    parser.add_argument("--quick", action="store_true", help="a tenth of the objects")
    parser.add_argument("--out", type=Path, default=HERE / "bench" / "results" / "versus.json")
    parser.add_argument("--child", type=Path, help=argparse.SUPPRESS)
    parser.add_argument("--folder", type=Path, help=argparse.SUPPRESS)
    chosen = parser.parse_args()
    if chosen.child is not None:
        child(chosen.child, chosen.only, chosen.folder, quick=chosen.quick)
        return 0
    lines = importlib.import_module("bench.__main__").LINES
    if unknown := set(chosen.only) - set(lines):
        parser.error(f"{sorted(unknown)} are no parts: there are {', '.join(lines)}")
    if chosen.old is None:
        parser.error("name the other checkout: make versus OLD=<folder>")
    if not (chosen.old / ".venv" / "bin" / ".built").exists():
        parser.error(
            f"{chosen.old} is no built checkout: run `make .venv/bin/.built .venv/bin/.peers` there"
        )
    parts = chosen.only or list(lines)
    memory = Path("/dev/shm")  # noqa: S108 - the kernel's shared memory is what is meant
    with tempfile.TemporaryDirectory(prefix="engram-versus-", dir=memory) as folder:
        trees = (chosen.old.resolve(), HERE)
        sides = []
        for name, tree in zip(("old", "new"), trees, strict=True):
            Path(folder, name).mkdir()
            sides.append(Side(tree, parts, Path(folder, name), quick=chosen.quick))
        by_turns(sides)
    ended = compared(sides[0].samples, sides[1].samples, chosen.out, trees)
    sys.stdout.write(f"Kept in {chosen.out}\n")
    return ended


def by_turns(sides: list[Side]) -> int:
    """Have each side work, round by round; give how many rounds there were.

    The side that worked last goes first in the next round: a machine is not the same before and
    after a side has filled its memory.
    """
    rounds = 0
    while not all(side.ended for side in sides):
        for side in sides if rounds % 2 == 0 else reversed(sides):
            side.step()
        rounds += 1
    return rounds


def compared(
    old: dict[tuple[str, str], list[float]],
    new: dict[tuple[str, str], list[float]],
    out: Path,
    trees: tuple[Path, ...],
) -> int:
    """Print each line's ratio, the median of the rounds' own, and write them as JSON."""
    report = importlib.import_module("bench.report")
    rows: list[dict[str, Any]] = []
    for (title, name), before in old.items():
        after = new.get((title, name), [])
        if not after or not all(after):
            continue
        ratio = median(b / a for b, a in zip(before, after, strict=False))
        rows.append({"line": title, "what": name, "old": before, "new": after, "ratio": ratio})
    rows.sort(key=lambda row: row["ratio"])
    for row in rows:
        mark = "  <" if is_worse(row) else ""
        sys.stdout.write(f"{row['ratio']:6.2f}  {row['line']}: {row['what']}{mark}\n")
    commits = [report.commit(tree) for tree in trees]
    machine = report.machine()
    report.write(out, {"commits": commits, "machine": machine, "rounds": ROUNDS, "rows": rows})
    return int(any(is_worse(row) for row in rows))


def is_worse(row: dict[str, Any]) -> bool:
    """Whether a line of ours is slower than it may be: peers, and bytes taken, are only shown."""
    ours = not row["what"].startswith(PEERS) and not row["line"].startswith("memory taken")
    return ours and row["ratio"] < LEAST


if __name__ == "__main__":
    sys.exit(main())
