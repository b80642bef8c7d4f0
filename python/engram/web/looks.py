"""Looks at a cluster: what has changed in it, as far as that can be known for little.

**Protocol.** Nobody tells a process of commits on other nodes. So three things are looked at, while
a page listens:

- *The names* of the cluster, every `NAMES_S`, by one request to its coordinator. Arrays in parts
  are never written to, only replaced under their name: so nothing of them is missed.
- *This host's node*, at each look, if a group lies on it: its pool's count of commits, which any
  process's commit raises. What it was has no name.
- *Other nodes* are not asked, and an array's values may be written without a commit. So if there is
  a group, it is said every `GROUPS_S` that something may have changed. A page that is seen then
  asks again for what it shows, within the bounds of any request.
"""

from __future__ import annotations

import json
import time
from typing import TYPE_CHECKING, NamedTuple

if TYPE_CHECKING:
    from engram.web.served import ServedCluster

NAMES_S = 1.0
GROUPS_S = 5.0


class Look(NamedTuple):
    """What a look has found."""

    names: list[str]
    """Those that came, went or are others now, as paths of what is served."""
    is_unnamed: bool
    """Whether something below a group has changed, or may have."""
    is_sure: bool
    """Whether something has changed at all."""
    is_space: bool
    """Whether there may be other figures."""

    @property
    def is_any(self) -> bool:
        """Whether a page has to look."""
        return bool(self.names) or self.is_unnamed


class Looks:
    """All looks at one cluster."""

    def __init__(self, served: ServedCluster) -> None:
        self._served, self._cluster = served, served.cluster
        self._known: dict[str, str] | None = None
        self._nodes: dict[str, frozenset[str]] = {}
        """On which nodes each group lies: by its name, and of what is served itself, ""."""
        self._epoch: int | None = None
        self._commits: int | None = None
        self._names_due = self._groups_due = time.monotonic()

    def look(self) -> Look:
        """Look once: at what is due."""
        now = time.monotonic()
        names: list[str] = []
        is_first, is_space = self._known is None, False
        if now >= self._names_due:
            self._names_due = now + NAMES_S
            names = self._changed()
            epoch, self._epoch = self._epoch, self._cluster.epoch
            is_space = bool(names) or epoch != self._epoch
        nodes = frozenset[str]().union(*self._nodes.values())
        has_committed = self._cluster.node in nodes and self._has_committed()
        may_have = bool(nodes) and now >= self._groups_due
        if now >= self._groups_due:
            self._groups_due = now + GROUPS_S
        if is_first:
            return Look([], False, True, True)
        is_sure = bool(names) or has_committed
        return Look(names, has_committed or may_have, is_sure, is_space or has_committed)

    def _changed(self) -> list[str]:
        """Return the names that are others than before, in their order."""
        from engram.cluster.trees import ClusterGroup  # noqa: PLC0415 - a pool needs none of it

        below = self._served.below
        names = dict(self._cluster._native.names(f"{below}/" if below else ""))
        known = self._known or {}
        self._known = names
        changed = sorted(
            path for path in names.keys() | known.keys() if names.get(path) != known.get(path)
        )
        for path in changed:
            manifest = names.get(path)
            if manifest is None or json.loads(manifest)["kind"] == "array":
                self._nodes.pop(path, None)
            else:
                self._nodes[path] = frozenset(ClusterGroup(self._cluster, path, manifest).nodes)
        if below:  # which may lie in a group
            found = self._cluster._find(below)
            nodes = found.nodes if isinstance(found, ClusterGroup) else []
            self._nodes[""] = frozenset(nodes)
        return [self._served.relative(path) for path in changed]

    def _has_committed(self) -> bool:
        """Whether this host's node has commits that the last look did not see."""
        before, self._commits = self._commits, self._cluster.pool.stats()["commits"]
        return before is not None and before != self._commits
