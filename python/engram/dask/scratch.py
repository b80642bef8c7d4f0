"""Results of tasks in a pool, where other workers of the node find them.

They lie in a namespace of their own, `dask-<uid>`, which its user alone enters and which no listing
or query of the pool's data meets. Each worker has a group there, and keeps it locked for as long as
it lives. A result is an object of that group from when it is first needed by another worker, or
made by `engram.dask.empty`, until the worker drops it; memory that another worker still looks at is
kept by that worker's claim, and comes back with the last claim.

The kernel drops the lock of a worker that is killed. Whoever opens such a group next, and the other
workers every few seconds, removes groups that nobody has locked.
"""

from __future__ import annotations

import contextlib
import itertools
import os
from functools import partial
from typing import TYPE_CHECKING, Any

from engram import _engram
from engram.dask import janitor
from engram.dask.reference import Home
from engram.errors import BusyError, EngramError, ExistsError, NotFoundError
from engram.group import Group
from engram.lock import Lock
from engram.member import new_member

if TYPE_CHECKING:
    import numpy as np

PREFIX = "worker-"
_ID_BYTES = 8
_TRIES = 100
_OWN = 0o700


def namespace_name() -> str:
    """Return the name of this user's namespace for results."""
    return f"dask-{os.getuid()}"


class Scratch:
    """The results of one worker in a pool."""

    def __init__(self, path: str, size: int | None = None) -> None:
        """Open the pool, and make a group in it.

        Raises
        ------
        PoolNotFoundError, AccessError, ReadOnlyError
            If there is no such pool, or this user may not write there.

        """
        # Not `engram.open`, whose openings are shared by what is unpickled: this one is closed.
        self._pool = _engram.Pool.open(path, True, False)
        try:
            self.namespace = _own_namespace(self._pool, size)
            self.home = Home(
                str(self.namespace.pool_path), self.namespace.uuid, self.namespace.name
            )
            self._numbers = itertools.count()
            self.sweep()
            self._gid, self._lock = self._locked()
        except BaseException:
            self._pool.close()
            raise
        janitor.start()

    def _locked(self) -> tuple[int, Lock]:
        """Make a group, and lock it before anybody takes it for one that was left."""
        namespace = self.namespace
        for _ in range(_TRIES):
            name = f"{PREFIX}{os.urandom(_ID_BYTES).hex()}"
            gid = _engram.create_group(namespace, namespace.root, name, None, b"", False)
            lock = Lock(namespace, True, gid, "r", None)
            with contextlib.suppress(NotFoundError):
                lock.__enter__()
                return gid, lock
        raise BusyError(
            f"groups of {self.home.path!r} that are made for results are removed again and again"
        )

    def keep(self, array: np.ndarray[Any, Any]) -> np.ndarray[Any, Any] | None:
        """Put a result into the pool; give it as it is there, or None if it cannot lie there.

        It stays for as long as somebody in this process has what is given.
        """
        turned = array.flags.f_contiguous and not array.flags.c_contiguous
        given = array.T if turned else array
        name = str(next(self._numbers))
        try:
            oid = _engram.put_array(self.namespace, self._gid, name, given, _UNINDEXED)[1]
            found = self._held(name, oid, given.dtype, given.shape, write=False)
        except (EngramError, OSError):  # full, closed, or of a dtype that no pool keeps
            return None
        return found.T if turned else found

    def empty(self, shape: Any, dtype: Any) -> np.ndarray[Any, Any]:
        """Give memory of the pool for a result, which holds anything at first."""
        new = new_member(shape=shape, dtype=dtype, index_mode="none")
        name = str(next(self._numbers))
        space = _engram.allocate(self.namespace, self._gid, name, new)
        made, shape = space.array.dtype, space.array.shape
        return self._held(name, space.publish(), made, shape, write=True)

    def _held(
        self, name: str, oid: int, dtype: np.dtype[Any], shape: tuple[int, ...], *, write: bool
    ) -> np.ndarray[Any, Any]:
        """Give a view of an object that is deleted when it is dropped."""
        found = _engram.view(self.namespace, oid, dtype, tuple(shape), write)
        janitor.when_gone(found, partial(_delete, self.namespace, self._gid, name))
        return found

    def sweep(self) -> None:
        """Remove the groups of workers that are gone."""
        root = Group(self.namespace, self.namespace.root)
        for name in [name for name in root if name.startswith(PREFIX)]:
            with contextlib.suppress(EngramError):
                self._remove(name, root[name]._id)

    def _remove(self, name: str, gid: int) -> None:
        """Remove a group that nobody has locked."""
        with Lock(self.namespace, True, gid, "w", 0.0):
            _engram.delete(self.namespace, self.namespace.root, name)

    def close(self) -> None:
        """Remove the group, and close the pool."""
        self._lock.__exit__(None, None, None)
        self.sweep()
        self._pool.close()


def _delete(namespace: _engram.Namespace, gid: int, name: str) -> None:
    if namespace.is_open:
        _engram.delete(namespace, gid, name)


def _own_namespace(pool: _engram.Pool, size: int | None) -> _engram.Namespace:
    """Open this user's namespace for results, which is made if it is not there."""
    name = namespace_name()
    with contextlib.suppress(ExistsError):
        return pool.create_namespace(name, _OWN, None, size)
    return pool.namespace(name)


_UNINDEXED = new_member(index_mode="none")
