"""The applications on emulated persistent memory, beside the plain medium.

What is emulated is what the pool copies itself: what it stores, and inputs that `pre_copy` copies.
Views are not slowed down, so what methods do in place takes as long as on the memory beneath.
"""

from __future__ import annotations

import time
from typing import TYPE_CHECKING

from bench.active import applications
from bench.active.applications import WHOLE
from bench.active.drivers import BIG, DRIVERS, QUICK_BIG, QUICK_SMALL, SMALL, STORED, VOLATILE
from bench.active.way import Fleet
from bench.harness import Bound, Line

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from pathlib import Path

NAME = "emulated persistent memory"
FLEET = ("limit", "engram", "engram-pre-copy", "engram-emulated", "engram-emulated-pre-copy")
NOTE = (
    "Rows with *emulated*: only the pool's own copies (what is stored, what `pre_copy` copies) go "
    "at the pace of persistent memory, or at this memory's own if that is slower. Views do not. "
    "The other rows are the plain medium."
)
BOUNDS = (
    Bound("engram", "engram-pre-copy", "show"),
    Bound("engram-emulated", "engram", "show"),
    Bound("engram-emulated", "engram-emulated-pre-copy", "show"),
)


def lines(folder: Path, rounds: int, *, quick: bool, tell: Callable[[str], None]) -> Iterator[Line]:
    """Measure each application with objects of each size, results volatile and stored."""
    fleet = Fleet(FLEET, folder, tell, once=quick)
    try:
        for kind in DRIVERS:
            for sizes in (QUICK_SMALL, QUICK_BIG) if quick else (SMALL, BIG):
                start = time.monotonic()
                drivers = [(way, kind(way, sizes)) for way in fleet.fresh()]
                name = drivers[0][1].name
                found = {
                    (result, WHOLE): Line(
                        f"{NAME}, {name}: {sizes.name} objects, {result}", "ms", [*BOUNDS]
                    )
                    for result in (VOLATILE, STORED)
                }
                applications.race(drivers, found, rounds)
                for _, driver in drivers:
                    driver.clean()
                yield from found.values()
                tell(f"{NAME}, {name}, {sizes.name}: {time.monotonic() - start:.1f} s")
    finally:
        fleet.close()
