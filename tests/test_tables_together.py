"""Many processes append to a table, read and compact it, and are killed: no row is lost."""

from __future__ import annotations

import itertools
import os
import signal
import subprocess
import sys
import time
from concurrent.futures import ThreadPoolExecutor
from typing import TYPE_CHECKING, Any

import numpy as np
import pyarrow as pa

import engram
from engram.table import layout, reading, writing
from support import in_child, moments

if TYPE_CHECKING:
    from collections.abc import Callable

    import pytest

WRITER = """
import sys, time
import numpy as np, pyarrow as pa, engram
who, path = int(sys.argv[2]), sys.argv[1]
rng = np.random.default_rng(who)
with engram.open(path) as pool:
    t = pool["t"]
    for step in range(10**9):
        rows = int(rng.choice([1, 3, 50, 500]))
        x = np.arange(rows) + step
        made = {"who": np.full(rows, who), "step": np.full(rows, step), "x": x,
                "rows": np.full(rows, rows), "s": [str(n) for n in x.tolist()],
                "n": pa.array(x, mask=x % 3 == 0)}
        t.append(pa.table(made))
        print(step, flush=True)
        time.sleep(0.001)  # a fast machine is not to fill the pool
"""

COMPACTOR = """
import sys, engram
with engram.open(sys.argv[1]) as pool:
    while True:
        try:
            pool["t"].compact()
        except engram.BusyError:
            pass
        print("c", flush=True)
"""


def check(table: Any) -> dict[int, int]:
    """Check that each append is there once, whole and in order; give the last step of each."""
    found = table.to_pandas()
    last: dict[int, int] = {}
    if not len(found):
        return last
    assert (found["s"].astype("int64") == found["x"]).all()
    assert (found["n"].isna() == (found["x"] % 3 == 0)).all()
    assert (found["n"].dropna() == found["x"][found["n"].notna()]).all()
    for who, mine in found.groupby("who"):
        steps = mine["step"].to_numpy()
        assert (np.diff(steps) >= 0).all(), "in order"
        assert sorted(set(steps)) == list(range(steps.max() + 1)), "none is lost"
        counts = mine.groupby("step").agg({"x": ["count", "min", "sum"], "rows": ["min"]})
        rows = counts["rows", "min"].to_numpy()
        assert (counts["x", "count"].to_numpy() == rows).all(), "whole, and once"
        step = counts.index.to_numpy()
        assert (counts["x", "sum"].to_numpy() == rows * step + rows * (rows - 1) // 2).all()
        last[int(str(who))] = int(steps.max())
    # The rows of an append stand together.
    changes = (np.diff(found["who"]) != 0) | (np.diff(found["step"]) != 0)
    assert changes.sum() + 1 == len(found.groupby(["who", "step"]))
    return last


def started(code: str, *arguments: object) -> subprocess.Popen[str]:
    """Start a process that tells what it has done."""
    return subprocess.Popen(
        [sys.executable, "-c", code, *map(str, arguments)], stdout=subprocess.PIPE, text=True
    )


def ended(children: list[subprocess.Popen[str]]) -> bool:
    """Wait for processes; whether all ended well."""
    for child in children:
        child.communicate()
    return all(child.returncode == 0 for child in children)


def test_killed_writers_leave_each_append_whole_or_not_at_all(pool: engram.Pool) -> None:
    pool["t"] = pa.table(
        {name: pa.array([], pa.int64()) for name in ("who", "step", "x", "rows")}
        | {"s": pa.array([], pa.string()), "n": pa.array([], pa.int64())}
    )
    t = pool["t"]
    acknowledged: dict[int, int] = {}
    for round_, delay in enumerate(moments([0.1, 0.3, 0.5], lambda: len(t) > 0)):
        writers = [started(WRITER, pool.path, 10 * round_ + n) for n in range(3)]
        compactor = started(COMPACTOR, pool.path)
        end = time.monotonic() + 1.0 + delay
        seen = 0
        while time.monotonic() < end:
            found = t.read()
            assert found.num_rows >= seen, "what was there is there"
            seen = found.num_rows
            check(found)
        for child in [*writers, compactor]:
            child.send_signal(signal.SIGKILL)
        for n, child in enumerate(writers):
            said = child.communicate()[0].split()
            if said:
                acknowledged[10 * round_ + n] = int(said[-1])
        compactor.communicate()
        last = check(t.read())
        for who, step in acknowledged.items():
            assert last[who] >= step, "what was acknowledged is there"
    t.compact()
    check(t.read())
    used = {name for name in t.as_group() if name != layout.MARK}
    assert used == {part.name for part in reading.parts(pool._namespace, t._id)}
    path = pool.path
    pool.close()
    engram.verify(path)


def test_appends_of_many_processes_and_threads_never_conflict(pool: engram.Pool) -> None:
    t = pool.create_table("t", schema={"who": "int64", "n": "int64"})
    code = (
        "import sys, engram\n"
        "with engram.open(sys.argv[1]) as pool:\n"
        "    for n in range(100): pool['t'].append({'who': [int(sys.argv[2])], 'n': [n]})\n"
    )
    children = [started(code, pool.path, who) for who in range(3)]

    def some(who: int) -> None:
        for n in range(50):
            t.append({"who": [who], "n": [n]})

    with ThreadPoolExecutor(4) as crew:
        list(crew.map(some, range(10, 14)))
    assert ended(children)
    found = t.to_pandas()
    assert len(found) == 500
    for who, mine in found.groupby("who"):
        assert mine["n"].tolist() == list(range(100 if int(str(who)) < 10 else 50))


def test_rows_that_were_seen_stay_in_front(pool: engram.Pool) -> None:
    t = pool.create_table("t", schema={"who": "int64", "n": "int64"})
    code = (
        "import sys, engram\n"
        "with engram.open(sys.argv[1]) as pool:\n"
        "    for n in range(60): pool['t'].append({'who': [int(sys.argv[2])], 'n': [n]})\n"
    )
    children = [started(code, pool.path, who) for who in range(4)]
    before: list[Any] = []
    while any(child.poll() is None for child in children):
        now = t.read().to_pylist()
        assert now[: len(before)] == before
        before = now
    assert ended(children)
    assert len(t) == 240


def test_a_fork_reads_and_appends(pool: engram.Pool) -> None:
    t = pool.create_table("t", {"x": [1]})
    held = t.read()
    child = os.fork()
    if not child:
        try:
            t.append({"x": [2]})
            os._exit(0 if held["x"].to_pylist() == [1] and len(t) == 2 else 1)
        except BaseException:  # noqa: BLE001 - a child ends here
            os._exit(2)
    assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0
    assert t["x"].to_pylist() == [1, 2]


def test_two_compactions_at_once_lose_nothing(pool: engram.Pool) -> None:
    t = pool.create_table("t", schema={"x": "int64"})
    for n in range(60):
        t.append({"x": [n]})
    code = (
        "import sys, engram\n"
        "with engram.open(sys.argv[1]) as pool:\n"
        "    try: pool['t'].compact()\n"
        "    except engram.BusyError: pass\n"
    )
    children = [started(code, pool.path) for _ in range(3)]
    assert ended(children)
    assert t["x"].to_pylist() == list(range(60))
    assert t.num_parts == 1


def dies_at(line: int, work: Callable[[], object]) -> bool:
    """Do work in a fork that kills itself at the n-th line of the package; whether it got done."""
    child = os.fork()
    if child:
        return os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0
    left = line

    def trace(frame: Any, event: str, _: object) -> Any:
        nonlocal left
        if "engram/table" not in frame.f_code.co_filename:
            return None
        left -= event == "line"
        if left < 0:
            os.kill(os.getpid(), signal.SIGKILL)
        return trace

    code = 1
    try:
        sys.settrace(trace)
        work()
        code = 0
    finally:
        os._exit(code)


def test_whoever_dies_at_any_line_leaves_all_or_nothing(pool: engram.Pool) -> None:
    made = pa.table({"x": [1, 2], "y": [0.5, None], "s": ["a", "b"], "d": [True, None]})
    t = pool.create_table("t", schema=made.schema)
    rows: list[Any] = []
    for line in itertools.count(0, 9):
        done = dies_at(line, lambda: t.append(made))
        found = t.read()
        assert found.num_rows - len(rows) in ({2} if done else {0, 2})
        rows = found.to_pylist()
        assert rows == made.to_pylist() * (len(rows) // 2)
        if done:
            break
    t.clear()
    t.append(made)
    t.append(made)
    for line in itertools.count(0, 9):
        done = dies_at(line, t.compact)
        assert t.read().to_pylist() == made.to_pylist() * 2
        assert t.num_parts in ({1} if done else {1, 2})
        if done:
            break
        if t.num_parts == 1:  # it died after its commit
            t.clear()
            t.append(made)
            t.append(made)
    assert {part.name for part in reading.parts(pool._namespace, t._id)} | {layout.MARK} == set(
        t.as_group()
    )


def test_an_append_is_committed_in_its_turn(
    pool: engram.Pool, monkeypatch: pytest.MonkeyPatch
) -> None:
    t = pool.create_table("t", {"x": [0]})
    plain = writing.next_stamp
    other: list[subprocess.Popen[str]] = []
    code = (
        "import sys, engram\n"
        "print('x', flush=True)\n"
        "engram.open(sys.argv[1])['t'].append({'x': [2]})\n"
    )

    def slow(place: writing.Place) -> int:
        stamp = plain(place)
        other.append(started(code, pool.path))
        assert other[0].stdout is not None
        other[0].stdout.readline()
        time.sleep(0.5)
        seen = in_child("import sys, engram\nprint(len(engram.open(sys.argv[1])['t']))", pool.path)
        assert seen == "1", "no row is seen that ours would come in front of"
        return stamp

    monkeypatch.setattr(writing, "next_stamp", slow)
    t.append({"x": [1]})
    assert ended(other)
    assert t["x"].to_pylist() == [0, 1, 2]


def test_a_read_that_meets_a_compaction_is_taken_again(
    pool: engram.Pool, monkeypatch: pytest.MonkeyPatch
) -> None:
    t = pool.create_table("t", {"x": [0]})
    t.append({"x": [1]})
    plain = reading.batches
    compacted: list[str] = []

    def meeting(*arguments: Any) -> Any:
        if not compacted:
            code = "import sys, engram\nprint(engram.open(sys.argv[1])['t'].compact())"
            compacted.append(in_child(code, pool.path))
        return plain(*arguments)

    monkeypatch.setattr(reading, "batches", meeting)
    assert t["x"].to_pylist() == [0, 1]
    assert compacted == ["1"]


def test_the_clock_may_be_turned_back(pool: engram.Pool, monkeypatch: pytest.MonkeyPatch) -> None:
    t = pool.create_table("t", {"x": [0]})
    for n in (1, 2, 3):
        now = time.time_ns()
        monkeypatch.setattr(time, "time_ns", lambda now=now, n=n: now - n * 10**15)
        t.append({"x": [n]})
        monkeypatch.undo()
    assert t["x"].to_pylist() == [0, 1, 2, 3]
