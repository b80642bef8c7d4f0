"""Numbers that one run has for itself: names, networks and folders are derived from them.

A number is had by the lock of its folder, which the kernel releases with the process. So whatever
bears a number whose lock is free was left by a run that was killed.
"""

from __future__ import annotations

import fcntl
import os
import re
import shutil
import time
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Callable

PREFIX = "engram-test-"
"""All folders, host names and mounts of the tests' clusters begin so."""
PLACE = Path("/tmp")
NUMBERS = range(240)
PATIENCE_S = 60.0


def wait_for(what: str, condition: Callable[[], object], seconds: float = PATIENCE_S) -> None:
    """Wait until something is so, and fail with its name if it does not become so."""
    end = time.monotonic() + seconds
    pause = 0.005
    while not condition():
        assert time.monotonic() < end, f"after {seconds} s: not {what}"
        time.sleep(pause)
        pause = min(pause * 1.5, 0.1)


class Claim:
    """A number of a kind, and its folder, until `release`.

    `clear` removes what a killed run left under a number; `suits` says no to one that others use.
    """

    def __init__(
        self,
        kind: str,
        clear: Callable[[int], None],
        suits: Callable[[int], bool] = lambda _: True,
    ) -> None:
        clear_what_killed_runs_left(kind, clear)
        for number in NUMBERS:
            folder = folder_of(kind, number)
            lock = _locked(folder) if suits(number) else None
            if lock is not None:
                clear(number)
                self.number, self.folder, self._lock = number, folder, lock
                return
        raise RuntimeError(
            f"all {len(NUMBERS)} numbers of {PLACE}/{PREFIX}{kind}-* are taken: end other runs, "
            "or remove the folders that other users have left"
        )

    def release(self) -> None:
        """Remove the folder, and give the number back."""
        shutil.rmtree(self.folder, ignore_errors=True)
        os.close(self._lock)


def folder_of(kind: str, number: int) -> Path:
    """Return the folder of a number."""
    return PLACE / f"{PREFIX}{kind}-{number}"


def clear_what_killed_runs_left(kind: str, clear: Callable[[int], None]) -> None:
    """Remove what bears a number that nobody has: `clear` does, and its folder goes last."""
    named = re.compile(rf"{re.escape(PREFIX + kind)}-(\d+)")
    for folder in PLACE.glob(f"{PREFIX}{kind}-*"):
        if (found := named.fullmatch(folder.name)) and (lock := _locked(folder)) is not None:
            try:
                clear(int(found[1]))
                shutil.rmtree(folder, ignore_errors=True)
            finally:
                os.close(lock)


def _locked(folder: Path) -> int | None:
    """Make a folder and lock it, unless another has it: then there is None."""
    path = folder / "lock"
    while True:
        try:
            folder.mkdir(mode=0o755, exist_ok=True)
            lock = os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
        except FileNotFoundError:
            continue  # another has removed the folder in between
        except OSError:
            return None  # another user's
        try:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError:
            os.close(lock)
            return None
        try:
            if os.path.samestat(os.fstat(lock), path.stat()):
                return lock
        except FileNotFoundError:
            pass
        os.close(lock)  # the file was removed before it was locked
