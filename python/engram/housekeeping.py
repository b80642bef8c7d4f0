"""Housekeeping: who holds what, copies of a pool, and what it can give back."""

import os
from dataclasses import dataclass
from typing import TypedDict

from engram import _engram
from engram.paths import absolute


class LeaseStats(TypedDict):
    """One process that has a namespace open, or views of it."""

    lease: str
    """The lease's id, as errors name it."""
    pid: int
    """The process, as it says of itself."""
    user: int
    """The uid that the lease belongs to."""
    alive: bool
    """Whether the process is there; of a dead one the space returns when somebody asks for some."""
    own: bool
    """Whether it is this process's own."""
    since: int
    """Since when: nanoseconds since 1970, UTC."""
    behind: int | None
    """How many commits ago its oldest look-up or snapshot began; None: it has none now."""
    views: int
    """How many arrays and blobs it has views of."""
    reserved: int
    """Bytes that it has allocated, and not published; its scratch arrays, too."""
    held: int
    """Bytes of deleted or replaced values that its views keep from being used again."""


class ReaderStats(TypedDict):
    """One process in the catalog's table of readers."""

    pid: int
    """The process."""
    slots: int
    """How many places it has: threads that have read at once."""
    behind: int | None
    """How many commits ago the oldest snapshot was that it reads; None: it reads none now."""


class Oldest(TypedDict):
    """The process with the oldest snapshot."""

    pid: int
    """The process."""
    behind: int
    """How many commits ago that was."""


class CatalogStats(TypedDict):
    """The catalog's pages, in bytes."""

    allocated: int
    """Taken from the filesystem."""
    used: int
    """With rows on them."""
    free: int
    """Free at once."""
    held: int
    """Without rows, and seen by readers still."""


class Stats(TypedDict):
    """Who holds what in a namespace."""

    commits: int
    """The number of the last commit."""
    leases: list[LeaseStats]
    """Processes; those that hold most come first."""
    readers: list[ReaderStats]
    """The catalog's readers."""
    oldest: Oldest | None
    """The reader of the oldest snapshot; None: nobody reads an old one."""
    catalog: CatalogStats
    """The catalog's pages."""
    reserved: int
    """Bytes that are allocated, and not published."""
    held: int
    """Bytes deleted that somebody still views."""
    reclaimable: int
    """Bytes deleted that nobody views: free as soon as somebody asks for space."""


@dataclass(frozen=True, slots=True)
class Backup:
    """What a backup has copied."""

    path: str
    """Where the copy is."""
    realms: int
    """Namespaces, private parts of users in them, and what is published in them."""
    objects: int
    """Arrays and blobs."""
    nbytes: int
    """Bytes of memory that they have, as many as in the pool."""
    skipped: tuple[str, ...]
    """What this user may not read, and is not in the copy."""


@dataclass(frozen=True, slots=True)
class Compaction:
    """What compacting has given back: bytes before and after."""

    realms: int
    """Namespaces, and private parts of users in them."""
    catalog: tuple[int, int]
    """Of the catalogs."""
    arena: tuple[int, int]
    """Of the space for values."""
    skipped: tuple[str, ...]
    """What this user may not open, and is as it was."""


def compact(path: str | os.PathLike[str]) -> Compaction:
    """Give back what the catalogs of a pool, and its space for values, do not need any more.

    Nobody may have the pool open or views of it, this process neither: a process that opens it
    meanwhile waits. A death on the way leaves each part as it was, or compacted.

    Raises
    ------
    PoolNotFoundError
        If there is no pool at `path`.
    BusyError
        If a process has it open, or viewed; its pid is named.
    PoolFullError
        If there is no room for the new catalog beside the old one.

    """
    realms, catalog, arena, skipped = _engram.compact(absolute(path))
    before, after = catalog
    spans_before, spans_after = arena
    return Compaction(realms, (before, after), (spans_before, spans_after), tuple(skipped))
