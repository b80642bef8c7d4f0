"""Where the main job's pool lies: in memory where there is room, else beside its results."""

from __future__ import annotations

import os
import zlib
from pathlib import Path

import engram

MEMORY = Path("/dev/shm")  # noqa: S108 - the kernel's shared memory is what is meant
SPARE = 1.25


def default_pool(out: Path, nbytes: int) -> Path:
    """Return a path for the pool: on `/dev/shm` if that is tmpfs with room, else in `out`.

    The name follows from the user and `out`, so a second run finds and replaces the first's.
    """
    in_memory, beside = places(out)
    if is_tmpfs(MEMORY) and (in_memory.exists() or free_bytes(MEMORY) > nbytes * SPARE):
        return in_memory
    return beside


def places(out: Path) -> tuple[Path, Path]:
    """Return where a pool of a run with results in `out` may be: in memory, or beside them."""
    name = f"engram-demo-{os.getuid()}-{zlib.crc32(bytes(out.resolve())):08x}"
    return MEMORY / name, out / "pool"


def remove_earlier(out: Path) -> None:
    """Destroy the pool that an earlier run with results in `out` left, if it did.

    Raises
    ------
    BusyError
        If another demo uses it right now.

    """
    for path in places(out):
        remove(path)


def create(path: Path, nbytes: int) -> tuple[engram.Pool, str]:
    """Create the demo's pool at `path`, in place of an earlier run's; the pool and a remark.

    On a filesystem that is not on the list, such as a container's overlay, the pool is forced and
    the remark says so: this pool is for show.

    Raises
    ------
    BusyError
        If another demo uses it right now.

    """
    remove(path)
    try:
        return engram.create(path, size=nbytes), ""
    except engram.UnsupportedError as refusal:
        return engram.create(path, size=nbytes, force=True), f"forced: {refusal}"


def remove(path: Path) -> None:
    """Destroy the pool of an earlier run at `path`, if there is one.

    Raises
    ------
    BusyError
        If another demo uses it right now.

    """
    if path.exists():
        engram.destroy(path)


def is_tmpfs(path: Path) -> bool:
    """Whether `path` is a mount of tmpfs."""
    try:
        mounts = Path("/proc/self/mounts").read_text(encoding="utf-8")
    except OSError:
        return False
    return any(line.split()[1:3] == [str(path), "tmpfs"] for line in mounts.splitlines())


def free_bytes(path: Path) -> int:
    """Return the bytes free on the filesystem of `path`."""
    status = os.statvfs(path)
    return status.f_bavail * status.f_frsize
