"""A worker's place in an executor, and the thread that reads its answers.

To wake a thread takes longer than a short call. So a thread that waits for the result of a call to
a worker whose calls are short *attends* to it: for a moment that thread reads the answer itself,
awake, and does with it what the seat would do. The seat's own thread leaves the socket alone for a
while after that (but for the worker's death), so that it is not woken for each answer that others
have read.

Invariants. Only the thread that has the `_reading` lock reads from the worker; the seat's own
thread waits for it, or for something to read, whenever nobody attends. A call that a worker may
have begun is never given to another one: its future gets `WorkerDiedError`.
"""

import contextlib
import math
import os
import select
import signal
import subprocess
import sys
import threading
import time
from concurrent.futures import InvalidStateError
from typing import TYPE_CHECKING, Final

from engram import _stack, telemetry
from engram.active.errors import WorkerDiedError
from engram.active.workers.call import SHORT, Answered, Call, settle
from engram.active.workers.wire import Message, Wire, pair

if TYPE_CHECKING:
    from engram.active.workers.crew import Crew

_log = telemetry.Log("engram.active.workers")

_MOST_FAILURES: Final = 3
"""How often in a row a worker may end before it is ready."""

_MOST_TRIES: Final = 2
"""How many workers a call is given to that die before they have read it."""


_AWAKE: Final = 0.0002
"""Seconds for which a thread that waits for a short call attends to it."""

_GLANCE_MS: Final = 5
"""Milliseconds after which a thread that reads for others looks whether its own call is done."""

_LET_ALONE: Final = 0.002
"""Seconds after that in which the seat's own thread does not look at what comes."""


class Seat(threading.Thread):
    """A worker's place, and the thread that reads its answers."""

    def __init__(self, crew: "Crew", number: int) -> None:
        super().__init__(name=f"engram worker {number}", daemon=True)
        self._crew = crew
        self._sending = threading.Lock()
        self._reading = threading.Lock()
        self._ringing = threading.Lock()
        self._bell: int | None = os.eventfd(0, os.EFD_CLOEXEC | os.EFD_NONBLOCK)
        self._let_alone = 0.0
        self._given = 0.0
        self._brisk = True
        self._torn = False
        self._told = 0
        self._ready = False
        self.process: subprocess.Popen[bytes] | None = None
        self.wire: Wire | None = None
        self.call: Call | None = None

    def run(self) -> None:
        """Have a worker, until there is nothing left to do."""
        try:
            self._run()
        finally:
            with self._ringing:
                bell, self._bell = self._bell, None
                if bell is not None:
                    os.close(bell)

    def forget(self) -> None:
        """In a forked child, where the thread is not: close what the child has of it."""
        bell, self._bell = self._bell, None
        if bell is not None:
            os.close(bell)
        if self.wire is not None:
            self.wire.close()

    def _run(self) -> None:
        failures = 0
        while not self._crew.is_over():
            self._ready = False
            why = "it did not say why"
            try:
                self._begin()
                self._converse()
            except EOFError:
                pass
            except Exception as error:  # noqa: BLE001 - calls must not wait for a thread that died
                why = f"{type(error).__name__}: {error}"
            why = self._end() or why
            failures = 0 if self._ready else failures + 1
            if failures == _MOST_FAILURES:
                self._crew.give_up(self, why)
                return

    def _begin(self) -> None:
        """Start a worker; wait until it is ready."""
        self.process = None
        self._torn = False
        hello, self._told = self._crew.teller.hello()
        ours, theirs = pair()
        self.wire = Wire(ours)
        path = os.pathsep.join(entry for entry in sys.path if entry)
        with theirs, _stack.for_child():
            self.process = subprocess.Popen(  # noqa: S603 - our own module, no shell
                [sys.executable, "-P", "-m", "engram.active.workers.worker", str(theirs.fileno())],
                pass_fds=[theirs.fileno()],
                stdin=subprocess.DEVNULL,
                env=os.environ | {"PYTHONPATH": path},
                cwd=self._crew.cwd,
                start_new_session=True,  # Ctrl-C is not for it
            )
        if self._crew.cpus is not None:
            with contextlib.suppress(ProcessLookupError):  # it has died: what reads says so
                os.sched_setaffinity(self.process.pid, self._crew.cpus)
        self.wire.send(hello)
        self.wire.receive()
        self._ready = True
        _log.debug("worker %d begun", self.process.pid)

    def _converse(self) -> None:
        """Hand out calls, and read their answers, until the worker ends."""
        wire = self.wire
        assert wire is not None  # noqa: S101 - there is one from `_begin` to `_end`
        self._give(self._crew.next_for(self))
        while True:
            self._wait(wire)
            taken = self._next(wire)
            if taken is not None:
                settle(*taken)
            del taken

    def _wait(self, wire: Wire) -> None:
        """Wait until there is something to read, but not while others attend to that."""
        waiting = select.poll()
        waiting.register(wire.fileno(), 0)  # it tells of the worker's death all the same
        if self._bell is not None:
            waiting.register(self._bell, select.POLLIN)
        while (left := self._let_alone - time.monotonic()) > 0:
            for ready, _ in waiting.poll(left * 1000):
                if ready != self._bell:
                    return
                os.eventfd_read(ready)
        waiting = select.poll()
        waiting.register(wire.fileno(), select.POLLIN)
        waiting.poll()

    def _next(self, wire: Wire) -> "tuple[Call, Message] | None":
        """Take the next answer, if one is there that nobody else has read."""
        with self._reading:
            if self._torn:
                raise EOFError
            return self._take(wire) if wire.comes() else None

    def _take(self, wire: Wire) -> "tuple[Call, Message] | None":
        """Read an answer, and give the worker its next call; give what is to be settled.

        The caller has the `_reading` lock.
        """
        answer, done = wire.receive(), self.call
        self._brisk = time.monotonic() < self._given + SHORT
        self._give(self._crew.next_for(self))
        return None if done is None else (done, answer)

    def attend(self, future: Answered) -> None:
        """Read the answer to a call, if it comes soon; for the thread that waits for it."""
        if not self._brisk:
            return
        taken = None
        try:
            taken = self._take_for(future)
            if taken is not None:
                settle(*taken)
        except (EOFError, OSError):  # it has died: the seat's own thread sees to it
            pass
        except BaseException:  # Ctrl-C in the midst of it: who knows how much was read
            if self._torn or taken is not None:
                self._abandon(future)
            raise
        finally:
            if taken is None or self.call is not None:
                self.look()

    def _take_for(self, future: Answered) -> "tuple[Call, Message] | None":
        """Take the answer to a call, if nobody else reads and it comes soon."""
        reads = False
        try:
            reads = self._reading.acquire(blocking=False)
            call, wire = self.call, self.wire
            if not reads or call is None or call.future is not future or wire is None:
                return None
            self._brisk = self._torn = wire.comes(_AWAKE)
            if not self._torn:
                return None
            taken = self._take(wire)
            self._torn = False
            self._let_alone = time.monotonic() + _LET_ALONE
            return taken
        finally:
            if reads:
                self._reading.release()

    def _abandon(self, future: Answered) -> None:
        """End what was interrupted; the worker, too, if nobody knows how much of it was read."""
        if self._torn:
            with self._crew.lock:
                self._crew.no_longer_idle(self)
            self.kill()
        lost = WorkerDiedError(
            "the answer of the call was lost, as who waited for it was interrupted: whether it has "
            "committed is in the objects"
        )
        with contextlib.suppress(InvalidStateError):
            future.set_exception(lost)

    def read_until(self, future: Answered, timeout: float | None) -> None:
        """Read answers until a call is done; for another call's callback, which runs here."""
        until = math.inf if timeout is None else time.monotonic() + timeout
        waiting, wire = select.poll(), self.wire
        if wire is None:
            return
        waiting.register(wire.fileno(), select.POLLIN)
        try:
            while not future.done() and time.monotonic() < until:
                if not waiting.poll(_GLANCE_MS):
                    continue
                taken = self._next(wire)
                if taken is not None:
                    settle(*taken)
        except (EOFError, OSError):
            call = self.call
            if call is not None:
                self._lose(call, "has ended")
            if not future.done():
                raise WorkerDiedError(
                    "the worker has died whose answers this callback's thread reads: what it waits "
                    "for may be done yet"
                ) from None

    def look(self) -> None:
        """Have the seat's own thread look at what comes."""
        self._let_alone = 0.0
        with self._ringing:
            if self._bell is not None:
                os.eventfd_write(self._bell, 1)

    def looks(self) -> bool:
        """Tell whether the seat's own thread looks at what comes."""
        return self._let_alone < time.monotonic()

    def _give(self, call: Call | None) -> None:
        if call is not None:
            self.send(call)

    def send(self, call: Call) -> None:
        """Send a call to the worker, unless it has died since."""
        with self._sending:
            if self.call is not call or self.wire is None or call.sent:
                return
            call.future.seat = self
            self._given = time.monotonic()
            news, told = self._crew.teller.since(self._told)
            try:
                self.wire.send(call.packed.message(news))
            except OSError:  # it has died: the thread that reads sees it, too
                return
            self._told, call.sent = told, True

    def _end(self) -> str:
        """Clear away a worker that has ended; tell how it did."""
        crew = self._crew
        with crew.lock:
            crew.no_longer_idle(self)
        with self._reading, self._sending:
            call, self.call = self.call, None
            wire, self.wire = self.wire, None
        how = "" if self.process is None else _death(self.process)
        if wire is not None:
            wire.close()
        if call is None:
            return how
        if not call.sent and call.tries < _MOST_TRIES:
            call.tries += 1
            _log.warning("a worker %s before it read %s: another one does", how, call.label)
            crew.again(call)
        else:
            self._lose(call, how)
        return how

    def _lose(self, call: Call, how: str) -> None:
        died = WorkerDiedError(
            f"the worker that ran {call.label} {how}: what the method had not committed never "
            "happened; another worker takes its place"
        )
        _log.warning("%s", died)
        with contextlib.suppress(InvalidStateError):  # the attending thread was interrupted
            call.future.set_exception(died)

    def hang_up(self) -> None:
        """Tell the worker that nothing more comes."""
        wire = self.wire
        if wire is not None:
            wire.no_more()

    def kill(self) -> None:
        """End the worker at once."""
        process = self.process
        if process is not None and process.returncode is None:
            process.kill()

    def kill_if_starting(self) -> None:
        """End the worker if it has nothing to lose."""
        if not self._ready:
            self.kill()


def _death(process: "subprocess.Popen[bytes]") -> str:
    """Wait for a worker that has hung up; tell how it ended."""
    try:
        code = process.wait(5)
    except subprocess.TimeoutExpired:  # it has closed its socket, and lives
        process.kill()
        code = process.wait()
    if code >= 0:
        return f"(pid {process.pid}) ended with exit code {code}"
    try:
        name = signal.Signals(-code).name
    except ValueError:
        name = f"signal {-code}"
    scarcity = _stack.scarcity()
    return f"(pid {process.pid}) was killed by {name}" + (f"; {scarcity}" if scarcity else "")
