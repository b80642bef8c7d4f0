"""Pools: creating, opening, destroying; and the openings that unpickled handles share."""

import contextlib
import grp
import operator
import os
from collections.abc import Sequence
from pathlib import Path
from types import TracebackType
from typing import TYPE_CHECKING, Any, Self, SupportsIndex, Unpack
from weakref import WeakValueDictionary

from engram import _engram, later, lifetime, reflexes, size, telemetry
from engram._engram import DeviceInfo
from engram.arguments import several
from engram.errors import AccessError, ArgumentError, EngramError, NotFoundError
from engram.handle import pickled_on, reopen, this_host
from engram.index import IndexSettings, check_settings
from engram.namespace import Namespace, Namespaces
from engram.paths import absolute
from engram.plain import printable

if TYPE_CHECKING:
    from engram.housekeeping import Backup

_MODES = {"r": False, "r+": True}

_MAX_GROUP = 2**32 - 2
"""The largest group number that POSIX has."""

_log = telemetry.Log("engram.pool")

_ALL_BITS = 0o7777
"""All bits of a POSIX mode."""

_open_here: WeakValueDictionary[tuple[str, str], _engram.Pool] = WeakValueDictionary()
"""Openings of this process by path and mode, for unpickled handles to share."""

_kept_here: dict[tuple[str, str], _engram.Pool] = {}
"""Openings that unpickled handles and paths made, kept for the next ones."""


class Pool(Namespace):
    """A pool: the root group of its default namespace, with its devices and namespaces.

    Closing it, or leaving its with-block, ends its handles; views live on.
    """

    __slots__ = ("_pool",)

    def __init__(self, pool: _engram.Pool) -> None:
        self._pool = pool
        with contextlib.suppress(AccessError):  # a pool whose default namespace is another's
            super().__init__(pool.namespace("default"))
        _open_here[_key(pool.path, self.mode)] = pool
        later.meet_xarray()

    def __getattr__(self, name: str) -> Any:
        """Tell why there is no default namespace, wherever one is asked for."""
        if name in {"_namespace", "_id"}:
            self._pool.namespace("default")
        raise reflexes.of_handle(self, name, is_group=True)

    @property
    def path(self) -> str:
        """Where the pool is in the filesystem."""
        return str(self._pool.path)

    @property
    def uuid(self) -> str:
        """The pool's own id: 32 hexadecimal digits."""
        return self._pool.uuid

    @property
    def mode(self) -> str:
        """How it was opened: "r" or "r+"."""
        return "r+" if self._pool.writable else "r"

    def __bool__(self) -> bool:
        return self._pool.is_open

    @property
    def durability(self) -> str:
        """What a commit survives: "process", any process's death; "system", power loss too."""
        return self._pool.durability

    @property
    def checksums(self) -> bool:
        """Whether the pool keeps a checksum of every record and value, which `verify` compares."""
        return self._pool.checksums

    @property
    def emulated(self) -> str | None:
        """What it copies at the pace of, for evaluation: "pmem", or None. Label figures of it."""
        return "pmem" if self._pool.emulated else None

    @property
    def devices(self) -> list[DeviceInfo]:
        """The devices: index, path, filesystem, medium, durable, free bytes of each."""
        return self._pool.devices()

    def add_device(self, path: str | os.PathLike[str], *, force: bool = False) -> None:
        """Add a directory, or a devdax node such as /dev/dax0.0, for the pool to take space from.

        With `force`, also on a filesystem that is not known to carry a pool, and a node that
        another pool has, with all that is on it. A node serves the default namespace alone.

        Raises
        ------
        UnsupportedError
            If its filesystem cannot carry a pool.
        ArgumentError
            If it is less durable than the pool.
        ExistsError
            If it is a device already, or a node that serves another pool.

        """
        self._pool.add_device(absolute(path), force)

    @property
    def namespaces(self) -> Namespaces:
        """The namespaces by name; `default` is always there."""
        return Namespaces(self._pool)

    def create_namespace(
        self,
        name: str,
        mode: int = 0o770,
        group: str | int | None = None,
        size: str | SupportsIndex | None = None,
        **index: Unpack[IndexSettings],
    ) -> Namespace:
        """Create a namespace of `mode` (0o770: its group writes too; 0o700: its owner alone).

        Others than the owner and the group read what is published, as with 0o755, or nothing.
        `group` is a Unix group, by name or number (default: this process's); `size` the bound on
        its arrays and blobs (default: the pool's). `index="async"` and what else `IndexSettings`
        has say how objects in it are indexed.

        Raises
        ------
        ExistsError
            If there is one of that name.
        ArgumentError
            If the mode lets all others write, or keeps the owner out.
        AccessError
            If this user is not in that group.

        """
        bound = None if size is None else _parse_size(size)
        number = _group_number(group)
        settings = check_settings(index)
        made = Namespace(self._pool.create_namespace(name, _mode_bits(mode), number, bound))
        try:
            _set_index(made, settings)
        except EngramError:
            self._pool.remove_namespace(name)
            raise
        return made

    def remove_namespace(self, name: str) -> None:
        """Remove a namespace with all that is in it.

        Raises
        ------
        NotFoundError
            If there is none of that name.
        BusyError
            If another process has it open.
        AccessError
            If it is another user's, or others keep something in private in it; the message says who
            has to call `remove_private`.

        """
        self._pool.remove_namespace(name)

    def remove_private(self, namespace: str = "default") -> None:
        """Remove all that you keep to yourself in a namespace: your private realm there.

        Nobody else could, but root: the owner of a pool cannot destroy it while others keep
        something in private in it. Shared and published members stay as they are.

        Raises
        ------
        NotFoundError
            If you have none there, or there is no such namespace.
        BusyError
            If another process, or another opening in this one, has it open.

        """
        self._pool.remove_private(namespace)

    def backup(
        self,
        dest: str | os.PathLike[str],
        *,
        force: bool = False,
        allow_partial: bool = False,
    ) -> "Backup":
        """Copy the pool to `dest`, of one moment, while others write and delete.

        The copy is a pool on one device, with a uuid of its own; opening it is restoring it. It has
        all that this user may read. What is written in place meanwhile may be in it half. With
        `force`, also onto a filesystem that is not known to carry a pool.

        What is another user's and damaged is not in the copy, and `left_out` names it: one user's
        damage does not keep all others' from being copied. For root it is so with all that is
        damaged, and with `allow_partial` also with what is the caller's own.

        Raises
        ------
        ExistsError
            If there is something at `dest`.
        PoolFullError
            If there is no room for it.
        CorruptError
            If something is damaged that is the caller's own, or all that there is.

        """
        from engram.housekeeping import Backup, parts  # noqa: PLC0415 - seldom asked for

        found = _engram.backup(self._pool, absolute(dest), force, allow_partial)
        path, realms, objects, nbytes, skipped, left_out = found
        made = Backup(str(path), realms, objects, nbytes, tuple(skipped), parts(left_out))
        _log.info("%s copied to %s: %d objects, %d bytes", self.path, path, objects, nbytes)
        for part in made.left_out:
            _log.warning("%s: not copied: %s", self.path, part)
        return made

    def close(self) -> None:
        """Close this opening: its handles end, its views live on. Closing twice is no error.

        Raises
        ------
        PoolGoneError
            If the pool's files were removed meanwhile; it is closed all the same.

        """
        if self._pool.is_open and _log.is_debugging:
            _log.debug("%s closed", self.path)
        self._pool.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.close()

    def __reduce__(self) -> tuple[Any, ...]:
        return _reopen_pool, (self.path, self.mode, self.uuid, this_host())

    def __repr__(self) -> str:
        shown = f"engram.Pool '{printable(self.path)}' mode {self.mode!r}"
        try:
            space, count = self.space, len(self)
        except EngramError:
            state = "default namespace not ours" if self else "closed"
            return f"<{shown} ({state})>"
        used = f"{_human(space.used)} of {_human(space.size)}"
        emulated = ", emulated persistent memory" if self.emulated else ""
        return f"<{shown}, {used}, {count} member{'' if count == 1 else 's'}{emulated}>"


_parse_size = size.parse
_human = size.human


def _mode_bits(mode: int) -> int:
    """Refuse what is no POSIX mode."""
    bits = _whole_number(mode, _ALL_BITS)
    if bits is None:
        raise ArgumentError(f"mode {mode!r} is no POSIX mode: give a number such as 0o770")
    return bits


def _whole_number(value: SupportsIndex, most: int) -> int | None:
    """Return what is a whole number from 0 to `most`."""
    try:
        number = operator.index(value)
    except TypeError:
        return None
    return number if 0 <= number <= most else None


def _group_number(group: str | int | None) -> int | None:
    """Look up a Unix group's number."""
    if group is None:
        return None
    if not isinstance(group, str):
        number = _whole_number(group, _MAX_GROUP)
        if number is None:
            raise ArgumentError(f"{group!r} is no Unix group: give its name or its number")
        return number
    try:
        return grp.getgrnam(group).gr_gid
    except (KeyError, ValueError):  # ValueError: of no encoding, or with NUL
        raise NotFoundError(
            f"this system has no group {group!r}: `getent group` lists those it has"
        ) from None


def create(  # noqa: PLR0917 - as the contract has it
    path: str | os.PathLike[str],
    size: str | SupportsIndex = "4 GiB",
    devices: Sequence[str | os.PathLike[str]] | None = None,
    durability: str = "auto",
    prefault: bool = False,
    force: bool = False,
    *,
    checksums: bool = False,
    emulate: str | None = None,
    mode: int = 0o700,
    group: str | int | None = None,
    **index: Unpack[IndexSettings],
) -> Pool:
    """Create a pool at `path`, which is its first device, and open it for writing.

    An `EngramWarning` says where a logout would remove it.

    Parameters
    ----------
    path
        A directory that is made: on tmpfs (/dev/shm), ext4 or xfs.
    size
        The bound on the bytes of its arrays, such as "64 GiB". Space is allocated as needed.
    devices
        More directories, or devdax nodes, such as "/dev/dax0.0", for the default namespace alone.
    durability
        "process": what was written survives the death of any process. "system": power loss too.
        "auto" is "process" on tmpfs, "system" elsewhere; the weakest device decides.
    prefault
        Allocate all of it now, on tmpfs as huge pages, and touch it: the first writes are fast.
    force
        Use a filesystem that is not known to carry a pool, and a node that another pool has, with
        all that is on it. Network filesystems are refused still.
    checksums
        Keep a checksum of every record and of every value, which `engram.verify` compares. A value
        that is written in place has none from then until `flush`.
    emulate
        "pmem", for evaluation alone: copies take as long as with the persistent memory of papers
        (read 300 ns, 30 GB/s; write 125 ns, 8 GB/s). Views do not, and only its maker uses it.
    mode, group
        Who may enter the default namespace, as in `create_namespace`: with 0o755 all read what is
        published in it, with 0o700 its owner alone.
    **index
        How objects are indexed where their group does not say otherwise (`IndexSettings`).

    Raises
    ------
    ExistsError
        If there is something at `path`, or a node serves another pool.
    UnsupportedError
        If the filesystem cannot carry a pool.
    PoolFullError
        If the filesystem, or this job's memory limit, has no room.
    ArgumentError
        If the size or the durability cannot be read, no device gives that durability, or
        `path` lies in the folder of another pool.

    """
    others = [absolute(device) for device in several("devices", devices or ())]
    how: dict[str, Any] = {"size": _parse_size(size), "devices": others, "prefault": prefault}
    how |= {"mode": _mode_bits(mode), "group": _group_number(group), "force": force}
    _check_words(durability, emulate)
    settings, full = check_settings(index), absolute(path)
    how |= {"durability": durability, "checksums": checksums, "emulated": emulate is not None}
    pool = _handle(_engram.Pool.create(full, **how))
    _set_up(pool, settings)
    _log.debug("%s created: %s", full, size)
    lifetime.warn_of_logout(full, stacklevel=3)
    return pool


def _check_words(durability: object, emulate: object) -> None:
    if not isinstance(durability, str):
        raise ArgumentError(
            f'durability {durability!r} is unknown: use "auto", "process" or "system"'
        )
    if emulate not in {None, "pmem"}:
        raise ArgumentError(f'emulate={emulate!r} is unknown: use "pmem", or None')


def _set_up(pool: Pool, settings: dict[str, Any]) -> None:
    """Say how a new pool's objects are indexed; where that fails, there is no pool."""
    try:
        _set_index(pool, settings)
    except EngramError:
        pool.close()
        _engram.destroy(pool.path, False)
        raise


def _set_index(root: Namespace, settings: dict[str, Any]) -> None:
    if settings:
        _engram.set_index_settings(root._namespace, root._id, settings)


def open(path: str | os.PathLike[str], mode: str = "r+", force: bool = False) -> Pool:
    """Open a pool: "r+" for reading and writing, "r" for reading.

    Any number of processes may have a pool open, each in either mode. As a with-block, it is closed
    at the end.

    Raises
    ------
    PoolNotFoundError
        If there is nothing at `path`; it is a `FileNotFoundError` too.
    FormatError
        If what is there is no pool, or half-created, or of another version.
    AccessError
        If this user may not.
    UnsupportedError
        If the filesystem, or this PID namespace, cannot carry it.

    """
    if not isinstance(mode, str) or mode not in _MODES:
        raise ArgumentError(f'mode {mode!r} is unknown: use "r" or "r+"')
    pool = _handle(_engram.Pool.open(full := absolute(path), _MODES[mode], force))
    _log.debug("%s opened, mode %s", full, mode)
    return pool


def _handle(opening: _engram.Pool) -> Pool:
    """Give the handle of a new opening; if there is none, nothing of the opening stays."""
    try:
        return Pool(opening)
    except BaseException:
        opening.close()  # the traceback would keep it
        raise


def adopt(path: str | os.PathLike[str]) -> None:
    """Say that this pool is the one that its further devices belong to.

    That is for a pool whose folder was moved to another filesystem, or restored from a copy. No
    other copy of it can be opened after that.

    Raises
    ------
    PoolNotFoundError
        If there is no pool at `path`.
    BusyError
        If the folder that they belong to is there, and has them still.

    """
    _engram.adopt(absolute(path))


def destroy(path: str | os.PathLike[str], *, force: bool = False) -> None:
    """Destroy a pool: all that is in it, on all its devices.

    With `force`, also if a device is missing: what is on that stays.

    Raises
    ------
    PoolNotFoundError
        If there is no pool at `path`.
    NotFoundError
        If one of its devices is missing; nothing is removed.
    FormatError
        If it is not clear that what is on a device is this pool's (`adopt`).
    BusyError
        If a process has it open, this one included; or keeps its folder locked, for seconds.
    AccessError
        If it is another user's, or others keep something in private in it: the message says who has
        to call `Pool.remove_private`.

    """
    full = absolute(path)
    for key in [key for key in _kept_here if key[0] == _key(full, "")[0]]:
        _kept_here.pop(key).close()
    _engram.destroy(full, force)
    _log.info("%s destroyed", full)


def chmod(path: str | os.PathLike[str], mode: int, /, *, namespace: str = "default") -> None:
    """Give a namespace of the pool at `path` another mode: its owner may, and root.

    Who may enter, and read what is published there, changes at once for all who come from then on;
    who has it open goes on with that. Whether the group writes there (0o020) changes only while
    nobody has the namespace open: then the shared part, and all of its files, are the group's, or
    the owner's alone. What is private stays its user's. A process that dies on the way leaves the
    old mode or the new one.

    Raises
    ------
    PoolNotFoundError
        If there is no pool at `path`.
    NotFoundError
        If it has no such namespace.
    ArgumentError
        If no namespace can have the mode.
    AccessError
        If the namespace is another user's.
    BusyError
        If whether the group writes is to change, and a process has the namespace open, this one
        included; its pid is named.

    """
    _engram.chmod(absolute(path), namespace, mode)


def _key(path: Path, mode: str) -> tuple[str, str]:
    return os.path.realpath(path), mode


def _shared_opening(path: str, mode: str, uuid: str | None = None) -> _engram.Pool:
    """Give an opening of this process's that is open still; one is made if there is none.

    Raises
    ------
    NotFoundError
        If it is to be the pool of a uuid, and another lies there.

    """
    key = _key(Path(path), mode)
    found = _open_here.get(key)
    if found is None or not found.is_open or uuid not in {None, found.uuid}:
        found = _engram.Pool.open(Path(path), _MODES[mode], False)
        if uuid not in {None, found.uuid}:
            there = found.uuid
            found.close()
            raise NotFoundError(
                f"the pool at {path!r} is {there} now, and what was pickled is of the pool {uuid}: "
                "put that one there again, or ask for the object by its path"
            )
        _open_here[key] = _kept_here[key] = found
    return found


def open_for_paths(path: Path, mode: str) -> _engram.Pool:
    """Open a pool for paths that lead into it: kept until `let_go`, or `destroy` in this process.

    The opening is nobody's but theirs, so that no with-block of a user ends it.
    """
    opening = _engram.Pool.open(path, _MODES[mode], False)
    _kept_here[_key(path, f"{mode} for paths")] = opening
    return opening


def let_go(opening: _engram.Pool) -> None:
    """Keep an opening no longer; it is closed when nothing uses it any more."""
    for key in [key for key, kept in list(_kept_here.items()) if kept is opening]:
        _kept_here.pop(key, None)


def _reopen_pool(path: str, mode: str, uuid: str | None = None, host: str | None = None) -> Pool:
    with pickled_on(host, path):
        return Pool(_shared_opening(path, mode, uuid))


def _reopen_namespace(
    path: str, mode: str, namespace: str, uuid: str | None = None
) -> _engram.Namespace:
    return _shared_opening(path, mode, uuid).namespace(namespace)


reopen.append(_reopen_namespace)
