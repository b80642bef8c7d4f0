"""Where active objects live: a namespace of a pool, and how they lie in it.

Layout. All is in the group `.active` of the namespace, made of groups, attributes, arrays and blobs
as anybody could make them, so that all the store promises holds for it:

    .active/objects/<token>    a group for each object; its GID is the object's id
    .active/aliases/<alias>    an array of one number, the GID (odd characters as %XX)
    .active/classes/<class>    a blob for each version of each class (`classes.py`)

A field is one of: an *attribute* (numbers, strings, truth values as they are, so that queries see
them; any other value encoded, as an array of bytes), a *blob* of that name (an encoded value of
more than `MOST_INLINE` bytes), an *array* of that name (a numpy array). What an object is, who
calls it what, and its versions stand in attributes whose names begin and end with two underscores,
which no field may have.

Invariant: an object is committed whole, with its aliases and with all objects that it refers to
and that were not stored before; so is each change. A commit that makes an object refer to another
one *touches* that (its `__links__`), so that a collection of what is unreachable, which looked
before, sees that it was linked meanwhile.
"""

import itertools
import os
import time
from concurrent.futures import ThreadPoolExecutor
from typing import Any
from weakref import WeakValueDictionary

import numpy as np

from engram import _engram
from engram.active.places.far import Near
from engram.active.stored import values
from engram.active.stored.aliases import Aliases, alias_path
from engram.active.stored.forms import MISSING, NATIVE, Form, Loaded, is_plain, loaded_attribute
from engram.active.stored.layout import (
    ALIASES,
    ALIASES_OF,
    ARRIVING,
    CLASS,
    CLASSES,
    LINKS,
    MOVED,
    OBJECTS,
    OUTSIDE,
)
from engram.active.undoing import if_undone
from engram.errors import (
    ArgumentError,
    BusyError,
    NotFoundError,
)
from engram.handle import reopen
from engram.member import REPLACING, new_member
from engram.namespace import Namespace
from engram.pool import _open_here

_numbers = itertools.count()
_tokens = itertools.count()
_token_prefix = ("", 0)


def new_token() -> str:
    """Make a name that no other object has, of any process."""
    global _token_prefix  # noqa: PLW0603 - one prefix a process, another one in each fork
    if _token_prefix[1] != os.getpid():
        _token_prefix = (os.urandom(8).hex(), os.getpid())
    return f"{_token_prefix[0]}{next(_tokens):06x}"


class Home(Near, Aliases):
    """A namespace of an open pool, as the home of active objects."""

    def __init__(self, namespace: _engram.Namespace) -> None:
        super().__init__(namespace)
        self.key = (namespace.uuid, namespace.name)
        self.live: WeakValueDictionary[int, Any] = WeakValueDictionary()
        self._groups: dict[str, int] = {}
        self.classes_seen: set[str] = set()
        """The versions of classes that were found in it."""
        self.careful = False
        """Whether what is written in place has to be flushed: for the medium or for checksums."""

    def __reduce__(self) -> Any:
        mode = "r+" if self.namespace.writable else "r"
        return _home_again, (self.pool_path, mode, self.namespace.name, self.key[0])

    # Groups

    def group(self, path: str, scope: str | None = None) -> int:
        """Give the group at one of the fixed paths, made if it is not there."""
        gid = self._groups.get(path)
        if gid is None:
            place = (self.namespace, self.namespace.root, path)
            gid = _engram.create_group(*place, attrs=None, origin=b"", exist_ok=True, scope=scope)
            self._groups[path] = gid
            if_undone(lambda: self._groups.pop(path, None))
        return gid

    def make_groups(self) -> None:
        """Make the fixed groups, which are all users', before a batch on what is one user's."""
        for path in (OBJECTS, ALIASES, CLASSES):
            self.group(path)

    def create(self, attributes: dict[str, Any], scope: str | None) -> int:
        """Make an object's group."""
        for again in (True, False):
            parent = self.group(OBJECTS, scope)
            try:
                place = (self.namespace, parent, new_token())
                return _engram.create_group(
                    *place, attrs=attributes, origin=b"", exist_ok=False, scope=scope
                )
            except NotFoundError:  # somebody deleted the whole of it
                self._groups.clear()
                if not again:
                    raise
        raise AssertionError

    # Fields

    def store(self, gid: int, name: str, form: Form, device: Any = None) -> None:
        """Put a field whose attribute, if it has one, is put elsewhere; in a batch."""
        new = REPLACING if device is None else new_member(overwrite=True, device=device)
        if form.kind == "array":
            _engram.put_array(self.namespace, gid, name, form.value, new)
        elif form.kind == "blob":
            _engram.put_blob(self.namespace, gid, name, form.value, new)

    def references_of(self, gid: int, name: str) -> list[Any]:
        """Give the references that a field holds now, as they are kept."""
        value = _engram.attr_get(self.namespace, True, gid, name)
        if isinstance(value, np.ndarray):
            return values.references(value.tobytes())
        found = _engram.find(self.namespace, gid, name) if value is None else None
        if found is None or found[0] == 1:
            return []
        return values.references(_engram.read_blob(self.namespace, found[1]))

    def replace(self, gid: int, name: str, form: Form, device: Any = None) -> None:
        """Put a field, whatever form it had before; in a batch."""
        namespace = self.namespace
        if form.kind == "attribute":
            if _engram.contains(namespace, gid, name):
                _engram.delete(namespace, gid, name)
            _engram.attr_set(namespace, True, gid, {name: form.value})
            return
        if _engram.attr_get(namespace, True, gid, name) is not None:
            _engram.attr_delete(namespace, True, gid, name)
        self.store(gid, name, form, device)

    def has_member(self, gid: int, name: str) -> bool:
        """Tell whether a field is kept as an array or a blob."""
        return _engram.contains(self.namespace, gid, name)

    def load(self, gid: int, name: str, label: str, refer: Any, *, array_first: bool) -> Loaded:
        """Read a field, but for an array's contents: its value is then the found member.

        Raises
        ------
        NotFoundError
            If the object is gone.

        """
        namespace = self.namespace
        if array_first:
            found = _engram.find(namespace, gid, name)
            if found is not None and found[0] == 1:
                return Loaded(found, found[1], member=True)
        value = _engram.attr_get(namespace, True, gid, name)
        if value is not None:
            return loaded_attribute(value, label, refer)
        found = _engram.find(namespace, gid, name)
        if found is None:
            return MISSING
        if found[0] == 1:
            return Loaded(found, found[1], member=True)
        packed = _engram.read_blob(namespace, found[1])
        return Loaded(values.Decoder(label, refer).decode(packed), found[1])

    def put_plain(self, gid: int, changed: dict[str, Any], before: dict[str, Loaded]) -> bool:
        """Put fields whose values are plain and were, in one commit without a batch, if they are.

        Those of `before` have to be that still; where they are not it puts nothing.

        Raises
        ------
        NotFoundError
            If the object is gone.

        """
        if self.notes(gid, CLASS) == "":  # it was moved by another process
            return False
        for name, value in changed.items():
            if type(value) not in NATIVE or not is_plain(value) or self.has_member(gid, name):
                return False
        was = {name: loaded.raw for name, loaded in before.items()}
        if not all(type(raw) in NATIVE and is_plain(raw) for raw in was.values()):
            return False
        try:
            _engram.attr_set(self.namespace, True, gid, changed, was or None)
        except BusyError:  # changed; or of another type that is as good
            if not was:
                raise
            return False
        return True

    def delete_field(self, gid: int, name: str) -> None:
        """Delete a field, whatever form it has; in a batch."""
        if _engram.attr_get(self.namespace, True, gid, name) is not None:
            _engram.attr_delete(self.namespace, True, gid, name)
        if _engram.contains(self.namespace, gid, name):
            _engram.delete(self.namespace, gid, name)

    def keep_for_others(self, gid: int) -> None:
        """Note that something of another pool, namespace or scope refers to an object, for ever.

        A collection of what is unreachable here cannot see that it is reached from there. It is a
        commit of its own, in a thread of its own, since this one may be in a batch elsewhere.
        """
        if not self.namespace.writable or self.notes(gid, OUTSIDE) is not None:
            return
        if _engram.group_info(self.namespace, gid).scope == "published":
            return  # nobody collects it
        with ThreadPoolExecutor(1) as other:
            other.submit(self.note, gid, OUTSIDE, 1).result()

    def touch(self, gid: int) -> None:
        """Note that something refers to an object from now on; it must be there.

        Raises
        ------
        NotFoundError
            If it is not.

        """
        if _engram.group_info(self.namespace, gid).scope == "published":
            return  # nobody collects it
        try:
            _engram.attr_set(self.namespace, True, gid, {LINKS: time.time_ns()})
        except BusyError:  # it is in another scope than what this batch is on
            self.keep_for_others(gid)

    def rename_member(self, gid: int, name: str, target: int) -> None:
        """Give an object's array or blob, which stays what it is, to another object; in a batch."""
        path = _engram.path_of(self.namespace, True, target)
        _engram.rename(self.namespace, gid, name, f"/{path}/{name}")

    def forward(self, gid: int, target: Any) -> None:
        """Make of an object a note of where it is now; in a batch."""
        for name in _engram.names(self.namespace, gid, None, 1_000_000):
            _engram.delete(self.namespace, gid, name)
        if self.notes(gid, ARRIVING) is not None:
            self.note(gid, OUTSIDE, 1)  # what it came from refers to it
        for name in _engram.attr_names(self.namespace, True, gid):
            if name not in {CLASS, ALIASES_OF, LINKS, OUTSIDE}:
                _engram.attr_delete(self.namespace, True, gid, name)
        self.note(gid, CLASS, "")
        self.note(gid, MOVED, target)

    def delete(self, gid: int) -> None:
        """Delete an object with its aliases; in a batch."""
        self.hold(gid)
        for alias in self.notes(gid, ALIASES_OF) or []:
            path = alias_path(alias)
            if _engram.contains(self.namespace, self.namespace.root, path):
                _engram.delete(self.namespace, self.namespace.root, path)
        info = _engram.group_info(self.namespace, gid)
        _engram.delete(self.namespace, info.parent, info.name)


_homes: WeakValueDictionary[tuple[str, str], Home] = WeakValueDictionary()
"""Homes that some object, or a call that goes on, still has."""

_ever: WeakValueDictionary[int, Home] = WeakValueDictionary()
"""All of them, with those in whose place another opening of the pool has put another one."""


def home_of(pool: Any) -> Home:
    """Give the home of active objects that a pool's or a namespace's handle means.

    Raises
    ------
    ArgumentError
        If it is neither, or closed.

    """
    namespace = getattr(pool, "_namespace", None)
    if namespace is None:
        raise ArgumentError(f"{pool!r} is no pool and no namespace of one: open one, and give that")
    if not namespace.is_open:
        raise ArgumentError("the pool is closed: open it again with engram.open")
    key = (namespace.uuid, namespace.name)
    there = _homes.get(key)
    if there is not None and there.is_open and there.namespace.writable >= namespace.writable:
        return there
    made = Home(namespace)
    made.careful = _is_careful(pool, namespace)
    _homes[key] = made
    _ever[next(_numbers)] = made
    return made


def in_hand(key: tuple[str, str]) -> set[int]:
    """Give the objects of a namespace that this process has as Python objects, by any opening."""
    # `valuerefs` is the one look at such a dictionary that other threads may change meanwhile.
    known = [home for ref in _ever.valuerefs() if (home := ref()) is not None]
    refs = [ref for home in known if home.key == key for ref in home.live.valuerefs()]
    return {ref.key for ref in refs if ref() is not None}


def _is_careful(pool: Any, namespace: _engram.Namespace) -> bool:
    durability = getattr(pool, "durability", None)
    if durability is None:
        opening = _open_here.get((str(namespace.pool_path), "r+" if namespace.writable else "r"))
        return opening is None or opening.durability == "system" or opening.checksums
    return bool(durability == "system" or pool.checksums)


def _home_again(path: str, mode: str, namespace: str, uuid: str | None = None) -> Home:
    """Give the home of an object that was pickled in another process."""
    return home_of(Namespace(reopen[0](path, mode, namespace, uuid)))


def homes() -> list[Home]:
    """Give all homes whose pools are open here."""
    return [home for home in list(_homes.values()) if home.is_open]
