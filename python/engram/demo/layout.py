"""Where the main job's processes find each other's work in the pool, and how they wait for it."""

from __future__ import annotations

import time
from typing import TYPE_CHECKING

import numpy as np

import engram
from engram.demo.shallow_water import FIELDS, Channel, State, Strip, strips

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

CHANNEL = Channel()
STRIPS = dict(zip(("south", "north"), strips(CHANNEL, 2), strict=True))

RUN = "jet"
DIAGNOSTICS = "diagnostics"
QUANTITIES = {"mass": "m3", "energy": "m5 s-2", "speed": "m s-1"}

POLL_S = 0.0005
PATIENCE_S = 120.0


def step_path(strip: str, step: int) -> str:
    """Return the group of one published step of one strip, such as `jet/south/step-0042`."""
    return f"{RUN}/{strip}/step-{step:04d}"


def wait_for(members: Mapping[str, object], path: str) -> None:
    """Return when `path` is a member.

    Raises
    ------
    TimeoutError
        If it is not there after `PATIENCE_S` seconds.

    """
    wait_until(lambda: path in members, f"{path} to be published")


def wait_until(
    happened: Callable[[], bool], what: str, progress: Callable[[], object] = lambda: None
) -> None:
    """Return when `happened()`. A machine may be slow, as long as `progress()` changes.

    Raises
    ------
    TimeoutError
        If neither has come about for `PATIENCE_S` seconds; the message names `what`.

    """
    last, deadline = progress(), time.monotonic() + PATIENCE_S
    while not happened():
        if (now := progress()) != last:
            last, deadline = now, time.monotonic() + PATIENCE_S
        if time.monotonic() > deadline:
            message = f"nothing went on for {PATIENCE_S:.0f} s towards {what}: look into logs/"
            raise TimeoutError(message)
        time.sleep(POLL_S)


def views(pool: engram.Pool, strip: str, step: int) -> State:
    """Return the fields of one published step, as read-only arrays on the pool's own memory."""
    path = step_path(strip, step)
    return State(*(np.asarray(array(pool, f"{path}/{field}")) for field in FIELDS))


def array(pool: engram.Pool, path: str) -> engram.Array:
    """Return the array at `path`.

    Raises
    ------
    TypeError
        If what is there is no array.

    """
    found = pool[path]
    if not isinstance(found, engram.Array):
        message = f"{path} is {found!r}, not an array"
        raise TypeError(message)
    return found


def gather(pool: engram.Pool, rows: slice, step: int) -> State:
    """Rows of the channel at one step, gathered from the strips that hold them."""
    parts = []
    for name, strip in STRIPS.items():
        first, last = max(rows.start, strip.first), min(rows.stop, strip.last)
        if first < last:
            fields = views(pool, name, step)
            parts.append([field[first - strip.first : last - strip.first] for field in fields])
    return State(*(np.concatenate(pieces) for pieces in zip(*parts, strict=True)))


def whole() -> Strip:
    """Return the channel as one strip."""
    return strips(CHANNEL, 1)[0]
