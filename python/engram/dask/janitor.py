"""A thread that does what finalizers ask for.

A finalizer runs wherever Python happens to drop the last reference: in the middle of a batch, which
its deletions would join, or with a lock of the program's held. So finalizers leave their work to
one thread of the process, which begins with the first of it. Where there is none to leave it to,
as at the end of the program, it is done at once.
"""

from __future__ import annotations

import atexit
import contextlib
import os
import queue
import threading
import weakref
from typing import TYPE_CHECKING

from engram.errors import EngramError

if TYPE_CHECKING:
    from collections.abc import Callable

PATIENCE = 60.0
"""Seconds for which one waits until all of it is done."""


class Janitor:
    """The thread of one process."""

    def __init__(self) -> None:
        self._work: queue.SimpleQueue[Callable[[], object]] = queue.SimpleQueue()
        self._thread: threading.Thread | None = None
        self._lock = threading.Lock()
        self._over = False

    def start(self) -> None:
        """Begin. Not called by finalizers: a thread cannot be begun everywhere."""
        with self._lock:
            if self._thread is None and not self._over:
                self._thread = threading.Thread(target=self._run, name="engram-dask", daemon=True)
                self._thread.start()

    def later(self, work: Callable[[], object]) -> None:
        """Have work done soon; from a finalizer, too."""
        if self._over or self._thread is None:
            _done(work)
        else:
            self._work.put(work)

    def settle(self) -> None:
        """Wait until what was asked for so far is done."""
        if self._thread is None or self._over:
            return
        done = threading.Event()
        self._work.put(done.set)
        done.wait(PATIENCE)

    def end(self) -> None:
        """Do what is left, and from now on all at once."""
        self.settle()
        self._over = True

    def _run(self) -> None:
        while True:
            _done(self._work.get())


def _done(work: Callable[[], object]) -> None:
    """Do work; what it was to remove may be gone, and its pool closed."""
    with contextlib.suppress(EngramError, OSError):
        work()


_here = Janitor()


def start() -> None:
    """See that this process has a janitor."""
    _here.start()


def later(work: Callable[[], object]) -> None:
    """Have this process's janitor do work."""
    _here.later(work)


def when_gone(thing: object, work: Callable[[], object]) -> weakref.finalize[..., object]:
    """Have work done once a thing is gone in this process; what a forked child has is a copy."""
    return weakref.finalize(thing, _of_process, os.getpid(), work)


def _of_process(pid: int, work: Callable[[], object]) -> None:
    if pid == os.getpid():
        later(work)


def settle() -> None:
    """Wait until this process's janitor has done what it was asked for."""
    _here.settle()


def _forked() -> None:
    """Begin anew in a child, which has no such thread."""
    global _here  # noqa: PLW0603 - one for each process
    _here = Janitor()


os.register_at_fork(after_in_child=_forked)


def _ended() -> None:
    """Do what is left; of a child it is the child's own."""
    _here.end()


atexit.register(_ended)
