"""Arrays over nodes and Dask: blocks stored where they are computed, parts that weigh no worker."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import dask.array as da
import numpy as np
import pytest
import xarray as xr
from distributed import Client, LocalCluster, wait

import engram
from cluster.rig import Rig, rigged
from engram import cluster as clusters

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

pytestmark = pytest.mark.usefixtures("own_state")


@pytest.fixture
def own_state(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path / "state"))


@pytest.fixture
def rig(home: Path) -> Iterator[Rig]:
    with rigged(home) as rig:
        yield rig


LIMIT = 300 << 20
"""The memory limit of a worker, above what it has of its own."""


@pytest.fixture
def client(rig: Rig) -> Iterator[Client]:
    """Give a client of two workers, each of which is a process of another node."""
    for number in range(2):
        rig.serve(number, size="512 MiB")
    options: dict[str, Any] = {"threads_per_worker": 1, "dashboard_address": ":0"}
    with LocalCluster(n_workers=2, memory_limit=LIMIT, **options) as local, Client(local) as own:
        own.run(be_of_node, rig.etcd, str(rig.folder))
        yield own


def be_of_node(etcd: list[str], folder: str, dask_worker: Any) -> None:
    """Open the cluster in a worker, as a process of the node of its number."""
    pool = f"{folder}/node{dask_worker.name}"
    clusters.cluster._opened["job"] = clusters.open("job", etcd=etcd, pool=pool)


def test_each_block_is_stored_by_the_worker_that_computed_it(rig: Rig, client: Client) -> None:
    user = clusters.open("job", etcd=rig.etcd, pool=rig.folder / "none")
    nodes = client.run(own_node)
    source = da.random.default_rng(1).random((400, 60), chunks=(50, 60)).persist()
    wait(source)
    held = dict(client.who_has(source).items())
    array = user.from_dask("D", source)
    assert len(set(nodes.values())) == 2
    for number, part in enumerate(array.parts):
        (worker,) = next(who for key, who in held.items() if str((number, 0))[1:] in str(key))
        assert part.node == nodes[worker]
    assert sum(map(len, array.holders().values())) == 8
    np.testing.assert_array_equal(array[...], source.compute())
    # And back: each part is read where it lies, from the pool's memory.
    lazy = array.dask()
    where = da.map_blocks(own_node_of, lazy, dtype="U64", chunks=(1, 1)).compute()
    assert where[:, 0].tolist() == [part.node for part in array.parts]
    np.testing.assert_array_equal((lazy * 2).compute(), source.compute() * 2)
    user.close()


def own_node(dask_worker: Any = None) -> str | None:  # noqa: ARG001 - as Dask calls it
    return clusters.cluster._opened["job"].node


def own_node_of(block: np.ndarray[Any, Any]) -> np.ndarray[Any, Any]:
    assert not block.flags.owndata
    return np.array([[own_node()]])


def test_parts_larger_than_a_workers_limit_are_read_in_place(rig: Rig, client: Client) -> None:
    with clusters.open("job", etcd=rig.etcd, pool=rig.folder / "none") as user:
        # 384 MiB on each node; what is computed of a part is small.
        array = user.create_array("big", (96, 1 << 20), parts=(8, 1), fill=2)
        array.publish()
        assert sum(part.nbytes for part in array.parts) > 2 * LIMIT
        lazy = array.dask()
        total = da.map_blocks(summed, lazy, chunks=(1, 1), dtype="f8")
        for _ in range(3):
            assert float(total.compute().sum()) == 2.0 * 96 * (1 << 20)
        told = client.run(standing)
        assert all(status == "running" for status, *_ in told.values()), told
        assert all(managed < 1 << 20 and spilled == 0 for _, managed, spilled in told.values())
        # The scheduler knows what lies where: by it tasks are placed.
        weights = client.run_on_scheduler(weighed)
        assert sum(nbytes for nbytes in weights if nbytes > 1 << 20) == 96 << 23


def summed(block: np.ndarray[Any, Any]) -> np.ndarray[Any, Any]:
    assert not block.flags.owndata
    return np.array([[block.sum()]])


def standing(dask_worker: Any) -> tuple[str, int, int]:
    data = dask_worker.data
    return dask_worker.status.name, data.fast.total_weight, len(data.slow)


def weighed(dask_scheduler: Any) -> list[int]:
    return [task.nbytes for task in dask_scheduler.tasks.values() if task.who_has]


def test_a_group_of_names_is_a_dataset(rig: Rig) -> None:
    rig.serve(0)
    rig.serve(1)
    with clusters.open("job", etcd=rig.etcd, pool=rig.folder / "node0") as user:
        days = np.arange(6, dtype="i4")
        values = np.arange(6 * 20, dtype="f4").reshape(6, 20)
        packed = {"scale_factor": np.float32(0.5), "_FillValue": np.float32(4)}
        with user.batch() as batch:
            units = {"units": "days since 2001-01-01"}
            batch.put("run/time", days, dims=("time",), attrs=units)
            batch.put(
                "run/T", values, dims=("time", "x"), attrs={"coordinates": "lat", "units": "K"}
            )
            batch.put("run/lat", np.linspace(0, 90, 20), dims=("x",))
            batch.put("run/P", values, dims=("time", "x"), attrs=packed)
            batch.put("run/more/U", values)
            batch.put("odd/a", values, dims=("time", "x"))
            batch.put("odd/b", days[:4], dims=("time",))
        with xr.open_dataset("engram://job/run", engine="engram") as found:
            assert set(found.data_vars) == {"T", "P"}
            assert set(found.coords) == {"time", "lat"}
            assert found.time.values[1] == np.datetime64("2001-01-02")
            assert isinstance(found["T"].data, da.Array)
            assert found["T"].data.chunks == ((3, 3), (20,))
            assert found["T"].attrs == {"units": "K"}
            np.testing.assert_array_equal(found["T"].mean("time"), values.mean(0))
            expected = np.where(values == 4, np.nan, values * 0.5)
            np.testing.assert_array_equal(found["P"], expected)
        with user.open_xarray("run", decode_times=False) as plain:
            np.testing.assert_array_equal(plain["time"], days)
            assert plain["T"].chunks == ((3, 3), (20,))
            user.put("run/T", values + 1, dims=("time", "x"))
            with pytest.raises(engram.NotFoundError, match="was replaced since"):
                plain["T"].load()
        with pytest.raises(engram.NotFoundError, match="right below engram://job/none"):
            xr.open_dataset("engram://job/none", engine="engram")
        with pytest.raises(engram.ArgumentError, match="dimension 'time' has the length"):
            user.open_xarray("odd")
        assert set(user.open_xarray("odd", drop_variables="b").data_vars) == {"a"}
        unnamed = user.open_xarray("run/more")
        assert unnamed["U"].dims == ("U_dim_0", "U_dim_1")


def test_what_is_written_in_place_is_computed_anew(rig: Rig) -> None:
    rig.serve(0)
    with clusters.open("job", etcd=rig.etcd, pool=rig.folder / "node0") as user:
        array = user.create_array("U", (40, 40), parts=(2, 1))
        first, second = array.dask(), array.dask()
        assert first.name != second.name
        for part in array.local_parts():
            part.array[...] = part.number
        assert float(first.sum().compute()) == 20 * 40
        sealed = array.publish()
        assert sealed.dask().name == sealed.dask().name
