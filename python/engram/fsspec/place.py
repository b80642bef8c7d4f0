"""Where a path leads: to a pool that stays open, and to a member in it.

    /dev/shm/pool/run-17/stations.csv

The folder on the way that is a pool's is the pool; what follows is the path in its namespace. A
pool is opened when a path first leads into it, and stays open for all file systems and threads of
the process, as opening takes longer than what is done with most files. Whether it is still the pool
that lies there is asked of its folder each time. So a pool that was destroyed and made anew is
opened anew. A forked child goes on with what its parent had open.
"""

from __future__ import annotations

import atexit
import contextlib
import os
import threading
from pathlib import Path
from typing import NamedTuple

from engram import _engram
from engram.errors import PoolGoneError, PoolNotFoundError
from engram.paths import POOL_FILE, pool_above
from engram.pool import let_go, open_for_paths

_MOST = 64
"""How many pools are kept open; a process has room for some hundred."""


_Stamp = tuple[int, int, int]


class Place(NamedTuple):
    """A place in a pool: the namespace, and the path in it; "" is its root."""

    namespace: _engram.Namespace
    inner: str
    path: str

    def find(self) -> _engram._Found | None:
        """Look what is there, if anything."""
        return _engram.find(self.namespace, self.namespace.root, self.inner or "/")


class _Opening:
    """A pool that is kept open, with its namespaces."""

    def __init__(self, folder: str, pool: _engram.Pool, stamp: _Stamp | None) -> None:
        self._folder = folder
        self._stamp = stamp
        self.pool = pool
        self._namespaces: dict[str, _engram.Namespace] = {}

    def is_current(self) -> bool:
        """Whether the pool that lies there is this one still, and open."""
        return self.pool.is_open and _stamp(self._folder) == self._stamp

    def namespace(self, name: str) -> _engram.Namespace:
        found = self._namespaces.get(name)
        if found is None or not found.is_open:
            found = self._namespaces[name] = self.pool.namespace(name)
        return found


_openings: dict[tuple[str, str], _Opening] = {}
"""What is open, by the pool's folder as it stands in paths, and the mode; the latest last."""

_lock = threading.Lock()
"""Held while a pool is opened, so that each is opened once."""


def _after_fork() -> None:
    """Give a child a lock that nobody holds."""
    global _lock  # noqa: PLW0603 - it is the child's only way to one
    _lock = threading.Lock()


os.register_at_fork(after_in_child=_after_fork)


def place_of(path: str, mode: str, namespace: str) -> Place:
    """Find the pool on the way of a path, opened if it is not, and where the path leads in it.

    Raises
    ------
    PoolNotFoundError
        If there is no pool on the way.
    NotFoundError
        If it has no such namespace.

    """
    folder = path
    while folder:
        opening = _openings.get((folder, mode))
        if opening is not None:
            if opening.is_current():
                return Place(opening.namespace(namespace), path[len(folder) + 1 :], path)
            _drop(folder, mode)
        folder = folder[: folder.rfind("/")]
    found = pool_above(path)
    if found is None:
        raise PoolNotFoundError(
            f"no pool is at {path!r}, nor above it: make one with engram.create(...), or give the "
            "path of a pool's folder, followed by that of a file in it"
        )
    return Place(_open(str(found[0]), mode).namespace(namespace), found[1], path)


def _open(folder: str, mode: str) -> _Opening:
    with _lock:
        found = _openings.get((folder, mode))
        if found is not None and found.is_current():  # another thread was faster
            return found
        stamp = _stamp(folder)  # before it is opened: what comes after is told by the next look
        made = _Opening(folder, open_for_paths(Path(folder), mode), stamp)
        while len(_openings) >= _MOST:
            _drop(*next(iter(_openings)))
        _openings[folder, mode] = made
        return made


def _drop(folder: str, mode: str) -> None:
    """Keep a pool open no longer; what still uses it may end with it first."""
    gone = _openings.pop((folder, mode), None)
    if gone is not None:
        let_go(gone.pool)


def close_all() -> None:
    """Close the pools that paths have opened; the next path opens its pool again."""
    while _openings:
        _, opening = _openings.popitem()
        let_go(opening.pool)
        with contextlib.suppress(PoolGoneError):  # it is closed all the same
            opening.pool.close()


atexit.register(close_all)


def _stamp(folder: str) -> _Stamp | None:
    """Return what the file that makes a folder a pool has as long as it is that file."""
    try:
        found = os.stat(f"{folder}/{POOL_FILE}")  # noqa: PTH116 - a Path takes longer
    except OSError:
        return None
    return found.st_dev, found.st_ino, found.st_ctime_ns
