"""Who may ask, and what: each request passes here before anything else sees it.

**Invariant.** A request comes further only if all of this holds:

- *Its `Host`* is a name of this server: a loopback name with its port, or one that was allowed. A
  page of another site that has its own name point to this machine (DNS rebinding) has another.
- *Its `Origin`*, if it has one, is that host; and the browser does not say, by `Sec-Fetch-Site`,
  that another site has made it, unless it is the opening of the page.
- *Its address is bounded*. What a change brings along is bounded where it is read.
- *It knows the token*, by its address, the cookie that a good one has set, or a header; or the
  password. All are compared in constant time. The files of the page, which are no secret, are
  apart. A browser sends the cookie also where another site's link opens the page (`Lax`): that
  reads nothing for the other site.
- *It reads*, or it is a POST with the header `X-Engram`, which no other site can send.

Every answer has headers that let the page load nothing from elsewhere, and nobody else load it. No
log has a query, and so none has the token.
"""

from __future__ import annotations

import asyncio
import base64
import binascii
import hmac
import ipaddress
import re
import secrets
from dataclasses import dataclass, field
from typing import TYPE_CHECKING
from urllib.parse import parse_qsl, quote, unquote, urlencode

from starlette.responses import HTMLResponse, RedirectResponse, Response

from engram.web.refusal import refused

if TYPE_CHECKING:
    from collections.abc import Iterable

    from starlette.types import ASGIApp, Message, Receive, Scope, Send

QUERY_MOST = 16 << 10
_FAILURES_MOST = 8
_FAILURE_S = 0.5
"""A wrong password is answered after so long."""

_POLICY = (
    "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self' blob: data:; "
    "connect-src 'self'; base-uri 'none'; form-action 'none'; frame-ancestors 'self'"
)
_HEADERS = {
    "content-security-policy": _POLICY,
    "x-content-type-options": "nosniff",
    "referrer-policy": "no-referrer",
    "cross-origin-resource-policy": "same-origin",
    "cross-origin-opener-policy": "same-origin",
    "permissions-policy": "camera=(), geolocation=(), microphone=()",
}
_UNKNOWN_PAGE = (
    "<!doctype html><html lang=en><meta charset=utf-8><title>Engram</title>"
    "<h1>This page needs its token</h1>"
    "<p>Open the address that <code>engram serve</code> has printed: it ends in "
    "<code>?token=…</code>. The browser must keep a cookie for it."
)
_STATIC = "/assets/"
_HOST = re.compile(r"(\[[0-9a-f:.]+\]|[a-z0-9._-]+)(?::([0-9]{1,5}))?")


@dataclass(frozen=True)
class Access:
    """What a server is called, and what opens it."""

    port: int
    prefix: str = ""
    """What stands before all paths, such as "/user/ada/proxy/8765"; no slash at its end."""
    hosts: frozenset[str] = frozenset()
    """More names of the server, in lower case: `NAME` with any port, or `NAME:PORT`."""
    token: str = field(default_factory=lambda: secrets.token_urlsafe(32))
    session: str = field(default_factory=lambda: secrets.token_urlsafe(32))
    """What the cookie says."""
    password: str | None = None
    is_secure: bool = False
    """Whether connections are TLS."""
    write: bool = False

    @property
    def cookie(self) -> str:
        """The name of the cookie."""
        return f"engram-{self.port}"


class Guard:
    """Lets requests through to an application."""

    def __init__(self, app: ASGIApp, access: Access) -> None:
        self._app, self._access = app, access
        self._failures = 0

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Answer a request, or let it through."""
        if scope["type"] != "http":
            return
        scope = dict(scope)
        headers = _joined(scope["headers"])
        query = scope.get("query_string", b"")
        scope["path"] = path = self._inner(scope["path"])
        sets = False

        async def answer(message: Message) -> None:
            if message["type"] == "http.response.start":
                message = {**message, "headers": [*message["headers"], *self._added(path, sets)]}
            await send(message)

        response = self._refusal(scope["method"], headers, query, path)
        if response is None and not path:
            rest = f"?{query.decode('latin-1')}" if query else ""
            response = RedirectResponse(f"{self._access.prefix}/{rest}")
        if response is None and not path.startswith(_STATIC):
            asked = words_of(query)
            knows = self._knows(asked.get("token"), headers)
            if not knows:
                response = await self._unknown(path, "authorization" in headers)
            elif path == "/" and "token" in asked:
                response = _without_token(asked)
            sets = knows and self._access.session not in self._cookies(headers)
        await (response or self._app)(scope, receive, answer)

    def _inner(self, path: str) -> str:
        """Return a path, which is decoded, without the prefix.

        A proxy may have taken it away already.
        """
        prefix = unquote(self._access.prefix)
        if prefix and (path == prefix or path.startswith(f"{prefix}/")):
            return path[len(prefix) :]
        return path

    def _added(self, path: str, sets: bool) -> list[tuple[bytes, bytes]]:
        """Return the headers that every answer has."""
        added = list(_HEADERS.items())
        if not path.startswith(_STATIC):
            added.append(("cache-control", "no-store"))
        if sets:
            added += [("set-cookie", each) for each in self._set_cookies()]
        return [(name.encode(), value.encode()) for name, value in added]

    def _set_cookies(self) -> list[str]:
        """Return what sets the cookie: for each way to write the prefix, as browsers compare it."""
        access = self._access
        prefix = unquote(access.prefix)
        written = (access.prefix, quote(prefix, safe="/"), quote(prefix, safe="/@+"))
        secure = "; Secure" if access.is_secure else ""
        return [
            f"{access.cookie}={access.session}; Path={each or '/'}; HttpOnly; SameSite=Lax{secure}"
            for each in dict.fromkeys(written)
        ]

    def _refusal(
        self, method: str, headers: dict[str, str], query: bytes, path: str
    ) -> Response | None:
        """Return the refusal of what may not even be asked; None if it may."""
        if len(query) > QUERY_MOST:
            return refused(413, "TooLarge", f"the address has over {QUERY_MOST:,} characters")
        host = headers.get("host", "").lower()
        if not self.is_host(host):
            return refused(
                *(403, "HostRefused", f"this server is not called {host[:100]!r}"),
                "start `engram serve` with --allow-host, if that is a name of it",
            )
        origin = headers.get("origin")
        if origin is not None and not self._is_own(origin, host):
            return refused(403, "OriginRefused", f"a page of {origin[:100]!r} may not ask this")
        site = headers.get("sec-fetch-site", "none")
        is_opening = headers.get("sec-fetch-mode") == "navigate" and method == "GET"
        is_opening = is_opening and path in {"", "/"}
        if site not in {"none", "same-origin"} and not is_opening:
            return refused(403, "OriginRefused", "a page of another site may not ask this")
        return self._refused_change(method, headers)

    def _refused_change(self, method: str, headers: dict[str, str]) -> Response | None:
        if method in {"GET", "HEAD"}:
            return None
        if method != "POST":
            return refused(405, "MethodRefused", f"{method[:20]} is not done here")
        if not self._access.write:
            return refused(
                *(403, "ReadOnlyError", "what is served here is for reading"),
                "start `engram serve` with --write to change things",
            )
        if headers.get("x-engram") != "1":
            return refused(403, "OriginRefused", "a change needs the header X-Engram: 1")
        return None

    def is_host(self, host: str) -> bool:
        """Whether this server is called so."""
        return self._is_allowed(host) or self._is_direct(host)

    def _is_allowed(self, host: str) -> bool:
        found = _HOST.fullmatch(host)
        return found is not None and not self._access.hosts.isdisjoint({host, found[1].strip("[]")})

    def _is_direct(self, host: str) -> bool:
        """Whether a host is this machine itself, with the server's port."""
        found = _HOST.fullmatch(host)
        usual = 443 if self._access.is_secure else 80
        return (
            found is not None
            and is_loopback(found[1].strip("[]"))
            and int(found[2] or usual) == self._access.port
        )

    def _is_own(self, origin: str, host: str) -> bool:
        """Whether a page of an origin is this server's; a proxy may put TLS before it."""
        scheme, _, named = origin.lower().partition("://")
        own = "https" if self._access.is_secure else "http"
        schemes = {"http", "https"} if self._is_allowed(host) else {own}
        return named == host and scheme in schemes

    def _knows(self, token: str | None, headers: dict[str, str]) -> bool:
        """Whether a request knows the token or the password."""
        access = self._access
        kind, _, word = headers.get("authorization", "").partition(" ")
        given = [(token, access.token)]
        given += [(cookie, access.session) for cookie in self._cookies(headers)]
        if kind.lower() == "bearer":
            given.append((word.strip(), access.token))
        if kind.lower() == "basic" and access.password is not None:
            given.append((_password(word), access.password))
        return any([_same(one, other) for one, other in given])  # noqa: C419 - all are compared

    def _cookies(self, headers: dict[str, str]) -> list[str]:
        """Return each value that the cookie has, whatever cookies other servers have set."""
        pairs = (each.partition("=") for each in headers.get("cookie", "").split(";"))
        return [value.strip() for name, _, value in pairs if name.strip() == self._access.cookie]

    async def _unknown(self, path: str, has_tried: bool) -> Response:
        """Answer one who does not know the token."""
        needs = self._access.password is not None
        if has_tried and needs:
            if self._failures >= _FAILURES_MOST:
                return refused(429, "TooMany", "too many wrong passwords", "wait a second")
            self._failures += 1
            try:
                await asyncio.sleep(_FAILURE_S)
            finally:
                self._failures -= 1
        headers = {"www-authenticate": 'Basic realm="engram", charset="UTF-8"'} if needs else {}
        if path in {"", "/"}:
            return HTMLResponse(_UNKNOWN_PAGE, 401, headers)
        remedy = "open the address that `engram serve` has printed"
        return refused(401, "TokenMissing", "the token is missing or wrong", remedy, headers)


def _joined(headers: Iterable[tuple[bytes, bytes]]) -> dict[str, str]:
    """Return the headers, each with all the values that it came with."""
    found: dict[str, str] = {}
    for name, value in headers:
        key, text = name.decode("latin-1"), value.decode("latin-1")
        between = "; " if key == "cookie" else ", "
        found[key] = f"{found[key]}{between}{text}" if key in found else text
    return found


def words_of(query: bytes) -> dict[str, str]:
    """Return what stands behind the question mark of an address."""
    return dict(parse_qsl(query.decode("latin-1"), keep_blank_values=True))


def _without_token(asked: dict[str, str]) -> Response:
    """Lead to the page's address without the token: what is shown or shared there is no key."""
    rest = urlencode({name: word for name, word in asked.items() if name != "token"})
    return RedirectResponse(f"./?{rest}" if rest else "./", 303)  # as a proxy may show it


def is_loopback(name: str) -> bool:
    """Whether a name or an address is of this machine alone."""
    if name == "localhost":
        return True
    try:
        return ipaddress.ip_address(name.strip("[]")).is_loopback
    except ValueError:
        return False


def _same(one: str | None, other: str) -> bool:
    return one is not None and hmac.compare_digest(one.encode("utf-8", "replace"), other.encode())


def _password(word: str) -> str | None:
    """Return the password of an `Authorization: Basic`, whatever user it names."""
    try:
        text = base64.b64decode(word.strip(), validate=True).decode("utf-8")
    except (binascii.Error, ValueError):
        return None
    return text.partition(":")[2]


def address_of(access: Access, host: str) -> str:
    """Return the address at which a browser finds the page, with the token."""
    shown = f"[{host}]" if ":" in host else host
    scheme = "https" if access.is_secure else "http"
    asked = "" if access.password is not None else f"?{urlencode({'token': access.token})}"
    return f"{scheme}://{shown}:{access.port}{access.prefix}/{asked}"
