"""Locks keep out who asks, end with their holder, and let Ctrl-C through."""

import functools
import multiprocessing
import os
import pickle
import signal
import subprocess
import sys
import threading
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import engram

HOLDER = """
import sys, engram
with engram.open(sys.argv[1], sys.argv[4]) as pool, pool[sys.argv[2]].lock(sys.argv[3]):
    print("held", flush=True)
    sys.stdin.read()
"""

COUNTER = """
import sys, engram
with engram.open(sys.argv[1]) as pool:
    for _ in range(int(sys.argv[2])):
        with pool["count"].lock("w"):
            pool["count"][()] += 1
"""


def elsewhere(work: Callable[[], Any]) -> Any:
    """Run something in a thread of its own; give what it gave, or the error that it raised."""
    given: list[Any] = []

    def run() -> None:
        try:
            given.append(work())
        except engram.EngramError as error:
            given.append(error)

    thread = threading.Thread(target=run)
    thread.start()
    thread.join()
    return given[0]


def try_lock(member: Any, mode: str) -> str:
    """Lock it at once, or not."""
    with member.lock(mode, timeout=0):
        return "held"


def tried_elsewhere(member: Any) -> str:
    """Lock it for reading at once in another thread: "held", or why not."""
    return str(elsewhere(lambda: try_lock(member, "r")))


def holder(pool: engram.Pool, name: str, mode: str, opened: str = "r+") -> subprocess.Popen[str]:
    """Start a process that holds a lock until it is told to end."""
    command = [sys.executable, "-c", HOLDER, pool.path, name, mode, opened]
    process = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
    assert process.stdout is not None
    assert process.stdout.readline() == "held\n"
    return process


def fill(pool: engram.Pool) -> None:
    """Put one thing of each kind."""
    pool["array"] = np.arange(10)
    pool["blob"] = b"bytes"
    pool.create_group("group")
    pool["count"] = np.int64(0)


@pytest.mark.parametrize("name", ["array", "blob", "group", "/"])
@pytest.mark.parametrize(
    ("first", "second", "may"),
    [("w", "w", False), ("w", "r", False), ("r", "w", False), ("r", "r", True)],
)
def test_who_excludes_whom(
    pool: engram.Pool, name: str, first: str, second: str, may: bool
) -> None:
    fill(pool)
    member = pool[name]
    with member.lock(first) as lock:
        assert "held" in repr(lock)
        assert "not held" not in repr(lock)
        got = elsewhere(lambda: try_lock(member, second))
        assert (got == "held") == may
        assert may or isinstance(got, engram.BusyError)
    assert "not held" in repr(lock)
    assert elsewhere(lambda: try_lock(member, "w")) == "held"


def test_a_lock_of_another_process_names_it_and_ends_with_it(pool: engram.Pool) -> None:
    fill(pool)
    process = holder(pool, "array", "w")
    with pytest.raises(engram.BusyError, match=rf"\"array\" is locked by process {process.pid}:"):
        try_lock(pool["array"], "r")
    assert try_lock(pool["blob"], "w") == "held"
    process.kill()
    process.communicate()
    assert try_lock(pool["array"], "w") == "held"
    process = holder(pool, "array", "r", "r")
    assert try_lock(pool["array"], "r") == "held"
    with pytest.raises(engram.BusyError, match=str(process.pid)):
        try_lock(pool["array"], "w")
    process.communicate("")
    with pool["array"].lock("w", timeout=60):
        pass


def test_the_holder_is_named_of_hundreds_of_locks_and_where_one_only_waits(
    pool: engram.Pool,
) -> None:
    with pool.batch():
        for number in range(200):
            pool[f"m{number}"] = number
    script = """
import sys, engram
pool = engram.open(sys.argv[1])
held = [pool[f"m{n}"].lock("w").__enter__() for n in range(200)]
print("held", flush=True)
sys.stdin.readline()
held.clear()
with pool["waited"].lock("w"):
    pass
"""
    pool["waited"] = 1
    command = [sys.executable, "-c", script, pool.path]
    process = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
    assert process.stdin is not None
    assert process.stdout is not None
    try:
        assert process.stdout.readline() == "held\n"
        for number in (0, 191, 192, 199):
            said = tried_elsewhere(pool[f"m{number}"])
            assert f"is locked by process {process.pid}:" in said
        with pool["waited"].lock("r"):
            process.stdin.write("\n")
            process.stdin.flush()
            while (said := tried_elsewhere(pool["waited"])) == "held":
                pass
        assert f"for, to be locked for writing, by process {process.pid}:" in said
    finally:
        process.kill()
        process.communicate()


def test_a_thread_joins_its_own_lock_but_not_for_more(pool: engram.Pool) -> None:
    fill(pool)
    array = pool["array"]
    with array.lock("w"), array.lock("r"), array.lock():
        assert isinstance(elsewhere(lambda: try_lock(array, "r")), engram.BusyError)
    with array.lock("r"), pytest.raises(engram.BusyError, match="for reading: let go of that"):
        try_lock(array, "w")
    assert elsewhere(lambda: try_lock(array, "w")) == "held"


def test_what_is_locked_does_not_move(pool: engram.Pool) -> None:
    fill(pool)
    process = holder(pool, "array", "r")
    named = rf"\"array\" is locked by process {process.pid}, and what is locked does not move"
    for move in (pool.unshare, functools.partial(pool.publish, closed=True)):
        for path in ("array", "/"):
            with pytest.raises(engram.BusyError, match=named):
                move(path)
    process.communicate("")
    with pool["array"].lock("w"), pytest.raises(engram.BusyError, match="by this process"):
        pool.unshare("array")
    array = pool["array"]
    assert (pool.unshare("array").objects, array.scope) == (1, "private")
    process = holder(pool, "array", "w")
    with pytest.raises(engram.BusyError, match=f"by process {process.pid},"):
        pool.share("array")
    process.communicate("")
    pool.share("array")
    # A handle locks the object where it is by now.
    with array.lock("w"):
        assert isinstance(elsewhere(lambda: try_lock(pool["array"], "r")), engram.BusyError)
    pool.publish("array", closed=True)
    with pytest.raises(engram.ReadOnlyError):
        try_lock(array, "w")
    with array.lock("r"):
        assert pool.unpublish("array").objects == 1
    assert try_lock(array, "w") == "held"


def test_a_block_that_raises_lets_go(pool: engram.Pool) -> None:
    fill(pool)
    with pytest.raises(ZeroDivisionError), pool["array"].lock():
        _ = 1 // 0
    assert elsewhere(lambda: try_lock(pool["array"], "w")) == "held"


def test_what_is_gone_read_only_or_nonsense_is_refused(pool: engram.Pool) -> None:
    fill(pool)
    array = pool["array"]
    wrong: Any
    for wrong in (1, None, b"w"):
        with pytest.raises(engram.ArgumentError, match=f"mode {wrong!r} is unknown"):
            array.lock(wrong)
    for wrong in ("5", [5]):
        with pytest.raises(engram.ArgumentError, match="no time to wait"):
            array.lock(timeout=wrong)
    array.lock(timeout=float("inf"))
    for timeout in (-1, float("nan")):
        with pytest.raises(engram.ArgumentError, match="no time to wait"):
            array.lock(timeout=timeout)
    with pytest.raises(engram.ArgumentError, match='mode "x" is unknown'):
        array.lock("x")
    with engram.open(pool.path, "r") as reader, pytest.raises(engram.ReadOnlyError):
        try_lock(reader["array"], "w")
    with engram.open(pool.path, "r") as reader:
        assert try_lock(reader["array"], "r") == "held"
    del pool["array"]
    with pytest.raises(engram.NotFoundError):
        try_lock(array, "w")


def test_closing_the_pool_ends_its_locks(pool: engram.Pool) -> None:
    fill(pool)
    other = engram.open(pool.path)
    with other["array"].lock():
        other.close()
        assert elsewhere(lambda: try_lock(pool["array"], "w")) == "held"


def test_forked_children_hold_nothing(pool: engram.Pool) -> None:
    fill(pool)
    array = pool["array"]
    ours, theirs = multiprocessing.Pipe()

    def child() -> None:
        try:
            try_lock(array, "r")
        except engram.BusyError as error:
            theirs.send(str(error))
        theirs.recv()

    context = multiprocessing.get_context("fork")
    with array.lock("w"):
        process = context.Process(target=child)
        process.start()
        assert str(os.getpid()) in ours.recv()
    # The child lives, and keeps nothing of what its parent had.
    assert elsewhere(lambda: try_lock(array, "w")) == "held"
    ours.send("end")
    process.join()
    assert process.exitcode == 0
    read, write = os.pipe()
    with array.lock("w"):
        pid = os.fork()
        if pid == 0:
            os.read(read, 1)
            os._exit(0)
    assert elsewhere(lambda: try_lock(array, "w")) == "held"
    os.write(write, b".")
    assert os.waitpid(pid, 0)[1] == 0


def test_ctrl_c_ends_the_waiting(pool: engram.Pool) -> None:
    fill(pool)
    process = holder(pool, "array", "w")
    timer = threading.Timer(0.1, lambda: os.kill(os.getpid(), signal.SIGINT))
    timer.start()
    with pytest.raises(KeyboardInterrupt), pool["array"].lock("w"):
        pass
    timer.join()
    process.communicate("")
    assert try_lock(pool["array"], "w") == "held"


def test_in_place_counting_under_a_lock_loses_nothing(pool: engram.Pool) -> None:
    fill(pool)
    rounds = 100
    command = [sys.executable, "-c", COUNTER, pool.path, str(rounds)]
    counters = [subprocess.Popen(command) for _ in range(3)]
    for counter in counters:
        assert counter.wait() == 0
    assert pool["count"][()] == 3 * rounds


def test_a_pickled_handle_locks_the_same(pool: engram.Pool) -> None:
    fill(pool)
    again = pickle.loads(pickle.dumps(pool["array"]))
    with pool["array"].lock():
        assert isinstance(elsewhere(lambda: try_lock(again, "r")), engram.BusyError)
