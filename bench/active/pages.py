"""The evaluation's page and picture: `python -m bench.active.pages RESULTS PAGE PICTURE`.

Reads the JSON that `python -m bench.active` wrote, writes all tables between the two marks of the
page, and draws how long the applications take.
"""

from __future__ import annotations

import json
import re
import runpy
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any

from matplotlib.figure import Figure

from bench.active import beyond, emulated, table1
from bench.active.drivers import DRIVERS, VOLATILE
from bench.active.way import ALL
from bench.marks import filled

if TYPE_CHECKING:
    from collections.abc import Iterable

    from bench.marks import Blocks

COUNT = Path(__file__).parents[2] / "examples" / "active-comparison" / "count.py"
COLOURS = {
    "limit": "#333333",
    "engram": "#1f6f8b",
    "engram-worker": "#66a9bf",
    "engram-copy": "#b9d6e0",
    "redis": "#d9822b",
    "redis-pickle": "#eabf93",
    "dataclay": "#a8a8a8",
}
APPLICATION = re.compile(
    r"(?P<application>[\w -]+), (?P<size>small|big) objects, "
    r"(?P<result>[\w ]+) result: (?P<time>.+)"
)
SCALES = {"ms": 1e3, "us": 1e6}

Results = dict[str, Any]
Found = dict[tuple[str, str, str, str], Results]


def applications(lines: list[Results]) -> Found:
    """Return the applications' lines by application, time, size of objects and kind of result."""
    matches = [(APPLICATION.match(line["title"]), line) for line in lines]
    return {(m["application"], m["time"], m["size"], m["result"]): line for m, line in matches if m}


def rows_of(head: list[str], rows: Iterable[list[str]]) -> list[str]:
    """Return a table in Markdown; all but the first column are numbers."""
    cells = [head, ["---", *["---:"] * (len(head) - 1)], *rows]
    return ["| " + " | ".join(row) + " |" for row in cells]


def asked(results: Results) -> list[str]:
    """Return what was asked, and what was measured."""
    rows = []
    for line in results["lines"]:
        for bound in line["bounds"]:
            if bound["met"] is not None:
                limit, ratio = limit_and_ratio(bound)
                shown = ratio if bound["met"] else f"**{ratio}**"
                rows.append([line["title"], bound["ours"], bound["peer"], limit, shown])
    return rows_of(["what", "of", "against", "asked", "measured"], rows)


def limit_and_ratio(bound: Results) -> tuple[str, str]:
    """Return what a bound asks for and what was measured, in words."""
    if bound["kind"] == "value":
        return f"≤ {bound['limit'] * 1e6:g} µs", f"{bound['ratio'] * 1e6:.2f} µs"
    sign = "≥" if bound["kind"] == "speed" else "≤"
    what = "as fast" if bound["kind"] == "speed" else "the time"
    return f"{sign} {bound['limit']:g} x {what}", f"{bound['ratio']:.2f} x"


def milliseconds(lines: dict[str, Results]) -> list[str]:
    """Return the ways' medians, a column a line."""
    there = [
        way for way in names(lines.values()) if any(way in x["medians"] for x in lines.values())
    ]
    rows = [[way, *(cell(line["medians"].get(way)) for line in lines.values())] for way in there]
    return rows_of(["ms", *lines], rows)


def names(lines: Iterable[Results]) -> list[str]:
    """Return all contestants, the ways in their order, each with what is like it."""
    found = dict.fromkeys(name for line in lines for name in line["medians"])
    order = list(ALL)
    place = {name: order.index(name.split(",")[0]) for name in found}
    return sorted(found, key=lambda name: (not name.startswith("limit"), place[name]))


def cell(seconds: float | None) -> str:
    """Return milliseconds, with as many digits as say something."""
    if seconds is None:
        return ""
    shown = seconds * 1e3
    return f"{shown:,.0f}" if shown >= 100 else f"{shown:.3g}"  # noqa: PLR2004 - three digits


def tables(results: Results) -> list[str]:
    """Return all of the page's tables."""
    found = applications(results["lines"])
    page = ["### Asked and measured", "", *asked(results), ""]
    for application in dict.fromkeys(key[0] for key in found):
        page += [f"### {application[0].upper()}{application[1:]}", ""]
        for time in dict.fromkeys(key[1] for key in found):
            columns = {
                f"{k[2]}, {k[3]}": v for k, v in found.items() if k[:2] == (application, time)
            }
            page += [f"The {time}:", "", *milliseconds(columns), ""]
    others: dict[str, dict[str, Results]] = {}
    for line in results["lines"]:
        title, colon, column = line["title"].rpartition(": ")
        if not APPLICATION.match(line["title"]) and "beside" not in line["title"]:
            # Under one head what has columns; what is alone is a column of the last table.
            others.setdefault(title if colon else "Small things", {})[column] = line
    page += characters(results)
    for title, columns in others.items():
        note = noted(title, results)
        page += [f"### {title[0].upper()}{title[1:]}", "", *note, *milliseconds(columns), ""]
    page += [f"Left out is {name}: {why}.\n" for name, why in results["absent"].items()]
    counts = runpy.run_path(str(COUNT))["counts"]()
    lines = [[name.removeprefix("with_"), *map(str, both)] for name, both in counts.items()]
    page += ["### Lines that make a program persistent", ""]
    page += [*rows_of(["", "lines", "tokens"], lines), ""]
    versions = results["packages"] | results["libraries"]
    machine = results["machine"]
    said = ", ".join(f"{name} {version}" for name, version in versions.items())
    where = f"{machine['processor']}, {machine['cores']} cores, Linux {machine['kernel']}"
    rounds = f"{results['rounds']} rounds, {results['seconds']} s, {results['most_mib']} MiB"
    parts = results.get("parts", {}).items()
    apart = [f"{part} {when}" for part, when in parts if not when.startswith(results["when"])]
    later = f" Measured apart: {', '.join(apart)}." if apart else ""
    commit = f"Commit {results['commit']}: {rounds}."
    return [*page, f"{where}, Python {machine['python']}; {said}. {commit}{later}"]


def characters(results: Results) -> list[str]:
    """Return the table of what the applications are like, if they were looked at."""
    if "table1" not in results:
        return []
    title = f"### {table1.NAME[0].upper()}{table1.NAME[1:]}"
    return [title, "", table1.NOTE, "", *rows_of(*table1.cells(results["table1"])), ""]


def noted(title: str, results: Results) -> list[str]:
    """Return what is to be said above a table."""
    if title.startswith(emulated.NAME):
        return [emulated.NOTE, ""]
    if title == beyond.NAME:
        return [beyond.NOTE.format(**results["beyond"]), ""]
    return []


def draw(found: Found, place: Path) -> None:
    """Draw how long each application takes as a whole, with volatile results."""
    figure = Figure(figsize=(9, 5.6), layout="constrained")
    axes = figure.subplots(2, 2)
    for one, application in zip(axes.flat, [driver.__name__ for driver in DRIVERS], strict=True):
        one.set_title(application, loc="left")
    kinds = list(dict.fromkeys(key[0] for key in found))
    for one, application in zip(axes.flat, kinds, strict=False):
        sizes = [k[2] for k in found if k[:2] == (application, "application") and k[3] == VOLATILE]
        lines = [found[application, "application", size, VOLATILE] for size in sizes]
        there = [way for way in COLOURS if way in lines[0]["medians"]]
        width = 0.85 / len(there)
        for number, way in enumerate(there):
            at = [place + (number - (len(there) - 1) / 2) * width for place in range(len(sizes))]
            times = [line["medians"][way] * 1e3 for line in lines]
            one.bar(at, times, width, label=way, color=COLOURS[way])
        one.set_xticks(range(len(sizes)), [f"{size} objects" for size in sizes])
        one.set_title(application[0].upper() + application[1:], loc="left")
        one.set_ylabel("ms")
        one.spines[["top", "right"]].set_visible(False)
    handles, labels = axes.flat[0].get_legend_handles_labels()
    figure.legend(handles, labels, loc="outside lower center", ncols=4, frameon=False)
    figure.savefig(place, dpi=110)


def blocks(results: Results) -> Blocks:
    """Return what the page has from a file of results."""
    return {"tables": tables(results)}


def main() -> None:
    """Write the tables into the page, and draw."""
    results_place, page_place, picture = map(Path, sys.argv[1:4])
    results = json.loads(results_place.read_text(encoding="utf-8"))
    page = page_place.read_text(encoding="utf-8")
    page_place.write_text(filled(page, blocks(results)), encoding="utf-8")
    draw(applications(results["lines"]), picture)


if __name__ == "__main__":
    main()
