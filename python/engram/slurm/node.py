"""What is done on a node for a job: folders by root, all that is in them by the job's user."""

from __future__ import annotations

from typing import TYPE_CHECKING

from engram.slurm import work
from engram.slurm.folder import prepare, release
from engram.slurm.work import Done, as_user

if TYPE_CHECKING:
    from collections.abc import Callable

    from engram.slurm.plan import Plan


def measure(plan: Plan) -> Done:
    """Look at what is to be brought in, and whether it fits."""
    return as_user(plan, work.measure)


def begin(plan: Plan) -> Done:
    """Make the pools that are not there, and bring in what the job reads."""
    for asked in plan.pools:
        prepare(plan, asked)
    return as_user(plan, work.begin)


def end(plan: Plan) -> Done:
    """Bring out what the job has written."""
    return as_user(plan, work.end)


def drop(plan: Plan) -> Done:
    """Drop the pools, and remove their folders."""
    done = as_user(plan, work.drop)
    for asked in plan.pools:
        release(plan, asked)
    return done


STEPS: dict[str, Callable[[Plan], Done]] = {
    "measure": measure,
    "begin": begin,
    "end": end,
    "drop": drop,
}
