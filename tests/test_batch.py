"""A batch happens all at once, or not at all."""

import os
import signal
import threading
from collections.abc import Iterator
from typing import Any

import numpy as np
import pytest

import engram
from support import TEXT, in_child

NAMES = "import sys, engram; print(*engram.open(sys.argv[1], 'r'))"


def test_a_batch_is_seen_when_it_ends(pool: engram.Pool) -> None:
    with pool.batch():
        pool["a"] = 1
        pool["b"] = np.zeros(10_000)
        assert list(pool) == ["a", "b"]
        assert pool["a"][()] == 1
        assert pool["b"].view().sum() == 0
        assert in_child(NAMES, pool.path) == ""
    assert in_child(NAMES, pool.path) == "a b"


def test_a_batch_that_raises_leaves_nothing(pool: engram.Pool) -> None:
    pool["old"] = np.ones(5000)
    pool["old"].attrs["a"] = 1
    used = pool.used
    with pytest.raises(ZeroDivisionError), pool.batch():
        pool["new"] = np.zeros(10_000)
        pool["g/x"] = 1
        pool["old"].attrs["a"] = 2
        pool.move("old", "moved")
        del pool["moved"]
        raise ZeroDivisionError
    assert list(pool) == ["old"]
    assert pool["old"].attrs["a"] == 1
    assert pool["old"][...].sum() == 5000
    assert pool.used == used
    assert engram.verify(pool.path).problems == []


def test_every_operation_works_in_a_batch(pool: engram.Pool) -> None:
    pool["doomed"] = 1
    pool["kept"] = 2
    with pool.batch():
        group = pool.create_group("g", attrs={"a": 1})
        array = group.create_array("x", data=[1, 2, 3])
        array[0] = 9
        array.attrs["unit"] = "K"
        group["text"] = np.array(["a", "b"], TEXT)
        group["blob"] = b"123"
        with group.allocate("big", shape=(100_000,)) as buf:
            buf[...] = 4
        assert group["big"].view().sum() == 400_000
        pool.move("kept", "g/kept")
        del pool["doomed"]
        pool["g/x2"] = group["x"]
        del group["blob"]
        assert list(group) == ["big", "kept", "text", "x", "x2"]
    group = pool["g"]
    assert list(pool) == ["g"]
    assert list(group) == ["big", "kept", "text", "x", "x2"]
    assert group["x"][...].tolist() == [9, 2, 3]
    assert group["x"].attrs["unit"] == "K"
    assert group["x2"][...].tolist() == [9, 2, 3]
    assert group["big"][...].sum() == 400_000
    assert group["kept"][()] == 2
    assert engram.verify(pool.path).problems == []


def test_thousands_of_operations_are_one_commit(pool: engram.Pool) -> None:
    with pool.batch():
        for n in range(5000):
            pool[f"g{n % 7}/x{n}"] = np.full(4, n)
    assert sum(len(pool[f"g{n}"]) for n in range(7)) == 5000
    assert pool["g1/x4999"][0] == 4999


def test_an_inner_batch_joins_the_outer(pool: engram.Pool) -> None:
    with pytest.raises(ZeroDivisionError), pool.batch():
        with pool.batch():
            pool["inner"] = 1
        assert in_child(NAMES, pool.path) == ""
        raise ZeroDivisionError
    assert list(pool) == []
    with pool.batch():
        with pool.batch():
            pool["inner"] = 1
        pool["outer"] = 2
    assert list(pool) == ["inner", "outer"]


def test_an_inner_batch_that_failed_undoes_the_outer(pool: engram.Pool) -> None:
    with pytest.raises(engram.BusyError, match="inner batch"), pool.batch():
        pool["outer"] = 1
        with pytest.raises(ZeroDivisionError), pool.batch():
            raise ZeroDivisionError
    assert list(pool) == []


def test_an_empty_batch_is_no_error(pool: engram.Pool) -> None:
    with pool.batch():
        pass


def test_a_batch_belongs_to_its_thread(pool: engram.Pool) -> None:
    seen: list[Any] = []

    def other() -> None:
        seen.append(list(pool))
        pool["other"] = 1

    with pool.batch():
        pool["mine"] = 1
        thread = threading.Thread(target=other)
        thread.start()
        thread.join()
    assert seen == [[]]
    assert list(pool) == ["mine", "other"]


def test_a_batch_that_another_thread_ends_goes_on(pool: engram.Pool) -> None:
    refused: list[BaseException] = []

    def ends(batch: Any) -> None:
        try:
            batch.__exit__(None, None, None)
        except engram.BusyError as error:
            refused.append(error)
        batch.__exit__(ValueError, ValueError("of another thread's block"), None)

    with pool.batch() as batch:
        pool["before"] = 1
        thread = threading.Thread(target=ends, args=(batch,))
        thread.start()
        thread.join()
        assert "running" in repr(batch)
        pool["after"] = 2
    assert [str(error)[:45] for error in refused] == [
        "this batch was begun in another thread: only "
    ]
    assert sorted(pool) == ["after", "before"]


def test_one_batch_object_serves_each_thread_for_itself(pool: engram.Pool) -> None:
    batch, begun, ended = pool.batch(), threading.Event(), threading.Event()

    def other() -> None:
        with batch:
            pool["other"] = 1
            begun.set()
            ended.wait(60)

    thread = threading.Thread(target=other)
    thread.start()
    assert begun.wait(60)
    with batch:
        pool["mine"] = 1
    assert list(pool) == ["mine"]
    ended.set()
    thread.join()
    assert sorted(pool) == ["mine", "other"]


def test_an_end_without_a_begin_is_refused(pool: engram.Pool) -> None:
    batch = pool.batch()
    with pytest.raises(engram.BusyError, match="never entered"):
        batch.__exit__(None, None, None)
    with batch:
        pool["a"] = 1
        batch.__exit__(None, None, None)
        with pytest.raises(engram.BusyError, match="ended already"):
            batch.__exit__(None, None, None)
        batch.__enter__()
    assert list(pool) == ["a"]


def test_an_operation_that_fails_in_a_batch_leaves_nothing_of_itself(pool: engram.Pool) -> None:
    with pool.batch():
        pool["b/a"] = 1
        with pytest.raises(engram.ArgumentError, match="into itself"):
            pool.move("b", "b/new/parents/b")
        assert list(pool.get("b")) == ["a"]
    assert list(pool.get("b")) == ["a"]


def test_a_conflict_raises_at_the_end_and_undoes_all(pool: engram.Pool) -> None:
    def other() -> None:
        pool["x"] = "theirs"

    with pytest.raises(engram.EngramError), pool.batch():
        pool.create_array("before", data=1)
        pool.create_array("x", data=np.zeros(10_000))
        thread = threading.Thread(target=other)
        thread.start()
        thread.join()
    assert list(pool) == ["x"]
    assert pool["x"][()] == "theirs"
    assert engram.verify(pool.path).problems == []


def test_writes_in_place_need_an_object_of_the_batch(pool: engram.Pool) -> None:
    pool["small"] = [1, 2]
    pool["large"] = np.zeros(10_000)
    with pool.batch():
        for name in ("small", "large"):
            with pytest.raises(engram.BusyError, match="batch"):
                pool[name][0] = 5
            with pytest.raises(engram.BusyError, match="batch"):
                pool[name].view("r+")
        pool["new"] = np.zeros(10_000)
        pool["new"][0] = 5
    assert pool["small"][0] == 1
    assert pool["large"][0] == 0
    assert pool["new"][0] == 5


def test_a_batch_covers_one_namespace(pool: engram.Pool) -> None:
    other = pool.create_namespace("other")
    with pool.batch():
        pool["x"] = 1
        with pytest.raises(engram.BusyError, match="one namespace"):
            other["y"] = 1
        with pytest.raises(engram.BusyError, match="one namespace"), other.batch():
            pass
    assert list(pool) == ["x"]
    assert list(other) == []
    with other.batch():
        other["y"] = 1
    assert list(other) == ["y"]


def test_a_batch_that_finds_no_room_leaves_nothing(pool: engram.Pool) -> None:
    pool.resize("16 MiB")
    with pytest.raises(engram.PoolFullError), pool.batch():
        for n in range(100):
            pool[f"x{n}"] = np.zeros(1 << 18)
    assert list(pool) == []
    assert pool.used == 0
    pool["fits"] = np.zeros(1 << 18)


def test_the_same_batch_may_begin_again(pool: engram.Pool) -> None:
    batch = pool.batch()
    for n in range(2):
        with batch:
            pool[f"x{n}"] = n
    assert list(pool) == ["x0", "x1"]


def test_a_forked_child_has_no_part_in_the_batch(pool: engram.Pool) -> None:
    with pool.batch():
        pool["x"] = 1
        child = os.fork()
        if child == 0:
            alone = list(pool) == []
            pool["from child"] = 2
            os._exit(0 if alone and list(pool) == ["from child"] else 1)
        _, status = os.waitpid(child, 0)
        assert os.waitstatus_to_exitcode(status) == 0
        with pytest.raises(engram.ExistsError):
            pool.create_array("from child", data=3)
        pool["y"] = 4
    assert list(pool) == ["from child", "x", "y"]
    assert pool["from child"][()] == 2


def test_a_batch_that_is_dropped_swallows_nothing_that_comes_after_it(pool: engram.Pool) -> None:
    batch = pool.batch()
    batch.__enter__()
    pool["of the batch"] = np.ones(100_000)
    del batch
    pool["after"] = 1
    with engram.open(pool.path) as other:
        assert list(other) == ["after"]
    assert not engram.verify(pool.path).problems


def test_a_batch_ended_in_another_thread_is_undone(pool: engram.Pool) -> None:
    def rows() -> Iterator[None]:
        with pool.batch():
            pool["row"] = 1
            yield

    waiting = rows()
    next(waiting)
    other = threading.Thread(target=waiting.close)  # type: ignore[attr-defined]
    other.start()
    other.join()
    del waiting
    pool["after"] = 1
    with engram.open(pool.path) as again:
        assert list(again) == ["after"]


def test_a_pool_is_not_closed_within_a_batch(pool: engram.Pool) -> None:
    with pool.batch():
        pool["x"] = 1
        with pytest.raises(engram.BusyError, match="batch"):
            pool.close()
    assert list(pool) == ["x"]


def test_a_signal_never_leaves_a_batch_behind(pool: engram.Pool) -> None:
    class Rung(Exception):  # noqa: N818 - no error
        pass

    def ring(_number: int, _frame: object) -> None:
        raise Rung

    before = signal.signal(signal.SIGALRM, ring)
    try:
        for rounds in range(300):
            try:
                signal.setitimer(signal.ITIMER_REAL, 0.0002)
                while True:
                    with pool.batch():
                        pool["b"] = rounds
            except Rung:
                pass
    finally:
        signal.setitimer(signal.ITIMER_REAL, 0)
        signal.signal(signal.SIGALRM, before)
    pool["final"] = 1
    with engram.open(pool.path) as other:
        assert "final" in other
