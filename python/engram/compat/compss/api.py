"""`storage.api`: what pycompss and its programs call.

The pool is opened by `init` in the master. A worker calls `initWorker` before it forks, which only
notes the file, and `initWorkerPostFork` in each fork, or nothing: then the first call opens it.
"""

import logging
import os
from pathlib import Path
from types import TracebackType
from typing import Any, Self

from engram.active import using
from engram.compat.compss.objects import StorageObject
from engram.compat.dataclay import Client, DataClayObject, runtime
from engram.compat.dataclay.api import read_properties
from engram.compat.dataclay.config import exec_constraints_var
from engram.compat.dataclay.exceptions import DoesNotExistError
from engram.errors import ArgumentError, EngramError

StorageException = EngramError
"""What can go wrong."""

__pipelining__ = False
"""Whether pycompss asks for several objects in one call: it gains nothing here."""

_log = logging.getLogger("engram.compat.compss")


class _State:
    """What was set up in this process."""

    config: Any = None
    client: Client | None = None
    pid = 0


def _client_for(config: Any) -> Client:
    """Make the client of the pool that a file or the environment names.

    Raises
    ------
    ArgumentError
        If neither does.

    """
    keys: dict[str, str] = {}
    pool = None
    if config not in {None, "", "null"}:
        keys = read_properties(config)
        lines = Path(config).read_text(encoding="utf-8").splitlines()
        plain = [line.strip() for line in lines if "/" in line and not line.startswith("#")]
        pool = keys.get("Pool") or next((line for line in plain if "=" not in line), None)
    pool = pool or os.environ.get("ENGRAM_POOL")
    if not pool:
        raise ArgumentError(
            f"the storage configuration {config!r} names no pool: write a line Pool=<path> in it, "
            "or set ENGRAM_POOL"
        )
    return Client(pool, dataset=keys.get("Dataset"), size=keys.get("Size", "4 GiB"))


def _ready() -> None:
    """Open the pool, if this process has not."""
    if runtime.current() is not None and _State.pid in {0, os.getpid()}:
        return
    if _State.config is None and "ENGRAM_POOL" not in os.environ and using.all_homes():
        return  # the program has opened a pool itself
    _State.client = _client_for(_State.config)
    _State.client.start()
    _State.pid = os.getpid()


def init(config_file_path: str | None = None, **_kwargs: Any) -> None:
    """Open the pool that a file, or the environment, names: in the master."""
    before, _State.config = _State.config, config_file_path
    try:
        _ready()
    except BaseException:
        _State.config = before
        raise


def finish(**_kwargs: Any) -> None:
    """Close the pool, and forget the file that named it."""
    client, _State.client = _State.client, None
    _State.config = None
    if client is not None and client.is_active and _State.pid == os.getpid():
        client.stop()
    _State.pid = 0


def initWorker(config_file_path: str | None = None, **_kwargs: Any) -> None:  # noqa: N802
    """Note the file: in a worker, before it forks."""
    _State.config = config_file_path


def initWorkerPostFork() -> None:  # noqa: N802 - COMPSs' name
    """Open the pool: in each process that a worker has forked."""
    _ready()


def finishWorkerPostFork() -> None:  # noqa: N802 - COMPSs' name
    """Close the pool in a process that a worker has forked."""
    finish()


def finishWorker(**_kwargs: Any) -> None:  # noqa: N802 - COMPSs' name
    """Close the pool, if this process has opened it."""
    finish()


def get_client() -> Client | None:
    """Give the client, if this has started one."""
    return _State.client


def getByID(*identifiers: str) -> Any:  # noqa: N802 - COMPSs' name
    """Give the object of an id, or of the identifier that it was made persistent with.

    Of several, a list.

    Raises
    ------
    DoesNotExistError
        If there is none.

    """
    _ready()
    found = [_by_id(each) for each in identifiers]
    return found[0] if len(found) == 1 else found


def _by_id(identifier: Any) -> Any:
    if not isinstance(identifier, str) or not identifier:
        raise ArgumentError(f"{identifier!r} is no id: getID() of a persistent object gives one")
    try:
        return runtime.by_id(identifier)
    except (KeyError, ValueError):  # deleted, or no id at all
        try:
            return DataClayObject.get_by_alias(identifier)
        except KeyError:
            raise DoesNotExistError(identifier) from None


def getID(obj: Any) -> str | None:  # noqa: N802 - COMPSs' name
    """Give an object's id; None if it is not persistent."""
    found: str | None = obj.getID()
    return found


def makePersistent(obj: Any, identifier: str | None = None) -> None:  # noqa: N802
    """Put an object into the pool; it can be found by its id, and by an identifier if one is given.

    Nothing happens if it is there.
    """
    _ready()
    if obj.getID() is None:
        obj.make_persistent(identifier)


def deletePersistent(obj: Any) -> None:  # noqa: N802 - COMPSs' name
    """Take an object out of the pool; nothing happens if it is not there."""
    obj.delete_persistent()


def updatePersistent(obj: Any) -> None:  # noqa: N802 - COMPSs' name
    """Make what was written in place durable."""
    if obj.getID() is not None:
        obj.sync()


def new_version(obj: Any, backend_id: Any = None) -> Any:
    """Make a version of an object, or of an id's: give the version, or its id."""
    if isinstance(obj, str):
        return _version(getByID(obj), backend_id).getID()
    return _version(obj, backend_id)


def _version(obj: Any, backend_id: Any) -> Any:
    made = obj.new_version(backend_id)
    return runtime.by_id(made[0]) if isinstance(made, tuple) else made


def consolidate_version(obj: Any) -> None:
    """Let a version, or an id's, take its original's place."""
    (getByID(obj) if isinstance(obj, str) else obj).consolidate_version()


class TaskContext:
    """What pycompss wraps each task in; it is not left when a task fails."""

    def __init__(
        self, logger: Any, values: Any, config_file_path: str | None = None, **_kwargs: Any
    ) -> None:
        self.logger = logger
        self.values = values
        self.config_file_path = config_file_path

    def __enter__(self) -> Self:
        if _State.config is None:
            _State.config = self.config_file_path
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        """Make durable what the task has written into arrays in place."""
        for value in self.values or ():
            if isinstance(value, DataClayObject) and kind is None:
                try:
                    updatePersistent(value)
                except EngramError as failed:  # deleted by the task, it may be
                    self.logger.info("%r was not brought up to date: %s", value, failed)


class ConstraintsContext:
    """Sets constraints for a block: methods run in their callers, so nothing is constrained."""

    def __init__(self, new_config: dict[str, Any]) -> None:
        self._config = new_config
        self._token: Any = None

    def __enter__(self) -> None:
        self._token = exec_constraints_var.set({**exec_constraints_var.get(), **self._config})

    def __exit__(self, *_error: object) -> None:
        exec_constraints_var.reset(self._token)


make_persistent = makePersistent
delete_persistent = deletePersistent
removeById = deletePersistent  # noqa: N816 - COMPSs' name
get_by_ID = getByID  # noqa: N816 - COMPSs' name
init_worker, finish_worker = initWorker, finishWorker
task_context = TaskContext
storage_object = StorageObject

__all__ = [
    "ConstraintsContext",
    "StorageException",
    "StorageObject",
    "TaskContext",
    "consolidate_version",
    "deletePersistent",
    "delete_persistent",
    "finish",
    "finishWorker",
    "finishWorkerPostFork",
    "finish_worker",
    "getByID",
    "getID",
    "get_by_ID",
    "get_client",
    "init",
    "initWorker",
    "initWorkerPostFork",
    "init_worker",
    "makePersistent",
    "make_persistent",
    "new_version",
    "removeById",
    "storage_object",
    "task_context",
    "updatePersistent",
]
