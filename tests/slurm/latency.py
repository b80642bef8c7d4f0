"""How long an empty job takes from its submission to its start, beside a script that does nothing.

Both ask for a pool; only one makes it. Jobs of the two clusters come in turns.
"""

from __future__ import annotations

import statistics
import time
from contextlib import ExitStack
from typing import Any

from own_slurm import Cluster, wait_for

NOTHING = """
for _, name in ipairs({ "job_process", "job_teardown", "setup", "data_in", "test_data_in",
      "real_size", "paths", "pre_run", "post_run", "data_out", "test_data_out", "get_status" }) do
   _G["slurm_bb_" .. name] = function() return slurm.SUCCESS end
end
function slurm_bb_pools()
   return slurm.SUCCESS, '{"pools":[{"id":"engram","quantity":8589934592,"granularity":1}]}'
end
"""
"""A burst_buffer.lua that only returns success."""


def seconds_to_start(slurm: Cluster, number: int) -> float:
    """Submit an empty job, and return after how many seconds it started."""
    begun = time.time()
    job = slurm.submit(["pool=engram capacity=32M"], "date +%s.%N")
    wait_for(f"job {number} has run", lambda: slurm.output(job).endswith("\n"))
    started = float(slurm.output(job))
    slurm.wait(job, "COMPLETED")
    slurm.wait_until_torn_down(job)
    return started - begun


def measure(rounds: int) -> dict[str, Any]:
    """Return the seconds of each round, their medians, and how far those are apart."""
    found: dict[str, list[float]] = {"engram": [], "nothing": []}
    with ExitStack() as stack:
        clusters = {
            "engram": stack.enter_context(Cluster()),
            "nothing": stack.enter_context(Cluster(script=NOTHING)),
        }
        for number in range(rounds + 1):
            for name, slurm in clusters.items():
                seconds = seconds_to_start(slurm, number)
                if number:  # the first one warms up
                    found[name].append(round(seconds, 3))
    medians = {name: round(statistics.median(each), 3) for name, each in found.items()}
    apart = round(medians["engram"] - medians["nothing"], 3)
    return {"seconds": found, "medians": medians, "more": apart}
