"""`engram doctor`: what a place gives to a pool, and how to get more.

Each check looks at one thing, tries it where it can be tried, and returns findings: what is there,
a verdict, and the command that would better it. What is tried leaves nothing behind.
"""

from __future__ import annotations

from pathlib import Path  # noqa: TC003 - read by Typer
from typing import TYPE_CHECKING, Annotated, Any

import typer
from rich.table import Table
from rich.text import Text

from engram import lifetime
from engram.cli import completion, drawing, terminal
from engram.cli.app import JsonOption, app, examples, file_path
from engram.cli.doctor import limits, memory, mount, pages, speed
from engram.cli.doctor.finding import Finding, Verdict
from engram.cli.doctor.place import Place, places
from engram.cli.terminal import plain
from engram.errors import EngramError

if TYPE_CHECKING:
    from collections.abc import Iterator

_STYLES = {
    Verdict.good: terminal.GOOD,
    Verdict.fair: terminal.MEDIOCRE,
    Verdict.wrong: terminal.WRONG,
}
_TRIAL = 64 << 20
_TRIAL_LEAST = 4 << 20
_SHARE = 8
"""A pool is tried with so many bytes, and no more than this part of the room that there is."""
_NAME_WIDTH = 13
_NARROW = 60
"""In a terminal of fewer columns, a finding's name stands above it."""


@app.command(
    epilog=examples(
        "engram doctor /dev/shm",
        "engram doctor /dev/shm/run    # a pool: each of its devices",
        "engram doctor /scratch/new --json",
    )
)
def doctor(
    path: Annotated[
        Path,
        typer.Argument(
            metavar="PATH",
            help="A folder, a pool, or a devdax node.",
            autocompletion=completion.pools,
            parser=file_path,
        ),
    ],
    *,
    json: JsonOption = False,
) -> None:
    """Tell what a folder, or a pool's devices, give to a pool, and how to get more.

    PATH need not exist; its nearest parent is looked at then. Exits with 1 if something is wrong.
    """
    looked = {place: list(_of_place(place)) for place in places(path)}
    process = list(limits.findings())
    everything = [finding for found in [*looked.values(), process] for finding in found]
    if json:
        told = [{"path": str(place.folder), "findings": _told(looked[place])} for place in looked]
        terminal.print_json({"asked": str(path), "places": told, "process": _told(process)})
    else:
        for place, found in looked.items():
            _print(place.title, found)
        _print("this process", process)
        _print_legend(everything)
    if any(finding.verdict is Verdict.wrong for finding in everything):
        raise typer.Exit(1)


def _of_place(place: Place) -> Iterator[Finding]:
    """Yield what is found at a place."""
    if place.is_node:
        yield from mount.of_node(place)
        return
    yield from mount.findings(place)
    yield from memory.findings(place)
    for threat in lifetime.threats(place.folder):
        yield Finding(threat.what, threat.found, Verdict.fair, threat.remedy)
    if place.refusal is not None or place.standing.verdict == "refused":
        return
    nbytes = min(_TRIAL, *(room // _SHARE for room in (place.standing.free, memory.left())))
    if nbytes < _TRIAL_LEAST:
        yield Finding("trial", "no pool was tried: there is too little room", Verdict.wrong)
        return
    try:
        with place.pool(2 * nbytes) as pool:
            yield from pages.findings(place, pool)
            yield from speed.findings(place, pool, nbytes)
    except EngramError as error:
        yield Finding("trial", f"no pool can be made: {error}", Verdict.wrong)


def _told(findings: list[Finding]) -> list[dict[str, Any]]:
    """Return findings as JSON has them."""
    return [
        {
            "what": finding.what,
            "found": finding.found,
            "verdict": finding.verdict.value,
            "remedy": finding.remedy,
            **finding.numbers,
        }
        for finding in findings
    ]


def _print(title: str, findings: list[Finding]) -> None:
    """Print findings: verdict, what, and what is there, with the remedy below."""
    drawing.print_title(title)
    narrow = drawing.out().width < _NARROW
    table = Table(box=None, pad_edge=False, show_header=False, padding=(0, 2, 0, 0))
    table.add_column(no_wrap=True, min_width=len(Verdict.wrong))
    if not narrow:
        table.add_column(no_wrap=True, min_width=_NAME_WIDTH)
    table.add_column(overflow="fold")
    for finding in findings:
        told = Text(plain(finding.found))
        if narrow:
            told = Text.assemble((f"{finding.what}: ", terminal.HEADING), told)
        if finding.remedy:
            told.append(f"\n→ {plain(finding.remedy)}", style=terminal.KIND)
        verdict = Text(finding.verdict.value, style=_STYLES[finding.verdict])
        table.add_row(verdict, *([] if narrow else [finding.what]), told)
    drawing.show(table)
    drawing.show()


def _print_legend(findings: list[Finding]) -> None:
    """Print how many of each verdict there are, and what the words mean."""
    counts = {verdict: sum(f.verdict is verdict for f in findings) for verdict in Verdict}
    words = [f"{count} {verdict.value}" for verdict, count in counts.items() if count]
    meaning = "; → says how to get more" if any(finding.remedy for finding in findings) else ""
    terminal.say(", ".join(words) + meaning)
