"""What a report says was left out, or is there in another way: alike things on one line."""

from __future__ import annotations

from typing import TYPE_CHECKING

from engram.cli import terminal
from engram.cli.terminal import counted
from engram.size import human

if TYPE_CHECKING:
    from engram.formats import Entry, ExportReport, ImportReport

_NAMED = 3
"""So many paths of alike things are named; `--json` has them all."""


def tell_entries(report: ImportReport | ExportReport) -> None:
    """Print what was left out, and what was noted."""
    for word, entries in (("left out", report.left_out), ("noted", report.noted)):
        alike: dict[tuple[str, str], list[Entry]] = {}
        for entry in entries:
            alike.setdefault((entry.what, entry.why), []).append(entry)
        for (what, why), found in alike.items():
            if len(found) <= _NAMED:
                for entry in found:
                    terminal.say(f"  {word}: {entry}")
                continue
            paths = ", ".join(entry.path for entry in found[:_NAMED])
            more = f" and {len(found) - _NAMED} more"
            terminal.say(f"  {word}: {len(found)} x {what}: {why} ({paths}{more})")


def tell_export(report: ExportReport) -> None:
    """Print what was exported, and each thing that was left out or stands there otherwise."""
    terminal.say(
        f"/{report.source} to {report.file} ({report.format}): {counted(report.arrays, 'array')}, "
        f"{counted(report.groups, 'group')}, {counted(report.attributes, 'attribute')}, "
        f"{human(report.nbytes)} as {human(report.file_nbytes)} in {report.seconds:.2f} s"
    )
    tell_entries(report)
