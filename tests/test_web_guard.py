"""Who may ask the web page's server: its names, other sites, token, cookie and password."""

from __future__ import annotations

import base64
import http.client
import logging
import socket
import ssl
import urllib.error
import urllib.parse
import urllib.request
from contextlib import closing
from typing import TYPE_CHECKING

import numpy as np
import pytest

pytest.importorskip("starlette", reason="engram[web] is not installed")
pytest.importorskip("uvicorn", reason="engram[web] is not installed")

from engram.web import guard
from support import PATIENCE
from web_client import INDEX, Browser, certificate_in, served

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
    assert browser.status("/api/pools", known, own) == 200
    for lines in ((own, evil), (evil, own), sites, sites[::-1]):
        assert browser.status("/api/pools", known, *lines) == 403


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
        assert browser.status("/api/pools", *(f"Cookie: {each}" for each in cookies)) == 200


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


def test_a_password_opens_the_page_over_tls(
    pool: engram.Pool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    certificate, key = certificate_in(tmp_path)
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
