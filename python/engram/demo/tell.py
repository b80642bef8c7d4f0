"""What the main job says: its steps with their times, its numbers, and its claims."""

from __future__ import annotations

import sys
import time
from contextlib import contextmanager
from typing import TYPE_CHECKING

from rich.console import Console
from rich.table import Table

if TYPE_CHECKING:
    from collections.abc import Iterator

MIB = 1 << 20
COLUMNS = 120


class Teller:
    """Prints to a console and remembers whether every claim held."""

    def __init__(self, console: Console | None = None) -> None:
        """Tell on `console`, or on standard output."""
        self.console = console or Console(
            highlight=False, width=None if sys.stdout.isatty() else COLUMNS
        )
        self.claims: list[tuple[bool, str]] = []
        self.timings_s: dict[str, float] = {}

    def say(self, text: str) -> None:
        """Print a line under the present step."""
        self.console.print(f"  {text}", soft_wrap=True)

    @contextmanager
    def step(self, title: str) -> Iterator[None]:
        """Print the title of a step and, at its end, how long it took."""
        self.console.print(f"\n[bold cyan]{title}[/]")
        start = time.perf_counter()
        yield
        self.timings_s[title] = time.perf_counter() - start
        self.console.print(f"  [dim]{self.timings_s[title]:.2f} s[/]")

    def claim(self, held: bool, text: str) -> None:
        """Print a claim and whether it held."""
        self.claims.append((bool(held), text))
        mark = "[bold green]held  [/]" if held else "[bold red]FAILED[/]"
        self.console.print(f"  {mark} {text}", soft_wrap=True)

    def table(self, columns: list[str], rows: list[list[str]]) -> None:
        """Print a table whose columns, but for the first, are numbers."""
        table = Table(box=None, padding=(0, 2), header_style="dim")
        for place, column in enumerate(columns):
            table.add_column(column, justify="right" if place else "left")
        for row in rows:
            table.add_row(*row)
        self.console.print(table)

    @property
    def all_held(self) -> bool:
        """Whether there were claims and all of them held."""
        return bool(self.claims) and all(held for held, _ in self.claims)


def mib(nbytes: float) -> str:
    """Return a size in MiB."""
    return f"{nbytes / MIB:.1f} MiB"
