"""Work on pools: done by a few threads, in bounded time, and dropped when nobody waits for it.

**Invariant.** The event loop never touches a pool: each request's work runs in one of `THREADS`
threads. At most `WAITING` requests wait for one; another is refused with 503. Work asks its `Work`
between pieces whether it should go on. It ends there when the time is up, when the browser has
gone, as it does for each image that a scroll has overtaken, or when the server ends.
"""

from __future__ import annotations

import asyncio
import contextlib
import time
from concurrent.futures import Future, ThreadPoolExecutor, wait
from typing import TYPE_CHECKING, Any, TypeVar

from engram.web.refusal import RefusedError

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable

THREADS = 4
WAITING = 64
PATIENCE_S = 30.0
"""So long one request's work may take, with what it waits for a thread."""
END_S = 5.0
"""So long a piece of work is waited for at the end."""

T = TypeVar("T")


class Work:
    """What one request does, as far as time goes."""

    def __init__(self, patience: float = PATIENCE_S) -> None:
        self._until = time.monotonic() + patience
        self.is_dropped = False
        """Whether nobody waits for it any more."""

    def go_on(self) -> None:
        """Say between two pieces of work whether there is time for the next.

        Raises
        ------
        RefusedError
            If it takes too long, or nobody waits for it.

        """
        if self.is_dropped:
            raise RefusedError(503, "Dropped", "the browser has gone, or the server ends")
        if time.monotonic() > self._until:
            raise RefusedError(
                *(503, "TooSlow", f"it takes more than {PATIENCE_S:.0f} s"),
                "ask for less: narrow the index, or reduce=nearest",
            )


class Crew:
    """The threads that work on pools."""

    def __init__(self, threads: int = THREADS, waiting: int = WAITING) -> None:
        self._threads = ThreadPoolExecutor(threads, thread_name_prefix="engram-web")
        self._most = threads + waiting
        self._under_way: dict[Future[Any], Work] = {}
        """All work that has not ended, also what nobody waits for any more."""
        self._is_over = False

    async def do(
        self, act: Callable[[Work], T], gone: Callable[[], Awaitable[Any]] | None = None
    ) -> T:
        """Do something in one of the threads.

        Parameters
        ----------
        act
            What to do.
        gone
            Ends when the browser has gone.

        Raises
        ------
        RefusedError
            If too much waits already, if it waits too long itself, or if the browser goes.

        """
        if len(self._under_way) >= self._most:
            waiting = f"{len(self._under_way)} requests wait already"
            raise RefusedError(503, "TooMany", waiting, "ask again in a second")
        work = Work()
        work.is_dropped = self._is_over

        def begin() -> T:
            work.go_on()
            return act(work)

        future = self._threads.submit(begin)
        self._under_way[future] = work
        future.add_done_callback(self._under_way.pop)
        done = asyncio.wrap_future(future)
        leaving = None if gone is None else asyncio.ensure_future(gone())
        try:
            if leaving is not None:
                await asyncio.wait({done, leaving}, return_when=asyncio.FIRST_COMPLETED)
                work.is_dropped = not done.done()
            return await done
        finally:
            work.is_dropped = True
            done.cancel()
            if leaving is not None:
                leaving.cancel()
                with contextlib.suppress(asyncio.CancelledError, Exception):
                    await leaving

    def end(self) -> None:
        """End all work before its next piece, and take no more."""
        self._is_over = True
        for work in list(self._under_way.values()):
            work.is_dropped = True

    def close(self) -> None:
        """End all work, and wait for that, but not for a piece that is long."""
        self.end()
        self._threads.shutdown(wait=False, cancel_futures=True)
        wait(list(self._under_way), END_S)
