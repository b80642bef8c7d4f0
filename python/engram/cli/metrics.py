"""A pool's figures for Prometheus, for `engram stats --prometheus`: its text format, 0.0.4.

Nothing is walked, so a pool of any number of objects is told of in milliseconds. Bytes are those of
what is shared in a namespace; objects and members are those that this user sees. A namespace that
is another user's, or damaged, is not readable and has no further figures. What this very process
holds of the pool is left out.
"""

from __future__ import annotations

import os
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from engram.errors import AccessError, CorruptError, FormatError, NotFoundError

if TYPE_CHECKING:
    from collections.abc import Iterator

    from engram._engram import Space
    from engram.housekeeping import Stats
    from engram.index_stats import IndexStats
    from engram.pool import Pool

_ESCAPED_IN_HELP = str.maketrans({"\\": "\\\\", "\n": "\\n"})
_ESCAPED_IN_LABEL = _ESCAPED_IN_HELP | str.maketrans({'"': '\\"'})
_GAUGE, _COUNTER = "gauge", "counter"

_FAMILIES = {
    "engram_pool_info": (_GAUGE, "1; what the pool is."),
    "engram_pool_device_free_bytes": (_GAUGE, "Bytes free on a device's filesystem or node."),
    "engram_pool_readable": (_GAUGE, "1, or 0 if the namespace is another user's, or damaged."),
    "engram_pool_size_bytes": (_GAUGE, "The most bytes of shared values."),
    "engram_pool_bytes": (_GAUGE, "Bytes allocated for shared values, by what is in them."),
    "engram_pool_vacant_bytes": (_GAUGE, "Bytes that were given back to the filesystem."),
    "engram_pool_largest_free_bytes": (_GAUGE, "The largest free piece of the allocated bytes."),
    "engram_pool_reserved_bytes": (_GAUGE, "Bytes allocated by processes and not yet published."),
    "engram_pool_deleted_bytes": (_GAUGE, "Bytes of deleted values that are not free yet."),
    "engram_pool_catalog_bytes": (_GAUGE, "Bytes of the catalog's pages."),
    "engram_pool_members": (_GAUGE, "Members of the topmost group."),
    "engram_pool_objects": (_GAUGE, "Arrays and blobs, by where the index has them."),
    "engram_pool_index_segments": (_GAUGE, "Segments of the index."),
    "engram_pool_index_bytes": (_GAUGE, "Bytes of the index's pages."),
    "engram_pool_leases": (_GAUGE, "Processes that have the namespace open."),
    "engram_pool_views": (_GAUGE, "Views that processes have."),
    "engram_pool_oldest_reader_commits": (_GAUGE, "Commits since the oldest snapshot in use."),
    "engram_pool_commits_total": (_COUNTER, "Commits so far."),
    "engram_pool_maintenance_failed": (_GAUGE, "1 if the index's maintenance failed last."),
}
"""The type and the help of each family, in the order in which they are printed."""


@dataclass
class _Told:
    """Samples of each family."""

    pool: str
    samples: dict[str, list[str]] = field(default_factory=lambda: {name: [] for name in _FAMILIES})

    def add(self, family: str, value: int, **labels: str) -> None:
        """Add a sample."""
        pairs = {"pool": self.pool, **labels}.items()
        shown = ",".join(f'{label}="{_label(text)}"' for label, text in pairs)
        self.samples[family].append(f"{family}{{{shown}}} {value}")

    def add_each(self, family: str, by_state: dict[str, int], **labels: str) -> None:
        """Add a sample for each state."""
        for state, value in by_state.items():
            self.add(family, value, **labels, state=state)


def text_of(pool: Pool) -> str:
    """Return what Prometheus is told of a pool: its devices, and all its namespaces."""
    told = _Told(pool.path)
    told.add("engram_pool_info", 1, uuid=pool.uuid, durability=pool.durability)
    for device in pool.devices:
        more = {"filesystem": device.filesystem, "medium": device.medium}
        told.add("engram_pool_device_free_bytes", device.free, device=str(device.path), **more)
    for name in pool.namespaces:
        try:
            root = pool.namespaces[name]
            # All is asked before anything is added: what fails in between leaves no half.
            space, stats, index, members = root.space, root.stats(), root.index_stats(), len(root)
        except (AccessError, CorruptError, FormatError, NotFoundError):
            told.add("engram_pool_readable", 0, namespace=name)
            continue
        told.add("engram_pool_readable", 1, namespace=name)
        told.add("engram_pool_members", members, namespace=name)
        _add_space(told, name, space, stats)
        _add_index(told, name, index)
        _add_processes(told, name, stats)
    return "".join(_lines(told.samples))


def _add_space(told: _Told, name: str, space: Space, stats: Stats) -> None:
    """Add where a namespace's bytes are."""
    told.add("engram_pool_size_bytes", space.size, namespace=name)
    states = {"used": space.used, "free": space.free, "pending": space.pending}
    told.add_each("engram_pool_bytes", states, namespace=name)
    told.add("engram_pool_vacant_bytes", space.vacant, namespace=name)
    told.add("engram_pool_largest_free_bytes", space.largest_free, namespace=name)
    told.add("engram_pool_reserved_bytes", stats["reserved"], namespace=name)
    deleted = {"viewed": stats["held"], "reclaimable": stats["reclaimable"]}
    told.add_each("engram_pool_deleted_bytes", deleted, namespace=name)
    pages = {state: stats["catalog"][state] for state in ("used", "free", "held")}
    told.add_each("engram_pool_catalog_bytes", pages, namespace=name)


def _add_index(told: _Told, name: str, index: IndexStats) -> None:
    """Add what a namespace's index is made of."""
    objects = {
        "sealed": index.sealed - index.dead,
        "tail": index.tail,
        "queued": index.queued,
        "unindexed": index.unindexed,
    }
    told.add_each("engram_pool_objects", objects, namespace=name)
    told.add("engram_pool_index_segments", index.segments, namespace=name)
    told.add("engram_pool_index_bytes", index.nbytes, namespace=name)


def _add_processes(told: _Told, name: str, stats: Stats) -> None:
    """Add who has a namespace open, but for this process, and how it goes on there."""
    leases = [lease for lease in stats["leases"] if not lease["own"]]
    alive = sum(bool(lease["alive"]) for lease in leases)
    told.add_each(
        "engram_pool_leases", {"alive": alive, "dead": len(leases) - alive}, namespace=name
    )
    told.add("engram_pool_views", sum(lease["views"] for lease in leases), namespace=name)
    oldest = stats["oldest"]
    behind = oldest["behind"] if oldest else 0
    told.add("engram_pool_oldest_reader_commits", behind, namespace=name)
    told.add("engram_pool_commits_total", stats["commits"], namespace=name)
    failed = int(stats["maintenance"] is not None)
    told.add("engram_pool_maintenance_failed", failed, namespace=name)


def _lines(samples: dict[str, list[str]]) -> Iterator[str]:
    """Yield the lines of each family that has samples."""
    for family, found in samples.items():
        if found:
            kind, about = _FAMILIES[family]
            yield f"# HELP {family} {about.translate(_ESCAPED_IN_HELP)}\n"
            yield f"# TYPE {family} {kind}\n"
            yield from (f"{sample}\n" for sample in found)


def _label(text: str) -> str:
    """Return a label's value as it stands between quotes; what is no UTF-8 becomes U+FFFD."""
    return os.fsencode(text).decode("utf-8", "replace").translate(_ESCAPED_IN_LABEL)
