"""Pools of one process, in this host's memory: for what is looked at or copied, and not kept.

*Invariant*: the folder of such a pool is locked as long as its process, or a fork of it, lives. One
that is not was left by a process that was killed, and the next that makes such a pool removes it.
"""

from __future__ import annotations

import contextlib
import fcntl
import os
import shutil
import tempfile
import weakref
from pathlib import Path
from typing import TYPE_CHECKING, Self

from engram.pool import create

if TYPE_CHECKING:
    from collections.abc import Iterator

_PREFIX = "engram-scratch-"


class Scratch:
    """A pool that goes with this object, or else with its process."""

    def __init__(self, size: str | None = None) -> None:
        """Make one that may take so much memory; all that is there, if it is not given."""
        base = _base()
        _sweep(base)
        folder, lock = _locked(base)
        self._remove = weakref.finalize(self, _removed, folder, lock, os.getpid())
        room = max(shutil.disk_usage(folder).free, 1 << 26)
        self.pool = create(folder / "pool", room if size is None else size)

    def close(self) -> None:
        """Remove it."""
        self.pool.close()
        self._remove()

    def __enter__(self) -> Self:
        """Give it; it goes at the end of the block."""
        return self

    def __exit__(self, *_: object) -> None:
        """Remove it."""
        self.close()


def _base() -> Path:
    memory = Path("/dev/shm")  # noqa: S108 - for folders of names that nobody else has
    return memory if memory.is_dir() else Path(tempfile.gettempdir())


def _locked(base: Path) -> tuple[Path, int]:
    """Make a folder, and lock it."""
    while True:
        folder = Path(tempfile.mkdtemp(prefix=_PREFIX, dir=base))
        try:
            lock = os.open(folder, os.O_RDONLY | os.O_DIRECTORY)
        except FileNotFoundError:  # another process has taken it for one that was left
            continue
        except OSError:
            folder.rmdir()
            raise
        try:
            fcntl.flock(lock, fcntl.LOCK_SH | fcntl.LOCK_NB)
            folder.stat()
        except (BlockingIOError, FileNotFoundError):  # as above
            os.close(lock)
        except OSError:
            os.close(lock)
            folder.rmdir()
            raise
        else:
            return folder, lock


def _left(base: Path) -> Iterator[Path]:
    """Give the folders of this user whose processes have ended; each is locked meanwhile."""
    for folder in base.glob(f"{_PREFIX}*"):
        with contextlib.suppress(OSError):  # another user's, in use, or gone
            lock = os.open(folder, os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW)
            try:
                if os.fstat(lock).st_uid == os.geteuid():
                    fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
                    yield folder
            finally:
                os.close(lock)


def _sweep(base: Path) -> None:
    """Remove what processes left that were killed."""
    for folder in _left(base):
        shutil.rmtree(folder, ignore_errors=True)


def _removed(folder: Path, lock: int, process: int) -> None:
    """Remove the folder of a pool, unless this is a fork of the process that made it."""
    if os.getpid() == process:
        shutil.rmtree(folder, ignore_errors=True)
        os.close(lock)
