"""Where an object is: backends, moving, and replicas.

A *backend* is a namespace of a pool, and a device of it if one is named. An object that moves to
another pool leaves a note behind, which references and aliases follow. A *replica* is a copy in
another backend, for reading: it answers with what it got at the last `sync`, and refuses changes.
"""

import os
from collections.abc import Mapping
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from engram import _engram
from engram.active import undoing, using
from engram.active.code import classes
from engram.active.errors import ObjectDeletedError, gone
from engram.active.places import far
from engram.active.places.far import follows
from engram.active.places.ways import full
from engram.active.stored.forms import MISSING, form_of
from engram.active.stored.home import Home, home_of
from engram.active.stored.identity import ByIdentity
from engram.active.stored.layout import ALIASES_OF, CLASS, OUTSIDE
from engram.active.stored.meanwhile import again
from engram.active.transaction import field_view
from engram.errors import ArgumentError, NotFoundError, ReadOnlyError
from engram.paths import POOL_FILE

if TYPE_CHECKING:
    from engram.active.fields import Field

REPLICA_OF = "__replica_of__"
REPLICAS = "__replicas__"
DEVICE = "__device__"
TIES = ("__version_of__", "__versions__", REPLICAS)
"""Notes that hold references, and that an object takes along when it moves."""


class Backend(NamedTuple):
    """A place for objects."""

    home: Home
    device: int | None = None
    """The index of a device, if one was named."""

    def __str__(self) -> str:
        if self.home.is_far:
            return str(self.home.location)  # type: ignore[attr-defined]  # of far homes
        path, namespace = self.home.pool_path, self.home.key[1]
        where = path if namespace == "default" else f"{path}?{namespace}"
        return where if self.device is None else f"{where}#{self.device}"


def backend_of(named: Any, current: Home | None = None) -> Backend:
    """Give the backend that a pool, a namespace, a path or an index names.

    Raises
    ------
    ArgumentError, NotFoundError
        If it names none.

    """
    if named is None:
        return Backend(current or using.home())
    if isinstance(named, Backend):
        return named
    elsewhere = far.named(named)
    if elsewhere is not None:
        return Backend(elsewhere)
    if hasattr(named, "_namespace"):
        return Backend(home_of(named))
    if isinstance(named, int) and not isinstance(named, bool):
        home = current or using.home()
        return Backend(home, _device_index(home, named))
    if not isinstance(named, str | os.PathLike):
        raise ArgumentError(
            f"backend {named!r} is none: give a pool, a namespace, the path of a pool, or a device"
        )
    return _backend_at(os.fspath(named), current)


def _backend_at(text: str, current: Home | None) -> Backend:
    """Read a backend's name: a pool's path with `?namespace` and `#device`, or a device's path."""
    if (Path(text) / POOL_FILE).exists() or "?" in text or "#" in text:
        where, _, device = text.partition("#")
        path, _, namespace = where.partition("?")
        home = using.at_path(path, namespace or "default")
        if device and not device.isdecimal():
            raise ArgumentError(f"{device!r} is no number of a device, in the backend {text!r}")
        return Backend(home, _device_index(home, int(device)) if device else None)
    home = current or using.home()
    for device in using.devices(home):
        if os.path.realpath(device.path) == os.path.realpath(text):
            return Backend(home, device.index)
    raise NotFoundError(
        f"there is no backend {text!r}: it is neither a pool nor a device of {home.pool_path!r}"
    )


def _device_index(home: Home, index: int) -> int:
    there = [device.index for device in using.devices(home)]
    if index not in there:
        raise NotFoundError(f"{home.pool_path!r} has no device {index}: it has {there}")
    return index


class Dangling:
    """What stands for an object that is gone, or whose class or pool is, where a field is copied.

    The copy refers to it just as well as what it is a copy of.
    """

    _engram_reference = True
    _volatile = None

    def __init__(self, home: Home, reference: Any) -> None:
        self._near = home if isinstance(reference, int) else None
        self._full = full(home, reference) if isinstance(reference, int) else list(reference)

    def _reference_from(self, home: Home) -> Any:
        """Give the reference as another home keeps it; if it leads to something, that stays."""
        uuid, _, namespace, gid = self._full
        if (uuid, namespace) == home.key:
            return gid
        if self._near is not None:
            with suppress(NotFoundError):
                self._near.keep_for_others(gid)
        return self._full


class Placing:
    """What an active object can do about where it is."""

    _volatile: dict[str, Any] | None
    _home: Home
    _gid: int
    _fields: "dict[str, Field]"
    _replica_of: Any = None
    _same: Any

    @property
    def _may_write(self) -> bool:
        return self._home.namespace.writable and self._replica_of is None

    def _check_writable(self) -> None:
        if self._replica_of is not None:
            raise ReadOnlyError(
                f"{self!r} is a replica: change the original, and sync() brings it here"
            )

    def _backend(self, named: Any) -> tuple[Home, int | None]:
        """Give the home and the device that an object is made in."""
        found = backend_of(named)
        return found.home, found.device

    @follows
    def get_location(self) -> str | None:
        """Give the backend that it is in, as text that `backend_id` takes; None if volatile."""
        if self._volatile is not None:
            return None
        self._stored_home("get_location")
        return str(Backend(self._home, self._noted(DEVICE)))

    @follows
    def get_all_locations(self) -> list[str]:
        """Give the backends that it or a replica of it is in; its own first."""
        if self._volatile is not None:
            return []
        self._noted(DEVICE)
        replicas = (str(each.get_location()) for each in self._replicas())
        return list(dict.fromkeys([str(self.get_location()), *replicas]))

    def _replicas(self) -> list[Any]:
        """Give the replicas that are there still."""
        found = []
        for reference in self._noted(REPLICAS) or ():
            with suppress(ObjectDeletedError):
                found.append(self._at(self._home, reference))
        return found

    def _noted(self, name: str) -> Any:
        try:
            return self._home.notes(self._gid, name)
        except NotFoundError:
            raise gone(type(self).__qualname__, self._gid) from None

    @follows
    def move(self, backend_id: Any, recursive: bool = False) -> None:
        """Move the object to another backend, with `recursive` also those that it refers to.

        Its aliases and the references to it lead to it as before; its id is new in another pool.

        Raises
        ------
        PoolFullError
            If there is no room there; it stays where it is.

        """
        target = backend_of(backend_id, getattr(self, "_home", None))
        if self._volatile is not None:
            self.make_persistent(backend_id=target)  # type: ignore[attr-defined]
            return
        self._stored_home("move")
        if self._same is not None:
            self._same.move(target, recursive)
            self._follow()  # type: ignore[attr-defined]
            return
        self._check_writable()
        from engram.active.places.moving import move  # noqa: PLC0415 - it needs what this makes

        for each in self._reached() if recursive else [self]:
            move(each, target)

    def _move_arrays(self, target: Backend) -> None:
        """Move its arrays to a device of the same pool."""
        home = self._home
        with home.batch():
            home.hold(self._gid)
            for name, loaded in self._loaded().items():
                if target.device is None:
                    break
                if loaded.member:
                    value = field_view(self, name, loaded, write=False)
                elif home.has_member(self._gid, name):
                    value = loaded.value
                else:
                    continue
                form = form_of(name, value, lambda other: other._reference_from(home))
                self._before_replacing(name)
                home.replace(self._gid, name, form, target.device)
            home.note(self._gid, DEVICE, target.device)

    @follows
    def new_replica(self, backend_id: Any = None, recursive: bool = True) -> Any:
        """Copy the object to another backend, with `recursive` also those that it refers to.

        Gives the replica, which can be read there, and found by the same aliases; `sync` brings it
        up to date.

        Raises
        ------
        ArgumentError
            If it is volatile, or a replica itself, or the backend has a replica already.

        """
        home: Home = self._stored_home("new_replica")
        self._check_writable()
        target = backend_of(backend_id, home)
        replica = self._replica_in(target)
        if replica is not None or str(target) == self.get_location():
            raise ArgumentError(f"{self!r} is in {target} already: name another backend")
        if target.home.key != home.key:
            undoing.refuse_batch(f"making a replica of {self!r} in another pool or namespace")
        made: ByIdentity[int] = ByIdentity()
        whole = self._reached() if recursive else [self]
        whole = [each for each in whole if each is self or each._replica_in(target) is None]
        if target.home.is_far:
            return self._replicate_far(target.home, whole)
        with target.home.batch():
            for each in whole:
                made[each] = target.home.create({CLASS: each._class_there(target.home)}, None)
            for each, gid in made.items():
                each._fill_replica(target, gid, made)
                if target.home.key != home.key:
                    target.home.note(gid, OUTSIDE, 1)
        for each, gid in made.items():
            each._has_replica(target.home, gid)
        return self._at(target.home, made[self])

    def _has_replica(self, there: Any, gid: int) -> None:
        """Note a replica that was made."""
        reference = gid if there.key == self._home.key else full(there, gid)
        with self._home.batch():
            self._home.hold(self._gid)
            have = self._noted(REPLICAS) or []
            self._home.note(self._gid, REPLICAS, [*have, reference])

    def _replicate_far(self, there: Any, whole: list[Any]) -> Any:
        """Make replicas of objects on another node; give that of the first."""
        from engram.active.places import parcels  # noqa: PLC0415 - it needs what this makes

        own = [each for each in whole if not each._home.is_far]
        parcel = parcels.of_stored(own)
        aliases = [tuple(each._noted(ALIASES_OF) or ()) for each in own]
        packed = [
            each._replace(aliases=names)
            for each, names in zip(parcel.objects, aliases, strict=True)
        ]
        made = there.replicate(parcel._replace(objects=packed))
        for each, gid in zip(own, made, strict=True):
            each._has_replica(there, gid)
        return self._at(there, made[0])

    def _fill_replica(self, target: Backend, gid: int, made: ByIdentity[int]) -> None:
        home = target.home
        self._copy_to(target, made, gid)
        home.note(gid, REPLICA_OF, self._reference_from(home))
        if home.key != self._home.key:
            have = home.aliases()
            for alias in self._noted(ALIASES_OF) or []:
                if alias not in have:
                    home.add_alias(gid, alias)

    @follows
    def sync(self) -> None:
        """Make what was written into its arrays durable, and bring its replicas up to date.

        Of a replica: bring it up to date with the original.
        """
        home: Home = self._stored_home("sync")
        if self._replica_of is not None:
            self._at(home, self._replica_of)._push(self)
            return
        for loaded in self._loaded().values():
            if loaded.member and home.namespace.writable:
                _engram.flush(home.namespace, loaded.raw)
        for replica in self._replicas():
            self._push(replica)

    def _push(self, replica: Any) -> None:
        """Write all fields into a replica."""
        again(lambda: self._push_now(replica))

    def _push_now(self, replica: Any) -> None:
        if replica._home.is_far:
            self._push_far(replica)
            return
        target = Backend(replica._home, replica._noted(DEVICE))
        with target.home.batch():
            target.home.hold(replica._gid)
            twins: ByIdentity[int] = ByIdentity()
            for each in self._reached():
                twin = each._replica_in(target)
                if twin is not None:
                    twins[each] = twin._gid
            for name in self._fields:
                target.home.delete_field(replica._gid, name)
            self._copy_to(target, twins, replica._gid)

    def _push_far(self, replica: Any) -> None:
        """Write all fields into a replica on another node."""
        from engram.active.places import parcels  # noqa: PLC0415 - it needs what this makes

        others = []
        for each in self._reached():
            twin = None if each is self else each._replica_in(Backend(replica._home))
            if twin is not None:
                others.append((each, twin._gid))
        replica._home.refresh(replica._gid, parcels.of_stored([self], others=others))

    # What helps them

    def _class_there(self, home: Home) -> str:
        return classes.register(home, type(self))  # type: ignore[arg-type]

    def _loaded(self) -> dict[str, Any]:
        """Read all fields that have a value."""
        fields: Any = self._fields  # of an active object, which this is a part of
        found = {name: field.load(self, self._met) for name, field in fields.items()}
        return {name: loaded for name, loaded in found.items() if loaded is not MISSING}

    def _met(self, reference: Any) -> Any:
        """Give the object of a reference that is copied; of one that is gone what stands for it."""
        try:
            return self._at(self._home, reference)
        except NotFoundError:
            return Dangling(self._home, reference)

    def _copy_to(self, target: Backend, twins: Mapping[Any, int], gid: int | None = None) -> int:
        """Copy all fields into another home's object; `twins` are objects that are there, too."""
        home = target.home

        def refer(other: Any) -> Any:
            if other in twins:
                return twins[other]
            if not isinstance(other, Dangling) and other._home.key != home.key:
                other._home.keep_for_others(other._gid)
            return other._reference_from(home)

        if gid is None:
            gid = home.create({CLASS: self._class_there(home)}, None)
        for name, loaded in self._loaded().items():
            if loaded.member:
                value = np.asarray(field_view(self, name, loaded, write=False))
            else:
                value = loaded.value
            form = form_of(self._label(name), value, refer)
            home.replace(gid, name, form, target.device)
        if target.device is not None:
            home.note(gid, DEVICE, target.device)
        return gid

    def _tie_for(self, home: Home, name: str) -> Any:
        """Give a note that holds references, as another home keeps it."""
        tie = self._noted(name)
        if tie is None:
            return None
        if isinstance(tie, list) and not (tie and isinstance(tie[0], str)):
            return [self._known_in(home, each) for each in tie]
        return self._known_in(home, tie)

    def _known_in(self, home: Home, reference: Any) -> Any:
        """Give a reference as another home keeps it; what it leads to stays for that home."""
        if not isinstance(reference, int):
            uuid, _, namespace, gid = reference
            return gid if (uuid, namespace) == home.key else reference
        with suppress(NotFoundError):
            self._home.keep_for_others(reference)
        return full(self._home, reference)

    def _replica_in(self, target: Backend) -> Any:
        """Give the replica in a backend, if there is one."""
        for replica in self._replicas():
            if replica.get_location() == str(target):
                return replica
        return None

    def _reached(self) -> list[Any]:
        """Give all stored objects that it refers to, at any depth, itself first."""
        found: ByIdentity[None] = ByIdentity()
        found[self] = None
        waiting = [self]
        while waiting:
            each = waiting.pop()
            if each._home.is_far:
                continue  # what that refers to is its node's concern
            for name in each._fields:
                for reference in each._home.references_of(each._gid, name):
                    other = each._met(reference)
                    if not isinstance(other, Dangling) and other not in found:
                        found[other] = None
                        waiting.append(other)
        return list(found)

    # Of the other parts of an active object

    if TYPE_CHECKING:

        def _stored_home(self, what: str) -> Home: ...
        def _label(self, name: str) -> str: ...
        def _reference_from(self, home: Home) -> Any: ...
        def _before_replacing(self, name: str) -> None: ...
        @classmethod
        def _at(cls, home: Home, reference: Any) -> Any: ...
