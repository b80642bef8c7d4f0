"""The room that a node's pool has, as far as this host can tell."""

from __future__ import annotations

import contextlib
import socket
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

from engram.cluster.natives import native
from engram.errors import EngramError
from engram.pool import open as open_pool

if TYPE_CHECKING:
    from engram.cluster.cluster import Cluster, Member
    from engram.pool import Pool


class Space(NamedTuple):
    """The room of a pool, in bytes."""

    size: int
    """The most bytes of values that it takes."""
    used: int
    """Those that it has."""

    @property
    def free(self) -> int:
        """Those that there is room for."""
        return max(self.size - self.used, 0)


def pool_here(cluster: Cluster, member: Member) -> Path | None:
    """Give the path of a member's pool if it lies on this host: a path of another is another's."""
    path = Path(member.path)
    is_own = member.node == cluster.node
    if not is_own and member.host != socket.gethostname():
        return None
    with contextlib.suppress(EngramError, OSError):
        if native.node_of(path) == (cluster.name, member.node):
            return path
    return None


def space_of(cluster: Cluster, node: str) -> Space | None:
    """Give the room of a node's pool; None of a node of another host, which tells nothing of it."""
    for member in cluster.members:
        path = pool_here(cluster, member) if member.node == node else None
        if path is not None:
            with contextlib.suppress(EngramError), open_pool(path, "r") as pool:
                return _space(pool)
    return None


def _space(pool: Pool) -> Space:
    return Space(pool.size, pool.used)
