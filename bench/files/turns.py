"""Work of several phases, by turns: each contestant does all of them once in each round."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    Phases = dict[str, float]
    """Seconds for each unit of work, by phase."""

MOUNT = "engram, mount"
NULL = "null fs"
TMPFS = "tmpfs"


def by_turns(
    contestants: Mapping[str, Callable[[], Phases]], rounds: int
) -> dict[str, dict[str, list[float]]]:
    """Give the samples by phase and contestant; a first round warms up, and is not counted."""
    found: dict[str, dict[str, list[float]]] = {}
    for turn in range(rounds + 1):
        for name, run in contestants.items():
            for phase, taken_s in run().items():
                samples = found.setdefault(phase, {}).setdefault(name, [])
                if turn > 0:
                    samples.append(taken_s)
    return found
