"""Where calls go: the pool of the client that was started last, and the backends there are.

A *backend* is a device of an open pool: those of the client's pool first, then those of the other
pools that are open. `uuid.UUID`s name them, which are the same in every process. A method runs in
the process that calls it; inside of it the backend is the one that its object is in.
"""

import importlib
import threading
from collections.abc import Awaitable, Generator, Iterator, Mapping
from typing import TYPE_CHECKING, Any, Final
from uuid import UUID

from engram import _engram
from engram.active import using
from engram.active.code import classes
from engram.active.errors import ClassUnknownError
from engram.active.places.placing import DEVICE, Backend
from engram.active.stored.home import Home, home_of
from engram.active.stored.layout import CLASS, OBJECTS
from engram.compat.dataclay import metadata
from engram.compat.dataclay.exceptions import (
    BackendUnknownError,
    DatasetIsNotAccessibleError,
    DoesNotExistError,
)
from engram.errors import EngramError
from engram.namespace import Namespace
from engram.pool import Pool, _shared_opening

if TYPE_CHECKING:
    from engram.active.object import ActiveObject
    from engram.compat.dataclay.dataclay_object import DataClayObject

OWN_NAMES: Final = frozenset((None, "", "admin", "default"))
"""Names of datasets that mean a pool's default namespace."""


class _Local(threading.local):
    def __init__(self) -> None:
        self.objects: list[DataClayObject] = []


running = _Local()
"""The objects whose methods this thread is in, the innermost last."""


class _Done(Awaitable[None]):
    """What a call gives that has nothing to wait for: it may be awaited, or not."""

    def __await__(self) -> Generator[Any, None, None]:
        return
        yield


class BackendClient:
    """A backend."""

    def __init__(self, place: Backend, path: str) -> None:
        self._place = place
        self.id = metadata.backend_id(place.home, place.device or 0)
        self.host = self.name = self.hostname = self.address = path
        self.port = 0

    async def flush_all(self) -> None:
        """Do nothing: objects are not kept in memory."""

    async def stop(self) -> None:
        """Do nothing: there is no service to stop."""

    async def drain(self) -> None:
        """Do nothing: there is no service to drain."""

    async def new_object_version(self, object_id: UUID) -> str:
        """Make a version of an object; give its metadata as JSON."""
        version = by_id(object_id).new_version(self.id)
        return str((version if not isinstance(version, tuple) else by_id(version[0]))._dc_json())

    async def consolidate_object_version(self, object_id: UUID) -> None:
        """Let a version take its original's place."""
        by_id(object_id).consolidate_version()

    def __repr__(self) -> str:
        return f"<backend {self.id} at {self.host!r}>"


class Backends(Mapping[UUID, BackendClient]):
    """The backends there are, by id."""

    def __init__(self, home: Home | None) -> None:
        self._home = home
        self._found: dict[UUID, BackendClient] = {}
        self.update()

    def update(self) -> _Done:
        """Look again which there are."""
        homes = [] if self._home is None else [self._home]
        homes += [home for home in using.all_homes() if home.key[1] == "default"]
        found: dict[UUID, BackendClient] = {}
        for home in homes:
            for device in using.devices(home):
                backend = BackendClient(Backend(home, device.index), str(device.path))
                found.setdefault(backend.id, backend)
        self._found = found
        return _Done()

    def __getitem__(self, key: UUID) -> BackendClient:
        try:
            return self._found[key]
        except KeyError:
            raise BackendUnknownError(
                f"there is no backend {key}: get_backends() has {len(self._found)}"
            ) from None

    def __iter__(self) -> Iterator[UUID]:
        return iter(self._found)

    def __len__(self) -> int:
        return len(self._found)


class _DataManager:
    """What programs ask to forget objects that are in memory."""

    async def flush_all(self) -> None:
        """Do nothing: objects are not kept in memory."""


class Runtime:
    """A started client's side of the store; dataClay 2's `getRuntime()` gives it, too."""

    def __init__(self, home: Home, dataset: str) -> None:
        self.home = home
        self.dataset_name = dataset
        self.data_manager = _DataManager()
        self.backend_clients = Backends(home)

    @property
    def is_backend(self) -> bool:
        """Whether this is asked inside a method of a persistent object."""
        return bool(running.objects)

    @property
    def backend_id(self) -> UUID | None:
        """The backend of the object whose method this is asked in."""
        return backend_of(running.objects[-1]) if running.objects else None

    # dataClay 2

    def get_object_by_id(self, object_id: Any, class_id: Any = None, hint: Any = None) -> Any:
        """Give the object of an id."""
        del class_id, hint
        return by_id(object_id)

    def get_by_alias(self, alias: str, class_id: Any = None, safe: bool = True) -> Any:
        """Give the object of an alias."""
        from engram.compat.dataclay.dataclay_object import DataClayObject  # noqa: PLC0415

        del class_id, safe
        return DataClayObject.get_by_alias(alias)

    def delete_alias_in_dataclay(self, alias: str) -> None:
        """Take an alias away."""
        from engram.compat.dataclay.dataclay_object import DataClayObject  # noqa: PLC0415

        DataClayObject.delete_alias(alias)

    def get_all_execution_environments_info(
        self, force_update: bool = False
    ) -> dict[UUID, BackendClient]:
        """Give the backends by id."""
        del force_update
        self.backend_clients.update()
        return dict(self.backend_clients)

    def get_execution_environments_names(self) -> list[str]:
        """Give the backends' names: the paths of the pools' devices."""
        self.backend_clients.update()
        return [backend.name for backend in self.backend_clients.values()]

    def get_all_locations(self, object_id: Any) -> dict[UUID, BackendClient]:
        """Give the backends that an object or a replica of it is in."""
        self.backend_clients.update()
        return {each: self.backend_clients[each] for each in by_id(object_id).backends}

    def new_replica(self, object_id: Any, backend_id: Any = None, recursive: bool = True) -> Any:
        """Make a replica of an object."""
        return by_id(object_id).new_replica(backend_id, recursive)

    def move_object(
        self, instance: Any, src: Any = None, dst: Any = None, recursive: bool = True
    ) -> None:
        """Move an object to another backend."""
        del src
        instance.move(dst, recursive)

    def get_num_objects(self) -> int:
        """Tell how many objects there are in the client's dataset."""
        group = self.home.group_if_there(OBJECTS)
        return 0 if group is None else len(_engram.names(self.home.namespace, group, None, 1 << 40))


_current: list[Runtime] = []
"""The runtimes of the clients that are started, the last one in use."""


def current() -> Runtime | None:
    """Give the runtime of the client that was started last, if one is started."""
    while _current and not _current[-1].home.is_open:
        _current.pop()
    return _current[-1] if _current else None


def begin(runtime: Runtime) -> None:
    """Use a runtime from now on."""
    _current.append(runtime)


def end(runtime: Runtime) -> None:
    """Use the one before it from now on."""
    if runtime in _current:
        _current.remove(runtime)


def home(dataset: str | None = None) -> Home:
    """Give the home of objects that a call means: of its dataset, of the client, or the only one.

    Raises
    ------
    DatasetIsNotAccessibleError
        If there is no such dataset.

    """
    runtime = current()
    if running.objects:
        found = running.objects[-1]._home
    else:
        found = runtime.home if runtime is not None else using.home()
    if dataset is None:
        return found
    return dataset_home(found, dataset, make=False)


def dataset_home(near: Home, dataset: str | None, *, make: bool) -> Home:
    """Give the namespace of a pool that a dataset is.

    Raises
    ------
    DatasetIsNotAccessibleError
        If there is none, and none is made.

    """
    name = "default" if dataset in OWN_NAMES else str(dataset)
    mode = "r+" if near.namespace.writable else "r"
    pool = Pool(_shared_opening(near.pool_path, mode, near.key[0]))
    try:
        if make and name not in pool.namespaces:
            pool.create_namespace(name)
        return home_of(pool if name == "default" else Namespace(pool.namespaces[name]._namespace))
    except EngramError as error:
        raise DatasetIsNotAccessibleError(str(dataset), None) from error


def dataset_of(found: Home) -> str:
    """Give the name of the dataset that a home is."""
    return "admin" if found.key[1] == "default" else found.key[1]


def place_of(named: Any) -> Backend | None:
    """Give the backend that a `backend_id` names; None of None.

    Raises
    ------
    BackendUnknownError
        If there is no such backend. It is a `KeyError`.

    """
    if named is None or not isinstance(named, UUID):
        return named  # a pool, a path or an index are Engram's own
    runtime = current()
    backends = Backends(runtime.home if runtime is not None else home())
    return backends[named]._place


def first_device(of: Home) -> int:
    """Give the device that objects are in for which none was named."""
    return int(using.devices(of)[0].index)


def backend_of(obj: Any) -> UUID:
    """Give the backend that a persistent object is in."""
    device = obj._noted(DEVICE)
    return metadata.backend_id(obj._home, first_device(obj._home) if device is None else device)


def by_id(object_id: Any) -> Any:
    """Give the object of an id, in whatever way it is written.

    Raises
    ------
    DoesNotExistError
        If there is none in the pools that are open.

    """
    from engram.active.object import ActiveObject  # noqa: PLC0415 - that needs this module

    number = object_id if isinstance(object_id, UUID) else _number(str(object_id))
    if number is None:
        return _by_engrams_id(str(object_id))
    place = metadata.found(number)
    if place is None:
        raise DoesNotExistError(f"/object/{number}")
    try:
        return handle(ActiveObject, *place)
    except DoesNotExistError:
        raise
    except KeyError:
        raise DoesNotExistError(f"/object/{number}") from None


def _number(text: str) -> UUID | None:
    """Read an id as dataClay 4 (JSON) or 2 writes it; None if it is Engram's own way."""
    if text.startswith("{"):
        return metadata.ObjectMetadata.model_validate_json(text).id
    first = text.split(":", maxsplit=1)[0]
    return UUID(first) if "-" in first else None


def _by_engrams_id(text: str) -> Any:
    from engram.active.object import ActiveObject  # noqa: PLC0415 - as above
    from engram.active.places.ways import place_of_id  # noqa: PLC0415 - as above

    return handle(ActiveObject, *place_of_id(text, None))


def handle(cls: type["ActiveObject"], home: Home, gid: int) -> Any:
    """Give a stored object; its class's module is imported if the program has not done so.

    As dataClay does. Only of a pool that others cannot write, which else would name the module.

    Raises
    ------
    ClassUnknownError
        If there is no such module.

    """
    try:
        return cls._handle(home, gid)
    except ClassUnknownError:
        if classes._others_may_write(home):
            raise
        module = str(home.notes(gid, CLASS)).rpartition("@")[0].rpartition(".")[0]
        try:
            importlib.import_module(module)
        except ImportError:
            module = ""
        if not module:
            raise
        return cls._handle(home, gid)
