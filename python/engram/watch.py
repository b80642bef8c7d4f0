"""Watches: a reader sleeps until a commit, of any process, brings an object that a query finds.

The waiting is native: a futex that all processes of the pool share, so nobody polls. A thread that
waits lets go of the interpreter. A task of asyncio waits in a thread of its own; one that is
cancelled loses no hit, the next gets it.
"""

import threading
import time
from collections.abc import Mapping
from contextlib import suppress
from types import TracebackType
from typing import TYPE_CHECKING, Any, Self

from engram import _engram
from engram.errors import ArgumentError
from engram.handle import make
from engram.plain import printable
from engram.query import Asked, native_query, text_of

if TYPE_CHECKING:
    import asyncio
    from collections.abc import Generator

    from engram.array import Array
    from engram.blob import Blob


class Watch:
    """What is found from now on: an iterator, and an asynchronous one, of objects as they come.

    ::

        for array in pool.watch("exists(step)", timeout=60):
            ...                                   # ends when nothing has come for a minute

        async for array in pool.watch("exists(step)"):
            ...

        array = await pool.watch("step = 100", timeout=60)

    Each object is given once, when the query becomes true of it. An iteration ends when nothing
    has come for `timeout` seconds, and goes on when the watch is iterated again; it ends for good
    when the watch is closed. `await watch` is the next object, or `TimeoutError`. Threads and
    tasks may share a watch: each object goes to one of them. A forked child begins its own.

    Raises
    ------
    ArgumentError
        If the pool was closed; if the watch was begun before a fork.
    PoolGoneError
        If the pool's files were removed.
    NotFoundError
        If the group that is watched was deleted.
    BusyError
        In a batch: what it has not committed yet is nothing that comes.

    """

    __slots__ = ("__weakref__", "_namespace", "_native", "_query", "_timeout")

    def __init__(
        self,
        namespace: _engram.Namespace,
        group: int,
        expr: Any,
        *,
        timeout: float | None,
        existing: bool,
        params: Mapping[str, Any] | None = None,
    ) -> None:
        query = native_query(text_of(expr), Asked(params=params))
        self._namespace = namespace
        self._query = query.text
        self._timeout = timeout
        self._native = _engram.Watch(namespace, group, query, existing, timeout)

    @property
    def query(self) -> str:
        """The query in its own language."""
        return self._query

    @property
    def closed(self) -> bool:
        """Whether it was closed, or its pool."""
        return self._native.closed

    def close(self) -> None:
        """End it: it gives nothing more, and a waiting thread or task is told.

        Twice is no error.
        """
        self._native.close()

    def __iter__(self) -> Self:
        return self

    def __next__(self) -> "Array | Blob":
        found = self._next()
        if found is None:
            raise StopIteration
        return found

    def _next(self) -> "Array | Blob | None":
        until = self._until()
        while (found := self._take()) is None:
            if self._native.wait(_left(until), self._native.calls) in {"in time", "closed"}:
                return None
        return found

    def __aiter__(self) -> Self:
        return self

    async def __anext__(self) -> "Array | Blob":
        found = await self._coming()
        if found is None:
            raise StopAsyncIteration
        return found

    def __await__(self) -> "Generator[Any, None, Array | Blob]":
        found = yield from self._coming().__await__()
        if found is not None:
            return found
        if self.closed:
            raise ArgumentError(f"the watch of {self._query!r} is closed: begin another")
        raise TimeoutError(f"nothing has come of {self._query!r} within {self._timeout} s")

    async def _coming(self) -> "Array | Blob | None":
        until = self._until()
        while (found := self._take()) is None:
            if await self._wait(_left(until)) in {"in time", "closed"}:
                return None
        return found

    async def _wait(self, within: float | None) -> str:
        """Wait in a thread; a task that is cancelled calls it back."""
        import asyncio  # noqa: PLC0415 - loaded where there is a loop

        calls = self._native.calls
        # This thread's batch is none of the other's, and what is there needs no waiting.
        if (now := self._native.wait(0.0, calls)) != "in time":
            return now
        loop = asyncio.get_running_loop()
        end: asyncio.Future[str] = loop.create_future()

        def wait() -> None:
            try:
                how: str | BaseException = self._native.wait(within, calls)
            except BaseException as error:  # noqa: BLE001 - it is the task's
                how = error
            with suppress(RuntimeError):  # the loop is closed: nobody waits any more
                loop.call_soon_threadsafe(_settle, end, how)

        threading.Thread(target=wait, name="engram-watch", daemon=True).start()
        try:
            return await end
        except BaseException:
            self._native.call_back()
            raise

    def _until(self) -> float | None:
        return None if self._timeout is None else time.monotonic() + self._timeout

    def _take(self) -> "Array | Blob | None":
        """Give the next object that is there, if there is one; those deleted since are none.

        One at a time: what is not given yet stays where other threads and tasks find it.
        """
        while len(oids := self._native.take(1)):
            for found in _engram.handles(self._namespace, oids):
                if found is not None:
                    given: Array | Blob = make(self._namespace, found)
                    return given
        return None

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.close()

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.close()

    def __reduce__(self) -> Any:
        raise ArgumentError(
            f"the watch of {self._query!r} cannot be pickled: begin one in the other process"
        )

    def __repr__(self) -> str:
        state = " (closed)" if self.closed else ""
        return f"<engram.Watch '{printable(self._query)}'{state}>"


def _left(until: float | None) -> float | None:
    return None if until is None else max(until - time.monotonic(), 0.0)


def _settle(end: "asyncio.Future[str]", how: str | BaseException) -> None:
    """Tell a task how its wait has ended, if it is there to be told."""
    if end.done():
        return
    if isinstance(how, BaseException):
        end.set_exception(how)
    else:
        end.set_result(how)
