"""The web page's server: who may ask, what it is called, how it begins and ends."""

from __future__ import annotations

import asyncio
import base64
import http.client
import logging
import os
import select
import shutil
import signal
import socket
import ssl
import subprocess
import sys
import threading
import time
import urllib.error
import urllib.parse
import urllib.request
from contextlib import ExitStack, closing, suppress
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import pytest

pytest.importorskip("starlette", reason="engram[web] is not installed")
pytest.importorskip("uvicorn", reason="engram[web] is not installed")

import engram
from engram import web
from engram.attrs import Attributes
from engram.errors import AccessError, ArgumentError, BusyError, NotFoundError, UnsupportedError
from engram.web import app, connection, door, guard, server, working
from engram.web.refusal import RefusedError
from shell import run
from support import PATIENCE
from web_client import INDEX, Browser, Listener, served

if TYPE_CHECKING:
    from collections.abc import Iterator


@pytest.fixture
def browser(
    pool: engram.Pool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> Iterator[Browser]:
    pool["a"] = np.arange(6.0).reshape(2, 3)
    with served(monkeypatch, tmp_path, pool.path) as made:
        yield made


def test_the_page_opens_with_the_token_and_goes_on_with_its_cookie(browser: Browser) -> None:
    first = browser.ask(f"/?token={browser.token}")
    assert (first.status, first.headers["location"]) == (303, "./")
    cookie = first.headers["set-cookie"]
    assert cookie.startswith(f"engram-{browser.port}=")
    assert {"HttpOnly", "SameSite=Lax", "Path=/"} <= set(cookie.split("; "))
    assert browser.token not in cookie
    word = cookie.partition(";")[0]
    page = browser.ask("/", headers={"Cookie": word})
    assert (page.status, page.body.decode()) == (200, INDEX)
    again = browser.ask("/api/pools", headers={"Cookie": word})
    assert again.status == 200
    assert "set-cookie" not in again.headers
    assert browser.ask("/api/pools", headers={"Cookie": f"{word}x"}).status == 401


def test_the_token_leaves_the_address_and_what_else_is_there_stays(browser: Browser) -> None:
    asked = f"/?a=%26b&token={browser.token}&c="
    assert browser.ask(asked).headers["location"] == "./?a=%26b&c="
    assert browser.ask("/?a=1", headers=browser.known()).status == 200
    assert "location" not in browser.ask("/?token=wrong").headers


@pytest.mark.parametrize("site", ["cross-site", "same-site"])
def test_a_link_of_another_site_opens_the_page_and_nothing_else(
    browser: Browser, site: str
) -> None:
    word = browser.ask(f"/?token={browser.token}").headers["set-cookie"].partition(";")[0]
    said = {"Cookie": word, "Sec-Fetch-Site": site, "Sec-Fetch-Mode": "navigate"}
    assert browser.ask("/", headers=said).status == 200
    for path in ("/api/pools", "/api/p/0/members", "/api/p/0/download?path=a", "/events"):
        assert browser.ask(path, headers=said).json["error"] == "OriginRefused"
    change = said | {"X-Engram": "1"}
    assert browser.ask("/api/p/0/delete?path=a", "POST", headers=change).status == 403


def test_what_says_two_things_of_where_it_comes_from_is_refused(browser: Browser) -> None:
    known = f"Authorization: Bearer {browser.token}"
    own = f"Origin: http://{browser.host}:{browser.port}"
    evil = "Origin: http://evil.example"
    sites = [f"Sec-Fetch-Site: {each}" for each in ("cross-site", "none")]
    assert _status(browser, "/api/pools", known, own) == 200
    for lines in ((own, evil), (evil, own), sites, sites[::-1]):
        assert _status(browser, "/api/pools", known, *lines) == 403


@pytest.mark.parametrize(
    "others",
    ["a[b]=1; MINE", 'x={"a": 1}; MINE', "NAME=stale; MINE", "MINE; NAME=stale", "\u00e9; MINE"],
)
def test_cookies_of_other_servers_of_the_host_lock_nobody_out(
    browser: Browser, others: str
) -> None:
    first = browser.ask(f"/?token={browser.token}")
    word = first.headers["set-cookie"].partition(";")[0]
    name = word.partition("=")[0]
    said = others.replace("MINE", word).replace("NAME", name)
    assert browser.ask("/api/pools", headers={"Cookie": said}).status == 200
    wrong = said.replace(word, f"{word}x")
    assert browser.ask("/api/pools", headers={"Cookie": wrong}).status == 401


def test_cookies_in_several_headers_are_all_read(browser: Browser) -> None:
    word = browser.ask(f"/?token={browser.token}").headers["set-cookie"].partition(";")[0]
    for cookies in ((word, "x=1"), ("x=1", word)):
        assert _status(browser, "/api/pools", *(f"Cookie: {each}" for each in cookies)) == 200


def _status(browser: Browser, path: str, *lines: str) -> int:
    """Ask with these lines of headers as they stand, also several of one name."""
    host = (
        ()
        if any(each.startswith("Host:") for each in lines)
        else (f"Host: {browser.host}:{browser.port}",)
    )
    head = "\r\n".join((f"GET {path} HTTP/1.1", *host, *lines, "", ""))
    with socket.create_connection((browser.host, browser.port), PATIENCE) as connection:
        connection.sendall(head.encode("latin-1"))
        return int(connection.recv(4096).split()[1])


@pytest.mark.parametrize("token", ["", "x", "a" * 43, "\u00e9"])
def test_without_the_token_nothing_is_told(browser: Browser, token: str) -> None:
    query = urllib.parse.quote(token)
    page = browser.ask(f"/?token={query}")
    assert page.status == 401
    assert b"engram serve" in page.body
    assert "set-cookie" not in page.headers
    for path in ("/api/pools", "/api/p/0/members", "/events", "/nothing", "/api/p/9/delete"):
        answer = browser.ask(f"{path}?token={query}")
        assert (answer.status, answer.json["error"]) == (401, "TokenMissing")
        assert "set-cookie" not in answer.headers


def test_files_of_the_page_need_no_token_and_no_others_are_given(browser: Browser) -> None:
    script = browser.ask("/assets/page.js")
    assert (script.status, script.headers["content-type"]) == (
        200,
        "text/javascript; charset=utf-8",
    )
    for path in ("/assets/../index.html", "/assets/../../web_client.py", "/assets/%2e%2e/x.js"):
        assert browser.ask(path).status == 404
    assert browser.ask("/assets//etc/passwd").status == 404


@pytest.mark.parametrize(
    "name", ["%00.js", "x" * 5000 + ".js", "x/" * 2000 + "a.js", "%ff.js", "page.js/x.js"]
)
def test_what_can_be_no_file_of_the_page_is_not_there(
    browser: Browser, capfd: pytest.CaptureFixture[str], name: str
) -> None:
    assert browser.ask(f"/assets/{name}").status == 404
    assert "Traceback" not in "".join(capfd.readouterr())


def test_requests_cannot_flood_the_log(
    browser: Browser, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    for each in connection._logger.filters:
        monkeypatch.setattr(each, "_due", {})
    upgrade = ("Connection: upgrade", "Upgrade: x")
    for _ in range(20):
        assert _status(browser, "/", "no header") == 400
        assert _status(browser, "/", *upgrade) == 401
    texts = [record.getMessage() for record in caplog.records]
    assert 0 < len(texts) <= 5
    assert len(set(texts)) == len(texts)


@pytest.mark.parametrize(
    "host",
    [
        *("evil.example", "evil.example:PORT", "127.0.0.1:1", "localhost", "", "localhost:"),
        *("127.0.0.1.evil:PORT", "evil@127.0.0.1:PORT", "127.0.0.1:PORT#evil", "127.0.0.1:PORT/x"),
        *(
            "127.0.0.1:PORT?evil",
            "[::1]evil:PORT",
            "[::1:PORT",
            "127.0.0.1:+PORT",
            "@localhost:PORT",
        ),
    ],
)
def test_a_host_that_is_not_the_servers_is_refused(browser: Browser, host: str) -> None:
    named = {"Host": host.replace("PORT", str(browser.port))}
    answer = browser.ask("/api/pools", headers=browser.known() | named)
    assert (answer.status, answer.json["error"]) == (403, "HostRefused")


@pytest.mark.parametrize("host", ["127.0.0.1", "localhost", "LOCALHOST", "[::1]", "127.8.9.1"])
def test_loopback_names_are_the_servers(browser: Browser, host: str) -> None:
    named = {"Host": f"{host}:{browser.port}"}
    assert browser.ask("/api/pools", headers=browser.known() | named).status == 200


@pytest.mark.parametrize(
    "origin",
    [
        *("http://evil.example", "null", "http://127.0.0.1:1", "https://127.0.0.1:PORT", ""),
        *("http://evil@127.0.0.1:PORT", "http://127.0.0.1:PORT/", "//127.0.0.1:PORT"),
        *("ftp://127.0.0.1:PORT", "http://127.0.0.1:PORT, http://evil.example"),
    ],
)
def test_pages_of_other_sites_are_refused(browser: Browser, origin: str) -> None:
    named = {"Origin": origin.replace("PORT", str(browser.port))}
    answer = browser.ask("/api/pools", headers=browser.known() | named)
    assert (answer.status, answer.json["error"]) == (403, "OriginRefused")
    own = {"Origin": f"http://127.0.0.1:{browser.port}"}
    assert browser.ask("/api/pools", headers=browser.known() | own).status == 200


@pytest.mark.parametrize("site", ["cross-site", "same-site"])
def test_what_a_browser_fetches_for_another_site_is_refused(browser: Browser, site: str) -> None:
    said = browser.known() | {"Sec-Fetch-Site": site, "Sec-Fetch-Mode": "no-cors"}
    assert browser.ask("/api/pools", headers=said).status == 403
    opening = browser.known() | {"Sec-Fetch-Site": site, "Sec-Fetch-Mode": "navigate"}
    assert browser.ask("/", headers=opening).status == 200
    assert browser.ask("/api/pools", headers=opening).status == 403


def test_every_answer_keeps_others_out(browser: Browser) -> None:
    for path, headers in (
        ("/", browser.known()),
        ("/api/pools", browser.known()),
        ("/api/pools", {}),
        ("/api/pools", {"Host": "evil"}),
        ("/assets/page.js", {}),
        ("/assets/none.js", {}),
    ):
        found = browser.ask(path, headers=headers).headers
        policy = found["content-security-policy"]
        assert "default-src 'none'" in policy
        assert "unsafe" not in policy
        assert found["x-content-type-options"] == "nosniff"
        assert found["referrer-policy"] == "no-referrer"
        assert found["cross-origin-resource-policy"] == "same-origin"
        assert "access-control-allow-origin" not in found
        assert ("cache-control" in found) == (not path.startswith("/assets/"))


@pytest.mark.parametrize("method", ["PUT", "DELETE", "OPTIONS", "PATCH"])
def test_other_methods_are_refused(browser: Browser, method: str) -> None:
    assert browser.ask("/api/pools", method, headers=browser.known()).status == 405


def test_changes_are_refused_where_all_is_for_reading(browser: Browser, pool: engram.Pool) -> None:
    answer = browser.post("delete", path="a")
    assert (answer.status, answer.json["error"]) == (403, "ReadOnlyError")
    assert "--write" in answer.json["remedy"]
    assert "a" in pool
    assert browser.get("api/p/0/delete", path="a").status == 404
    assert "a" in pool


def test_changes_need_their_header_and_are_bounded(
    pool: engram.Pool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    pool["a"] = [1]
    with served(monkeypatch, tmp_path, pool.path, write=True) as browser:
        assert browser.post("delete", headers={}, path="a").status == 403
        assert "a" in pool
        path = "/api/p/0/attr?path=a"
        said = browser.known() | {"X-Engram": "1", "Content-Length": str(app.BODY_MOST + 1)}
        assert browser.ask(path, "POST", b"", said).status == 413
        chunked = browser.known() | {"X-Engram": "1", "Transfer-Encoding": "chunked"}
        body = b"%x\r\n%b\r\n0\r\n\r\n" % (app.BODY_MOST + 1, b"x" * (app.BODY_MOST + 1))
        answer = browser.ask(path, "POST", body, chunked)
        assert (answer.status, answer.json["error"]) == (413, "TooLarge")
        assert browser.post("attr", [1], path="a").json["error"] == "ArgumentError"
        said = browser.known() | {"X-Engram": "1"}
        for depth in (100_000, 400):
            deep = b'{"set":{"x":' + b"[" * depth + b"]" * depth + b"}}"
            answer = browser.ask(path, "POST", deep, said)
            assert (answer.status, answer.json["error"]) == (400, "ArgumentError")
        assert browser.post("delete", path="a").json == {"done": True}
        assert "a" not in pool


def test_attributes_are_set_though_others_change_them_at_once(
    pool: engram.Pool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    pool["g/a"] = [1]
    update, rounds = Attributes.update, iter(range(3))

    def change(attrs: Attributes, values: dict[str, Any]) -> None:
        update(attrs, values)
        for each in rounds:  # another thread has a commit of its own, as another process has
            given = pool["g"].attrs, {"other": each}
            other = threading.Thread(target=update, args=given)
            other.start()
            other.join()
            return

    with served(monkeypatch, tmp_path, pool.path, write=True) as browser:
        monkeypatch.setattr(Attributes, "update", change)
        assert browser.post("attr", {"set": {"k": 7}}, path="g").status == 200
        assert dict(pool["g"].attrs) == {"k": 7, "other": 2}


@pytest.mark.parametrize(
    ("text", "value"),
    [
        *(("1.0", 1.0), ("1", 1), ("9007199254740993", 9007199254740993), ("-0.0", -0.0)),
        *(("true", True), ('"1"', "1"), ("a b", "a b"), ("", ""), ("NaN", "NaN"), ("[1", "[1")),
        ("[" * 100_000, "[" * 100_000),
    ],
)
def test_what_is_typed_becomes_the_value_that_it_says(
    pool: engram.Pool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, text: str, value: object
) -> None:
    pool["a"] = [1]
    with served(monkeypatch, tmp_path, pool.path, write=True) as browser:
        assert browser.post("attr", {"texts": {"k": text}}, path="a").status == 200
        found = pool["a"].attrs["k"]
        found = found.item() if isinstance(found, np.generic) else found
        assert (type(found), str(found)) == (type(value), str(value))
        for wrong in ({"texts": {"k": 1}}, {"texts": [1]}, {"texts": {"k": "null"}}):
            assert browser.post("attr", wrong, path="a").json["error"] == "ArgumentError"


def test_addresses_are_bounded(browser: Browser) -> None:
    answer = browser.ask(f"/api/pools?x={'x' * guard.QUERY_MOST}", headers=browser.known())
    assert (answer.status, answer.json["error"]) == (413, "TooLarge")
    with socket.create_connection((browser.host, browser.port), PATIENCE) as connection:
        connection.sendall(b"GET / HTTP/1.1\r\nHost: x\r\n" + b"a: " + b"x" * (1 << 20))
        connection.settimeout(PATIENCE)
        assert b" 400 " in connection.recv(4096).split(b"\r\n")[0]


def test_tokens_are_long_and_others_each_time(
    pool: engram.Pool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    tokens = set()
    for _ in range(3):
        with served(monkeypatch, tmp_path, pool.path) as browser:
            tokens.add(browser.token)
    assert len(tokens) == 3
    assert all(len(each) >= 43 for each in tokens)


def test_no_log_has_the_token(
    pool: engram.Pool,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    caplog: pytest.LogCaptureFixture,
    capfd: pytest.CaptureFixture[str],
) -> None:
    def fail(*_: object) -> None:
        raise ZeroDivisionError("on purpose")

    caplog.set_level(logging.DEBUG)
    with served(monkeypatch, tmp_path, pool.path) as browser:
        monkeypatch.setattr("engram.web.objects.about", fail)
        answer = browser.ask(f"/api/p/0/object?path=&token={browser.token}")
        assert (answer.status, answer.json["error"]) == (500, "ZeroDivisionError")
        assert "on purpose" not in str(answer.json)
        browser.ask(f"/?token={browser.token}")
        with socket.create_connection((browser.host, browser.port), PATIENCE) as connection:
            connection.sendall(f"GET /?token={browser.token} nonsense\r\n\r\n".encode())
            connection.recv(4096)
        said = caplog.text + "".join(capfd.readouterr())
        assert "ZeroDivisionError" in caplog.text
        assert browser.token not in said


def test_a_server_shows_itself_without_its_token(
    pool: engram.Pool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with served(monkeypatch, tmp_path, pool.path), web.start(pool.path) as other:
        assert "token" in other.url
        assert "token" not in repr(other)
        other.close()


def test_a_prefix_is_seen_whether_a_proxy_takes_it_away_or_not(
    pool: engram.Pool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    options = {"prefix": "/user/ada/proxy/1/", "allow_hosts": ["hub.example.org"]}
    with served(monkeypatch, tmp_path, pool.path, **options) as browser:
        assert browser.base == "/user/ada/proxy/1/"
        known = browser.known() | {"Host": "hub.example.org"}
        whole = browser.ask("/user/ada/proxy/1/api/pools", headers=known)
        assert whole.status == browser.ask("/api/pools", headers=known).status == 200
        assert "Path=/user/ada/proxy/1;" in whole.headers["set-cookie"]
        opened = browser.ask(f"/user/ada/proxy/1/?token={browser.token}", headers=known)
        assert (opened.status, opened.headers["location"]) == (303, "./")
        bare = browser.ask("/user/ada/proxy/1?token=x", headers={"Host": "hub.example.org"})
        assert (bare.status, bare.headers["location"]) == (307, "/user/ada/proxy/1/?token=x")
        for host in ("hub.example.org:8443", "HUB.example.org"):
            assert browser.ask("/api/pools", headers=known | {"Host": host}).status == 200
        assert browser.ask("/api/pools", headers=known | {"Host": "x.example.org"}).status == 403
        own = known | {"Origin": "https://hub.example.org"}
        assert browser.ask("/api/pools", headers=own).status == 200


@pytest.mark.parametrize(
    ("prefix", "asked"),
    [
        ("/user/ada%40example.org", "/user/ada%40example.org"),
        ("/user/ada%40example.org", "/user/ada@example.org"),
        ("/user/ada@example.org", "/user/ada%40example.org"),
        ("/user/%c3%a4da", "/user/%C3%A4da"),
    ],
)
def test_a_prefix_is_seen_however_it_is_written(
    pool: engram.Pool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, prefix: str, asked: str
) -> None:
    with served(monkeypatch, tmp_path, pool.path, prefix=prefix) as browser:
        assert browser.ask(f"{asked}/api/pools", headers=browser.known()).status == 200
        with closing(http.client.HTTPConnection(browser.host, browser.port)) as connection:
            connection.request("GET", "/", headers=browser.known())
            cookies = connection.getresponse().headers.get_all("set-cookie", [])
        assert any(f"; Path={asked};" in each for each in cookies)


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


# Other addresses


def test_other_addresses_need_tls_and_a_password(
    pool: engram.Pool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    certificate, key = _certificate(tmp_path)
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


def test_a_password_opens_the_page_over_tls(
    pool: engram.Pool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    certificate, key = _certificate(tmp_path)
    password = tmp_path / "password"
    password.write_text("correct horse\n")
    password.chmod(0o600)
    monkeypatch.setattr(guard, "_FAILURE_S", 0.0)
    options = {"certificate": certificate, "key": key, "password_file": password}
    # Of all addresses; the connection is made to loopback, by the host's name.
    with served(monkeypatch, tmp_path, pool.path, host="0.0.0.0", **options) as made:  # noqa: S104
        name = socket.gethostname().lower()
        assert made.url == f"https://{name}:{made.port}/"
        context = ssl.create_default_context(cafile=str(certificate))
        context.check_hostname = False

        def ask(word: str | None) -> tuple[int, dict[str, str]]:
            request = urllib.request.Request(f"https://127.0.0.1:{made.port}/api/pools")
            request.add_header("Host", f"{name}:{made.port}")
            if word is not None:
                basic = base64.b64encode(f"ada:{word}".encode()).decode()
                request.add_header("Authorization", f"Basic {basic}")
            try:
                with urllib.request.urlopen(  # noqa: S310 - the address is written here
                    request, context=context, timeout=PATIENCE
                ) as answer:
                    return answer.status, {k.lower(): v for k, v in answer.headers.items()}
            except urllib.error.HTTPError as error:
                with error:
                    return error.code, {k.lower(): v for k, v in error.headers.items()}

        status, headers = ask(None)
        assert status == 401
        assert headers["www-authenticate"].startswith("Basic")
        assert ask("correct horsf")[0] == 401
        assert ask("")[0] == 401
        status, headers = ask("correct horse")
        assert status == 200
        assert "; Secure" in headers["set-cookie"]


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


def _certificate(folder: Path) -> tuple[Path, Path]:
    """Make a certificate for this host that signs itself."""
    if shutil.which("openssl") is None:
        pytest.skip("there is no openssl to make a certificate")
    certificate, key = folder / "cert.pem", folder / "key.pem"
    words = ["req", "-x509", "-newkey", "rsa:2048", "-nodes", "-days", "2", "-subj", "/CN=engram"]
    words += ["-addext", "subjectAltName=IP:127.0.0.1"]
    words += ["-keyout", str(key), "-out", str(certificate)]
    subprocess.run(["openssl", *words], check=True, capture_output=True)
    return certificate, key


# Beginning and end


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


# Bounds in number and time


async def test_so_many_requests_wait_and_no_more() -> None:
    crew = working.Crew(threads=1, waiting=2)
    go = threading.Event()
    waiting = [asyncio.ensure_future(crew.do(lambda _: go.wait(PATIENCE))) for _ in range(3)]
    await asyncio.sleep(0)
    with pytest.raises(RefusedError) as refused:
        await crew.do(lambda _: None)
    assert refused.value.status == 503
    go.set()
    assert await asyncio.gather(*waiting) == [True] * 3
    assert await crew.do(lambda _: 7) == 7
    crew.close()


async def test_work_that_nobody_waits_for_ends() -> None:
    crew = working.Crew(threads=1)
    begun = threading.Event()

    def act(work: working.Work) -> None:
        begun.set()
        while True:
            work.go_on()
            time.sleep(0.001)

    async def gone() -> None:
        await asyncio.get_running_loop().run_in_executor(None, begun.wait, PATIENCE)

    with pytest.raises(RefusedError, match="gone"):
        await crew.do(act, gone)
    crew.close()


def test_work_has_its_time() -> None:
    work = working.Work(patience=-1.0)
    with pytest.raises(RefusedError, match="takes more than") as refused:
        work.go_on()
    assert refused.value.status == 503
    assert refused.value.remedy


def test_a_slow_reader_keeps_nobody_else_waiting(browser: Browser) -> None:
    with ExitStack() as last:
        for _ in range(40):  # connections that say nothing
            last.enter_context(socket.create_connection((browser.host, browser.port), PATIENCE))
        assert browser.get("api/pools").status == 200


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


# Connections that say nothing


def _silent(last: ExitStack, browser: Browser) -> socket.socket:
    made = socket.create_connection((browser.host, browser.port), PATIENCE)
    return last.enter_context(made)


def _asks(connection: socket.socket, browser: Browser) -> bytes:
    """Ask on a connection, which stays open."""
    head = f"GET /api/pools HTTP/1.1\r\nHost: {browser.host}:{browser.port}\r\n"
    connection.sendall(f"{head}Authorization: Bearer {browser.token}\r\n\r\n".encode())
    return connection.recv(4096)


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
    certificate, key = _certificate(tmp_path)
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
    certificate, key = _certificate(tmp_path)
    options = {"certificate": certificate, "key": key}
    with served(monkeypatch, tmp_path, pool.path, **options) as browser, ExitStack() as last:
        silent = _silent(last, browser)
        with suppress(ConnectionResetError):
            assert silent.recv(1) == b""


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
