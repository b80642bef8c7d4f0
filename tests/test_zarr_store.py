"""A group of a pool as a store of Zarr's: keys, views, batches, many processes, refusals."""

from __future__ import annotations

import asyncio
import gc
import os
import pickle
import subprocess
import sys
import threading
from contextlib import nullcontext
from typing import TYPE_CHECKING, Any

import numpy as np
import pytest
import xarray as xr
import zarr
from zarr.abc.store import OffsetByteRequest, RangeByteRequest, SuffixByteRequest
from zarr.core.buffer import cpu, default_buffer_prototype
from zarr.core.sync import _get_loop, sync

import engram
from engram.zarr import Store
from support import in_child

if TYPE_CHECKING:
    from collections.abc import Callable
    from contextlib import AbstractContextManager
    from pathlib import Path

PROTOTYPE = default_buffer_prototype()
VALUES = np.arange(24 * 30, dtype="f8").reshape(24, 30)


@pytest.fixture
def store(pool: engram.Pool) -> Store:
    return Store(pool.create_group("keys"))


def buffer(data: bytes) -> Any:
    return cpu.Buffer.from_bytes(data)


def value(store: Store, key: str) -> bytes | None:
    found = store.get_sync(key)
    return None if found is None else bytes(found.to_bytes())


def listed(store: Store, prefix: str = "") -> list[str]:
    async def collect() -> list[str]:
        return [key async for key in store.list_prefix(prefix)]

    return sorted(sync(collect()))


def names(store: Store, prefix: str = "") -> list[str]:
    async def collect() -> list[str]:
        return [name async for name in store.list_dir(prefix)]

    return sorted(sync(collect()))


# What it is


def test_zarr_keeps_groups_and_arrays_there(store: Store) -> None:
    root = zarr.create_group(store, attributes={"title": "model"})
    made = root.create_array("run/T", shape=(24, 30), chunks=(5, 7), dtype="f8", fill_value=-1.0)
    made[:20] = VALUES[:20]
    again = zarr.open_group(store, mode="r")
    assert again.attrs["title"] == "model"
    assert np.array_equal(again["run/T"][:20], VALUES[:20])
    assert (again["run/T"][20:] == -1).all()
    assert [*store.group] == ["run", "zarr.json"]
    assert bytes(store.group["run/T/zarr.json"]) == value(store, "run/T/zarr.json")
    del root["run"]
    assert listed(store) == ["zarr.json"]
    zarr.open_group(store, mode="w")
    assert listed(store) == ["zarr.json"]
    assert dict(zarr.open_group(store).attrs) == {}


def test_what_is_read_is_the_pools_own_memory(store: Store) -> None:
    store.set_sync("c/0", buffer(b"0123456789" * 1000))
    memory = store.group["c/0"].view()
    for asked, part in [
        (None, slice(None)),
        (RangeByteRequest(10, 20), slice(10, 20)),
        (RangeByteRequest(9990, 20000), slice(9990, None)),
        (OffsetByteRequest(9000), slice(9000, None)),
        (SuffixByteRequest(100), slice(-100, None)),
        (SuffixByteRequest(15000), slice(None)),
    ]:
        found = store.get_sync("c/0", prototype=PROTOTYPE, byte_range=asked).as_numpy_array()
        assert np.shares_memory(found, memory)
        assert not found.flags.writeable
        assert found.tobytes() == memory[part].tobytes()
    (first, none) = sync(
        store.get_partial_values(PROTOTYPE, [("c/0", RangeByteRequest(0, 2)), ("c/1", None)])
    )
    assert (first.to_bytes(), none) == (b"01", None)


def test_what_was_read_stays_when_it_is_replaced_or_deleted(store: Store) -> None:
    store.set_sync("c/0", buffer(b"a" * 5000))
    first = store.get_sync("c/0")
    store.set_sync("c/0", buffer(b"b" * 5000))
    second = store.get_sync("c/0")
    store.delete_sync("c/0")
    store.set_sync("c/1", buffer(b"c" * 5000))
    assert first.to_bytes() == b"a" * 5000
    assert second.to_bytes() == b"b" * 5000
    assert value(store, "c/0") is None


@pytest.mark.parametrize("order", [["a", "a/b", "a/b/c"], ["a/b/c", "a/b", "a"]])
def test_a_key_may_begin_another_one(store: Store, order: list[str]) -> None:
    for key in order:
        store.set_sync(key, buffer(key.encode()))
    assert listed(store) == ["a", "a/b", "a/b/c"]
    assert listed(store, "a/") == ["a/b", "a/b/c"]
    assert (names(store), names(store, "a"), names(store, "a/b")) == (["a"], ["b"], ["c"])
    assert [value(store, key) for key in order] == [key.encode() for key in order]
    sync(store.delete_dir("a/b"))
    assert listed(store) == ["a", "a/b"]
    store.delete_sync("a")
    assert (listed(store), names(store)) == (["a/b"], ["a"])
    store.delete_sync("a/b")
    assert (listed(store), names(store)) == ([], [])
    assert sync(store.is_empty(""))


def test_a_group_of_which_the_last_key_went_is_not_listed(store: Store) -> None:
    store.set_sync("T/zarr.json", buffer(b"{}"))
    store.set_sync("T/c/0/0", buffer(b"0"))
    store.delete_sync("T/c/0/0")
    assert names(store, "T") == ["zarr.json"]
    store.delete_sync("T/zarr.json")
    assert names(store) == []


def test_members_that_are_no_blobs_are_no_keys_and_stay(store: Store) -> None:
    store.group["T"] = VALUES
    store.group["run/P"] = VALUES
    store.set_sync("run/zarr.json", buffer(b"{}"))
    store.set_sync("x/c/0", buffer(b"0"))
    assert listed(store) == ["run/zarr.json", "x/c/0"]
    assert names(store) == ["run", "x"]
    assert value(store, "T") is None
    assert not sync(store.exists("T"))
    store.delete_sync("T")
    sync(store.clear())
    assert listed(store) == []
    assert (store.group["T"][...] == VALUES).all()
    assert (store.group["run/P"][...] == VALUES).all()
    with pytest.raises(engram.ExistsError, match="'T' is an array of the pool"):
        store.set_sync("T/c/0", buffer(b"0"))


def test_keys_of_many_names_are_listed(store: Store) -> None:
    key = "/".join(["a"] * 1500)
    store.set_sync(key, buffer(b"1"))
    assert listed(store) == [key]
    assert names(store) == ["a"]
    sync(store.clear())
    assert sync(store.is_empty(""))


def test_no_key_begins_with_a_slash(store: Store) -> None:
    for key in ("ab", "a/b"):
        store.set_sync(key, buffer(b"1"))
    assert listed(store, "/") == listed(store, "/a") == []
    assert listed(store, "a") == ["a/b", "ab"]


def test_many_keys_are_listed_and_counted_without_reading_them(store: Store) -> None:
    keys = [f"T/c/{n}" for n in range(2500)]
    sync(store._set_many((key, buffer(b"123")) for key in keys))
    assert listed(store) == sorted(keys)
    assert listed(store, "T/c/24") == sorted(key for key in keys if key.startswith("T/c/24"))
    assert sync(store.getsize_prefix("T")) == 7500
    assert sync(store.getsize("T/c/7")) == 3
    sync(store.delete_dir("T/c"))
    assert listed(store) == []


def test_of_several_that_put_what_is_not_there_one_does(store: Store) -> None:
    async def race() -> None:
        await asyncio.gather(
            *(asyncio.to_thread(asyncio.run, put(bytes([n]))) for n in range(8)),
        )

    async def put(data: bytes) -> None:
        await store.set_if_not_exists("lock", buffer(data))
        seen.append(value(store, "lock"))

    seen: list[bytes | None] = []
    asyncio.run(race())
    assert len(seen) == 8
    assert len(set(seen)) == 1


def test_it_is_equal_to_a_store_of_the_same_group(store: Store, pool: engram.Pool) -> None:
    other = Store(pool.create_group("other"))
    assert store == Store(pool["keys"])
    assert hash(store) == hash(Store(pool["keys"]))
    assert store != other
    assert store == store.with_read_only(read_only=True)
    assert repr(store) == f"Store('engram://{pool.path}/keys')"
    assert str(Store(pool)) == f"engram://{pool.path}"


def test_it_pickles_as_where_it_is(store: Store) -> None:
    zarr.create_array(store, name="T", data=VALUES, chunks=(5, 7))
    pickled = pickle.dumps(zarr.open_array(store, path="T", mode="r"))
    assert len(pickled) < 5000
    code = (
        "import pickle, sys; a = pickle.load(open(sys.argv[1], 'rb'));"
        "print(a[:].sum(), a.store.read_only, a.store_path)"
    )
    path = store.group._namespace.pool_path.parent / "pickle"
    path.write_bytes(pickled)
    said = in_child(code, path)
    assert said == f"{VALUES.sum()} True {store}/T"


def test_the_pools_mode_is_the_stores(pool: engram.Pool) -> None:
    pool.create_group("keys")
    with engram.open(pool.path, "r") as reading:
        assert Store(reading["keys"]).read_only
        with pytest.raises(engram.ArgumentError, match=r"open its pool with mode 'r\+'"):
            Store(reading["keys"], read_only=False)
    assert not Store(pool["keys"]).read_only


def test_a_store_of_a_snapshot_stays_as_it_was(store: Store, pool: engram.Pool) -> None:
    made = zarr.create_array(store, name="T", data=VALUES, chunks=(24, 30))
    with pool.snapshot() as then:
        made[:] = 0
        shown = Store(then["keys"])
        assert shown.read_only
        assert np.array_equal(zarr.open_array(shown, path="T", mode="r")[:], VALUES)
        with pytest.raises(engram.ArgumentError, match="snapshot"):
            pickle.dumps(shown)
    assert not zarr.open_array(store, path="T")[:].any()


# With others


def unspecified(consolidated: bool) -> AbstractContextManager[Any]:
    """Expect what zarr says of consolidated metadata."""
    if not consolidated:
        return nullcontext()
    return pytest.warns(UserWarning, match="Consolidated metadata is currently not part")


@pytest.mark.parametrize("consolidated", [True, False])
def test_xarray_writes_it_and_opens_it(store: Store, consolidated: bool) -> None:
    dataset = xr.Dataset(
        {"T": (("time", "x"), VALUES, {"units": "K"})},
        {"time": np.arange("2000-01-01", "2000-01-25", dtype="M8[D]").astype("M8[ns]")},
        {"title": "model"},
    )
    with unspecified(consolidated):
        dataset.to_zarr(store, consolidated=consolidated)
    xr.testing.assert_identical(xr.open_zarr(store, consolidated=consolidated).load(), dataset)
    later = dataset.assign_coords(time=dataset.time + np.timedelta64(24, "D"))
    with unspecified(consolidated):
        later.to_zarr(store, append_dim="time", consolidated=consolidated)
    both = xr.concat([dataset, later], "time", data_vars="all")
    xr.testing.assert_identical(xr.open_zarr(store, consolidated=consolidated).load(), both)
    region = {"time": slice(0, 24), "x": slice(None)}
    (dataset[["T"]] * 2).drop_vars("time").to_zarr(store, region=region, consolidated=consolidated)
    found = xr.open_zarr(store, consolidated=consolidated).T.to_numpy()
    assert np.array_equal(found[:24], VALUES * 2)
    assert np.array_equal(found[24:], VALUES)


def test_shards_are_read_in_part(store: Store) -> None:
    made = zarr.create_array(
        store, name="T", shape=(24, 30), dtype="f8", chunks=(3, 5), shards=(12, 15)
    )
    made[...] = VALUES
    made[4:7, 2:9] = 0
    expected = VALUES.copy()
    expected[4:7, 2:9] = 0
    assert len(listed(store, "T/c/")) == 4
    found = zarr.open_array(store, path="T", mode="r")
    assert np.array_equal(found[...], expected)
    assert found[5, 17] == expected[5, 17]


WRITER = """
import sys
import numpy as np
import zarr
import engram
from engram.zarr import Store

pool = engram.open(sys.argv[1])
array = zarr.open_array(Store(pool["keys"]), path="T")
first, step = int(sys.argv[2]), 0
print("ready", flush=True)
while True:
    for row in range(first, array.shape[0], 2):
        array[row] = np.full(array.shape[1], row * 1000.0 + step)
        print(row, step, flush=True)
    step = (step + 1) % 1000
"""


def test_many_processes_write_chunks_at_once_and_are_killed(
    store: Store, pool: engram.Pool
) -> None:
    made = zarr.create_array(
        store, name="T", shape=(8, 4096), chunks=(1, 4096), dtype="f8", compressors=None
    )
    acknowledged: dict[int, int] = {}
    for more in (3, 20):
        writers = [
            subprocess.Popen(
                [sys.executable, "-c", WRITER, pool.path, str(first)],
                stdout=subprocess.PIPE,
                text=True,
            )
            for first in (0, 1)
        ]
        for writer in writers:
            assert writer.stdout is not None
            assert writer.stdout.readline() == "ready\n"
            for _ in range(more):
                row, step = map(int, writer.stdout.readline().split())
                acknowledged[row] = step
            found = made[...]
            whole = (found == found[:, :1]).all(axis=1)
            assert whole.all()
            writer.kill()
            for line in writer.stdout:
                if line.count(" ") == 1 and line.endswith("\n"):
                    row, step = map(int, line.split())
                    acknowledged[row] = step
            writer.wait()
            writer.stdout.close()
        found = made[...]
        assert (found == found[:, :1]).all()
        for row, step in acknowledged.items():
            # One that was written and not acknowledged any more may have followed.
            assert found[row, 0] in {row * 1000.0 + step, row * 1000.0 + step + 1}
    pool.close()
    engram.verify(pool.path).check()


DASK = """
import sys
import numpy as np
import dask
import dask.array as da
import xarray as xr
import engram
from engram.zarr import Store

def main():
    values = da.from_array(np.arange(24 * 30.0).reshape(24, 30), chunks=(3, 30))
    with engram.open(sys.argv[1]) as pool, dask.config.set(scheduler="processes", num_workers=3):
        store = Store(pool.require_group("keys"))
        xr.Dataset({"T": (("y", "x"), values)}).to_zarr(store, consolidated=False)
        print(xr.open_zarr(store, consolidated=False).T.sum().compute().item())

if __name__ == "__main__":
    main()
"""


def test_workers_of_dask_write_it_in_processes_of_their_own(
    pool: engram.Pool, tmp_path: Path
) -> None:
    script = tmp_path / "script.py"
    script.write_text(DASK, encoding="utf-8")
    done = subprocess.run(
        [sys.executable, script, pool.path], capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stderr
    assert float(done.stdout) == VALUES.sum()
    assert len(listed(Store(pool["keys"]), "T/c/")) == 8
    assert np.array_equal(zarr.open_array(Store(pool["keys"]), path="T")[:], VALUES)


# Batches


def fill(store: Store, number: float) -> None:
    array = zarr.open_array(store, path="T", mode="r+")
    array[...] = number


@pytest.fixture
def made(store: Store) -> zarr.Array[Any]:
    return zarr.create_array(store, name="T", data=np.zeros((24, 30)), chunks=(2, 30))


def seen(store: Store) -> set[float]:
    """Read what somebody else sees."""
    return set(np.unique(zarr.open_array(Store(store.group), path="T", mode="r")[...]))


def test_a_batch_is_seen_at_once_and_sees_itself(store: Store, made: zarr.Array[Any]) -> None:
    with store.batch():
        fill(store, 1)
        zarr.create_array(store, name="P", data=VALUES)
        assert (made[...] == 1).all()
        assert (zarr.open_array(store, path="T", mode="r")[...] == 1).all()
        assert "P/zarr.json" in listed(store)
        assert seen(store) == {0}
        assert "P/zarr.json" not in listed(Store(store.group))
    assert seen(store) == {1}
    assert np.array_equal(zarr.open_array(store, path="P")[...], VALUES)


def test_nothing_of_a_batch_that_raises_is_kept(store: Store, made: zarr.Array[Any]) -> None:
    before = listed(store)
    with pytest.raises(ZeroDivisionError), store.batch():
        fill(store, 1)
        zarr.create_array(store, name="P", data=VALUES)
        raise ZeroDivisionError
    assert seen(store) == {0}
    assert listed(store) == before
    fill(store, 2)
    assert (made[...] == 2).all()


def test_a_conflict_undoes_a_batch(store: Store, made: zarr.Array[Any]) -> None:
    with pytest.raises(engram.BusyError), store.batch():
        fill(store, 1)
        other = zarr.open_array(Store(store.group), path="T", mode="r+")
        other[0] = 7
    assert seen(store) == {0, 7}
    del made


def test_a_batch_in_a_batch_joins_it(store: Store, made: zarr.Array[Any]) -> None:
    with store.batch():
        with store.batch():
            fill(store, 1)
        assert seen(store) == {0}
        made[:2] = 2
    assert seen(store) == {1, 2}


def test_dasks_threads_take_part_in_a_batch(store: Store) -> None:
    dataset = xr.Dataset({"T": (("y", "x"), VALUES)}).chunk(y=2)
    with store.batch():
        dataset.to_zarr(store, consolidated=False)
        assert listed(Store(store.group)) == []
    assert np.array_equal(zarr.open_array(store, path="T")[...], VALUES)


def test_what_comes_when_a_batch_has_ended_is_refused(store: Store) -> None:
    loop, event = _get_loop(), threading.Event()

    async def late() -> None:
        await asyncio.to_thread(event.wait)
        await store.set("late", buffer(b"1"))

    with pytest.raises(ZeroDivisionError), store.batch():
        waiting = asyncio.run_coroutine_threadsafe(late(), loop)
        raise ZeroDivisionError
    event.set()
    with pytest.raises(engram.BusyError, match="the batch in which this was begun has ended"):
        waiting.result(timeout=60)
    assert listed(store) == []
    store.set_sync("then", buffer(b"1"))


def test_a_store_runs_one_batch_at_a_time(store: Store) -> None:
    refused: list[BaseException] = []

    def work() -> None:
        try:
            with store.batch():
                pass
        except engram.BusyError as error:
            refused.append(error)

    with store.batch():
        thread = threading.Thread(target=work)
        thread.start()
        thread.join()
        store.set_sync("a", buffer(b"1"))
    assert "another thread runs a batch of this store" in str(refused[0])
    assert value(store, "a") == b"1"
    with Store(store.group).batch(), pytest.raises(engram.BusyError, match="never entered"):
        store.batch().__exit__(None, None, None)


def test_a_child_has_no_part_in_a_batch(store: Store) -> None:
    with store.batch():
        store.set_sync("a", buffer(b"1"))
        child = os.fork()
        if not child:
            try:
                os._exit(0 if value(store, "a") is None and listed(store) == [] else 1)
            finally:
                os._exit(2)
        _, status = os.waitpid(child, 0)
        assert os.waitstatus_to_exitcode(status) == 0
    assert value(store, "a") == b"1"


def test_a_store_that_runs_a_batch_is_not_given_to_another_process(store: Store) -> None:
    with store.batch(), pytest.raises(engram.BusyError, match="no other process can take part"):
        pickle.dumps(store)
    assert pickle.loads(pickle.dumps(store)) == store


def test_a_batch_leaves_no_thread(store: Store) -> None:
    before = threading.active_count()
    for _ in range(3):
        with store.batch():
            store.set_sync("a", buffer(b"1"))
    gc.collect()
    assert threading.active_count() == before


# Refusals


@pytest.mark.parametrize(
    "key", ["", "/a", "a//b", "a/../b", "a/", "x" * 300, "a/__value__", "a\0b", "\ud800"]
)
def test_what_cannot_be_a_name_is_no_key(store: Store, pool: engram.Pool, key: str) -> None:
    pool["a"] = b"of the root"
    with pytest.raises(engram.InvalidNameError, match="cannot be a key"):
        store.set_sync(key, buffer(b"1"))
    assert value(store, key) is None
    assert not sync(store.exists(key))
    store.delete_sync(key)
    assert bytes(pool["a"]) == b"of the root"


@pytest.mark.parametrize(
    "write",
    [
        lambda store: store.set("a", buffer(b"1")),
        lambda store: store.set_if_not_exists("a", buffer(b"1")),
        lambda store: store._set_many([("a", buffer(b"1"))]),
        lambda store: store.delete("a"),
        lambda store: store.delete_dir("a"),
        lambda store: store.clear(),
    ],
)
def test_a_store_for_reading_writes_nothing(store: Store, write: Callable[[Store], Any]) -> None:
    store.set_sync("a", buffer(b"0"))
    with pytest.raises(ValueError, match="store was opened in read-only mode"):
        sync(write(store.with_read_only(read_only=True)))
    with pytest.raises(ValueError, match="store was opened in read-only mode"):
        store.with_read_only(read_only=True).batch()
    assert value(store, "a") == b"0"


def test_a_closed_pool_is_named(store: Store, pool: engram.Pool) -> None:
    made = zarr.create_array(store, name="T", data=VALUES)
    pool.close()
    for work in (
        lambda: store.get_sync("zarr.json"),
        lambda: store.set_sync("a", buffer(b"1")),
        lambda: store.batch().__enter__(),
        lambda: made[...],
        lambda: sync(Store.open(store.group)),
    ):
        with pytest.raises(engram.ArgumentError, match=f"the pool {pool.path} is closed"):
            work()
    assert repr(store) == f"Store('engram://{pool.path}')"


def test_a_group_that_is_gone_is_named(store: Store, pool: engram.Pool) -> None:
    made = zarr.create_array(store, name="T", data=VALUES)
    del pool["keys"]
    for work in (
        lambda: store.get_sync("T/zarr.json"),
        lambda: store.set_sync("a", buffer(b"1")),
        lambda: store.delete_sync("a"),
        lambda: listed(store),
        lambda: made[...],
        lambda: made.__setitem__(slice(None), 1),
        lambda: sync(Store.open(store.group)),
    ):
        with pytest.raises(engram.NotFoundError, match=r"is gone|was deleted"):
            work()


def test_a_full_pool_is_named_and_nothing_half_done(home: Path) -> None:
    with engram.create(home / "small", size="8 MiB", force=True) as pool:
        store = Store(pool)
        made = zarr.create_array(
            store, name="T", shape=(64, 1 << 17), chunks=(1, 1 << 17), dtype="f8", compressors=None
        )
        before = listed(store)
        with pytest.raises(engram.PoolFullError), store.batch():
            made[...] = 1
        assert listed(store) == before
        made[:2] = 1
        assert (made[:2] == 1).all()


def test_what_is_no_group_or_no_buffer_is_refused(store: Store, pool: engram.Pool) -> None:
    with pytest.raises(engram.ArgumentError, match="is no group"):
        Store(pool.path)  # type: ignore[arg-type]
    with pytest.raises(TypeError, match="takes a zarr Buffer"):
        store.set_sync("a", b"1")
    with pytest.raises(TypeError, match="is no key"):
        store.get_sync(1)  # type: ignore[arg-type]
    with pytest.raises(FileNotFoundError):
        sync(store.getsize("a"))


def test_zarr_missing_is_named() -> None:
    code = (
        "import sys; sys.modules['zarr'] = None\n"
        "import engram\n"
        "try:\n    import engram.zarr\n"
        "except engram.UnsupportedError as error: print(error)"
    )
    assert in_child(code) == (
        "engram.zarr needs zarr, which is not installed: pip install 'engram[zarr]'"
    )
