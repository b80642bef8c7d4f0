"""How a table lies in a pool: what its members are called.

    t/.table               blob: the schema, as Arrow's IPC has it; by it a group is a table
    t/<part>/<column>      an array: the values of a column of plain numbers or times
    t/<part>/.rest         an array of bytes: all other columns, as a stream of Arrow's IPC

The name of a part is its *stamp*, a token that no other part ever had, and how many rows it has.
So one listing of names tells the order of the parts and the number of all rows. The stamp is the
time in nanoseconds at which the part was committed, or one more than that of the part before, if
the clock was turned back. What has another name is no part.

A column whose name no member can have, or that begins with a dot, or that an earlier column has
too, is called by its number: `.7`.
"""

import os
import re
from typing import NamedTuple

from engram.group import TABLE_MARK as MARK

REST = ".rest"
"""The member of a part with the columns that are no arrays of their own."""

_LONGEST = 255
"""So many bytes of UTF-8 a name may have."""

_PART = re.compile(r"([0-9a-f]{16})-([0-9a-f]{24})-([0-9]+)")


class Part(NamedTuple):
    """A part of a table: the rows of one append.

    Attributes
    ----------
    name
        Its name in the table's group.
    gid
        The id of its group.
    stamp
        Where it stands among the parts; the least comes first.
    rows
        How many rows it has.

    """

    name: str
    gid: int
    stamp: int
    rows: int


def part_of(name: str, gid: int) -> Part | None:
    """Return the part that a member of a table's group is; None if it is none."""
    found = _PART.fullmatch(name)
    return None if found is None else Part(name, gid, int(found[1], 16), int(found[3]))


def new_token() -> str:
    """Return what no other part has in its name, of any process."""
    return os.urandom(12).hex()


def part_name(stamp: int, token: str, rows: int) -> str:
    """Return the name of a part."""
    return f"{stamp:016x}-{token}-{rows}"


def first_after(stamp: int) -> str:
    """Return what is less than the names of all parts from a stamp on, and of no other."""
    return f"{stamp:016x}"


def members_of(columns: list[str]) -> list[str]:
    """Return what the arrays of columns are called in a part."""
    found: list[str] = []
    for place, column in enumerate(columns):
        usable = (
            column
            and not column.startswith(".")
            and "/" not in column
            and "\0" not in column
            and len(column.encode()) <= _LONGEST
            and column not in found
        )
        found.append(column if usable else f".{place}")
    return found


__all__ = [
    "MARK",
    "REST",
    "Part",
    "first_after",
    "members_of",
    "new_token",
    "part_name",
    "part_of",
]
