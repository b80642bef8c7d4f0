"""`DataClayObject`: Engram's active object with dataClay's names, arguments and errors.

Two generations of dataClay differ in a few names. A class is of dataClay 2 if its docstring
declares fields, or if a method of it has `@dclayMethod`; else it is of dataClay 4. Its subclasses
are of the same.

- `is_persistent` is a truth value; in dataClay 2 it can also be called.
- `new_version` gives the version; in dataClay 2 its id and its backend's.
- `new_replica` gives None; in dataClay 2 the backend's id, and it is recursive by default.
- `dc_clone`, `dc_update`, `dc_put` and those by alias are coroutines; in dataClay 2 plain methods.
- `getID` is JSON; in dataClay 2 "object:backend:class".
- `get_location` is Engram's own; in dataClay 2 the backend's id.
- A field without a value is `AttributeError`; in dataClay 2 it is None once the object is stored.
- `make_persistent("")` gives no alias; in dataClay 2 it is `AttributeError`.
- A class without an `__init__` takes its fields; those of a docstring also in another order, if the
  types tell which is which (`arguments.py`).

What is otherwise than in dataClay, and what a program gains or has to know:

- There is one object in a process, not one in the client and one in a backend: attributes without
  annotation that a method sets are seen outside of it.
- A class that is local to a function can be stored. `delete` deletes an object.
- Values are stored as data, not pickled: a value of a type that a pool does not hold is
  `UnsupportedValueError`, and nothing was stored.
- A replica is read by those who ask for it by backend; `sync()` brings it up to date.
- A method that raises has changed nothing; a version is consolidated as one commit.
- A class with `__getstate__` and `__setstate__` stores its fields. When a stored object becomes a
  Python object, `__setstate__` is given what `__getstate__` says, and may set what is no field.
- Objects end with the client that they were got by: after `stop`, get them again by alias or id.
"""

import asyncio
import contextlib
import copy
import logging
from collections.abc import Callable, Iterator
from typing import Any, ClassVar, Self
from uuid import UUID, uuid5

import numpy as np

from engram.active.errors import (
    AliasNotFoundError,
    AliasTakenError,
    ObjectDeletedError,
    UnsupportedFieldError,
    VersionError,
)
from engram.active.fields import Field
from engram.active.object import ActiveObject
from engram.active.places.placing import Backend
from engram.active.places.versions import CHAIN, ORIGINAL
from engram.active.stored.identity import ByIdentity
from engram.active.stored.values import name_of
from engram.active.transaction import Transaction, field_view, local
from engram.compat.dataclay import arguments, fields, metadata, runtime
from engram.compat.dataclay.docstrings import fields_of, import_into_module
from engram.compat.dataclay.exceptions import (
    AliasAlreadyExistError,
    AliasDoesNotExistError,
    DoesNotExistError,
    ObjectIsNotVersionError,
    ObjectNotRegisteredError,
    UnsupportedValueError,
)
from engram.compat.dataclay.method import is_in_method, note_birth

_log = logging.getLogger("engram.compat.dataclay")

_PREFIX = "_dc_property_"
_CLASSES = UUID("3c1b7c9e-33a1-5d1b-8a0e-5f7d9c0e7a42")


class Answer(int):
    """A truth value that can be called, too: `is_persistent` was a method in dataClay 2."""

    def __call__(self) -> bool:
        """Give it."""
        return bool(self)

    def __repr__(self) -> str:
        return repr(bool(self))


class DataClayObject(ActiveObject):
    """An object of a dataClay program, in a pool."""

    _dc_is_2: ClassVar[bool] = False
    _dc_twin: Any = None

    def __init_subclass__(cls, **kwargs: Any) -> None:
        """Make fields of what the class declares, in the manner of either dataClay."""
        import_into_module(cls)
        super().__init_subclass__(**kwargs)
        methods = any(hasattr(member, "_dclay_method") for member in vars(cls).values())
        cls._dc_is_2 = cls._dc_is_2 or methods or bool(fields_of(cls))

    @classmethod
    def _declared(cls) -> dict[str, Field]:
        own = cls.__module__.startswith("engram.compat.dataclay")
        return {} if own else fields.declared(cls, ActiveObject)

    def __new__(cls, *args: Any, **kwargs: Any) -> Self:
        """Make an object, which is persistent if a method of a persistent object makes it."""
        made = super().__new__(cls, *args, **kwargs)
        note_birth(made)
        return made

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        """Take fields by position or by name; those of a docstring by their types, too."""
        kinds = {
            name: field.hint
            for name, field in self._fields.items()
            if isinstance(field, fields.DocstringField)
        }
        if len(kinds) == len(self._fields) >= len(args) > 0:
            kwargs |= arguments.given(type(self).__qualname__, kinds, args, kwargs)
            args = ()
        for name in kwargs.keys() & kinds.keys():
            kwargs[name] = arguments.converted(kinds[name], kwargs[name])
        super().__init__(*args, **kwargs)

    def _found(self) -> None:
        """Let a class with a state of its own set what is no field."""
        kind = type(self)
        put = getattr(kind, "__setstate__", None)
        if put is None or kind.__getstate__ is object.__getstate__:
            return
        before, local.transaction = local.transaction, Transaction()
        try:
            put(self, kind.__getstate__(self))
        except AttributeError as error:
            _log.warning("%r: __setstate__ was not called: %s", self, error)
        finally:
            local.transaction = before

    # What dataClay's own code and its tests look at

    @property
    def _dc_is_registered(self) -> bool:
        return self._volatile is None or is_in_method()

    _dc_is_local = _dc_is_loaded = True

    @property
    def _dc_is_replica(self) -> bool:
        return self._replica_of is not None

    @property
    def _dc_meta(self) -> metadata.ObjectMetadata:
        self._dc_settle()
        name = name_of(type(self))
        if self._volatile is not None:
            return metadata.ObjectMetadata(None, None, name)
        original = self._noted(ORIGINAL)
        first = None if original is None or self._ended else self._at(self._home, original)
        chain = [self._at(self._home, each) for each in self._noted(CHAIN) or []]
        return metadata.ObjectMetadata(
            metadata.object_id(self._home, self._gid),
            runtime.dataset_of(self._home),
            name,
            runtime.backend_of(self),
            self.backends - {runtime.backend_of(self)},
            self._replica_of is not None,
            None if first is None else first.get_object_id(),  # type: ignore[attr-defined]
            [each.get_object_id() for each in chain],  # type: ignore[attr-defined]
        )

    def _dc_json(self) -> str:
        return self._dc_meta.model_dump_json()

    def _dc_settle(self) -> None:
        """Store the object now if it is one that a method has made."""
        if self._volatile is not None and is_in_method():
            self._dc_make(None, None, recursive=True, scope=None)

    def _dc_registered(self) -> None:
        self._dc_settle()
        if self._volatile is not None:
            raise ObjectNotRegisteredError(repr(self))

    def __eq__(self, other: object) -> bool:
        if self is other:
            return True
        if not isinstance(other, DataClayObject) or self._volatile is not None:
            return False
        same = other._volatile is None and other._gid == self._gid
        return same and other._home.key == self._home.key

    def __hash__(self) -> int:
        return object.__hash__(self) if self._dc_twin is None else hash(self._dc_twin)

    # Life

    @property
    def is_persistent(self) -> Any:
        """Whether it is in a pool; of a class of dataClay 2 it can be called, too."""
        return Answer(self._dc_is_registered) if self._dc_is_2 else self._dc_is_registered

    def make_persistent(
        self,
        alias: str | None = None,
        backend_id: Any = None,
        recursive: bool = True,
        scope: Any = None,
    ) -> None:
        """Put the object and what it refers to into a pool; or give it an alias, or move it.

        Raises
        ------
        AlreadyExistError
            If another object has the alias.
        BackendUnknownError
            If there is no such backend. It is a `KeyError`.

        """
        if alias == "" and self._dc_is_2:
            raise AttributeError("Alias cannot be None or empty string")
        if self._volatile is not None and not (is_in_method() and not alias and not backend_id):
            self._dc_make(alias, backend_id, recursive=recursive, scope=scope)
        elif self._volatile is None:
            if backend_id is not None:
                self.move(backend_id)
            if alias:
                self.add_alias(alias)

    def _dc_make(self, alias: str | None, backend_id: Any, *, recursive: bool, scope: Any) -> None:
        place = runtime.place_of(backend_id) or Backend(runtime.home())
        with _told(alias):
            super().make_persistent(alias, place, recursive, scope)

    makePersistent = make_persistent  # noqa: N815 - an older name

    def delete_persistent(self) -> None:
        """Take the object out of the pool; it stays what it is in this process."""
        if self._volatile is not None:
            return
        values = self._dc_values()
        self.delete()
        self._volatile = values

    deletePersistent = delete_persistent  # noqa: N815 - an older name

    def getID(self) -> str | None:  # noqa: N802 - dataClay's name
        """Give what `storage.api.getByID` finds it by; None if it is not persistent."""
        self._dc_settle()
        if self._volatile is not None:
            return None
        if self._dc_is_2:
            kind = uuid5(_CLASSES, name_of(type(self)))
            return f"{self.get_object_id()}:{runtime.backend_of(self)}:{kind}"
        return self._dc_json()

    def get_object_id(self) -> UUID | None:
        """Give its id."""
        self._dc_settle()
        if self._volatile is not None:
            return None
        return metadata.object_id(self._home, self._gid)

    @classmethod
    def get_by_id(cls, object_id: Any, *_hints: Any, pool: Any = None) -> Any:
        """Give the object of an id.

        Raises
        ------
        DoesNotExistError
            If there is none.

        """
        try:
            if isinstance(object_id, UUID) or (isinstance(object_id, str) and pool is None):
                return cls._checked(runtime.by_id(object_id), object_id)
            return super().get_by_id(object_id, pool=pool)
        except DoesNotExistError:
            raise
        except ObjectDeletedError:
            raise DoesNotExistError(f"/object/{object_id}") from None

    get_object_by_id = get_by_id

    @classmethod
    def get_by_alias(  # type: ignore[override]
        cls, alias: str, dataset_name: str | bool | None = None, *, safe: bool = True
    ) -> Self:
        """Give the object that has an alias, in a dataset: by default the client's.

        Raises
        ------
        AliasDoesNotExistError
            If none has.

        """
        del safe
        dataset = None if isinstance(dataset_name, bool) else dataset_name
        home = runtime.home(dataset)
        with _told(alias, dataset):
            return cls._checked(runtime.handle(cls, home, home.by_alias(alias)), alias)

    def add_alias(self, alias: str) -> None:
        """Give the object another name."""
        self._dc_registered()
        if not alias:
            raise AttributeError("Alias cannot be None or empty string")
        with _told(alias):
            super().add_alias(alias)

    def get_aliases(self) -> set[str]:
        """Give the object's names; none if it is not persistent."""
        self._dc_settle()
        return set() if self._volatile is not None else super().get_aliases()

    def get_alias(self) -> str | None:
        """Give one of its names, if it has any."""
        return min(self.get_aliases(), default=None)

    @classmethod
    def delete_alias(  # type: ignore[override]
        cls, alias: str, dataset_name: str | None = None
    ) -> None:
        """Take a name away, if there is an object that has it."""
        home = runtime.home(dataset_name)
        with contextlib.suppress(AliasNotFoundError), home.batch():
            home.delete_alias(alias)

    # Where it is

    @property
    def backends(self) -> set[UUID]:
        """The backends that it or a replica of it is in."""
        if self._volatile is not None:
            return set()
        replicas = [self._at(self._home, each) for each in self._noted("__replicas__") or ()]
        return {runtime.backend_of(self), *map(runtime.backend_of, replicas)}

    def get_location(self) -> Any:
        """Give the backend that it is in."""
        if self._dc_is_2 and self._volatile is None:
            return runtime.backend_of(self)
        return super().get_location()

    def move(self, backend_id: Any, recursive: bool = False, remotes: bool = True) -> None:
        """Move the object to another backend, with `recursive` also those that it refers to.

        Without `remotes` only those that are in the same backend as what refers to them.
        """
        self._dc_settle()
        place = runtime.place_of(backend_id)
        if self._volatile is not None:
            self.make_persistent(backend_id=backend_id)
            return
        for each in self._dc_reached(remotes=remotes) if recursive else [self]:
            if not each._dc_is_in(place):
                ActiveObject.move(each, place)

    def _dc_is_in(self, place: Any) -> bool:
        if not isinstance(place, Backend):
            return False
        device = runtime.first_device(place.home) if place.device is None else place.device
        return runtime.backend_of(self) == metadata.backend_id(place.home, device)

    def _dc_reached(self, *, remotes: bool) -> list["DataClayObject"]:
        """Give the stored objects that it refers to, at any depth, itself first."""
        start = runtime.backend_of(self)
        found: ByIdentity[None] = ByIdentity()
        found[self] = None
        waiting: list[DataClayObject] = [self]
        while waiting:
            each = waiting.pop()
            for name in each._fields:
                for reference in each._home.references_of(each._gid, name):
                    other: Any = self._at(each._home, reference)
                    near = remotes or runtime.backend_of(other) == start
                    if near and other not in found:
                        found[other] = None
                        waiting.append(other)
        return list(found)

    def new_replica(
        self, backend_id: Any = None, recursive: bool | None = None, remotes: bool = True
    ) -> Any:
        """Copy the object to another backend, for reading: by default to one that has none.

        With `recursive`, as by default in dataClay 2, also all objects that it refers to.
        """
        del remotes
        self._dc_registered()
        place = runtime.place_of(backend_id)
        if place is None:
            there = runtime.Backends(self._home)
            free = [each for key, each in there.items() if key not in self.backends]
            place = free[0]._place if free else None
        if place is None or self._dc_is_in(place):
            _log.warning("%r has a replica in every backend already", self)
            return None
        super().new_replica(place, self._dc_is_2 if recursive is None else recursive)
        device = runtime.first_device(place.home) if place.device is None else place.device
        return metadata.backend_id(place.home, device) if self._dc_is_2 else None

    def sync(self) -> None:
        """Make what was written in place durable, and bring the replicas up to date."""
        self._dc_registered()
        super().sync()

    # Versions

    def new_version(self, backend_id: Any = None, recursive: bool = False) -> Any:
        """Make a version of the object: one of its own, with the same values."""
        del recursive
        self._dc_registered()
        made = super().new_version(runtime.place_of(backend_id))
        if self._dc_is_2:
            return made.get_object_id(), runtime.backend_of(made)
        return made

    def consolidate_version(self) -> None:
        """Let this version take its original's place: from then on the two are one object."""
        self._dc_settle()
        reference = None if self._volatile is not None or self._ended else self._noted(ORIGINAL)
        if reference is None:
            raise ObjectIsNotVersionError(repr(self))
        original = self._at(self._home, reference)
        between = [self._at(self._home, each) for each in self._noted(CHAIN) or []]
        try:
            super().consolidate_version()
        except VersionError:
            raise ObjectIsNotVersionError(repr(self)) from None
        for version in [self, *between]:
            version._dc_twin = original  # type: ignore[attr-defined]

    # Values

    def _dc_values(self) -> dict[str, Any]:
        """Copy all fields' values; other objects are the same."""
        if self._volatile is not None:
            return copy.deepcopy(self._volatile)
        found = {}
        for name, loaded in self._loaded().items():
            if loaded.member:
                found[name] = np.array(field_view(self, name, loaded, write=False))
            else:
                found[name] = loaded.value
        if local.transaction is not None:
            for name in self._fields:
                with contextlib.suppress(AttributeError):
                    found[name] = copy.deepcopy(getattr(self, name))
        return found

    def get_properties(self) -> dict[str, Any]:
        """Give all fields that have a value, each with `_dc_property_` before its name."""
        return {_PREFIX + name: value for name, value in super().get_properties().items()}

    def dc_update_properties(self, new_properties: dict[str, Any]) -> None:
        """Assign fields, all at once; their names begin with `_dc_property_`."""
        self._dc_assign({key.removeprefix(_PREFIX): v for key, v in new_properties.items()})

    async def a_dc_update_properties(self, new_properties: dict[str, Any]) -> None:
        """Do as `dc_update_properties`."""
        await asyncio.to_thread(self.dc_update_properties, new_properties)

    def _dc_assign(self, values: dict[str, Any]) -> None:
        for name in values:
            self._field(name)
        if self._volatile is None and local.transaction is None:
            with _told(None):
                self._put(values)
        else:
            for name, value in values.items():
                setattr(self, name, value)

    @classmethod
    def _dc_do(cls, work: Callable[[], Any]) -> Any:
        """Do what is a plain method in dataClay 2, and a coroutine in dataClay 4."""
        return work() if cls._dc_is_2 else _later(work)

    def dc_clone(self, recursive: bool = False) -> Any:
        """Give a copy of the object that is not persistent; other objects are the same."""
        del recursive
        return self._dc_do(self._dc_clone)

    def _dc_clone(self) -> Self:
        made = type(self).__new__(type(self))
        made._volatile = self._dc_values()
        return made

    def dc_update(self, from_object: Any) -> Any:
        """Assign all fields that another object of the class has, all at once."""
        return self._dc_do(lambda: self._dc_update(from_object))

    set_all = dc_update

    def _dc_update(self, other: Any) -> None:
        if other is None and self._dc_is_2:
            return
        if not isinstance(other, type(self)):
            raise TypeError(f"from_object is {other!r}, and no {type(self).__qualname__}")
        self._dc_assign(other._dc_values())

    def dc_put(self, alias: str, backend_id: Any = None, recursive: bool = True) -> Any:
        """Do as `make_persistent`, with an alias."""
        return self._dc_do(lambda: self._dc_put(alias, backend_id, recursive))

    def _dc_put(self, alias: str, backend_id: Any, recursive: bool) -> None:
        if not alias:
            raise AttributeError("Alias cannot be None or empty string")
        self.make_persistent(alias, backend_id, recursive)

    @classmethod
    def dc_clone_by_alias(cls, alias: str, recursive: bool = False) -> Any:
        """Give a copy, which is not persistent, of the object that has an alias."""
        del recursive
        return cls._dc_do(lambda: cls.get_by_alias(alias)._dc_clone())

    @classmethod
    def dc_update_by_alias(cls, alias: str, from_object: Any) -> Any:
        """Assign all fields of the object that has an alias."""

        def work() -> None:
            if type(from_object) is not cls:
                raise TypeError(f"from_object is {from_object!r}, and no {cls.__qualname__}")
            cls.get_by_alias(alias)._dc_update(from_object)

        return cls._dc_do(work)

    # dataClay 2

    def synchronize(self, field_name: str, value: Any) -> None:
        """Assign a field."""
        self._dc_assign({field_name: value})

    def session_detach(self) -> None:
        """Do nothing: there are no sessions that keep objects."""


async def _later(work: Callable[[], Any]) -> Any:
    return await asyncio.to_thread(work)


@contextlib.contextmanager
def _told(alias: str | None, dataset: str | None = None) -> Iterator[None]:
    """Raise dataClay's errors for Engram's."""
    try:
        yield
    except AliasTakenError:
        name = dataset or runtime.dataset_of(runtime.home())
        raise AliasAlreadyExistError(str(alias), name) from None
    except AliasNotFoundError:
        raise AliasDoesNotExistError(str(alias), dataset) from None
    except UnsupportedFieldError as error:
        raise UnsupportedValueError(str(error)) from None


StorageObject = DataClayObject

__all__ = ["Answer", "DataClayObject", "StorageObject"]
