"""`Client`: dataClay's connection, which is an opening of a pool."""

import contextlib
import logging
import os
from pathlib import Path
from types import TracebackType
from typing import Any, Self

import engram
from engram.active.stored.home import home_of
from engram.compat.dataclay.config import ClientSettings, session_var
from engram.compat.dataclay.runtime import Backends, Runtime, begin, dataset_home, end
from engram.errors import ArgumentError, ExistsError, PoolNotFoundError
from engram.pool import Pool, _open_here

_log = logging.getLogger("engram.compat.dataclay")


class Client:
    """A pool in the place of a dataClay service.

    ::

        client = Client(host="/dev/shm/demo")     # instead of Client(host="127.0.0.1", ...)
        client.start()
        Person("Alice", 32).make_persistent("alice")
        client.stop()

    Parameters
    ----------
    host
        A pool's path; it is created if there is nothing. By default what the environment has as
        `ENGRAM_POOL`, or else as `DC_HOST`.
    port, username, password, local_backend, proxy_host, proxy_port
        Not used: the kernel decides who may open a pool.
    dataset
        A namespace of the pool, created if there is none; "admin", the default, and "default" are
        the pool's own.
    pool
        The same as `host`; it may also be a pool that is open already, which `stop` leaves open.
    size, devices
        Of the pool, if it is created.

    Clients nest: while one is started, it is the one in use, in all threads.

    """

    def __init__(  # noqa: PLR0917 - dataClay's order
        self,
        host: str | None = None,
        port: int | None = None,
        username: str | None = None,
        password: str | None = None,
        dataset: str | None = None,
        local_backend: str | None = None,
        proxy_host: str | None = None,
        proxy_port: int | None = None,
        *,
        pool: Any = None,
        size: Any = "4 GiB",
        devices: Any = None,
    ) -> None:
        self.settings = ClientSettings()
        given = {
            "dataclay_host": host if pool is None else pool,
            "dataclay_port": port,
            "username": username,
            "password": password,
            "dataset": dataset,
            "local_backend": local_backend,
            "proxy_host": proxy_host,
            "proxy_port": proxy_port,
        }
        for name, value in given.items():
            if value is not None:
                setattr(self.settings, name, value)
        self.runtime: Runtime | None = None
        self._size, self._devices = size, devices
        self._opened: Pool | None = None
        self._session: Any = None

    @property
    def is_active(self) -> bool:
        """Whether it is started."""
        return self.runtime is not None

    def start(self) -> None:
        """Open the pool, or create it; and use it from now on."""
        if self.runtime is not None:
            _log.warning("the client is started already")
            return
        pool = self._pool()
        try:
            home = dataset_home(home_of(pool), self.settings.dataset, make=True)
            self.runtime = Runtime(home, self.settings.dataset)
        except BaseException:
            self._close()
            raise
        begin(self.runtime)
        self._session = session_var.set(
            {
                "dataset_name": self.settings.dataset,
                "username": self.settings.username,
                "token": "",
            }
        )

    def stop(self) -> None:
        """Close the pool, if `start` has opened it; and use what was used before."""
        if self.runtime is None:
            _log.warning("the client is not started")
            return
        end(self.runtime)
        self.runtime = None
        with contextlib.suppress(ValueError):  # stopped in another context than it was started in
            session_var.reset(self._session)
        self._close()

    def get_backends(self) -> Backends:
        """Give the backends by id: the devices of the pool, then those of other open pools.

        Raises
        ------
        RuntimeError
            If the client is not started.

        """
        if self.runtime is None:
            raise RuntimeError("Client is not active")
        self.runtime.backend_clients.update()
        return self.runtime.backend_clients

    async def a_get_backends(self) -> Backends:
        """Do as `get_backends`."""
        return self.get_backends()

    def _pool(self) -> Pool:
        host = self.settings.dataclay_host
        if isinstance(host, Pool):
            return host
        if not isinstance(host, str | os.PathLike) or not os.fspath(host):
            raise ArgumentError(
                f"Client(host={host!r}) names no pool: give a pool's path, or set ENGRAM_POOL"
            )
        if os.sep not in (path := os.fspath(host)) and not Path(path).is_dir():
            raise ArgumentError(
                f"Client(host={path!r}): that is like a service's host, and no pool is called so "
                f'here: give a pool\'s path such as "/dev/shm/demo", or "./{path}" to make one here'
            )
        there = _open_here.get((os.path.realpath(host), "r+"))
        if there is not None and there.is_open:
            return Pool(there)
        self._opened = opened(os.fspath(host), self._size, self._devices)
        return self._opened

    def _close(self) -> None:
        if self._opened is not None:
            self._opened.close()
            self._opened = None

    def __enter__(self) -> Self:
        self.start()
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.stop()

    async def __aenter__(self) -> Self:
        self.start()
        return self

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.stop()


def opened(path: str, size: Any, devices: Any = None) -> Pool:
    """Open a pool for writing; create it if there is none."""
    try:
        return engram.open(path)
    except PoolNotFoundError:
        pass
    try:
        return engram.create(path, size=size, devices=devices)
    except ExistsError:  # somebody else was faster
        return engram.open(path)


def init() -> Client:
    """Give a started client of the pool that the environment names."""
    client = Client()
    client.start()
    return client


def finish() -> None:
    """Do nothing, as in dataClay."""


__all__ = ["Client", "finish", "init", "opened"]
