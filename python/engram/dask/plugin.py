"""What a worker does so that arrays of a pool travel by reference.

A worker that is asked for results by another (`get_data`) knows who asks. Once for each worker and
namespace, it asks back whether that one finds the namespace, too: the same files, by the kernel's
own numbers for them, not by a path that may lead elsewhere there. If so, the answer refers to
arrays on memory of that namespace; else, and to whoever is no worker with this plug-in, it has
their bytes.

**What keeps the memory between the two.** The sender holds what it sends until the other has said
that it has the message, which it does once it has resolved it and has claims of its own; that is
distributed's own protocol. The object may be deleted in between by a third. Then the receiver finds
nothing, breaks the connection off and asks again, as distributed does when a connection is lost,
and the sender gives bytes to that worker for a while.

**Results that are left in a pool.** With a pool, a large result that lies elsewhere is put there
when it is first asked for, by a thread beside the loop, and takes the place of what the worker
holds: so it is put once, and what it was copied from goes.
"""

from __future__ import annotations

import asyncio
import logging
import os
import time
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
from distributed import WorkerPlugin
from tornado.ioloop import PeriodicCallback

from engram.dask import family, janitor
from engram.dask.reference import LEAST, Home, home_of, refer
from engram.dask.scratch import Scratch
from engram.errors import EngramError
from engram.paths import POOL_FILE

if TYPE_CHECKING:
    from collections.abc import Collection

    from distributed import Worker
    from distributed.comm import Comm

NAME = "engram"
GET = "get_data"
REACH = "engram_reach"

_MISTRUST_SECONDS = 30.0
_ASK_AGAIN_SECONDS = 30.0
_SWEEP_SECONDS = 10.0
_BOOT_ID = Path("/proc/sys/kernel/random/boot_id")

logger = logging.getLogger("engram.dask")

_workers: dict[str, PoolPlugin] = {}
"""The plug-ins of workers in this process, by the workers' addresses."""


def here(address: str) -> PoolPlugin | None:
    """Give the plug-in of a worker in this process."""
    return _workers.get(address)


class PoolPlugin(WorkerPlugin):  # type: ignore[misc]  # of a library without types
    """References to pool memory in what a worker sends, and results in a pool."""

    name = NAME
    idempotent = False

    def __init__(self, pool: str | None, above: int, size: int | None) -> None:
        self.pool = pool
        self.above = above
        self.size = size
        self.scratch: Scratch | None = None
        self.refused: str | None = None

    def __getstate__(self) -> dict[str, Any]:
        return {"pool": self.pool, "above": self.above, "size": self.size}

    def __setstate__(self, state: dict[str, Any]) -> None:
        self.__init__(**state)  # type: ignore[misc]  # made anew in each worker

    def setup(self, worker: Worker) -> None:
        """Begin, in a worker."""
        family.register()
        self._worker = worker
        self._reached: dict[tuple[str, Home], tuple[bool, float]] = {}
        self._mistrusted: dict[str, float] = {}
        self._putting: dict[Any, asyncio.Task[None]] = {}
        self._threads = ThreadPoolExecutor(1, "engram-dask-put")
        if self.pool is not None:
            try:
                self.scratch = Scratch(self.pool, self.size)
            except (EngramError, OSError) as error:
                self.refused = str(error)
                logger.warning("results of %s stay in its memory: %s", worker.address, error)
        self._original = worker.handlers[GET]
        worker.handlers[GET] = self.get_data
        worker.handlers[REACH] = self.reach
        _workers[worker.address] = self
        self._sweeper = PeriodicCallback(self._sweep, _SWEEP_SECONDS * 1000, jitter=0.5)
        self._sweeper.start()

    def teardown(self, worker: Worker) -> None:
        """End, in a worker."""
        self._sweeper.stop()
        if worker.handlers.get(GET) == self.get_data:
            worker.handlers[GET] = self._original
        worker.handlers.pop(REACH, None)
        _workers.pop(worker.address, None)
        self._threads.shutdown(wait=True)
        scratch, self.scratch = self.scratch, None
        if scratch is not None:
            janitor.settle()
            with suppress(EngramError, OSError):
                scratch.close()

    def _sweep(self) -> None:
        if self.scratch is not None:
            janitor.later(self.scratch.sweep)

    async def get_data(
        self,
        comm: Comm,
        keys: Collection[Any],
        who: str | None = None,
        serializers: list[str] | None = None,
    ) -> Any:
        """Answer a worker that asks for results."""
        homes: frozenset[Home] = frozenset()
        if who is not None and serializers is None and self._trusts(who):
            try:
                homes = await self._prepared(keys, who)
            except Exception:
                logger.exception("%s is sent bytes", who)
        token = family.allowed.set(homes)
        try:
            order = list(family.ORDER) if homes else serializers
            return await self._original(comm, keys, who, order)
        except OSError:
            if homes:
                self._mistrusted[who or ""] = time.monotonic() + _MISTRUST_SECONDS
                for known in [known for known in self._reached if known[0] == who]:
                    del self._reached[known]
            raise
        finally:
            family.allowed.reset(token)

    def _trusts(self, who: str) -> bool:
        """Whether a worker has not just failed to find what it was referred to."""
        until = self._mistrusted.get(who)
        if until is not None and until < time.monotonic():
            del self._mistrusted[who]
            until = None
        return until is None

    async def _prepared(self, keys: Collection[Any], who: str) -> frozenset[Home]:
        """Give the namespaces to which an answer may refer; put into the pool what shall be."""
        data = self._worker.data
        values = {key: data[key] for key in keys if key in data}
        homes = set()
        for value in values.values():
            for array in family.arrays_in(value):
                if array.nbytes >= LEAST and (home := home_of(array)) is not None:
                    homes.add(home)
        large = [key for key, value in values.items() if self._is_to_put(value)]
        if large and self.scratch is not None:
            homes.add(self.scratch.home)
        found = frozenset([home for home in homes if await self._is_reached(who, home)])
        if self.scratch is not None and self.scratch.home in found:
            for key in large:
                await self._put(key, values[key])
        return found

    def _is_to_put(self, value: Any) -> bool:
        """Whether a value is a large array of this process's own memory, or nobody's by now."""
        return (
            self.scratch is not None
            and type(value) is np.ndarray
            and value.nbytes >= max(self.above, LEAST)
            and not value.dtype.hasobject
            and 0 not in value.strides
            and refer(value) is None
        )

    async def _put(self, key: Any, value: np.ndarray[Any, Any]) -> None:
        """Put a result into the pool, once, however many ask for it."""
        task = self._putting.get(key)
        if task is None:
            task = asyncio.create_task(self._put_now(key, value))
            self._putting[key] = task
            task.add_done_callback(lambda _: self._putting.pop(key, None))
        await asyncio.shield(task)

    async def _put_now(self, key: Any, value: np.ndarray[Any, Any]) -> None:
        scratch = self.scratch
        if scratch is None:
            return
        loop = asyncio.get_running_loop()
        kept = await loop.run_in_executor(self._threads, scratch.keep, value)
        data = self._worker.data
        if kept is not None and key in data and data[key] is value:
            data[key] = kept

    async def _is_reached(self, who: str, home: Home) -> bool:
        """Whether a worker finds a namespace."""
        known, until = self._reached.get((who, home), (False, 0.0))
        if known or time.monotonic() < until:
            return known
        try:
            asked = self._worker.rpc(who)
            known = await getattr(asked, REACH)(home=list(home), marks=_marks(home)) is True
        except Exception as error:  # noqa: BLE001 - whatever it is, it gets bytes
            logger.info("%s is sent bytes, as it cannot be asked: %s", who, error)
            known = False
        self._reached[who, home] = known, time.monotonic() + _ASK_AGAIN_SECONDS
        return known

    async def reach(self, home: list[str], marks: list[Any]) -> bool:
        """Answer whether this worker finds a namespace: the one that is meant."""
        loop = asyncio.get_running_loop()
        return await loop.run_in_executor(None, _finds, Home(*home), list(marks))


def _finds(home: Home, marks: list[Any]) -> bool:
    """Whether this process can open a namespace, and it is the one with these marks."""
    try:
        home.open()
        return _marks(home) == marks
    except (EngramError, OSError):
        return False


def _marks(home: Home) -> list[Any]:
    """Return what no two pools have in common, were they copies at the same path of two nodes."""
    about = (Path(home.path) / POOL_FILE).stat()
    boot = _BOOT_ID.read_text(encoding="ascii").strip()
    return [boot, about.st_dev, about.st_ino, os.getuid()]
