"""Collecting by itself: a thread deletes what nothing leads to, and nothing that is in hand."""

from __future__ import annotations

import gc
import logging
import os
import random
import signal
import subprocess
import sys
import threading
import time
from typing import TYPE_CHECKING, Any

import pytest

import engram
from engram import _engram, active
from engram.active import collecting
from engram.active.stored import collect
from engram.active.stored.home import home_of
from engram.active.stored.layout import OBJECTS
from support import PATIENCE
from test_active_gc import Node, assert_no_reference_dangles, count, node

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

QUICK = {"every": 0.01, "older_than": 0.0}


def until(happened: Callable[[], object]) -> None:
    """Wait until something has happened."""
    end = time.monotonic() + PATIENCE
    while not happened():
        assert time.monotonic() < end, "it does not happen"
        threading.Event().wait(0.01)


def rounds(collector: active.Collector, number: int = 3) -> None:
    """Wait for some more rounds."""
    before = collector.done.rounds
    until(lambda: collector.done.rounds >= before + number)


def test_what_is_unreachable_goes_and_what_is_named_or_in_hand_stays(pool: engram.Pool) -> None:
    root, kept, dropped = node("root"), node(), node()
    root.links, kept.links = [node()], node()
    dropped.links = dropped
    with active.collect(pool, **QUICK) as collector:
        rounds(collector)
        assert count(pool) == 5
        del dropped
        gc.collect()
        until(lambda: count(pool) == 4)
        root.links = None
        until(lambda: count(pool) == 3)
        rounds(collector)
        assert kept.links.data.sum() == 0
        kept.links = None
        until(lambda: count(pool) == 2)
        rounds(collector)
        assert collector.is_running
        assert "every" in repr(collector)
    assert not collector.is_running
    assert "ended" in repr(collector)
    assert collector.done == collector.stop()
    assert collector.done[1:] == (0, 3, 2400, None)


def test_what_is_young_stays(pool: engram.Pool) -> None:
    node()
    with active.collect(pool, every=0.01) as collector:
        rounds(collector)
    assert count(pool) == 1


def test_a_young_object_keeps_no_others(pool: engram.Pool) -> None:
    with active.collect(pool, every=0.01, older_than=1.0) as collector:
        until(lambda: node() and collector.done.objects >= 3)
        assert count(pool) > 0  # those that were made last
    assert collector.done.error is None


def test_what_was_just_taken_out_of_a_list_stays_for_a_while(pool: engram.Pool) -> None:
    root, aged = node("root"), node()
    root.links = [aged]
    with active.collect(pool, every=0.01, older_than=1.0) as collector:
        number, handle = aged.get_id(), aged._gid
        changed = _engram.group_info(home_of(pool).namespace, handle).modified
        until(lambda: time.time_ns() - changed > 2_000_000_000)
        root.links = None
        del aged
        gc.collect()
        rounds(collector, 1)
        assert Node.get_by_id(str(number)).data.sum() == 0  # as another process may have it
        until(lambda: count(pool) == 1)


def test_a_snapshot_that_is_given_up_is_a_failure(
    pool: engram.Pool, monkeypatch: pytest.MonkeyPatch
) -> None:
    def busy(*_: Any, **__: Any) -> Any:
        raise engram.BusyError("the snapshot was given up")

    node()
    gc.collect()
    monkeypatch.setattr(collecting, "collected_at", busy)
    with active.collect(pool, **QUICK) as collector:
        until(lambda: collector.done.error is not None)
        assert collector.done.skipped == 0
    monkeypatch.undo()


def test_a_mark_ends_when_the_collector_is_stopped(
    pool: engram.Pool, monkeypatch: pytest.MonkeyPatch
) -> None:
    nodes = [node(f"n{number}") for number in range(20)]
    begun, looked = threading.Event(), []
    references = collect.references

    def slow(*words: Any) -> Any:
        begun.set()
        looked.append(words)
        assert collector._over.wait(PATIENCE)
        return references(*words)

    monkeypatch.setattr(collect, "references", slow)
    collector = active.collect(pool, **QUICK)
    assert begun.wait(PATIENCE)
    collector.stop()
    assert len(looked) == 1
    assert len(nodes) == count(pool)


def test_what_is_in_hand_by_another_opening_or_come_into_hand_since_stays(
    pool: engram.Pool, monkeypatch: pytest.MonkeyPatch
) -> None:
    lost, path = node().get_id(), pool.path
    pool.close()
    gc.collect()
    with engram.open(path, mode="r") as earlier:
        reading = Node.get_by_id(str(lost), pool=earlier)
        with engram.open(path, mode="r+") as later:
            assert home_of(later) is not reading._home
            with active.collect(later, **QUICK) as collector:
                rounds(collector)
            assert reading.data.sum() == 0
    with engram.open(path, mode="r+") as again, active.use(again):
        _come_into_hand(again, monkeypatch)


def _come_into_hand(pool: engram.Pool, monkeypatch: pytest.MonkeyPatch) -> None:
    found: list[Node] = []
    other = node().get_id()
    gc.collect()
    joined = collect._joined

    def and_then_get(*words: Any) -> Any:
        made = joined(*words)
        found.append(Node.get_by_id(str(other)))
        return made

    monkeypatch.setattr(collect, "_joined", and_then_get)
    with active.collect(pool, **QUICK) as collector:
        until(lambda: found)
        rounds(collector)
    assert found[0].data.sum() == 0


def test_a_round_is_skipped_while_another_collector_has_the_lock(pool: engram.Pool) -> None:
    node()
    gc.collect()
    group = home_of(pool).group(OBJECTS)
    with _engram.Lock(pool._namespace, True, group, "w", None):
        collector = active.collect(pool, **QUICK)
        until(lambda: collector.done.skipped >= 2)
        assert count(pool) == 1
    until(lambda: count(pool) == 0)
    collector.stop()


def test_a_failed_round_is_told_and_the_next_goes_on(
    pool: engram.Pool, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    node()
    gc.collect()
    told = threading.Event()

    def fails(*_: Any, **__: Any) -> Any:
        told.set()
        raise ValueError("no fuel")

    with caplog.at_level(logging.WARNING, "engram.active"):
        monkeypatch.setattr(collecting, "collected_at", fails)
        with active.collect(pool, **QUICK) as collector:
            until(lambda: collector.done.error is not None)
            assert str(collector.done.error) == "no fuel"
            monkeypatch.undo()
            until(lambda: count(pool) == 0)
            until(lambda: collector.done.error is None)
    assert any("failed: no fuel" in record.getMessage() for record in caplog.records)


def test_it_ends_with_the_pool_and_is_not_a_childs(home: Path) -> None:
    with engram.create(home / "other", size="16 MiB") as pool:
        collector = active.collect(pool, **QUICK)
        pid = os.fork()
        if pid == 0:
            there = collector.is_running or collector.stop() is None or not collector.wait()
            os._exit(1 if there else 0)
        assert os.waitpid(pid, 0)[1] == 0
        assert collector.is_running
        assert not collector.wait(0)
    assert collector.wait(PATIENCE)
    assert collector.done.error is None


def test_what_cannot_be_is_refused_at_once(pool: engram.Pool) -> None:
    wrong: list[tuple[dict[str, Any], str]] = [
        ({"every": 0}, "every 0 is no time: give a number of seconds greater than 0"),
        ({"every": float("nan")}, "every nan"),
        ({"every": "60"}, "every '60'"),
        ({"older_than": -1}, "older_than -1 is no time: give a number of seconds from 0 on"),
        ({"pool": pool.path}, "no place of active objects"),
    ]
    for words, told in wrong:
        with pytest.raises(engram.ArgumentError, match=told):
            active.collect(**{"pool": pool, **words})
    with (
        engram.open(pool.path, mode="r") as reading,
        pytest.raises(engram.ReadOnlyError, match="read-only"),
    ):
        active.collect(reading)


COLLECTOR = """
import sys, threading, engram
pool = engram.open(sys.argv[1], mode="r+")
engram.active.collect(pool, every=0.01, older_than=0.5)
print("begun", flush=True)
threading.Event().wait()
"""


def _collector(path: str) -> subprocess.Popen[str]:
    made = subprocess.Popen(
        [sys.executable, "-c", COLLECTOR, path], stdout=subprocess.PIPE, text=True
    )
    assert made.stdout is not None
    assert made.stdout.readline() == "begun\n"
    return made


def test_a_program_ends_while_it_collects(pool: engram.Pool) -> None:
    code = COLLECTOR.replace("threading.Event().wait()", "")
    words = [sys.executable, "-c", code, pool.path]
    done = subprocess.run(words, check=True, capture_output=True, text=True)
    assert (done.stdout, done.stderr) == ("begun\n", "")


def test_collectors_that_are_killed_lose_nothing_and_leave_nothing(pool: engram.Pool) -> None:
    rng = random.Random(1)  # noqa: S311 - no secret
    roots = [node(f"root {number}") for number in range(3)]
    collectors = [_collector(pool.path) for _ in range(2)]
    try:
        for step in range(60):
            root = rng.choice(roots)
            root.links = rng.choice([None, [node(links=["x" * 5000, node()])]])
            if step % 6 == 5:
                victim = collectors.pop(0)
                victim.kill()
                victim.communicate()
                assert victim.returncode == -signal.SIGKILL
                collectors.append(_collector(pool.path))
            for each in roots:
                for one in each.links or ():
                    assert one.links[1].data.sum() == 0
        for root in roots:
            root.links = node()
        until(lambda: count(pool) == 6)
        assert_no_reference_dangles(pool)
        assert all(root.links.data.sum() == 0 for root in roots)
    finally:
        for left in collectors:
            left.kill()
            left.communicate()
    path = pool.path
    pool.close()
    engram.verify(path).check()
