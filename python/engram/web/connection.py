"""A connection of a browser: how long it may take over a request's head."""

from __future__ import annotations

from typing import TYPE_CHECKING

from uvicorn.protocols.http.h11_impl import H11Protocol

if TYPE_CHECKING:
    import asyncio
    from collections.abc import Callable


class Connection(H11Protocol):
    """A connection that is closed where a request's head is not whole in time.

    uvicorn closes a connection that is silent between two requests. This one has the same time for
    its first request, and bytes that trickle in do not give it more. So connections that ask for
    nothing cannot take all the places for long.
    """

    left: Callable[[Connection], None]
    """Is called once it has gone."""

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
