"""A group as a tree: text in a terminal, HTML in a notebook."""

import sys
from dataclasses import dataclass, field
from html import escape
from itertools import islice
from typing import TYPE_CHECKING

from engram.array import Array
from engram.blob import Blob
from engram.plain import printable
from engram.size import human

if TYPE_CHECKING:
    from engram.group import Group


@dataclass
class _Node:
    """A line of the tree, and those below it."""

    name: str
    facts: str
    below: list["_Node"] = field(default_factory=list)

    def __post_init__(self) -> None:
        """Take the name and the facts as they may be shown: both have parts that users chose."""
        self.name = printable(self.name)
        self.facts = printable(self.facts)


class Tree:
    """What was in a group at one time: `str(tree)` is text, a notebook shows HTML."""

    def __init__(self, group: "Group", depth: int | None, limit: int) -> None:
        self._root = _Node(group.path or group.namespace, "")
        self._counts = [0, 0]
        self._limit = limit
        self._walk(group, self._root, depth)

    def _walk(self, group: "Group", node: _Node, depth: int | None) -> None:
        for name, member in islice(group._members_if_there(), self._limit):
            if isinstance(member, Array):
                dims = f" [{', '.join(member.dims)}]" if member.dims else ""
                facts = f"{member.shape} {member.dtype}{dims}"
                node.below.append(_Node(name, facts))
            elif isinstance(member, Blob):
                node.below.append(_Node(name, human(member.nbytes)))
            else:
                self._counts[0] += 1
                inner = _Node(f"{name}/", "")
                node.below.append(inner)
                if depth is None or depth > 1:
                    self._walk(member, inner, None if depth is None else depth - 1)
                continue
            self._counts[1] += 1
        more = len(group) - self._limit if len(node.below) >= self._limit else 0
        if more > 0:
            node.below.append(_Node(f"... and {more} more", ""))

    def show(self) -> None:
        """Print the text; not in a notebook, which shows what a cell returns."""
        shell = sys.modules.get("IPython")
        running = None if shell is None else shell.get_ipython()
        if running is None or not hasattr(running, "kernel"):
            print(self)  # noqa: T201 - what tree() is for

    def __str__(self) -> str:
        return "\n".join(_lines(self._root, "", ""))

    def _repr_html_(self) -> str:
        return f"<ul style='list-style:none'>{_html(self._root)}</ul>"

    def __repr__(self) -> str:
        groups, objects = self._counts
        return f"<engram.Tree of {self._root.name!r}: {groups} groups, {objects} objects>"


def _lines(node: _Node, head: str, rest: str) -> list[str]:
    lines = [f"{head}{node.name} {node.facts}".rstrip()]
    for place, inner in enumerate(node.below, start=1):
        last = place == len(node.below)
        lines += _lines(
            inner, rest + ("└── " if last else "├── "), rest + ("    " if last else "│   ")
        )
    return lines


def _html(node: _Node) -> str:
    line = f"<b>{escape(node.name)}</b> <code>{escape(node.facts)}</code>"
    if not node.below:
        return f"<li>{line}</li>"
    below = "".join(_html(inner) for inner in node.below)
    return f"<li><details open><summary>{line}</summary><ul>{below}</ul></details></li>"
