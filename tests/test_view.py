"""Views are numpy arrays on the pool's own memory, and keep it whatever happens."""

import gc
import multiprocessing
import os
import subprocess
import sys
import threading
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray

import engram
from support import TEXT, assert_exactly, in_child

N = 100_000


@pytest.fixture
def array(pool: engram.Pool) -> engram.Array:
    """Give an array that lies in an extent."""
    return pool.create_array("x", data=np.arange(N, dtype="f8"))


def base_of(array: NDArray[Any]) -> Any:
    """Give what owns an array's memory."""
    base: Any = array
    while isinstance(base, np.ndarray):
        base = base.base
    return base


def test_views_share_the_pools_memory(array: engram.Array) -> None:
    view = array.view()
    assert np.shares_memory(view, array.view("r+"))
    assert np.shares_memory(view, np.asarray(array))
    assert not np.shares_memory(view, array[...])


def test_a_view_for_reading_cannot_be_made_writable(array: engram.Array) -> None:
    for view in (array.view(), array.view("r"), np.asarray(array), array.view()[10:20]):
        assert not view.flags.writeable
        with pytest.raises(ValueError, match="read-only"):
            view[0] = 1
        with pytest.raises(ValueError, match="WRITEABLE"):
            view.flags.writeable = True
        with pytest.raises(ValueError, match="WRITEABLE"):
            view.setflags(write=True)
        with pytest.raises((ValueError, BufferError)):
            np.frombuffer(base_of(view), "f8").flags.writeable = True
        assert memoryview(base_of(view)).readonly


def test_writes_through_a_view_are_seen_by_all(array: engram.Array) -> None:
    reading = array.view()
    writing = array.view("r+")
    writing += 1
    array.flush()
    assert_exactly(array[...], np.arange(1, N + 1, dtype="f8"))
    assert reading[0] == 1
    assert array[5] == 6


def test_a_view_for_writing_may_be_turned_read_only_and_back(array: engram.Array) -> None:
    view = array.view("r+")
    view.flags.writeable = False
    view.flags.writeable = True
    view[0] = 7
    assert array[0] == 7


def test_a_small_array_is_copied_for_reading_and_moved_for_writing(pool: engram.Pool) -> None:
    small = pool.create_array("s", data=[1, 2, 3])
    assert pool.used == 0
    assert not small.view().flags.writeable
    with pytest.raises(ValueError, match="WRITEABLE"):
        small.view().flags.writeable = True
    before = small.view()
    view = small.view("r+")
    assert pool.used > 0
    view[0] = 9
    assert small[...].tolist() == [9, 2, 3]
    assert before.tolist() == [1, 2, 3]
    assert np.shares_memory(small.view(), view)


@pytest.mark.parametrize("shape", [(0,), (3, 0)])
def test_an_empty_array_has_views(pool: engram.Pool, shape: tuple[int, ...]) -> None:
    array = pool.create_array("e", shape=shape)
    for mode in ("r", "r+"):
        assert array.view(mode).shape == shape
    array.flush()


def test_an_unknown_mode_is_refused(array: engram.Array) -> None:
    for mode in ("w", "", "rw"):
        with pytest.raises(engram.ArgumentError, match="r\\+"):
            array.view(mode)


def test_strings_of_variable_length_have_no_view(pool: engram.Pool) -> None:
    array = pool.create_array("t", data=np.array(["a", "b" * 9000], TEXT))
    for mode in ("r", "r+"):
        with pytest.raises(engram.ArgumentError, match="U16"):
            array.view(mode)
    assert np.asarray(array).tolist() == ["a", "b" * 9000]


def test_asarray_copies_only_when_it_must(pool: engram.Pool, array: engram.Array) -> None:
    assert np.shares_memory(np.asarray(array, copy=False), array.view())
    assert np.shares_memory(np.asarray(array, dtype="f8"), array.view())
    copied = np.array(array)
    assert copied.flags.writeable
    assert not np.shares_memory(copied, array.view())
    assert np.asarray(array, dtype="f4").dtype == np.float32
    with pytest.raises(ValueError, match="copy"):
        np.asarray(array, dtype="f4", copy=False)
    small = pool.create_array("small", data=[1, 2])
    with pytest.raises(ValueError, match="copy"):
        np.asarray(small, copy=False)
    assert np.asarray(small).tolist() == [1, 2]
    assert np.sum(small) == 3


# The claim


def claimed(pool: engram.Pool) -> int:
    """Count the extents that this process has views of."""
    gc.collect()
    return pool.space.views


def test_the_claim_ends_with_the_last_array_on_it(pool: engram.Pool, array: engram.Array) -> None:
    before = claimed(pool)
    view = array.view()
    part = view[10:20].reshape(2, 5).T
    assert claimed(pool) == before + 1
    del view
    assert claimed(pool) == before + 1
    assert part[0, 0] == 10
    del part
    assert claimed(pool) == before


def test_a_view_lives_on_after_delete_and_close(pool: engram.Pool, array: engram.Array) -> None:
    view = array.view()
    del pool["x"]
    for n in range(20):
        pool.create_array(f"new{n}", data=np.full(N, -1.0))
    assert_exactly(view, np.arange(N, dtype="f8"))
    pool.close()
    assert_exactly(view, np.arange(N, dtype="f8"))


def test_a_view_lives_on_after_its_array_is_replaced(
    pool: engram.Pool, array: engram.Array
) -> None:
    view = array.view("r+")
    pool["x"] = np.zeros(N)
    view[0] = 99
    assert view[1] == 1
    assert pool["x"][0] == 0


def test_space_under_a_view_is_used_again_only_after_it(pool: engram.Pool) -> None:
    pool.resize("64 MiB")
    big = np.full((40 << 20) // 8, 7.0)
    pool["x"] = big
    view = pool["x"].view()
    del pool["x"]
    with pytest.raises(engram.PoolFullError):
        pool["y"] = big
    assert view.min() == view.max() == 7
    del view
    pool["y"] = big


READER = """
import sys, numpy as np, engram
pool = engram.open(sys.argv[1], sys.argv[2])
view = pool["x"].view()
print("ready", flush=True)
sys.stdin.readline()
print(float(view.min()), float(view.max()))
"""


@pytest.mark.parametrize("mode", ["r", "r+"])
def test_a_view_in_another_process_keeps_its_memory(pool: engram.Pool, mode: str) -> None:
    pool["x"] = np.full(N, 7.0)
    with subprocess.Popen(
        [sys.executable, "-c", READER, pool.path, mode],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
    ) as child:
        assert child.stdout is not None
        assert child.stdout.readline() == "ready\n"
        del pool["x"]
        for n in range(50):
            pool[f"y{n}"] = np.full(N, -1.0)
        output, _ = child.communicate("\n")
    assert output == "7.0 7.0\n"


def test_another_process_sees_writes_in_place(pool: engram.Pool, array: engram.Array) -> None:
    view = array.view("r+")
    view[...] = 5
    code = "import sys, engram; print(engram.open(sys.argv[1], 'r')['x'].view().sum())"
    assert in_child(code, pool.path) == str(5.0 * N)


def test_a_forked_child_keeps_its_views_and_its_handles(
    pool: engram.Pool, array: engram.Array
) -> None:
    view = array.view()
    child = os.fork()
    if child == 0:
        good = view[5] == 5 and pool["x"][6] == 6
        pool["from child"] = 1
        os._exit(0 if good else 1)
    _, status = os.waitpid(child, 0)
    assert os.waitstatus_to_exitcode(status) == 0
    assert pool["from child"][()] == 1
    assert view[7] == 7


def _mean(handle: engram.Array) -> float:
    return float(np.mean(handle))


@pytest.mark.parametrize("method", ["fork", "spawn", "forkserver"])
def test_handles_travel_to_workers(pool: engram.Pool, method: str) -> None:
    handles = [pool.create_array(f"x{n}", data=np.full(5000, float(n))) for n in range(4)]
    context = multiprocessing.get_context(method)
    with context.Pool(2) as workers:
        assert workers.map(_mean, handles) == [0, 1, 2, 3]


def test_threads_share_a_pool(pool: engram.Pool) -> None:
    failures: list[BaseException] = []

    def work(name: str) -> None:
        try:
            group = pool.require_group(name)
            for n in range(200):
                group[f"x{n}"] = np.full(1000, n)
                assert group[f"x{n}"].view()[500] == n
                if n % 2:
                    del group[f"x{n}"]
        except BaseException as error:  # noqa: BLE001 - told by the main thread
            failures.append(error)

    threads = [threading.Thread(target=work, args=(f"t{n}",)) for n in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert failures == []
    assert [len(pool[f"t{n}"]) for n in range(4)] == [100] * 4
