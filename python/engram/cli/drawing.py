"""What the command line lays out with rich: tables, names and values, titles."""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING, Literal

from rich.cells import cell_len
from rich.console import Console
from rich.padding import Padding
from rich.table import Table
from rich.text import Text

from engram.cli.terminal import HEADING, plain

if TYPE_CHECKING:
    from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence

    from rich.console import RenderableType

_PIPE_WIDTH = 100_000
_GAP = "  "
_KEY_WIDTH = 16
"""What a row is about has so many columns, or the table is too wide."""


def out() -> Console:
    """Return the console of stdout: as wide as need be where it is not a terminal."""
    width = None if sys.stdout.isatty() else _PIPE_WIDTH
    return Console(width=width, highlight=False, emoji=False)


def show(*what: RenderableType) -> None:
    """Print what rich can draw; without blanks at the ends of lines where it is no terminal."""
    console = out()
    if sys.stdout.isatty():
        console.print(*what)
        return
    with console.capture() as drawn:
        console.print(*what)
    sys.stdout.write("\n".join(line.rstrip() for line in drawn.get().split("\n")))


def show_text(text: str) -> None:
    """Print text as it is: what is markup to rich stays a part of it."""
    show(Text(text))


def print_table(
    headings: Sequence[str],
    rows: Iterable[Sequence[object]],
    *,
    key: str,
    right: Collection[str] = (),
    indent: int = 0,
) -> None:
    """Print rows below headings; in a terminal that is too narrow for that, each row on its own.

    Parameters
    ----------
    headings
        The headings.
    rows
        The words of each row.
    key
        The heading of what a row is about: that column folds, and stands first on its own line in
        a narrow terminal.
    right
        The headings of numbers.
    indent
        Blanks before each line.

    """
    words = [[plain(word) for word in row] for row in rows]
    place = headings.index(key)
    columns = zip(headings, *words, strict=True)
    widths = [max(map(cell_len, column)) for column in columns]
    others = sum(widths) - widths[place] + len(_GAP) * (len(headings) - 1) + indent
    if others + min(widths[place], _KEY_WIDTH) > out().width:
        numbers = [heading if heading in right else "" for heading in headings]
        _print_records(words, numbers, place, indent)
        return
    made = Table(box=None, pad_edge=False, header_style=HEADING, padding=(0, len(_GAP), 0, 0))
    for heading in headings:
        justify: Literal["left", "right"] = "right" if heading in right else "left"
        made.add_column(heading, justify=justify, no_wrap=heading != key, overflow="fold")
    for row in words:
        made.add_row(*map(Text, row))
    show(Padding(made, (0, 0, 0, indent)))


def _print_records(rows: list[list[str]], names: list[str], place: int, indent: int) -> None:
    """Print each row as a line of what it is about, and its other words, with names, below."""
    for row in rows:
        told = [f"{name} {word}".lstrip() for name, word in zip(names, row, strict=True)]
        others = [told[i] for i, word in enumerate(row) if i != place and word not in ("", "-")]
        show(Padding(Text(row[place], style=HEADING), (0, 0, 0, indent)))
        for line in _packed(others, out().width - indent - len(_GAP)):
            show(Padding(Text(line), (0, 0, 0, indent + len(_GAP))))


def _packed(words: list[str], width: int) -> Iterator[str]:
    """Yield lines of as many words as fit; a name and its number stay together."""
    line = ""
    for word in words:
        longer = f"{line}{_GAP}{word}" if line else word
        if line and len(longer) > width:
            yield line
            longer = word
        line = longer
    if line:
        yield line


def print_title(text: str) -> None:
    """Print the heading of a part."""
    show(Text(plain(text), style=HEADING))


def print_facts(rows: Mapping[str, object], *, indent: int = 0) -> None:
    """Print names and values, a line each; a value may be rich's text."""
    made = Table(box=None, pad_edge=False, show_header=False, padding=(0, len(_GAP), 0, 0))
    made.add_column(style=HEADING, no_wrap=True, max_width=max(out().width // 2, 1))
    made.add_column(overflow="fold")
    for name, value in rows.items():
        made.add_row(Text(plain(name)), value if isinstance(value, Text) else Text(plain(value)))
    show(Padding(made, (0, 0, 0, indent)))
