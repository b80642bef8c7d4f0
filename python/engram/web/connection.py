"""A connection of a browser: how long it may take over a request's head."""

from __future__ import annotations

import logging
import time
from typing import TYPE_CHECKING, Any

from uvicorn.protocols.http.h11_impl import H11Protocol

if TYPE_CHECKING:
    import asyncio
    from collections.abc import Callable

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
    """A connection that is closed where a request's head is not whole in time.

    uvicorn closes a connection that is silent between two requests. This one has the same time for
    its first request, and bytes that trickle in do not give it more. So connections that ask for
    nothing cannot take all the places for long.
    """

    left: Callable[[Connection], None]
    """Is called once it has gone."""

    def __init__(self, *given: Any, **named: Any) -> None:
        super().__init__(*given, **named)
        self.logger = _logger

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
        self.left(self)

    def data_received(self, data: bytes) -> None:
        """Go on; a head that is not whole yet has the time that it had."""
        due = self.timeout_keep_alive_task
        super().data_received(data)
        if due is not None and self.is_silent and self.timeout_keep_alive_task is None:
            self.timeout_keep_alive_task = self.loop.call_at(
                due.when(), self.timeout_keep_alive_handler
            )
