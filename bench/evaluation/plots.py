"""The evaluation's plots, from what was measured: `make evaluate` runs it.

    python -m bench.evaluation.plots RESULTS.json FOLDER

reads the JSON file that `python -m bench` wrote and draws into a folder.
"""

from __future__ import annotations

import json
import re
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any

from matplotlib.figure import Figure

if TYPE_CHECKING:
    from collections.abc import Iterator

    from matplotlib.axes import Axes

COLOURS = {
    "engram": "#1f6f8b",
    "MIQS+": "#d9822b",
    "MIQS+ on HDF5": "#d9822b",
    "MIQS+ with presence": "#edc08d",
    "SQLite": "#7a7a7a",
    "brute force": "#c9c9c9",
    "sync": "#1f6f8b",
    "async": "#66a9bf",
    "none": "#b9d6e0",
    "stored": "#c9c9c9",
}
QUESTIONS = ("Q1", "Q2", "Q3", "Q4", "Q5", "seven attributes")
ASKED = ("engram", "MIQS+", "MIQS+ with presence", "SQLite", "brute force")
MODES = ("none", "async", "sync")
DPI = 120

Lines = list[dict[str, Any]]


def main() -> None:
    """Draw what there are figures for."""
    source, folder = Path(sys.argv[1]), Path(sys.argv[2])
    lines: Lines = json.loads(source.read_text(encoding="utf-8"))["lines"]
    folder.mkdir(parents=True, exist_ok=True)
    for name, draw in DRAWINGS.items():
        figure = Figure(figsize=(7.5, 3.6), layout="constrained")
        if draw(figure.subplots(), lines):
            figure.savefig(folder / f"evaluation-{name}.png", dpi=DPI)
            print(folder / f"evaluation-{name}.png")  # noqa: T201 - the answer


def titled(lines: Lines, pattern: str) -> Iterator[tuple[re.Match[str], dict[str, float]]]:
    """Give the lines whose title matches, with their medians."""
    for line in lines:
        if found := re.match(pattern, line["title"]):
            yield found, line["medians"]


def queries(axes: Axes, lines: Lines) -> bool:
    """Draw queries per second, by question and contestant."""
    found = {m[1]: medians for m, medians in titled(lines, r"(.+?) of [\d,]+ objects, Rust")}
    there = [name for name in QUESTIONS if name in found]
    bars(axes, there, {who: [1 / found[q][who] for q in there] for who in ASKED if there})
    axes.set_yscale("log")
    axes.set_ylabel("queries per second")
    axes.set_title("Queries per second, one thread")
    return bool(there)


def end_to_end(axes: Axes, lines: Lines) -> bool:
    """Draw the time to ask, open and read every hit."""
    found = {m[1]: medians for m, medians in titled(lines, r"(.+?) end to end")}
    there = [name for name in QUESTIONS if name in found]
    sides = ("engram", "MIQS+ on HDF5")
    bars(axes, there, {who: [1e3 * found[q][who] for q in there] for who in sides if there})
    axes.set_yscale("log")
    axes.set_ylabel("ms")
    axes.set_title("Ask, open and add up every hit, from Python")
    return bool(there)


def index_bytes(axes: Axes, lines: Lines) -> bool:
    """Draw bytes of the index for an object, by attributes in a group."""
    found = {m[1]: medians for m, medians in titled(lines, r"bytes of the index .*?(\d+) attrib")}
    sides = ("engram", "MIQS+", "SQLite")
    bars(axes, list(found), {who: [each[who] for each in found.values()] for who in sides})
    axes.set_xlabel("attributes in a group")
    axes.set_ylabel("bytes for an object")
    axes.set_title("The index of an object with 37 attributes")
    return bool(found)


def index_time(axes: Axes, lines: Lines) -> bool:
    """Draw the time to index an object, by its attributes."""
    found = {int(m[1]): medians for m, medians in titled(lines, r"index an object of (\d+)")}
    for who in ("engram", "engram, store and index", "MIQS+", "SQLite"):
        seconds = [1e6 * medians[who] for medians in found.values()]
        colour = COLOURS.get(who, COLOURS["async"])
        axes.plot(list(found), seconds, marker="o", label=who, color=colour)
    axes.set_ylim(bottom=0)
    axes.set_xlabel("attributes of an object")
    axes.set_ylabel("us for an object")
    axes.set_title("Time to index, batches of 1000 (Engram: persistent)")
    axes.legend(frameon=False)
    return bool(found)


def search_space(axes: Axes, lines: Lines) -> bool:
    """Draw what a search looks through beside what is stored."""
    for match, medians in titled(lines, r"index beside storage, ([\d,]+) objects"):
        names = ["stored", "MIQS+", "engram"]
        sizes = [medians[name] / 2**20 for name in names]
        drawn = axes.barh(names, sizes, color=[COLOURS[name] for name in names])
        axes.bar_label(drawn, fmt=" %.0f MiB")
        axes.margins(x=0.15)
        axes.set_title(f"Search space: {match[1]} objects of 16 attributes and 256 bytes")
        return True
    return False


def steps(axes: Axes, lines: Lines) -> bool:
    """Draw the time to store an object without the index, with its queue and with itself."""
    found = {m[1]: medians for m, medians in titled(lines, r"steps of an object of (\d+)")}
    bars(axes, list(found), {mode: [1e6 * each[mode] for each in found.values()] for mode in MODES})
    axes.set_xlabel("attributes of an object")
    axes.set_ylabel("us for an object")
    axes.set_title("Storing an object, by when it is indexed")
    return bool(found)


def load_factor(axes: Axes, lines: Lines) -> bool:
    """Draw what is stored and what a query reads, beside MIQS+, by attributes in a group."""
    pattern = r"(stored|read): (\d+) attributes in a group(?:, (\d) asked for)?"
    found: dict[str, dict[int, float]] = {}
    for match, medians in titled(lines, pattern):
        name = f"read for {match[3]} attribute{'s' * (match[3] != '1')}" if match[3] else "stored"
        share = 100 * medians["engram"] / medians["MIQS+"]
        found.setdefault(name, {})[int(match[2])] = share
    for name, shares in found.items():
        axes.plot(list(shares), list(shares.values()), marker="o", label=name)
    axes.set_xscale("log", base=2)
    axes.set_xticks(list(found.get("stored", {})), list(map(str, found.get("stored", {}))))
    axes.set_ylim(bottom=0)
    axes.set_xlabel("attributes in a group")
    axes.set_ylabel("% of MIQS+")
    axes.set_title("Engram's index and what queries read of it")
    axes.legend(frameon=False)
    return bool(found)


def bars(axes: Axes, places: list[str], sides: dict[str, list[float]]) -> None:
    """Draw bars side by side at each place."""
    width = 0.8 / max(len(sides), 1)
    for number, (who, heights) in enumerate(sides.items()):
        at = [place + (number - (len(sides) - 1) / 2) * width for place in range(len(places))]
        axes.bar(at, heights, width, label=who, color=COLOURS[who])
    axes.set_xticks(range(len(places)), places)
    axes.spines[["top", "right"]].set_visible(False)
    axes.legend(frameon=False, ncols=len(sides), loc="upper center", bbox_to_anchor=(0.5, -0.15))


DRAWINGS = {
    "queries": queries,
    "end-to-end": end_to_end,
    "index-bytes": index_bytes,
    "index-time": index_time,
    "index-steps": steps,
    "search-space": search_space,
    "load-factor": load_factor,
}


if __name__ == "__main__":
    main()
