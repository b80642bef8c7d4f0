"""Arrays of a pool between workers of a node: by reference where it can be, else as bytes."""

from __future__ import annotations

import os
import pickle
import signal
import subprocess
import time
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import pytest

pytest.importorskip("dask.array")
pytest.importorskip("distributed")

import dask
import distributed
import xarray as xr

import dask_work
import engram
import engram.dask
from engram.dask import family, janitor, reference
from engram.dask.plugin import _finds, _marks
from engram.dask.reference import Reference, home_of, refer, resolve
from engram.dask.scratch import Scratch, namespace_name
from support import DTYPES, PATIENCE, assert_exactly, filled

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

COUNT = 20_000
BYTES = COUNT * 16
FEW = 3000
"""Bytes that a message without values has, whatever it says beside them."""


# References


def base(pool: engram.Namespace) -> Any:
    """Give a view of an array with many values."""
    pool["T"] = np.arange(120_000.0).reshape(40, 50, 60)
    return pool["T"].view()


PARTS: list[Callable[[Any], Any]] = [
    lambda a: a,
    lambda a: a[3:30],
    lambda a: a[::-1],
    lambda a: a.T,
    lambda a: a[::3, ::-2, 5:],
    lambda a: a.transpose(1, 2, 0)[:, ::-1],
    lambda a: a.reshape(-1)[7:-9],
    lambda a: a.view("<i8")[1:],
    lambda a: a.view(">u2"),
    lambda a: a.view("M8[ns]")[2:],
    lambda a: a.view("V16"),
    lambda a: a.view([("x", "<f4"), ("y", ">i4")])[:, 1:],
    lambda a: a.view(np.dtype([("x", "<f8")], metadata={"of": "mine"})),
    lambda a: a[:, :, 5:9],
    lambda a: np.lib.stride_tricks.sliding_window_view(a, 3, axis=0),
    lambda a: np.broadcast_to(a[0, 0], (100, 60)),
    lambda a: np.frombuffer(memoryview(a).cast("B"), "u1"),
]


@pytest.mark.parametrize("part", PARTS)
def test_a_reference_is_the_array(pool: engram.Pool, part: Callable[[Any], Any]) -> None:
    given = part(base(pool))
    made = refer(given)
    assert made is not None
    assert len(pickle.dumps(made.flat())) < 500
    found = resolve(Reference.of_flat(pickle.loads(pickle.dumps(list(made.flat())))))
    assert_exactly(found, np.asarray(given))
    assert found.strides == given.strides
    assert found.dtype.metadata == given.dtype.metadata
    assert found.__array_interface__["data"] == (*given.__array_interface__["data"][:1], True)


@pytest.mark.parametrize("dtype", [one for one in DTYPES if one.itemsize], ids=str)
def test_every_dtype_can_be_referred_to(pool: engram.Pool, dtype: np.dtype[Any]) -> None:
    pool["T"] = filled(dtype, (reference.LEAST + 5,))
    made = refer(pool["T"].view()[5:])
    assert made is not None
    assert_exactly(resolve(made), pool["T"].view()[5:])


def of_a_subclass(pool: engram.Pool) -> Any:
    return base(pool).view(np.recarray)


def masked(pool: engram.Pool) -> Any:
    return np.ma.masked_less(base(pool), 5)


def copied(pool: engram.Pool) -> Any:
    return base(pool).copy()


def of_objects(pool: engram.Pool) -> Any:
    return base(pool).astype(object)


def small(pool: engram.Pool) -> Any:
    return base(pool)[0, 0]


def without_items(pool: engram.Pool) -> Any:
    return base(pool)[:0]


def single(pool: engram.Pool) -> Any:
    return base(pool)[0, 0, 0, ...]


def in_the_catalog(pool: engram.Pool) -> Any:
    pool["T"] = np.arange(9.0)
    return np.broadcast_to(pool["T"].view(), (10_000, 9))


def unnamed(pool: engram.Pool) -> Any:
    return pool.scratch((COUNT,))


def being_filled(pool: engram.Pool) -> Any:
    with pool.allocate("T", shape=(COUNT,)) as found:
        assert refer(found) is None
        raise StopIteration


def deleted(pool: engram.Pool) -> Any:
    found = base(pool)
    del pool["T"]
    return found


def replaced(pool: engram.Pool) -> Any:
    found = base(pool)
    base(pool)
    return found


def published(pool: engram.Pool) -> Any:
    found = base(pool)
    pool.publish("T", closed=True)
    return found


def of_a_batch_that_failed(pool: engram.Pool) -> Any:
    with suppress(ZeroDivisionError), pool.batch():
        found = base(pool)
        assert 1 / 0
    return found


NO_REFERENCE = [
    *(of_a_subclass, masked, copied, of_objects, small, without_items, single, in_the_catalog),
    *(unnamed, deleted, replaced, published, of_a_batch_that_failed),
]


@pytest.mark.parametrize("make", NO_REFERENCE)
def test_nothing_refers_to_what_others_would_not_find(
    pool: engram.Pool, make: Callable[[Any], Any]
) -> None:
    assert refer(make(pool)) is None


def test_what_is_filled_is_referred_to_once_it_is_published(pool: engram.Pool) -> None:
    with pytest.raises(StopIteration):
        being_filled(pool)
    with pool.allocate("T", shape=(COUNT,)) as found:
        found[...] = 7
    made = refer(found)
    assert made is not None
    assert_exactly(resolve(made), np.full(COUNT, 7.0))


def test_one_claim_serves_all_parts_of_an_object(pool: engram.Pool) -> None:
    given = base(pool)
    parts = [resolve(refer(given[n]) or pytest.fail("no reference")) for n in range(40)]
    assert pool.space.views <= 3
    assert_exactly(np.stack(parts), np.asarray(given))
    del pool["T"]
    assert float(parts[39][-1, -1]) == 119_999


def test_a_lost_reference_is_told(pool: engram.Pool) -> None:
    made = refer(base(pool))
    assert made is not None
    del pool["T"]
    with pytest.raises(reference.LostReferenceError, match="bytes are asked for"):
        resolve(made)
    path = Path(pool.path)
    pool.close()
    elsewhere = made._replace(home=made.home._replace(path=str(path / "nowhere")))
    with pytest.raises(EOFError, match="bytes are asked for"):
        resolve(elsewhere)


# What lies in the pool of results


def test_results_go_with_their_last_view(pool: engram.Pool) -> None:
    scratch = Scratch(str(pool.path))
    space = pool.namespaces[namespace_name()]
    kept = scratch.keep(np.ones((COUNT, 2)))
    turned = scratch.keep(np.asfortranarray(filled(np.dtype("i4"), (300, 70))))
    made = scratch.empty((COUNT, 2), np.dtype("f4"))
    assert kept is not None
    assert turned is not None
    assert turned.flags.f_contiguous
    assert_exactly(turned, filled(np.dtype("i4"), (300, 70)))
    assert made.flags.writeable
    assert sorted(map(home_name, (kept, turned, made))) == [namespace_name()] * 3
    (group,) = space.values()
    assert len(group) == 3
    part = kept[5:, ::-1]
    del kept, turned
    janitor.settle()
    assert len(group) == 2
    del part, made
    janitor.settle()
    assert len(group) == 0
    scratch.close()
    assert list(space) == []


def home_name(array: Any) -> str:
    found = home_of(array)
    assert found is not None
    return found.namespace


def test_what_cannot_be_kept_stays_where_it_is(pool: engram.Pool) -> None:
    scratch = Scratch(str(pool.path))
    assert scratch.keep(np.zeros(300 << 17)) is None  # the pool has 256 MiB
    assert scratch.keep(np.array([{}])) is None
    (group,) = pool.namespaces[namespace_name()].values()
    assert len(group) == 0
    scratch.close()


def test_a_forked_child_drops_no_results(pool: engram.Pool) -> None:
    scratch = Scratch(str(pool.path))
    kept = scratch.keep(np.ones((COUNT, 2)))
    child = os.fork()
    if child == 0:
        del kept
        os._exit(0)
    assert os.waitpid(child, 0)[1] == 0
    (group,) = pool.namespaces[namespace_name()].values()
    assert len(group) == 1
    scratch.close()


def test_two_workers_of_one_process_leave_each_other_alone(pool: engram.Pool) -> None:
    first, second = Scratch(str(pool.path)), Scratch(str(pool.path))
    kept = first.keep(np.ones((COUNT, 2)))
    second.sweep()
    second.close()
    assert refer(kept) is not None
    first.close()


# Clusters

QUIET = {
    # It drops copies of results that nobody needs just then, wherever it pleases.
    "distributed.scheduler.active-memory-manager.start": False,
    # A worker that is killed twice within this time is given up.
    "distributed.deploy.lost-worker-timeout": "1 hour",
}


@pytest.fixture(scope="module")
def cluster() -> Iterator[Any]:
    """Give the client of a cluster of two workers."""
    with (
        dask.config.set(QUIET),
        distributed.LocalCluster(
            n_workers=2, threads_per_worker=1, dashboard_address=":0", memory_limit=0
        ) as found,
        distributed.Client(found) as client,
    ):
        yield client


@pytest.fixture
def client(cluster: Any) -> Iterator[Any]:
    """Give a cluster that is as it was at first, and is again."""
    cluster.wait_for_workers(2)
    yield cluster
    if "engram" in cluster.run_on_scheduler(plugins):
        engram.dask.uninstall(cluster)


def plugins(dask_scheduler: Any) -> list[str]:
    return list(dask_scheduler.worker_plugins)


def workers(client: Any) -> list[str]:
    return sorted(client.nthreads())


def sent(client: Any, worker: str) -> list[int]:
    found: list[int] = client.run(dask_work.sent, workers=[worker])[worker]
    return found


@contextmanager
def counted(client: Any) -> Iterator[list[int]]:
    """Count the bytes of each message between workers."""
    before = {worker: len(sent(client, worker)) for worker in workers(client)}
    found: list[int] = []
    yield found
    for worker in workers(client):
        found += sent(client, worker)[before.get(worker, 0) :]


def passed(client: Any, make: Any, *given: Any, use: Any = dask_work.told) -> Any:
    """Make something in one worker, and use it in the other."""
    first, second = workers(client)[:2]
    made = client.submit(make, *given, workers=[first], pure=False)
    return client.submit(use, made, workers=[second], pure=False).result(timeout=PATIENCE)


def told(value: Any) -> Any:
    return dask_work.told(value)


@pytest.mark.parametrize("key", [..., slice(5, -5), (slice(None, None, -2), 1)])
def test_a_view_travels_by_reference(client: Any, pool: engram.Pool, key: Any) -> None:
    pool["T"] = np.arange(COUNT * 2.0).reshape(COUNT, 2)
    with counted(client) as before:
        passed(client, dask_work.view, str(pool.path), "T", key)
    assert before[0] > BYTES / 5
    engram.dask.install(client)
    with counted(client) as found:
        assert passed(client, dask_work.view, str(pool.path), "T", key) == told(
            pool["T"].view()[key]
        )
        assert (
            passed(client, dask_work.view, str(pool.path), "T", key, use=dask_work.home)
            == "default"
        )
    assert len(found) == 2
    assert max(found) < FEW
    engram.dask.uninstall(client)
    with counted(client) as after:
        passed(client, dask_work.view, str(pool.path), "T", key)
    assert after[0] > BYTES / 5


def in_a_list(path: str) -> Any:
    return [dask_work.view(path, "T"), {"a": dask_work.view(path, "T")[::2], "b": 7}, "text"]


def in_a_dataset(path: str) -> Any:
    a = dask_work.view(path, "T")
    return xr.Dataset({"T": (("y", "x"), a), "S": (("y", "x"), a[::-1] + 0)}, {"x": [0, 1]})


def in_a_variable(path: str) -> Any:
    return xr.Variable(("y", "x"), dask_work.view(path, "T")[3:])


def in_a_data_array(path: str) -> Any:
    return xr.DataArray(dask_work.view(path, "T"), dims=("y", "x"), attrs={"units": "K"})


def equal(found: Any, given: Any) -> bool:
    """Whether two such things are equal."""
    if isinstance(given, list):
        return len(found) == len(given) and all(map(equal, found, given))
    if isinstance(given, dict):
        return found.keys() == given.keys() and all(equal(found[n], given[n]) for n in given)
    if isinstance(given, np.ndarray):
        return bool((found == given).all()) and found.dtype == given.dtype
    if isinstance(given, xr.Dataset | xr.DataArray | xr.Variable):
        return bool(found.identical(given))
    return bool(found == given)


def homes(value: Any) -> list[str | None]:
    return [dask_work.home(one) for one in family.arrays_in(value)]


@pytest.mark.parametrize(
    ("make", "least"),
    [(in_a_list, 0), (in_a_dataset, BYTES), (in_a_variable, 0), (in_a_data_array, 0)],
)
def test_arrays_in_other_things_travel_by_reference(
    client: Any, pool: engram.Pool, make: Any, least: int
) -> None:
    pool["T"] = np.arange(COUNT * 2.0).reshape(COUNT, 2)
    engram.dask.install(client)
    first, second = workers(client)
    made = client.submit(make, str(pool.path), workers=[first], pure=False)
    with counted(client) as found:
        other = client.submit(homes, made, workers=[second]).result(timeout=PATIENCE)
    assert "default" in other
    assert least <= sum(found) < least + 2 * FEW
    assert equal(made.result(), make(str(pool.path)))
    again = client.submit(lambda one: one, made, workers=[second], pure=False)
    assert equal(again.result(), make(str(pool.path)))


def of_a_mask(path: str) -> Any:
    return np.ma.masked_less(dask_work.view(path, "T"), 5)


def of_python(path: str) -> Any:
    return dask_work.view(path, "T")[:99].astype(object)


def of_records(path: str) -> Any:
    return dask_work.view(path, "T").view("f8,f8").view(np.recarray)


def of_few(path: str) -> Any:
    return dask_work.view(path, "T")[:3]


def of_one(path: str) -> Any:
    return dask_work.view(path, "T")[3, 1, ...]


def of_none(path: str) -> Any:
    return dask_work.view(path, "T")[3:3]


def of_this_process(path: str) -> Any:
    return dask_work.view(path, "T") + 0


AS_BYTES = [of_a_mask, of_python, of_records, of_few, of_one, of_none, of_this_process]


@pytest.mark.parametrize("make", AS_BYTES)
def test_all_else_travels_as_it_did(client: Any, pool: engram.Pool, make: Any) -> None:
    pool["T"] = np.arange(COUNT * 2.0).reshape(COUNT, 2)
    expected = passed(client, make, str(pool.path))
    engram.dask.install(client)
    assert repr(passed(client, make, str(pool.path))) == repr(expected)
    assert passed(client, make, str(pool.path), use=dask_work.home) is None


@pytest.mark.parametrize("order", ["C", "F"])
def test_a_result_is_left_in_the_pool(client: Any, pool: engram.Pool, order: str) -> None:
    engram.dask.install(client, pool=pool, above=BYTES)
    space = pool.namespaces[namespace_name()]
    first, second = workers(client)
    made = client.submit(dask_work.ones, COUNT, order, workers=[first], pure=False)
    distributed.wait(made)
    assert space.space.used == 0
    with counted(client) as found:
        use = client.submit(dask_work.told, made, workers=[second], pure=False)
        (_, dtype, shape, writeable, listed) = use.result(timeout=PATIENCE)
        assert (dtype, shape, writeable) == (np.dtype("f8"), (COUNT, 2), False)
        assert listed == [[1, 1]] * COUNT
    assert max(found) < FEW
    assert space.space.used >= BYTES
    name = namespace_name()
    assert client.run(dask_work.held) == {first: [name], second: [name]}
    del made, use
    wait_for(lambda: space.space.used == 0)
    assert [len(group) for group in space.values()] == [0, 0]


def test_smaller_results_are_sent(client: Any, pool: engram.Pool) -> None:
    engram.dask.install(client, pool=str(pool.path), above=BYTES + 1, size="64 MiB")
    assert pool.namespaces[namespace_name()].space.size == 64 << 20
    with counted(client) as found:
        assert passed(client, dask_work.ones, COUNT, use=dask_work.home) is None
    assert max(found) > BYTES / 5


def test_a_result_is_made_in_the_pool(client: Any, pool: engram.Pool) -> None:
    engram.dask.install(client, pool=pool)
    with counted(client) as found:
        assert passed(client, dask_work.made, COUNT, use=dask_work.total) == COUNT * 2
    assert max(found) < FEW
    assert engram.dask.empty((3,), "i2").dtype == np.dtype("i2")  # outside of a worker


def test_a_full_pool_has_results_sent(client: Any, pool: engram.Pool) -> None:
    engram.dask.install(client, pool=pool, size="64 MiB")
    count = 5 << 20
    assert passed(client, dask_work.ones, count, use=dask_work.total) == count * 2
    assert passed(client, dask_work.made, count, use=dask_work.total) == count * 2
    assert pool.namespaces[namespace_name()].space.used == 0


def wait_for(done: Callable[[], object]) -> None:
    """Wait until something is so."""
    end = time.monotonic() + PATIENCE
    while not done():
        assert time.monotonic() < end, "it does not happen"
        time.sleep(0.02)


def test_a_killed_worker_leaks_nothing(client: Any, pool: engram.Pool, home: Path) -> None:
    engram.dask.install(client, pool=pool)
    space = pool.namespaces[namespace_name()]
    first, second = workers(client)
    kept = client.submit(dask_work.made, COUNT, workers=[first], pure=False)
    shared = client.submit(dask_work.slow_at_first, kept, str(home), workers=[second])
    wait_for((home / "tried").exists)
    other = client.submit(dask_work.made, 2 * COUNT, workers=[second], pure=False)
    assert space.space.used >= BYTES
    groups = set(space)
    for worker in (first, second):
        os.kill(client.run(dask_work.pid, workers=[worker])[worker], signal.SIGKILL)
    client.wait_for_workers(2)
    del kept, shared, other  # which can never be had: the new workers have other addresses
    wait_for(lambda: len(space) == 2 and not groups & set(space))
    wait_for(lambda: space.space.used == 0)
    assert passed(client, dask_work.made, COUNT, use=dask_work.total) == COUNT * 2


def test_what_another_worker_looks_at_outlives_its_maker(client: Any, pool: engram.Pool) -> None:
    engram.dask.install(client, pool=pool)
    space = pool.namespaces[namespace_name()]
    first, second = workers(client)
    made = client.submit(dask_work.made, COUNT, workers=[first], pure=False)
    copy = client.submit(lambda x: x[1:], made, workers=[second], pure=False)
    distributed.wait(copy)
    assert client.run(dask_work.held, workers=[second]) == {second: [namespace_name()] * 2}
    del made
    os.kill(client.run(dask_work.pid, workers=[first])[first], signal.SIGKILL)
    wait_for(lambda: first not in workers(client) and len(workers(client)) == 2)
    wait_for(lambda: space.space.used == 0)  # the dead worker's group is gone
    kept = client.submit(dask_work.total, copy, workers=[second])
    assert kept.result(timeout=PATIENCE) == COUNT * 2 - 2
    third = next(worker for worker in workers(client) if worker != second)
    moved = client.submit(dask_work.total, copy, workers=[third], pure=False)
    assert moved.result(timeout=PATIENCE) == COUNT * 2 - 2


def test_an_object_that_goes_on_the_way_is_sent(client: Any, pool: engram.Pool) -> None:
    pool["T"] = np.arange(COUNT * 2.0).reshape(COUNT, 2)
    expected = pool["T"][...].tolist()
    engram.dask.install(client)
    _, second = workers(client)
    client.run(dask_work.lose_next, str(pool.path), "T", workers=[second])
    found = passed(client, dask_work.view, str(pool.path), "T")
    assert "T" not in pool
    assert found[-1] == expected


def test_a_worker_without_the_pool_is_sent_bytes(client: Any, pool: engram.Pool) -> None:
    pool["T"] = np.arange(COUNT * 2.0).reshape(COUNT, 2)
    engram.dask.install(client, pool=pool)
    _, second = workers(client)
    failed = client.run(dask_work.failures, workers=[second])[second]
    client.run(dask_work.hide, workers=[second])
    try:
        with counted(client) as found:
            assert passed(client, dask_work.view, str(pool.path), "T", use=dask_work.home) is None
            assert passed(client, dask_work.ones, 4 * COUNT, use=dask_work.home) is None
        assert min(found) > BYTES / 5
        assert client.run(dask_work.failures, workers=[second]) == {second: failed}
    finally:
        client.run(dask_work.show, workers=[second])


def test_a_worker_that_loses_the_pool_later_is_sent_bytes(client: Any, pool: engram.Pool) -> None:
    pool["T"] = np.arange(COUNT * 2.0).reshape(COUNT, 2)
    engram.dask.install(client)
    assert passed(client, dask_work.view, str(pool.path), "T", use=dask_work.home) == "default"
    _, second = workers(client)
    client.run(dask_work.hide, workers=[second])
    try:
        assert passed(client, dask_work.view, str(pool.path), "T")[-1] == pool["T"][...].tolist()
    finally:
        client.run(dask_work.show, workers=[second])


def test_a_worker_that_comes_later_takes_part(client: Any, pool: engram.Pool) -> None:
    pool["T"] = np.arange(COUNT * 2.0).reshape(COUNT, 2)
    engram.dask.install(client)
    known = set(workers(client))
    client.cluster.scale(3)
    client.wait_for_workers(3)
    try:
        (third,) = set(workers(client)) - known
        made = client.submit(dask_work.view, str(pool.path), "T", workers=[min(known)])
        assert client.submit(dask_work.home, made, workers=[third]).result() == "default"
    finally:
        client.cluster.scale(2)
        wait_for(lambda: len(workers(client)) == 2)


def test_what_cannot_be_installed_is_told(client: Any, pool: engram.Pool, home: Path) -> None:
    with pytest.raises(engram.PoolNotFoundError, match=r"2 workers cannot .*have workers on"):
        engram.dask.install(client, pool=home / "nowhere")
    assert "engram" not in client.run_on_scheduler(plugins)
    with pytest.raises(engram.ArgumentError, match="no client of distributed's"):
        engram.dask.install("tcp://127.0.0.1:1")
    with pytest.raises(engram.ArgumentError, match="pool 7 is none"):
        engram.dask.install(client, pool=7)  # type: ignore[arg-type]
    with pytest.raises(engram.ArgumentError, match="give bytes"):
        engram.dask.install(client, pool=pool, above="much")


def test_a_cluster_reads_and_writes_a_pool(client: Any, pool: engram.Pool) -> None:
    for installed in (False, True):
        if installed:
            engram.dask.install(client, pool=pool, above="16 KiB")
        pool["T"] = np.arange(COUNT * 2.0).reshape(COUNT, 2)
        x = engram.dask.from_pool(pool["T"], chunks=(1000, 2))
        y = (x + x[::-1]).rechunk((1500, 1))
        layouts: list[Any] = [{}, {"chunks": (1200, 2), "codec": "lz4"}]
        for layout in layouts:
            engram.dask.to_pool(y, pool, "U", overwrite=True, **layout)
            assert_exactly(pool["U"][...], pool["T"][...] + pool["T"][::-1])
        delayed: Any = engram.dask.to_pool(y.T, pool, "V", compute=False)
        assert delayed.compute() == pool["V"]
        assert_exactly(pool["V"][...], (pool["T"][...] + pool["T"][::-1]).T)
        with pytest.raises(RuntimeError, match="this block fails"):
            engram.dask.to_pool(x.map_blocks(dask_work.broken, meta=x._meta), pool, "W")
        wait_for(lambda: not [name for name in pool if name.startswith(".")])
        for name in ("T", "U", "V"):
            del pool[name]
        del x, y, delayed


@pytest.mark.parametrize("layout", [{}, {"chunks": (1200, 2), "codec": "lz4"}])
def test_a_worker_that_dies_while_it_writes_loses_nothing(
    client: Any, pool: engram.Pool, home: Path, layout: Any
) -> None:
    pool["T"] = np.arange(COUNT * 2.0).reshape(COUNT, 2)
    x = engram.dask.from_pool(pool["T"], chunks=(1000, 2))
    y = x.map_blocks(dask_work.dies_at_first, str(home), meta=x._meta)
    engram.dask.to_pool(y, pool, "U", **layout)
    assert (home / "died").exists()
    assert_exactly(pool["U"][...], pool["T"][...])
    wait_for(lambda: sorted(pool) == ["T", "U"])
    del client


def test_a_copy_of_a_pool_is_not_taken_for_it(pool: engram.Pool, home: Path) -> None:
    given = home_of(base(pool))
    assert given is not None
    marks = _marks(given)
    assert _finds(given, marks)
    pool.close()
    # The catalog has holes, which a copy of Python's would fill.
    subprocess.run(["cp", "-r", "--sparse=always", given.path, str(home / "copy")], check=True)
    copied = given._replace(path=str(home / "copy"))
    assert _marks(copied)[0] == marks[0]
    assert not _finds(copied, marks)
    assert not _finds(given._replace(uuid="0" * 32), marks)
    assert not _finds(given._replace(namespace="other"), marks)


def test_a_closed_pool_is_opened_by_the_workers(client: Any, pool: engram.Pool) -> None:
    pool["T"] = np.arange(COUNT * 2.0).reshape(COUNT, 2)
    x = engram.dask.from_pool(pool["T"], chunks=(1000, 2))
    pool.close()
    assert float(x.sum().compute()) == float(np.arange(COUNT * 2.0).sum())
    del client


# xarray's datasets, by workers


@pytest.mark.parametrize("installed", [False, True])
def test_datasets_are_read_and_written_by_workers(
    client: Any, pool: engram.Pool, installed: bool
) -> None:
    if installed:
        engram.dask.install(client, pool=pool, above="16 KiB")
    days = np.arange("2003-01-01", "2003-01-09", dtype="M8[D]").astype("M8[ns]")
    values = 380 + np.arange(8 * 4000.0).reshape(8, 4000)
    given = xr.Dataset(
        {"T": (("time", "x"), values, {"units": "K"}), "i": ("x", np.arange(4000))},
        {"time": days, "x": np.arange(4000)},
    )
    lazy = given.chunk({"time": 2, "x": 1000})
    packed = {"T": {"chunks": (2, 1000), "codec": "lz4"}}
    for name, encoding in (("plain", {}), ("chunked", packed)):
        group = pool.create_group(name)
        lazy.isel(time=slice(0, 4)).engram.to_pool(group, encoding=encoding)
        lazy.isel(time=slice(4, 8)).engram.to_pool(group, append_dim="time")
        by_handle: Any = group
        for opened in (
            xr.open_dataset(f"{pool.path}/{name}", chunks={}),
            xr.open_dataset(by_handle, engine="engram", chunks={"time": 4}),
        ):
            with opened:
                xr.testing.assert_identical(opened.compute(), given)
                assert float(opened["T"].mean().compute()) == pytest.approx(values.mean())
                anomaly = opened["T"] - opened["T"].mean("time")
                xr.testing.assert_allclose(anomaly.compute(), given["T"] - given["T"].mean("time"))
        part = (lazy * 2).drop_vars(["i", "time", "x"]).isel(time=slice(2, 4))
        part.engram.to_pool(group, region={"time": slice(2, 4)})
        assert_exactly(group["T"][2:4], values[2:4] * 2)


def test_a_scheduler_of_datasets_needs_no_pool(pool: engram.Pool) -> None:
    values = np.arange(COUNT * 2.0).reshape(COUNT, 2)
    xr.Dataset({"T": (("y", "x"), values)}).engram.to_pool(pool.create_group("g"))
    by_handle: Any = pool["g"]
    with (
        xr.open_dataset(by_handle, engine="engram", chunks={}) as by,
        xr.open_dataset(f"{pool.path}/g", chunks={}) as at,
    ):
        kept = [pickle.dumps(by), pickle.dumps(at)]
    path = Path(pool.path)
    pool.close()
    aside = path.with_name("aside")
    path.rename(aside)
    again = [pickle.loads(one) for one in kept]
    aside.rename(path)
    for one in again:
        with one:
            assert_exactly(one["T"].compute(scheduler="sync").values, values)
