"""The workers of an executor, and the calls that wait for one.

Each worker has a *seat*: a thread here that reads its answers, hands it the next call, and puts
another worker in its place if it dies. A call goes from the submitting thread straight to a worker
that is idle; if none is, it waits in the queue, and a seat takes it from there.

Invariants. Under the crew's lock a seat is idle, or has a call, or has no worker yet; a call waits
only while no seat is idle. A worker has one call at a time. A call that a worker may have begun is
never given to another one: its future gets `WorkerDiedError`.
"""

import atexit
import contextlib
import os
import threading
from collections import deque
from weakref import WeakSet

from engram import telemetry
from engram.active.errors import WorkerDiedError
from engram.active.workers.call import Call
from engram.active.workers.seat import Seat
from engram.active.workers.telling import Teller
from engram.active.workers.wire import kept
from engram.errors import ArgumentError

_log = telemetry.Log("engram.active.workers")


class Crew:
    """What the threads share; it outlives the executor until the last worker has ended."""

    def __init__(self, count: int, cpus: frozenset[int] | None = None) -> None:
        self.cpus = cpus
        self.teller = Teller()
        self.lock = threading.Lock()
        self.queue: deque[Call] = deque()
        self.idle: deque[Seat] = deque()
        self.closing = False
        self.orphan = False
        self.broken: str | None = None
        self.cwd = os.getcwd()  # noqa: PTH109 - as text, for a process
        self.seats = [Seat(self, number) for number in range(count)]
        _crews.add(self)
        for seat in self.seats:
            seat.start()

    # From submitters

    def submit(self, call: Call) -> None:
        """Hand a call to an idle worker, or let it wait."""
        seat = None
        try:
            with self.lock:
                self.check()
                if self.idle:
                    seat = self.idle.pop()
                    call.future.set_running_or_notify_cancel()
                    seat.call = call
                else:
                    waiting = call.packed
                    call.packed = waiting._replace(buffers=kept(waiting.buffers))
                    self.queue.append(call)
            if seat is not None:
                seat.send(call)
            self._look()
        except BaseException:  # Ctrl-C in the midst of it: who knows how much was sent
            if seat is not None:
                seat.kill()
            raise

    def _look(self) -> None:
        """Have all seats look at what comes, where more than one has a call."""
        busy = [seat for seat in self.seats if seat.call is not None]
        for seat in busy if len(busy) > 1 else ():
            if not seat.looks():
                seat.look()

    def check(self) -> None:
        """Refuse calls if there is nobody to run them."""
        if self.orphan:
            raise ArgumentError(
                "this executor was made before a fork, and its workers are the parent's: make one "
                "in this process"
            )
        if self.closing:
            raise ArgumentError("the executor is shut down: make another one")
        if self.broken is not None:
            raise WorkerDiedError(self.broken)

    # From seats

    def next_for(self, seat: "Seat") -> Call | None:
        """Give a seat the next call; it is idle if there is none."""
        with self.lock:
            while self.queue:
                call = self.queue.popleft()
                if call.tries or call.future.set_running_or_notify_cancel():
                    seat.call = call
                    return call
            seat.call = None
            self.idle.append(seat)
        if self.closing and self.no_longer_idle(seat):
            seat.hang_up()
        return None

    def no_longer_idle(self, seat: "Seat") -> bool:
        """Take a seat out of the idle ones; tell whether it was one."""
        with contextlib.suppress(ValueError):
            self.idle.remove(seat)
            return True
        return False

    def again(self, call: Call) -> None:
        """Let a call wait that no worker has read."""
        with self.lock:
            if not self.idle:
                self.queue.appendleft(call)
                return
            seat = self.idle.pop()
            seat.call = call
        seat.send(call)

    def give_up(self, seat: "Seat", why: str) -> None:
        """Go on without a seat whose workers do not start; without any, refuse all calls."""
        with self.lock:
            self.seats = [other for other in self.seats if other is not seat]
            _log.warning("a worker cannot be started, %d are left: %s", len(self.seats), why)
            if self.seats:
                return
            self.broken = f"no worker could be started: {why}"
            left, self.queue = list(self.queue), deque()
        for call in left:
            if call.tries or call.future.set_running_or_notify_cancel():
                call.future.set_exception(WorkerDiedError(self.broken))

    # The end

    def is_over(self) -> bool:
        """Tell whether nothing is left to do."""
        return self.closing and not self.queue

    def end(self) -> None:
        """Let workers end when nothing is left to do; takes no lock, so that a finalizer may."""
        self.closing = True
        if self.orphan:
            return
        while self.idle:
            with contextlib.suppress(IndexError):
                self.idle.pop().hang_up()
        if not self.queue:
            for seat in list(self.seats):
                seat.kill_if_starting()

    def cancel(self) -> None:
        """Cancel all calls that wait, but for those that a worker was given and has not read."""
        if self.orphan:
            return
        with self.lock:
            left = [call for call in self.queue if not call.tries]
            self.queue = deque(call for call in self.queue if call.tries)
        for call in left:
            if call.future.cancel():
                call.future.set_running_or_notify_cancel()  # for those who wait for it

    def kill(self) -> None:
        """End all workers at once."""
        if self.orphan:
            return
        for seat in list(self.seats):
            seat.kill()

    def join(self) -> None:
        """Wait until all workers have ended."""
        if self.orphan:
            return
        for seat in list(self.seats):
            if seat is not threading.current_thread():
                seat.join()

    def forget(self) -> None:
        """In a forked child: have nothing to do with the parent's workers."""
        self.orphan = True
        for seat in self.seats:
            seat.forget()


_crews: WeakSet[Crew] = WeakSet()


def _at_exit() -> None:
    for crew in list(_crews):
        crew.end()
    for crew in list(_crews):
        crew.join()


def _in_forked_child() -> None:
    for crew in list(_crews):
        crew.forget()


atexit.register(_at_exit)
os.register_at_fork(after_in_child=_in_forked_child)
