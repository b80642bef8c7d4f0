"""The observer of the main job: a process of its own that computes on steps as they appear.

    python -m engram.demo.observer POOL STEPS

It works on the pool's own memory, through read-only views, and writes what it finds into arrays of
the pool, in place. When it has seen every step it prints what it did, as one line of JSON.
"""

from __future__ import annotations

import json
import sys
import time
from typing import TYPE_CHECKING

import numpy as np

import engram
from engram.demo.layout import (
    CHANNEL,
    DIAGNOSTICS,
    QUANTITIES,
    STRIPS,
    array,
    step_path,
    views,
    wait_for,
)
from engram.demo.shallow_water import GRAVITY_M_S2

if TYPE_CHECKING:
    from engram.demo.shallow_water import State


def measure(state: State) -> dict[str, float]:
    """Mass and energy over density and the greatest speed, in SI units, without a copy."""
    h, u, v = state
    cell_m2 = CHANNEL.cell_m**2
    potential = GRAVITY_M_S2 * np.einsum("ij,ij->", h, h)
    kinetic = np.einsum("ij,ij,ij->", h, u, u) + np.einsum("ij,ij,ij->", h, v, v)
    return {
        "mass": float(h.sum()) * cell_m2,
        "energy": 0.5 * float(potential + kinetic) * cell_m2,
        "speed": max(abs(float(end)) for part in (u, v) for end in (part.min(), part.max())),
    }


def observe(pool: engram.Pool, steps: int) -> dict[str, float]:
    """Measure every step of every strip as it appears, into `diagnostics/<strip>/<quantity>`."""
    tables = {
        (strip, quantity): array(pool, f"{DIAGNOSTICS}/{strip}/{quantity}")
        for strip in STRIPS
        for quantity in QUANTITIES
    }
    lags_s, nbytes, copies, seen_unix_s = [], 0, 0, []
    for step in range(steps + 1):
        for strip in STRIPS:
            wait_for(pool, step_path(strip, step))
            state = views(pool, strip, step)
            for quantity, value in measure(state).items():
                tables[strip, quantity][step] = value
            nbytes += sum(field.nbytes for field in state)
            copies += sum(field.flags.owndata or field.flags.writeable for field in state)
            seen_unix_s.append(time.time())
            published = float(pool[step_path(strip, step)].attrs["published_unix_s"])
            lags_s.append(seen_unix_s[-1] - published)
    return {
        "views": 3 * len(lags_s),
        "copies": copies,
        "bytes": nbytes,
        "lag_median_s": float(np.median(lags_s)),
        "seen_unix_s": seen_unix_s[len(seen_unix_s) // 2],
    }


def main() -> None:
    """Open the pool, observe it to the end and print the summary."""
    pool_path, steps = sys.argv[1:]
    with engram.open(pool_path) as pool:
        print(json.dumps(observe(pool, int(steps))))  # noqa: T201 - read by the main job


if __name__ == "__main__":
    main()
