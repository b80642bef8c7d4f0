"""A call of a method in a worker: what is sent, the future of its result, and how that gets it."""

import contextlib
import pickle
import threading
import time
from concurrent.futures import Future
from typing import TYPE_CHECKING, Any, Final

from engram.active.errors import MethodError
from engram.active.workers.telling import Packed
from engram.active.workers.wire import FAILURE, RESULT, UNFIT, Message, Thrown

if TYPE_CHECKING:
    from engram.active.method import BoundMethod
    from engram.active.workers.seat import Seat

SHORT: Final = 0.001
"""Seconds that a call takes at most that is short."""


class Answered(Future[Any]):
    """The future of a call."""

    seat: "Seat | None" = None
    """The seat of the worker that was given the call."""

    def result(self, timeout: float | None = None) -> Any:
        """Give the result of the call; wait for it if need be."""
        return super().result(self._attend(timeout))

    def exception(self, timeout: float | None = None) -> BaseException | None:
        """Give the exception that the call has raised, or None; wait for it if need be."""
        return super().exception(self._attend(timeout))

    def _attend(self, timeout: float | None) -> float | None:
        """Read the answer oneself if need be; give what is left of the time."""
        if self.done():
            return timeout
        begin = time.monotonic()
        reader: Any = threading.current_thread()
        seat = self.seat
        if hasattr(reader, "read_until"):  # in a callback
            reader.read_until(self, timeout)
        elif seat is None:
            return timeout
        elif self._done_callbacks:  # type: ignore[attr-defined]  # they run in the seat's thread
            seat.look()
        elif timeout is None or timeout > SHORT:
            seat.attend(self)
        return None if timeout is None else max(0.0, timeout - (time.monotonic() - begin))


class Call:
    """A call, from submission to its result."""

    __slots__ = ("_label", "future", "method", "packed", "sent", "tries")

    def __init__(
        self, method: "BoundMethod[Any, Any] | None", packed: Packed, label: str = ""
    ) -> None:
        self.method = method
        self.packed = packed
        self._label = label
        self.future = Answered()
        self.tries = 0
        self.sent = False

    @property
    def label(self) -> str:
        """What messages call it."""
        if self.method is None:
            return self._label
        obj = self.method.__self__
        return f"{type(obj).__qualname__}.{self.method._method.function.__name__} of {obj!r}"


class RemoteTraceback(Exception):  # noqa: N818 - it is no error, but where one was
    """Where in a worker a method failed: the cause of the exception that its future has."""

    def __init__(self, text: str) -> None:
        super().__init__(text)
        self._text = text

    def __str__(self) -> str:
        return f'\n"""\n{self._text}"""'


def settle(call: Call, answer: Message) -> None:
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
