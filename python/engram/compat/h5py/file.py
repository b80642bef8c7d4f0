"""Files: where h5py has one, there is a pool, or a group of one.

    h5py.File("/dev/shm/run.h5", "w")          a pool at that path
    h5py.File("/dev/shm/run.h5/co2", "r")      a group of it, as if it were a file
    h5py.File(pool["co2"])                     likewise, of a pool that is open already

A new pool grows as it is filled, up to a bound (`size=`, or `ENGRAM_H5PY_SIZE`) that costs nothing.
"""

from __future__ import annotations

import contextlib
import os
import weakref
from pathlib import Path
from typing import TYPE_CHECKING, Any, Self

from engram import _engram, pool
from engram.blob import Blob
from engram.compat.h5py import aliases, order, parts, refused, words
from engram.compat.h5py.base import text_of
from engram.compat.h5py.dataset import Dataset
from engram.compat.h5py.errors import ClosedError, FileError
from engram.compat.h5py.group import Group, get_config
from engram.compat.h5py.links import Way
from engram.errors import (
    AccessError,
    ArgumentError,
    BusyError,
    EngramError,
    ExistsError,
    FormatError,
    NotFoundError,
    PoolNotFoundError,
)
from engram.group import Group as PoolGroup
from engram.handle import make
from engram.paths import POOL_FILE

if TYPE_CHECKING:
    from types import TracebackType

    from engram.array import Array
    from engram.handle import Handle
    from engram.pool import Pool

SIZE = 512 << 30
"""The bound on a new pool, where nothing is said; less on a smaller filesystem."""

_SIGNATURE = b"\x89HDF\r\n\x1a\n"
_MODES = ("r", "r+", "w", "w-", "x", "a")
_DRIVERS = (None, "sec2", "stdio", "core", "log", "direct")
_LIBVERS = ("earliest", "latest", "v108", "v110", "v112", "v114", "v200")
_IGNORED = frozenset({
    "rdcc_nslots", "rdcc_nbytes", "rdcc_w0", "fs_strategy", "fs_persist", "fs_threshold",
    "fs_page_size", "page_buf_size", "min_meta_keep", "min_raw_keep", "locking",
    "alignment_threshold", "alignment_interval", "meta_block_size", "block_size", "track_times",
})  # fmt: skip


class File(Group):
    """A pool, or a group of one, as h5py shows a file.

    Parameters
    ----------
    name
        A path: the pool's, or a pool's followed by a group's; or a group of a pool that is open.
    mode
        "r" reads, "r+" changes what is there, "w" begins anew, "w-" or "x" refuses what is there,
        "a" changes what is there or makes it.
    driver, libver, locking, rdcc_nbytes, ...
        Taken for h5py's sake, and without effect; what is made by "core" with `backing_store=False`
        is removed at the end. Those that cannot be (MPI's) are refused.
    swmr
        Without effect: any number of processes read and write at once.
    track_order
        Whether names and attributes of the root come in the order in which they were made.
    size
        The bound on a new pool, such as "64 GiB".
    force
        Whether a pool is made on a filesystem that is not known to carry one.

    Raises
    ------
    FileNotFoundError
        If there is nothing to be opened.
    OSError
        If what is there is no pool, or is open elsewhere and would be replaced.

    """

    __slots__ = (
        "_blocks",
        "_driver",
        "_filename",
        "_libver",
        "_mode",
        "_moved",
        "_ns",
        "_ordered",
        "_owns",
        "_pool",
        "_root_path",
        "_swmr",
        "_unkept",
        "_way",
        "_written",
    )  # fmt: skip

    _ns: _engram.Namespace

    @property
    def _file(self) -> File:  # type: ignore[override]  # no attribute: nothing is to hold itself
        return self

    def __init__(  # noqa: PLR0917 - as h5py has it
        self,
        name: Any,
        mode: str = "r",
        driver: str | None = None,
        libver: Any = None,
        userblock_size: int | None = None,
        swmr: bool = False,
        *,
        track_order: bool | None = None,
        backing_store: bool | None = None,
        size: Any = None,
        force: bool = False,
        **kwds: Any,
    ) -> None:
        _check(mode, driver, libver, userblock_size, kwds)
        self._moved: dict[int, int] = {}
        self._written: set[int] = set()
        self._ordered: set[int] = set()
        self._libver, self._swmr = libver, bool(swmr)
        if backing_store is not None and driver != "core":
            raise TypeError('backing_store= is for driver="core"')
        self._unkept: weakref.finalize[..., Any] | None = None
        self._driver = driver or "sec2"
        self._blocks = max(2048, kwds.get("meta_block_size") or 0)
        if swmr and mode != "r":
            raise ValueError('swmr=True is for mode "r": set f.swmr_mode = True where you write')
        if isinstance(name, PoolGroup):
            self._open_group(name)
            return
        path = _path(name)
        self._filename = path if isinstance(name, str | bytes) else os.fspath(name)
        order_flags = get_config().track_order if track_order is None else track_order
        bound = size or os.environ.get("ENGRAM_H5PY_SIZE") or _bound(path)
        above = _pool_above(path)
        is_unkept = backing_store is False and mode != "r"
        if is_unkept:
            _check_unkept(path, above)
        if above is None:
            is_new = self._open_pool(path, mode, bound, force=force)
            self._at(self._pool._namespace.root)
        else:
            is_new = self._open_inside(*above, mode)
        if is_unkept:  # it goes with the file, whether that is closed or dropped
            self._unkept = weakref.finalize(self, _discard, self._pool, os.getpid())
        if is_new and order_flags:
            tracked = {"links": words.TRACKED, "attributes": words.TRACKED}
            words.change_group(self._ns, self._id, lambda said: said.update(tracked=tracked))

    def _open_pool(self, path: str, mode: str, bound: Any, *, force: bool) -> bool:
        """Open a pool, or make one; tell whether it is new."""
        self._owns = True
        there = os.path.lexists(path)
        if mode == "a":
            mode = "w" if _is_empty_file(path) else "r+" if there else "w-"
        if mode in {"r", "r+"}:
            self._pool = _opened(path, mode, force=force)
            self._mode = mode
            return False
        if there and mode != "w":
            raise FileExistsError(
                f'{path} is there: open it with mode "a" or "r+", or "w" to begin anew'
            )
        if there:
            _remove(path)
        self._pool, self._mode = _created(path, bound, force=force), "r+"
        return True

    def _open_inside(self, path: str, inner: str, mode: str) -> bool:
        """Open a group of a pool as a file; tell whether it is new."""
        self._owns = True
        self._mode = "r" if mode == "r" else "r+"
        self._pool = _opened(path, self._mode, force=False)
        try:
            found = self._pool.get(inner)
            _check_inside(found, path, inner, mode)
            if found is not None and mode == "w":
                del self._pool[inner]
                found = None
            is_new = found is None
            group = self._pool.create_group(inner) if found is None else found
        except BaseException:
            self._pool.close()
            raise
        self._at(group._id)
        return is_new

    def _open_group(self, group: PoolGroup) -> None:
        self._owns = False
        self._ns = group._namespace
        self._filename = str(self._ns.pool_path)
        self._mode = "r+" if self._ns.writable else "r"
        self._begin(group._id)

    def _at(self, root: int) -> None:
        self._ns = self._pool._namespace
        self._begin(root)

    def _begin(self, root: int) -> None:
        self._id = root
        self._root_path = _engram.path_of(self._ns, True, root)
        self._way = Way(self._ns, root)

    # What it is

    @property
    def filename(self) -> str:
        """The path as it was given."""
        self._check()
        return self._filename

    @property
    def mode(self) -> str:
        """How it is open: "r" or "r+"."""
        self._check()
        return self._mode

    @property
    def driver(self) -> str:
        """What h5py calls its usual driver."""
        self._check()
        return self._driver

    @property
    def libver(self) -> tuple[str, str]:
        """The versions that were asked for: nothing depends on them."""
        self._check()
        given = self._libver or ("earliest", "v200")
        low, high = (given, "latest") if isinstance(given, str) else given
        return low, "v200" if high == "latest" else high

    @property
    def userblock_size(self) -> int:
        """0: a pool has nothing before it."""
        self._check()
        return 0

    @property
    def meta_block_size(self) -> int:
        """What was asked for: a pool has no such blocks."""
        return self._blocks

    @property
    def swmr_mode(self) -> bool:
        """Whether it was said that one writes while others read; they may in any case."""
        return self._swmr

    @swmr_mode.setter
    def swmr_mode(self, value: bool) -> None:
        self._check()
        if not value:
            raise ValueError("It is not possible to forcibly switch SWMR mode off.")
        self._swmr = True

    @property
    def pool(self) -> Pool | None:
        """The pool, with all that engram has; None if a group was given."""
        return self._pool if self._owns else None

    @property
    def attrs(self) -> Any:
        """The attributes of the root."""
        self._check()
        return super().attrs

    @property
    def name(self) -> str | None:
        """The root's path."""
        return "/" if self._is_open else None

    def flush(self) -> None:
        """Make what was written in place as durable as the pool is."""
        self._check()
        self._settle()

    def close(self) -> None:
        """Close it: datasets and groups of it end. Closing twice is no error."""
        if not self._is_open:
            return
        try:
            self._settle()
        finally:
            if self._owns:
                self._pool.close()
            if self._unkept is not None:
                self._unkept()

    def _settle(self) -> None:
        if self._mode == "r":
            return
        written, self._written = self._written, set()
        for oid in written:
            with contextlib.suppress(NotFoundError, BusyError):
                _engram.flush(self._ns, oid)
        self._settle_orders()

    def _settle_orders(self) -> None:
        """Keep the order in which members were made, where it is tracked."""
        changed, self._ordered = self._ordered, set()
        for gid in changed:
            with contextlib.suppress(NotFoundError):
                order.settle(self._ns, gid)

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.close()

    def __repr__(self) -> str:
        if not self._is_open:
            return "<Closed HDF5 file>"
        name = os.path.basename(self._filename)  # noqa: PTH119 - h5py's, of a text
        return f'<HDF5 file "{name}" (mode {self._mode})>'

    def __eq__(self, other: object) -> bool:
        return Group.__eq__(self, other)

    def __hash__(self) -> int:
        return Group.__hash__(self)

    # What groups and datasets ask of it

    @property
    def _is_open(self) -> bool:
        return self._ns.is_open

    def _check(self) -> None:
        if not self._ns.is_open:
            raise ClosedError(
                f"the file {self._filename!r} is closed (not a file or file object): open it again"
            )

    def _told(self, error: ArgumentError) -> EngramError:
        """Return an error as that of a closed file, if it is closed."""
        if self._ns.is_open:
            return error
        return ClosedError(f"the file {self._filename!r} is closed: open it again")

    def _named(self, path: str) -> str:
        """Return a path of the namespace as one of this file."""
        root = self._root_path
        if root:
            path = path[len(root) :]
        return path if path.startswith("/") else f"/{path}"

    def _group(self, gid: int) -> Group:
        return Group(self, gid)

    def _made(self, found: Any) -> Any:
        """Return what was found as h5py has it."""
        kind, member, _, _ = found
        if kind:
            handle: Handle = make(self._ns, found)
            return Dataset(self, handle._as_array() if isinstance(handle, Blob) else _array(handle))
        if parts.is_one(_engram.group_info(self._ns, member).origin):
            return parts.PartsDataset(self, member)
        return self._group(member)

    def _note(self, array: Array) -> None:
        """Note that an array was written in place, for `flush`."""
        if len(self._written) < 4096:  # noqa: PLR2004 - what is more is durable with its pages
            self._written.add(array._id)

    def _replaced(self, old: int, new: int) -> None:
        """Note that an object was put anew: what is open of it follows."""
        self._moved[old] = new
        aliases.renumber(self, old, new)


def _array(handle: Any) -> Array:
    found: Array = handle
    return found


def _check(mode: Any, driver: Any, libver: Any, userblock_size: Any, kwds: dict[str, Any]) -> None:
    if mode not in _MODES:
        raise ValueError(f"Invalid mode {mode!r}; must be one of r, r+, w, w-, x, a")
    if driver == "mpio":
        refused.refuse(
            'driver="mpio"', "any number of processes open one pool: leave driver= and comm= out"
        )
    if driver not in _DRIVERS:
        refused.refuse(f"driver={driver!r}", "a pool lies on a local filesystem: leave it out")
    if userblock_size:
        refused.refuse("userblock_size=", "a pool is a folder, and nothing stands before it")
    for one in (libver,) if isinstance(libver, str) else libver or ():
        if one not in _LIBVERS:
            raise ValueError(f"libver {one!r} is unknown: it is one of {_LIBVERS}")
    unknown = sorted(kwds.keys() - _IGNORED)
    if unknown:
        raise TypeError(f"File() got an unexpected keyword argument {unknown[0]!r}")


def _path(name: Any) -> str:
    if isinstance(name, bytes):
        return os.fsdecode(name)
    try:
        path = os.fspath(name)
    except TypeError:
        refused.refuse(f"a file on {type(name).__name__}", "a pool is a folder: give its path")
    return os.fsdecode(path)


def _pool_above(path: str) -> tuple[str, str] | None:
    """Return the pool that a path leads into, and the path in it; None if it leads into none."""
    full = Path(path).absolute()
    if (full / POOL_FILE).is_file():
        return None
    for above in full.parents:
        if (above / POOL_FILE).is_file():
            return str(above), str(full.relative_to(above))
    return None


def _check_inside(found: Any, path: str, inner: str, mode: str) -> None:
    """Refuse what is, or is not, where a mode needs it otherwise."""
    if found is not None and not isinstance(found, PoolGroup):
        raise FileError(f"{inner!r} in the pool {path} is no group: open the pool itself")
    if found is None and mode in {"r", "r+"}:
        raise PoolNotFoundError(f"there is no {inner!r} in the pool {path}")
    if found is not None and mode in {"w-", "x"}:
        raise FileExistsError(f"there is {inner!r} in the pool {path} already")


def _opened(path: str, mode: str, *, force: bool) -> Pool:
    try:
        return pool.open(path, mode, force)
    except PoolNotFoundError:
        raise
    except (FormatError, AccessError, BusyError) as error:
        raise _unopened(path, error) from error


def _unopened(path: str, error: EngramError) -> FileError:
    if is_hdf5_file(path):
        return FileError(
            f"{path} is an HDF5 file, and no pool: import it into one (engram.import_file, or "
            f"`engram import POOL GROUP {path}`), or read it with h5py itself"
        )
    return FileError(f"{path} cannot be opened as a pool (file signature not found): {error}")


def _bound(path: str) -> int:
    """Return the bound on a new pool: as large as its filesystem, and not beyond `SIZE`."""
    try:
        found = os.statvfs(Path(path).absolute().parent)
    except OSError:  # `create` says what is wrong
        return SIZE
    return min(SIZE, max(found.f_blocks * found.f_frsize, 1 << 30))


def _created(path: str, bound: Any, *, force: bool) -> Pool:
    try:
        return pool.create(path, size=bound, force=force)
    except ExistsError as error:
        raise FileExistsError(str(error)) from error
    except NotFoundError as error:
        raise PoolNotFoundError(str(error)) from error


def _check_unkept(path: str, above: tuple[str, str] | None) -> None:
    """Refuse to make what is removed at the end where something is that stays."""
    if above is not None or (os.path.lexists(path) and not _is_empty_file(path)):
        refused.refuse(
            f"backing_store=False at {path}",
            "what is there would be changed, and removed at the end: give a path where nothing is, "
            'or mode "r"',
        )


def _discard(of: Pool, pid: int) -> None:
    """Remove a pool that is kept while its file is open; a child's copy removes nothing."""
    if os.getpid() == pid:
        of.close()
        with contextlib.suppress(NotFoundError, BusyError):
            pool.destroy(of.path)


def _remove(path: str) -> None:
    """Remove what mode "w" begins anew: a pool, or an empty file."""
    here = Path(path)
    if _is_empty_file(path):
        here.unlink()
        return
    if here.is_dir() and not any(here.iterdir()):
        here.rmdir()
        return
    if not (here / POOL_FILE).is_file():
        raise FileError(
            f"{path} is there, and no pool, so it is not replaced: remove it, or use another path"
        )
    try:
        pool.destroy(path)
    except BusyError as error:
        raise FileError(
            f"{path} cannot be begun anew: it is already open ({error}); close it first"
        ) from error


def _is_empty_file(path: str) -> bool:
    """Whether there is a file of no bytes, as tempfile makes it."""
    here = Path(path)
    return here.is_file() and not here.stat().st_size


def is_hdf5_file(path: Any) -> bool:
    """Whether a path is that of an HDF5 file."""
    with contextlib.suppress(OSError), Path(path).open("rb") as stream:
        return stream.read(len(_SIGNATURE)) == _SIGNATURE
    return False


def is_hdf5(fname: Any) -> bool:
    """Whether a path is that of what `File` opens: a pool."""
    return (Path(text_of(os.fspath(fname))) / POOL_FILE).is_file()
