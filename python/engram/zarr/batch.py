"""Batches of a store: whatever thread zarr works in, all of it in one commit.

A batch of a pool belongs to the thread that began it, and zarr asks its stores in a thread of its
own. So a store's batch has a thread, too: it begins the pool's batch, does all that the store is
asked to do while the block runs, and ends it. Reads are done there as well, and see what was
written.

The batch belongs to the store and to those that `with_read_only` has made of it: all threads that
use them meanwhile take part, such as dask's. When a write fails, zarr does not wait for the others
that it has begun. They would come when the batch has ended, and be seen by all. So what was begun
inside the block, which its context tells, is refused after it.
"""

from __future__ import annotations

import os
import threading
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from contextvars import ContextVar
from typing import TYPE_CHECKING, Any, Self, TypeVar

from engram.batch import Batch
from engram.errors import BusyError

if TYPE_CHECKING:
    from collections.abc import Callable
    from contextvars import Token
    from types import TracebackType

    from engram import _engram

T = TypeVar("T")


class Running:
    """A batch that is running, and the thread that does its work."""

    def __init__(self, slot: Slot, above: Running | None) -> None:
        self.slot = slot
        self.begun_by = threading.get_ident()
        self.pid = os.getpid()
        self.depth = 0
        self.has_ended = False
        self.above = above
        self._thread = ThreadPoolExecutor(1, thread_name_prefix="engram-zarr-batch")

    def call(self, work: Callable[..., T], *given: Any) -> T:
        """Do something in the batch's thread."""
        try:
            future = self._thread.submit(work, *given)
        except RuntimeError:  # it takes nothing any more
            raise _ended() from None
        return future.result()

    def end(self) -> None:
        """Let the thread go, once it has done what it was given."""
        self.has_ended = True
        self._thread.shutdown()


_INSIDE: ContextVar[Running | None] = ContextVar("engram_zarr_batch", default=None)
"""The innermost batch in whose block something was begun, of whatever store."""


class Slot:
    """The batch that a store runs, if it runs one; shared by the stores that are made of it."""

    __slots__ = ("_lock", "running")

    def __init__(self) -> None:
        self.running: Running | None = None
        self._lock = threading.Lock()

    def do(self, work: Callable[..., T], *given: Any) -> T:
        """Do something with the pool, in the batch if there is one.

        Raises
        ------
        BusyError
            If it was begun in a batch that has ended.

        """
        inside = _INSIDE.get()
        while inside is not None:
            if inside.has_ended and inside.slot is self and inside.pid == os.getpid():
                raise _ended()
            inside = inside.above
        running = self.here()
        return work(*given) if running is None else running.call(work, *given)

    def here(self) -> Running | None:
        """Return the batch that runs; a child has no part in its parent's."""
        running = self.running
        return running if running is not None and running.pid == os.getpid() else None

    def enter(self) -> Running:
        """Begin a batch, or join the one that this thread has begun."""
        with self._lock:
            running = self.here()
            if running is None:
                running = Running(self, _INSIDE.get())
            elif running.begun_by != threading.get_ident():
                message = (
                    "another thread runs a batch of this store: wait for it to end, or make a "
                    "store of your own, engram.zarr.Store(group)"
                )
                raise BusyError(message)
            running.depth += 1
            self.running = running
            return running

    def leave(self, running: Running) -> None:
        """Take leave of a batch; the last one ends it."""
        with self._lock:
            running.depth -= 1
            if not running.depth:
                self.running = None
        if not running.depth:
            running.end()


class StoreBatch:
    """A with-block in which all that a store is asked to do happens at once, or not at all.

    It is what `Pool.batch` is, for a store: reads inside see what was written, nobody else does
    until the block ends, and a conflict with what others did meanwhile is `BusyError`.
    """

    def __init__(self, slot: Slot, namespace: _engram.Namespace) -> None:
        self._slot = slot
        self._batch = Batch(namespace)
        self._begun: list[tuple[Running, Token[Running | None]]] = []

    def __enter__(self) -> Self:
        running = self._slot.enter()
        try:
            running.call(self._batch.__enter__)
            self._begun.append((running, _INSIDE.set(running)))
        except BaseException:
            self._slot.leave(running)
            raise
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        if not self._begun:
            message = "this batch does not run: it has ended already, or was never entered"
            raise BusyError(message)
        running, token = self._begun.pop()
        try:
            running.call(self._batch.__exit__, kind, None, None)
        finally:
            with suppress(ValueError):  # where the block is left in another context
                _INSIDE.reset(token)
            self._slot.leave(running)


def _ended() -> BusyError:
    return BusyError(
        "the batch in which this was begun has ended, so it is not done: wait for all writes "
        "before the block ends"
    )
