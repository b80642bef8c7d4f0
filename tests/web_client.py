"""A server of the web page in this process, and a browser's side of it: real sockets."""

from __future__ import annotations

import http.client
import json
import shutil
import socket
import subprocess
import threading
import time
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any, NamedTuple
from urllib.parse import urlencode, urlsplit

import numpy as np
import pytest

from engram import web
from support import PATIENCE

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from numpy.typing import NDArray

INDEX = "<!doctype html><title>Engram</title>"


class Answer(NamedTuple):
    """What a server has answered."""

    status: int
    headers: dict[str, str]
    body: bytes

    @property
    def json(self) -> Any:
        """The body, as JSON."""
        assert self.headers["content-type"] == "application/json"
        return json.loads(self.body)

    @property
    def cells(self) -> NDArray[Any]:
        """The body, as cells of float32."""
        shape = [int(each) for each in self.headers["x-engram-shape"].split(",")]
        return np.frombuffer(self.body, "<f4").reshape(shape)


class Browser:
    """Asks a server, with the token."""

    def __init__(self, url: str) -> None:
        self.url = url
        parts = urlsplit(url)
        assert parts.hostname is not None
        assert parts.port is not None
        self.host, self.port, self.base = parts.hostname, parts.port, parts.path
        self.token = parts.query.removeprefix("token=")

    def ask(
        self,
        path: str,
        method: str = "GET",
        body: bytes | None = None,
        headers: dict[str, str] | None = None,
    ) -> Answer:
        """Ask with these headers alone, and `Host`."""
        connection = http.client.HTTPConnection(self.host, self.port, timeout=PATIENCE)
        try:
            connection.request(method, path, body, headers or {})
            answer = connection.getresponse()
            found = {name.lower(): value for name, value in answer.getheaders()}
            return Answer(answer.status, found, answer.read())
        finally:
            connection.close()

    def get(self, what: str, **words: object) -> Answer:
        """Ask for something below the base, as the page does."""
        query = urlencode({name.rstrip("_"): str(word) for name, word in words.items()})
        return self.ask(f"{self.base}{what}?{query}", headers=self.known())

    def of(self, what: str, number: int = 0, **words: object) -> Any:
        """Ask something of a pool that it answers; give the JSON."""
        answer = self.get(f"api/p/{number}/{what}", **words)
        assert answer.status == 200, answer.body
        return answer.json

    def post(
        self, what: str, told: Any = None, headers: dict[str, str] | None = None, **words: object
    ) -> Answer:
        """Ask for a change."""
        more = {"X-Engram": "1"} if headers is None else headers
        body = None if told is None else json.dumps(told).encode()
        path = f"{self.base}api/p/0/{what}?{urlencode(words)}"
        return self.ask(path, "POST", body, self.known() | more)

    def status(self, path: str, *lines: str) -> int:
        """Ask with these lines of headers as they stand, also several of one name."""
        host = (
            ()
            if any(each.startswith("Host:") for each in lines)
            else (f"Host: {self.host}:{self.port}",)
        )
        head = "\r\n".join((f"GET {path} HTTP/1.1", *host, *lines, "", ""))
        with socket.create_connection((self.host, self.port), PATIENCE) as connection:
            connection.sendall(head.encode("latin-1"))
            return int(connection.recv(4096).split()[1])

    def known(self) -> dict[str, str]:
        """Give the header that tells the token."""
        return {"Authorization": f"Bearer {self.token}"}


class Listener:
    """A page that listens to events."""

    def __init__(self, browser: Browser, pools: str = "") -> None:
        self._connection = http.client.HTTPConnection(browser.host, browser.port, timeout=PATIENCE)
        path = f"{browser.base}events?{urlencode({'pools': pools})}"
        self._connection.request("GET", path, headers=browser.known())
        self.answer = self._connection.getresponse()

    def next(self, kind: str) -> dict[str, Any]:
        """Wait for the next event of a kind."""
        until = time.monotonic() + PATIENCE  # a stream that only says that it is there goes on
        while time.monotonic() < until:
            lines = []
            while (line := self.answer.readline()).strip():
                lines.append(line.decode().rstrip("\n"))
            assert line, "the stream has ended"
            if lines[:1] == [f"event: {kind}"]:
                told: dict[str, Any] = json.loads(lines[1].removeprefix("data: "))
                return told
        raise AssertionError(f"no {kind} comes")

    def ends(self) -> bool:
        """Wait until the stream ends."""
        while self.answer.readline():
            pass
        return True

    def close(self) -> None:
        """Go away, as a page that is closed."""
        self._connection.close()


@contextmanager
def served(
    monkeypatch: pytest.MonkeyPatch, folder: Path, *places: object, **options: Any
) -> Iterator[Browser]:
    """Serve pools; the page is one of a line, unless it was built there."""
    from engram.web import app  # noqa: PLC0415 - where the extra is missing, tests are skipped

    page = folder / "page"
    (page / "assets").mkdir(parents=True, exist_ok=True)
    (page / "index.html").write_text(INDEX)
    (page / "assets" / "page.js").write_text("'use strict'")
    monkeypatch.setattr(app, "PAGE", page)
    with web.start(*map(str, places), **options) as server:
        yield Browser(server.url)
    assert not [each.name for each in threading.enumerate() if each.name == "engram-web"]


def certificate_in(folder: Path) -> tuple[Path, Path]:
    """Make a certificate for this host that signs itself."""
    if shutil.which("openssl") is None:
        pytest.skip("there is no openssl to make a certificate")
    cert, key = folder / "cert.pem", folder / "key.pem"
    words = ["req", "-x509", "-newkey", "rsa:2048", "-nodes", "-days", "2", "-subj", "/CN=engram"]
    words += ["-addext", "subjectAltName=IP:127.0.0.1"]
    words += ["-keyout", str(key), "-out", str(cert)]
    subprocess.run(["openssl", *words], check=True, capture_output=True)
    return cert, key
