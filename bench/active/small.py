"""Small things: counters, many small objects, and what a call costs that does nothing."""

from __future__ import annotations

import time
from functools import partial
from typing import TYPE_CHECKING

from bench.active import asks
from bench.harness import Bound, Contestant, Line, measure, timed

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence

    from bench.active.way import Fleet, Way

INCREMENTS, OBJECTS, CALLS, QUICK = 1000, 10_000, 1000, 100
FEW_ROUNDS = 2


def repeated(work: Callable[[], object], count: int) -> Callable[[], None]:
    """Return what does the work as many times."""

    def run() -> None:
        for _ in range(count):
            work()

    return run


def lines(fleet: Fleet, rounds: int, *, quick: bool, tell: Callable[[str], None]) -> Iterator[Line]:
    """Measure them."""
    start = time.monotonic()
    ways = fleet.fresh()
    yield increments(ways, QUICK if quick else INCREMENTS, rounds)
    yield objects(ways, QUICK if quick else OBJECTS, min(rounds, FEW_ROUNDS))
    yield calls(ways, QUICK if quick else CALLS, rounds)
    tell(f"small things: {time.monotonic() - start:.1f} s")


def increments(ways: Sequence[Way], count: int, rounds: int) -> Line:
    """Add one to a counter, each time by a call; who stores it has stored it when it returns."""
    bounds = [Bound("engram", "dataclay", "speed", asks.OF_DATACLAY), *asks.of_method("redis")[:2]]
    line = Line(f"{count} increments of a stored counter", "ms", bounds)
    works = [(way.name, repeated(way.counter(), count)) for way in ways]
    contestants = [Contestant(name, partial(timed, work)) for name, work in works]
    return measure(line, contestants, rounds)


def objects(ways: Sequence[Way], count: int, rounds: int) -> Line:
    """Store small objects, one by one."""
    bounds = [
        Bound("engram", "dataclay", "speed", asks.OF_DATACLAY),
        Bound("engram", "redis", "show"),
    ]
    line = Line(f"{count:,} small objects are made persistent", "ms", bounds)
    for way in ways:
        way.make_small(QUICK)
    for _ in range(rounds):
        for way in ways:
            taken_s = timed(partial(way.make_small, count))
            line.samples.setdefault(way.name, []).append(taken_s)
    return line


def calls(ways: Sequence[Way], count: int, rounds: int) -> Line:
    """Call a method that does nothing."""
    bounds = [
        Bound("engram", "", "value", asks.CALL_AT_MOST_S),
        Bound("engram-worker", "", "value", asks.WORKER_CALL_AT_MOST_S),
        *(Bound("engram", other, "show") for other in ("limit", "redis", "dataclay")),
    ]
    line = Line("a call of an empty method", "us", bounds)
    works = [(way.name, repeated(way.nothing(), count)) for way in ways]
    contestants = [Contestant(name, partial(timed, work, count)) for name, work in works]
    return measure(line, contestants, rounds)
