"""The server: its address, its certificate, its end.

**Invariant.** Nothing is answered before all of it is known to be in order: the libraries, the
page, the address with what it asks for, each pool. What is not is one error, and nothing is left
open. At the end, whether by a signal or by `close`, all that looks at pools has ended before these
are closed; a signal takes effect only then.
"""

from __future__ import annotations

import contextlib
import errno
import os
import re
import socket
import ssl
import stat
import threading
from pathlib import Path
from typing import TYPE_CHECKING, Any, Self
from urllib.parse import unquote

from engram import telemetry
from engram.errors import (
    AccessError,
    ArgumentError,
    BusyError,
    EngramError,
    NotFoundError,
    UnsupportedError,
)
from engram.extras import library
from engram.plain import printable
from engram.web import door
from engram.web.opening import Opening

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence
    from types import TracebackType


PORT = 8765
_PURPOSE = "engram serve"
_PREFIX = re.compile(r"(/([A-Za-z0-9._~@+-]|%[0-9A-Fa-f]{2})+)*")
_PASSWORD_LEAST = 8
_PASSWORD_MOST = 1024
_STARTED_S = 10.0
_END_S = 2
_HEAD_S = 15
"""So long a connection may take until a request's head is whole."""
_HEADERS_MOST = 32 << 10

_log = telemetry.Log("engram.web")


class Server:
    """A server that runs in a thread of this process; as a with-block it ends with the block."""

    def __init__(self, places: Sequence[str | os.PathLike[str]], options: dict[str, Any]) -> None:
        self._made = _Made(places, **options)
        self.url = self._made.url
        """The address of the page, with the token."""
        self._thread = threading.Thread(target=self._made.run, name="engram-web", daemon=True)
        self._thread.start()
        self._made.started.wait(_STARTED_S)

    def close(self) -> None:
        """End it. Twice is no error."""
        self._made.end()
        self._thread.join()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.close()

    def __repr__(self) -> str:
        bare = self.url.partition("?")[0]  # a notebook that is shown has no token
        return f"<engram.web.Server {printable(bare)}>"


def start(*places: str | os.PathLike[str], port: int = 0, **options: Any) -> Server:
    """Serve pools and clusters from a thread of this process.

    Parameters
    ----------
    places
        Folders of pools, and URLs of clusters.
    port
        The port; 0 takes any that is free.
    options
        As for `serve`.

    Raises
    ------
    EngramError
        As for `serve`.

    """
    return Server(places, {"port": port, **options})


def serve(
    *places: str | os.PathLike[str],
    ready: Callable[[str], object] | None = None,
    open_browser: bool = False,
    **options: Any,
) -> None:
    """Serve pools and clusters as a page in a browser, until this process is interrupted.

    Parameters
    ----------
    places
        Folders of pools, and URLs of clusters.
    ready
        Is called with the address of the page, once it answers.
    open_browser
        Whether a browser is to open it.
    options
        port (8765), host ("127.0.0.1"), namespace ("default"), write (False), prefix (""),
        allow_hosts (()), certificate, key and password_file (None).

    Raises
    ------
    UnsupportedError
        If the libraries of `engram[web]` are missing, or the page is not built.
    BusyError
        If the port is taken.
    ArgumentError
        If the address is one of the network, and there is no certificate or no password.
    NotFoundError
        If there is no such pool, cluster or file.

    """
    door.raise_descriptors()
    made, opening = _Made(places, **options), Opening()
    made.last.callback(opening.close)

    def tell() -> None:
        if ready is not None:
            ready(made.url)
        if open_browser:
            opening.open(made.url)

    with contextlib.suppress(KeyboardInterrupt):
        made.run(tell)


class _Made:
    """A server that is ready to run: all it needs is open."""

    def __init__(
        self,
        places: Sequence[str | os.PathLike[str]],
        *,
        port: int = PORT,
        host: str = "127.0.0.1",
        namespace: str = "default",
        write: bool = False,
        prefix: str = "",
        allow_hosts: Sequence[str] = (),
        certificate: str | os.PathLike[str] | None = None,
        key: str | os.PathLike[str] | None = None,
        password_file: str | os.PathLike[str] | None = None,
    ) -> None:
        for module in ("starlette", "uvicorn"):
            library(module, "web", _PURPOSE)
        from engram.web import app, guard, served  # noqa: PLC0415 - they need these libraries

        _check_page(app.PAGE)
        password = _checked(host, certificate, key, password_file)
        self.started = threading.Event()
        with contextlib.ExitStack() as undone:
            self._socket = _listening(host, port)
            undone.callback(_closed, self._socket)
            access = guard.Access(
                port=self._socket.getsockname()[1],
                prefix=_checked_prefix(prefix),
                hosts=_names(host, allow_hosts),
                password=password,
                is_secure=certificate is not None,
                write=write,
            )
            shelf = served.Shelf(places, namespace=namespace, write=write)
            undone.callback(shelf.close)
            site = app.Site(shelf, access, app.PAGE)
            undone.callback(site.close)
            self._server = _server(site, certificate, key)
            self.url = guard.address_of(access, _shown(host))
            self.last = undone.pop_all()
            """What is done at the end, the last first."""

    def run(self, tell: Callable[[], object] = lambda: None) -> None:
        """Serve until it is ended or interrupted; `tell` is called once it answers."""

        def told() -> None:
            self.started.set()
            tell()

        self._server.tell = told
        # uvicorn raises a signal again when its loop has ended: here it waits for the rest, too.
        with self._server.capture_signals(), self.last:
            _log.info("serving at %s", self.url.partition("?")[0])
            self._server.run(sockets=[self._socket])

    def end(self) -> None:
        """End it, from another thread."""
        self._server.should_exit = True


def _server(site: Any, certificate: Any, key: Any) -> Any:
    """Make uvicorn's server of a site."""
    import uvicorn  # noqa: PLC0415 - it was looked for

    from engram.web.connection import Connection  # noqa: PLC0415 - it needs uvicorn

    class _Uvicorn(uvicorn.Server):
        """One that says when it answers, and ends what it answers before it waits for that."""

        tell: Callable[[], object]

        async def startup(self, sockets: list[socket.socket] | None = None) -> None:
            await self.lifespan.startup()
            doors = [door.Door(each, self._connection, config.ssl) for each in sockets or ()]
            self.servers, self.started = doors, True  # type: ignore[assignment]
            self.tell()

        def _connection(self) -> Connection:
            state = self.server_state
            return Connection(config=config, server_state=state, app_state=self.lifespan.state)

        async def shutdown(self, sockets: list[socket.socket] | None = None) -> None:
            site.end()
            del sockets
            await super().shutdown()  # the socket is closed by who has made it

    config = uvicorn.Config(
        site.app,
        log_config=None,
        access_log=False,  # it would have the token
        http=Connection,
        ws="none",
        lifespan="off",
        server_header=False,
        proxy_headers=False,
        timeout_keep_alive=_HEAD_S,
        timeout_graceful_shutdown=_END_S,
        h11_max_incomplete_event_size=_HEADERS_MOST,
        ssl_certfile=None if certificate is None else os.fspath(certificate),
        ssl_keyfile=None if key is None else os.fspath(key),
    )
    try:
        config.load()
    except (ssl.SSLError, OSError) as error:
        raise ArgumentError(
            f"{certificate}, {key}: are no certificate and its key as PEM: {error}"
        ) from error
    return _Uvicorn(config)


def _check_page(page: Path) -> None:
    """Refuse to serve a page that is not there."""
    if not (page / "index.html").is_file():
        raise UnsupportedError(
            "the page of `engram serve` is not built: run `make web` in the source tree, or "
            "install Engram from a wheel"
        )


def _checked(host: str, certificate: Any, key: Any, password_file: Any) -> str | None:
    """Refuse an address of the network without TLS and a password; give the password."""
    from engram.web.guard import is_loopback  # noqa: PLC0415 - it needs the libraries

    if (certificate is None) != (key is None):
        raise ArgumentError("a certificate has a key: give both --certificate and --key")
    if not is_loopback(host) and (certificate is None or password_file is None):
        raise ArgumentError(
            f"{host} is no loopback address, so everybody on the network could read: give "
            "--certificate and --key (TLS) and --password-file, or leave --host out and reach the "
            "page through `ssh -L`"
        )
    return None if password_file is None else _password(Path(password_file))


def _password(file: Path) -> str:
    """Read the password: the file's first line."""
    try:
        with open(file, encoding="utf-8", opener=_unwaiting) as lines:
            mode = os.fstat(lines.fileno()).st_mode
            line = lines.readline(_PASSWORD_MOST + 2) if stat.S_ISREG(mode) else ""
    except FileNotFoundError:
        raise NotFoundError(f"{file}: there is no such file with a password") from None
    except (OSError, UnicodeError) as error:
        raise ArgumentError(f"{file}: the password cannot be read: {error}") from None
    if not stat.S_ISREG(mode):
        raise ArgumentError(f"{file}: a password is read from a regular file, and this is none")
    password = line.rstrip("\r\n")
    if mode & (stat.S_IRWXG | stat.S_IRWXO):
        raise AccessError(f"{file}: others may read the password: chmod 600 {file}")
    if len(password) < _PASSWORD_LEAST:
        raise ArgumentError(f"{file}: a password has {_PASSWORD_LEAST} characters at least")
    if len(password) > _PASSWORD_MOST:
        raise ArgumentError(
            f"{file}: a password has {_PASSWORD_MOST:,} characters at most, and the first line has "
            "more: write a shorter one"
        )
    return password


def _unwaiting(path: str, flags: int) -> int:
    """Open a file; a FIFO is not waited for until somebody writes into it."""
    return os.open(path, flags | os.O_NONBLOCK | os.O_CLOEXEC)


def _checked_prefix(prefix: str) -> str:
    trimmed = prefix.rstrip("/")
    if trimmed and not trimmed.startswith("/"):
        trimmed = f"/{trimmed}"
    steps = {unquote(each) for each in trimmed.split("/")}  # a browser resolves those of dots
    if not _PREFIX.fullmatch(trimmed) or steps & {".", ".."}:
        raise ArgumentError(
            f"--prefix {prefix!r} is no path of an address: give one such as /engram"
        )
    return trimmed


def _names(host: str, allowed: Sequence[str]) -> frozenset[str]:
    """Return the names of the server, beside those of loopback."""
    names = {each.lower() for each in allowed}
    for name in names:
        if not name or "/" in name or "*" in name:
            raise ArgumentError(
                f"--allow-host {name!r} is no name of a host: give NAME or NAME:PORT"
            )
    from engram.web.guard import is_loopback  # noqa: PLC0415 - it needs the libraries

    if not is_loopback(host):
        names |= {host.lower(), socket.gethostname().lower()} - {"0.0.0.0", "::"}  # noqa: S104
    return frozenset(names)


def _shown(host: str) -> str:
    """Return what stands in the address that is printed."""
    return socket.gethostname() if host in {"0.0.0.0", "::"} else host  # noqa: S104


def _listening(host: str, port: int) -> socket.socket:
    """Take the port."""
    try:
        (family, kind, number, _, where), *_ = socket.getaddrinfo(
            host, port, type=socket.SOCK_STREAM, flags=socket.AI_PASSIVE
        )
        made = socket.socket(family, kind, number)
    except (OSError, OverflowError) as error:
        raise ArgumentError(
            f"--host {host} with --port {port} is no address here: {error}"
        ) from None
    try:
        made.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        made.bind(where)
        made.listen(128)
    except OSError as error:
        made.close()
        if error.errno == errno.EADDRINUSE:
            raise BusyError(
                f"port {port} of {host} is taken, by another `engram serve` perhaps: choose "
                "another with --port, or any free one with --port 0"
            ) from None
        if error.errno == errno.EACCES:
            raise AccessError(
                f"port {port} is root's: choose one from 1024 on with --port"
            ) from None
        raise EngramError(f"port {port} of {host} cannot be had: {error.strerror}") from None
    made.set_inheritable(False)
    door.hold(made)
    return made


def _closed(listening: socket.socket) -> None:
    """Close it, also for a child that was forked while it was made."""
    with contextlib.suppress(OSError):
        listening.shutdown(socket.SHUT_RDWR)
    listening.close()
