"""Executors: methods in worker processes, what they are given, how they end, who dies with whom."""

from __future__ import annotations

import asyncio
import concurrent.futures
import gc
import os
import select
import signal
import sys
import threading
from typing import TYPE_CHECKING, Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

import engram
from active_jobs import Job, NoPickleError, TwoWordsError
from engram import active
from engram.active.workers import wire
from support import assert_exactly, in_child
from test_active import child

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from engram.active.workers.executor import Executor

PATIENCE = 100.0
"""Seconds after which what should come does not come any more."""


@pytest.fixture
def job(pool: engram.Pool) -> Job:
    assert pool
    made = Job(data=np.arange(4.0))
    made.make_persistent("job")
    return made


@pytest.fixture
def one() -> Iterator[Executor]:
    with active.Executor(workers=1) as made:
        yield made


@pytest.fixture
def two() -> Iterator[Executor]:
    with active.Executor(workers=2) as made:
        yield made


@pytest.fixture
def fifo(tmp_path: Path) -> Path:
    path = tmp_path / "fifo"
    os.mkfifo(path)
    return path


def got(future: concurrent.futures.Future[Any]) -> Any:
    return future.result(PATIENCE)


# Calls


def test_a_submitted_method_runs_in_a_worker(job: Job, two: Executor) -> None:
    pid = got(job.pid.submit())
    assert pid != os.getpid()
    assert pid in two.pids
    assert got(two.submit(job.total)) == 6.0
    assert got(two.submit(Job.total, job)) == 6.0


def test_what_it_changes_is_in_the_object_here(job: Job, one: Executor) -> None:
    assert one
    assert got(job.add.submit(n=5)) == 5
    got(job.fill.submit(2.5))
    assert job.n == 5
    assert job.data.tolist() == [2.5] * 4


def test_two_workers_run_two_calls_at_once(job: Job, two: Executor, fifo: Path) -> None:
    hearing, saying = job.hold.submit(str(fifo)), job.say.submit(str(fifo), "word")
    try:
        assert got(hearing) == "word"
        got(saying)
    except BaseException:
        two._crew.kill()
        raise


def test_calls_from_many_threads_are_each_run_once(job: Job, two: Executor) -> None:
    def some() -> None:
        for future in [two.submit(job.add) for _ in range(25)]:
            got(future)

    threads = [threading.Thread(target=some) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert job.n == 100


def test_map_gives_results_in_order(job: Job, two: Executor) -> None:
    others = [Job(data=np.full(2, float(n))) for n in range(5)]
    for other in others:
        other.make_persistent()
    assert list(two.map(Job.total, others)) == [0.0, 2.0, 4.0, 6.0, 8.0]
    assert list(two.map(job.echo, "abc")) == ["a", "b", "c"]


def test_asyncio_can_await_a_call(job: Job, one: Executor) -> None:
    async def both() -> tuple[Any, Any]:
        loop = asyncio.get_running_loop()
        wrapped = await asyncio.wrap_future(one.submit(job.echo, 1))
        return wrapped, await loop.run_in_executor(one, job.echo, 2)

    assert asyncio.run(both()) == (1, 2)


def test_a_callback_may_submit(job: Job, one: Executor) -> None:
    second: concurrent.futures.Future[Any] = concurrent.futures.Future()
    first = one.submit(job.add)
    first.add_done_callback(lambda _: second.set_result(one.submit(job.add)))
    assert got(got(second)) == 2


def test_what_waits_can_be_cancelled_and_what_runs_cannot(
    job: Job, one: Executor, fifo: Path
) -> None:
    running = job.hold.submit(str(fifo))
    waiting, last = job.add.submit(), job.add.submit(10)
    with fifo.open("w", encoding="utf-8"):
        assert not running.cancel()
        assert waiting.cancel()
        assert repr(one) == "<engram.active.Executor workers=1 running=1 waiting=2>"
    assert got(last) == 10
    futures: list[concurrent.futures.Future[Any]] = [running, waiting, last]
    done, _ = concurrent.futures.wait(futures, PATIENCE)
    assert len(done) == 3


def test_a_worker_sees_what_is_committed_alone(pool: engram.Pool, one: Executor) -> None:
    job = Job(data=np.zeros(1))
    job.make_persistent()
    reader = Job(data=np.zeros(1))
    reader.make_persistent()
    with pool.batch():
        job.n = 5
        assert got(one.submit(reader.n_of, job)) == 0
    assert got(one.submit(reader.n_of, job)) == 5
    assert job.n_seen_here_and_by(one, reader) == (6, 5)


# Arguments and results


def test_persistent_objects_go_by_reference(job: Job, one: Executor) -> None:
    assert one
    other = Job(data=np.zeros(1), n=3)
    other.make_persistent()
    assert got(job.n_of.submit(other)) == 3
    assert got(job.echo.submit([other]))[0] is other


def test_volatile_objects_go_by_value(job: Job, one: Executor) -> None:
    assert one
    volatile = Job(data=np.arange(2.0), n=4)
    back = got(job.echo.submit(volatile))
    assert back is not volatile
    assert not back.is_persistent
    assert (back.n, back.data.tolist()) == (4, [0.0, 1.0])


@pytest.mark.parametrize(
    "array",
    [
        np.arange(12).reshape(3, 4),
        np.zeros((0, 3), "f4"),
        np.arange(1_000_000, dtype="<i2"),
        np.asfortranarray(np.arange(100_000.0).reshape(100, 1000)),
        np.arange(100_000)[::3],
        np.array([("a", 1.5)] * 1000, [("name", "U5"), ("x", ">f8")]),
    ],
    ids=["small", "empty", "large", "fortran", "strided", "structured"],
)
def test_arrays_go_and_come_exactly(job: Job, one: Executor, array: np.ndarray[Any, Any]) -> None:
    assert one
    back, more, named = got(job.echo.submit(array, array[:1], last=array[1:]))
    assert_exactly(back, array)
    assert_exactly(more[0], array[:1])
    assert_exactly(named["last"], array[1:])
    assert back.flags.writeable


def test_arguments_are_as_they_were_when_submitted(job: Job, one: Executor, fifo: Path) -> None:
    assert one
    running = job.hold.submit(str(fifo))
    array = np.zeros(1000)
    waiting = job.echo.submit(array)
    array[:] = 1
    fifo.write_text("", encoding="utf-8")
    got(running)
    assert not got(waiting).any()


def test_an_argument_that_does_not_pickle_is_refused_at_once(job: Job, one: Executor) -> None:
    assert one
    with pytest.raises(engram.ArgumentError, match=r"an argument of .*echo.* cannot be sent"):
        job.echo.submit(threading.Lock())


def test_a_result_that_does_not_pickle_is_a_method_error(job: Job, one: Executor) -> None:
    assert one
    with pytest.raises(active.MethodError, match=r"committed, but its result cannot be sent: func"):
        got(job.add_and_give.submit("a function"))
    with pytest.raises(active.MethodError, match=r"result of Job\.add_and_give .*cannot be had"):
        got(job.add_and_give.submit("no way back"))
    assert job.n == 2


# What is refused


@pytest.mark.parametrize("workers", [0, -1, True, 1.5, "2"])
def test_an_executor_has_a_number_of_workers(workers: Any) -> None:
    with pytest.raises(engram.ArgumentError, match=r"workers=.* is no number of processes"):
        active.Executor(workers)


def test_only_methods_of_persistent_objects_are_submitted(job: Job, one: Executor) -> None:
    with pytest.raises(engram.ArgumentError, match=r"Job\.total was submitted for a volatile"):
        one.submit(Job(data=np.zeros(1)).total)
    with pytest.raises(engram.ArgumentError, match="is no active method"):
        one.submit(len, [])
    with pytest.raises(engram.ArgumentError, match="needs an object"):
        one.submit(Job.total)
    with pytest.raises(engram.ArgumentError, match="executor=2 is none"):
        job.total.submit(executor=2)  # type: ignore[arg-type]


def test_without_an_executor_submit_says_how_to_have_one(job: Job) -> None:
    with pytest.raises(engram.ArgumentError, match=r"with engram\.active\.Executor"):
        job.total.submit()
    with active.Executor(1) as outer:
        with active.Executor(1) as inner:
            assert got(job.pid.submit()) in inner.pids
        assert got(job.pid.submit()) in outer.pids
    with pytest.raises(engram.ArgumentError, match="there is no executor here"):
        job.total.submit()


def test_an_executor_that_is_shut_down_takes_nothing(job: Job) -> None:
    executor = active.Executor(1)
    future = executor.submit(job.add)
    executor.shutdown()
    assert future.done()
    executor.shutdown()
    assert repr(executor) == "<engram.active.Executor (shut down)>"
    with pytest.raises(engram.ArgumentError, match="shut down"):
        executor.submit(job.add)
    assert executor.pids == []


def test_leaving_by_an_exception_cancels_what_has_not_begun(job: Job, fifo: Path) -> None:
    executor = active.Executor(1)
    running, waiting = executor.submit(job.hold, str(fifo)), executor.submit(job.add)

    def leave(kind: type[BaseException]) -> None:
        with executor:
            raise kind

    with fifo.open("w", encoding="utf-8") as file:  # it runs
        leaving = threading.Thread(target=pytest.raises, args=(KeyError, leave, KeyError))
        leaving.start()
        assert concurrent.futures.wait([waiting], PATIENCE).done
        file.write("on")
    leaving.join(PATIENCE)
    assert waiting.cancelled()
    assert got(running) == "on"


def test_leaving_by_ctrl_c_ends_what_runs(job: Job, fifo: Path) -> None:
    executor = active.Executor(1)
    running = executor.submit(job.hold, str(fifo))
    with fifo.open("w", encoding="utf-8"):
        with pytest.raises(KeyboardInterrupt), executor:
            raise KeyboardInterrupt
        with pytest.raises(active.WorkerDiedError, match="SIGKILL"):
            got(running)


# Exceptions


def test_an_exception_comes_back_with_its_type_and_its_place(job: Job, one: Executor) -> None:
    assert one
    with pytest.raises(ValueError, match="value") as caught:
        got(job.add_and_raise.submit("value"))
    assert 'raise ValueError(error)\nValueError: value\n"""' in str(caught.value.__cause__)
    assert job.n == 0


def test_an_exception_that_cannot_come_is_a_method_error(job: Job, one: Executor) -> None:
    assert one
    name = NoPickleError.__name__
    with pytest.raises(active.MethodError, match=f"failed in a worker:(.|\n)*{name}"):
        got(job.add_and_raise.submit("no pickle"))


def test_an_exception_comes_back_whatever_its_class_is_called_with(job: Job, one: Executor) -> None:
    assert one
    with pytest.raises(TwoWordsError, match="two words") as caught:
        got(job.add_and_raise.submit("2"))
    assert (caught.value.args, caught.value.second) == (("two words",), " words")


def test_an_array_to_write_into_is_not_sent(job: Job, one: Executor) -> None:
    assert one
    told = "cannot write into out= from a worker"
    with pytest.raises(engram.ArgumentError, match=told):
        job.put.submit(3.0, out=job.data)
    with pytest.raises(engram.ArgumentError, match=told):
        job.put.submit(3.0, np.zeros(2))
    got(job.put.submit(3.0))
    assert_exactly(job.data, np.full(4, 3.0))


# Deaths


@pytest.mark.parametrize(
    ("number", "said"),
    [
        (signal.SIGKILL, "was killed by SIGKILL"),
        (signal.SIGSEGV, "was killed by SIGSEGV"),
        (0, "ended with exit code 3"),
    ],
    ids=["killed", "segfault", "exit"],
)
def test_a_worker_that_dies_is_an_exception_and_is_replaced(
    job: Job, one: Executor, number: int, said: str
) -> None:
    got(job.add.submit(10))
    before = one.pids
    dying, waiting = job.add_and_die.submit(number), job.add.submit()
    with pytest.raises(active.WorkerDiedError, match=rf"Job\.add_and_die of .* \(pid .*\) {said}"):
        got(dying)
    assert got(waiting) == 11  # its lock is gone, and what it had not committed never happened
    assert job.n == 11
    assert one.pids != before


def test_a_call_that_a_dying_worker_has_not_read_is_run_by_another(job: Job, one: Executor) -> None:
    (pid,) = [got(job.pid.submit())]
    os.kill(pid, signal.SIGSTOP)
    large = np.ones(8 << 20, np.uint8)
    futures: list[Any] = []
    thread = threading.Thread(target=lambda: futures.append(one.submit(job.echo, large)))
    thread.start()
    os.kill(pid, signal.SIGKILL)
    thread.join(PATIENCE)
    assert got(futures[0]).nbytes == large.nbytes


def test_an_idle_worker_that_dies_is_replaced(job: Job, one: Executor) -> None:
    assert one
    pid = got(job.pid.submit())
    ended = os.pidfd_open(pid)
    os.kill(pid, signal.SIGKILL)
    wait_for(ended)
    outcomes = []
    for _ in range(2):  # the first one may still have been sent to the dead
        try:
            outcomes.append(got(job.pid.submit()))
        except active.WorkerDiedError:
            continue
    assert outcomes
    assert pid not in outcomes


def wait_for(pidfd: int) -> None:
    waiting = select.poll()
    waiting.register(pidfd, select.POLLIN)
    try:
        assert waiting.poll(PATIENCE * 1000), "it lives on"
    finally:
        os.close(pidfd)


def test_workers_that_cannot_start_are_an_exception(
    job: Job, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(sys, "executable", "/bin/false")
    executor = active.Executor(2)

    def called() -> Any:
        return got(executor.submit(job.nothing))

    for _ in range(2):
        with pytest.raises(active.WorkerDiedError, match=r"no worker could be started: .* code 1"):
            called()
    executor.shutdown()


def test_workers_are_bound_to_processors(job: Job) -> None:
    allowed = sorted(os.sched_getaffinity(0))
    with active.Executor(cpus=allowed[:1]) as executor:
        assert executor.workers == 1
        pid = got(executor.submit(job.pid))
        assert os.sched_getaffinity(pid) == {allowed[0]}
    with active.Executor(2, node=0) as executor:
        assert os.sched_getaffinity(got(executor.submit(job.pid))) <= set(allowed)
    wrong: list[dict[str, Any]] = [
        {"cpus": []},
        {"cpus": [100_000]},
        {"node": 4711},
        {"cpus": [0], "node": 0},
    ]
    for options in wrong:
        with pytest.raises(engram.ArgumentError, match=r"cpus|node"):
            active.Executor(1, **options)


def test_workers_do_not_end_by_an_interruption(job: Job, one: Executor, fifo: Path) -> None:
    assert one
    pid = got(job.pid.submit())
    assert os.getsid(pid) == pid  # Ctrl-C in this terminal does not come to it
    running = job.hold.submit(str(fifo))
    with fifo.open("w", encoding="utf-8") as file:
        os.kill(pid, signal.SIGINT)
        file.write("on")
    assert got(running) == "on"


def test_a_forked_child_is_refused_and_the_parent_goes_on(job: Job, one: Executor) -> None:
    def in_fork() -> None:
        with pytest.raises(engram.ArgumentError, match="made before a fork"):
            one.submit(job.add)
        one.shutdown()

    assert child(in_fork) == 0
    assert got(one.submit(job.add)) == 1


def test_an_executor_that_nobody_has_any_more_ends_its_workers(job: Job) -> None:
    executor = active.Executor(1)
    future = executor.submit(job.pid)
    ended = os.pidfd_open(got(future))
    del executor, future
    gc.collect()
    wait_for(ended)


# Pools


def test_objects_that_a_method_makes_are_in_the_pool_in_use(
    job: Job, one: Executor, home: Path
) -> None:
    assert one
    pool = job._home
    with engram.create(home / "other", size="16 MiB", force=True) as other, active.use(other):
        made = got(job.make.submit("made"))
        assert made is Job.get_by_alias("made")
        assert made._home.pool_path == other.path
    with active.use(None):
        made = got(job.make.submit("here"))
        assert made._home is pool


def test_a_pool_that_is_open_for_reading_is_read_by_workers_alone(
    home: Path, one: Executor
) -> None:
    assert one
    with engram.create(home / "p", size="16 MiB", force=True) as pool:
        Job(data=np.arange(4.0)).make_persistent("job")
    with engram.open(home / "p", mode="r") as pool:
        job = Job.get_by_alias("job", pool=pool)
        assert got(job.total.submit()) == 6.0
        with pytest.raises(engram.ReadOnlyError):
            got(job.add.submit())


def test_a_pool_that_was_made_anew_at_its_path_is_the_new_one(home: Path) -> None:
    with active.Executor(1) as executor:
        for n in range(2):
            with engram.create(home / f"p{n}", size="16 MiB", force=True):
                job = Job(data=np.zeros(1), n=n)
                job.make_persistent("job")
                (home / f"p{n}").rename(home / "p")
            with engram.open(home / "p"):
                assert got(executor.submit(Job.get_by_alias("job").add, 0)) == n
            (home / "p").rename(home / f"old{n}")


# Messages


@given(
    kind=st.integers(0, 5),
    body=st.binary(max_size=200) | st.integers(60_000, 200_000).map(bytes),
    sizes=st.lists(st.integers(0, 70_000) | st.just(700_000), max_size=5),
)
def test_messages_arrive_as_they_were_sent(kind: int, body: bytes, sizes: list[int]) -> None:
    ours, theirs = wire.pair()
    rng = np.random.default_rng(len(body))
    buffers = [memoryview(rng.bytes(size)) for size in sizes]
    with ours, theirs:
        sending = threading.Thread(
            target=wire.Wire(ours).send, args=(wire.Message(kind, body, buffers),)
        )
        sending.start()
        found = wire.Wire(theirs).receive()
        sending.join()
    assert (found.kind, found.body) == (kind, body)
    assert [bytes(buffer) for buffer in found.buffers] == [bytes(buffer) for buffer in buffers]


def test_a_message_that_is_cut_off_is_an_error() -> None:
    ours, theirs = wire.pair()
    with theirs:
        with ours:
            ours.send(b"\2\0\0")
        with pytest.raises(EOFError):
            wire.Wire(theirs).receive()


# Loading


def test_active_objects_alone_do_not_load_what_starts_processes() -> None:
    code = (
        "import sys, engram.active\n"
        "print('engram.active.workers.executor' in sys.modules, 'subprocess' in sys.modules)\n"
    )
    assert in_child(code).split()[0] == "False"
