"""The applications' lines: every way by turns, the whole of it and the methods alone."""

from __future__ import annotations

import gc
import time
from typing import TYPE_CHECKING

import numpy as np

from bench.active import asks
from bench.active.drivers import (
    BIG,
    DRIVERS,
    IN_PLACE,
    QUICK_BIG,
    QUICK_SMALL,
    SMALL,
    VOLATILE,
)
from bench.harness import Bound, Line

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from bench.active.drivers import Driver
    from bench.active.kernels import Values
    from bench.active.way import Fleet, Way

WHOLE, METHOD = "application", "method alone"

MORE = 5
"""How many times as many rounds as asked for there are at most."""

ENOUGH_S = 15.0
"""Seconds after which there are no more rounds than asked for."""


class WrongError(Exception):
    """Two ways do not find the same."""


def lines(fleet: Fleet, rounds: int, *, quick: bool, tell: Callable[[str], None]) -> Iterator[Line]:
    """Measure each application with objects of each size."""
    for kind in DRIVERS:
        for sizes in (QUICK_SMALL, QUICK_BIG) if quick else (SMALL, BIG):
            start = time.monotonic()
            ways = fleet.fresh()
            drivers = [(way, kind(way, sizes)) for way in ways]
            if not drivers:
                return
            about = f"{drivers[0][1].name}, {sizes.name} objects"
            yield from measured(drivers, about, rounds)
            for way, driver in drivers:
                driver.clean()
                way.spent()
            sizes_there = drivers[0][1].describe()
            tell(f"{about} ({sizes_there}): {time.monotonic() - start:.1f} s")


def measured(drivers: list[tuple[Way, Driver]], about: str, rounds: int) -> list[Line]:
    """Let all drivers run by turns, with each kind of result."""
    first = drivers[0][1]
    found: dict[tuple[str, str], Line] = {}
    for result in first.results:
        title = f"{about}, {result} result: "
        bounds = asks.of_application(first.name, result)
        found[result, WHOLE] = Line(title + WHOLE, "ms", bounds)
        found[result, METHOD] = Line(title + METHOD, "ms", asks.of_method("limit", "redis"))
    race(drivers, found, rounds, more=MORE if rounds > 1 else 1)
    lines = list(found.values())
    if IN_PLACE in first.results:
        lines.append(in_place(found[IN_PLACE, WHOLE], found[VOLATILE, WHOLE], about))
    return lines


def race(
    drivers: list[tuple[Way, Driver]],
    found: dict[tuple[str, str], Line],
    rounds: int,
    *,
    more: int = 1,
) -> None:
    """Fill lines, which are known by result and by which time it is; the first round warms up.

    Where rounds are short there are up to `more` times as many, as each says less.
    """
    begin = time.monotonic()
    for turn in range(more * rounds + 1):
        if turn > rounds and time.monotonic() - begin > ENOUGH_S:
            return
        for result in dict.fromkeys(result for result, _ in found):
            expected: Values | None = None
            for way, driver in drivers:
                whole_s, method_s, answer = once(way, driver, result, look=turn == 0)
                if turn > 0:
                    for time_of, taken_s in ((WHOLE, whole_s), (METHOD, method_s)):
                        if line := found.get((result, time_of)):
                            line.samples.setdefault(way.name, []).append(taken_s)
                elif expected is None:
                    expected = answer
                elif answer is None or not np.allclose(answer, expected):
                    title = found[result, WHOLE].title
                    raise WrongError(f"{way.name} finds something else: {title}")


def once(
    way: Way, driver: Driver, result: str, *, look: bool
) -> tuple[float, float, Values | None]:
    """Run a driver; seconds of it all, seconds of its methods, and what it found, if asked."""
    way.spent()
    gc.collect()
    start = time.perf_counter()
    got = driver.run(result)
    whole_s = time.perf_counter() - start
    method_s = way.spent()
    answer = driver.answer(got) if look else None
    del got
    driver.clean()
    return whole_s, method_s, answer


def in_place(changed: Line, volatile: Line, about: str) -> Line:
    """Compare what Engram changes in place with what it returns."""
    names = [name for name in changed.samples if name.startswith("engram")]
    bound = Bound("engram", "engram, volatile", "time", asks.IN_PLACE_AT_MOST)
    if BIG.name not in about:
        bound = Bound("engram", "engram, volatile", "show")
    line = Line(f"{about}: in place beside volatile", "ms", [bound])
    for name in names:
        line.samples[name] = changed.samples[name]
        line.samples[f"{name}, volatile"] = volatile.samples[name]
    return line
