"""The page and its picture: `python -m bench.databases.pages RESULTS PAGE PICTURE`.

Reads the JSON that `python -m bench.databases` wrote, writes all tables between the two marks of
the page, and draws how long each question takes.
"""

from __future__ import annotations

import json
import re
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any

from matplotlib.figure import Figure

from bench.marks import filled

if TYPE_CHECKING:
    from collections.abc import Iterable

    from bench.marks import Blocks

COLOURS = {
    "engram": "#1f6f8b",
    "engram, two threads": "#66a9bf",
    "DuckDB": "#d9822b",
    "DuckDB, two threads": "#edc08d",
    "SQLite": "#7a7a7a",
    "brute force": "#c9c9c9",
}
QUESTION = re.compile(r"(?P<name>.+), (?P<count>[\d,]+) objects \((?P<hits>[\d,]+ \w+)\)")
WRITING = re.compile(r"(?P<name>.+) while two write, (?P<count>[\d,]+) objects(?P<what>.*)")
AGAINST = re.compile(r"(?P<name>.+): (?P<many>[\d,]+) objects against (?P<few>[\d,]+), (?P<how>.+)")
BYTES = re.compile(r"bytes of the index for an object, (?P<count>[\d,]+) objects")
QUICK = (
    "These figures are of a quick run, with few objects and few rounds. They show that all answer "
    "alike, and decide nothing else."
)
STEPS = (("s", 1.0), ("ms", 1e-3), ("µs", 1e-6))

Results = dict[str, Any]


def table(head: list[str], rows: Iterable[list[str]]) -> list[str]:
    """Return a table in Markdown; all but the first column are numbers."""
    cells = [head, ["---", *["---:"] * (len(head) - 1)], *rows]
    return ["| " + " | ".join(row) + " |" for row in cells]


def amount(seconds: float | None) -> str:
    """Return a time, with three digits."""
    if seconds is None:
        return "absent"
    unit, step = next((each for each in STEPS if seconds >= each[1]), STEPS[-1])
    return f"{seconds / step:.3g} {unit}"


def capital(text: str) -> str:
    """Return text that begins with a capital letter."""
    return text[:1].upper() + text[1:]


def questions(lines: list[Results]) -> dict[str, list[tuple[re.Match[str], Results]]]:
    """Return the lines of questions, by the number of objects."""
    found: dict[str, list[tuple[re.Match[str], Results]]] = {}
    for line in lines:
        if match := QUESTION.fullmatch(line["title"]):
            found.setdefault(match["count"], []).append((match, line))
    return found


def verdicts(line: Results) -> str:
    """Return what was asked for and missed, or that all was met."""
    judged = [bound for bound in line["bounds"] if bound["met"] is not None]
    missed = [bound for bound in judged if not bound["met"]]
    said = [f"**{limit(bound)}: {times_of(bound['ratio'])} x**" for bound in missed]
    return "; ".join(said) or ("met" if judged else "")


def times_of(ratio: float) -> str:
    """Return a ratio, with two digits or all before the point."""
    return f"{ratio:,.0f}" if ratio >= 10 else f"{ratio:.2g}"  # noqa: PLR2004 - two digits


def limit(bound: Results) -> str:
    """Return what a bound asks for, in words."""
    peer = "one thread" if bound["peer"] == "engram" else bound["peer"]
    if bound["kind"] == "time":
        return f"at most {bound['limit']:g} x the time of {peer}"
    return f"at least {bound['limit']:g} x as fast as {peer}"


def times(lines: list[tuple[re.Match[str], Results]]) -> list[str]:
    """Return the table of all questions, a row for each."""
    names = [name for name in COLOURS if any(name in line["medians"] for _, line in lines)]
    rows = [
        [
            f"{match['name']} ({match['hits']})",
            *(amount(line["medians"].get(name)) for name in names),
            verdicts(line),
        ]
        for match, line in lines
    ]
    return table(["question", *map(capital, names), "asked for"], rows)


def writing(lines: list[Results]) -> list[str]:
    """Return the table of what questions take while two write."""
    found: dict[tuple[str, str], dict[str, dict[str, float]]] = {}
    for line in lines:
        if match := WRITING.fullmatch(line["title"]):
            what = match["what"].lstrip(",: ")
            found.setdefault((match["name"], match["count"]), {})[what] = line["medians"]
    rows = []
    for (name, count), said in found.items():
        (rates,) = (medians for what, medians in said.items() if what.startswith("commits"))
        for who, rate in rates.items():
            half, most = amount(said["p50"][who]), amount(said["p99"][who])
            rows.append([f"{name}, {count} objects", capital(who), half, most, f"{rate:.0f}"])
    head = ["question", "by", "half of them within", "99 of 100 within", "commits a second"]
    return table(head, rows)


def growth(lines: list[Results]) -> list[str]:
    """Return the table of few objects among many and among few."""
    rows = []
    for line in lines:
        if match := AGAINST.fullmatch(line["title"]):
            many, few = (line["medians"][name] for name in ("engram, many", "engram, few"))
            ratio = line["bounds"][0]["ratio"]
            shown = f"{ratio:.2f}" if line["bounds"][0]["met"] else f"**{ratio:.2f}**"
            rows.append([f"{match['name']}, {match['how']}", amount(many), amount(few), shown])
    several = [AGAINST.fullmatch(line["title"]) for line in lines]
    counts = next(f"{m['many']} objects, {m['few']} objects" for m in several if m).split(", ")
    return table(["question", *counts, "ratio (at most 3)"], rows)


def sizes(lines: list[Results]) -> list[str]:
    """Return the table of bytes."""
    found = [(BYTES.fullmatch(line["title"]), line["medians"]) for line in lines]
    there = [(match, medians) for match, medians in found if match]
    names = list(there[0][1])
    rows = [[match["count"], *(f"{medians[n]:.1f} B" for n in names)] for match, medians in there]
    return table(["objects", *map(capital, names)], rows)


def summary(lines: list[Results]) -> str:
    """Return how many bounds were met."""
    judged = [b["met"] for line in lines for b in line["bounds"] if b["met"] is not None]
    return f"{sum(judged)} of {len(judged)} bounds are met; what is missed stands in bold."


def tables(held: Results) -> list[str]:
    """Return all of the page's tables."""
    lines = held["lines"]
    page = [QUICK, ""] if held["quick"] else []
    page += [summary(lines), ""]
    for count, of_count in questions(lines).items():
        page += [f"### {count} objects", "", *times(of_count), ""]
    page += ["### While two write", "", *writing(lines), ""]
    page += ["### Few objects among many", "", *growth(lines), ""]
    remarks = {r: None for line in lines for r in line["remarks"]}
    page += [*(f"- {remark}" for remark in remarks), "", "### Bytes for an object", ""]
    page += [*sizes(lines), ""]
    page += [f"Absent is {name}: {why}.\n" for name, why in held["absent"].items()]
    machine, packages = held["machine"], held["packages"]
    said = ", ".join(f"{name} {packages[name]}" for name in ("duckdb", "numpy") if name in packages)
    where = f"{machine['processor']}, {machine['cores']} cores, Linux {machine['kernel']}"
    at = f"Commit {held['commit']}, {held['when'][:10]}"
    return [*page, f"{at}. {where}, Python {machine['python']}; {said}."]


def draw(lines: list[Results], place: Path) -> None:
    """Draw how long each question takes, a picture for each number of objects."""
    found = questions(lines)
    figure = Figure(figsize=(9, 0.6 + 3.2 * len(found)), layout="constrained")
    for axes, (count, of_count) in zip(
        figure.subplots(len(found), squeeze=False).flat, found.items(), strict=True
    ):
        names = [name for name in COLOURS if any(name in line["medians"] for _, line in of_count)]
        width = 0.85 / len(names)
        for number, name in enumerate(names):
            there = [
                (at + (number - (len(names) - 1) / 2) * width, 1e3 * line["medians"][name])
                for at, (_, line) in enumerate(of_count)
                if name in line["medians"]
            ]
            axes.bar(*zip(*there, strict=True), width, label=capital(name), color=COLOURS[name])
        axes.set_xticks(range(len(of_count)), [broken(match["name"]) for match, _ in of_count])
        axes.tick_params(axis="x", labelsize=7)
        axes.set_yscale("log")
        axes.set_ylabel("ms")
        axes.set_title(f"{count} objects", loc="left")
        axes.spines[["top", "right"]].set_visible(False)
    handles, labels = figure.axes[0].get_legend_handles_labels()
    figure.legend(handles, labels, loc="outside lower center", ncols=len(labels), frameon=False)
    figure.savefig(place, dpi=110)


def broken(name: str) -> str:
    """Return a name in two lines."""
    head, _, rest = name.partition(" ")
    return f"{head}\n{rest}"


def blocks(held: Results) -> Blocks:
    """Return what the page has from a file of results."""
    return {"tables": tables(held)}


def main() -> None:
    """Write the tables into the page, and draw."""
    results, page, picture = map(Path, sys.argv[1:4])
    held = json.loads(results.read_text(encoding="utf-8"))
    text = page.read_text(encoding="utf-8")
    page.write_text(filled(text, blocks(held)), encoding="utf-8")
    draw(held["lines"], picture)


if __name__ == "__main__":
    main()
