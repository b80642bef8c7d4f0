"""Connections to the web page's server: how many, how long, and what they may leave undone."""

from __future__ import annotations

import http.client
import os
import select
import signal
import socket
import ssl
import subprocess
import sys
import time
import urllib.error
import urllib.parse
import urllib.request
from contextlib import ExitStack, closing, suppress
from typing import TYPE_CHECKING

import numpy as np
import pytest

pytest.importorskip("starlette", reason="engram[web] is not installed")
pytest.importorskip("uvicorn", reason="engram[web] is not installed")

from engram.web import connection, door, server
from support import PATIENCE
from web_client import INDEX, Browser, Listener, certificate_in, served

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    import engram


@pytest.fixture
def browser(
    pool: engram.Pool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> Iterator[Browser]:
    pool["a"] = np.arange(6.0).reshape(2, 3)
    with served(monkeypatch, tmp_path, pool.path) as made:
        yield made


def _silent(last: ExitStack, browser: Browser) -> socket.socket:
    made = socket.create_connection((browser.host, browser.port), PATIENCE)
    return last.enter_context(made)


def _asks(connection: socket.socket, browser: Browser) -> bytes:
    """Ask on a connection, which stays open."""
    head = f"GET /api/pools HTTP/1.1\r\nHost: {browser.host}:{browser.port}\r\n"
    connection.sendall(f"{head}Authorization: Bearer {browser.token}\r\n\r\n".encode())
    return connection.recv(4096)


def _trickles(connection: socket.socket, head: bytes) -> bool:
    """Send a head byte by byte until the server has had enough; whether it did before the end."""
    for byte in head:
        try:
            connection.sendall(bytes([byte]))
        except (BrokenPipeError, ConnectionResetError):
            return True
        if select.select([connection], [], [], 0.05)[0]:
            with suppress(ConnectionResetError):
                assert connection.recv(4096) == b""
            return True
    return False


def test_a_slow_reader_keeps_nobody_else_waiting(browser: Browser) -> None:
    with ExitStack() as last:
        for _ in range(40):  # connections that say nothing
            last.enter_context(socket.create_connection((browser.host, browser.port), PATIENCE))
        assert browser.get("api/pools").status == 200


def test_connections_that_ask_for_nothing_are_closed(
    pool: engram.Pool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(server, "_HEAD_S", 0.4)
    with served(monkeypatch, tmp_path, pool.path) as browser, ExitStack() as last:

        def connected() -> socket.socket:
            made = socket.create_connection((browser.host, browser.port), PATIENCE)
            return last.enter_context(made)

        silent, slow, kept = connected(), connected(), connected()
        head = f"GET /api/pools HTTP/1.1\r\nHost: {browser.host}:{browser.port}\r\n".encode()
        token = f"Authorization: Bearer {browser.token}\r\n\r\n".encode()
        kept.sendall(head + token)
        assert kept.recv(4096).startswith(b"HTTP/1.1 200")
        assert _trickles(slow, head + b"x: " + b"y" * 10_000)
        assert silent.recv(4096) == b""
        kept.sendall(head)  # its second request, which it does not end
        rest = b"".join(iter(lambda: kept.recv(4096), b""))
        assert b"HTTP/1.1 2" not in rest


def test_so_many_connections_are_open_and_the_oldest_silent_one_makes_room(
    pool: engram.Pool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(door, "CONNECTIONS_MOST", 8)
    monkeypatch.setattr(server, "_HEAD_S", 10 * PATIENCE)
    with served(monkeypatch, tmp_path, pool.path) as browser, ExitStack() as last:
        listener = last.enter_context(closing(Listener(browser)))  # it is being answered
        listener.next("space")
        silent = [_silent(last, browser) for _ in range(100)]
        assert browser.get("api/pools").status == 200
        assert [each.recv(1) for each in silent[:92]] == [b""] * 92  # the others are still open
        pool["a"] = [1]
        assert listener.next("change")["names"] == ["a"]
        assert _asks(silent[-1], browser).startswith(b"HTTP/1.1 200")


def test_a_connection_is_refused_where_each_is_being_answered(
    pool: engram.Pool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(door, "CONNECTIONS_MOST", 2)
    with served(monkeypatch, tmp_path, pool.path) as browser, ExitStack() as last:
        for _ in range(2):
            last.enter_context(closing(Listener(browser))).next("space")
        with suppress(ConnectionResetError):
            assert _silent(last, browser).recv(1) == b""


def test_silent_connections_under_tls_keep_nobody_out(
    pool: engram.Pool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(door, "CONNECTIONS_MOST", 4)
    monkeypatch.setattr(door, "_HANDSHAKE_S", 10.0 * PATIENCE)
    certificate, key = certificate_in(tmp_path)
    options = {"certificate": certificate, "key": key}
    with served(monkeypatch, tmp_path, pool.path, **options) as browser, ExitStack() as last:
        silent = [_silent(last, browser) for _ in range(30)]
        context = ssl.create_default_context(cafile=str(certificate))
        url = f"https://127.0.0.1:{browser.port}/api/pools"
        request = urllib.request.Request(url)
        request.add_header("Authorization", f"Bearer {browser.token}")
        with urllib.request.urlopen(  # noqa: S310 - the address is written here
            request, context=context, timeout=PATIENCE
        ) as answer:
            assert answer.status == 200
        for each in silent[:26]:
            with suppress(ConnectionResetError):
                assert each.recv(1) == b""


def test_a_handshake_has_its_time(
    pool: engram.Pool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(door, "_HANDSHAKE_S", 0.2)
    certificate, key = certificate_in(tmp_path)
    options = {"certificate": certificate, "key": key}
    with served(monkeypatch, tmp_path, pool.path, **options) as browser, ExitStack() as last:
        silent = _silent(last, browser)
        with suppress(ConnectionResetError):
            assert silent.recv(1) == b""


@pytest.mark.filterwarnings("ignore:.*fork.*:DeprecationWarning")
def test_a_forked_child_holds_neither_the_port_nor_a_connection(
    pool: engram.Pool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    child = 0
    try:
        with ExitStack() as last:
            with served(monkeypatch, tmp_path, pool.path) as browser:
                connection = _silent(last, browser)
                assert _asks(connection, browser).startswith(b"HTTP/1.1 200")
                child = os.fork()
                if not child:
                    signal.pause()
                    os._exit(0)
            assert b"".join(iter(lambda: connection.recv(4096), b"")).count(b"HTTP/") == 0
            taken = last.enter_context(socket.socket())
            taken.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            taken.bind((browser.host, browser.port))
            taken.listen()
    finally:
        if child:
            os.kill(child, signal.SIGKILL)
            os.waitpid(child, 0)


def test_a_server_without_descriptors_goes_on_and_says_so_once(
    pool: engram.Pool, tmp_path: Path
) -> None:
    (tmp_path / "index.html").write_text(INDEX)
    # All descriptors are taken but two; more connections than that come.
    program = (
        "import os, resource, sys; from pathlib import Path; from engram.web import app, start; "
        "import logging; logging.basicConfig(); app.PAGE = Path(sys.argv[1]); "
        "server = start(sys.argv[2]); print(server.url, flush=True); sys.stdin.readline(); "
        "top = max(map(int, os.listdir('/proc/self/fd'))); "
        "resource.setrlimit(resource.RLIMIT_NOFILE, (top + 3, top + 3)); "
        "print('few', flush=True); sys.stdin.readline(); server.close()"
    )
    words = [sys.executable, "-c", program, str(tmp_path), pool.path]
    pipe = subprocess.PIPE
    with (
        subprocess.Popen(words, text=True, stdin=pipe, stdout=pipe, stderr=pipe) as process,
        ExitStack() as last,
    ):
        last.callback(process.kill)
        assert process.stdin is not None
        assert process.stdout is not None
        browser = Browser(process.stdout.readline().strip())
        process.stdin.write("\n")
        process.stdin.flush()
        assert process.stdout.readline() == "few\n"
        silent = [_silent(last, browser) for _ in range(40)]
        assert browser.get("api/pools").status == 200
        assert silent[0].recv(1) == b""
        _, said = process.communicate("\n", PATIENCE)
        assert process.returncode == 0
        assert said.count("ulimit -n") == 1
        assert "Traceback" not in said


def test_serve_takes_all_descriptors_that_it_may(pool: engram.Pool, tmp_path: Path) -> None:
    (tmp_path / "index.html").write_text(INDEX)
    program = (
        "import resource, sys; from pathlib import Path; from engram.web import app, serve; "
        "app.PAGE = Path(sys.argv[1]); of = resource.RLIMIT_NOFILE; "
        "hard = resource.getrlimit(of)[1]; resource.setrlimit(of, (64, hard)); "
        "end = lambda _: sys.exit(resource.getrlimit(of) != (hard, hard)); "
        "serve(sys.argv[2], port=0, ready=end)"
    )
    words = [sys.executable, "-c", program, str(tmp_path), pool.path]
    assert subprocess.run(words, check=False, timeout=PATIENCE).returncode == 0


def test_requests_cannot_flood_the_log(
    browser: Browser, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    for each in connection._logger.filters:
        monkeypatch.setattr(each, "_due", {})
    upgrade = ("Connection: upgrade", "Upgrade: x")
    for _ in range(20):
        assert browser.status("/", "no header") == 400
        assert browser.status("/", *upgrade) == 401
    texts = [record.getMessage() for record in caplog.records]
    assert 0 < len(texts) <= 5
    assert len(set(texts)) == len(texts)


def test_who_takes_nothing_of_an_answer_loses_the_connection(
    pool: engram.Pool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(connection, "STALLED_S", 0.2)
    monkeypatch.setattr(door, "CONNECTIONS_MOST", 1)
    pool.create_array("large", shape=(64 << 20,), dtype="i1")
    with served(monkeypatch, tmp_path, pool.path) as browser, socket.socket() as stalled:
        stalled.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
        stalled.connect((browser.host, browser.port))
        head = f"GET /api/p/0/download?path=large&as=npy HTTP/1.1\r\nHost: localhost:{browser.port}"
        stalled.sendall(f"{head}\r\nAuthorization: Bearer {browser.token}\r\n\r\n".encode())
        assert stalled.recv(12) == b"HTTP/1.1 200"
        until = time.monotonic() + PATIENCE
        while True:  # another has no place as long as this one is being answered
            assert time.monotonic() < until
            with suppress(http.client.HTTPException, ConnectionError):
                if browser.get("api/pools").status == 200:
                    break
        rest = sum(map(len, iter(lambda: stalled.recv(1 << 16), b"")))
        assert rest < 64 << 20


def test_who_takes_an_answer_slowly_gets_all_of_it(
    pool: engram.Pool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def small(made: socket.socket) -> None:  # else the kernel takes all of it at once
        made.setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, 4096)

    monkeypatch.setattr(door, "hold", small)
    monkeypatch.setattr(connection, "STALLED_S", 0.2)
    pool.create_array("large", shape=(1 << 19,), dtype="i1")
    with served(monkeypatch, tmp_path, pool.path) as browser, socket.socket() as slow:
        slow.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
        slow.connect((browser.host, browser.port))
        head = f"GET /api/p/0/download?path=large&as=npy HTTP/1.1\r\nHost: localhost:{browser.port}"
        known = f"Authorization: Bearer {browser.token}\r\nConnection: close"
        slow.sendall(f"{head}\r\n{known}\r\n\r\n".encode())
        found = 0
        while piece := slow.recv(4096):
            found += len(piece)
            time.sleep(0.01)  # so a piece takes longer than the bound
        assert found > 1 << 19
