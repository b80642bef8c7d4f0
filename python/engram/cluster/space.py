"""The room that a node's pool has, and where the pool lies on this host."""

from __future__ import annotations

import contextlib
import socket
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

from engram.cluster.natives import native
from engram.errors import EngramError

if TYPE_CHECKING:
    from engram.cluster.cluster import Cluster, Member


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
    """Give the room of a node's pool; None of a node that does not answer."""
    with contextlib.suppress(EngramError):
        return Space(*cluster._native.room(node))
    return None
