"""A part that is pulled into a pool, beside loops over sockets that do nothing else."""

from __future__ import annotations

import re
import subprocess
from pathlib import Path
from statistics import median
from typing import TYPE_CHECKING

from bench.cluster import transports
from bench.harness import Bound, Line

if TYPE_CHECKING:
    from collections.abc import Iterator

    from bench.setting import Setting

ROOT = Path(__file__).parents[2]


def rates(mib: int, rounds: int) -> dict[str, float]:
    """Run the example of the crate that has the server and the puller: GiB/s, by what was run."""
    words = ["cargo", "run", "--quiet", "--release", "-p", "engram-wire"]
    told = subprocess.run(  # noqa: S603 - our own words
        [*words, "--example", "throughput", "--", str(mib), str(rounds)],
        cwd=ROOT,
        check=True,
        capture_output=True,
        text=True,
    ).stdout
    # Memory that was touched before is what a pool has after its first use.
    told = told.partition("memory untouched")[0]
    found = re.findall(r"^  (.+?) +([0-9.]+) GiB/s", told, re.MULTILINE)
    return {name.strip(): float(rate) for name, rate in found}


def lines(setting: Setting) -> Iterator[Line]:
    """Compare a pull with loops over sockets, and with how others bring arrays along."""
    mib, rounds = (128, 3) if setting.quick else (1024, 7)
    seconds = {name: mib / 1024 / rate for name, rate in rates(mib, rounds).items() if rate}
    nbytes = mib << 20
    for name, peer in (
        ("Arrow Flight, copied", transports.flight(setting.folder, nbytes)),
        ("Dask, worker to worker", transports.workers(nbytes)),
    ):
        try:
            with peer as get:
                get()
                seconds[name] = median(get() for _ in range(rounds))
        except ImportError as why:
            setting.absent[name] = str(why)
    title = f"a part of {mib} MiB pulled into mapped memory, with its checksum"
    pairs = [
        Bound("pull", "bare", "speed", 0.9),
        Bound("pull", "bare with sum", "show"),
        Bound("pull", "Arrow Flight, copied", "speed", 2),
        Bound("pull", "Dask, worker to worker", "speed", 2),
        Bound("TLS pull", "OpenSSL 128", "speed", 0.8),
    ]
    bounds = [bound for bound in pairs if {bound.ours, bound.peer} <= seconds.keys()]
    line = Line(title, "ms", bounds, {name: [taken] for name, taken in seconds.items()})
    line.remarks.append("medians over all rounds: `cargo run --example throughput` prints more")
    yield line
