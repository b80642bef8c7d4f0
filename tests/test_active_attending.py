"""Who waits for a short call reads its answer itself; however it is, each call has its own."""

from __future__ import annotations

import concurrent.futures
import threading
import time
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import engram
import engram.active.workers.seat
from active_jobs import Job
from engram import active
from test_active_executor import PATIENCE, fifo, got, job, one, two

if TYPE_CHECKING:
    from engram.active.workers.executor import Executor
    from engram.active.workers.seat import Seat

__all__ = ["fifo", "job", "one", "two"]


@pytest.fixture(autouse=True)
def _always_attend(monkeypatch: pytest.MonkeyPatch) -> None:
    """Have a busy machine not keep these tests from what they are of."""
    monkeypatch.setattr("engram.active.workers.seat.SHORT", PATIENCE)
    monkeypatch.setattr("engram.active.workers.seat._AWAKE", 0.05)


def seat(executor: Executor) -> Seat:
    return executor._crew.seats[0]


def test_who_waits_reads_the_answer(job: Job, one: Executor, monkeypatch: Any) -> None:
    got(job.pid.submit())
    readers = []
    take = seat(one)._take

    def noted(wire: Any) -> Any:
        readers.append(threading.current_thread())
        return take(wire)

    monkeypatch.setattr(seat(one), "_take", noted)
    for _ in range(50):
        got(job.total.submit())
    assert len(readers) == 50
    assert readers.count(threading.current_thread()) > 25


ways = st.lists(st.sampled_from(["result", "exception", "wait", "callback", "later"]), max_size=30)


@given(ways=ways)
@settings(max_examples=40, deadline=None)
def test_each_call_has_its_own_answer_however_it_is_waited_for(
    job: Job, two: Executor, ways: list[str]
) -> None:
    assert two
    futures, seen = [], []
    for number, way in enumerate(ways):
        future = job.echo.submit(number)
        futures.append(future)
        if way == "result":
            assert got(future) == number
        elif way == "exception":
            assert future.exception(PATIENCE) is None
        elif way == "wait":
            assert concurrent.futures.wait([future], PATIENCE).done == {future}
        elif way == "callback":
            future.add_done_callback(lambda done: seen.append(done.result()))
    done = [each.result() for each in concurrent.futures.as_completed(futures, PATIENCE)]
    assert sorted(done) == list(range(len(ways)))
    assert [got(future) for future in futures] == list(range(len(ways)))
    assert sorted(seen) == [n for n, way in enumerate(ways) if way == "callback"]


def test_threads_that_wait_for_the_same_calls_get_the_same(job: Job, two: Executor) -> None:
    assert two
    found: list[list[int]] = [[] for _ in range(4)]
    for _ in range(20):
        futures = [job.echo.submit(n) for n in range(5)]

        def collect(into: list[int], futures: list[Any] = futures) -> None:
            into.extend(got(future) for future in futures)

        threads = [threading.Thread(target=collect, args=(into,)) for into in found]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
    assert found == [list(range(5)) * 20] * 4


def test_what_nobody_waits_for_is_done_after_what_somebody_did(job: Job, one: Executor) -> None:
    assert one
    for _ in range(10):
        got(job.total.submit())
        calls = [job.add.submit() for _ in range(5)]
        assert not concurrent.futures.wait(calls, PATIENCE).not_done
    assert job.n == 50


def test_a_callback_may_wait_for_a_call_to_the_same_worker(job: Job, one: Executor) -> None:
    found: list[int] = []
    first = job.total.submit()
    first.add_done_callback(lambda _: found.append(got(one.submit(job.echo, 7))))
    got(first)
    limit = time.monotonic() + PATIENCE
    while not found and time.monotonic() < limit:
        time.sleep(0.001)
    assert found == [7]


def test_a_callback_in_a_workers_own_thread_may_wait_for_calls(
    job: Job, one: Executor, fifo: Path
) -> None:
    holding, queued = job.hold.submit(str(fifo)), job.echo.submit(1)
    found: list[int] = []
    done = threading.Event()

    def callback(_: object) -> None:
        found.extend(got(one.submit(job.echo, number)) for number in (2, 3))
        found.append(got(queued))
        with pytest.raises(active.WorkerDiedError):
            got(one.submit(job.add_and_die, 0))
        done.set()

    holding.add_done_callback(callback)
    fifo.write_text("word")
    assert done.wait(PATIENCE)
    assert found == [2, 3, 1]
    assert got(job.echo.submit(4)) == 4


def test_a_callback_runs_in_no_batch_and_no_lock_of_who_waits(job: Job, one: Executor) -> None:
    assert one
    lock = threading.Lock()
    found: list[bool] = []

    for _ in range(20):
        ran = threading.Event()

        def callback(_: object, ran: threading.Event = ran) -> None:
            with lock:
                found.append(threading.current_thread() is threading.main_thread())
            ran.set()

        with lock:
            future = job.hold_for.submit(0.002)
            future.add_done_callback(callback)
            got(future)
        assert ran.wait(PATIENCE)
    assert found == [False] * 20


def test_a_callback_that_waits_is_told_of_the_workers_death(
    job: Job, one: Executor, fifo: Path
) -> None:
    holding, dying = job.hold.submit(str(fifo)), job.add_and_die.submit(0)
    told: list[BaseException] = []
    done = threading.Event()

    def callback(_: object) -> None:
        begin = time.monotonic()
        try:
            one.submit(job.total).result(PATIENCE)
        except active.WorkerDiedError as error:
            told.append(error)
        assert time.monotonic() - begin < PATIENCE
        done.set()

    holding.add_done_callback(callback)
    fifo.write_text("word")
    assert done.wait(PATIENCE)
    assert len(told) == 1
    with pytest.raises(active.WorkerDiedError):
        got(dying)
    assert got(job.total.submit()) == 6.0


def test_a_long_call_is_waited_for_as_long_as_asked(job: Job, one: Executor, fifo: Path) -> None:
    got(job.total.submit())
    holding = job.hold.submit(str(fifo))
    with pytest.raises(TimeoutError):
        holding.result(0.1)
    with pytest.raises(TimeoutError):
        holding.exception(0)
    fifo.write_text("word")
    assert got(holding) == "word"
    assert not holding.exception()
    assert got(job.total.submit()) == 6.0
    assert one


def test_a_worker_that_dies_while_somebody_attends_is_told_of(job: Job, one: Executor) -> None:
    pid = got(job.pid.submit())
    for _ in range(3):
        got(job.total.submit())
        with pytest.raises(active.WorkerDiedError, match="exit code 3"):
            got(job.add_and_die.submit(0))
    assert got(job.pid.submit()) != pid
    assert one


@pytest.mark.parametrize("where", ["_take", "_give", "settle"])
def test_an_interruption_in_the_midst_of_an_answer_ends_that_call_alone(
    job: Job, one: Executor, monkeypatch: pytest.MonkeyPatch, where: str
) -> None:
    before = got(job.pid.submit())
    whose: Any = engram.active.workers.seat if where == "settle" else seat(one)
    real = getattr(whose, where)
    me = threading.current_thread()

    def interrupted(*args: Any) -> Any:
        if threading.current_thread() is me:
            raise KeyboardInterrupt
        return real(*args)

    for _ in range(20):  # the seat's own thread may be faster
        future = job.total.submit()
        monkeypatch.setattr(whose, where, interrupted)
        try:
            assert got(future) == 6.0
        except KeyboardInterrupt:
            break
        finally:
            monkeypatch.setattr(whose, where, real)
    else:
        pytest.skip("nobody attended")
    with pytest.raises(active.WorkerDiedError):
        got(future)
    assert got(job.total.submit()) == 6.0
    assert (got(job.pid.submit()) == before) == (where == "settle")


def test_executors_leave_nothing_open(job: Job) -> None:
    with active.Executor(workers=2):
        got(job.total.submit())
    before = len(list(Path("/proc/self/fd").iterdir()))
    for _ in range(3):
        with active.Executor(workers=2):
            got(job.total.submit())
    assert len(list(Path("/proc/self/fd").iterdir())) == before


def test_arrays_come_to_who_attends(pool: engram.Pool, one: Executor) -> None:
    assert pool
    assert one
    job = Job(data=np.arange(1e5))
    job.make_persistent()
    for _ in range(5):
        assert np.array_equal(got(job.echo.submit(np.arange(1e5))), np.arange(1e5))
