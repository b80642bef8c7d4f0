"""A group as a tree: text in a terminal, HTML in a notebook.

What it shows is bounded on all sides: levels, members of each group, lines in all; where it ends
early it says so. The lines are given out level by level, and on each level in equal parts, so that
no group's inside is shown at the cost of its neighbours' names.
"""

import sys
from collections.abc import Iterator
from dataclasses import dataclass, field
from itertools import islice
from typing import TYPE_CHECKING, Any

from engram import _engram, later
from engram.arguments import whole_number
from engram.array import Array
from engram.blob import Blob
from engram.errors import NotFoundError
from engram.plain import printable
from engram.size import human

if TYPE_CHECKING:
    from engram.group import Group

_DEEPEST = 100
"""So many levels are shown, whatever `depth` says."""

_MOST = 10_000
"""So many lines are shown, if nothing else is said."""

_UNSEEN = "..."
"""Stands behind a group whose members had no lines left to them."""

_FEWEST = 5
"""So many members are worth a line that tells of the others."""

_COUNTED = 100_000
"""So many names are counted, of those that are not shown."""


@dataclass(slots=True)
class Node:
    """A line of the tree, and those below it.

    Attributes
    ----------
    name
        The member's name; of a group, with a slash at its end. It prints.
    facts
        What a terminal shows behind the name. They print.
    columns
        What a notebook shows behind the name: shape, dtype and size, each as text or "".
    below
        The lines below it.
    rest
        Whether it stands for all that is not shown.

    """

    name: str
    facts: str = ""
    columns: tuple[str, str, str] = ("", "", "")
    below: list["Node"] = field(default_factory=list)
    rest: bool = False

    def __post_init__(self) -> None:
        """Take the name and the facts as they may be shown: both have parts that users chose."""
        self.name = printable(self.name)
        self.facts = printable(self.facts)


class Tree:
    """What was in a group at one time: `str(tree)` is text, a notebook shows HTML."""

    def __init__(self, group: "Group", depth: int | None, limit: int, *, most: int = _MOST) -> None:
        levels = _DEEPEST if depth is None else min(whole_number("depth", depth), _DEEPEST)
        self.root = Node(group.path or group.namespace)
        self.counts = [0, 0]
        self._limit = whole_number("limit", limit)
        self._left = most
        level = [(group, self.root)]
        for _ in range(levels):
            level = self._below(level)

    def _below(self, level: "list[tuple[Group, Node]]") -> "list[tuple[Group, Node]]":
        """Show what is in each group of a level; give the groups found."""
        found = []
        for place, (group, node) in enumerate(level):
            if self._left <= 0:
                node.facts, node.columns = _UNSEEN, (_UNSEEN, "", "")
                continue
            share = max(self._left // (len(level) - place), min(self._left, _FEWEST))
            found += self._inside(group, node, min(share, self._limit))
        return found

    def _inside(self, group: "Group", node: Node, most: int) -> "list[tuple[Group, Node]]":
        """Show at most so many members of a group; give the groups among them."""
        last, seen, found = None, 0, []
        for name, member in islice(group._members_if_there(), most):
            last, seen = name, seen + 1
            self._left -= 1
            if not member._has_members:  # an array, a blob or a table
                node.below += _object(name, member)
                self.counts[1] += 1
                continue
            self.counts[0] += 1
            inner = Node(f"{name}/")
            node.below.append(inner)
            found.append((member, inner))
        if seen >= most:
            node.below += _rest(group, last)
        return found

    def show(self) -> None:
        """Print the text; not in a notebook, which shows what a cell returns."""
        shell = sys.modules.get("IPython")
        running = None if shell is None else shell.get_ipython()
        if running is None or not hasattr(running, "kernel"):
            print(self)  # noqa: T201 - what tree() is for

    def __str__(self) -> str:
        return "\n".join(_lines(self.root, "", ""))

    def _repr_html_(self) -> str:
        return later.card(self)

    def __repr__(self) -> str:
        groups, objects = self.counts
        return f"<engram.Tree of {self.root.name!r}: {groups} groups, {objects} objects>"


def members(group: "Group") -> str:
    """Count a group's members in words: "1 member", "12,345 members"."""
    found = count(group)
    return f"{found} member{'' if found == '1' else 's'}"


def count(group: "Group", after: str | None = None) -> str:
    """Count a group's members, those after a name: "12,345", or "more than 100,000"."""
    found = len(_engram.names(group._namespace, group._id, after, _COUNTED + 1))
    return f"{found:,}" if found <= _COUNTED else f"more than {_COUNTED:,}"


def shape_of(array: Array) -> str:
    """Give an array's shape with its dimensions' names, such as "(y: 3, x: 4)"."""
    dims = array.dims
    if not dims:
        return str(array.shape)
    return f"({', '.join(f'{d}: {n}' for d, n in zip(dims, array.shape, strict=True))})"


def dtype_of(array: Array) -> str:
    """Give an array's dtype in a word; of a record, how many fields it has."""
    if array.dtype.kind == "T":
        return "strings"
    fields = array.dtype.names
    return str(array.dtype).lstrip("|") if fields is None else f"record of {len(fields)}"


def _object(name: str, member: Any) -> Iterator[Node]:
    """Give the line of an array, a blob or a table; none, if it was deleted meanwhile."""
    try:
        size = human(member.nbytes)
        if member._is_group:
            rows = f"{len(member):,} row{'' if len(member) == 1 else 's'}"
            yield Node(name, f"table of {rows}", (rows, "table", size))
            return
        if isinstance(member, Blob):
            yield Node(name, size, ("", "bytes", size))
            return
        dims = f" [{', '.join(member.dims)}]" if member.dims else ""
        layout = "" if member.chunks is None else f" in chunks {member.chunks} {member.codec}"
        facts = f"{member.shape} {member.dtype}{dims}{layout}"
        yield Node(name, facts, (shape_of(member), dtype_of(member), size))
    except NotFoundError:
        return


def _rest(group: "Group", after: str | None) -> Iterator[Node]:
    """Give the line that tells how many members are not shown, if there are any."""
    try:
        more = count(group, after)
    except NotFoundError:  # deleted meanwhile
        return
    if more != "0":
        yield Node(f"... and {more} more", rest=True)


def _lines(node: Node, head: str, rest: str) -> list[str]:
    lines = [f"{head}{node.name} {node.facts}".rstrip()]
    for place, inner in enumerate(node.below, start=1):
        last = place == len(node.below)
        lines += _lines(
            inner, rest + ("└── " if last else "├── "), rest + ("    " if last else "│   ")
        )
    return lines
