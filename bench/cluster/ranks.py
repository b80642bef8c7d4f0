"""Ranks of MPI that store at their own nodes, beside ranks that share a pool and bare sockets."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
from pathlib import Path
from statistics import median
from typing import TYPE_CHECKING

import engram
from bench.cluster import wire
from bench.cluster.rig import TTL_S, Rig
from bench.harness import Bound, Line
from bench.mpi import build

if TYPE_CHECKING:
    from collections.abc import Iterator

    from bench.setting import Setting

PROGRAM = Path(__file__).parent / "programs" / "ranks.cpp"
RANKS = 2
NAME = "engram-rank"
MPIRUN = ("mpirun", "--allow-run-as-root", "--oversubscribe", "--bind-to", "none")
AT_HOST = f'hostname {NAME}$OMPI_COMM_WORLD_RANK && exec "$@"'
"""Each rank is on a host of its own name: so it has the node pool of that one."""


def lines(setting: Setting) -> Iterator[Line]:
    """Measure two ranks, each with a node of its own on this host."""
    if why := _why_not():
        setting.absent["ranks of MPI"] = why
        return
    mib, rounds, launches = (64, 3, 2) if setting.quick else (256, 5, 3)
    prefix = setting.folder / "prefix"
    build.install(prefix)
    program = setting.folder / "ranks"
    words = ["mpicxx", "-std=c++17", "-O2", "-o", str(program), str(PROGRAM)]
    subprocess.run([*words, *build.engram_flags(prefix)], check=True)  # noqa: S603 - our own words
    size = f"{mib * rounds + 64} MiB"
    found: dict[str, list[list[float]]] = {"cluster": [], "pool": []}
    for launch in range(launches):
        folder = setting.folder / f"launch{launch}"
        folder.mkdir()
        with Rig(folder, RANKS, size, NAME) as rig:
            state = _known(folder, rig)
            at_hosts = ("unshare", "--uts", "sh", "-c", AT_HOST, "sh")
            found["cluster"] += _run(
                [*at_hosts, str(program), "engram://bench"], mib, rounds, state
            )
            for number in range(RANKS):
                shutil.rmtree(rig.pool(number), ignore_errors=True)
        pool = setting.folder / "alone"
        engram.create(pool, f"{RANKS * mib * rounds + 64} MiB").close()
        found["pool"] += _run([str(program), str(pool)], mib, rounds, {})
        engram.destroy(pool)
    yield _stored(mib, found)
    yield _loaded(mib, rounds, found)


def _stored(mib: int, found: dict[str, list[list[float]]]) -> Line:
    line = Line(
        f"{RANKS} ranks store {mib} MiB each, into space that nobody has touched",
        "ms",
        [
            Bound("ranks of a cluster", "ranks of a pool", "speed", 0.95),
            Bound("with the publication", "ranks of a pool", "show"),
        ],
    )
    line.samples = {
        "ranks of a cluster": [store for store, _, _ in found["cluster"]],
        "with the publication": [store + publish for store, publish, _ in found["cluster"]],
        "ranks of a pool": [store for store, _, _ in found["pool"]],
    }
    line.remarks.append("a publication sums up all parts, and publishes them in one transaction")
    return line


def _loaded(mib: int, rounds: int, found: dict[str, list[list[float]]]) -> Line:
    rates = wire.rates(mib, rounds)
    loads = [load for _, _, load in found["cluster"]]
    bounds = [
        Bound("load", "bare sendfile and recv", "speed", 0.7),
        Bound("load", "the same to memory of malloc", "show"),
    ]
    samples = {
        "load": [median(loads)],
        "bare sendfile and recv": [mib / 1024 / rates["bare"]],
        "the same to memory of malloc": [mib / 1024 / rates["bare to malloc's"]],
    }
    line = Line(f"a rank loads {mib} MiB that another node has", "ms", bounds, samples)
    line.remarks.append(
        "a rank loads to memory of malloc, which begins 16 bytes behind a page: there the kernel "
        "copies three times as slowly as to mapped memory, to which bare loops receive else"
    )
    return line


def _run(command: list[str], mib: int, rounds: int, state: dict[str, str]) -> list[list[float]]:
    done = subprocess.run(  # noqa: S603 - our own words
        [*MPIRUN, "-n", str(RANKS), *command, str(mib), str(rounds)],
        # A rank that waits for another leaves its processor to those that work.
        env={**os.environ, "OMPI_MCA_mpi_yield_when_idle": "1", **state},
        capture_output=True,
        text=True,
        check=False,
    )
    if done.returncode != 0:
        raise OSError(f"ranks ended with {done.returncode}: {done.stdout}{done.stderr}")
    return [[float(word) for word in line.split()] for line in done.stdout.splitlines()]


def _known(folder: Path, rig: Rig) -> dict[str, str]:
    """Write what ranks find the cluster by: a node pool for each of their hosts."""
    state = folder / "ranks-state"
    place = state / "engram" / "clusters" / "bench.json"
    place.parent.mkdir(parents=True, exist_ok=True)
    pools = {f"{NAME}{number}": str(rig.pool(number)) for number in range(RANKS)}
    said = {"name": "bench", "etcd": [rig.etcd], "ttl": TTL_S, "tls": None, "pools": pools}
    place.write_text(json.dumps(said), encoding="utf-8")
    return {"XDG_STATE_HOME": str(state)}


def _why_not() -> str:
    missing = [name for name in ("mpicxx", "mpirun", "unshare") if shutil.which(name) is None]
    if missing:
        return f"{' and '.join(missing)} are not installed"
    return "" if os.geteuid() == 0 else "only root gives ranks hosts of their own names"
