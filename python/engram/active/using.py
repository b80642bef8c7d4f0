"""Which pool active objects are made in and looked for, where a call does not say it."""

import contextlib
import os
import weakref
from contextlib import contextmanager
from contextvars import ContextVar
from pathlib import Path
from typing import TYPE_CHECKING, Any

from engram import owners
from engram.active.places import far
from engram.active.stored.home import Home, home_of, homes
from engram.errors import (
    AccessError,
    ArgumentError,
    EngramError,
    NotFoundError,
    ReadOnlyError,
)
from engram.handle import reopen
from engram.namespace import Namespace
from engram.pool import Pool, _kept_here, _open_here, _shared_opening

if TYPE_CHECKING:
    from collections.abc import Iterator
    from contextlib import AbstractContextManager

_used: ContextVar[Any] = ContextVar("engram.active.use", default=None)


def use(pool: Any) -> "AbstractContextManager[Any]":
    """Say which pool, namespace, cluster or node active objects are made in and looked for.

    ::

        engram.active.use(pool)              # from now on
        with engram.active.use(pool): ...    # for a block

    Without it, it is the pool that this process has open, if that is just one. In a cluster,
    objects are made on this host's node, or if it has none, on any; aliases are looked for on all.

    Raises
    ------
    ArgumentError
        If it is none of these.

    """
    if pool is not None:
        home(pool)
    before = _used.get()
    _used.set(pool)
    return _until_end(pool, before)


@contextmanager
def _until_end(pool: Any, before: Any) -> "Iterator[Any]":
    _used.set(pool)
    try:
        yield pool
    finally:
        _used.set(before)


def home(pool: Any = None) -> Home:
    """Give the home of active objects that a call means.

    Raises
    ------
    NotFoundError
        If it names none, and which is meant is not clear.

    """
    if pool is not None:
        return _home_named(pool)
    used = _used.get()
    if used is not None and _is_open(used):
        return _home_named(used)
    found = _only_home()
    if found is not None:
        return found
    openings = _openings()
    if len(openings) == 1:
        only = Pool(openings[0])
        found = home_of(only)
        _only.clear()
        _only.append((weakref.ref(only._pool), weakref.ref(found)))
        return found
    if used is not None:
        raise ArgumentError(
            f"{used!r} was given to engram.active.use, and is closed: open it again"
        )
    count = "no pool is" if not openings else f"{len(openings)} pools are"
    raise NotFoundError(
        f"{count} open here: say which one active objects are in, with engram.active.use(pool)"
    )


def _home_named(pool: Any) -> Home:
    """Give the home of a pool, a namespace, or of what a cluster calls one."""
    found = far.named(pool)
    if found is None and not hasattr(pool, "_namespace"):
        raise ArgumentError(
            f"{pool!r} is no place of active objects: give a pool, a namespace of one, a cluster "
            "or a node of one"
        )
    return home_of(pool) if found is None else found


def _is_open(used: Any) -> bool:
    """Tell whether what is used is open yet; of a cluster's node that its cluster says."""
    return bool(getattr(used, "is_open", used))


def cluster_of(pool: Any = None) -> Any:
    """Give the cluster that a call means, if it names one, or none and one is used; else None."""
    meant = _used.get() if pool is None else pool
    if not hasattr(meant, "_place_of_alias") or (pool is None and not _is_open(meant)):
        return None
    return meant


def homes_of(pool: Any = None) -> list[Any]:
    """Give the homes that a call means: of a cluster those of all its nodes that serve."""
    cluster = cluster_of(pool)
    return [home(pool)] if cluster is None else list(cluster._serving_homes())


_only: list[Any] = []
"""The only pool that was open when it was last looked for, and its home."""


def _only_home() -> Home | None:
    """Give the home that was found last, if its pool is still the only one that is open."""
    if not _only:
        return None
    opening, found = _only[0][0](), _only[0][1]()
    if opening is None or found is None or not found.is_open:
        return None
    by_itself = {id(each) for each in _kept_here.values()}
    others = [
        each
        for each in _open_here.values()
        if each is not opening and each.is_open and id(each) not in by_itself
    ]
    return None if others else found


def all_homes(pool: Any = None) -> list[Home]:
    """Give the homes here that objects may be in: of the pool named, in use, and open here."""
    found = [] if pool is None else [_home_named(pool)]
    used = _used.get()
    if hasattr(used, "_namespace") and used:
        found.append(home_of(used))
    found = [each for each in found if not each.is_far]
    return [*found, *homes(), *(home_of(each) for each in _open_pools() if _has_default(each))]


def _has_default(pool: Any) -> bool:
    try:
        return bool(pool._namespace.is_open)
    except EngramError:  # its default namespace is another user's
        return False


def other_namespace(home: Home, namespace: str) -> Home:
    """Give another namespace of a home's pool."""
    if home.key[1] == namespace:
        return home
    return opened(home.pool_path, namespace, writable=home.namespace.writable)


def at_path(path: str, namespace: str) -> Home:
    """Give a namespace of the pool at a path, which is opened if it is not open here."""
    real = os.path.realpath(path)
    for home in all_homes():
        if os.path.realpath(home.pool_path) == real:
            return other_namespace(home, namespace)
    return opened(path, namespace)


def opened(path: str, namespace: str, *, writable: bool | None = None) -> Home:
    """Open a pool that an object is in, for writing if this user may; it stays open."""
    modes = ["r+", "r"] if writable is None else ["r+" if writable else "r"]
    for mode in modes:
        try:
            return home_of(Namespace(reopen[0](path, mode, namespace, None)))
        except (AccessError, ReadOnlyError):
            if mode == modes[-1]:
                raise
    raise AssertionError


def followed(path: str, namespace: str) -> Home:
    """Open a pool that a reference leads to, if it is this user's: its writer chose the path.

    Raises
    ------
    AccessError
        If it is another user's.

    """
    try:
        owner = Path(path).stat().st_uid
    except OSError as error:
        raise NotFoundError(
            f"the pool at {path!r}, which the object is in, cannot be opened: {error.strerror}"
        ) from None
    if owner != os.geteuid():
        raise AccessError(
            f"the object is in the pool at {path!r}, which belongs to {owners.user(owner)}: it is "
            "not opened for a reference's sake; open it yourself, if you trust who keeps it"
        )
    return opened(path, namespace)


def devices(home: Home) -> list[Any]:
    """Give the devices of a home's pool."""
    mode = "r+" if home.namespace.writable else "r"
    return list(_shared_opening(home.pool_path, mode, home.key[0]).devices())


def _openings() -> list[Any]:
    """Give the pools that are open in this process; for writing, if one is open twice.

    Those that only a reference or a pickle has opened count if there are no others.
    """
    by_itself = {id(each) for each in _kept_here.values()}
    openings = sorted(_open_here.values(), key=lambda opening: opening.writable)
    asked = [each for each in openings if each.is_open and id(each) not in by_itself]
    return list({each.uuid: each for each in asked or openings if each.is_open}.values())


def _open_pools() -> list[Any]:
    """Give a handle of each pool that is open in this process."""
    handles = []
    for opening in _openings():
        with contextlib.suppress(EngramError):  # its folder is gone
            handles.append(Pool(opening))
    return handles
