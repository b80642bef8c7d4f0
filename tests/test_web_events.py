"""Events: a page hears of commits of other processes, and of a pool that goes away."""

from __future__ import annotations

import asyncio
import shutil
import subprocess
import sys
import threading
import time
from contextlib import ExitStack, closing
from typing import TYPE_CHECKING, Any

import pytest

pytest.importorskip("starlette", reason="engram[web] is not installed")
pytest.importorskip("uvicorn", reason="engram[web] is not installed")

import engram
from engram.web import app, events
from engram.web.events import Event, Hub
from engram.web.refusal import RefusedError
from engram.web.served import Shelf
from support import PATIENCE
from web_client import Browser, Listener, served

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path


@pytest.fixture
def browser(
    pool: engram.Pool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> Iterator[Browser]:
    with served(monkeypatch, tmp_path, pool.path) as made:
        yield made


def elsewhere(pool: engram.Pool, program: str) -> None:
    """Run a program with the pool open, in another process."""
    text = f"import sys, engram\nwith engram.open(sys.argv[1]) as pool:\n    {program}"
    subprocess.run([sys.executable, "-c", text, pool.path], check=True)


def test_a_commit_of_another_process_arrives(pool: engram.Pool, browser: Browser) -> None:
    with closing(Listener(browser, "0")) as listener:
        assert listener.answer.status == 200
        assert listener.answer.headers["content-type"].startswith("text/event-stream")
        assert listener.next("space")["objects"] == 0
        elsewhere(pool, "pool['run/new <b>'] = [1, 2]")
        assert listener.next("change") == {"pool": "0", "names": ["run/new <b>"], "more": 0}
        told = listener.next("space")
        assert (told["pool"], told["objects"]) == ("0", 1)
        assert told["used"] + told["free"] == pool.size


def test_what_makes_no_new_object_arrives_too(pool: engram.Pool, browser: Browser) -> None:
    pool["a"] = [1]
    pool["b"] = [1]
    with closing(Listener(browser)) as listener:
        listener.next("space")
        for program in ("pool['a'].attrs['x'] = 1", "pool['a'][0] = 5", "del pool['b']"):
            time.sleep(2 * events.REST_S)  # so that the watch is at rest
            elsewhere(pool, program)
            told = listener.next("change")
            assert (told["pool"], told["names"], told["more"]) == ("0", [], 0)


def test_many_commits_are_told_as_few_events(pool: engram.Pool, browser: Browser) -> None:
    with closing(Listener(browser)) as listener:
        listener.next("space")
        with pool.batch():
            for number in range(1000):
                pool[f"a{number:04}"] = [number]
        told = listener.next("change")
        assert len(told["names"]) == 100
        assert told["more"] == 900


def test_three_pages_have_one_watch(pool: engram.Pool, browser: Browser) -> None:
    with ExitStack() as last:
        listeners = [last.enter_context(closing(Listener(browser))) for _ in range(3)]
        for each in listeners:
            each.next("space")
        watches = [each for each in threading.enumerate() if each.name == "engram-web-watch"]
        assert len(watches) == 1
        pool["new"] = [1]
        for each in listeners:
            assert each.next("change")["names"] == ["new"]
    _wait_for_no_watch()
    with closing(Listener(browser)) as again:  # and one that comes later has one, too
        again.next("space")
        pool["newer"] = [1]
        assert again.next("change")["names"] == ["newer"]


def _wait_for_no_watch() -> None:
    """Wait until the watch has seen that nobody listens; the server sees it as it sends."""
    until = time.monotonic() + PATIENCE
    while any(each.name == "engram-web-watch" for each in threading.enumerate()):
        assert time.monotonic() < until, "the watch goes on though nobody listens"
        time.sleep(0.05)


def test_pages_hear_of_the_pools_that_they_ask_for(
    pool: engram.Pool, home: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with (
        engram.create(home / "other", size="16 MiB", force=True) as other,
        served(monkeypatch, tmp_path, pool.path, other.path) as browser,
        closing(Listener(browser, "1")) as one,
        closing(Listener(browser)) as both,
    ):
        assert one.next("space")["pool"] == "1"
        assert {both.next("space")["pool"] for _ in range(2)} == {"0", "1"}
        pool["a"] = [1]
        assert both.next("change")["pool"] == "0"
        other["b"] = [1]
        assert one.next("change") == {"pool": "1", "names": ["b"], "more": 0}
        assert both.next("change")["names"] == ["b"]
        assert browser.get("events", pools="0,7").status == 404


def test_a_pool_that_goes_away_is_told_and_the_others_are_watched_on(
    pool: engram.Pool, home: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    place = home / "other"
    engram.create(place, size="16 MiB", force=True).close()
    with (
        served(monkeypatch, tmp_path, pool.path, place) as browser,
        closing(Listener(browser)) as listener,
    ):
        assert {listener.next("space")["pool"] for _ in range(2)} == {"0", "1"}
        shutil.rmtree(place)
        gone = listener.next("gone")
        assert gone["pool"] == "1"
        assert str(place) in gone["message"]
        assert browser.get("api/p/1/members").status == 410
        pool["a"] = [1]
        assert listener.next("change")["pool"] == "0"


def test_so_many_pages_listen_and_no_more(
    browser: Browser, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(events, "CLIENTS_MOST", 2)
    with ExitStack() as last:
        for _ in range(2):
            last.enter_context(closing(Listener(browser))).next("space")
        answer = browser.get("events")
        assert (answer.status, answer.json["error"]) == (503, "TooMany")


def test_a_watch_that_fails_begins_anew_and_takes_its_time(
    pool: engram.Pool,
    browser: Browser,
    monkeypatch: pytest.MonkeyPatch,
    caplog: pytest.LogCaptureFixture,
) -> None:
    rests: list[float] = []
    failures = iter(range(3))
    taken, wait = events._taken, threading.Event.wait

    def fail(*given: Any) -> Any:
        for _ in failures:
            raise ZeroDivisionError("on purpose")
        return taken(*given)

    def rest(event: threading.Event, seconds: float | None = None) -> bool:
        if seconds == events._AGAIN_S:
            rests.append(seconds)
            return event.is_set()
        return wait(event, seconds)

    monkeypatch.setattr(events, "_AGAIN_S", 1.25)
    monkeypatch.setattr(events, "_taken", fail)
    monkeypatch.setattr(threading.Event, "wait", rest)
    with closing(Listener(browser)) as listener:
        listener.next("space")
        for number in range(3):
            pool[f"a{number}"] = [1]
            assert listener.next("change") == {"pool": "0", "names": [], "more": 1}
        pool["last"] = [1]
        assert "last" in listener.next("change")["names"]
    assert len(rests) == 3
    assert caplog.text.count("is not watched: ZeroDivisionError") == 3


async def test_pages_count_before_their_streams_begin(
    pool: engram.Pool, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(events, "CLIENTS_MOST", 2)
    shelf = Shelf([pool.path])
    hub = Hub(shelf)
    there = frozenset({"0"})

    async def away(message: object) -> None:
        raise ConnectionResetError(message)

    async def never() -> dict[str, str]:
        await asyncio.Event().wait()
        return {}

    one, two = app._Stream(hub, there), app._Stream(hub, there)
    with pytest.raises(RefusedError, match="2 pages listen already"):
        app._Stream(hub, there)
    with pytest.raises(BaseException):  # noqa: B017, PT011 - a group of errors, or one
        await one({"type": "http"}, never, away)  # it goes before anything is sent
    app._Stream(hub, there)
    hub.close()
    del two
    shelf.close()


def test_a_quiet_stream_says_that_it_is_there(
    browser: Browser, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(events, "HEARTBEAT_S", 0.05)
    with closing(Listener(browser)) as listener:
        lines = iter(listener.answer.readline, b"")
        assert next(line for line in lines if line.startswith(b":"))


async def test_a_page_that_does_not_keep_up_is_told_that_it_missed_some(
    pool: engram.Pool, monkeypatch: pytest.MonkeyPatch
) -> None:
    shelf = Shelf([pool.path])
    hub = Hub(shelf)
    monkeypatch.setattr(hub, "_watch", lambda _: None)
    stream = hub.stream(hub.listen(frozenset({"0"})))
    assert await anext(stream) == b"retry: 2000\n\n"
    assert b"event: space" in await anext(stream)
    for number in range(1000):
        hub._tell(Event("change", "0", {"names": [str(number)], "more": 0}))
    await asyncio.sleep(0)
    told = [await anext(stream)]
    while len(told) < events._QUEUE + 5 and b'"names":[]' not in told[-1]:
        told.append(await asyncio.wait_for(anext(stream), PATIENCE))
    assert b'"names":[],"more":1' in told[-1]
    assert len(told) <= events._QUEUE + 2
    hub.close()
    with pytest.raises(StopAsyncIteration):
        await asyncio.wait_for(anext(stream), PATIENCE)
    shelf.close()
