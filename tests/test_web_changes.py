"""Changes from the web page: whether they may be, what they bring along, and what comes of it."""

from __future__ import annotations

import threading
from typing import TYPE_CHECKING, Any

import numpy as np
import pytest

pytest.importorskip("starlette", reason="engram[web] is not installed")
pytest.importorskip("uvicorn", reason="engram[web] is not installed")

from engram.attrs import Attributes
from engram.web import app
from web_client import Browser, served

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
