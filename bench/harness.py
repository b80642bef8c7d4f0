"""How a piece of work is measured: contestants by turns, medians of rounds, ratios with bounds.

In each round every contestant does the work once, so that a drift of the machine meets all of
them; always in the same order, so that nobody has two turns in a row and finds the processor's
cache full of what he wrote the turn before. A ratio is the median of the rounds' own ratios. The
first round warms up and is not counted.

Where pages lie in the machine's memory is luck, stays as it is for as long as a file or an array
lives, and can change a time by much, a peer's as ours. So what is close is measured in several
`PLACES`, one after the other.
"""

from __future__ import annotations

import time
from dataclasses import dataclass, field
from statistics import median
from typing import TYPE_CHECKING, Literal

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator


PLACES = 3


@dataclass(frozen=True)
class Contestant:
    """Who does the work: `run` does it once and returns the seconds that one unit of it took."""

    name: str
    run: Callable[[], float]


@dataclass(frozen=True)
class Bound:
    """What is required of the ratio of two contestants, or of `ours` alone if `peer` is empty.

    `speed`: the peer's time over ours is at least `limit`. `time`: ours over the peer's is at most
    `limit`. `value`: ours itself is at most `limit`. `show`: nothing, the speed ratio is shown.
    """

    ours: str
    peer: str
    kind: Literal["speed", "time", "value", "show"]
    limit: float = 0.0


@dataclass
class Line:
    """One line of the table: a title, the unit that its times are shown in, times by contestant."""

    title: str
    unit: str
    bounds: list[Bound]
    samples: dict[str, list[float]] = field(default_factory=dict)
    remarks: list[str] = field(default_factory=list)

    def ratio(self, bound: Bound) -> float:
        """Return the ratio that `bound` speaks of."""
        ours = self.samples[bound.ours]
        if bound.kind == "value":
            return median(ours)
        pairs = zip(ours, self.samples[bound.peer], strict=True)
        if bound.kind == "time":
            return median(mine / theirs for mine, theirs in pairs)
        return median(theirs / mine for mine, theirs in pairs)

    def met(self, bound: Bound) -> bool | None:
        """Whether `bound` is met; None where nothing is required."""
        match bound.kind:
            case "speed":
                return self.ratio(bound) >= bound.limit
            case "show":
                return None
            case _:
                return self.ratio(bound) <= bound.limit

    def judged(self) -> Iterator[tuple[Bound, float, bool | None]]:
        """Each bound whose contestants were there, its ratio, and whether it is met."""
        for bound in self.bounds:
            if bound.ours in self.samples and (not bound.peer or bound.peer in self.samples):
                yield bound, self.ratio(bound), self.met(bound)


def measure(line: Line, contestants: list[Contestant], rounds: int) -> Line:
    """Let the contestants do the work by turns for `rounds` rounds after one to warm up.

    Samples that the line has already are kept: a line may be measured in several places.
    """
    samples: dict[str, list[float]] = {contestant.name: [] for contestant in contestants}
    for turn in range(rounds + 1):
        for contestant in contestants:
            taken_s = contestant.run()
            if turn > 0:
                samples[contestant.name].append(taken_s)
    for name, seconds in samples.items():
        line.samples.setdefault(name, []).extend(seconds)
    return line


def timed(work: Callable[[], object], units: int = 1) -> float:
    """Seconds that `work()` took for each of its `units`."""
    start = time.perf_counter()
    work()
    return (time.perf_counter() - start) / units
