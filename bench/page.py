"""`python -m bench.page RESULTS`: prints the tables of a page of the evaluation."""

from __future__ import annotations

import itertools
import json
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Iterator

    from bench.marks import Blocks

MIB = 1 << 20


def shown(value: float, unit: str) -> str:
    """Say a median."""
    match unit:
        case "MiB":
            return f"{value / MIB:,.0f} MiB"
        case "%":
            return f"{value:.1%}"
        case "s" if value >= 1:
            return f"{value:,.2f} s"
        case "s" if value >= 1e-3:  # noqa: PLR2004 - a millisecond
            return f"{value * 1e3:.3g} ms"
        case "s":
            return f"{value * 1e6:.3g} µs"
    return f"{value:.3g} {unit}".rstrip()


def asked(bound: dict[str, Any], unit: str) -> str:
    """Say what a ratio or value was to be."""
    match bound["kind"]:
        case "speed":
            return f"≥ {bound['limit']:g} x as fast"
        case "time":
            return f"≤ {bound['limit']:g} x the time"
        case "value":
            return f"≤ {shown(bound['limit'], unit)}"
        case _:
            return ""


def rows(line: dict[str, Any]) -> list[list[str]]:
    """Give a row for each contestant, with what was asked of it against another."""
    found = []
    for name, median in line["medians"].items():
        bounds = [bound for bound in line["bounds"] if bound["ours"] == name] or [None]
        for bound in bounds:
            cells = [line["title"], name, shown(median, line["unit"]), "", "", ""]
            if bound is not None:
                against = f"{bound['ratio']:.2f} x {bound['peer']}" if bound["peer"] else ""
                met = {True: "met", False: "**missed**", None: ""}[bound["met"]]
                cells[3:] = [against, asked(bound, line["unit"]), met]
            found.append(cells)
    # What is said once need not be said in each row.
    for before, row in reversed(list(itertools.pairwise(found))):
        row[:1] = [""]
        if before[1] == row[1]:
            row[1:3] = ["", ""]
    return found


def measured(held: dict[str, Any]) -> str:
    """Say what was measured, when and where."""
    machine = held["machine"]
    commit = f"Commit {held['commit']}" if "commit" in held else "A commit that was not noted"
    return f"{commit}, {held['when'][:10]}, {machine['processor']}, {machine['cores']} cores."


def blocks(held: dict[str, Any]) -> Blocks:
    """Return what a page has from a file of results: one table."""
    return {"tables": [*page(held)]}


def page(held: dict[str, Any]) -> Iterator[str]:
    """Give the lines of the tables."""
    yield measured(held)
    yield ""
    yield "| Work | By | Median | Against | Asked | |"
    yield "| --- | --- | ---: | ---: | --- | --- |"
    for line in held["lines"]:
        for cells in rows(line):
            yield "| " + " | ".join(cells) + " |"
    for line in held["lines"]:
        for remark in line.get("remarks", ()):
            yield ""
            yield f"{line['title']}: {remark}."


def main() -> None:
    """Print the page's tables."""
    if len(sys.argv) != 2:  # noqa: PLR2004 - the program and its argument
        raise SystemExit(f"{__doc__} Give a JSON file of bench/results.")
    held = json.loads(Path(sys.argv[1]).read_text(encoding="utf-8"))
    sys.stdout.writelines(line + "\n" for line in page(held))


if __name__ == "__main__":
    main()
