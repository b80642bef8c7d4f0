"""What a method does to objects: reads that stay as they were, changes that happen at its end.

Outside of a method each field is read where it lies, and an assignment is a commit. The outermost
active method of a thread is a *transaction*: the first read of a field is kept, so that a list is
one list throughout; assignments are kept, too; and at the end all that has changed is one commit
per namespace. If the method raises, nothing of it is written. An active method called by another
one joins it; if that inner one raises, what it has changed is taken back, and the outer one may go
on.

Other processes. The commit compares what it replaces with what was read: if that has changed
meanwhile, it is `ConflictError`, and nothing is written; so two methods never both add one to the
same number. That it hardly ever comes to that, a method that changes fields (`analysis.py` can
tell) has its object's lock from its beginning; in a batch, until that has ended. What is written
into arrays in place is there at once, and is not taken back.
"""

import functools
import os
import threading
import weakref
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any, Final

import numpy as np

from engram import _engram
from engram.active.errors import ConflictError, gone
from engram.active.memento import Memento
from engram.active.seen import Seen, Viewed, alike
from engram.active.stored.forms import MISSING, Loaded, form_of
from engram.active.stored.layout import SHARING
from engram.active.stored.meanwhile import again, unless_changed
from engram.errors import BusyError, NotFoundError, ReadOnlyError

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from engram.active.fields import Field
    from engram.active.stored.home import Home
    from engram.scope import Scope

_FIXED: Final = frozenset((bool, int, float, complex, str, bytes, type(None), range, slice))
"""Types of values that cannot be changed in place."""

MOST_TRIES: Final = 100
"""How often an array is looked for that others replace again and again."""

DELETED: Final = object()
"""What stands for a value that `del` took away."""

_ABSENT: Final = object()
"""What stands for no assignment so far."""


class _Kept(dict[tuple[Any, int], _engram.Lock]):
    """Locks that stay until a batch ends; they go with their thread, which alone has this."""


class _Local(threading.local):
    transaction: "Transaction | None" = None
    kept: "_Kept | None" = None
    """The locks of methods that the batch of this thread has called, by their objects."""


local: Final = _Local()
"""This thread's transaction."""


def _end_in_child() -> None:
    """Leave the transaction to the process that forked: it commits it, and has its locks."""
    local.transaction = local.kept = None


os.register_at_fork(after_in_child=_end_in_child)


@contextmanager
def locked(obj: Any, timeout: float) -> "Iterator[None]":
    """Keep others' methods that change an object out for a while, unless this thread does so."""
    key = (obj._home.key, obj._gid)
    running = local.transaction
    if (running is not None and running.has_locked(key)) or (local.kept and key in local.kept):
        yield
        return
    lock = _engram.Lock(obj._home.namespace, True, obj._gid, "w", timeout)
    with lock:
        yield


def _let_go(known: "weakref.ref[_Kept]", committed: bool) -> None:
    """Let go of the locks that a batch has kept, if its thread is there still."""
    del committed
    kept = known()
    while kept:
        kept.popitem()[1].__exit__(None, None, None)


class Inner:
    """What a method that another one has called changes: as it was before.

    A field's value is noted when the method first reads it or assigns it, and not before: so a call
    costs nothing for what it does not look at.
    """

    __slots__ = ("_read", "_written")

    def __init__(self) -> None:
        self._written: dict[tuple[int, str], tuple[Seen, Any]] = {}
        self._read: dict[int, tuple[Any, Memento]] = {}

    def note_write(self, seen: Seen, name: str) -> None:
        """Note what is assigned to a field so far."""
        key = (id(seen), name)
        if key not in self._written:
            self._written[key] = (seen, seen.written.get(name, _ABSENT))

    def note_read(self, value: Any) -> None:
        """Note what a value holds, which the method can change from now on."""
        if id(value) not in self._read and not isinstance(value, np.ndarray):
            self._read[id(value)] = (value, Memento(value))

    def take_back(self) -> None:
        """Make everything what it was."""
        for _, memento in self._read.values():
            memento.put_back()
        for (_, name), (seen, value) in self._written.items():
            if value is _ABSENT:
                seen.written.pop(name, None)
            else:
                seen.written[name] = value

    def take_over(self, inner: "Inner") -> None:
        """Note also what a method that ended within this one has noted."""
        self._written = inner._written | self._written
        self._read = inner._read | self._read


class Transaction:
    """What the outermost method of this thread, and those that it calls, have read and changed."""

    __slots__ = (
        "_inner",
        "_locks",
        "_seen",
        "checks_views",
        "known",
        "pre_copy",
        "read_only",
        "torn",
    )

    def __init__(self) -> None:
        self._seen: dict[int, Seen] = {}
        self._inner: list[Inner] = []
        self._locks: dict[tuple[Any, int], _engram.Lock] = {}
        self.read_only = False
        self.pre_copy = False
        self.checks_views = False
        self.known: tuple[Any, int] | None = None
        """An object, and when it was last modified before anything of it was read."""
        self.torn = False
        """Whether it has found fields of before and of after what another process did."""

    def _of(self, obj: Any) -> Seen:
        while obj._same is not None:  # two Python objects of one stored one have one record
            obj = obj._same
        seen = self._seen.get(id(obj))
        if seen is None:
            seen = self._seen[id(obj)] = Seen(obj)
        return seen

    def lock(self, obj: Any, timeout: float | None) -> None:
        """Keep other processes' methods that change the object out until the end.

        Raises
        ------
        BusyError
            If one of them does not end in time.

        """
        home, key = obj._home, (obj._home.key, obj._gid)
        if key in self._locks or not home.namespace.writable:
            return
        if not local.kept or key not in local.kept:
            lock = _engram.Lock(home.namespace, True, obj._gid, "w", timeout)
            lock.__enter__()
            self._locks[key] = lock

    def unlock_one(self, place: tuple[Any, int]) -> None:
        """Let go of the lock on what has been an object."""
        home, gid = place
        lock = self._locks.pop((home.key, gid), None)
        if lock is not None:
            lock.__exit__(None, None, None)

    def changes_life(self, obj: Any) -> None:
        """Note that this thread itself has moved an object, or consolidated one: no conflict."""
        self._of(obj).begin_again()

    def has_locked(self, key: tuple[Any, int]) -> bool:
        """Tell whether it has the lock of an object."""
        return key in self._locks

    def unlock(self) -> None:
        """Let go of all locks; in a batch when that has ended, as its changes are made then."""
        if self._locks and _engram.in_batch():
            if not local.kept:
                local.kept = _Kept()
                _engram.when_ended(functools.partial(_let_go, weakref.ref(local.kept)))
            local.kept |= self._locks
            self._locks = {}
        while self._locks:
            self._locks.popitem()[1].__exit__(None, None, None)

    def read(self, obj: Any, field: "Field") -> Any:
        """Give a field's value, as this transaction has it."""
        seen = self._of(obj)
        name = field.name
        if name in seen.written:
            value = seen.written[name]
            if value is DELETED:
                value = seen.written[name] = field.again(obj)
            return self._noted(value)
        loaded = seen.loaded.get(name)
        if loaded is None:
            return self._first_read(obj, seen, field)
        if loaded is MISSING:
            raise field.missing(obj)
        return self._array(obj, seen, name, loaded) if loaded.member else self._noted(loaded.value)

    def _first_read(self, obj: Any, seen: Seen, field: "Field") -> Any:
        """Read a field, together with those that were read before."""
        if not seen.loaded:
            seen.begin(self.known)
            return self._found(obj, seen, field)
        value = self._found(obj, seen, field)
        if not seen.is_together():
            self.torn = True
            raise ConflictError(
                f"{obj!r} was changed by another process while a method read its fields: call it "
                "again; @activemethod(read_only=True) has that done by itself"
            )
        return value

    def _found(self, obj: Any, seen: Seen, field: "Field") -> Any:
        name = field.name
        if field.array_first and not self.pre_copy:
            array = self._first_view(obj, seen, name)
            if array is not None:
                return array
        for left in range(MOST_TRIES, -1, -1):
            loaded = seen.loaded[name] = field.load(obj)
            if loaded is MISSING:
                raise field.missing(obj)
            if not loaded.member:
                return self._noted(loaded.value)
            try:
                return self._array(obj, seen, name, loaded)
            except (NotFoundError, BusyError):  # it was replaced since it was found
                if not left:
                    raise
        raise AssertionError

    def _noted(self, value: Any) -> Any:
        """Note what an inner method gets, which it may change."""
        if self._inner and type(value) not in _FIXED:
            self._inner[-1].note_read(value)
        return value

    def _first_view(self, obj: Any, seen: Seen, name: str) -> Any:
        """Give the array of a field, found and mapped at once; None where it takes more."""
        write = not self.read_only
        found = found_view(obj, name, write=write)
        if found is None:
            return None
        fact, array = found
        seen.loaded[name] = Loaded(fact, fact[1], True)
        seen.views[name] = Viewed(fact[1], array, write)
        return array

    def _array(self, obj: Any, seen: Seen, name: str, loaded: Loaded) -> Any:
        if self.pre_copy:
            copied = seen.copies.get(name)
            if copied is None:
                copied = seen.copies[name] = _engram.read(obj._home.namespace, *loaded.value[1:])
            return copied
        write = not self.read_only
        have = seen.views.get(name)
        if have is None or (write and not have.asked):
            loaded, array = own_view(obj, name, loaded, write=write)
            seen.loaded[name] = loaded
            have = seen.views[name] = Viewed(loaded.raw, array, write)
        return have.array

    def write(self, obj: Any, field: "Field", value: Any) -> None:
        """Keep a field's new value until the end.

        Raises
        ------
        ReadOnlyError
            In a method that is declared `read_only`.

        """
        if self.read_only:
            raise ReadOnlyError(
                f"{field.label} cannot be assigned in a method with read_only=True: leave that out"
            )
        seen = self._of(obj)
        have = seen.views.get(field.name)
        if have is not None and have.array is value and field.name not in seen.written:
            self.checks_views = True  # `self.data += 1` has written in place, and assigns itself
            return
        if self._inner:
            self._inner[-1].note_write(seen, field.name)
        seen.written[field.name] = value

    # Calls within calls

    def enter(self) -> None:
        """Begin to note what an inner method may change."""
        self._inner.append(Inner())

    def leave(self, *, failed: bool) -> None:
        """End that; if the method has raised, take back what it changed."""
        inner = self._inner.pop()
        if failed:
            inner.take_back()
        elif self._inner:
            self._inner[-1].take_over(inner)

    # The end

    def commit(self) -> None:
        """Write what has changed.

        Raises
        ------
        ConflictError
            If another process changed it meanwhile.
        UnsupportedFieldError
            If a value cannot be stored.

        """
        changes = []
        for seen in self._seen.values():
            obj = seen.obj
            if obj._volatile is not None:
                continue
            changed = dict(seen.written)
            if not self.read_only:
                for name, loaded in seen.loaded.items():
                    if name not in changed and _may_change(loaded) and _changed(obj, name, loaded):
                        changed[name] = loaded.value
            if changed:
                changes.append((obj, seen, changed))
        self._settle_views()
        if len(changes) == 1 and _commit_plain(*changes[0]):
            return
        by_place: dict[tuple[Home, Scope | None], list[tuple[Any, Seen, dict[str, Any]]]] = {}
        for change in changes:
            by_place.setdefault(_place_of(change[0]), []).append(change)
        for (home, scope), some in by_place.items():
            again(functools.partial(_commit, home, scope, some))

    def _settle_views(self) -> None:
        """Make what was written in place durable; refuse if an array was replaced meanwhile."""
        for seen in self._seen.values():
            obj = seen.obj
            if not (obj._home.careful or self.checks_views):
                continue
            for view in seen.views.values():
                if not view.array.flags.writeable:
                    continue
                try:
                    _engram.flush(obj._home.namespace, view.oid)
                except (BusyError, NotFoundError) as error:
                    if self.checks_views:
                        raise ConflictError(
                            f"an array of {obj!r} was replaced or deleted while a method wrote "
                            "into it; what it wrote is not in the object"
                        ) from error


def found_view(obj: Any, name: str, *, write: bool) -> Any:
    """Give what a field's array is and the array, in one go; None where it takes more."""
    try:
        return _engram.array_field(
            obj._home.namespace, obj._gid, name, SHARING, write and obj._may_write
        )
    except (NotFoundError, ReadOnlyError):  # it is gone, or moved; published, or protected
        return None


def own_view(obj: Any, name: str, loaded: Loaded, *, write: bool) -> tuple[Loaded, Any]:
    """Give the array of a field, on the pool's memory, and where it lies.

    It is writable if it is to be and may be; then it is no other object's any more.
    """
    if write and obj._may_write:
        try:
            own = obj._own(name, loaded)
            return own, _view(obj, own, write=True)
        except ReadOnlyError:  # it is published, or protected
            pass
    return loaded, _view(obj, loaded, write=False)


def field_view(obj: Any, name: str, loaded: Loaded, *, write: bool) -> Any:
    """Give the array of a field: on the pool's memory, writable if it may be written into."""
    return own_view(obj, name, loaded, write=write)[1]


def _view(obj: Any, loaded: Loaded, *, write: bool) -> Any:
    _, oid, dtype, shape = loaded.value
    if dtype.kind == "T":
        return _engram.read(obj._home.namespace, oid, dtype, shape)
    made = _engram.view(obj._home.namespace, oid, dtype, shape, write)
    if write and not made.nbytes:  # which is on no memory, and never writable
        return np.empty(shape, dtype)
    return made


def _may_change(loaded: Loaded) -> bool:
    if loaded.member:
        return False
    value = loaded.value
    return type(value) not in _FIXED and not _is_active(value)


def _is_active(value: Any) -> bool:
    return hasattr(type(value), "_engram_reference")


def _changed(obj: Any, name: str, loaded: Loaded) -> bool:
    """Tell whether a value was changed in place since it was read."""
    form = form_of(obj._label(name), loaded.value, lambda target: _same(obj, target))
    if form.kind == "attribute":
        now = form.value
        now = now.tobytes() if isinstance(now, np.ndarray) else now
        return bool(now != loaded.raw)
    if isinstance(loaded.raw, np.ndarray):  # a default, which is in no pool yet
        return form.kind != "array" or not alike(form.value, loaded.raw)
    if form.kind == "array":
        return True
    if isinstance(loaded.raw, bytes):
        return bool(form.value != loaded.raw)
    return bool(_engram.read_blob(obj._home.namespace, loaded.raw) != form.value)


def _same(obj: Any, target: Any) -> Any:
    """Give what a reference is kept as; of an object that is not stored yet, what none is."""
    return None if target._volatile is not None else target._reference_from(obj._home)


def _place_of(obj: Any) -> "tuple[Home, Scope | None]":
    """Give the home and the scope of an object: what one batch covers."""
    try:
        return obj._home, obj._home.scope_of(obj._gid)
    except NotFoundError:
        raise gone(type(obj).__qualname__, obj._gid) from None


def _commit_plain(obj: Any, seen: Seen, changed: dict[str, Any]) -> bool:
    """Write one object's changes in the short way, if they can be."""
    obj._check_writable()
    return bool(obj._put_plain(changed, {n: seen.loaded[n] for n in changed if n in seen.loaded}))


def _commit(
    home: "Home", scope: "Scope | None", changes: "Sequence[tuple[Any, Seen, dict[str, Any]]]"
) -> None:
    """Write the changes of objects of one place, all or nothing."""
    from engram.active.stored.storing import Storing  # noqa: PLC0415 - it needs what this makes

    with Storing(home, scope=scope) as storing:
        for obj, seen, changed in changes:
            obj._check_writable()
            _compare(obj, seen, changed)
            for name, value in changed.items():
                if value is DELETED:
                    work = functools.partial(obj._delete_field, home, name)
                    unless_changed(home, work, obj._gid)
                else:
                    storing.put(obj, name, value)


def _compare(obj: Any, seen: Seen, changed: dict[str, Any]) -> None:
    """Refuse if what is replaced is not what was read."""
    if not changed.keys() & seen.loaded.keys():
        return
    try:
        obj._home.hold(obj._gid)
    except NotFoundError:
        raise gone(type(obj).__qualname__, obj._gid) from None
    for name in changed:
        before = seen.loaded.get(name)
        if before is None:
            continue
        try:
            now = obj._field(name).load(obj)
        except NotFoundError:
            raise gone(type(obj).__qualname__, obj._gid) from None
        if not alike(now.raw, before.raw):
            raise ConflictError(
                f"{obj._label(name)} of {obj!r} was changed by another process while a method was "
                "about to change it: call it again; @activemethod(locks=True) keeps others out"
            )
