"""The web page's server: its options, what it says, how it begins and ends."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import threading
import urllib.error
import urllib.parse
import urllib.request
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("starlette", reason="engram[web] is not installed")
pytest.importorskip("uvicorn", reason="engram[web] is not installed")

import engram
from engram import web
from engram.errors import AccessError, ArgumentError, BusyError, NotFoundError, UnsupportedError
from engram.web import app, server
from shell import run
from support import PATIENCE
from web_client import INDEX, Browser, Listener, certificate_in, served


def test_a_server_shows_itself_without_its_token(
    pool: engram.Pool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with served(monkeypatch, tmp_path, pool.path), web.start(pool.path) as other:
        assert "token" in other.url
        assert "token" not in repr(other)
        other.close()


@pytest.mark.parametrize("prefix", ["/a/../b", "/..", "/a/%2e%2E", "/./b", "/a%zz", "/a%4"])
def test_a_prefix_that_a_browser_resolves_is_refused(
    pool: engram.Pool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, prefix: str
) -> None:
    with pytest.raises(ArgumentError, match="--prefix"), ExitStack() as last:
        last.enter_context(served(monkeypatch, tmp_path, pool.path, prefix=prefix))


@pytest.mark.parametrize("prefix", ["/a b", "/a?b", "/a//b", "/<x>", "a\nb"])
def test_what_is_no_prefix_is_refused(
    pool: engram.Pool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, prefix: str
) -> None:
    with pytest.raises(ArgumentError, match="--prefix"), ExitStack() as last:
        last.enter_context(served(monkeypatch, tmp_path, pool.path, prefix=prefix))


def test_other_addresses_need_tls_and_a_password(
    pool: engram.Pool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    certificate, key = certificate_in(tmp_path)
    password = tmp_path / "password"
    password.write_text("correct horse\n")
    password.chmod(0o600)
    for given in (
        {},
        {"certificate": certificate, "key": key},
        {"password_file": password},
        {"certificate": certificate, "password_file": password},
    ):
        with pytest.raises(ArgumentError, match="certificate"), ExitStack() as last:
            last.enter_context(
                served(monkeypatch, tmp_path, pool.path, host="0.0.0.0", **given)  # noqa: S104
            )


def test_a_password_is_its_owners_alone(tmp_path: Path) -> None:
    password = tmp_path / "password"
    password.write_text("correct horse\n")
    password.chmod(0o640)
    with pytest.raises(AccessError, match="chmod 600"):
        server._password(password)
    password.chmod(0o600)
    assert server._password(password) == "correct horse"
    password.write_text("short\n")
    with pytest.raises(ArgumentError, match="8 characters"):
        server._password(password)
    password.write_text("x" * 1024 + "\r\nmore")
    assert server._password(password) == "x" * 1024
    password.write_text("x" * 1025)
    with pytest.raises(ArgumentError, match="1,024 characters at most"):
        server._password(password)
    fifo = tmp_path / "fifo"
    os.mkfifo(fifo, 0o600)
    for none in (fifo, Path("/dev/null")):
        with pytest.raises(ArgumentError, match="regular file"):
            server._password(none)
    with pytest.raises(NotFoundError, match="no such file"):
        server._password(tmp_path / "none")


def test_what_is_no_certificate_is_refused(
    pool: engram.Pool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    wrong = tmp_path / "wrong.pem"
    wrong.write_text("nothing")
    with pytest.raises(ArgumentError, match="certificate"), ExitStack() as last:
        last.enter_context(served(monkeypatch, tmp_path, pool.path, certificate=wrong, key=wrong))


def test_a_taken_port_is_said(
    pool: engram.Pool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with served(monkeypatch, tmp_path, pool.path) as browser:
        ended = run("serve", pool.path, "--port", browser.port)
        assert ended.code == BusyError.exit_code
        assert f"port {browser.port} of 127.0.0.1 is taken" in ended.err
        assert "--port" in ended.err


def test_a_page_that_is_not_built_is_said(
    pool: engram.Pool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(app, "PAGE", tmp_path / "none")
    ended = run("serve", pool.path, "--port", 0)
    assert ended.code == UnsupportedError.exit_code
    assert "run `make web`" in ended.err


def test_an_extra_that_is_missing_is_said(
    pool: engram.Pool, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(sys.modules, "uvicorn", None)
    ended = run("serve", pool.path, "--port", 0)
    assert ended.code == UnsupportedError.exit_code
    assert "pip install 'engram[web]'" in ended.err


def test_a_pool_that_is_not_there_is_said_and_nothing_stays_open(
    pool: engram.Pool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    before = pool.space.pids
    with served(monkeypatch, tmp_path, pool.path):
        ended = run("serve", pool.path, tmp_path / "none", "--port", 0)
    assert ended.code == NotFoundError.exit_code
    assert str(tmp_path / "none") in ended.err
    assert pool.space.pids == before
    with engram.create(tmp_path.parent / "other", size="16 MiB", force=True) as other:
        path = other.path
    with pytest.raises(NotFoundError):
        web.start(path, tmp_path / "none")
    engram.destroy(path)  # which is refused while it is open anywhere


def test_one_process_serves_from_the_command_line_until_it_is_interrupted(
    pool: engram.Pool, tmp_path: Path
) -> None:
    (tmp_path / "index.html").write_text(INDEX)
    program = (
        "import sys; from pathlib import Path; from engram.web import app; "
        "app.PAGE = Path(sys.argv[1]); from engram.cli import main; "
        "main(['serve', sys.argv[2], '--port', '0'])"
    )
    words = [sys.executable, "-c", program, str(tmp_path), pool.path]
    with subprocess.Popen(words, stdout=subprocess.PIPE, text=True) as process:
        try:
            assert process.stdout is not None
            browser = Browser(process.stdout.readline().strip())
            told = browser.get("api/pools").json
            assert told["pools"][0]["place"] == pool.path
            assert told["write"] is False
            process.send_signal(signal.SIGINT)
            assert process.wait(PATIENCE) == 0
        finally:
            process.kill()


_OPENING = """
import os, sys, webbrowser
from pathlib import Path
from urllib.parse import urlsplit
from engram.web import app, serve

def look(url):
    path = Path(urlsplit(url).path)
    print(url, oct(path.stat().st_mode & 0o777), path.read_text().count(address[0]), flush=True)

address = []
app.PAGE, webbrowser.open = Path(sys.argv[1]), look
serve(sys.argv[2], port=0, ready=address.append, open_browser=True)
"""


@pytest.mark.parametrize("end", [signal.SIGINT, signal.SIGTERM])
def test_a_browser_is_opened_by_a_file_and_no_argument_has_the_token(
    pool: engram.Pool, tmp_path: Path, end: signal.Signals
) -> None:
    (tmp_path / "index.html").write_text(INDEX)
    words = [sys.executable, "-c", _OPENING, str(tmp_path), pool.path]
    with subprocess.Popen(words, stdout=subprocess.PIPE, text=True) as process:
        try:
            assert process.stdout is not None
            url, mode, times = process.stdout.readline().split()
            file = Path(urllib.parse.urlsplit(url).path)
            assert url.startswith("file:///")
            assert "token" not in url
            assert (mode, times) == ("0o600", "2")
            assert file.exists()
            process.send_signal(end)
            process.wait(PATIENCE)
            assert not file.exists()
        finally:
            process.kill()


_WAITED_FOR = """
import sys, urllib.request, webbrowser
from pathlib import Path
from engram.web import app, serve

def load(url):
    page = address[0].partition("?")[0] + "assets/page.js"
    with urllib.request.urlopen(page, timeout=60) as answer:
        print(answer.status, flush=True)

address = []
app.PAGE, webbrowser.open = Path(sys.argv[1]), load
serve(sys.argv[2], port=0, ready=address.append, open_browser=True)
"""


def test_a_browser_that_is_waited_for_finds_the_page(pool: engram.Pool, tmp_path: Path) -> None:
    (tmp_path / "index.html").write_text(INDEX)
    (tmp_path / "assets").mkdir()
    (tmp_path / "assets" / "page.js").write_text("'use strict'")
    words = [sys.executable, "-c", _WAITED_FOR, str(tmp_path), pool.path]
    with subprocess.Popen(words, stdout=subprocess.PIPE, text=True) as process:
        try:
            assert process.stdout is not None
            assert process.stdout.readline() == "200\n"
        finally:
            process.kill()


def test_importing_the_package_loads_nothing_of_it() -> None:
    program = (
        "import sys, engram, engram.web; "
        "print([m for m in ('starlette', 'uvicorn', 'engram.web.app') if m in sys.modules])"
    )
    told = subprocess.run(
        [sys.executable, "-c", program], capture_output=True, text=True, check=True
    )
    assert told.stdout.strip() == "[]"
    program = "import sys, engram; print('engram.web' in sys.modules)"
    told = subprocess.run(
        [sys.executable, "-c", program], capture_output=True, text=True, check=True
    )
    assert told.stdout.strip() == "False"


def test_a_server_ends_while_pages_listen(
    pool: engram.Pool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with served(monkeypatch, tmp_path, pool.path) as browser:
        listener = Listener(browser)
        listener.next("space")
        ended: list[Any] = []
        thread = threading.Thread(target=lambda: ended.append(listener.ends()))
        thread.start()
    thread.join(PATIENCE)
    assert ended == [True]
    listener.close()
