"""Who runs calls of other nodes, in the process that serves a node.

Each call has a number, by which it is begun once, and what it gave is kept until nobody can ask for
it any more. Methods run in worker processes, so none of them holds up what the node serves; workers
start with the first call. What only looks at the pool is done at once.
"""

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
from engram.cluster.performing import QUICK, done, perform
from engram.errors import BusyError
from engram.pool import open as open_pool

if TYPE_CHECKING:
    from engram.pool import Pool

_WAIT_S: Final = 2.0
"""How long an answer waits for the end of its call."""
_WAITING: Final = 24
"""So many answers wait at once: the node's other answers need threads, too."""
_KEPT_S: Final = 300.0
"""How long what a call gave is kept for those who have not heard of it."""
_MOST: Final = 100_000
"""Calls at once, those included that are kept."""


class Runner:
    """Runs calls for a node's server; it is called from the server's threads."""

    def __init__(
        self, opened: Any, facts: tuple[Any, ...], pool: Path, workers: int | None
    ) -> None:
        self._said = (opened, facts)
        self._path = pool
        self._workers = workers
        self._lock = threading.Lock()
        self._calls: OrderedDict[str, tuple[float, Future[Any]]] = OrderedDict()
        self._waiting = threading.BoundedSemaphore(_WAITING)
        self._pool: Pool | None = None
        self._home: Any = None
        self._executor: Executor | None = None
        self._has_ended = False

    def __call__(self, method: str, number: str, body: bytes) -> bytes | bool:
        """Begin a call, ask for it, or give it up: what it gave, or whether it goes on."""
        quick = None
        with self._lock:
            if method == "DELETE":
                self._calls.pop(number, None)
                return False
            found = self._calls.get(number)
            if found is None and method == "GET":
                return False
            if found is None:
                self._forget()
                self._check()
                ask = Ask(*pickle.loads(body))  # noqa: S301 - of a member, as it has proven
                if ask.verb in QUICK:
                    quick = Future[Any]()
                    found = self._calls[number] = (time.monotonic(), quick)
                else:
                    found = self._calls[number] = (time.monotonic(), self._begun(ask, body))
        future = found[1]
        if quick is not None:
            self._do(quick, body)
        if not future.done() and self._waiting.acquire(blocking=False):
            try:
                with suppress(TimeoutError):
                    future.exception(_WAIT_S)
            finally:
                self._waiting.release()
        return _answer(future) if future.done() else True

    def _forget(self) -> None:
        """Forget calls that ended long ago; refuse more than there may be."""
        old = time.monotonic() - _KEPT_S
        while self._calls:
            number, (begun, future) = next(iter(self._calls.items()))
            if begun > old or not future.done():
                break
            del self._calls[number]
        if len(self._calls) >= _MOST:
            raise BusyError(f"{_MOST} calls wait at this node: try it again later")

    def _check(self) -> None:
        """Refuse calls at the end; else open the pool, if it is not; the caller has the lock."""
        if self._has_ended:
            raise BusyError("this node is about to end: try it again")
        if self._home is None:
            self._pool = open_pool(self._path)
            self._home = home_of(self._pool)

    def _begun(self, ask: Ask, body: bytes) -> "Future[Any]":
        """Hand a call to the workers; the caller has the lock."""
        if self._executor is None:
            self._executor = Executor(self._workers)
        crew = self._executor._crew
        task = crew.teller.task(self._home, perform, (*self._said, body))
        call = Call(None, task, f"{ask.name or ask.verb} of {ask.gid:#x}")
        crew.submit(call)
        return call.future

    def _do(self, future: "Future[Any]", body: bytes) -> None:
        """Do at once what needs no worker."""
        opened, facts = self._said
        try:
            opened(*facts)
            future.set_result(done(self._home, body))
        except BaseException as error:  # noqa: BLE001 - it is the caller's
            future.set_exception(error)

    def end(self) -> None:
        """Take no more calls; end the workers when those that run are done."""
        with self._lock:
            self._has_ended = True
            executor, pool = self._executor, self._pool
        if executor is not None:
            executor.shutdown(wait=False, cancel_futures=True)
        if pool is not None:
            pool.close()


def _answer(future: "Future[Any]") -> bytes:
    try:
        return bytes(future.result())
    except BaseException as error:  # noqa: BLE001 - a worker that died, above all
        told = error if isinstance(error, WorkerDiedError) else WorkerDiedError(str(error))
        return pickle.dumps((FAILED, (str(error), pickle.dumps(told))), protocol=5)
