"""Dask: a result of 1 GiB from one worker to another of the node, beside TCP and shared memory.

What is measured begins with a finished result in one worker, and ends with its sum in another. What
the sum itself takes is part of it for all.
"""

from __future__ import annotations

import itertools
import time
from multiprocessing import get_context
from multiprocessing.shared_memory import SharedMemory
from typing import TYPE_CHECKING, Any

import numpy as np
from distributed import Client, LocalCluster, wait

import engram
import engram.dask
from bench.harness import Bound, Contestant, Line, measure
from engram import size

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from multiprocessing.connection import Connection

    from bench.setting import Setting

BYTES = 1 << 30
ITEM = 8


def lines(setting: Setting) -> Iterator[Line]:
    """Send a result from worker to worker, and add it up there."""
    count = setting.scaled(BYTES) // ITEM
    path = setting.folder / "dask"
    with (
        engram.create(path, size="8 GiB") as pool,
        LocalCluster(
            n_workers=2, threads_per_worker=1, dashboard_address=":0", memory_limit=0
        ) as cluster,
        Client(cluster) as client,
    ):
        shared = Shared(count)
        contestants = [
            Contestant("TCP", sent(client, on_heap, count, None)),
            Contestant("engram, copied", sent(client, on_heap, count, pool)),
            Contestant("engram, made there", sent(client, in_pool, count, pool)),
            Contestant("shared_memory", shared.summed),
        ]
        bounds = [
            Bound("engram, copied", "TCP", "speed", 8),
            Bound("engram, made there", "TCP", "speed", 20),
            Bound("engram, made there", "shared_memory", "time", 1.2),
        ]
        line = Line(f"{size.human(count * ITEM)} from worker to worker, and added up", "ms", bounds)
        yield measure(line, contestants, setting.rounds)
        shared.close()
    engram.destroy(path)


def sent(client: Client, make: Callable[[int], Any], count: int, pool: Any) -> Callable[[], float]:
    """Make a result in one worker, and measure its sum in the other."""
    numbers = itertools.count()

    def work() -> float:
        if pool is None and "engram" in installed(client):
            engram.dask.uninstall(client)
        elif pool is not None and "engram" not in installed(client):
            engram.dask.install(client, pool=pool)
        here, there = client.nthreads()
        name = f"{make.__name__}-{pool is None}-{next(numbers)}"
        made = client.submit(make, count, workers=[here], key=f"made-{name}")
        wait(made)
        start = time.perf_counter()
        found = client.submit(added, made, workers=[there], key=f"added-{name}").result()
        taken = time.perf_counter() - start
        check(found, count)
        return taken

    return work


def installed(client: Client) -> list[str]:
    """Return the names of the workers' plug-ins."""
    found: list[str] = client.run_on_scheduler(_plugins)
    return found


def _plugins(dask_scheduler: Any) -> list[str]:
    return list(dask_scheduler.worker_plugins)


def on_heap(count: int) -> np.ndarray[Any, Any]:
    """Make a result as numpy does."""
    return np.ones(count)


def in_pool(count: int) -> np.ndarray[Any, Any]:
    """Make a result in the pool."""
    found = engram.dask.empty(count)
    found[...] = 1
    return found


def added(values: np.ndarray[Any, Any]) -> float:
    """Add up."""
    return float(values.sum())


def check(found: float, count: int) -> None:
    """See that all ones were added up."""
    if found != count:
        raise RuntimeError(f"the sum is {found}, and {count} was to be")


class Shared:
    """Two processes that hand each other shared memory's names: what one would write by hand."""

    def __init__(self, count: int) -> None:
        self._count = count
        self._memory = SharedMemory(create=True, size=count * ITEM)
        np.ndarray(count, buffer=self._memory.buf)[:] = 1
        self._ours, theirs = get_context("spawn").Pipe()
        self._child = get_context("spawn").Process(target=_serve, args=(theirs,), daemon=True)
        self._child.start()

    def summed(self) -> float:
        """Have the other process map and add up what lies here."""
        start = time.perf_counter()
        self._ours.send(self._memory.name)
        found = self._ours.recv()
        taken = time.perf_counter() - start
        check(found, self._count)
        return taken

    def close(self) -> None:
        """End the other process."""
        self._ours.send(None)
        self._child.join()
        self._memory.close()
        self._memory.unlink()


def _serve(pipe: Connection) -> None:
    """Add up what one is told of."""
    while (name := pipe.recv()) is not None:
        memory = SharedMemory(name)
        found = added(np.ndarray(memory.size // ITEM, buffer=memory.buf))
        pipe.send(found)
        memory.close()
