"""The evaluation's tables, and its picture: `python -m bench.mpi.pages RESULTS PICTURE`.

Reads the JSON that `python -m bench.mpi` wrote, and draws GB/s.
"""

from __future__ import annotations

import json
import re
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any

from matplotlib.figure import Figure

from bench.mpi.names import ADD_UP, EMULATED, MODES, NEW_POOL, PEERS
from bench.page import measured, page

if TYPE_CHECKING:
    from bench.marks import Blocks

COLOURS = {
    "engram": "#1f6f8b",
    EMULATED: "#66a9bf",
    NEW_POOL: "#b9d6e0",
    PEERS["adios2"]: "#d9822b",
    PEERS["netcdf"]: "#7a7a7a",
    PEERS["pnetcdf"]: "#a8a8a8",
    PEERS["hdf5"]: "#d3d3d3",
}
KERNEL = re.compile(r"(?P<ranks>\d) ranks?: (?P<operation>[a-z ]+) (?P<gib>[\d.]+) GiB")
MODE = re.compile(r"(?P<ranks>\d) ranks?: (?P<what>.+)")
TITLES = {"write": "Write", "read": "Read", "read otherwise": "Read otherwise", ADD_UP: "Add up"}

Found = dict[tuple[str, int], dict[str, Any]]


def kernels(lines: list[dict[str, Any]]) -> Found:
    """Return the kernel's lines by operation and number of ranks."""
    matches = [(KERNEL.match(line["title"]), line) for line in lines]
    return {(m["operation"], int(m["ranks"])): line | m.groupdict() for m, line in matches if m}


def table(found: Found, operation: str, ours: str = "engram") -> list[str]:
    """Return an operation's table: milliseconds, and how many times our speed."""
    ranks = sorted({ranks for name, ranks in found if name == operation})
    there = [who for who in COLOURS if who in found[operation, ranks[0]]["medians"]]
    if ours == NEW_POOL:
        # Like with like: each makes what it writes into.
        there = [NEW_POOL, *(who for who in PEERS.values() if who in there)]
    head = ["", *(f"{n} rank{'s' * (n > 1)}, ms" for n in ranks), *(f"x {n}" for n in ranks)]
    rows = [[*head, "asked"], ["---", *["---:"] * (2 * len(ranks) + 1)]]
    for who in there:
        medians = [found[operation, n]["medians"] for n in ranks]
        row = [who, *(f"{1e3 * each[who]:,.0f}" for each in medians)]
        bounds = [bound_of(found[operation, n], ours, who) for n in ranks]
        limit = next((bound["limit"] for bound in bounds if bound and bound["limit"]), None)
        ratios = [f"{bound['ratio']:.2g}" if bound else "" for bound in bounds]
        met = [ratio if limit is None else marked(ratio, limit) for ratio in ratios]
        rows.append([*row, *(str(each) for each in met), f"{limit:g}" if limit else ""])
    return ["| " + " | ".join(row) + " |" for row in rows]


def bound_of(line: dict[str, Any], ours: str, who: str) -> dict[str, Any] | None:
    """Return how the run judged one contestant beside another, if it did."""
    bounds: list[dict[str, Any]] = line["bounds"]
    return next((each for each in bounds if (each["ours"], each["peer"]) == (ours, who)), None)


def marked(ratio: str, limit: float) -> str:
    """Return a ratio, marked if it is less than was asked."""
    return ratio if ratio and float(ratio) >= limit else f"**{ratio}**"


def modes(lines: list[dict[str, Any]]) -> list[str]:
    """Return the table of pMEMCPY's modes, by ranks; nothing of a run that had none."""
    matches = [(MODE.match(line["title"]), line["medians"]) for line in lines]
    made = {(m["what"], int(m["ranks"])): medians for m, medians in matches if m}
    ranks = sorted({number for what, number in made if what in MODES.values()})
    head = ["", *(f"{n} rank{'s' * (n > 1)}, ms" for n in ranks)]
    rows = [head, ["---", *["---:"] * len(ranks)]]
    for what in MODES.values():
        for mode, name in (("once", "A: once"), ("as written", "B: piece by piece")):
            times = [f"{1e3 * made[what, n][mode]:,.1f}" for n in ranks]
            rows.append([f"{what}, {name}", *times])
    return ["| " + " | ".join(row) + " |" for row in rows] if ranks else []


def draw(found: Found, place: Path) -> None:
    """Draw GB/s of each contestant, by operation and ranks."""
    figure = Figure(figsize=(9, 5.6), layout="constrained")
    axes = figure.subplots(2, 2)
    for one, operation in zip(axes.flat, TITLES, strict=True):
        ranks = sorted({n for name, n in found if name == operation})
        if not ranks:
            continue
        size = float(found[operation, ranks[0]]["gib"]) * 2**30
        there = [who for who in COLOURS if who in found[operation, ranks[0]]["medians"]]
        width = 0.85 / len(there)
        for number, who in enumerate(there):
            at = [place + (number - (len(there) - 1) / 2) * width for place in range(len(ranks))]
            speeds = [size / found[operation, n]["medians"][who] / 1e9 for n in ranks]
            one.bar(at, speeds, width, label=who, color=COLOURS[who])
        one.set_xticks(range(len(ranks)), [f"{n} rank{'s' * (n > 1)}" for n in ranks])
        one.set_title(TITLES[operation], loc="left")
        one.set_ylabel("GB/s")
        one.spines[["top", "right"]].set_visible(False)
    handles = {
        text: handle
        for one in axes.flat
        for handle, text in zip(*one.get_legend_handles_labels(), strict=True)
    }
    figure.legend(
        [handles[who] for who in COLOURS if who in handles],
        [who for who in COLOURS if who in handles],
        loc="outside lower center",
        ncols=3,
        frameon=False,
    )
    figure.savefig(place, dpi=110)


def blocks(results: dict[str, Any]) -> Blocks:
    """Return what the page has from a file of results."""
    found = kernels(results["lines"])
    shown = ["### Write: a new pool beside new files", "", *table(found, "write", NEW_POOL)]
    for operation, title in TITLES.items():
        if any(name == operation for name, _ in found):
            shown += ["", f"### {title}", "", *table(found, operation)]
    others = [line for line in results["lines"] if not MODE.match(line["title"])]
    return {
        "measured": [measured(results)],
        "tables": shown,
        "one rank": list(page({**results, "lines": others}))[2:],
        "modes": modes(results["lines"]),
    }


def main() -> None:
    """Draw."""
    results = json.loads(Path(sys.argv[1]).read_text(encoding="utf-8"))
    draw(kernels(results["lines"]), Path(sys.argv[2]))


if __name__ == "__main__":
    main()
