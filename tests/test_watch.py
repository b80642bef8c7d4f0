"""Watches: who sleeps is given what comes, from any process, once; and is told how a wait ends."""

import _thread
import asyncio
import os
import pickle
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any, Self

import pytest

import engram

LONG = 60.0
"""Seconds: what waits for so long has missed something."""

WRITER = """
import sys, engram
with engram.open(sys.argv[1]) as pool:
    for line in sys.stdin:
        pool.create_array(line.strip(), data=[1], attrs={"step": 1})
        print("put", flush=True)
"""


class Writer:
    """Another process, which puts an array for each path that it is told."""

    def __init__(self, pool: engram.Pool) -> None:
        self.process = subprocess.Popen(
            [sys.executable, "-c", WRITER, pool.path],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
        )

    def put(self, path: str) -> None:
        """Have it put an array with an attribute `step`."""
        assert self.process.stdin is not None
        self.process.stdin.write(f"{path}\n")
        self.process.stdin.flush()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.process.communicate(timeout=LONG)


def put(pool: engram.Group, path: str) -> Any:
    """Put an array with an attribute `step`."""
    return pool.create_array(path, data=[1], attrs={"step": 1})


def paths(found: Any) -> list[str]:
    """Give the paths of what comes until nothing does."""
    return [each.path for each in found]


def asleep(watch: engram.Watch, work: Callable[[], object]) -> Any:
    """Do something while another thread waits; give what that was given, or its error."""
    given: list[Any] = []
    begun = threading.Event()

    def wait() -> None:
        begun.set()
        try:
            given.append(next(watch, "ended"))
        except engram.EngramError as error:
            given.append(error)

    thread = threading.Thread(target=wait)
    thread.start()
    begun.wait()
    time.sleep(0.05)  # it sleeps by then, as a rule
    work()
    thread.join(LONG)
    return given[0]


def test_what_another_process_puts_is_given_as_it_comes(pool: engram.Pool) -> None:
    put(pool, "early")
    with pool.watch("exists(step)", timeout=LONG) as watch, Writer(pool) as writer:
        for round_ in range(100):
            writer.put(f"run/{round_}")
            assert next(watch).path == f"run/{round_}"
    assert watch.closed
    assert list(watch) == []


def test_what_is_there_is_given_first_if_it_is_asked_for(pool: engram.Pool) -> None:
    put(pool, "a")
    pool["bare"] = [1]
    assert paths(pool.watch("exists(step)", timeout=0)) == []
    watch = pool.watch("exists(step)", timeout=0, existing=True)
    assert paths(watch) == ["a"]
    put(pool, "b")
    pool["bare"].attrs["step"] = 2
    assert sorted(paths(watch)) == ["b", "bare"], "an iteration that has ended goes on"
    assert paths(watch) == []


def test_a_condition_is_a_query_an_expression_or_nothing(pool: engram.Pool) -> None:
    watches = [
        pool.watch(condition, timeout=0)
        for condition in ("step = 1", engram.attr("step") == 1, None, "@name = 'x'", "step = 2")
    ]
    put(pool, "g/x")
    assert [paths(watch) for watch in watches] == [["g/x"]] * 4 + [[]]
    assert [watch.query for watch in watches][:2] == ["step = 1"] * 2
    given = pool.watch("step = :step", timeout=0, existing=True, params={"step": 1})
    assert paths(given) == ["g/x"]
    with pytest.raises(engram.QueryError, match="no parameter step was given"):
        pool.watch("step = :step")
    assert repr(watches[0]) == "<engram.Watch 'step = 1'>"


def test_a_group_watches_what_is_below_it(pool: engram.Pool) -> None:
    group = pool.create_group("run")
    watch = group.watch(timeout=0)
    put(pool, "elsewhere/x")
    put(pool, "run/inner/x")
    assert paths(watch) == ["run/inner/x"]
    pool.move("elsewhere/x", "run/y")
    assert paths(watch) == ["run/y"]
    del pool["run"]
    with pytest.raises(engram.NotFoundError):
        next(watch)


def test_what_is_gone_when_it_is_looked_at_is_left_out(pool: engram.Pool) -> None:
    watch = pool.watch(timeout=0)
    with pool.batch():
        put(pool, "a")
        put(pool, "b")
    watch._native.wait(0, watch._native.calls)
    del pool["a"]
    assert paths(watch) == ["b"]


def test_a_batch_is_given_when_it_commits(pool: engram.Pool) -> None:
    watch = pool.watch("exists(step)", timeout=0)
    with pool.batch():
        for at in range(2000):
            put(pool, f"{at:04}")
        with pytest.raises(engram.BusyError, match="batch"):
            next(watch)
        with pytest.raises(engram.BusyError, match="batch"):
            pool.watch()
    assert paths(watch) == [f"{at:04}" for at in range(2000)]

    async def wait() -> None:
        with pool.batch():
            await watch

    with pytest.raises(engram.BusyError, match="batch"):
        asyncio.run(wait())


@pytest.mark.parametrize("mode", ["r", "r+"])
def test_who_may_only_read_watches_too(pool: engram.Pool, mode: str) -> None:
    with engram.open(pool.path, mode) as other:
        watch = other.watch("exists(step)", timeout=LONG)
        assert asleep(watch, lambda: put(pool, "a")).path == "a"


def test_a_wait_ends_in_time_by_closing_and_by_a_closed_pool(pool: engram.Pool) -> None:
    begun = time.monotonic()
    assert list(pool.watch(timeout=0.2)) == []
    assert time.monotonic() - begun >= 0.2
    watch = pool.watch(timeout=LONG)
    assert asleep(watch, watch.close) == "ended"
    watch.close()
    with engram.open(pool.path) as other:
        watch = other.watch(timeout=LONG)
        error = asleep(watch, other.close)
    assert isinstance(error, engram.ArgumentError)
    assert "closed" in str(error)
    assert watch.closed
    with pytest.raises(engram.ArgumentError, match="closed"):
        other.watch()


def test_a_pool_that_is_removed_is_named(home: Path) -> None:
    engram.create(home / "gone", size="16 MiB", force=True).close()
    pool = engram.open(home / "gone")
    watch = pool.watch(timeout=LONG)
    removed = asleep(watch, lambda: subprocess.run(["rm", "-r", pool.path], check=True))
    assert isinstance(removed, engram.PoolGoneError)
    with pytest.raises(engram.PoolGoneError):
        pool.close()


def test_what_cannot_be_watched_is_refused_at_once(pool: engram.Pool) -> None:
    with pytest.raises(engram.QueryError):
        pool.watch("step >")
    with pytest.raises(engram.ArgumentError, match="limit"):
        pool.watch("step = 1 limit 3")
    with pytest.raises(engram.ArgumentError, match="no query"):
        pool.watch(3)  # type: ignore[arg-type]
    for timeout in (-1, "soon", float("nan")):
        with pytest.raises(engram.ArgumentError, match="timeout"):
            pool.watch(timeout=timeout)  # type: ignore[arg-type]
    with pytest.raises(engram.ArgumentError, match="existing"):
        pool.watch(existing="no")  # type: ignore[arg-type]
    with pool.snapshot() as then, pytest.raises(engram.ArgumentError, match="snapshot"):
        then.watch()
    with pytest.raises(engram.ArgumentError, match="pickled"):
        pickle.dumps(pool.watch())


def test_a_signal_is_handled_while_one_waits(pool: engram.Pool) -> None:
    class RangError(Exception):
        pass

    def ring(_number: int, _frame: object) -> None:
        raise RangError

    before = signal.signal(signal.SIGALRM, ring)
    try:
        signal.setitimer(signal.ITIMER_REAL, 0.1)
        with pytest.raises(RangError):
            next(pool.watch())
        # One whose handler returns ends nothing.
        watch, seen = pool.watch(timeout=LONG), []
        signal.signal(signal.SIGALRM, lambda *_: seen.append(put(pool, "by-signal")))
        signal.setitimer(signal.ITIMER_REAL, 0.1)
        assert next(watch).path == "by-signal"
        assert len(seen) == 1
    finally:
        signal.signal(signal.SIGALRM, before)


def test_a_signal_is_handled_though_commits_come_all_the_time(pool: engram.Pool) -> None:
    watch, done = pool.watch("exists(step)", timeout=10), threading.Event()

    def write() -> None:
        while not done.is_set():
            pool.attrs["time"] = time.time()

    writer = threading.Thread(target=write)
    writer.start()
    # It interrupts no sleep: it is one that came while nobody slept.
    timer = threading.Timer(0.2, _thread.interrupt_main)
    timer.start()
    begun = time.monotonic()
    try:
        with pytest.raises(KeyboardInterrupt):
            next(watch, None)
        assert time.monotonic() - begun < 8, "it was seen when the time was up"
    finally:
        done.set()
        writer.join()
        timer.join()


def test_ctrl_c_ends_a_program_that_waits(pool: engram.Pool) -> None:
    code = (
        "import sys, engram\nwith engram.open(sys.argv[1]) as pool:\n"
        "    watch = pool.watch()\n    print('waits', flush=True)\n    next(watch)"
    )
    with subprocess.Popen(
        [sys.executable, "-c", code, pool.path],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    ) as program:
        assert program.stdout is not None
        assert program.stdout.readline() == "waits\n"
        time.sleep(0.2)
        program.send_signal(signal.SIGINT)
        _, said = program.communicate(timeout=LONG)
    assert "KeyboardInterrupt" in said


def test_a_forked_child_begins_its_own(pool: engram.Pool) -> None:
    watch = pool.watch(timeout=LONG)
    thread = threading.Thread(target=lambda: next(watch))
    thread.start()
    child = os.fork()
    if child == 0:
        code = 1
        try:
            try:
                next(watch)
            except engram.ArgumentError as error:
                own = pool.watch(timeout=LONG)
                put(pool, "child")
                code = 0 if "fork" in str(error) and next(own).path == "child" else 2
        finally:
            os._exit(code)
    assert os.waitpid(child, 0)[1] == 0
    thread.join(LONG)
    assert not thread.is_alive()


def test_threads_share_a_watch_and_each_object_goes_to_one(pool: engram.Pool) -> None:
    watch = pool.watch("exists(step)", timeout=LONG)
    given: list[str] = []

    def take() -> None:
        for found in watch:
            given.append(found.path)
            if len(given) >= 300:
                watch.close()

    threads = [threading.Thread(target=take) for _ in range(4)]
    for thread in threads:
        thread.start()
    for at in range(300):
        put(pool, f"{at:03}")
    for thread in threads:
        thread.join(LONG)
    assert sorted(given) == [f"{at:03}" for at in range(300)]


def test_who_takes_one_of_many_leaves_the_others_to_those_who_wait(pool: engram.Pool) -> None:
    watch = pool.watch("exists(step)", timeout=LONG)
    for round_ in range(20):
        given: list[Any] = []
        threads = [
            threading.Thread(target=lambda: given.append(next(watch, None)))  # noqa: B023
            for _ in range(2)
        ]
        for thread in threads:
            thread.start()
        time.sleep(0.01)  # they sleep by then, as a rule
        with pool.batch():
            put(pool, f"{round_}/a")
            put(pool, f"{round_}/b")
        for thread in threads:
            thread.join(LONG)
        assert None not in given
        assert sorted(paths(given)) == [f"{round_}/a", f"{round_}/b"]


def test_what_is_deleted_while_it_waits_its_turn_is_left_out(pool: engram.Pool) -> None:
    for path in "abc":
        put(pool, path)
    watch = pool.watch(timeout=0, existing=True)
    assert next(watch).path == "a"
    del pool["b"]
    assert paths(watch) == ["c"]


def test_a_closed_watch_gives_nothing_more(pool: engram.Pool) -> None:
    for path in "abc":
        put(pool, path)
    watch = pool.watch(timeout=LONG, existing=True)
    assert next(watch).path == "a"
    watch.close()
    assert paths(watch) == []


def test_a_task_waits_beside_others(pool: engram.Pool) -> None:
    async def watch(count: int) -> list[str]:
        found = []
        async for each in pool.watch("exists(step)", timeout=LONG):
            found.append(each.path)
            if len(found) == count:
                break
        return found

    async def write() -> None:
        for at in range(20):
            await asyncio.sleep(0)
            put(pool, f"{at:02}")

    async def main() -> None:
        tasks = [asyncio.create_task(watch(20)) for _ in range(3)]
        await asyncio.sleep(0.1)  # they have begun
        await write()
        for task in tasks:
            assert await asyncio.wait_for(task, LONG) == [f"{at:02}" for at in range(20)]

    asyncio.run(main())


def test_an_awaited_watch_is_the_next_object_or_an_error(pool: engram.Pool) -> None:
    async def main() -> None:
        watch = pool.watch("exists(step)", timeout=0.1, existing=True)
        put(pool, "a")
        assert (await watch).path == "a"
        with pytest.raises(TimeoutError, match="within"):
            await watch
        assert [each async for each in watch] == []
        async with watch:
            pass
        with pytest.raises(engram.ArgumentError, match="closed"):
            await watch
        with pytest.raises(StopAsyncIteration):
            await anext(watch)

    asyncio.run(main())


def test_a_cancelled_wait_loses_nothing_and_leaves_no_thread(pool: engram.Pool) -> None:
    before = threading.active_count()

    async def main() -> None:
        watch = pool.watch("exists(step)")
        given = []
        for at in range(50):
            task = asyncio.ensure_future(anext(watch))
            await asyncio.sleep(0.001 * (at % 3))
            put(pool, f"{at:02}")
            task.cancel()
            try:
                given.append((await task).path)
            except asyncio.CancelledError:
                given.append((await watch).path)
        assert given == [f"{at:02}" for at in range(50)]
        # Who waits for what never comes is let go of.
        with pytest.raises(TimeoutError):
            async with asyncio.timeout(0.1):
                await watch

    asyncio.run(main())
    until = time.monotonic() + LONG
    while threading.active_count() > before:
        assert time.monotonic() < until
        time.sleep(0.01)


def test_what_comes_to_any_scope_is_given(pool: engram.Pool) -> None:
    watch = pool.watch("exists(step)", timeout=LONG)
    mine = asleep(
        watch, lambda: pool.create_array("mine", data=[1], attrs={"step": 1}, scope="private")
    )
    assert (mine.path, mine.scope) == ("mine", "private")
    assert asleep(watch, lambda: put(pool, "ours")).path == "ours"
    other = engram.open(pool.path)
    with other:
        published = other.watch("@scope = 'published'", timeout=LONG)
        assert asleep(published, lambda: pool.publish("ours", closed=True)).path == "ours"
