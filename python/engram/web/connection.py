"""A connection of a browser: how long it may take to ask, and to take the answer.

**Invariant.** A connection is closed where a request's head is not whole in time, or where nothing
of an answer is taken for `STALLED_S`, whatever is answered: a file, an image, events. So a browser
that does nothing keeps its place, and what is held for it, for so long at most.
"""

from __future__ import annotations

import logging
import time
from typing import TYPE_CHECKING, Any

from uvicorn.protocols.http.h11_impl import H11Protocol

if TYPE_CHECKING:
    import asyncio
    from collections.abc import Callable

STALLED_S = 60.0
"""So long nothing of an answer may be taken."""
_SELDOM_S = 60.0
"""So long after a message the same one is not logged again."""


class Seldom(logging.Filter):
    """Lets each message through once a minute: requests cannot flood a log."""

    def __init__(self) -> None:
        super().__init__()
        self._due: dict[str, float] = {}

    def filter(self, record: logging.LogRecord) -> bool:
        """Say whether a message is logged."""
        now, text = time.monotonic(), str(record.msg)
        if now < self._due.get(text, now):
            return False
        self._due[text] = now + _SELDOM_S
        return True


_logger = logging.getLogger("engram.web.connection")
_logger.addFilter(Seldom())


class Connection(H11Protocol):
    """A connection that has its time.

    uvicorn closes a connection that is silent between two requests. This one has the same time for
    its first request, and bytes that trickle in do not give it more.
    """

    left: Callable[[Connection], None]
    """Is called once it has gone."""

    def __init__(self, *given: Any, **named: Any) -> None:
        super().__init__(*given, **named)
        self.logger = _logger
        self._stall: asyncio.TimerHandle | None = None

    @property
    def is_silent(self) -> bool:
        """Whether nothing is being answered."""
        return self.cycle is None or self.cycle.response_complete

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
        """Begin: the first head is waited for."""
        super().connection_made(transport)
        self.timeout_keep_alive_task = self.loop.call_later(
            self.timeout_keep_alive, self.timeout_keep_alive_handler
        )

    def connection_lost(self, exc: Exception | None) -> None:
        """End."""
        super().connection_lost(exc)
        self._unset_keepalive_if_required()
        self._unset_stall()
        self.left(self)

    def pause_writing(self) -> None:
        """Wait until what was sent is taken, but not for ever."""
        super().pause_writing()
        self._await(self.transport.get_write_buffer_size())

    def resume_writing(self) -> None:
        """Go on: enough was taken."""
        super().resume_writing()
        self._unset_stall()

    def _await(self, waiting: int) -> None:
        self._stall = self.loop.call_later(STALLED_S, self._check_taken, waiting)

    def _check_taken(self, before: int) -> None:
        """Close the connection, with all that waits, if as many bytes wait as before."""
        waiting = self.transport.get_write_buffer_size()
        if waiting < before:
            self._await(waiting)
        else:
            self.transport.abort()

    def _unset_stall(self) -> None:
        if self._stall is not None:
            self._stall.cancel()
            self._stall = None

    def data_received(self, data: bytes) -> None:
        """Go on; a head that is not whole yet has the time that it had."""
        due = self.timeout_keep_alive_task
        super().data_received(data)
        if due is not None and self.is_silent and self.timeout_keep_alive_task is None:
            self.timeout_keep_alive_task = self.loop.call_at(
                due.when(), self.timeout_keep_alive_handler
            )
