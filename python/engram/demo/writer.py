"""One writer of the main job: a process that computes one strip straight into the pool.

    python -m engram.demo.writer POOL STRIP STEPS LOG

It keeps nothing of its own between steps: it goes on from the last step that the pool has. So
another writer can take over from one that died, and does so by the same loop. The log has one line
when a step's space has been reserved (`begin 12`) and one when the step has been published
(`published 12`), each written only after the fact.
"""

from __future__ import annotations

import os
import sys
import time
from contextlib import ExitStack

import engram
from engram.demo.layout import CHANNEL, RUN, STRIPS, gather, step_path, wait_for
from engram.demo.shallow_water import FIELDS, LONG_NAMES, UNITS, State, Strip, initial


def write(pool: engram.Pool, name: str, steps: int, log: int) -> None:
    """Publish the steps of strip `name` that the pool lacks, up to number `steps`.

    Each step appears whole: its three fields and their attributes, in one batch.
    """
    strip = STRIPS[name]
    done = len(pool.require_group(f"{RUN}/{name}"))
    for step in range(done, steps + 1):
        if step > 0:
            for other in STRIPS:
                wait_for(pool, step_path(other, step - 1))
        with pool.batch():
            compute(pool, name, strip, step, log)
        os.write(log, f"published {step}\n".encode())


def compute(pool: engram.Pool, name: str, strip: Strip, step: int, log: int) -> None:
    """Reserve one step's fields in the pool and compute them there."""
    path = step_path(name, step)
    with ExitStack() as reserved:
        fields = State(
            *(
                reserved.enter_context(
                    pool.allocate(
                        f"{path}/{field}",
                        shape=strip.shape,
                        dtype="f8",
                        dims=("y", "x"),
                        attrs={"units": UNITS[field], "long_name": LONG_NAMES[field]},
                    )
                )
                for field in FIELDS
            )
        )
        os.write(log, f"begin {step}\n".encode())
        if step == 0:
            for field, start in zip(fields, initial(CHANNEL), strict=True):
                field[...] = start[strip.first : strip.last]
        else:
            strip.advance(gather(pool, strip.reach, step - 1), into=fields)
        mass = float(fields.h.sum())
    pool[path].attrs.update(
        {"time_s": step * CHANNEL.step_s, "mass": mass, "published_unix_s": time.time()}
    )


def main() -> None:
    """Open the pool and write one strip."""
    pool_path, name, steps, log_path = sys.argv[1:]
    log = os.open(log_path, os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o600)
    with engram.open(pool_path) as pool:
        write(pool, name, int(steps), log)


if __name__ == "__main__":
    main()
