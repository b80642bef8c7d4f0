"""The evaluation's figures as Markdown, from what was measured."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Any

from bench.page import measured

if TYPE_CHECKING:
    from bench.marks import Blocks

UNITS = {
    "s": (("s", 1.0), ("ms", 1e-3), ("µs", 1e-6)),
    "B": (("B", 1.0),),
    "MiB": (("MiB", 2**20),),
}
TOPICS = {
    "Queries": r".* of [\d,]+ objects, Rust",
    "Through Python": r".*, Python$(?<!end to end, Python)",
    "End to end": r".* end to end",
    "One million objects": r".* against [\d,]+|scan of|memory of a query",
    "Bytes of the index": r"bytes of the index|index beside storage",
    "Search space by attributes in a group": r"stored: |read: ",
    "Time to index": r"index an object|store an object|steps of",
    "Fixed against dynamic": r".*fixed against dynamic",
}


def blocks(held: dict[str, Any]) -> Blocks:
    """Return what the page has from a file of results: a table for each topic."""
    found: list[str] = []
    for topic, pattern in TOPICS.items():
        lines = [line for line in held["lines"] if re.match(pattern, line["title"])]
        if lines:
            found += ["", f"### {topic}", ""] if found else [f"### {topic}", ""]
            found += ["| work | Engram | against | ratio | asked | |", "|---|---|---|---|---|---|"]
            found += [row for line in lines for row in rows(line)]
    return {"measured": [measured(held)], "tables": found}


def rows(line: dict[str, Any]) -> list[str]:
    """Return a row for each bound of a line."""
    return [
        f"| {line['title'] if place == 0 else ''} | {amount(line, bound['ours'])} "
        f"| {amount(line, bound['peer'])} | {ratio(bound)} | {asked(bound)} | {verdict(bound)} |"
        for place, bound in enumerate(line["bounds"])
    ]


def amount(line: dict[str, Any], name: str) -> str:
    """Return a contestant and its median."""
    if not name:
        return ""
    median = line["medians"][name]
    steps = UNITS.get(line["unit"], ((line["unit"], 1.0),))
    unit, step = next((each for each in steps if median >= each[1]), steps[-1])
    figure = f"{median / step:.3g} {unit}"
    return figure if name == "engram" else f"{name}: {figure}"


def ratio(bound: dict[str, Any]) -> str:
    """Return the ratio; nothing where a value is judged alone."""
    return "" if bound["kind"] == "value" else f"{bound['ratio']:.3g}"


def asked(bound: dict[str, Any]) -> str:
    """Return what is asked for."""
    match bound["kind"]:
        case "speed":
            return f"≥ {bound['limit']:g}"
        case "time":
            return f"≤ {bound['limit']:g}"
        case _:
            return ""


def verdict(bound: dict[str, Any]) -> str:
    """Return whether it is met."""
    return {True: "met", False: "**missed**", None: ""}[bound["met"]]
