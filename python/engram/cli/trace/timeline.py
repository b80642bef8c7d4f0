"""The time line of a trace: which files were read and written when, and how fast."""

from __future__ import annotations

import math
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from engram.cli.trace import sums
from engram.cli.trace.lines import MOVES

if TYPE_CHECKING:
    from collections.abc import Iterator

    from engram.cli.trace.lines import Trace

FILES = 20
"""So many files have a row: those of which most bytes were read and written."""
_LEVELS = " ▁▂▃▄▅▆▇█"
_MUCH = 0.1
"""A capital letter stands for at least this part of the most bytes in a part of the time."""
_MICRO = 1e6


@dataclass
class Lane:
    """What happened to a file in each part of the time."""

    read: list[int]
    written: list[int]
    used: list[int] = field(repr=False)
    """How often it was used otherwise."""


class Timeline:
    """What a trace shows, in parts of its time of equal length."""

    def __init__(self, trace: Trace, parts: int) -> None:
        uses, self.first, self.last = sums.uses(trace.lines())
        busiest = sorted(uses, key=lambda path: (-uses[path].nbytes, -uses[path].times, path))
        shown = sorted(busiest[:FILES], key=lambda path: (uses[path].first, path))
        self.left_out = len(uses) - len(shown)
        # The last µs is in the last part, too.
        self.seconds = max(self.last - self.first + 1, 1) / _MICRO / parts
        self.lanes = {path: Lane([0] * parts, [0] * parts, [0] * parts) for path in shown}
        self.read, self.written = [0] * parts, [0] * parts
        for line in trace.lines():
            if line.is_low_level or not line.place:
                continue
            part = int((line.at - self.first) / _MICRO / self.seconds)
            part = min(max(part, 0), parts - 1)  # a line may have come since
            lane, way = self.lanes.get(line.place), MOVES.get(line.operation)
            if way is not None:
                (self.read if way == "read" else self.written)[part] += line.nbytes
            if lane is not None:
                if way is None or not line.nbytes:
                    lane.used[part] += 1
                else:
                    (lane.read if way == "read" else lane.written)[part] += line.nbytes

    def rate(self, way: str) -> list[float]:
        """Return the bytes a second that were read, or written, in each part of the time."""
        moved = self.read if way == "read" else self.written
        return [nbytes / self.seconds for nbytes in moved]

    def rows(self) -> Iterator[tuple[str, str]]:
        """Yield each path with its row of signs."""
        moved = [max(lane.read + lane.written, default=0) for lane in self.lanes.values()]
        most = max(moved, default=0)
        for path, lane in self.lanes.items():
            cells = zip(lane.read, lane.written, lane.used, strict=True)
            yield path, "".join(_sign(*cell, most) for cell in cells)

    def levels(self, way: str) -> str:
        """Return a row of bars: how fast bytes were read, or written."""
        rates = self.rate(way)
        most = max(*self.rate("read"), *self.rate("written"))
        steps = len(_LEVELS) - 1
        return "".join(_LEVELS[math.ceil(rate / most * steps) if rate else 0] for rate in rates)

    def told(self) -> dict[str, object]:
        """Return it as plain values."""
        return {
            "first": self.first,
            "last": self.last,
            "seconds": self.seconds,
            "files": [
                {"path": path, "read": lane.read, "written": lane.written, "used": lane.used}
                for path, lane in self.lanes.items()
            ],
            "left_out": self.left_out,
        }


def _sign(read: int, written: int, used: int, most: int) -> str:
    if not read and not written:
        return "." if used else " "
    sign = "x" if read and written else "r" if read else "w"
    return sign.upper() if read + written >= _MUCH * most else sign
