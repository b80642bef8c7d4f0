"""What echofs's authors measured: tables 1 and 2 of the white paper, on another machine.

Two Xeons with 32 GiB, whose DRAM stood for NVDIMMs; FUSE 2.9 over a ramfs; mdtest and IOR.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from rich.table import Table

if TYPE_CHECKING:
    from collections.abc import Mapping

    Rates = dict[str, dict[str, float]]
    """By column, and by who did it."""

ECHOFS = "echofs, elsewhere"

NAMES: Mapping[int, dict[str, float]] = {
    1: {
        "create dir": 30_675,
        "stat dir": 37_746,
        "remove dir": 34_445,
        "create file": 20_258,
        "stat file": 35_778,
        "remove file": 30_658,
    },
    4: {
        "create dir": 27_731,
        "stat dir": 84_315,
        "remove dir": 32_294,
        "create file": 22_047,
        "stat file": 81_646,
        "remove file": 30_257,
    },
}
"""Table 1: operations a second, by processes."""

BYTES: Mapping[str, dict[str, float]] = {
    "shared": {"write": 807.37, "read": 2835.24},
    "file each": {"write": 2710.27, "read": 3606.85},
}
"""Table 2: MiB/s of 4 processes."""


GEKKOFS_NODES = 512
GEKKOFS = {"create file": 46e6, "stat file": 44e6, "remove file": 22e6}
"""Operations a second that GekkoFS's authors measured on so many nodes, by mdtest."""


def drawn(title: str, rates: Rates) -> Table:
    """Draw rates as a table: a row for each who took part."""
    table = Table(box=None, padding=(0, 1), header_style="dim", title=title, title_justify="left")
    table.add_column("")
    for column in rates:
        table.add_column(column, justify="right")
    everybody = dict.fromkeys(who for column in rates.values() for who in column)
    for who in everybody:
        cells = (column.get(who) for column in rates.values())
        table.add_row(who, *("-" if rate is None else f"{rate:,.0f}" for rate in cells))
    return table


def met(rates: Rates, who: str) -> dict[str, Any]:
    """Say by column whether somebody is at least as fast as echofs was."""
    return {
        name: column[who] >= column[ECHOFS]
        for name, column in rates.items()
        if who in column and ECHOFS in column
    }
