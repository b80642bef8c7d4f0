"""What a trace comes to: sums, files that nobody read, the order in which files are used."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, NamedTuple

from engram.cli.trace.lines import MOVES

if TYPE_CHECKING:
    from collections.abc import Iterable

    from engram.cli.trace.lines import Line


@dataclass
class Sum:
    """What was done to a file, or in a pool, by one operation."""

    first: int
    last: int
    count: int = 0
    nbytes: int = 0


class Sums:
    """How often each operation was done to each file."""

    def __init__(self, lines: Iterable[Line]) -> None:
        self.by_place: dict[tuple[str, str], Sum] = {}
        """By path, or pool, and operation."""
        self.count = 0
        self.first = self.last = 0
        pids = set()
        for line in lines:
            if not self.count:
                self.first = self.last = line.at
            self.count += 1
            self.first, self.last = min(self.first, line.at), max(self.last, line.at)
            pids.add(line.pid)
            key = (line.place, line.operation)
            found = self.by_place.get(key)
            if found is None:
                found = self.by_place[key] = Sum(line.at, line.at)
            found.first, found.last = min(found.first, line.at), max(found.last, line.at)
            found.count += 1
            found.nbytes += line.nbytes
        self.pids = sorted(pids)


class Unread(NamedTuple):
    """A file that was opened, or made, and never read."""

    path: str
    is_new: bool
    """Whether it was made meanwhile."""
    written: int
    """The bytes that were written to it."""


@dataclass
class _Use:
    """What is known of a file so far."""

    is_new: bool = False
    is_read: bool = False
    written: int = 0


class _Uses:
    """What is known of the files of a trace, by the paths that they have by now."""

    def __init__(self) -> None:
        self.there: dict[str, _Use] = {}
        self.gone: list[tuple[str, _Use]] = []
        """Those that have no path any more, with the last one that they had."""

    def add(self, line: Line) -> None:
        path = line.place
        if line.operation in {"rename", "exchange"}:
            self._rename(line)
        elif line.operation == "unlink":
            self._lose(path)
        elif path and not path.endswith("/") and not line.is_low_level:
            self._use(path, line)

    def _use(self, path: str, line: Line) -> None:
        if line.operation == "create":
            self._lose(path)
            self.there[path] = _Use(is_new=True)
        elif line.operation == "open":
            self.there.setdefault(path, _Use())
        elif path in self.there and line.operation in {"read", "readlink"}:
            self.there[path].is_read = True
        elif path in self.there:
            self.there[path].written += line.nbytes

    def _lose(self, path: str) -> None:
        if path in self.there:
            self.gone.append((path, self.there.pop(path)))

    def _rename(self, line: Line) -> None:
        """Give what is known of a path, and of what is below it, to another one."""
        old, new = line.place, str(line.arguments[0])
        pairs = [(old, new), (new, old)] if line.operation == "exchange" else [(old, new)]
        moved = {}
        for before, after in pairs:
            if before in self.there:
                moved[after] = self.there.pop(before)
                continue
            below = [path for path in self.there if path.startswith(f"{before}/")]
            moved.update({after + path[len(before) :]: self.there.pop(path) for path in below})
        for path in moved:
            self._lose(path)
        self.there.update(moved)


def unread(lines: Iterable[Line]) -> list[Unread]:
    """Return the files that were opened or made, and never read, by path.

    A file that is renamed is the same one. One that is gone has the last path that it had.
    """
    uses = _Uses()
    for line in lines:
        uses.add(line)
    found = [*uses.there.items(), *uses.gone]
    return sorted(Unread(path, use.is_new, use.written) for path, use in found if not use.is_read)


def order(lines: Iterable[Line]) -> list[str]:
    """Return the files that were there before, in the order in which they were first used.

    A file is used when it is opened or read. One that the trace saw made is none that was there.
    """
    first: dict[str, int] = {}
    made: dict[str, int] = {}
    for line in lines:
        path = line.place
        if line.operation in {"open", "read"}:
            first[path] = min(first.get(path, line.at), line.at)
        elif line.operation == "create":
            made[path] = min(made.get(path, line.at), line.at)
        elif line.operation in {"rename", "link"}:
            made.setdefault(str(line.arguments[0]), line.at)
    there = [path for path, at in first.items() if path and at < made.get(path, at + 1)]
    return sorted(there, key=lambda path: (first[path], path))


_OF_FILES = {"open", "create", "read", "write", "truncate", "unlink"}
"""What is done to files, and not to folders."""


class Use(NamedTuple):
    """How much a file was used, and since when."""

    first: int
    nbytes: int
    times: int


def uses(lines: Iterable[Line]) -> tuple[dict[str, Use], int, int]:
    """Return how much each file was used, and when the first and last line was made.

    What was only looked at, as folders are, is none.
    """
    found: dict[str, Use] = {}
    first = last = 0
    for line in lines:
        first = min(first or line.at, line.at)
        last = max(last, line.at)
        if line.operation not in _OF_FILES or line.place.endswith("/") or not line.place:
            continue
        use = found.get(line.place, Use(line.at, 0, 0))
        nbytes = use.nbytes + (line.nbytes if line.operation in MOVES else 0)
        found[line.place] = Use(min(use.first, line.at), nbytes, use.times + 1)
    return found, first, last
