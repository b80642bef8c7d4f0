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
import pickle
import signal
import subprocess
import sys
import threading
from collections import deque
from concurrent.futures import Future
from typing import TYPE_CHECKING, Any, Final
from weakref import WeakSet

from engram.active.errors import MethodError, WorkerDiedError
from engram.active.telling import Packed, Teller
from engram.active.wire import FAILURE, RESULT, UNFIT, Message, Thrown, Wire, kept, pair
from engram.errors import ArgumentError

if TYPE_CHECKING:
    from engram.active.method import BoundMethod

_MOST_FAILURES: Final = 3
"""How often in a row a worker may end before it is ready."""

_MOST_TRIES: Final = 2
"""How many workers a call is given to that die before they have read it."""


class Call:
    """A call, from submission to its result."""

    __slots__ = ("future", "method", "packed", "tries")

    def __init__(self, method: "BoundMethod[Any, Any]", packed: Packed) -> None:
        self.method = method
        self.packed = packed
        self.future: Future[Any] = Future()
        self.tries = 0

    @property
    def label(self) -> str:
        """What messages call it."""
        obj = self.method.__self__
        return f"{type(obj).__qualname__}.{self.method._method.function.__name__} of {obj!r}"


class RemoteTraceback(Exception):  # noqa: N818 - it is no error, but where one was
    """Where in a worker a method failed: the cause of the exception that its future has."""

    def __init__(self, text: str) -> None:
        super().__init__(text)
        self._text = text

    def __str__(self) -> str:
        return f'\n"""\n{self._text}"""'


class Crew:
    """What the threads share; it outlives the executor until the last worker has ended."""

    def __init__(self, count: int) -> None:
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
                    seat.call, seat.sent = call, False
                else:
                    waiting = call.packed
                    call.packed = waiting._replace(buffers=kept(waiting.buffers))
                    self.queue.append(call)
            if seat is not None:
                seat.send(call)
        except BaseException:  # Ctrl-C in the midst of it: who knows how much was sent
            if seat is not None:
                seat.kill()
            raise

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
                    seat.call, seat.sent = call, False
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
            seat.call, seat.sent = call, False
        seat.send(call)

    def give_up(self, seat: "Seat", why: str) -> None:
        """Go on without a seat whose workers do not start; without any, refuse all calls."""
        with self.lock:
            self.seats = [other for other in self.seats if other is not seat]
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
            if seat.wire is not None:
                seat.wire.close()


class Seat(threading.Thread):
    """A worker's place, and the thread that reads its answers."""

    def __init__(self, crew: Crew, number: int) -> None:
        super().__init__(name=f"engram worker {number}", daemon=True)
        self._crew = crew
        self._sending = threading.Lock()
        self._told = 0
        self._ready = False
        self.process: subprocess.Popen[bytes] | None = None
        self.wire: Wire | None = None
        self.call: Call | None = None
        self.sent = False

    def run(self) -> None:
        """Have a worker, until there is nothing left to do."""
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
        hello, self._told = self._crew.teller.hello()
        ours, theirs = pair()
        self.wire = Wire(ours)
        path = os.pathsep.join(entry for entry in sys.path if entry)
        with theirs:
            self.process = subprocess.Popen(  # noqa: S603 - our own module, no shell
                [sys.executable, "-P", "-m", "engram.active.worker", str(theirs.fileno())],
                pass_fds=[theirs.fileno()],
                stdin=subprocess.DEVNULL,
                env=os.environ | {"PYTHONPATH": path},
                cwd=self._crew.cwd,
                start_new_session=True,  # Ctrl-C is not for it
            )
        self.wire.send(hello)
        self.wire.receive()
        self._ready = True

    def _converse(self) -> None:
        """Hand out calls, and read their answers, until the worker ends."""
        wire = self.wire
        assert wire is not None  # noqa: S101 - there is one from `_begin` to `_end`
        following = self._crew.next_for(self)
        while True:
            if following is not None:
                self.send(following)
            del following
            answer = wire.receive()
            done = self.call
            following = self._crew.next_for(self)
            if done is not None:
                if following is not None:
                    self.send(following)
                    following = None
                _settle(done, answer)
            del done, answer

    def send(self, call: Call) -> None:
        """Send a call to the worker, unless it has died since."""
        with self._sending:
            if self.call is not call or self.wire is None:
                return
            news, told = self._crew.teller.since(self._told)
            try:
                self.wire.send(call.packed.message(news))
            except OSError:  # it has died: the thread that reads sees it, too
                return
            self._told, self.sent = told, True

    def _end(self) -> str:
        """Clear away a worker that has ended; tell how it did."""
        crew = self._crew
        with crew.lock:
            crew.no_longer_idle(self)
        with self._sending:
            call, self.call = self.call, None
            wire, self.wire = self.wire, None
        how = "" if self.process is None else _death(self.process)
        if wire is not None:
            wire.close()
        if call is None:
            return how
        if not self.sent and call.tries < _MOST_TRIES:
            call.tries += 1
            crew.again(call)
        else:
            call.future.set_exception(
                WorkerDiedError(
                    f"the worker that ran {call.label} {how}: what the method had not committed "
                    "never happened; another worker takes its place"
                )
            )
        return how

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
    return f"(pid {process.pid}) was killed by {name}"


def _settle(call: Call, answer: Message) -> None:
    """Put an answer into a call's future."""
    try:
        content = pickle.loads(answer.body, buffers=answer.buffers)  # noqa: S301 - our child's
        if answer.kind == RESULT:
            call.future.set_result(content)
            return
        failure = _failure(call, answer.kind, content)
    except Exception as error:  # noqa: BLE001 - whatever unpickling does
        failure = MethodError(f"the result of {call.label} cannot be had here: {error}")
        failure.__cause__ = error
    call.future.set_exception(failure)


def _failure(call: Call, kind: int, content: Any) -> BaseException:
    if kind == UNFIT:
        return MethodError(
            f"{call.label} was run and committed, but its result cannot be sent: {content}"
        )
    assert kind == FAILURE  # noqa: S101 - there is no other one
    text, whole = content
    failure = None
    if whole is not None:
        with contextlib.suppress(Exception):
            failure = pickle.loads(whole)  # noqa: S301 - our child's
            failure = failure.again() if isinstance(failure, Thrown) else failure
    if not isinstance(failure, BaseException):
        failure = MethodError(f"{call.label} failed in a worker:\n{text}")
    failure.__cause__ = RemoteTraceback(text)
    return failure


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
