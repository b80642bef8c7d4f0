"""A process that stands still inside a commit: others that write are told which it is."""

from __future__ import annotations

import contextlib
import os
import signal
import subprocess
import sys
import threading
import time
from typing import TYPE_CHECKING

import pytest

import engram

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

MEMBERS = 60_000

DELETES = """
import sys, engram
pool = engram.open(sys.argv[1])
print("now", flush=True)
sys.stdin.read(1)
del pool["large"]
print("done", flush=True)
"""


@pytest.fixture
def deleting(tmp_path: Path) -> Iterator[tuple[engram.Pool, subprocess.Popen[str]]]:
    """Make a pool with a large group, and a process that is about to delete that."""
    pool = engram.create(tmp_path / "pool", size="64 MiB", force=True)
    with pool.batch():
        group = pool.create_group("large")
        for at in range(MEMBERS):
            group[f"{at}"] = at
    command = [sys.executable, "-c", DELETES, str(tmp_path / "pool")]
    pipe = subprocess.PIPE
    with subprocess.Popen(command, stdin=pipe, stdout=pipe, text=True) as child:
        assert child.stdout is not None
        assert child.stdout.readline() == "now\n"
        yield pool, child
        child.kill()


def put(pool: engram.Pool, at: int) -> str | None:
    """Put something; the error if it is `BusyError`."""
    try:
        pool[f"other{at}"] = at
    except engram.BusyError as error:
        return str(error)
    return None


def test_who_deletes_a_large_group_and_is_stopped_is_named(
    deleting: tuple[engram.Pool, subprocess.Popen[str]],
) -> None:
    pool, child = deleting
    assert child.stdin is not None
    assert child.stdout is not None
    child.stdin.write("x")
    child.stdin.flush()
    busy, tries = None, 0
    while busy is None:
        # A little later each time, until it is inside the commit.
        time.sleep(0.005)
        child.send_signal(signal.SIGSTOP)
        seen = os.waitid(os.P_PID, child.pid, os.WSTOPPED | os.WEXITED | os.WNOWAIT)
        assert seen is not None
        assert seen.si_code == os.CLD_STOPPED, "it was never met inside the commit"
        tries += 1
        busy = put(pool, tries)
        if busy is None:
            child.send_signal(signal.SIGCONT)
    assert f"is locked by process {child.pid} of user" in busy
    assert "is stopped" in busy
    # Ctrl-C comes through as soon as the wait is over.
    threading.Timer(0.05, os.kill, (os.getpid(), signal.SIGINT)).start()
    with contextlib.suppress(KeyboardInterrupt):
        while True:
            put(pool, 0)
    assert len(pool["large"]) == MEMBERS
    child.send_signal(signal.SIGCONT)
    assert child.stdout.readline() == "done\n"
    assert put(pool, 0) is None
    assert sorted(pool) == sorted(f"other{at}" for at in range(tries))
