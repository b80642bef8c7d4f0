"""The door: takes connections, as many as may be, and goes on where there are too many.

**Invariant.** At most `_most()` connections are open, those in a TLS handshake among them. Where
one more comes, the one that has been silent longest has to go: it is in its handshake, or it has
sent no whole head. Where each is being answered, the new one goes. So whoever only connects keeps
nobody out. The same is done where the process has no descriptor left, and that is logged once.

A child that is forked from this process has neither the socket that listens nor a connection: in
it, their descriptors lead nowhere. So the port is free, and browsers hear it, once this process
closes them.
"""

from __future__ import annotations

import asyncio
import contextlib
import errno
import os
import resource
import weakref
from typing import TYPE_CHECKING

from engram import telemetry

if TYPE_CHECKING:
    import socket
    import ssl
    from collections.abc import Callable

    from engram.web.connection import Connection

CONNECTIONS_MOST = 256
_HANDSHAKE_S = 5.0
"""So long a TLS handshake may take."""
_REST_S = 0.2
"""So long nobody is let in where descriptors are exhausted."""
_EXHAUSTED = {errno.EMFILE, errno.ENFILE, errno.ENOBUFS, errno.ENOMEM}

_log = telemetry.Log("engram.web")

_held: weakref.WeakSet[socket.socket] = weakref.WeakSet()
"""All sockets of this process's servers."""


def hold(taken: socket.socket) -> None:
    """Keep a socket out of the children of this process."""
    _held.add(taken)


def _let_go() -> None:
    """Lead the descriptors nowhere, in a child; whatever has them may still close them."""
    numbers = [each.fileno() for each in list(_held) if each.fileno() >= 0]
    if not numbers:
        return
    nowhere = os.open(os.devnull, os.O_RDWR | os.O_CLOEXEC)
    for number in numbers:
        os.dup2(nowhere, number, inheritable=False)
    os.close(nowhere)


os.register_at_fork(after_in_child=_let_go)


def raise_descriptors() -> None:
    """Let this process have as many descriptors as its hard limit says."""
    _, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    with contextlib.suppress(ValueError, OSError):
        resource.setrlimit(resource.RLIMIT_NOFILE, (hard, hard))


def _most() -> int:
    """Return how many connections may be open: files of pools and of the page need the rest."""
    soft, _ = resource.getrlimit(resource.RLIMIT_NOFILE)
    return CONNECTIONS_MOST if soft < 0 else max(min(CONNECTIONS_MOST, soft // 2), 1)


class Door:
    """Takes the connections of a socket that listens.

    Parameters
    ----------
    listening
        The socket.
    make
        Makes the protocol of a connection.
    context
        What TLS needs; None without it.

    """

    def __init__(
        self,
        listening: socket.socket,
        make: Callable[[], Connection],
        context: ssl.SSLContext | None,
    ) -> None:
        self._socket, self._make, self._context = listening, make, context
        self._loop = asyncio.get_running_loop()
        self._open: dict[Connection, asyncio.Task[None]] = {}
        """Those that are open, the oldest first, each with what lets it in."""
        self._most = _most()
        self._has_said = False
        self._again: asyncio.TimerHandle | None = None
        listening.setblocking(False)
        self._wait()

    def _wait(self) -> None:
        self._again = None
        self._loop.add_reader(self._socket, self._take)

    def _take(self) -> None:
        """Take one connection."""
        try:
            taken, _ = self._socket.accept()
        except (BlockingIOError, InterruptedError, ConnectionAbortedError):
            return
        except OSError as error:
            if error.errno not in _EXHAUSTED:
                raise
            self._rest(error)
            return
        if len(self._open) >= self._most and not self._make_room():
            taken.close()
            return
        taken.setblocking(False)
        hold(taken)
        connection = self._make()
        connection.left = self._left
        self._open[connection] = self._loop.create_task(self._let_in(connection, taken))

    def _rest(self, error: OSError) -> None:
        """Let nobody in for a moment, in which one who is silent leaves."""
        self._make_room()
        if not self._has_said:
            self._has_said = True
            _log.warning(
                "%d connections are open, and one more cannot be taken: %s; raise `ulimit -n`",
                *(len(self._open), error),
            )
        self._loop.remove_reader(self._socket)
        self._again = self._loop.call_later(_REST_S, self._wait)

    async def _let_in(self, connection: Connection, taken: socket.socket) -> None:
        patience = None if self._context is None else _HANDSHAKE_S
        try:
            await self._loop.connect_accepted_socket(
                lambda: connection,
                taken,
                ssl=self._context,
                ssl_handshake_timeout=patience,
                ssl_shutdown_timeout=patience,
            )
        except (OSError, asyncio.CancelledError):  # what came was no TLS, or came too late
            taken.close()
            self._left(connection)

    def _make_room(self) -> bool:
        """Close the connection that has been silent longest; False if each is being answered."""
        for connection in self._open:
            if connection.is_silent:
                self._close(connection)
                return True
        return False

    def _close(self, connection: Connection) -> None:
        task = self._open.pop(connection)
        if not task.done():
            task.cancel()
        if connection.transport is not None:
            connection.transport.abort()

    def _left(self, connection: Connection) -> None:
        self._open.pop(connection, None)

    def close(self) -> None:
        """Take no more connections, and close those in a handshake: uvicorn closes others."""
        if self._again is not None:
            self._again.cancel()
        self._loop.remove_reader(self._socket)
        for connection, task in list(self._open.items()):
            if not task.done():
                self._close(connection)

    async def wait_closed(self) -> None:
        """Wait for nothing: uvicorn waits for what is answered."""
