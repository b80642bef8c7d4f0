"""Collecting by itself: a thread that deletes unreachable objects every so many seconds.

Any number of processes may ask for it. In a round, one of them works, which has the lock of the
group of all objects; the others skip theirs. The kernel drops the lock with its process, and a
round that was killed leaves whole pieces (`collect.py`).

What this process has as Python objects counts as reachable, with all that it leads to. What only
another process has is protected by its age alone.
"""

import atexit
import math
import os
import threading
import time
from contextlib import ExitStack
from numbers import Real
from types import TracebackType
from typing import Any, Final, NamedTuple, Self
from weakref import WeakSet

from engram import _engram, telemetry
from engram.active import using
from engram.active.stored import home as homes
from engram.active.stored.collect import StoppedError, collected_at
from engram.active.stored.home import Home
from engram.active.stored.layout import OBJECTS
from engram.errors import ArgumentError, BusyError, ReadOnlyError

_log = telemetry.Log("engram.active")

_EVERY: Final = 60.0
AGE: Final = 3600.0
"""How many seconds an object stays after it was changed, if nothing else is said."""

_LOOK: Final = 1.0
"""How many seconds at most it takes to see that the pool was closed."""

_PATIENCE: Final = 10.0
"""How many seconds the end of the program waits for a round."""


class _OthersWorkError(Exception):
    """Another collector has the lock."""


class Rounds(NamedTuple):
    """What a collector has done so far."""

    rounds: int
    """How many rounds it has made."""
    skipped: int
    """How many it has left out, as another collector was at work."""
    objects: int
    """How many objects went."""
    nbytes: int
    """How many bytes their arrays and large values had."""
    error: Exception | None
    """Why the last round failed; None if it did not."""


class Collector:
    """A thread that deletes unreachable objects: `engram.active.collect` begins one.

    It ends with `stop`, with its with-block, when the pool is closed, and with the program, and
    keeps the pool open until then. A child that is forked does not have it.
    """

    def __init__(self, pool: Any, home: Home, every: float, older_than: float) -> None:
        self._pool = pool  # kept open
        self._home = home
        self._every = min(every, threading.TIMEOUT_MAX)
        self._older_than = older_than
        self._pid = os.getpid()
        self._done = Rounds(0, 0, 0, 0, None)
        self._seen: dict[int, tuple[Any, float]] = {}
        self._over = threading.Event()
        self._thread = threading.Thread(target=self._run, name="engram-collector", daemon=True)
        self._thread.start()
        _collectors.add(self)

    @property
    def done(self) -> Rounds:
        """What it has done so far."""
        return self._done

    @property
    def is_running(self) -> bool:
        """Whether it goes on; not in a forked child, and not once the pool is closed."""
        return self._pid == os.getpid() and self._thread.is_alive()

    def wait(self, timeout: float | None = None) -> bool:
        """Wait until it has ended, at most `timeout` seconds; tell whether it has."""
        if self._pid == os.getpid():
            self._thread.join(timeout)
        return not self.is_running

    def stop(self) -> Rounds:
        """End it, and give what it has done; a round that goes on ends at the next object."""
        if self._pid == os.getpid():
            self._over.set()
            if self._thread is not threading.current_thread():
                self._thread.join()
        return self._done

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.stop()

    def __repr__(self) -> str:
        state = f"every {self._every:g} s" if self.is_running else "ended"
        return f"<collector of {self._home.pool_path!r}, {state}: {self._done}>"

    def _run(self) -> None:
        while self._home.is_open:
            self._round()
            next_round = time.monotonic() + self._every
            while self._home.is_open and (left := next_round - time.monotonic()) > 0:
                if self._over.wait(min(left, _LOOK)):
                    return
        _log.debug("the collector of %s has ended: the pool was closed", self._home.pool_path)

    def _round(self) -> None:
        done = self._done
        try:
            went = self._collect()
        except _OthersWorkError:
            _log.debug("a collection of %s was skipped: others work", self._home.pool_path)
            self._done = done._replace(skipped=done.skipped + 1)
        except StoppedError:
            pass
        except Exception as error:  # noqa: BLE001 - the next round may do better
            if self._home.is_open:
                _log.warning("a collection of %s failed: %s", self._home.pool_path, error)
                self._done = done._replace(rounds=done.rounds + 1, error=error)
        else:
            objects, nbytes = done.objects + went[0], done.nbytes + went[1]
            self._done = Rounds(done.rounds + 1, done.skipped, objects, nbytes, None)

    def _collect(self) -> tuple[int, int]:
        home = self._home
        group = home.group_if_there(OBJECTS)
        if group is None:
            return 0, 0
        with ExitStack() as held:
            try:
                held.enter_context(_engram.Lock(home.namespace, True, group, "w", 0.0))
            except BusyError as error:
                raise _OthersWorkError from error
            went = collected_at(
                home,
                self._older_than,
                in_hand=lambda: homes.in_hand(home.key),
                is_over=self._over.is_set,
                seen=self._seen,
            )
        return went.objects, went.nbytes


def collect(pool: Any = None, *, every: float = _EVERY, older_than: float = AGE) -> Collector:
    """Delete unreachable objects in the background, at once and then every so many seconds.

    ::

        with engram.active.collect(pool, every=60):
            ...

    An object stays if an alias leads to it, as with `gc`; if this process has it as a Python
    object, or has one that leads to it; and if it was changed in the last `older_than` seconds, or
    was not yet found unreachable that long ago. A variable of another process protects nothing,
    even if that process collects, too: give what it holds for longer an alias. If several processes
    collect in one pool, one works at a time, and the others skip their round. A round that fails is
    told to the logger `engram.active`, and the next one goes on.

    Parameters
    ----------
    pool
        The pool, or a namespace of one; by default the one in use.
    every
        How many seconds are between one round and the next.
    older_than
        How many seconds ago an object must have been changed last, and found unreachable first.
        Values that are written in place change nothing in that sense.

    Raises
    ------
    ArgumentError
        If it is a cluster or a node elsewhere, or if a time is none.
    ReadOnlyError
        If the pool was opened with mode "r".

    """
    period = _seconds("every", every)
    age = _seconds("older_than", older_than, zero=True)
    home = None if using.cluster_of(pool) is not None else using.home(pool)
    if home is None or home.is_far:
        raise ArgumentError(
            f"{'the cluster in use' if pool is None else repr(pool)} is not a pool of this "
            "process: collect on each node, in a process that has the node's pool open"
        )
    if not home.namespace.writable:
        raise ReadOnlyError(
            f'the pool {home.pool_path} is open read-only: open it with mode "r+" to collect'
        )
    return Collector(pool, home, period, age)


def _seconds(what: str, value: Any, *, zero: bool = False) -> float:
    """Give a time in seconds."""
    number = float(value) if isinstance(value, Real) else math.nan
    if not math.isfinite(number) or number < 0 or (number == 0 and not zero):
        least = "from 0 on" if zero else "greater than 0"
        raise ArgumentError(f"{what} {value!r} is no time: give a number of seconds {least}")
    return number


_collectors: WeakSet[Collector] = WeakSet()


def _at_exit() -> None:
    """Let no thread be in the midst of a round while the interpreter ends."""
    mine = [each for each in _collectors if each.is_running]
    for each in mine:
        each._over.set()
    for each in mine:
        each.wait(_PATIENCE)


atexit.register(_at_exit)
