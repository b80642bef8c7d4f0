"""Mounts: a namespace of a pool as a folder, for programs that know files.

A process of its own serves each mount, by FUSE. It goes on after the program that started it, until
the mount is taken away; `engram.mount` as a with-block does that at its end.
"""

import contextlib
import ctypes
import errno
import itertools
import json
import os
import shutil
import subprocess
import sys
import time
from pathlib import Path
from types import TracebackType
from typing import TYPE_CHECKING, Literal, NamedTuple, Self, TypedDict, Unpack

from engram import _engram, errors, telemetry
from engram.arguments import truth
from engram.errors import (
    ArgumentError,
    BusyError,
    EngramError,
    NotFoundError,
    PoolNotFoundError,
    UnsupportedError,
)
from engram.paths import absolute
from engram.size import parse

if TYPE_CHECKING:
    from engram.pool import Pool

    Cache = Literal["job", "shared", "none"]

__all__ = ["Mount", "mount", "unmount"]

_log = telemetry.Log("engram.mount")

_CACHES = ("job", "shared", "none")
_SOURCE = "engram:"
"""What the kernel lists as the source of a mount begins so; the process's number is its end."""
_GROWTH_MOST = 64 << 20
"""Files grow by no more than this at a time, unless more is asked for."""
_children: "dict[int, subprocess.Popen[str]]" = {}
"""The processes that this one has started to serve mounts, by number."""
_END_SECONDS = 60.0
"""So long a process that served a mount may take to close its pool."""
_MNT_DETACH = 2
_WAITED_FOR = "ENGRAM_MOUNT_WAITED_FOR"
_READY = "ready"


class MountOptions(TypedDict, total=False):
    """How a namespace is shown."""

    namespace: str
    """The namespace; "default" if none is named."""
    cache: "Cache"
    """What the kernel may keep: "shared" (if nothing is said), "job" or "none"."""
    read_only: bool
    """Whether all changes through the mount are refused."""
    segment_size: "str | int | None"
    """The memory by which files grow at least, such as "1 MiB"."""
    trace: "str | os.PathLike[str] | None"
    """A file to which a line for each operation is appended; `engram trace` shows it."""
    trace_ring: "str | os.PathLike[str] | None"
    """The same as a ring of fixed size, in which old lines are overwritten: ``FILE[:SIZE]``."""


class Mount:
    """A mount; a with-block takes it away at its end."""

    def __init__(self, path: Path, pid: int) -> None:
        self._path = path
        self._pid = pid

    @property
    def path(self) -> Path:
        """The folder."""
        return self._path

    @property
    def pid(self) -> int:
        """The process that serves it."""
        return self._pid

    def unmount(self) -> None:
        """Take it away, and wait until all is in the pool and the pool is closed there.

        Raises
        ------
        BusyError
            If somebody has files of it open, or stands in it.

        """
        with contextlib.suppress(NotFoundError):  # somebody else has
            unmount(self._path)

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        _kind: type[BaseException] | None,
        _error: BaseException | None,
        _trace: TracebackType | None,
    ) -> None:
        self.unmount()

    def __fspath__(self) -> str:
        return str(self._path)

    def __repr__(self) -> str:
        return f"<engram.Mount {str(self._path)!r} served by {self.pid}>"


def mount(
    pool: "Pool | str | os.PathLike[str]",
    path: "str | os.PathLike[str]",
    **options: Unpack[MountOptions],
) -> Mount:
    """Show a namespace of a pool as a folder, which every program reads and writes.

    ::

        with engram.mount("/dev/shm/run", "/mnt/run"):
            subprocess.run(["simulate", "--out", "/mnt/run/out"], check=True)

    Groups are folders, blobs are files, arrays are files that keep their size; `T.npy` is the array
    `T` as numpy's file. `cache` says what the kernel may keep: with "shared" it sees what other
    processes change in the pool at once where files are opened, and within a second elsewhere; with
    "job" it keeps everything, for a pool that nothing else changes meanwhile; with "none" nothing.
    `segment_size` is the memory by which files grow at least, such as "1 MiB". `trace` is a file to
    which a line for each operation is appended, and `trace_ring` one of fixed size that keeps the
    newest lines. The pool may be open here meanwhile. What a mount promises of POSIX is in the
    guide.

    Raises
    ------
    NotFoundError
        If there is no such pool, namespace or folder.
    ArgumentError
        If the path is no folder, or an argument is none.
    BusyError
        If a killed mount is still there: `engram.unmount` takes it away.
    AccessError
        If root would show what it keeps in private there.
    UnsupportedError
        Where FUSE is not offered: no /dev/fuse, no fusermount3.

    """
    place = Path(absolute(path))
    words = _words(pool, place, options)
    process = subprocess.Popen(  # noqa: S603 - our own module, no shell
        [sys.executable, "-m", "engram._mount", *words],
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.DEVNULL,
        env=os.environ | {_WAITED_FOR: "1"},
        start_new_session=True,
        text=True,
    )
    line = ""
    if process.stdout is not None:
        with process.stdout as said:
            line = said.readline()
    if line.strip() == _READY:
        _children[process.pid] = process
        _log.info("%s mounted at %s, served by process %d", words[0], place, process.pid)
        return Mount(place, process.pid)
    error = told_by(line, process.wait(), place)
    if type(error) is NotFoundError and not Path(words[0]).exists():
        raise PoolNotFoundError(str(error))
    raise error


def serve(
    pool: "str | os.PathLike[str]",
    path: "str | os.PathLike[str]",
    **options: Unpack[MountOptions],
) -> None:
    """Mount as `mount` does, and serve in this process, until it is unmounted or interrupted."""
    place = Path(absolute(path))
    words = _words(pool, place, options)
    _engram.serve_mount([*words, "--foreground"])


def _words(pool: "Pool | str | os.PathLike[str]", place: Path, options: MountOptions) -> list[str]:
    """Give what the process that serves a mount is told."""
    known = MountOptions.__annotations__
    if unknown := options.keys() - known:
        raise ArgumentError(f"{min(unknown)!r} is no option of a mount: use {', '.join(known)}")
    cache = options.get("cache", "shared")
    if cache not in _CACHES:
        raise ArgumentError(f"cache {cache!r} is unknown: use one of {', '.join(_CACHES)}")
    pool_path = pool if isinstance(pool, str | os.PathLike) else pool.path
    words = [str(absolute(pool_path)), str(place), "--cache", cache]
    words += ["--namespace", options.get("namespace", "default")]
    if truth("read_only", options.get("read_only", False)):
        words.append("--read-only")
    segment_size = options.get("segment_size")
    if segment_size is not None:
        least = parse(segment_size)
        words += ["--growth", f"{least}:{max(least, _GROWTH_MOST)}"]
    return words + _trace_words(options)


def _trace_words(options: MountOptions) -> list[str]:
    """Give what the process is told of a trace."""
    file, ring = options.get("trace"), options.get("trace_ring")
    if file is not None and ring is not None:
        raise ArgumentError("a mount has one trace: give trace or trace_ring, not both")
    if file is not None:
        return ["--trace", str(absolute(file))]
    if ring is None:
        return []
    path, colon, size = os.fspath(ring).rpartition(":")
    if not colon or not size[:1].isdigit():
        return ["--trace-ring", str(absolute(ring))]
    return ["--trace-ring", f"{absolute(path)}:{parse(size)}"]


def unmount(path: "str | os.PathLike[str]") -> None:
    """Take a mount of Engram away, also one whose process was killed.

    Waits until the process that serves it has closed the pool: what was written is in it then.

    Raises
    ------
    NotFoundError
        If no pool is mounted there.
    BusyError
        If somebody has files of it open, or stands in it.

    """
    place = Path(absolute(path))
    served = _served_at(place)
    if served is None:
        raise NotFoundError(
            f"no pool is mounted at {place}: `grep ^engram: /proc/mounts` lists such"
        )
    _take_away(served)
    until = time.monotonic() + _END_SECONDS
    while _serves(served.pid):
        if time.monotonic() > until:
            raise BusyError(
                f"process {served.pid}, which served {place}, has not closed the pool in "
                f"{_END_SECONDS:.0f} s: is it stopped?"
            )
        time.sleep(0.01)
    if (child := _children.pop(served.pid, None)) is not None:
        child.wait()
    _log.info("%s unmounted", place)


class _Served(NamedTuple):
    place: str
    pid: int
    pool: str


def _served_at(place: Path) -> _Served | None:
    """Give what is mounted at a place, by the kernel's list: a dead mount answers nothing."""
    # Of a mount that is dead, the place itself cannot be looked at.
    here = {str(place), str(place.parent.resolve() / place.name)}
    return next((each for each in reversed(_all_served()) if each.place in here), None)


def mounts_of(pool: "str | os.PathLike[str]") -> list[Mount]:
    """Give the living mounts of a pool, whoever serves them."""
    path = str(absolute(pool))
    return [
        Mount(Path(each.place), each.pid)
        for each in _all_served()
        if each.pool == path and _serves(each.pid)
    ]


def _all_served() -> list[_Served]:
    """Give all mounts of the kernel's list, in its order."""
    found = []
    with Path("/proc/self/mountinfo").open(encoding="utf-8", errors="surrogateescape") as mounts:
        for line in mounts:
            before, _, after = line.rstrip("\n").partition(" - ")
            words, (kind, source) = before.split(" "), after.split(" ")[:2]
            if kind.startswith("fuse") and source.startswith(_SOURCE):
                pool, _, pid = _plain(source).removeprefix(_SOURCE).rpartition("@")
                number = int(pid) if pid.isdigit() else 0
                found.append(_Served(_plain(words[4]), number, pool))
    return found


def _plain(word: str) -> str:
    """Give a word of the kernel's list without its escapes."""
    whole = word.encode(errors="surrogateescape")
    return os.fsdecode(whole.decode("unicode_escape").encode("latin-1"))


def mounted(place: Path) -> tuple[Path, str] | None:
    """Give the pool that a living mount shows, and its namespace ("" if that cannot be told)."""
    served = _served_at(place)
    if served is None or not _serves(served.pid):
        return None
    try:
        words = Path(f"/proc/{served.pid}/cmdline").read_text(errors="surrogateescape").split("\0")
    except OSError:
        return Path(served.pool), ""
    named = [after for before, after in itertools.pairwise(words) if before == "--namespace"]
    return Path(served.pool), named[-1] if named else "default"


def _serves(pid: int) -> bool:
    """Whether a process that serves a mount is there still."""
    try:
        words = Path(f"/proc/{pid}/cmdline").read_bytes()
        state = Path(f"/proc/{pid}/stat").read_text(encoding="utf-8").rpartition(")")[2].split()[0]
    except OSError:
        return False
    return state not in {"Z", "X"} and (b"engram._mount" in words or b"engram-mount" in words)


def _take_away(served: _Served) -> None:
    """Have the kernel forget a mount; one that is dead also while somebody stands in it."""
    dead = not _serves(served.pid)
    if os.geteuid() == 0:
        libc = ctypes.CDLL(None, use_errno=True)
        if libc.umount2(os.fsencode(served.place), _MNT_DETACH if dead else 0) == 0:
            return
        number = ctypes.get_errno()
        if number == errno.EBUSY:
            raise _busy(served)
        raise EngramError(f"unmounting {served.place}: {os.strerror(number)}")
    program = shutil.which("fusermount3") or shutil.which("fusermount")
    if program is None:
        raise UnsupportedError(
            "fusermount3 is missing, by which an ordinary user unmounts: install fuse3"
        )
    words = [program, "-u", *(["-z"] if dead else []), served.place]
    ended = subprocess.run(words, check=False, capture_output=True, text=True)  # noqa: S603
    if ended.returncode != 0:
        if "busy" in ended.stderr.lower():
            raise _busy(served)
        raise EngramError(f"unmounting {served.place}: {ended.stderr.strip()}")


def _busy(served: _Served) -> BusyError:
    return BusyError(
        f"{served.place} is in use: somebody has files of it open, or stands in it; "
        f"`fuser -vm {served.place}` says who"
    )


def told_by(line: str, code: int, place: Path) -> EngramError:
    """Make an error of what the process said that was to serve."""
    with contextlib.suppress(ValueError, KeyError, TypeError):
        said = json.loads(line)
        kind = getattr(errors, said["error"])
        error: EngramError = kind(said["message"])
        return error
    return EngramError(f"the process that was to serve {place} ended with code {code}")
