"""The pool of a job: where it lies, what it keeps of the job, and how it goes.

The pool lies in the folder of the description's first backend that has one, and takes what else it
needs from the other backends: they are its devices. Its name is made of the folder where it is
mounted, so that the same description finds it again, on this machine. It keeps the description as
it was, and the step that the job is at, each of which is one commit. So whoever comes after a
process that was killed knows what is left to do.
"""

import contextlib
import hashlib
import json
import os
import pwd
import stat
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, Literal, NamedTuple

from engram.errors import (
    AccessError,
    ArgumentError,
    BusyError,
    CorruptError,
    EngramError,
    ExistsError,
    NotFoundError,
    PoolFullError,
    PoolNotFoundError,
    UnsupportedError,
)
from engram.jobs import registry
from engram.jobs.description import Description
from engram.paths import POOL_FILE
from engram.pool import Pool, create, destroy
from engram.pool import open as open_pool
from engram.size import human

STAGES = ".engram-stage"
"""The group that stages work in; no stage brings it out."""
_GROUP = f"{STAGES}/.job"
_TEXT, _FILE, _RECORD = "description", "engram.job.file", "engram.job"
_MEMORY = Path("/dev/shm")  # noqa: S108 - a pool of memory is meant
_DROP_SECONDS = 10.0
"""So long one waits for others to close a pool that is to go."""
_HOLDERS = 3
"""So many pools that take room are named."""

Step = Literal["in", "ready", "running", "shown", "out", "kept"]


class Record(NamedTuple):
    """How far a job is."""

    step: Step
    """Files come in; they are there, and nobody has seen them; the program runs; a mount shows them
    until it is taken away; results go out; all is out, and the pool stays."""
    code: int | None = None
    """What the program has ended with; None: it has not, or there was none."""
    program: int = 0
    """The program's process; 0: none."""
    since: int = 0
    """When that process began, as the kernel counts, which tells it from a later one."""


class JobPool:
    """The pool of a job, open, and locked against others who would do the same job."""

    def __init__(self, description: Description, pool: Pool, lock: Any) -> None:
        self.description = description
        self.pool = pool
        self.folder = Path(pool.path)
        self.is_new = False
        """Whether this process has made it."""
        self._lock = lock

    @property
    def record(self) -> Record:
        """How far the job is."""
        return _record(self.pool)

    def note(self, record: Record) -> None:
        """Say how far the job is, for whoever goes on with it."""
        self.pool[_GROUP].attrs[_RECORD] = json.dumps(record._asdict())

    def make_room(self, more: int = 0) -> None:
        """Let the pool have what its backends may hold, and so many bytes more."""
        with contextlib.suppress(ArgumentError):  # it has more already
            self.pool.resize(sum(one.capacity for one in self.description.backends) + more)

    def close(self) -> None:
        """Close it, and let others have it."""
        if self._lock is not None:
            lock, self._lock = self._lock, None
            with contextlib.suppress(EngramError):
                lock.__exit__(None, None, None)
        self.pool.close()

    def drop(self, patience: float | None = None) -> None:
        """Close it, and destroy it with all that is in it, once nobody has it open.

        Raises
        ------
        BusyError
            If somebody has it open still when `patience` seconds are over: ten, if none are said.

        """
        self.close()
        destroyed(self.folder, patience)
        registry.forget(self.folder)


def destroyed(folder: Path, patience: float | None = None) -> None:
    """Destroy a pool once nobody has it open, if it is there.

    Raises
    ------
    BusyError
        If somebody has it open still when `patience` seconds are over: ten, if none are said.

    """
    until = time.monotonic() + (_DROP_SECONDS if patience is None else patience)
    while True:
        try:
            destroy(folder)
        except PoolNotFoundError:  # somebody else has
            return
        except BusyError:
            if time.monotonic() > until:
                raise
            time.sleep(0.05)
        else:
            return


def folder_of(description: Description) -> Path:
    """Give the folder that a job's pool is to be, or is."""
    folders = [one.daxfs for one in description.backends if one.type != "NVRAM-DEVDAX"]
    above = folders[0] if folders else _MEMORY
    if description.reuse is not None:
        return above / memory_of(description.reuse).name
    mount = os.fsencode(description.mount_dir)
    return above / f"engram-job-{hashlib.sha256(mount).hexdigest()[:12]}-{os.geteuid()}"


def memory_of(name: str) -> Path:
    """Give the folder that the persistent pool of a name has if it lies in the machine's memory."""
    return _MEMORY / f"engram-{name}-{os.geteuid()}"


def find(description: Description, *, wait: bool = False) -> JobPool | None:
    """Give the job's pool if it is there; with `wait`, also one that another process has, later.

    The description that is given back is that of the pool's job, which may have been another.

    Raises
    ------
    BusyError
        If another process does this job now.

    """
    return find_at(folder_of(description), description, wait=wait)


def find_at(folder: Path, description: Description, *, wait: bool = False) -> JobPool | None:
    """Give the pool of a job that lies in a folder, as `find` does."""
    if not (folder / POOL_FILE).exists():
        return None
    see_whose(folder)
    try:
        return _held(open_pool(folder), description, wait=wait)
    except EngramError:
        if (folder / POOL_FILE).exists():
            raise
        return None  # another process has ended the job, and removed the pool meanwhile


def see_whose(folder: Path) -> None:
    """See that a pool was made by this user: others can guess what a job's is called.

    Raises
    ------
    AccessError
        If it was not.

    """
    found = folder.lstat()
    if not stat.S_ISDIR(found.st_mode) or found.st_uid != os.geteuid():
        raise AccessError(
            f"{folder} is there already, and user {found.st_uid} has made it: nothing is put there "
            f"or taken from there; have it removed, or let the description say another reuse"
        )


def _held(pool: Pool, description: Description, *, wait: bool) -> JobPool:
    lock = None
    try:
        lock = pool.require_group(_GROUP).lock(timeout=None if wait else 0.0)
        try:
            lock.__enter__()
        except BusyError as error:
            lock = None
            raise BusyError(
                f"another process is at this job, whose pool is {pool.path}: {error}"
            ) from None
        held = JobPool(of(pool) or description, pool, lock)
        if _RECORD not in pool[_GROUP].attrs:  # whoever made it died before it could say why
            _noted(held)
    except BaseException:
        if lock is not None:
            lock.__exit__(None, None, None)
        pool.close()
        raise
    return held


def _noted(held: JobPool) -> None:
    """Keep the description in the pool."""
    group = held.pool.require_group(_GROUP)
    group.create_blob(_TEXT, held.description.text.encode(), overwrite=True)
    group.attrs[_FILE] = str(held.description.path)
    held.note(Record("in"))


def of(pool: Pool) -> Description | None:
    """Give the description of the job whose pool it is; None: it is no job's.

    Raises
    ------
    UnsupportedError
        If it is one, and PyYAML is not installed.

    """
    group = pool.get(_GROUP)
    if group is None or _RECORD not in group.attrs or _FILE not in group.attrs:
        return None
    text = bytes(group[_TEXT][:]).decode()
    return Description.parse(text, str(group.attrs[_FILE]))


def described(folder: "str | os.PathLike[str]") -> Description | None:
    """Give the description of the job whose pool a folder is; None: it is no job's."""
    with open_pool(folder, "r") as pool:
        return of(pool)


def _record(pool: Pool) -> Record:
    text = pool[_GROUP].attrs[_RECORD]
    try:
        return Record(**json.loads(text))
    except (ValueError, TypeError):
        raise CorruptError(
            f"{pool.path}: what it keeps of its job cannot be read: {text!r}; take its files out "
            f"by `engram stage out`, and remove it by `engram destroy`"
        ) from None


def find_or_make(description: Description) -> JobPool:
    """Give the job's pool, made if it is not there.

    Raises
    ------
    BusyError
        If another process does this job now; or the pool has what another description is to bring
        out.
    NotFoundError, UnsupportedError
        If a backend is not there, or cannot carry a pool.
    PoolFullError
        If a backend has less room than it is to have: what is asked, what is there, who has it.

    """
    held = find(description)
    if held is not None:
        if held.description.text == description.text:
            held.make_room()
            return held
        step = held.record.step
        if step == "kept" or (step == "in" and description.reuse is not None):
            held.description = description
            _noted(held)
            held.make_room()
            return held
        if step != "in":
            folder, path = held.folder, held.description.path
            held.close()
            raise BusyError(
                f"the pool {folder} has what another description is to bring out, {path} as it "
                f"was then: `engram job --resume -c {description.path}` does that"
            )
        held.drop()
    check_room(description)
    folder = folder_of(description)
    devices = _devices(description)
    with _told_of(description):
        size = sum(one.capacity for one in description.backends)
        pool = create(folder, size, devices)
    try:
        _check_nodes(pool, description)
        made = _held(pool, description, wait=False)
        made.is_new = True
    except BaseException:
        pool.close()
        destroyed(folder)
        raise
    return made


@contextlib.contextmanager
def _told_of(description: Description) -> Iterator[None]:
    """Have errors say where the backend stands of which they are: the one whose path they name."""
    try:
        yield
    except (
        AccessError,
        ArgumentError,
        ExistsError,
        NotFoundError,
        PoolFullError,
        UnsupportedError,
    ) as error:
        backends = description.backends
        named = [one for one in backends[1:] if str(one.daxfs) in str(error)]
        backend = named[0] if named else backends[0]
        raise type(error)(f"{backend.place}: backend {backend.id!r}: {error}") from None


def _devices(description: Description) -> list[Path]:
    """Give the folders and nodes that the pool takes space from besides its own folder."""
    found = [folder_of(description).parent.resolve()]
    for backend in description.backends:
        path = backend.daxfs.resolve()
        if path not in found:
            found.append(path)
    return found[1:]


def _check_nodes(pool: Pool, description: Description) -> None:
    """See that nodes of persistent memory have what they are to have."""
    for backend in description.backends:
        for device in pool.devices:
            is_it = device.path.resolve() == backend.daxfs.resolve()
            if is_it and backend.type == "NVRAM-DEVDAX" and device.free < backend.capacity:
                raise PoolFullError(
                    f"{backend.place}: backend {backend.id!r}: {human(backend.capacity)} are asked "
                    f"for, and {backend.daxfs} has {human(device.free)}: ask for no more"
                )


def check_room(description: Description) -> None:
    """See that each backend is there, and has the room that it is to have."""
    asked: dict[int, int] = {}
    for backend in description.backends:
        try:
            about = backend.daxfs.stat()
        except OSError as error:
            raise NotFoundError(
                f"{backend.place}: backend {backend.id!r} is to lie in {backend.daxfs}: "
                f"{error.strerror}; name one in daxfs that is there"
            ) from None
        if backend.type == "NVRAM-DEVDAX":
            if not stat.S_ISCHR(about.st_mode):
                raise ArgumentError(
                    f"{backend.place}: backend {backend.id!r}: {backend.daxfs} is no devdax node, "
                    f"as /dev/dax0.0 is: for a folder the type is NVRAM-NVML"
                )
            continue
        if not stat.S_ISDIR(about.st_mode):
            raise ArgumentError(
                f"{backend.place}: backend {backend.id!r}: {backend.daxfs} is no folder: name one "
                f"in daxfs; for a node as /dev/dax0.0 the type is NVRAM-DEVDAX"
            )
        asked[about.st_dev] = asked.get(about.st_dev, 0) + backend.capacity
        room = os.statvfs(backend.daxfs)
        free, size = room.f_bavail * room.f_frsize, room.f_blocks * room.f_frsize
        if asked[about.st_dev] > free:
            raise PoolFullError(
                f"{backend.place}: backend {backend.id!r}: {human(asked[about.st_dev])} are asked "
                f"for, and {backend.daxfs} has {human(free)} free of {human(size)}; "
                f"{_holders(backend.daxfs)}; ask for less, or make room"
            )


def _holders(folder: Path) -> str:
    """Say which pools take the most of a folder."""
    found = []
    with contextlib.suppress(OSError):
        for pool in folder.iterdir():
            with contextlib.suppress(OSError):
                if (pool / POOL_FILE).exists():
                    used = _sum_of(pool, lambda about: about.st_blocks * 512)
                    found.append((used, str(pool), pool.stat().st_uid))
    if not found:
        return "no pool that this user sees lies there"
    named = []
    for used, path, user in sorted(found, reverse=True)[:_HOLDERS]:
        with contextlib.suppress(KeyError):
            named.append(f"{path} of {pwd.getpwuid(user).pw_name} has {human(used)}")
            continue
        named.append(f"{path} of user {user} has {human(used)}")
    return ", ".join(named)


def _sum_of(folder: Path, count: Callable[[os.stat_result], int]) -> int:
    found = 0
    for above, _, names in os.walk(folder):
        for name in names:
            with contextlib.suppress(OSError):
                found += count((Path(above) / name).lstat())
    return found


def check_idle(held: JobPool) -> None:
    """See that the program of a job that was killed is not still there.

    Raises
    ------
    BusyError
        If it is.

    """
    record = held.record
    if record.program and began(record.program) == record.since:
        raise BusyError(
            f"the program of this job is still there: process {record.program}; end it, or wait "
            f"for it, and call this again"
        )


def began(pid: int) -> int:
    """Say when a process began, as the kernel counts; 0: there is none."""
    with contextlib.suppress(OSError, ValueError, IndexError):
        words = Path(f"/proc/{pid}/stat").read_text(encoding="utf-8").rpartition(")")[2].split()
        return 0 if words[0] in {"Z", "X"} else int(words[19])
    return 0
