"""How fast copying goes: into pages of a pool that are new, that are there, into private memory.

It takes a fraction of a second. One run on a machine that others use says little; `make bench`
measures a pool.
"""

from __future__ import annotations

import time
from typing import TYPE_CHECKING

import numpy as np

from engram.cli.doctor.finding import Finding, Verdict
from engram.size import human

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    import engram
    from engram.cli.doctor.place import Place

_ROUNDS = 3
_PAR = 0.5
"""Copying into the pool's pages should be at least this part of copying into private ones."""


def findings(place: Place, pool: engram.Pool, nbytes: int) -> Iterator[Finding]:
    """Yield the speeds of copying so many bytes into a small pool at this place."""
    source = np.full(nbytes, 7, dtype=np.uint8)
    private = np.full(nbytes, 1, dtype=np.uint8)
    own = max(_rate(nbytes, lambda: np.copyto(private, source)) for _ in range(_ROUNDS))
    kept: list[engram.Array] = []
    taking = _rate(nbytes, lambda: kept.append(pool.create_array("a", shape=nbytes, dtype="u1")))
    shared = kept[0].view("r+")
    cold = _rate(nbytes, lambda: np.copyto(shared, source))
    warm = max(_rate(nbytes, lambda: np.copyto(shared, source)) for _ in range(_ROUNDS))
    told = (
        f"{_shown(warm)} into memory of the pool, {_shown(cold)} the first time; "
        f"{_shown(own)} into private memory"
    )
    numbers: dict[str, object] = {
        "bytes": nbytes,
        "warm": warm,
        "cold": cold,
        "private": own,
        "take": taking,
    }
    verdict, remedy = Verdict.good, ""
    if warm < _PAR * own:
        verdict, remedy = Verdict.fair, "measure again when the machine is idle"
    elif cold < _PAR * warm:
        remedy = "engram create --prefault pays for the first time at once"
    yield Finding("copying", told, verdict, remedy, numbers)
    told = f"{_shown(taking)} ({human(nbytes)} of zeros)"
    yield Finding("new space", told)
    if not place.in_memory:
        yield Finding("flushing", f"{_shown(_rate(nbytes, kept[0].flush))} to the disk")


def _rate(nbytes: int, work: Callable[[], object]) -> float:
    """Return the bytes a second that some work on so many bytes makes."""
    start = time.perf_counter()
    work()
    return nbytes / max(time.perf_counter() - start, 1e-9)


def _shown(rate: float) -> str:
    return f"{rate / 1e9:.1f} GB/s" if rate > 1e8 else f"{rate / 1e6:.0f} MB/s"  # noqa: PLR2004 - 100 MB/s
