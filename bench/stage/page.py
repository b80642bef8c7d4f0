"""`python -m bench.stage.page [RESULTS]`: prints the tables of `docs/evaluation-stages.md`."""

from __future__ import annotations

import itertools
import json
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any

from bench.stage.__main__ import OUT

if TYPE_CHECKING:
    from collections.abc import Iterator

MIB = 1 << 20


def shown(value: float, unit: str) -> str:
    """Say a median."""
    if unit == "MiB":
        return f"{value / MIB:,.0f} MiB"
    return f"{value:.1%}" if unit == "%" else f"{value:,.2f} s"


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


def page(held: dict[str, Any]) -> Iterator[str]:
    """Give the lines of the tables."""
    machine = held["machine"]
    yield f"Commit {held['commit']}, {held['when'][:10]}, {machine['cores']} cores."
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
    path = Path(sys.argv[1]) if len(sys.argv) > 1 else OUT
    sys.stdout.writelines(line + "\n" for line in page(json.loads(path.read_text())))


if __name__ == "__main__":
    main()
