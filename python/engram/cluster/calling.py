"""Calls of methods on other nodes: begun once, and asked for until they have ended.

A call has a number that its caller chooses. The node begins a call of a number once, however often
it is sent, and answers soon: with what the call gave, or that it goes on. So a connection that
breaks off loses nothing: the call is asked for again, by its number. Only where the process that
ran it is gone does nobody know the number. Then a call that changes nothing is begun anew, and of
any other its caller is told that it may have run.

A method may call others, on nodes whose workers all wait for such calls. So a call says from how
many others it comes, its *depth*, and a node has workers of its own for each depth: a call waits
for workers that wait for deeper calls alone, and the deepest wait for none.
"""

import pickle
import threading
import time
import uuid
from collections.abc import Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import contextmanager, suppress
from typing import TYPE_CHECKING, Any, Final, NamedTuple

import numpy as np

from engram import telemetry
from engram.active.errors import MethodError, WorkerDiedError
from engram.active.workers.call import RemoteTraceback
from engram.active.workers.wire import Thrown
from engram.errors import ArgumentError, CoordinatorError, EngramError, NodeAwayError

if TYPE_CHECKING:
    from engram.cluster.cluster import Cluster

GAVE, FAILED, MOVED = "gave", "failed", "moved"
"""How a call ends: with a result, an exception, or with where the object has moved."""
OF_OBJECTS: Final = ("call", "get", "set", "delete")
"""What is done with an object, by a worker: a method may run."""
DEEPEST: Final = 32
"""From so many others a call may come."""

_log = telemetry.Log("engram.cluster")

_BETWEEN_S: Final = (0.0, 0.005, 0.02, 0.1)
"""How long a call is left alone that goes on, each time longer; the node waits, too."""
_AT_ONCE: Final = 64
_FEW: Final = 64
_PLAIN: Final = frozenset({type(None), bool, int, float, complex, str, bytes})
_LARGE: Final = 1 << 20
"""Results of so many bytes are given up at the node as soon as they are here."""


class Ask(NamedTuple):
    """What a node is asked to do."""

    verb: str
    """What is done: "call" a method, "get", "set" or "delete" a field; or a verb of the home."""
    namespace: str
    gid: int
    name: str
    """The method or field."""
    content: bytes
    """The arguments, pickled: whoever runs the call takes them out."""
    ended: list[str] = []  # noqa: RUF012 - never changed in place
    """Numbers of calls whose ends have been heard of: the node may forget them."""
    depth: int = 0
    """From how many calls it comes, each of which waits for the next."""
    trace: str = ""
    """The span that it comes from, as `telemetry.here` gives it."""


_depths: Final = [0]
"""The depth of calls that this process sends; above it, what it is when a call here has ended."""


@contextmanager
def running(ask: Ask) -> Iterator[None]:
    """Be a worker that runs a call: what this process calls meanwhile comes from that call."""
    _depths.append(ask.depth + 1)
    try:
        yield
    finally:
        _depths.pop()


def packed(content: Any, what: str) -> bytes:
    """Pickle arguments or a result; classes of a script travel by value.

    Raises
    ------
    ArgumentError
        If they do not pickle.

    """
    try:
        if _is_plain(content):
            return pickle.dumps(content, protocol=5)
        try:
            import cloudpickle  # noqa: PLC0415 - Dask brings it; without it a script's do not go

            return bytes(cloudpickle.dumps(content, protocol=5))
        except ImportError:
            return pickle.dumps(content, protocol=5)
    except Exception as error:
        raise ArgumentError(f"{what} cannot be sent to another node: {error}") from error


def _is_plain(content: Any) -> bool:
    """Tell whether nothing of a program's own is in it, so that any pickle will do."""
    kind = type(content)
    if kind in {tuple, list}:
        return len(content) <= _FEW and all(map(_is_plain, content))
    if kind is dict:
        return len(content) <= _FEW and all(map(_is_plain, content.values()))
    if kind is np.ndarray:
        return not content.dtype.hasobject
    return kind in _PLAIN


class Caller:
    """What sends calls to the nodes of a cluster."""

    def __init__(self, cluster: "Cluster") -> None:
        self._cluster = cluster
        self._threads: ThreadPoolExecutor | None = None
        self._lock = threading.Lock()
        self._ended: dict[str, list[str]] = {}

    def call(self, node: str, ask: Ask, label: str, *, again: bool) -> tuple[str, Any]:
        """Have a node do something; once at most, unless it may be done `again`.

        Gives how it ended, and with what.

        Raises
        ------
        NodeAwayError
            If the node is away; its message says whether the call may have run.
        WorkerDiedError
            If the process that ran it died.
        RecursionError
            If it comes from too many other calls.

        """
        depth = _depths[-1]
        if depth > DEEPEST and ask.verb in OF_OBJECTS:
            raise RecursionError(
                f"{label} comes from {depth} calls of nodes, each of which waits for the next, and "
                f"{DEEPEST} is the most: have methods give what is to be called next, and call it "
                "when they have ended"
            )
        heard, number = self._heard(node), uuid.uuid4().hex
        body = pickle.dumps(tuple(ask._replace(ended=heard, depth=depth)), protocol=5)
        answer = self._answer(node, number, body, label, again=again)
        if len(answer) > _LARGE:
            with suppress(EngramError):
                self._cluster._native.call(node, "DELETE", number, b"")
        else:
            with self._lock:
                self._ended.setdefault(node, []).append(number)
        how, content = pickle.loads(answer)  # noqa: S301 - of a member, as its certificate proves
        return how, content

    def _heard(self, node: str) -> list[str]:
        """Give the numbers of calls to a node whose ends have been heard of."""
        with self._lock:
            return self._ended.pop(node, [])

    def _answer(self, node: str, number: str, body: bytes, label: str, *, again: bool) -> bytes:
        natives, deadline = self._cluster._native, self._cluster.deadline
        until = time.monotonic() + deadline
        method, may_run, asked = "POST", False, 0
        while True:
            try:
                said = natives.call(node, method, number, body if method == "POST" else b"")
            except (NodeAwayError, CoordinatorError) as error:
                # Away, as the map has it; or nobody says where it is, as where all was stopped.
                _log.warning("%s: node %s is away: %s", label, node, error)
                raise NodeAwayError(f"{label}: {error}; {_whether(may_run)}") from None
            if isinstance(said, bytes):
                return said
            if isinstance(said, tuple):  # it was sent, and nobody knows whether it came
                (said,), method, may_run = said, "GET", True
                _log.debug("%s: node %s is asked again: %s", label, node, said)
            if isinstance(said, str):
                if time.monotonic() > until:
                    raise NodeAwayError(f"{label}: {said}; {_whether(may_run)}")
                time.sleep(_BETWEEN_S[-1])
            elif said:
                method, may_run = "GET", True
                until = time.monotonic() + deadline
                time.sleep(_BETWEEN_S[min(asked, len(_BETWEEN_S) - 1)])
                asked += 1
            elif again:
                method = "POST"
                _log.warning("%s: node %s has lost the call, which is begun again", label, node)
            else:
                raise WorkerDiedError(
                    f"{label}: the process of its node that took the call is gone, and with it "
                    "what is known of it: whether it has committed is in the objects"
                )

    def submit(self, work: Any, *args: Any) -> "Future[Any]":
        """Do something in a thread: a call that others need not wait for."""
        if not self._cluster.is_open:
            raise ArgumentError(f"the cluster {self._cluster.name!r} is closed: open it again")
        if self._threads is None:
            self._threads = ThreadPoolExecutor(_AT_ONCE, thread_name_prefix="engram-call")
        return self._threads.submit(work, *args)

    def close(self) -> None:
        """Take no more calls; what was sent goes on at its node."""
        if self._threads is not None:
            self._threads.shutdown(wait=False, cancel_futures=True)


def _whether(may_run: bool) -> str:
    return "the call may have run" if may_run else "the call has not run"


def raised(content: tuple[str, bytes | None], label: str) -> BaseException:
    """Give the exception with which a call has ended elsewhere."""
    text, whole = content
    found: Any = None
    if whole is not None:
        with suppress(Exception):
            found = pickle.loads(whole)  # noqa: S301 - as above
            found = found.again() if isinstance(found, Thrown) else found
    failure: BaseException = MethodError(f"{label} failed on another node:\n{text}")
    if isinstance(found, BaseException):
        failure = found
    failure.__cause__ = RemoteTraceback(text)
    return failure
