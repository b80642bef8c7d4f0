"""Persistent pools that are not wanted any more: what would be lost with them, and how they go."""

import os
from pathlib import Path
from typing import Any, NamedTuple

from engram.errors import ArgumentError, BusyError, EngramError, NotFoundError, PoolNotFoundError
from engram.jobs import arrays, pools, registry, tags
from engram.jobs.description import Description, is_below
from engram.jobs.pools import STAGES, JobPool
from engram.jobs.registry import PersistentPool
from engram.paths import POOL_FILE
from engram.pool import Pool
from engram.pool import open as open_pool
from engram.stage import Trouble

_SHOWN = 5
"""So many of the files that would be lost are named."""
_PIECE = 1 << 20
_UNITS = (1, 100, 10**3, 10**6, 10**9)
"""To so many nanoseconds file systems keep times."""


class DroppedPool(NamedTuple):
    """A persistent pool that is gone."""

    name: str
    """The name by which jobs found it."""
    path: Path
    """Where it was."""
    lost: tuple[str, ...]
    """The persistent files that were nowhere else, by their paths in it; dropped by force."""


class Expired(NamedTuple):
    """What became of the pools of this node whose time is over."""

    dropped: tuple[DroppedPool, ...]
    """Those that are gone."""
    left: tuple[Trouble, ...]
    """Those that stay since something would be lost, or since they cannot be looked at."""


class _WouldLoseError(BusyError):
    """A pool has files that are nowhere else."""


def drop(name: str, *, force: bool = False) -> list[DroppedPool]:
    """Drop the persistent pool of this name on this node, and give what went.

    There may be several, if descriptions say different places. A pool with persistent files that
    are not outside stays, unless it is dropped by `force`. A file is outside if the description's
    `results-dir` has it, or its source is what it is, by size and time; arrays are compared.

    Raises
    ------
    NotFoundError
        If there is none on this node; those on others are named.
    BusyError
        If files would be lost, which are named; or if a process has the pool open, or a job of it
        is under way.
    ArgumentError
        If it is a persistent pool of Slurm's.

    """
    found = [pool for pool in registry.here() if pool.name == name]
    usual = pools.memory_of(name)
    if not found and (usual / POOL_FILE).exists():  # whoever made it could not note it
        found = [PersistentPool(name, registry.node(), usual, 0, None, None)]
    if not found:
        elsewhere = registry.nodes(name)
        for pool in elsewhere:
            _refuse_slurms(pool)
        where = ",".join(dict.fromkeys(pool.node for pool in elsewhere))
        raise NotFoundError(
            f"no persistent pool {name!r} lies on this node, which is {registry.node()}, but on "
            f"{where}: drop it there, as by `srun --nodelist={where} engram job --drop {name}`"
        )
    return [_dropped(pool, force=force) for pool in found]


def expire(but: Path | None = None) -> Expired:
    """Drop this user's pools on this node whose time is over, but for one, by its folder.

    One that a process has open, or a job of which is under way, is left alone. One with persistent
    files that are not outside stays, and is in `left`.
    """
    dropped, left = [], []
    kept = None if but is None else but.resolve()
    for pool in registry.here():
        if not pool.expired or (pool.path is not None and pool.path.resolve() == kept):
            continue
        try:
            dropped.append(_dropped(pool, force=False))
        except _WouldLoseError as error:
            left.append(Trouble(str(pool.path), f"its time is over, and it stays: {error}"))
        except (BusyError, PoolNotFoundError):
            continue
        except (EngramError, OSError) as error:
            left.append(Trouble(str(pool.path), f"its time is over, and it stays: {error}"))
    return Expired(tuple(dropped), tuple(left))


def _dropped(pool: PersistentPool, *, force: bool) -> DroppedPool:
    """Drop a pool of this node unless something would be lost, or give it up by force."""
    _refuse_slurms(pool)
    place = pool.path or Path()
    if place.exists():
        pools.see_whose(place)
    described = pools.described(place)
    if described is None:
        lost = _of_nobody(place)
        _refuse_loss(pool, lost, "engram stage out", force=force)
        pools.destroyed(place, 0)
        registry.forget(place)
        return DroppedPool(pool.name, place, lost)
    held = pools.find_at(place, described)
    if held is None:
        raise PoolNotFoundError(f"the pool {place} has gone meanwhile")
    try:
        pools.check_idle(held)
        lost = _lost(held)
        is_ended = held.record.step == "kept"
        way = "engram stage out" if is_ended else f"engram job --resume -c {described.path}"
        _refuse_loss(pool, lost, way, force=force)
        held.drop(0)
    finally:
        held.close()
    return DroppedPool(pool.name, place, lost)


def _refuse_slurms(pool: PersistentPool) -> None:
    if pool.is_slurms:
        raise ArgumentError(
            f"the persistent pool {pool.name!r} is Slurm's: a job with the directive "
            f"`#BB_LUA destroy_persistent name={pool.name}` ends it"
        )


def _refuse_loss(pool: PersistentPool, lost: tuple[str, ...], way: str, *, force: bool) -> None:
    """Refuse to drop a pool with files that would be lost, and name the way to bring them out."""
    if not lost or force:
        return
    shown = ", ".join(map(repr, lost[:_SHOWN])) + (", ..." if len(lost) > _SHOWN else "")
    what = "file is" if len(lost) == 1 else "files are"
    raise _WouldLoseError(
        f"{len(lost)} persistent {what} nowhere else, and would be lost with {pool.path}: {shown}; "
        f"bring them out by `{way}`, or drop it by `engram job --drop {pool.name} --force`"
    )


def _of_nobody(place: Path) -> tuple[str, ...]:
    """Give what is in a pool that no job has described."""
    with open_pool(place, "r") as pool:
        return tuple(name for name in pool if name != STAGES)


def _lost(held: JobPool) -> tuple[str, ...]:
    """Give the persistent files that are nowhere but in a job's pool."""
    files, troubles = tags.persistent(held.pool, held.description)
    lost = [trouble.path for trouble in troubles]
    for path, member in files:
        copies = _copies(held.description, path)
        if not any(_is_outside(held.pool, held.description, path, member, one) for one in copies):
            lost.append(path)
    return tuple(sorted(set(lost)))


def _copies(description: Description, path: str) -> list[Path]:
    """Give the places outside where a file of a pool may be: among the results, or as a source."""
    places = [description.results_dir / path]
    for resource in description.resources:
        if is_below(path, resource.to):
            inner = path[len(resource.to) :].lstrip("/") if resource.to else path
            places.append(resource.path / inner if inner else resource.path)
    return places


def _is_outside(pool: Pool, description: Description, path: str, member: Any, place: Path) -> bool:
    """Whether what is outside is what the pool has."""
    for resource in description.resources:
        if resource.to == path and resource.type == "array":
            return arrays.is_outside(pool, resource, place)
    here = member.posix
    try:
        if here.kind == "symlink":
            return os.fsencode(place.readlink()) == bytes(member[...])
        there = place.lstat()
    except OSError:
        return False
    if here.kind != "file":
        return True  # it has no bytes
    written = (here.mtime_ns - here.mtime_ns % unit for unit in _UNITS)
    looks_so = there.st_size == here.size and there.st_mtime_ns in written
    return looks_so and _is_same(pool, path, place)


def _is_same(pool: Pool, path: str, place: Path) -> bool:
    """Whether a file outside has the bytes of the pool's: times do not tell writes to a view."""
    try:
        with pool.open_file(path, "rb") as ours, place.open("rb") as theirs:
            while True:
                piece = ours.read(_PIECE)
                if piece != theirs.read(len(piece)):
                    return False
                if not piece:
                    return True
    except OSError:
        return False
