"""Active objects: Python objects whose declared fields live in a pool."""

import copy
import functools
import inspect
import threading
from contextlib import suppress
from numbers import Integral
from typing import TYPE_CHECKING, Any, ClassVar, Self

import numpy as np

from engram import _engram, later, tokens
from engram.active import undoing, using
from engram.active.asynchronous import Twins
from engram.active.code import classes, schema
from engram.active.errors import UndeclaredFieldError, WentFarError, gone
from engram.active.fields import NO_DEFAULT, Field
from engram.active.method import ActiveMethod, BoundMethod
from engram.active.places import parcels, ways
from engram.active.places.far import check_alias, follows
from engram.active.places.placing import REPLICA_OF, Placing
from engram.active.places.versions import Versions, before_deletion
from engram.active.stored import values
from engram.active.stored.forms import Loaded
from engram.active.stored.home import Home
from engram.active.stored.layout import ALIASES_OF, CLASS
from engram.active.stored.meanwhile import again, unless_changed
from engram.active.stored.records import GIDS
from engram.active.stored.storing import Storing
from engram.active.transaction import DELETED, MOST_TRIES, field_view, local
from engram.errors import ArgumentError, BusyError, NotFoundError
from engram.extras import library

if TYPE_CHECKING:
    from engram.scope import Scope

_making = threading.RLock()


class ActiveObject(Twins, Versions, Placing):
    """An object whose annotated attributes lie in a pool, and whose methods run there.

    ::

        class Block(engram.ActiveObject):
            data: np.ndarray
            label: str = ""

            @engram.activemethod
            def mean(self) -> float:
                return self.data.mean()

        block = Block(data=temperatures)
        block.make_persistent("T")
        Block.get_by_alias("T").mean()       # in any process, now or later

    Until `make_persistent` it is an ordinary object. Then each of its fields is in the pool: a
    numpy array as an array of the pool, numbers, strings, containers, dates, dataclasses and
    pydantic models by value, other active objects as references. Attributes without annotation are
    this process's own. Without an `__init__`, a class has one that takes its fields.

    Reading a field of a stored object reads the pool: an array is a numpy array on its memory,
    which may be written into; a container is a copy, so that a change of it has to be assigned (in
    active methods it need not). Assigning is a commit. One stored object is one Python object in a
    process. Objects pickle: a stored one as its id.
    """

    _fields: dict[str, Field] = {}  # noqa: RUF012 - replaced in each class, not changed
    _engram_reference: ClassVar[bool] = True
    _hints: ClassVar[dict[str, Any] | None] = None
    _outdated: ClassVar[bool] = False

    _volatile: dict[str, Any] | None
    _home: Home
    _gid: int

    # Classes

    def __init_subclass__(cls, **kwargs: Any) -> None:
        """Make fields of what the class annotates."""
        super().__init_subclass__(**kwargs)
        library("msgpack", "active", f"{cls.__qualname__}: storing active objects")
        fields = cls._declared()
        for name, field in fields.items():
            _check_name(cls, name)
            setattr(cls, name, field)
        cls._fields = cls._fields | fields
        cls._hints = None
        cls._outdated = False  # until a class of the same name is defined
        if not cls.__module__.startswith("engram.compat."):
            classes.enter(cls)

    @classmethod
    def _declared(cls) -> dict[str, Field]:
        """Give the fields that the class's own body declares."""
        return {
            name: Field(cls.__qualname__, name, hint, cls.__dict__.get(name, NO_DEFAULT))
            for name, hint in schema.annotated(cls).items()
        }

    @classmethod
    def _resolved(cls) -> dict[str, Any]:
        """Give the fields' annotations as types, as far as their names are known."""
        if cls._hints is None:
            hints = {name: field.hint for name, field in cls._fields.items()}
            resolved = cls._hints = schema.resolved(cls, hints)
            for hint in resolved.values():
                for kind in values.mentioned(hint):
                    if values.is_named(kind):
                        values.learn(kind)
        return cls._hints

    @classmethod
    def _facts(cls) -> dict[str, schema.Fact]:
        """Give what is stored of the class's fields."""
        return {
            name: schema.Fact(schema.text_of(hint), cls._fields[name].default is not NO_DEFAULT)
            for name, hint in cls._resolved().items()
        }

    @classmethod
    def _containers(cls) -> set[str]:
        """Give the fields whose values may be changed in place, arrays apart."""
        return {
            name
            for name, (kind, _) in cls._facts().items()
            if not schema.is_array(kind) and not schema.is_fixed(kind)
        }

    @classmethod
    def _signatures(cls) -> list[str]:
        """Give the active methods, with their arguments."""
        found = []
        for name, method in inspect.getmembers_static(cls):
            if isinstance(method, ActiveMethod):
                found.append(f"{name}{inspect.signature(method.function)}")
        return found

    # Making

    def __new__(cls, *args: Any, **kwargs: Any) -> Self:
        """Make a volatile object, with its fields' defaults; `__init__` may set others."""
        del args, kwargs
        if not cls._fields and cls.__module__.startswith("engram.active"):
            raise ArgumentError("ActiveObject itself has no fields: make a class of it that has")
        made = super().__new__(cls)
        made._volatile = {
            name: copy.deepcopy(field.default)
            for name, field in cls._fields.items()
            if field.default is not NO_DEFAULT
        }
        return made

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        """Take fields: by position in the order in which they are declared, or by name."""
        names = list(self._fields)
        if len(args) > len(names):
            raise ArgumentError(
                f"{type(self).__qualname__} takes {len(names)} fields, not {len(args)}: "
                f"{', '.join(names) or 'it has none'}"
            )
        given = dict(zip(names, args, strict=False))
        for name, value in kwargs.items():
            if name in given:
                raise ArgumentError(f"{type(self).__qualname__} was given {name!r} twice")
            given[name] = value
        for name, value in given.items():
            self._field(name)
            setattr(self, name, value)

    # Life

    @property
    def is_persistent(self) -> bool:
        """Whether it is in a pool."""
        undoing.undo_abandoned()
        return self._volatile is None

    def make_persistent(
        self,
        alias: str | None = None,
        backend_id: Any = None,
        recursive: bool = True,
        scope: "Scope | None" = None,
    ) -> None:
        """Put the object into a pool, and with it all objects that it refers to, all or nothing.

        Parameters
        ----------
        alias
            A name for it, one of its own in the pool. An object that has none, and to which nothing
            refers that has one, goes when unreachable objects are collected (`engram active gc`).
        backend_id
            Where: a pool, a namespace, the path of a pool; or a device of the pool in use, by path
            or index. By default the pool in use (`engram.active.use`).
        recursive
            Whether objects that it refers to come with it. If not, they must be persistent.
        scope
            Who sees it: "private" or "shared"; as the namespace has it, if not given.

        An object that is persistent gets the alias, and is moved if `backend_id` is another one.

        Raises
        ------
        AliasTakenError
            If another object has the alias; in a cluster also on another node that answers.
        UnsupportedFieldError
            If a field's value cannot be stored.
        PoolFullError
            If there is no room.

        """
        alias = alias or None
        undoing.undo_abandoned()
        if scope not in (None, "private", "shared"):
            raise ArgumentError(
                f'scope {scope!r} is unknown: use "private" or "shared" (and publish what is '
                "finished)"
            )
        if self._volatile is None:
            self._noted(CLASS)  # it may have been deleted
            if backend_id is not None:
                self.move(backend_id)
            if alias is not None:
                self.add_alias(alias)
            return
        home, device = self._backend(backend_id)
        if alias is not None:
            check_alias(home, alias)
        if home.is_far:
            self._make_far(home, alias, scope, recursive=recursive)
            return
        simple = alias is None and local.transaction is None

        def store() -> None:
            with Storing(home, scope=scope, recursive=recursive, device=device) as storing:
                gid = storing.make_whole(self) if simple else storing.make(self)
                if alias is not None:
                    home.add_alias(gid, alias)

        again(store)

    def _make_far(
        self, home: Any, alias: str | None, scope: "Scope | None", *, recursive: bool
    ) -> None:
        """Put the object into a pool of another node, with those that it refers to."""
        undoing.refuse_batch(f"making {self!r} persistent on another node")
        parcel, whole = parcels.of_volatile(self, recursive=recursive)
        for each, gid in zip(whole, home.make(parcel, alias, scope), strict=True):
            each._become(home, gid)

    @classmethod
    def get_by_alias(cls, alias: str, *, pool: Any = None) -> Self:
        """Give the object that has an alias; of a cluster, on whichever node it lies.

        Raises
        ------
        AliasNotFoundError
            If none has.
        ArgumentError
            If it is of another class.
        ClassUnknownError, ClassChangedError
            If its class is not defined in this program, or differs from the stored one.

        """
        cluster = using.cluster_of(pool)
        if cluster is not None:
            home, gid = cluster._place_of_alias(alias)
        else:
            home = using.home(pool)
            gid = home.by_alias(alias)
        return cls._checked(cls._handle(home, gid), alias)

    @classmethod
    def get_by_id(cls, object_id: str | int, *, pool: Any = None) -> Self:
        """Give the object of an id, which `get_id` gave; of a cluster, on whichever node it lies.

        Raises
        ------
        ObjectDeletedError
            If there is none.
        ArgumentError
            If it is no id, or a number, which names no node of a cluster.

        """
        cluster = using.cluster_of(pool)
        if isinstance(object_id, str):
            home, gid = ways.place_of_id(object_id, pool if cluster is None else cluster)
        elif cluster is not None:
            raise ArgumentError(
                f"{object_id!r} does not say on which node of {cluster!r} the object lies: give "
                "the text that get_id() gives, or pool= a node"
            )
        elif isinstance(object_id, Integral) and int(object_id) in GIDS:
            home, gid = using.home(pool), int(object_id)
        else:
            raise ArgumentError(f"{object_id!r} is no id of an active object: get_id() gives one")
        return cls._checked(cls._handle(home, gid), object_id)

    def get_id(self) -> str | None:
        """Give the object's id: pool, namespace and number, as text; None if it is volatile."""
        if self._volatile is not None:
            return None
        uuid, namespace = self._home.key
        return f"{uuid}:{namespace}:{self._gid:x}"

    @follows
    def add_alias(self, alias: str) -> None:
        """Give the object another name.

        Raises
        ------
        AliasTakenError
            If something has it; in a cluster also on another node that answers.

        """
        home = self._stored_home("add_alias")
        check_alias(home, alias, self._gid)

        def add() -> None:
            with home.batch():
                home.add_alias(self._gid, alias)

        try:
            again(add)
        except NotFoundError:
            raise gone(type(self).__qualname__, self._gid) from None

    @follows
    def get_aliases(self) -> set[str]:
        """Give the object's names."""
        home = self._stored_home("get_aliases")
        try:
            return set(home.notes(self._gid, ALIASES_OF) or ())
        except NotFoundError:
            raise gone(type(self).__qualname__, self._gid) from None

    @classmethod
    def delete_alias(cls, alias: str, *, pool: Any = None) -> None:
        """Take a name away; its object stays, until unreachable ones are collected.

        Raises
        ------
        AliasNotFoundError
            If no object has it.

        """
        cluster = using.cluster_of(pool)
        if cluster is not None:
            home, _ = cluster._place_of_alias(alias)
        else:
            home = using.home(pool)
        if home.is_far:
            home.delete_alias(alias)
            return

        def take() -> None:
            with home.batch():
                home.delete_alias(alias)

        again(take)

    @follows
    def delete(self) -> None:
        """Delete the object, with its names and its arrays; views of these live on.

        What it refers to stays. References to it answer `ObjectDeletedError` from then on.
        """
        home = self._stored_home("delete")

        def take() -> None:
            with home.batch():
                before_deletion(home, self._gid)
                home.delete(self._gid)

        try:
            again(lambda: unless_changed(home, take, self._gid))
        except NotFoundError:
            raise gone(type(self).__qualname__, self._gid) from None
        undoing.note(self)
        home.live.pop(self._gid, None)

    def __dask_tokenize__(self) -> object:
        """By what name dask knows the object: another one each time, as its fields may change."""
        return tokens.new()

    @follows
    def get_properties(self) -> dict[str, Any]:
        """Give all fields that have a value: of a stored object, as one commit left them."""
        found: dict[str, Any] = {}
        for _ in range(MOST_TRIES):
            before = self._last_modified()
            found.clear()
            for name in self._fields:
                with suppress(AttributeError):
                    found[name] = getattr(self, name)
            if self._last_modified() == before:
                return found
        raise BusyError(f"{self!r} is changed again and again while its fields are read")

    def _last_modified(self) -> int:
        if self._volatile is not None:
            return 0
        try:
            return self._home.modified(self._gid)
        except NotFoundError:
            raise gone(type(self).__qualname__, self._gid) from None

    # What helps them

    @classmethod
    def _field(cls, name: str) -> Field:
        field = cls._fields.get(name)
        if field is None:
            raise UndeclaredFieldError(
                f"{cls.__qualname__} has no field {name!r}: its fields are "
                f"{', '.join(cls._fields) or 'none'}"
            )
        return field

    def _label(self, name: str) -> str:
        field = self._fields.get(name)
        return field.label if field is not None else f"{type(self).__qualname__}.{name}"

    def _stored_home(self, what: str) -> Home:
        if self._volatile is not None:
            raise ArgumentError(f"{self!r} is not persistent: make_persistent() before {what}()")
        if self._follow() and self._home.is_far:
            raise WentFarError(f"{self!r} was moved to another node meanwhile")
        return self._home

    def _follow(self) -> bool:
        """Be the object that this one has become, if another process moved it; tell whether."""
        try:
            if self._home.notes(self._gid, CLASS) != "":
                return False
            home, gid = ways.end_of(self._home, self._gid)
            replica_of = home.notes(gid, REPLICA_OF)
        except NotFoundError:
            return False
        self._go_to(home, gid)
        self._replica_of = replica_of
        return True

    def _go_to(self, home: Home, gid: int) -> None:
        """Be the stored object that is there; what has been that here so far is the same."""
        undoing.note(self)
        with _making:
            self._home.live.pop(self._gid, None)
            there = home.live.get(gid)
            while there is not None and there._same is not None:
                there = there._same
            if there is None or there is self or there._outdated or there._gid != gid:
                self._same = None
                self._become(home, gid)
            else:
                self._same = there
                home.fit(self)
                self._home, self._gid = home, gid

    def _put(self, changed: dict[str, Any]) -> None:
        """Assign fields of a stored object, as one commit."""
        if self._follow() and self._home.is_far:
            for name, value in changed.items():
                if value is DELETED:
                    delattr(self, name)
                else:
                    setattr(self, name, value)
            return
        self._check_writable()
        own = [name for name, value in changed.items() if self._is_itself(name, value)]
        rest = {name: value for name, value in changed.items() if name not in own}
        if rest:
            again(lambda: self._put_now(rest))

    def _put_now(self, changed: dict[str, Any]) -> None:
        home, gid = self._home, self._gid
        if self._put_plain(changed):
            return
        try:
            scope = home.scope_of(gid)
        except NotFoundError:
            raise gone(type(self).__qualname__, gid) from None
        with Storing(home, scope=scope) as storing:
            for name, value in changed.items():
                if value is not DELETED:
                    storing.put(self, name, value)
                    continue
                try:
                    unless_changed(home, functools.partial(self._delete_field, home, name), gid)
                except NotFoundError:
                    raise gone(type(self).__qualname__, gid) from None

    def _delete_field(self, home: Home, name: str) -> None:
        home.hold(self._gid)
        self._before_replacing(name)
        home.delete_field(self._gid, name)

    def _put_plain(self, changed: dict[str, Any], before: dict[str, Loaded] | None = None) -> bool:
        """Assign fields in the short way, if they can be; and if they are what they were."""
        if any(self._fields[name].array_first for name in changed):
            return False  # it may borrow an array
        try:
            return self._home.put_plain(self._gid, changed, before or {})
        except NotFoundError:
            raise gone(type(self).__qualname__, self._gid) from None

    def _is_itself(self, name: str, value: Any) -> bool:
        """Tell whether an array is the field's own memory: `obj.data += 1` assigns that."""
        if not isinstance(value, np.ndarray) or not value.flags.writeable:
            return False
        loaded = self._field(name).load(self)
        if not loaded.member or loaded.value[2:] != (value.dtype, value.shape):
            return False
        if not value.nbytes:
            return True
        try:
            own = field_view(self, name, loaded, write=False)
        except NotFoundError:  # somebody has assigned another one
            return False
        same = own.ctypes.data == value.ctypes.data and own.strides == value.strides
        if same and self._home.careful:
            _engram.flush(self._home.namespace, loaded.raw)
        return bool(same)

    def _become(self, home: Home, gid: int) -> None:
        """Be a stored object from now on."""
        home.fit(self)
        self._home, self._gid, self._volatile = home, gid, None
        home.live[gid] = self

    @classmethod
    def _handle(cls, home: Home, gid: int) -> "ActiveObject":
        """Give the Python object of a stored one: one in this process."""
        there = _live(home, gid)
        if there is not None:
            return there
        for _ in range(ways.MOST_TRIES):
            # Other nodes may be asked: nobody waits for that who makes a handle of what is here.
            home, gid = ways.end_of(home, gid) if not home.is_far else (home, gid)
            if home.is_far:
                return home.handle(gid, cls)  # type: ignore[attr-defined, no-any-return]
            there = _live(home, gid)
            if there is not None:
                return there
            try:
                stored = home.notes(gid, CLASS)
                replica_of = home.notes(gid, REPLICA_OF)
            except NotFoundError:
                raise gone("active", gid) from None
            if stored != "":  # else somebody has moved it since
                break
        if not stored:
            raise NotFoundError(f"the group {gid:#x} is no active object")
        kind = classes.class_of(home, stored, cls)
        with _making:
            there = _live(home, gid)
            if there is not None:
                return there
            made = kind.__new__(kind)
            made._become(home, gid)
            made._replica_of = replica_of
            made._found()
            return made

    def _found(self) -> None:
        """Do what a class wants done once, when a stored object becomes a Python object."""

    @classmethod
    def _at(cls, home: Home, reference: Any) -> "ActiveObject":
        """Give the object of a reference that was found in a home."""
        return cls._handle(*ways.place_of(home, reference))

    def _object_of(self, reference: Any) -> "ActiveObject":
        return ActiveObject._at(self._home, reference)

    def _reference_from(self, home: Home) -> Any:
        """Give the reference to this object that is kept in a home."""
        if self._home.key == home.key:
            return self._gid
        uuid, namespace = self._home.key
        return [uuid, self._home.pool_path, namespace, self._gid]

    @classmethod
    def _checked(cls, found: "ActiveObject", asked: Any) -> Self:
        if not isinstance(found, cls):
            raise ArgumentError(
                f"{asked!r} is of class {values.name_of(type(found))}, not {values.name_of(cls)}: "
                "ask that class for it"
            )
        return found

    if not TYPE_CHECKING:  # a misspelt name is an error to a type checker

        def __getattr__(self, name: str) -> Any:
            """Give the asynchronous twin of an active method: `await obj.a_mean()`."""
            if name in self._fields:  # its own error is not seen where there is this method
                raise self._fields[name].missing(self)
            if name.startswith("a_"):
                method = getattr(type(self), name[2:], None)
                if isinstance(method, ActiveMethod):
                    return self._twin(BoundMethod(method, self))
            raise AttributeError(
                f"{type(self).__qualname__!r} object has no attribute {name!r}", name=name, obj=self
            )

    def __reduce__(self) -> Any:
        if self._volatile is None:
            uuid, namespace = self._home.key
            return _again, (uuid, self._home.pool_path, namespace, self._gid)
        own = {key: value for key, value in self.__dict__.items() if key != "_volatile"}
        return _volatile_again, (type(self), self._volatile, own)

    def __copy__(self) -> "ActiveObject":
        return self

    def __deepcopy__(self, memo: object) -> "ActiveObject":
        return self

    def _repr_html_(self) -> str:
        return later.card(self)

    def __repr__(self) -> str:
        name = type(self).__qualname__
        if self._volatile is not None:
            return f"<{name} (volatile)>"
        return f"<{name} {self._gid:#x} in {self._home.pool_path!r}>"


def _live(home: Home, gid: int) -> ActiveObject | None:
    """Give the Python object that there is already of a stored one."""
    there = home.live.get(gid)
    if there is None or there._gid != gid or there._outdated:
        return None
    return there  # type: ignore[no-any-return]


def _check_name(cls: type, name: str) -> None:
    own = any(name in vars(base).get("__annotations__", ()) for base in ActiveObject.__mro__)
    if name.startswith("__") or own or hasattr(ActiveObject, name):
        raise ArgumentError(
            f"{cls.__qualname__} cannot have a field {name!r}: ActiveObject uses that name itself"
        )


def _again(uuid: str, path: str, namespace: str, gid: int) -> ActiveObject:
    """Give a stored object that was pickled."""
    return ActiveObject._handle(ways.home_again(uuid, namespace, path), gid)


def _volatile_again(cls: type[ActiveObject], fields: Any, own: dict[str, Any]) -> ActiveObject:
    made = cls.__new__(cls)
    made._volatile = fields
    made.__dict__.update(own)
    return made
