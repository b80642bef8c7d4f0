"""`api` as dataClay 2 has it: `init()` before, and `finish()` after.

The pool is named by, in this order: the key `Pool` of the session's file, whose path `init` is
given, or the environment (`DATACLAYSESSIONCONFIG`), or which is `./cfgfiles/session.properties`;
and the environment's `ENGRAM_POOL`, with which no file is needed. Its other keys that count are
`Size` (of a pool that is created) and `DataSetForStore` (a namespace). Accounts and stubs do not.
"""

import os
from pathlib import Path
from typing import Any, Final
from uuid import UUID

from engram.compat.dataclay.client.api import Client
from engram.compat.dataclay.exceptions import ClientError, ImproperlyConfigured
from engram.compat.dataclay.runtime import BackendClient, Runtime, current

USUAL: Final = "./cfgfiles/session.properties"

_clients: list[Client] = []


LOCAL: Any = None
"""As a backend's id: any; all are on this node."""


def read_properties(path: str | os.PathLike[str]) -> dict[str, str]:
    """Read a file of lines `Key=value`; lines that begin with # or ! are remarks."""
    found = {}
    for line in Path(path).read_text(encoding="utf-8").splitlines():
        key, equals, value = line.strip().partition("=")
        if equals and not key.startswith(("#", "!")):
            found[key.strip()] = value.strip().strip("\"'")
    return found


def init(config_file: str | os.PathLike[str] | None = None) -> None:
    """Open the pool that the session's file or the environment names.

    Raises
    ------
    ImproperlyConfigured
        If they name none. It is a `ValueError`.

    """
    if is_initialized():
        return
    named = config_file or os.environ.get("DATACLAYSESSIONCONFIG") or USUAL
    there = Path(named).is_file()
    if not there and (config_file is not None or "ENGRAM_POOL" not in os.environ):
        raise ImproperlyConfigured(
            f"there is no session file {os.fspath(named)!r}: give one with a line Pool=<path>, or "
            "set ENGRAM_POOL"
        )
    keys = read_properties(named) if there else {}
    pool = keys.get("Pool") or os.environ.get("ENGRAM_POOL")
    if not pool:
        raise ImproperlyConfigured(
            f"{os.fspath(named)!r} names no pool: write a line Pool=<path>, or set ENGRAM_POOL"
        )
    client = Client(pool, dataset=keys.get("DataSetForStore"), size=keys.get("Size", "4 GiB"))
    client.start()
    _clients.append(client)


init_connection = init


def finish() -> None:
    """Close the pool."""
    while _clients:
        client = _clients.pop()
        if client.is_active:
            client.stop()


def is_initialized() -> bool:
    """Tell whether `init` was called, and `finish` was not."""
    return any(client.is_active for client in _clients)


def getRuntime() -> Runtime:  # noqa: N802 - dataClay's name
    """Give what knows objects and backends.

    Raises
    ------
    ClientError
        If nothing was initialized.

    """
    runtime = current()
    if runtime is None:
        raise ClientError("dataClay is not initialized: call api.init(), or Client(...).start()")
    return runtime


def get_backends() -> list[str]:
    """Give the backends' names: the paths of the pools' devices."""
    return getRuntime().get_execution_environments_names()


def get_backends_info() -> dict[UUID, BackendClient]:
    """Give the backends by id."""
    return getRuntime().get_all_execution_environments_info()


def get_backend_id_by_name(name: str) -> UUID | None:
    """Give the id of a backend of that name."""
    found = (key for key, each in get_backends_info().items() if each.name == name)
    return next(found, None)


def get_backend_id(hostname: str, port: int = 0) -> UUID | None:
    """Give the id of a backend by where it is: the path of a device."""
    del port
    return get_backend_id_by_name(hostname)


def get_num_objects() -> int:
    """Tell how many objects there are."""
    return getRuntime().get_num_objects()
