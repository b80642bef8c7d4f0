"""Who runs calls of other nodes, in the process that serves a node.

Each call has a number, by which it is begun once, and what it gave is kept until nobody can ask for
it any more. Methods run in worker processes, so none of them holds up what the node serves; workers
start with the first call. What only looks at the pool is done at once.

Calls that come from calls have other workers than these (`calling.py` says why): half as many for
each step of depth, and one at least, so all of them are at most twice as many, and one a step.
"""

import os
import pickle
import threading
import time
from collections import OrderedDict
from concurrent.futures import Future
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from engram.active.errors import WorkerDiedError
from engram.active.stored.home import home_of
from engram.active.workers.call import Call
from engram.active.workers.executor import Executor
from engram.cluster.calling import FAILED, Ask
from engram.cluster.performing import LOOKS, QUICK, done, perform
from engram.errors import BusyError
from engram.pool import open as open_pool

if TYPE_CHECKING:
    from engram.pool import Pool

_WAIT_S: Final = 2.0
"""How long an answer waits for the end of its call."""
_WAITING: Final = 24
"""So many answers wait at once: the node's other answers need threads, too."""
_KEPT_S: Final = 300.0
"""How long after its end it is kept what a call gave, if nobody says that it came."""
_KEPT_BYTES: Final = 1 << 30
"""So much of that is kept at most; the oldest goes first."""
_MOST: Final = 10_000
"""Calls that run or wait at once."""


class Runner:
    """Runs calls for a node's server; it is called from the server's threads."""

    def __init__(
        self, opened: Any, facts: tuple[Any, ...], pool: Path, workers: int | None
    ) -> None:
        self._said = (opened, facts)
        self._path = pool
        self._workers = workers
        self._lock = threading.Lock()
        self._calls: dict[str, Future[Any]] = {}
        self._ended: OrderedDict[str, tuple[float, int]] = OrderedDict()
        """Of calls that have ended, in that order, when, and how many bytes they gave."""
        self._bytes = 0
        self._waiting = threading.BoundedSemaphore(_WAITING)
        self._pool: Pool | None = None
        self._home: Any = None
        self._executors: dict[int, Executor] = {}
        """The workers by the depth of the calls that they run."""
        self._has_ended = False

    def __call__(self, method: str, number: str, body: bytes) -> bytes | bool:
        """Begin a call, ask for it, or give it up: what it gave, or whether it goes on."""
        if method == "POST":
            ask = Ask(*pickle.loads(body))  # noqa: S301 - of a member, as it has proven
            if ask.verb in LOOKS:
                with self._lock:
                    self._check(ask.ended)
                return self._done(ask)
        with self._lock:
            if method == "DELETE":
                self._forget(number)
                return False
            future = self._calls.get(number)
            if future is None and method == "GET":
                return False
            begins = future is None
            if future is None:
                self._check(ask.ended)
                future = self._calls[number] = (
                    Future() if ask.verb in QUICK else self._begun(ask, body)
                )
        if begins:
            future.add_done_callback(lambda done: self._has_given(number, done))
            if ask.verb in QUICK:
                try:
                    future.set_result(self._done(ask))
                except Exception as error:  # noqa: BLE001 - it is the caller's to see
                    future.set_exception(error)
        if not future.done() and self._waiting.acquire(blocking=False):
            try:
                with suppress(TimeoutError):
                    future.exception(_WAIT_S)
            finally:
                self._waiting.release()
        return _answer(future) if future.done() else True

    def _has_given(self, number: str, future: "Future[Any]") -> None:
        """Note the end of a call; forget what ended long ago, and what is too much."""
        size = 0 if future.exception() is not None else len(future.result())
        now = time.monotonic()
        with self._lock:
            if number not in self._calls:
                return
            self._ended[number] = (now, size)
            self._bytes += size
            while self._ended:
                oldest, (ended, _) = next(iter(self._ended.items()))
                if ended > now - _KEPT_S and (self._bytes <= _KEPT_BYTES or oldest == number):
                    break
                self._forget(oldest)

    def _forget(self, number: str) -> None:
        """Forget a call; the caller has the lock."""
        self._calls.pop(number, None)
        _, size = self._ended.pop(number, (0.0, 0))
        self._bytes -= size

    def _check(self, heard: list[str]) -> None:
        """Refuse calls at the end, and too many; forget those whose ends have been heard of.

        The pool is opened if it is not yet. The caller has the lock.
        """
        for number in heard:
            if number in self._ended:
                self._forget(number)
        if self._has_ended:
            raise BusyError("this node is about to end: try it again")
        if len(self._calls) - len(self._ended) >= _MOST:
            raise BusyError(f"{_MOST} calls run at this node: try it again later")
        if self._home is None:
            self._pool = open_pool(self._path)
            self._home = home_of(self._pool)

    def _begun(self, ask: Ask, body: bytes) -> "Future[Any]":
        """Hand a call to the workers; the caller has the lock."""
        executor = self._executors.get(ask.depth)
        if executor is None:
            most = self._workers or len(os.sched_getaffinity(0))
            executor = self._executors[ask.depth] = Executor(max(1, most >> ask.depth))
        crew = executor._crew
        task = crew.teller.task(self._home, perform, (*self._said, body))
        call = Call(None, task, f"{ask.name or ask.verb} of {ask.gid:#x}")
        crew.submit(call)
        return call.future

    def _done(self, ask: Ask) -> bytes:
        """Do at once what needs no worker."""
        opened, facts = self._said
        opened(*facts)
        return done(self._home, ask)

    def end(self) -> None:
        """Take no more calls; end the workers when those that run are done."""
        with self._lock:
            self._has_ended = True
            executors, pool = list(self._executors.values()), self._pool
        for executor in executors:
            executor.shutdown(wait=False, cancel_futures=True)
        if pool is not None:
            pool.close()


def _answer(future: "Future[Any]") -> bytes:
    try:
        return bytes(future.result())
    except BaseException as error:  # noqa: BLE001 - a worker that died, above all
        told = error if isinstance(error, WorkerDiedError) else WorkerDiedError(str(error))
        return pickle.dumps((FAILED, (str(error), pickle.dumps(told))), protocol=5)
