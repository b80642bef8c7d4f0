"""Many processes append to a table, read and compact it, and are killed: no row is lost or twice."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import numpy as np
import pyarrow as pa

import engram
from engram.table import layout, reading
from support import moments

WRITER = """
import sys, time
import numpy as np, pyarrow as pa, engram
who, path = int(sys.argv[2]), sys.argv[1]
rng = np.random.default_rng(who)
with engram.open(path) as pool:
    t = pool["t"]
    for step in range(10**9):
        rows = int(rng.choice([1, 3, 50, 5000]))
        x = np.arange(rows) + step
        made = {"who": np.full(rows, who), "step": np.full(rows, step), "x": x,
                "rows": np.full(rows, rows), "s": [str(n) for n in x.tolist()],
                "n": pa.array(x, mask=x % 3 == 0)}
        t.append(pa.table(made))
        print(step, flush=True)
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
        "    for n in range(150): pool['t'].append({'who': [int(sys.argv[2])], 'n': [n]})\n"
    )
    children = [started(code, pool.path, who) for who in range(4)]
    before: list[Any] = []
    while any(child.poll() is None for child in children):
        now = t.read().to_pylist()
        assert now[: len(before)] == before
        before = now
    assert ended(children)
    assert len(t) == 600


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
