"""Where a dataset is: a group, given as it is or by a path, in a pool that stays open with it.

A path is that of a pool's folder, followed by that of a group: `/dev/shm/pool/run-17/co2`. The pool
is opened for reading, stays open with the dataset, and ends with `Dataset.close()`. As with files,
what is read after that opens it once more. A dataset that is unpickled opens the pool of that path,
which must have the uuid that it had.
"""

from __future__ import annotations

import os
from pathlib import Path
from typing import TYPE_CHECKING, Any

from xarray.backends import CachingFileManager

from engram.errors import ArgumentError, NotFoundError, PoolNotFoundError
from engram.group import Group
from engram.namespace import Namespace
from engram.paths import pool_above
from engram.pool import Pool
from engram.pool import open as open_pool

if TYPE_CHECKING:
    from engram import _engram


def _opened(path: str, *, mode: str = "r") -> Pool:
    """Open the pool of a path, for xarray's cache of files."""
    return open_pool(path, mode)


class Given:
    """A group that was handed over: whoever opened its pool closes it.

    Unpickled, it opens the pool when it is first asked for, as a scheduler of dask's never does.
    """

    def __init__(self, group: Group) -> None:
        self._found: Group | None = group
        self._pickled: Any = None

    def __getstate__(self) -> Any:
        return self._pickled if self._found is None else self._found.__reduce__()

    def __setstate__(self, pickled: Any) -> None:
        self._found, self._pickled = None, pickled

    @property
    def source(self) -> str:
        """The path of the pool and the group."""
        return str(Path(self.namespace().pool_path) / self.group().path)

    def namespace(self) -> _engram.Namespace:
        """Give the namespace, for natives."""
        return self.group()._namespace

    def group(self) -> Group:
        """Give the group."""
        if self._found is None:
            make, told = self._pickled
            self._found = make(*told)
        return self._found

    def child(self, name: str) -> Given:
        """Give the place of a group below."""
        return Given(_group_in(self.group(), name))

    def close(self) -> None:
        """Leave the pool as it is."""


class ByPath:
    """A group of a pool that is opened for it."""

    def __init__(
        self, manager: CachingFileManager[Pool], uuid: str, namespace: str, gid: int | None
    ) -> None:
        self._manager = manager
        self._uuid = uuid
        self._name = namespace
        self._gid = gid
        self._found: tuple[Pool, _engram.Namespace] | None = None

    def __getstate__(self) -> Any:
        return self.__dict__ | {"_found": None}

    @property
    def source(self) -> str:
        """The path of the pool and the group."""
        return str(Path(self._manager.acquire().path) / self.group().path)

    def namespace(self) -> _engram.Namespace:
        """Give the namespace, for natives; the pool is opened if it is not open.

        Raises
        ------
        NotFoundError
            If the path leads to another pool by now.

        """
        pool, found = self._manager.acquire(), self._found
        if found is not None and found[0] is pool:
            return found[1]
        if pool.uuid != self._uuid:
            path, uuid = pool.path, pool.uuid
            self._manager.close()
            raise NotFoundError(
                f"the pool at {path!r} is {uuid} now, and the dataset is of the pool "
                f"{self._uuid}: put that one there again, or open the dataset anew"
            )
        namespace = pool._pool.namespace(self._name)
        self._found = pool, namespace
        return namespace

    def group(self) -> Group:
        """Give the group."""
        namespace = self.namespace()
        return Group(namespace, namespace.root if self._gid is None else self._gid)

    def child(self, name: str) -> ByPath:
        """Give the place of a group below: it is of the same opening."""
        below = _group_in(self.group(), name)
        return ByPath(self._manager, self._uuid, self._name, below._id)

    def close(self) -> None:
        """Close the pool."""
        self._found = None
        self._manager.close()


Place = Given | ByPath


def place_of(target: Any, group: str | None, namespace: str | None) -> Place:
    """Find the group that a user names.

    Parameters
    ----------
    target
        A path, or a group, namespace or pool.
    group
        The path of a group below it.
    namespace
        The namespace, where `target` is a path; else its default one.

    Raises
    ------
    PoolNotFoundError
        If there is no pool on the way of a path.
    NotFoundError
        If there is no such group in it.
    ArgumentError
        If what is there is no group, or `target` is something else.

    """
    place: Place
    if isinstance(target, Group):
        if namespace is not None:
            raise ArgumentError(
                f"namespace={namespace!r} goes with a path: {target!r} is in one already"
            )
        place = Given(target)
    elif isinstance(target, str | os.PathLike):
        place = _by_path(target, namespace)
    else:
        raise ArgumentError(
            f"{target!r} is no group: give a path such as '/dev/shm/pool/co2', or a group of a pool"
        )
    inner = (group or "").strip("/")
    if not inner:
        return place
    try:
        return place.child(inner)
    except BaseException:
        place.close()
        raise


def _by_path(target: str | os.PathLike[str], namespace: str | None) -> Place:
    found = pool_above(target)
    if found is None:
        raise PoolNotFoundError(
            f"no pool is at {os.fspath(target)!r}, nor above it: give the path of a pool's folder, "
            "followed by that of a group in it"
        )
    folder, inner = found
    manager = CachingFileManager(_opened, str(folder), mode="r")
    try:
        root = ByPath(manager, manager.acquire().uuid, namespace or "default", None)
        return root.child(inner) if inner else root
    except BaseException:
        manager.close()
        raise


def _group_in(above: Group, name: str) -> Group:
    found = above[name] if name else above
    if not isinstance(found, Group):
        raise ArgumentError(
            f"{name!r} is {found!r}, and no group: open the group that it is in, and take "
            f"[{found.name!r}] of the dataset"
        )
    return found


def written(target: Any) -> tuple[Pool | None, Group, str]:
    """Find where to write: a pool to close afterwards, a group, and a path below it.

    Raises
    ------
    PoolNotFoundError
        If there is no pool on the way of a path.
    ArgumentError
        If `target` is no group and no path.

    """
    if isinstance(target, Group):
        return None, target, ""
    if not isinstance(target, str | os.PathLike):
        raise ArgumentError(
            f"{target!r} is no group: give a path such as '/dev/shm/pool/co2', or a group of a pool"
        )
    found = pool_above(target)
    if found is None:
        raise PoolNotFoundError(
            f"no pool is at {os.fspath(target)!r}, nor above it: make one with engram.create(...), "
            "and give its path, followed by that of a group"
        )
    pool = open_pool(found[0], "r+")
    return pool, pool, found[1]


def is_root(group: Group) -> bool:
    """Whether a group is a namespace's root."""
    return isinstance(group, Namespace) or group._id == group._namespace.root
