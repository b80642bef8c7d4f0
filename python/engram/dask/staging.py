"""An array that many processes write, and that has no name yet under which it would be found.

Its memory is an array in a group of its own beside all others, `.to_pool-…`, which any process of
the pool can open. When all parts are there, one commit gives the array its name and its attributes,
and removes the group. So whoever looks for it finds nothing or all of it.

**Nobody is needed to clean up.** Each process that has to do with the array holds the group's lock
for reading while it has. Whoever lets go of it asks for the lock for writing, and who gets that is
the last: it removes the group. The kernel drops the locks of a process that is killed; a group that
nobody has locked any more is removed by the next that writes so to the namespace.
"""

from __future__ import annotations

import contextlib
import os
import weakref
from functools import partial
from typing import TYPE_CHECKING, Any

from engram import _engram
from engram.batch import Batch
from engram.dask import janitor
from engram.dask.place import Place, place_of
from engram.errors import BusyError, EngramError, ExistsError, NotFoundError
from engram.group import Group
from engram.handle import make
from engram.lock import Lock
from engram.member import new_member

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

    import numpy as np

PREFIX = ".to_pool-"
INNER = "array"
_ID_BYTES = 8
_LOCK_SECONDS = 60.0
_TRIES = 100

_joined: weakref.WeakValueDictionary[tuple[str, int], Joined] = weakref.WeakValueDictionary()
"""What this process has to do with, by the pool's uuid and the group."""


class Joined:
    """What a process has to do with a group that is being written: its lock for reading."""

    def __init__(self, namespace: _engram.Namespace, gid: int) -> None:
        lock = Lock(namespace, True, gid, "r", _LOCK_SECONDS)
        lock.__enter__()
        janitor.start()
        self._work = partial(_leave, namespace, gid, lock)
        self._gone = janitor.when_gone(self, self._work)

    def leave(self) -> None:
        """Let go, at once."""
        if self._gone.detach() is not None:
            self._work()


def _leave(namespace: _engram.Namespace, gid: int, lock: Lock) -> None:
    """Let go of the lock for reading, and remove the group if nobody has it any more."""
    lock.__exit__(None, None, None)
    if namespace.is_open:
        _remove(namespace, gid)


def _remove(namespace: _engram.Namespace, gid: int) -> bool:
    """Remove a group unless a process has to do with it; give whether it is gone."""
    try:
        with Lock(namespace, True, gid, "w", 0.0):
            _engram.delete(namespace, namespace.root, _engram.path_of(namespace, True, gid))
    except NotFoundError:
        pass
    except BusyError:
        return False
    return True


def sweep(namespace: _engram.Namespace) -> None:
    """Remove what processes have left that are gone."""
    root = Group(namespace, namespace.root)
    for name in [name for name in root if name.startswith(PREFIX)]:
        with contextlib.suppress(EngramError):
            left = root.get(name)
            if isinstance(left, Group):
                _remove(namespace, left._id)


class Staging:
    """An array that is being written: what tasks hold of it, in any process."""

    def __init__(self, place: Place, gid: int, oid: int) -> None:
        self._place = place
        self._gid = gid
        self.oid = oid
        self._part: Joined | None = None
        self._array: Any = None

    @classmethod
    def create(
        cls, group: Group, shape: tuple[int, ...], dtype: np.dtype[Any], **said: Any
    ) -> Staging:
        """Take space for an array that is to be of a group; what it holds is anything at first.

        Raises
        ------
        PoolFullError
            If there is no room for it; nothing is left.
        ArgumentError
            If its layout does not fit.

        """
        namespace = group._namespace
        sweep(namespace)
        found = cls._begun(group)
        gid = found._gid
        with found.abandoned_on_error():
            new = new_member(shape=shape, dtype=dtype, **said)
            if said.get("chunks") is None:
                found.oid = _engram.allocate(namespace, gid, INNER, new).publish()
                made = (1, found.oid, dtype, shape)
            else:
                made = _engram.put_array(namespace, gid, INNER, None, new)
                found.oid = made[1]
            found._array = make(namespace, made)
        return found

    @classmethod
    def _begun(cls, group: Group) -> Staging:
        """Make the group, and lock it before anybody takes it for one that was left."""
        namespace, place = group._namespace, place_of(group, "r+")
        root, scope = namespace.root, group.scope
        for _ in range(_TRIES):
            name = f"{PREFIX}{os.urandom(_ID_BYTES).hex()}"
            gid = _engram.create_group(namespace, root, name, None, b"", False, scope)
            with contextlib.suppress(NotFoundError):
                found = cls(place, gid, 0)
                found._part = _joined[place.uuid, gid] = Joined(namespace, gid)
                return found
        raise BusyError(
            f"groups of {place.path!r} that are made for writing are removed again and again: see "
            "that no program deletes what begins with '.to_pool-'"
        )

    @property
    def array(self) -> Any:
        """The array, to be written, in a pool that is open in this process.

        Raises
        ------
        NotFoundError
            If it is gone: what it was written for has ended.
        PoolNotFoundError
            If this process has no such pool.

        """
        if self._array is None:
            namespace = self._place.open()
            found = Group(namespace, self._gid)
            with contextlib.suppress(NotFoundError):  # it may have its name already
                self._part = _joined.get((self._place.uuid, self._gid))
                if self._part is None:
                    self._part = Joined(namespace, found._id)
                    _joined[self._place.uuid, self._gid] = self._part
            info = _engram.object_info(namespace, self.oid)
            kind = 1 if info.chunks is None else 3
            self._array = make(namespace, (kind, self.oid, info.dtype, tuple(info.shape)))
        return self._array

    def publish(
        self, parent: int, name: str, attrs: Mapping[str, Any] | None, *, overwrite: bool
    ) -> Any:
        """Give the array its name in a group, and its attributes, in one commit; give its handle.

        Raises
        ------
        ExistsError
            If the name is taken.
        NotFoundError
            If the group was deleted.

        """
        array = self.array
        namespace: _engram.Namespace = array._namespace
        group = Group(namespace, parent)
        there = group.get(name)
        if there is not None and not there._is_group and there.oid == self.oid:
            return array  # published by a task whose answer was lost
        array.flush()
        root = Group(namespace, namespace.root)
        with Batch(namespace):
            path = "/".join(filter(None, (group.path, name)))
            if overwrite and (old := root.get(path)) is not None:
                if isinstance(old, Group):
                    raise ExistsError(f"{path!r} is a group: delete it first")
                _engram.delete(namespace, root._id, path)
            inner = f"{_engram.path_of(namespace, True, self._gid)}/{INNER}"
            _engram.rename(namespace, root._id, inner, path)
            if attrs:
                _engram.attr_set(namespace, False, self.oid, attrs)
            _engram.delete(namespace, root._id, inner.rpartition("/")[0])
        self.abandon()
        return array

    @contextlib.contextmanager
    def abandoned_on_error(self) -> Iterator[None]:
        """Have no more to do with it if the block raises."""
        try:
            yield
        except BaseException:
            self.abandon()
            raise

    def abandon(self) -> None:
        """Have no more to do with it: it is removed with the last who has."""
        if self._part is not None:
            self._part.leave()
            self._part = None

    def __setitem__(self, key: Any, value: Any) -> None:
        """Write a part, in place."""
        self.array[key] = value

    @property
    def place(self) -> str:
        """The pool's path and the namespace, for messages."""
        return f"{self._place.path} ({self._place.namespace})"

    def __reduce__(self) -> tuple[Any, ...]:
        return Staging, (self._place, self._gid, self.oid)

    def __dask_tokenize__(self) -> object:
        return ("engram.dask.Staging", self._place.uuid, self._gid)
