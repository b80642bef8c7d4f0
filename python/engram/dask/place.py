"""Where an array of a pool is, as another process can be told: it opens the pool when it needs to.

A graph passes through the scheduler, which may be on a node that has no such pool. So what tasks
hold says where its array is, and opens nothing before a task asks for values.
"""

from __future__ import annotations

import os
import platform
from typing import TYPE_CHECKING, Any, NamedTuple

from engram.errors import AccessError, ArgumentError, NotFoundError, PoolNotFoundError
from engram.group import Group
from engram.handle import reopen, unpickle
from engram.paths import pool_above

if TYPE_CHECKING:
    from engram import _engram
    from engram.handle import Handle

DEFAULT = "default"


class Place(NamedTuple):
    """A namespace of a pool, and how it is opened."""

    path: str
    mode: str
    namespace: str
    uuid: str

    def open(self) -> _engram.Namespace:
        """Open it in this process, or take what is open already.

        Raises
        ------
        PoolNotFoundError
            If this process has no such pool: it is on another node, or may not enter.

        """
        try:
            return reopen[0](self.path, self.mode, self.namespace, self.uuid)
        except (PoolNotFoundError, NotFoundError, AccessError, PermissionError) as error:
            raise PoolNotFoundError(
                f"process {os.getpid()} on {platform.node()!r} cannot open the pool {self.path!r}, "
                f"which a task of dask's needs ({error}): have dask's workers on the node of the "
                "pool, as a user who may enter it"
            ) from None

    def handle(self, kind: int, member: int) -> Any:
        """Make the handle of a member."""
        self.open()
        return unpickle(self.path, self.mode, self.namespace, kind, member, self.uuid)


def place_of(handle: Handle, mode: str) -> Place:
    """Tell where a handle's namespace is, to be opened with this mode.

    Raises
    ------
    ArgumentError
        If it is of a snapshot.

    """
    handle.__reduce__()  # which refuses a snapshot's
    namespace = handle._namespace
    return Place(str(namespace.pool_path), mode, namespace.name, namespace.uuid)


def found_at(path: str | os.PathLike[str], mode: str, namespace: str) -> Any:
    """Find what lies at a pool's path followed by one in it; the pool stays open in this process.

    Raises
    ------
    PoolNotFoundError
        If there is no pool on the way of the path.
    NotFoundError
        If nothing lies there in the pool.

    """
    found = pool_above(path)
    if found is None:
        raise PoolNotFoundError(
            f"no pool is at {os.fspath(path)!r}, nor above it: give the path of a pool's folder, "
            "followed by that of what you mean in it"
        )
    folder, inner = found
    opened = reopen[0](str(folder), mode, namespace, None)
    root = Group(opened, opened.root)
    return root[inner] if inner else root


def group_at(group: Any, namespace: str | None) -> Group:
    """Return the group that a user names: a handle, or a path.

    Raises
    ------
    ArgumentError
        If it is no group.

    """
    found = group
    if isinstance(group, str | os.PathLike):
        found = found_at(group, "r+", namespace or DEFAULT)
    elif namespace is not None:
        raise ArgumentError(f"namespace={namespace!r} goes with a path: {group!r} is in one")
    if not isinstance(found, Group):
        raise ArgumentError(
            f"{group!r} is no group: give a path such as '/dev/shm/pool/co2', or a group of a pool"
        )
    return found
