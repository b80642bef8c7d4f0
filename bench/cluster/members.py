"""Members: how soon a lost one is known, and what many ask of one etcd."""

from __future__ import annotations

import json
import subprocess
import time
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np

import engram
from bench.cluster.objects import homes
from bench.cluster.rig import TTL_S, Rig
from bench.harness import Bound, Line

if TYPE_CHECKING:
    from collections.abc import Iterator

    from bench.setting import Setting

ROOT = Path(__file__).parents[2]
MEMBERS = 1024


def lines(setting: Setting) -> Iterator[Line]:
    """Measure on two nodes of this host, and with an etcd of its own."""
    yield homes(setting)
    with Rig(setting.folder, 2, "64 MiB") as rig:
        yield lost(rig)
    with Rig(setting.folder, 0, "64 MiB") as rig:
        yield from many(setting, rig)


def lost(rig: Rig) -> Line:
    """Time how long a read waits for a node whose processes were all killed."""
    cluster = rig.open(0)
    cluster.put("lost/T", np.arange(8.0), parts=(2,))
    rig.nodes[1].kill()
    start = time.perf_counter()
    while True:
        try:
            cluster["lost/T"][...]
        except engram.NodeAwayError:
            if any(each.state != "serving" for each in cluster.members):
                break
    taken = (time.perf_counter() - start) / TTL_S
    return Line(
        f"a member is lost, to its being away for all, in TTL of {TTL_S:g} s",
        "TTL",
        [Bound("engram", "", "value", 1.2)],
        {"engram": [taken]},
    )


def many(setting: Setting, rig: Rig) -> Iterator[Line]:
    """Have many members of one etcd, whose machines are those that nodes run."""
    count, seconds = (64, 5) if setting.quick else (MEMBERS, 45)
    words = ["cargo", "run", "--quiet", "--release", "-p", "engram-driver"]
    arguments = ["--example", "members", "--", rig.etcd, str(count), "15", str(seconds)]
    told = subprocess.run(  # noqa: S603 - our own words
        [*words, *arguments], cwd=ROOT, check=True, capture_output=True, text=True
    ).stdout
    counts = json.loads(told)
    joins = Line(
        f"transactions of a join, {count:,} at once",
        "",
        [Bound("engram", "", "value", 20)],
        {"engram": [counts["transactions"] / count]},
    )
    joins.remarks.append(
        f"{counts['requests'] / count:.1f} requests each with looks at the map and leases; all "
        f"were members after {counts['in_ms'] / 1000:.1f} s"
    )
    yield joins
    yield Line(
        f"leases of {count:,} members that ended within {seconds} s",
        "",
        [Bound("engram", "", "value", 0)],
        {"engram": [float(counts["left"])]},
    )
