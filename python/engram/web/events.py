"""Events: what commits change, told to every page that listens, as it happens.

**Protocol.** While a page listens, one thread for each pool waits in the pool's own watch, which a
commit of any process wakes. However many pages there are, the pool has one watch. After each look
the thread rests for `REST_S`, and no writer has to wake it meanwhile: so a writer pays for ten
wake-ups a second at most. What makes no new object (an attribute, a deletion, a write in place) is
seen by the pool's count of commits, at the end of each wait. Pages are told from the event loop.
Each has a short queue; where one does not keep up, it is told that more has changed than it hears.
A cluster is looked at, as `looks` says.

A watch that fails begins anew after a second, as long as a page listens. None looks at a pool once
the hub has ended.
"""

from __future__ import annotations

import asyncio
import contextlib
import json
import threading
import time
from typing import TYPE_CHECKING, Any, NamedTuple

from engram import telemetry
from engram.errors import EngramError, PoolGoneError
from engram.web.looks import Looks
from engram.web.members import paths_of
from engram.web.refusal import RefusedError
from engram.web.served import ServedCluster, ServedPool

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Iterable

    from engram.web.served import Served

CLIENTS_MOST = 32
REST_S = 0.1
_WAIT_S = 0.1
_SPACE_S = 0.5
_AGAIN_S = 1.0
"""So long after a failure a watch begins anew."""
_BEGUN_S = 5.0
"""So long a page waits for a watch to begin."""
_END_S = 5.0
"""So long a watch is waited for at the end."""
HEARTBEAT_S = 15.0
_QUEUE = 64
_NAMED = 100
_TAKEN = 4096
_ROUNDS = 64
"""So many times so many objects are taken of a watch before the pages are told."""

_log = telemetry.Log("engram.web")


class Event:
    """One event: its kind, the pool's number, and what is said."""

    __slots__ = ("kind", "number", "said")

    def __init__(self, kind: str, number: str, said: dict[str, Any]) -> None:
        self.kind, self.number, self.said = kind, number, said

    def __bytes__(self) -> bytes:
        data = json.dumps({"pool": self.number, **self.said}, separators=(",", ":"))
        return f"event: {self.kind}\ndata: {data}\n\n".encode("ascii")


class Listener:
    """A page that listens."""

    def __init__(self, numbers: frozenset[str]) -> None:
        self.numbers = numbers
        self.queue: asyncio.Queue[Event | None] = asyncio.Queue(_QUEUE)
        self._missed: set[str] = set()

    def offer(self, event: Event) -> None:
        """Give it an event; where it does not keep up, note that it has missed some."""
        if event.number not in self.numbers:
            return
        if event.kind != "gone" and self.queue.qsize() >= _QUEUE - 1:
            self._missed.add(event.number)
            return
        with contextlib.suppress(asyncio.QueueFull):
            self.queue.put_nowait(event)

    def missed(self) -> list[Event]:
        """Return what is told in place of the events that it has missed."""
        found = [Event("change", each, {"names": [], "more": 1}) for each in sorted(self._missed)]
        self._missed.clear()
        return found

    def end(self) -> None:
        """End it."""
        while True:
            try:
                self.queue.put_nowait(None)
            except asyncio.QueueFull:
                self.queue.get_nowait()
            else:
                return


class _Watch(NamedTuple):
    """A thread that watches, and what says that it has begun to."""

    thread: threading.Thread
    begun: threading.Event


class Hub:
    """All pages that listen, and the threads that watch for them."""

    def __init__(self, served: Iterable[Served]) -> None:
        self._served = {each.number: each for each in served}
        self._clients: set[Listener] = set()
        self._watched: dict[str, _Watch] = {}
        """What is watched, by its number."""
        self._lock = threading.Lock()
        self._loop: asyncio.AbstractEventLoop | None = None
        self._over = threading.Event()

    def listen(self, numbers: frozenset[str]) -> Listener:
        """Let a page listen to these pools; it counts from now on until it leaves.

        Raises
        ------
        RefusedError
            If too many pages listen already.

        """
        if len(self._clients) >= CLIENTS_MOST or self._over.is_set():
            raise RefusedError(
                *(503, "TooMany", f"{len(self._clients)} pages listen already"),
                "close some of them, then load this one again",
            )
        self._loop = asyncio.get_running_loop()
        client = Listener(numbers)
        self._clients.add(client)
        return client

    def leave(self, client: Listener) -> None:
        """Count a page no more."""
        self._clients.discard(client)

    async def stream(self, client: Listener) -> AsyncIterator[bytes]:
        """Give the events for a page, until it leaves."""
        yield b"retry: 2000\n\n"
        for number in sorted(client.numbers):
            # At first the watch: what a page asks for after this event, it hears changes of.
            await asyncio.to_thread(self._watch, number)
            yield bytes(await asyncio.to_thread(_first, self._served[number]))
        while True:
            try:
                event = await asyncio.wait_for(client.queue.get(), HEARTBEAT_S)
            except TimeoutError:
                yield b": still here\n\n"
                continue
            if event is None:
                return
            yield bytes(event)
            if client.queue.empty():
                for more in client.missed():
                    yield bytes(more)

    def close(self) -> None:
        """End all streams, and have the threads end."""
        with self._lock:
            self._over.set()
        for client in list(self._clients):
            client.end()

    def wait(self) -> None:
        """Wait until the threads have ended."""
        for each in list(self._watched.values()):
            each.thread.join(_END_S)

    def _is_heard(self, number: str) -> bool:
        is_over = self._over.is_set()
        return not is_over and any(number in each.numbers for each in list(self._clients))

    def _watch(self, number: str) -> None:
        """See to it that a thread watches a pool that is there, and has begun to."""
        if self._served[number].is_gone:
            return
        with self._lock:
            if self._over.is_set():
                return
            watch = self._watched.get(number)
            if watch is None:
                begun = threading.Event()
                given = (self._served[number], begun)
                thread = threading.Thread(
                    target=self._run, args=given, name="engram-web-watch", daemon=True
                )
                watch = self._watched[number] = _Watch(thread, begun)
                thread.start()
        watch.begun.wait(_BEGUN_S)

    def _tell(self, event: Event) -> None:
        """Tell all pages, from a thread."""

        def tell() -> None:
            for client in list(self._clients):
                client.offer(event)

        if self._loop is not None:
            with contextlib.suppress(RuntimeError):  # the loop has ended
                self._loop.call_soon_threadsafe(tell)

    def _run(self, served: Served, begun: threading.Event) -> None:
        """Watch as long as a page listens."""
        rest = _AGAIN_S
        try:
            if isinstance(served, ServedPool):
                self._run_pool(served, begun)
            elif isinstance(served, ServedCluster):
                self._run_cluster(served, begun)
            rest = 0.0
        except Exception as error:  # noqa: BLE001 - whatever it was, it may be over in a second
            self._failed(served, error)
        finally:
            begun.set()
            with self._lock:
                self._watched.pop(served.number, None)
            if self._is_heard(served.number) and not served.is_gone:
                # By a page that has found this thread at its end, or after a failure.
                self._over.wait(rest)
                self._watch(served.number)
                self._tell(Event("change", served.number, {"names": [], "more": 1}))

    def _failed(self, served: Served, error: Exception) -> None:
        if isinstance(served, ServedPool) and isinstance(error, PoolGoneError):
            served.lose(str(error))
            self._tell(Event("gone", served.number, {"message": str(error)}))
            _log.warning("%s is gone: %s", served.place, error)
        elif not self._over.is_set():
            kind = type(error).__name__
            _log.warning("%s is not watched: %s: %s", served.place, kind, error)

    def _run_pool(self, served: ServedPool, begun: threading.Event) -> None:
        number, root = served.number, served.root
        served.check()
        space = _Space(self, served)
        with root.watch("") as watch:
            native, commits = watch._native, root.stats()["commits"]
            begun.set()
            while self._is_heard(number):
                try:
                    how = native.wait(_WAIT_S, native.calls)
                    names, more = _taken(native, root._namespace) if how == "hits" else ([], 0)
                    before, commits = commits, root.stats()["commits"]
                except EngramError:
                    served.check()  # which says that it is gone, if that is why
                    raise
                if names or more or before != commits:
                    self._tell(Event("change", number, {"names": names, "more": more}))
                    space.is_due = True
                    time.sleep(REST_S)
                if how == "closed":
                    return
                space.tell()
                if how == "in time":
                    served.check()

    def _run_cluster(self, served: ServedCluster, begun: threading.Event) -> None:
        number, looks = served.number, Looks(served)
        while self._is_heard(number):
            found = looks.look()
            if found.is_any:
                more = max(len(found.names) - _NAMED, 0) + found.is_unnamed
                told: dict[str, Any] = {"names": found.names[:_NAMED], "more": more}
                told |= {} if found.is_sure else {"sure": False}
                self._tell(Event("change", number, told))
            if found.is_space:
                self._tell(Event("space", number, _space_of(served)))
            begun.set()
            self._over.wait(REST_S)


def _first(served: Served) -> Event:
    """Return what a page is told of a pool at first: its space, or that it is gone."""
    try:
        served.check()
        return Event("space", served.number, _space_of(served))
    except PoolGoneError as error:
        return Event("gone", served.number, {"message": str(error)})
    except EngramError as error:
        return Event("change", served.number, {"names": [], "more": 0, "error": str(error)})


def _space_of(served: Served) -> dict[str, Any]:
    figures = served.figures()
    free = max(figures["size"] - figures["used"], 0)
    return {"used": figures["used"], "free": free, "objects": figures["objects"]}


class _Space:
    """Tells of a pool's space, twice a second at most."""

    def __init__(self, hub: Hub, served: ServedPool) -> None:
        self._hub, self._served = hub, served
        self._last = -_SPACE_S
        self.is_due = False

    def tell(self) -> None:
        """Tell of it, if something was changed and it is time."""
        now = time.monotonic()
        if not self.is_due or now - self._last < _SPACE_S:
            return
        self._last, self.is_due = now, False
        self._hub._tell(Event("space", self._served.number, _space_of(self._served)))


def _taken(native: Any, namespace: Any) -> tuple[list[str], int]:
    """Take what has come: the first paths, and how many more objects there are."""
    names: list[str] = []
    more = 0
    for _ in range(_ROUNDS):
        oids = native.take(_TAKEN)
        if not len(oids):
            break
        first = oids[: max(_NAMED - len(names), 0)]
        names += paths_of(namespace, first) if len(first) else []
        more += len(oids) - len(first)
    return names, more
