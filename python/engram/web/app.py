"""The application: which address is answered by what.

**Invariant.** Whatever is asked of a pool is answered by a thread of the crew: the event loop only
passes it on. The answer is made there as a whole, with its JSON, so whatever fails on the way is
one error of this request. An error that is nobody's is told by its class alone; the log has more.

What is answered below `api/p/ID/` is in `answers`: a function for each address, which gives plain
values or a response of its own.
"""

from __future__ import annotations

import asyncio
import contextlib
import json
from pathlib import Path
from typing import TYPE_CHECKING, Any

from starlette.applications import Starlette
from starlette.requests import ClientDisconnect
from starlette.responses import FileResponse, Response, StreamingResponse
from starlette.routing import Route

import engram
from engram import telemetry
from engram.errors import ArgumentError, EngramError
from engram.web import answers, refusal, wire
from engram.web.answers import Ask
from engram.web.events import Hub
from engram.web.guard import Guard, words_of
from engram.web.refusal import refused
from engram.web.working import Crew

if TYPE_CHECKING:
    from collections.abc import Callable

    from starlette.requests import Request
    from starlette.types import ASGIApp, Receive, Scope, Send

    from engram.web.guard import Access
    from engram.web.served import Shelf
    from engram.web.working import Work

PAGE = Path(__file__).parent / "page"
"""Where `make web` puts the page."""
BODY_MOST = 1 << 20
"""A change brings so many bytes at most."""
_BODY_S = 10.0
"""And they come in so long."""
_TYPES = {
    ".html": "text/html; charset=utf-8",
    ".js": "text/javascript",
    ".css": "text/css",
    ".svg": "image/svg+xml",
    ".png": "image/png",
    ".json": "application/json",
    ".woff2": "font/woff2",
    ".ico": "image/x-icon",
    ".txt": "text/plain; charset=utf-8",
}

_log = telemetry.Log("engram.web")


class Site:
    """All that is answered.

    Parameters
    ----------
    shelf
        What is served.
    access
        What the server is called, and what opens it.
    page
        The folder of the page.

    """

    def __init__(self, shelf: Shelf, access: Access, page: Path) -> None:
        self._shelf, self._page = shelf, page
        self._crew = Crew()
        self._hub = Hub(shelf)
        routes = [
            Route("/", self._index),
            Route("/assets/{path:path}", self._asset),
            Route("/api/pools", self._pools),
            Route("/api/p/{number}/{what}", self._get, methods=["GET"]),
            Route("/api/p/{number}/{what}", self._post, methods=["POST"]),
            Route("/events", self._events),
            Route("/{path:path}", self._nothing),
        ]
        self.app: ASGIApp = Guard(Starlette(routes=routes), access)

    def end(self) -> None:
        """End all streams, and the work of all requests: each is answered soon."""
        self._hub.close()
        self._crew.end()

    def close(self) -> None:
        """Wait until all has ended: nothing looks at a pool any more."""
        self.end()
        self._hub.wait()
        self._crew.close()

    async def _index(self, request: Request) -> Response:
        del request
        return self._file(self._page, "index.html")

    async def _asset(self, request: Request) -> Response:
        return self._file(self._page / "assets", request.path_params["path"])

    def _file(self, within: Path, name: str) -> Response:
        """Give a file of the page; no name leads out of its folder."""
        folder = within.resolve()
        with contextlib.suppress(OSError, ValueError):  # what can be no name, or is too long
            path = (folder / name.lstrip("/")).resolve()
            kind = _TYPES.get(path.suffix)
            if kind is not None and path.is_relative_to(folder) and path.is_file():
                return FileResponse(path, media_type=kind)
        return refused(404, "NotFoundError", "there is no such file of the page")

    async def _nothing(self, request: Request) -> Response:
        del request
        return refused(404, "NotFoundError", "there is nothing at this address")

    async def _pools(self, request: Request) -> Response:
        def tell(_: Work) -> dict[str, Any]:
            pools = [each.told() for each in self._shelf]
            return {"version": engram.__version__, "write": self._shelf.write, "pools": pools}

        return await self._made(request, tell)

    async def _get(self, request: Request) -> Response:
        return await self._answered(request, answers.READS, {})

    async def _post(self, request: Request) -> Response:
        try:
            body = await asyncio.wait_for(_body(request), _BODY_S)
        except TimeoutError:
            return refused(408, "TooSlow", f"what was to come has not come in {_BODY_S:.0f} s")
        except (ArgumentError, refusal.RefusedError) as error:
            return refusal.response(error)
        return await self._answered(request, answers.CHANGES, body)

    async def _answered(
        self, request: Request, known: dict[str, answers.Answer], body: dict[str, Any]
    ) -> Response:
        """Answer something of one pool."""
        what, number = request.path_params["what"], request.path_params["number"]
        if what not in known:
            return refused(404, "NotFoundError", f"there is no api/p/…/{what[:40]}")
        ask = Ask(_words(request), body, self._shelf)

        def act(work: Work) -> Any:
            served = self._shelf[number]
            try:
                return known[what](served, ask, work)
            except EngramError:
                served.check()  # if it is gone, that is why
                raise

        return await self._made(request, act, ask.text("text"))

    async def _made(
        self, request: Request, act: Callable[[Work], Any], query: str | None = None
    ) -> Response:
        """Have the crew make an answer; an error becomes one, too."""

        def make(work: Work) -> Response:
            found = act(work)
            if isinstance(found, Response):
                return found
            return Response(wire.dumps(found), media_type="application/json")

        try:
            return await self._crew.do(make, lambda: _left(request))
        except Exception as error:  # noqa: BLE001 - one request's failure is not the server's
            if not refusal.is_known(error):
                _log.warning("%s failed: %s: %s", request.url.path, type(error).__name__, error)
            return refusal.response(error, query)

    async def _events(self, request: Request) -> Response:
        asked = frozenset(filter(None, _words(request).get("pools", "").split(",")))
        try:
            numbers = asked or {each.number for each in self._shelf}
            return _Stream(self._hub, frozenset(self._shelf[each].number for each in numbers))
        except (EngramError, refusal.RefusedError) as error:
            return refusal.response(error)


class _Stream(StreamingResponse):
    """The events for one page, which counts as one that listens even if it goes at once."""

    media_type = "text/event-stream"

    def __init__(self, hub: Hub, numbers: frozenset[str]) -> None:
        self._hub, self._listener = hub, hub.listen(numbers)
        super().__init__(hub.stream(self._listener), headers={"x-accel-buffering": "no"})

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Send them."""
        try:
            await super().__call__(scope, receive, send)
        finally:
            self._hub.leave(self._listener)


def _words(request: Request) -> dict[str, str]:
    return words_of(request.scope["query_string"])


async def _body(request: Request) -> dict[str, Any]:
    """Read the JSON of a change, as much as may come."""
    if int(request.headers.get("content-length", 0)) > BODY_MOST:  # digits, as h11 has seen
        raise _too_large()
    found = bytearray()
    async for piece in request.stream():
        found += piece
        if len(found) > BODY_MOST:
            raise _too_large()
    if not found:
        return {}
    try:
        told = json.loads(bytes(found))
    except (ValueError, RecursionError):  # the latter where it is nested deeply
        told = None
    if not isinstance(told, dict):
        raise ArgumentError("what came is no object of JSON")
    return told


def _too_large() -> refusal.RefusedError:
    return refusal.too_large(f"a change brings {BODY_MOST:,} bytes at most", "send less")


async def _left(request: Request) -> None:
    """Wait until the browser has gone."""
    try:
        while (await request.receive())["type"] != "http.disconnect":
            pass
    except ClientDisconnect:
        return
