"""Housekeeping: who holds what, copies of a pool, what it can give back, and newer formats."""

import os
from dataclasses import dataclass
from typing import TYPE_CHECKING, TypedDict

from engram import _engram, owners, telemetry
from engram.errors import CorruptError
from engram.paths import absolute

if TYPE_CHECKING:
    from collections.abc import Iterable

    from engram.scope import Scope


_log = telemetry.Log("engram.pool")


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


class MaintenanceFailure(TypedDict):
    """How maintenance of the index failed last; nothing is lost by it, and it is tried again."""

    task: str
    """What failed."""
    error: str
    """The error's class."""
    pid: int
    """The process in which it failed."""
    at: int
    """When: nanoseconds since 1970, UTC."""
    message: str | None
    """What was wrong; only the process in which it failed knows."""


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
    maintenance: MaintenanceFailure | None
    """The last failure of maintenance, until the same work is done."""


@dataclass(frozen=True, slots=True)
class PartLeftOut:
    """A part of a pool that was left out, since it is damaged, or cannot be had."""

    namespace: str
    """Its namespace."""
    scope: "Scope | None"
    """Whether it is what is private, shared or published there; None: all of it."""
    user: int | None
    """The uid of the user whose it is; None where nothing tells."""
    why: str
    """What is wrong with it."""

    def __str__(self) -> str:
        whose = "" if self.user is None else f" of {owners.user(self.user)}"
        part = {None: "", "shared": "", "private": f" (private{whose})"}
        return f"{self.namespace}{part.get(self.scope, ' (published)')}: {self.why}"


def parts(found: "Iterable[tuple[str, Scope | None, int | None, str]]") -> tuple[PartLeftOut, ...]:
    """Return what was left out, as the engine tells it."""
    return tuple(PartLeftOut(*each) for each in found)


def _check(left_out: tuple[PartLeftOut, ...], done: str) -> None:
    if left_out:
        more = f" (and {len(left_out) - 1} more)" if len(left_out) > 1 else ""
        message = f"not all could be {done}: {left_out[0]}{more}"
        raise CorruptError(message)


@dataclass(frozen=True, slots=True)
class Backup:
    """What a backup has copied; it is true if nothing damaged was left out."""

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
    left_out: tuple[PartLeftOut, ...] = ()
    """What is damaged, and is not in the copy."""

    def __bool__(self) -> bool:
        return not self.left_out

    def check(self) -> None:
        """Raise `CorruptError` if anything damaged was left out."""
        _check(self.left_out, "copied")


@dataclass(frozen=True, slots=True)
class Compaction:
    """What compacting has given back: bytes before and after; it is true if nothing was damaged."""

    realms: int
    """Namespaces, and private parts of users in them."""
    catalog: tuple[int, int]
    """Of the catalogs."""
    arena: tuple[int, int]
    """Of the space for values."""
    joined: int
    """Files that lay in fragments, and lie in one piece now, but for their holes."""
    skipped: tuple[str, ...]
    """What this user may not open, and is as it was."""
    left_out: tuple[PartLeftOut, ...] = ()
    """What is damaged, and is as it was."""

    def __bool__(self) -> bool:
        return not self.left_out

    def check(self) -> None:
        """Raise `CorruptError` if anything is damaged."""
        _check(self.left_out, "compacted")


def compact(path: str | os.PathLike[str], *, allow_partial: bool = False) -> Compaction:
    """Give back what the catalogs of a pool, and its space for values, do not need any more.

    A file in many fragments is put into one piece, where there is space for it; holes stay.
    Nobody may have the pool open or views of it, this process neither: a process that opens it
    meanwhile waits. A death on the way leaves each part as it was, or compacted. What is another
    user's and damaged stays as it is, and `left_out` names it; for root it is so with all that is
    damaged, and with `allow_partial` also with what is the caller's own.

    Raises
    ------
    PoolNotFoundError
        If there is no pool at `path`.
    BusyError
        If a process has it open, or viewed; its pid is named.
    PoolFullError
        If there is no room for the new catalog beside the old one.
    CorruptError
        If something is damaged that is the caller's own, or all that there is.

    """
    found = _engram.compact(absolute(path), allow_partial)
    realms, catalog, arena, joined, skipped, left_out = found
    before, after = catalog
    spans_before, spans_after = arena
    spans = (spans_before, spans_after)
    done = Compaction(realms, (before, after), spans, joined, tuple(skipped), parts(left_out))
    said = (path, before, after, spans_before, spans_after)
    _log.info("%s compacted: catalogs %d to %d bytes, values %d to %d", *said)
    for part in done.left_out:
        _log.warning("%s: not compacted: %s", path, part)
    return done


@dataclass(frozen=True, slots=True)
class Upgrade:
    """What an upgrade has done."""

    path: str
    """Where the pool of this engram's format is."""
    before: int
    """The format that the pool had."""
    after: int
    """The format that it has; if it is the same, there was nothing to do."""
    resumed: bool
    """Whether an upgrade that was interrupted was brought to its end."""
    realms: int
    """Namespaces, private parts of users in them, and what is published in them: made anew."""
    objects: int
    """Arrays and blobs."""
    nbytes: int
    """Bytes of memory that they have, as many as before."""
    skipped: tuple[str, ...]
    """What this user may not read, and a copy lacks; what could not be had again in its place."""


def upgrade(
    path: str | os.PathLike[str],
    to: str | os.PathLike[str] | None = None,
    *,
    force: bool = False,
) -> Upgrade:
    """Make a pool of an earlier format, from 5 on, one that this engram opens.

    The new pool is made beside the old one (`POOL.upgrading`), with every id, value, attribute and
    time as it was, and an index built anew; it is verified, and takes the old one's name in one
    step. The old one goes after that. An upgrade that was killed leaves the old pool whole, or the
    new one: call again, and it begins again, or goes on. With `to`, the old pool stays as it is,
    and the new one is a copy there, of all that this user may read, with a uuid of its own; with
    `force`, also on a filesystem that is not known to carry a pool.

    Nobody may have the pool open meanwhile. A pool of this engram's own format stays as it is.

    Raises
    ------
    PoolNotFoundError
        If there is no pool at `path`.
    FormatError
        If its format is newer than this engram, or earlier than 5.
    BusyError
        If a process has it open; its pid is named.
    PoolFullError
        If there is no room for the new pool; the bytes that it needs are named.
    CorruptError
        If anything in the pool is damaged; it is left as it is, for `salvage`.
    AccessError
        If there is something in it that this user may not read, and no `to`.
    ExistsError
        If there is something at `to`, or in the new pool's place.

    """
    target = None if to is None else absolute(to)
    done = _engram.upgrade(absolute(path), target, force)
    place, before, after, resumed, realms, objects, nbytes, skipped = done
    _log.info("%s upgraded from format %d to %d: %d objects", place, before, after, objects)
    return Upgrade(str(place), before, after, resumed, realms, objects, nbytes, tuple(skipped))
