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
one *touches* that (its `__links__`), so that whoever collects what is unreachable, and looked
before, sees that it was linked meanwhile.

What a batch reads is no guard; what it writes is. So whoever reads an object's record and writes
what follows from it *holds* the object first, by writing `__held__` into it: from then on the batch
relies on the record being what it was at that moment. Arrays and blobs are rows of their own, so
who replaces one holds the object, too. If others were faster, the batch is undone, and done again
(`again`).
"""

import itertools
import os
import random
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from typing import TYPE_CHECKING, Any, Final, NamedTuple, TypeVar
from urllib.parse import quote, unquote
from weakref import WeakValueDictionary

import numpy as np

from engram import _engram
from engram.active import values
from engram.active.errors import (
    AliasNotFoundError,
    AliasTakenError,
    ConflictError,
    ObjectDeletedError,
    UnsupportedFieldError,
)
from engram.array import Array
from engram.errors import (
    ArgumentError,
    BusyError,
    ExistsError,
    InvalidNameError,
    NotFoundError,
)
from engram.handle import reopen
from engram.namespace import Namespace
from engram.pool import _open_here

if TYPE_CHECKING:
    from engram._engram import Realm
    from engram.scope import Scope

ROOT: Final = ".active"
OBJECTS: Final = f"{ROOT}/objects"
ALIASES: Final = f"{ROOT}/aliases"
CLASSES: Final = f"{ROOT}/classes"

CLASS: Final = "__class__"
ALIASES_OF: Final = "__aliases__"
LINKS: Final = "__links__"
MOVED: Final = "__moved__"
OUTSIDE: Final = "__outside__"
HELD: Final = "__held__"
SHARING: Final = "__sharing__"

MOST_INLINE: Final = 4096
"""The longest encoded value, in bytes, that is kept as an attribute."""

_TRIES: Final = 200
"""How often a batch is done again."""

T = TypeVar("T")

_LONGEST_ALIAS: Final = 255
_NATIVE: Final = frozenset((bool, int, float, str))
_I64: Final = range(-(2**63), 2**63)
_SAFE: Final = " !#$&'()*+,-:;<=>?@[]^_`{|}~"

_tokens = itertools.count()
_held = itertools.count()
_token_prefix = ("", 0)


def again(work: Callable[[], T]) -> T:
    """Do what is one batch, again where others have changed meanwhile what it relies on.

    Raises
    ------
    BusyError
        If others are faster each time.

    """
    for left in range(_TRIES, -1, -1):
        try:
            return work()
        except ConflictError:
            raise
        except BusyError:
            if not left:
                raise
            time.sleep(random.random() * 0.001)  # noqa: S311 - so that two do not meet again
    raise AssertionError


class Form(NamedTuple):
    """How a field's value is kept."""

    kind: str
    """One of "attribute", "blob" and "array"."""
    value: Any
    """What the attribute's value is; the blob's bytes; the array."""
    refers: tuple[Any, ...] = ()
    """The active objects that it refers to."""


class Loaded(NamedTuple):
    """A field's value as it was read."""

    value: Any
    raw: Any
    """What tells whether it is still the same: the attribute, encoded bytes, or the OID."""

    member: bool = False
    """Whether it is an array: the value is then what was found, not what is in it."""


MISSING: Final = Loaded(None, None)
"""There is no such field in the object."""


def new_token() -> str:
    """Make a name that no other object has, of any process."""
    global _token_prefix  # noqa: PLW0603 - one prefix a process, another one in each fork
    if _token_prefix[1] != os.getpid():
        _token_prefix = (os.urandom(8).hex(), os.getpid())
    return f"{_token_prefix[0]}{next(_tokens):06x}"


def alias_path(alias: str) -> str:
    """Give the path of an alias.

    Raises
    ------
    InvalidNameError
        If it is no text, empty, or too long.

    """
    if not isinstance(alias, str) or not alias:
        raise InvalidNameError(f"an alias is a text of some length, not {alias!r}")
    name = quote(alias, safe=_SAFE, errors="surrogatepass").replace(".", "%2E")
    if len(name) > _LONGEST_ALIAS:
        raise InvalidNameError(
            f"the alias {alias[:40]!r}... is too long: its name in the pool has {len(name)} bytes, "
            f"at most {_LONGEST_ALIAS} fit"
        )
    return f"{ALIASES}/{name}"


class Home:
    """A namespace of an open pool, as the home of active objects."""

    def __init__(self, realm: "Realm") -> None:
        self.realm = realm
        self.key = (realm.uuid, realm.namespace)
        self.live: WeakValueDictionary[int, Any] = WeakValueDictionary()
        self._groups: dict[str, int] = {}
        self.careful = False
        """Whether what is written in place has to be flushed: for the medium or for checksums."""

    @property
    def is_open(self) -> bool:
        """Whether its pool is open still."""
        return self.realm.is_open

    @property
    def pool_path(self) -> str:
        """The pool's path."""
        return str(self.realm.pool_path)

    def __reduce__(self) -> Any:
        mode = "r+" if self.realm.writable else "r"
        return _home_again, (self.pool_path, mode, self.realm.namespace)

    def batch(self) -> _engram.Batch:
        """Begin a batch."""
        return _engram.Batch(self.realm)

    # Groups

    def group(self, path: str, scope: str | None = None) -> int:
        """Give the group at one of the fixed paths, made if it is not there."""
        gid = self._groups.get(path)
        if gid is None:
            gid = _engram.create_group(self.realm, self.realm.root, path, None, b"", True, scope)
            self._groups[path] = gid
        return gid

    def make_groups(self) -> None:
        """Make the fixed groups, which are all users', before a batch on what is one user's."""
        for path in (OBJECTS, ALIASES, CLASSES):
            self.group(path)

    def group_if_there(self, path: str) -> int | None:
        """Give the group at one of the fixed paths, if it is there."""
        found = _engram.find(self.realm, self.realm.root, path)
        return found[1] if found is not None and found[0] == 0 else None

    def create(self, attributes: dict[str, Any], scope: str | None) -> int:
        """Make an object's group."""
        for again in (True, False):
            parent = self.group(OBJECTS, scope)
            try:
                return _engram.create_group(
                    self.realm, parent, new_token(), attributes, b"", False, scope
                )
            except NotFoundError:  # somebody deleted the whole of it
                self._groups.clear()
                if not again:
                    raise
        raise AssertionError

    # Fields

    def form_of(self, label: str, value: Any, refer: Any) -> Form:
        """Give the form in which a value is kept; `refer` is asked for each active object in it.

        Raises
        ------
        UnsupportedFieldError
            If it cannot be stored.

        """
        kind = type(value)
        if kind in _NATIVE and _is_plain(value):
            return Form("attribute", value)
        if isinstance(value, np.ndarray):
            return Form("array", _checked(label, value))
        if isinstance(value, Array):
            return Form("array", np.asarray(value) if value.dtype.kind != "T" else value[...])
        refers: list[Any] = []

        def referred(target: Any) -> Any:
            refers.append(target)
            return refer(target)

        packed = values.Encoder(label, referred).encode(value)
        if len(packed) > MOST_INLINE:
            return Form("blob", packed, tuple(refers))
        return Form("attribute", np.frombuffer(packed, np.uint8), tuple(refers))

    def store(self, gid: int, name: str, form: Form, device: Any = None) -> None:
        """Put a field whose attribute, if it has one, is put elsewhere; in a batch."""
        realm = self.realm
        if form.kind == "array":
            place = (True, device, None, False, None, b"")
            _engram.put_array(realm, gid, name, form.value, None, None, None, None, *place)
        elif form.kind == "blob":
            _engram.put_blob(
                realm, gid, name, form.value, None, True, device, None, False, None, b""
            )

    def references_of(self, gid: int, name: str) -> list[Any]:
        """Give the references that a field holds now, as they are kept."""
        value = _engram.attr_get(self.realm, True, gid, name)
        if isinstance(value, np.ndarray):
            return values.references(value.tobytes())
        found = _engram.find(self.realm, gid, name) if value is None else None
        if found is None or found[0] == 1:
            return []
        return values.references(_engram.read_blob(self.realm, found[1]))

    def replace(self, gid: int, name: str, form: Form, device: Any = None) -> None:
        """Put a field, whatever form it had before; in a batch."""
        realm = self.realm
        if form.kind == "attribute":
            if _engram.contains(realm, gid, name):
                _engram.delete(realm, gid, name)
            _engram.attr_set(realm, True, gid, {name: form.value})
            return
        if _engram.attr_get(realm, True, gid, name) is not None:
            _engram.attr_delete(realm, True, gid, name)
        self.store(gid, name, form, device)

    def has_member(self, gid: int, name: str) -> bool:
        """Tell whether a field is kept as an array or a blob."""
        return _engram.contains(self.realm, gid, name)

    def load(self, gid: int, name: str, label: str, refer: Any, *, array_first: bool) -> Loaded:
        """Read a field, but for an array's contents: its value is then the found member.

        Raises
        ------
        NotFoundError
            If the object is gone.

        """
        realm = self.realm
        if array_first:
            found = _engram.find(realm, gid, name)
            if found is not None and found[0] == 1:
                return Loaded(found, found[1], member=True)
        value = _engram.attr_get(realm, True, gid, name)
        if value is not None:
            return _loaded_attribute(value, label, refer)
        found = _engram.find(realm, gid, name)
        if found is None:
            return MISSING
        if found[0] == 1:
            return Loaded(found, found[1], member=True)
        packed = _engram.read_blob(realm, found[1])
        return Loaded(values.Decoder(label, refer).decode(packed), found[1])

    def put_plain(self, gid: int, changed: dict[str, Any]) -> bool:
        """Put fields whose values are plain and were, in one commit without a batch, if they are.

        Raises
        ------
        NotFoundError
            If the object is gone.

        """
        if self.notes(gid, CLASS) == "":  # it was moved by another process
            return False
        for name, value in changed.items():
            if type(value) not in _NATIVE or not _is_plain(value) or self.has_member(gid, name):
                return False
        _engram.attr_set(self.realm, True, gid, changed)
        return True

    def delete_field(self, gid: int, name: str) -> None:
        """Delete a field, whatever form it has; in a batch."""
        if _engram.attr_get(self.realm, True, gid, name) is not None:
            _engram.attr_delete(self.realm, True, gid, name)
        if _engram.contains(self.realm, gid, name):
            _engram.delete(self.realm, gid, name)

    def hold(self, gid: int) -> None:
        """Have this batch rely on the object being as it is now, until it is committed.

        Raises
        ------
        NotFoundError
            If it is not there.

        """
        _engram.attr_set(self.realm, True, gid, {HELD: next(_held)})

    # What an object is called

    def notes(self, gid: int, name: str) -> Any:
        """Read one of the attributes that are no fields: a plain value, or None."""
        value = _engram.attr_get(self.realm, True, gid, name)
        if isinstance(value, np.ndarray):
            return values.Decoder(name, _no_reference).decode(value.tobytes())
        return value if value is None or type(value) is str else value.item()

    def note(self, gid: int, name: str, value: Any) -> None:
        """Write one of the attributes that are no fields; None deletes it."""
        if value is None:
            if _engram.attr_get(self.realm, True, gid, name) is not None:
                _engram.attr_delete(self.realm, True, gid, name)
            return
        if type(value) not in _NATIVE:
            packed = values.Encoder(name, _no_reference).encode(value)
            value = np.frombuffer(packed, np.uint8)
        _engram.attr_set(self.realm, True, gid, {name: value})

    def keep_for_others(self, gid: int) -> None:
        """Note that something of another pool, namespace or scope refers to an object, for ever.

        Who collects what is unreachable here cannot see that it is reached from there. It is a
        commit of its own, in a thread of its own, since this one may be in a batch elsewhere.
        """
        if not self.realm.writable or self.notes(gid, OUTSIDE) is not None:
            return
        if _engram.group_info(self.realm, gid).scope == "published":
            return  # nobody collects it
        with ThreadPoolExecutor(1) as other:
            other.submit(self.note, gid, OUTSIDE, 1).result()

    def scope_of(self, gid: int) -> "Scope | None":
        """Give the scope in which what belongs to an object is made: "private", or as it comes."""
        return "private" if _engram.group_info(self.realm, gid).scope == "private" else None

    def touch(self, gid: int) -> None:
        """Note that something refers to an object from now on; it must be there.

        Raises
        ------
        NotFoundError
            If it is not.

        """
        if _engram.group_info(self.realm, gid).scope == "published":
            return  # nobody collects it
        try:
            _engram.attr_set(self.realm, True, gid, {LINKS: time.time_ns()})
        except BusyError:  # it is in another scope than what this batch is on
            self.keep_for_others(gid)

    def add_alias(self, gid: int, alias: str) -> None:
        """Give an object an alias; in a batch.

        Raises
        ------
        AliasTakenError
            If something has it.

        """
        path = alias_path(alias)
        place = (False, None, "none", False, self.scope_of(gid), b"")
        try:
            target = np.uint64(gid)
            _engram.put_array(
                self.realm, self.realm.root, path, target, None, None, None, None, *place
            )
        except ExistsError:
            raise AliasTakenError(
                f"the alias {alias!r} is taken: choose another, or delete_alias({alias!r}) first"
            ) from None
        self.hold(gid)
        have = self.notes(gid, ALIASES_OF) or []
        self.note(gid, ALIASES_OF, [*have, alias])

    def by_alias(self, alias: str) -> int:
        """Give the id of the object that has an alias.

        Raises
        ------
        AliasNotFoundError
            If none has.

        """
        found = _engram.find(self.realm, self.realm.root, alias_path(alias))
        if found is None or found[0] != 1:
            raise AliasNotFoundError(
                f"no object has the alias {alias!r} in {self.pool_path!r}: "
                "`engram active ls` lists those there are"
            )
        _, oid, dtype, shape = found
        try:
            number = _engram.read(self.realm, oid, dtype, shape)  # type: ignore[arg-type]
        except NotFoundError:  # deleted, or given to another object, meanwhile
            return self.by_alias(alias)
        return int(number)

    def delete_alias(self, alias: str) -> None:
        """Take an alias away from its object; in a batch."""
        gid = self.by_alias(alias)
        _engram.delete(self.realm, self.realm.root, alias_path(alias))
        try:
            self.hold(gid)
            have = self.notes(gid, ALIASES_OF) or []
        except NotFoundError:
            return
        self.note(gid, ALIASES_OF, [name for name in have if name != alias] or None)

    def aliases(self) -> dict[str, int]:
        """Give all aliases and the ids of their objects."""
        group = self.group_if_there(ALIASES)
        found: dict[str, int] = {}
        after = None
        while group is not None:
            members, after = _engram.members(self.realm, group, after, 1024)
            for name, (kind, oid, dtype, shape) in members:
                if kind == 1:
                    number = _engram.read(self.realm, oid, dtype, shape)  # type: ignore[arg-type]
                    found[unquote(name, errors="surrogatepass")] = int(number)
            if after is None:
                break
        return found

    def rename_member(self, gid: int, name: str, target: int) -> None:
        """Give an object's array or blob, which stays what it is, to another object; in a batch."""
        path = _engram.path_of(self.realm, True, target)
        _engram.rename(self.realm, gid, name, f"/{path}/{name}")

    def forward(self, gid: int, target: Any) -> None:
        """Make of an object a note of where it is now; in a batch."""
        for name in _engram.names(self.realm, gid, None, 1_000_000):
            _engram.delete(self.realm, gid, name)
        for name in _engram.attr_names(self.realm, True, gid):
            if name not in {CLASS, ALIASES_OF, LINKS, OUTSIDE}:
                _engram.attr_delete(self.realm, True, gid, name)
        self.note(gid, CLASS, "")
        self.note(gid, MOVED, target)

    def delete(self, gid: int) -> None:
        """Delete an object with its aliases; in a batch."""
        self.hold(gid)
        for alias in self.notes(gid, ALIASES_OF) or []:
            path = alias_path(alias)
            if _engram.contains(self.realm, self.realm.root, path):
                _engram.delete(self.realm, self.realm.root, path)
        info = _engram.group_info(self.realm, gid)
        _engram.delete(self.realm, info.parent, info.name)


def _loaded_attribute(value: Any, label: str, refer: Any) -> Loaded:
    if isinstance(value, np.ndarray):
        packed = value.tobytes()
        return Loaded(values.Decoder(label, refer).decode(packed), packed)
    plain = value if type(value) is str else value.item()
    return Loaded(plain, plain)


def _is_plain(value: Any) -> bool:
    """Tell whether a truth value, number or string is kept as it is."""
    if type(value) is int:
        return value in _I64
    if type(value) is str:
        return len(value) < MOST_INLINE // 4 and "\0" not in value and value.isprintable()
    return True


def _checked(label: str, value: np.ndarray[Any, Any]) -> np.ndarray[Any, Any]:
    """Refuse arrays that a pool cannot hold, before anything is written."""
    if isinstance(value, np.ma.MaskedArray):
        raise UnsupportedFieldError(
            f"{label}: a masked array cannot be stored: store its data and its mask in two fields"
        )
    if value.dtype.hasobject and value.dtype.kind != "T":
        texts = value.dtype.kind == "O" and all(type(item) is str for item in value.flat)
        if not texts:
            raise UnsupportedFieldError(
                f"{label}: an array of dtype {value.dtype} cannot be stored: its items are Python "
                "objects; give it a numeric, string or structured dtype"
            )
    return value


def _no_reference(target: Any) -> Any:
    raise ArgumentError(f"{target!r} cannot be referred to here")


def gone(kind: str, gid: int) -> ObjectDeletedError:
    """Say that an object was deleted."""
    return ObjectDeletedError(f"the {kind} object {gid:#x} was deleted")


_homes: WeakValueDictionary[tuple[str, str], Home] = WeakValueDictionary()
"""Homes that some object, or a call that goes on, still has."""


def home_of(pool: Any) -> Home:
    """Give the home of active objects that a pool's or a namespace's handle means.

    Raises
    ------
    ArgumentError
        If it is neither, or closed.

    """
    realm = getattr(pool, "_realm", None)
    if realm is None:
        raise ArgumentError(f"{pool!r} is no pool and no namespace of one: open one, and give that")
    if not realm.is_open:
        raise ArgumentError("the pool is closed: open it again with engram.open")
    key = (realm.uuid, realm.namespace)
    there = _homes.get(key)
    if there is not None and there.is_open and there.realm.writable >= realm.writable:
        return there
    made = Home(realm)
    made.careful = _is_careful(pool, realm)
    _homes[key] = made
    return made


def _is_careful(pool: Any, realm: "Realm") -> bool:
    durability = getattr(pool, "durability", None)
    if durability is None:
        opening = _open_here.get((str(realm.pool_path), "r+" if realm.writable else "r"))
        return opening is None or opening.durability == "system" or opening.checksums
    return bool(durability == "system" or pool.checksums)


def _home_again(path: str, mode: str, namespace: str) -> Home:
    """Give the home of an object that was pickled in another process."""
    return home_of(Namespace(reopen[0](path, mode, namespace)))


def homes() -> list[Home]:
    """Give all homes whose pools are open here."""
    return [home for home in list(_homes.values()) if home.is_open]
