"""xarray opens groups as datasets, and writes them: nothing is copied, lost or half done."""

from __future__ import annotations

import gc
import os
import pickle
import subprocess
import sys
import threading
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest
import xarray as xr

import engram
from support import TEXT
from test_import_netcdf import DATA_FILES

PLACES = {"source", "original_shape"}


def weather(days: int = 4) -> xr.Dataset:
    """Return a dataset with times, texts, a packed variable and coordinates of each kind."""
    times = pd.date_range("2000-01-01", periods=days, unit="ns")
    found = xr.Dataset(
        {
            "T": (("time", "x"), 273 + np.arange(days * 3.0).reshape(days, 3), {"units": "K"}),
            "station": ("time", np.array([f"s{n}" * (n + 1) for n in range(days)], object)),
            "count": ("x", np.arange(3, dtype="i2")),
        },
        {"time": times, "x": [1.5, 2.5, 3.5], "lat": ("x", [10.0, 20.0, 30.0]), "run": 7},
        {"title": "weather", "levels": [1, 2]},
    )
    found["T"].encoding = {"dtype": "i2", "scale_factor": 0.5, "_FillValue": np.int16(-1)}
    found["time"].encoding = {"units": "hours since 1999-12-31", "calendar": "standard"}
    return found


@pytest.fixture
def path(pool: engram.Pool) -> str:
    """Give the path of a pool with a dataset in the group `w`."""
    weather().engram.to_pool(pool.create_group("w"))
    return pool.path


def snapshot(group: engram.Group) -> dict[str, Any]:
    """Return all that is in a group."""
    found: dict[str, Any] = {"": repr(group.attrs)}
    for name, member in group.items():
        found[name] = (member[...].tolist(), repr(member.attrs), member.dims, member.chunks)
    return found


# Opening


def test_a_path_into_a_pool_needs_no_engine_named(path: str, pool: engram.Pool) -> None:
    pool.create_group("deep/er")
    weather().engram.to_pool(pool["deep/er"])
    for found in (f"{path}/w", Path(path, "w"), f"{path}/deep/er", pool["w"]):
        with xr.open_dataset(found) as opened:
            xr.testing.assert_identical(opened, weather())
    with xr.open_dataset(path, group="deep/er") as opened:
        xr.testing.assert_identical(opened, weather())
    url = f"engram://{path}/run"
    weather().engram.to_pool(url)
    # Without an engine named, xarray takes any URL to be netCDF4's.
    with xr.open_dataset(url, engine="engram") as opened:
        xr.testing.assert_identical(opened, weather())
    with xr.open_dataarray(pool["w"], drop_variables=["station", "count"]) as opened:
        assert opened.name == "T"


def test_a_namespace_is_opened_by_its_name(pool: engram.Pool) -> None:
    weather().engram.to_pool(pool.create_namespace("icesat", mode=0o700))
    with xr.open_dataset(pool.path, namespace="icesat") as opened:
        xr.testing.assert_identical(opened, weather())
    with pytest.raises(engram.ArgumentError, match="goes with a path"):
        xr.open_dataset(pool, engine="engram", namespace="icesat")


def test_values_are_numpy_on_the_pools_memory(pool: engram.Pool) -> None:
    pool.create_array("big", data=np.arange(100_000.0), dims=("x",))
    with xr.open_dataset(pool) as opened:
        assert not opened["big"].variable._in_memory
        values = opened["big"].to_numpy()
        assert np.shares_memory(values, pool["big"].view())
        assert np.shares_memory(opened["big"][10:20].to_numpy(), pool["big"].view())
        assert not values.flags.writeable
    floats = np.where(np.arange(9_000) % 9, 1.0, np.nan)
    xr.Dataset({"a": ("x", floats)}).engram.to_pool(pool.create_group("g"))
    with xr.open_dataset(pool["g"]) as opened:  # its fill value is NaN
        assert np.shares_memory(opened["a"].to_numpy(), pool["g/a"].view())
        assert np.isnan(opened["a"].encoding["_FillValue"])
    with xr.open_dataset(pool["g"], mask_and_scale=False) as opened:
        assert np.isnan(opened["a"].attrs["_FillValue"])


def test_every_kind_of_member_is_a_variable(pool: engram.Pool) -> None:
    pool["inline"] = np.arange(3, dtype=">i4")
    pool["named"] = np.arange(3.0)
    pool["flags"] = np.array([b"a", b"b", b""])
    pool["wide"] = np.array(["ab", "c"])
    pool["texts"] = np.array(["one", "two"], TEXT)
    pool["text"] = "höhe"
    pool["blob"] = b"\x00\xff"
    pool["truth"] = np.array([True, False])
    pool.create_array("chunked", data=np.arange(20).reshape(4, 5), chunks=(3, 2), dims=("y", "x"))
    pool.create_group("group")
    with xr.open_dataset(pool.path) as opened:
        assert set(opened.variables) == {*pool} - {"group"}
        for name, variable in opened.variables.items():
            raw = pool[str(name)]
            expected = list(raw[...]) if name == "blob" else np.asarray(raw[...]).tolist()
            assert np.asarray(variable).tolist() == expected
        assert opened["named"].dims == ("named_dim_0",)
        assert opened["chunked"].dims == ("y", "x")
        assert np.asarray(opened["chunked"][::-2, [4, 0]]).tolist() == [[19, 15], [9, 5]]
        assert np.asarray(opened["texts"][1:]).tolist() == ["two"]
        assert np.asarray(opened["flags"][::2]).tolist() == [b"a", b""]


def test_chunks_are_the_arrays_own_or_a_size(pool: engram.Pool) -> None:
    how = {"T": {"chunks": (2, 3), "codec": "lz4"}}
    weather().engram.to_pool(pool, encoding=how)
    assert (pool["T"].chunks, pool["T"].codec) == ((2, 3), "lz4")
    with xr.open_dataset(pool, chunks={}) as opened:
        assert opened["T"].chunks == ((2, 2), (3,))
        xr.testing.assert_identical(opened, weather())
    with xr.open_dataset(pool, chunks={"time": 4, "x": 3}) as opened:
        assert opened["T"].chunks == ((4,), (3,))


def test_many_groups_are_opened_as_one(pool: engram.Pool) -> None:
    whole = weather(6)
    for n in range(3):
        whole.isel(time=slice(2 * n, 2 * n + 2)).engram.to_pool(pool.create_group(f"part-{n}"))
    paths = [f"{pool.path}/part-{n}" for n in range(3)]
    options: Any = {"combine": "by_coords", "data_vars": "minimal", "coords": "minimal"}
    with xr.open_mfdataset(paths, compat="override", join="exact", **options) as opened:
        xr.testing.assert_identical(opened.load(), whole)


def test_a_dataset_pickles_and_a_closed_one_opens_again(path: str) -> None:
    with xr.open_dataset(f"{path}/w") as opened:
        packed = pickle.dumps(opened)
    with pickle.loads(packed) as again:
        xr.testing.assert_identical(again, weather())
    with xr.set_options(
        warn_for_unclosed_files=False
    ):  # as it stays open then, with xarray's files
        xr.testing.assert_identical(opened.load(), weather())
        del opened, again
        gc.collect()


def test_another_process_opens_what_was_pickled(path: str, tmp_path: Path) -> None:
    with xr.open_dataset(f"{path}/w") as opened:
        (tmp_path / "packed").write_bytes(pickle.dumps(opened["T"]))
    code = "import pickle, sys; print(float(pickle.load(open(sys.argv[1], 'rb')).sum()))"
    ran = subprocess.run(
        [sys.executable, "-c", code, tmp_path / "packed"], capture_output=True, check=True
    )
    assert float(ran.stdout) == float(weather()["T"].sum())


def test_closing_the_dataset_closes_the_pool(home: Path) -> None:
    with engram.create(home / "other", size="64 MiB", force=True) as pool:
        weather().engram.to_pool(pool)
    opened = xr.open_dataset(home / "other")
    with pytest.raises(engram.BusyError):
        engram.destroy(home / "other")
    opened.close()
    engram.destroy(home / "other")


def test_what_is_replaced_is_not_taken_for_what_it_was(path: str, pool: engram.Pool) -> None:
    with xr.open_dataset(f"{path}/w") as opened:
        pool["w/T"] = np.zeros(3)
        with pytest.raises(engram.NotFoundError, match="open it again"):
            opened["T"].load()


def test_trees_and_groups_come_back(pool: engram.Pool) -> None:
    inner = weather().rename(time="when")
    tree = xr.DataTree.from_dict({"/": weather(), "/a": inner, "/a/b": xr.Dataset(attrs={"n": 1})})
    tree.engram.to_pool(pool.create_group("t"))
    with xr.open_datatree(f"{pool.path}/t") as opened:
        xr.testing.assert_identical(opened, tree)
    with xr.open_datatree(pool, engine="engram", group="t/a") as opened:
        assert set(opened.groups) == {"/", "/b"}
    groups = xr.open_groups(f"{pool.path}/t")
    assert set(groups) == {"/", "/a", "/a/b"}
    for found in groups.values():
        found.close()


@pytest.mark.skipif(not DATA_FILES, reason="no shared/data here, nor ENGRAM_TEST_DATA")
@pytest.mark.parametrize("file", DATA_FILES, ids=lambda p: p.name)
def test_a_real_file_is_identical_in_a_pool(pool: engram.Pool, file: Path) -> None:
    engram.import_file(file, pool)
    ways: list[dict[str, Any]] = [{}, {"decode_cf": False}, {"chunks": {}}]
    for options in ways:
        with (
            xr.open_dataset(pool.path, **options) as found,
            xr.open_dataset(file, **options) as expected,
        ):
            xr.testing.assert_identical(found, expected)
            assert list(found.variables) == list(expected.variables)
            assert found.encoding["unlimited_dims"] == expected.encoding["unlimited_dims"]
            for name, variable in expected.variables.items():
                told = {k: v for k, v in variable.encoding.items() if k not in PLACES}
                kept = {k: v for k, v in found[name].encoding.items() if k not in PLACES}
                assert repr(kept | told) == repr(kept), name
                np.testing.assert_equal(kept, kept | told)
    with xr.open_dataset(file) as original:
        original.engram.to_pool(pool.create_group("again"))
        with xr.open_dataset(pool["again"]) as found:
            xr.testing.assert_identical(found, original)


# Writing


def test_modes_replace_refuse_and_add(pool: engram.Pool) -> None:
    group = pool.create_group("g")
    weather().engram.to_pool(group)
    with pytest.raises(engram.ExistsError, match="has members"):
        weather().engram.to_pool(group)
    pool.create_group("g/below")
    group["stranger"] = 1
    group.attrs["old"] = 1
    weather(2).engram.to_pool(group, mode="w")
    assert "stranger" not in group
    assert "below" in group
    assert "old" not in group.attrs
    with xr.open_dataset(f"{pool.path}/g") as opened:
        xr.testing.assert_identical(opened, weather(2))
    xr.Dataset({"more": ("x", [1, 2, 3])}, attrs={"new": 1}).engram.to_pool(group, mode="a")
    assert group["more"].dims == ("x",)
    assert group.attrs["title"] == "weather"
    with pytest.raises(engram.ArgumentError, match=r"'time' .* != 2"):
        weather(3).engram.to_pool(group, mode="a")


@pytest.mark.parametrize("chunks", [None, 2])
@pytest.mark.parametrize("lazy", [False, True])
def test_appends_grow_all_variables(pool: engram.Pool, chunks: int | None, lazy: bool) -> None:
    whole = weather(5)
    how: Any = {"T": {**whole["T"].encoding, "chunks": (chunks, 2)}} if chunks else None
    if chunks:
        how["time"] = {**whole["time"].encoding, "chunks": (chunks,)}
    whole.isel(time=slice(0, 2)).engram.to_pool(f"{pool.path}/g", encoding=how)
    for part in (slice(2, 3), slice(3, 5)):
        more = whole.isel(time=part)
        more = more.assign(T=more["T"].chunk(time=1)) if lazy else more
        more.engram.to_pool(f"{pool.path}/g", append_dim="time")
    assert pool["g/T"].chunks == ((2, 2) if chunks else None)
    with xr.open_dataset(pool["g"]) as opened:
        xr.testing.assert_identical(opened, whole)
        assert opened.encoding["unlimited_dims"] == {"time"}
        assert opened["T"].encoding["scale_factor"] == 0.5


def test_half_an_append_is_neither_seen_nor_kept(pool: engram.Pool) -> None:
    whole = weather(4)
    how: Any = {"T": {"chunks": (2, 2)}, "time": {"chunks": (2,)}}
    first, second = whole.isel(time=slice(0, 2)), whole.isel(time=slice(2, 4))
    first.engram.to_pool(pool, encoding=how, unlimited_dims="time")
    before = pool["T"][...]
    pool["T"].append(before * 3)  # as a process that was killed leaves it
    with xr.open_dataset(pool) as opened:
        xr.testing.assert_identical(opened, first)
    second.engram.to_pool(pool, append_dim="time")
    with xr.open_dataset(pool) as opened:
        xr.testing.assert_identical(opened, whole)


def test_an_append_that_fails_is_undone(pool: engram.Pool) -> None:
    whole = weather(4)
    how: Any = {name: {"chunks": True} for name in ("T", "time")}
    how["T"] |= {"dtype": "f8"}
    whole.drop_vars("station").isel(time=slice(0, 2)).engram.to_pool(pool, encoding=how)
    before = snapshot(pool)
    bad = whole.drop_vars("station").isel(time=slice(2, 4)).assign_attrs(bad=object())
    with pytest.raises(engram.ArgumentError, match="attribute"):
        bad.engram.to_pool(pool, append_dim="time")
    assert snapshot(pool) == before
    lazy = xr.Dataset({"T": bad["T"]}).drop_vars("time").chunk(time=1)
    with pytest.raises(engram.ArgumentError, match="'time'"):
        lazy.engram.to_pool(pool, append_dim="time")
    xr.Dataset({"T": (("time", "x"), np.ones((2, 3)))}).engram.to_pool(
        pool.create_group("g"), encoding={"T": {"chunks": (1, 2)}}
    )
    lazy.drop_vars(["x", "lat", "run"]).engram.to_pool(pool["g"], append_dim="time")
    assert pool["g/T"][2:].tolist() == bad["T"].to_numpy().tolist()


def test_a_batch_that_fails_gives_back_what_dask_has_filled(pool: engram.Pool) -> None:
    lazy = xr.Dataset({"a": ("x", np.arange(9000.0))}).chunk(x=1000)
    bad = lazy.assign(b=("y", [1, 2], {"bad": object()}))
    used = pool.used
    with pytest.raises(engram.ArgumentError):
        bad.engram.to_pool(pool)
    assert list(pool) == []
    with pytest.raises(ZeroDivisionError), pool.batch():
        lazy.engram.to_pool(pool)
        raise ZeroDivisionError
    assert list(pool) == []
    with pool.batch():
        lazy.engram.to_pool(pool)
    assert list(pool) == ["a"]
    del pool["a"]
    assert pool.used <= used + (1 << 16)


@pytest.mark.parametrize("chunks", [None, (3, 2)])
def test_regions_are_written_side_by_side(pool: engram.Pool, chunks: Any) -> None:
    whole = weather(8)
    empty = whole.copy(deep=True)
    empty["T"][:] = 0
    how: Any = {"T": {"dtype": "f8", "chunks": chunks}}
    empty.engram.to_pool(pool, encoding=how)

    def write(n: int) -> None:
        part = whole[["T", "time"]].drop_vars(["x", "lat", "run"]).isel(time=slice(n, n + 2))
        part.engram.to_pool(pool.path, region={"time": slice(n, n + 2)} if n else {"time": "auto"})

    writers = [threading.Thread(target=write, args=[n]) for n in range(0, 8, 2)]
    for one in writers:
        one.start()
    for one in writers:
        one.join()
    with xr.open_dataset(pool) as opened:
        xr.testing.assert_identical(opened, whole)


def test_dask_writes_regions_with_many_threads(pool: engram.Pool) -> None:
    values = np.random.default_rng(1).random((64, 32))
    lazy = xr.Dataset({"T": (("y", "x"), values)}).chunk(y=7, x=5)
    for name, how in (("plain", {}), ("chunked", {"T": {"chunks": (16, 16), "codec": "zstd"}})):
        lazy.engram.to_pool(pool.create_group(name), encoding=how)
        assert (pool[name]["T"][...] == values).all()
        (lazy * 2).isel(y=slice(8, 40)).engram.to_pool(pool[name], region={"y": slice(8, 40)})
        assert (pool[name]["T"][8:40] == values[8:40] * 2).all()
        assert (pool[name]["T"][40:] == values[40:]).all()


def test_a_failing_computation_leaves_nothing(pool: engram.Pool) -> None:
    da = pytest.importorskip("dask.array")

    def fail(block: Any) -> Any:
        raise ZeroDivisionError(block.shape)

    bad = da.ones((400, 400), chunks=200).map_blocks(fail, dtype="f8", meta=np.empty((0, 0)))
    dataset = xr.Dataset({"good": ("x", [1, 2]), "bad": (("a", "b"), bad)})
    used = pool.used
    for how in ({}, {"bad": {"chunks": (100, 100)}}):
        with pytest.raises(ZeroDivisionError):
            dataset.engram.to_pool(f"{pool.path}/g", encoding=how)
        assert "g" not in pool
    assert pool.used == used


def test_a_dataarray_keeps_dims_coords_and_attributes(pool: engram.Pool) -> None:
    array = weather()["T"]
    pool["g/T"] = array
    pool["g/U"] = (array * 2).rename("U")
    assert isinstance(pool["g/T"], engram.Array)
    assert pool["g/T"].dims == ("time", "x")
    with xr.open_dataset(pool["g"]) as opened:
        xr.testing.assert_identical(opened["T"].load(), array)
    with pytest.raises(engram.ArgumentError, match="'x' of 'V' differs"):
        pool["g/V"] = array.assign_coords(x=[1.0, 2.0, 9.0])
    assert "V" not in pool["g"]
    for whole in (weather(), xr.DataTree()):
        with pytest.raises(engram.ArgumentError, match="to_pool"):
            pool["g/V"] = whole
    pool["g/T"] = array + 1
    with xr.open_dataset(pool["g"]) as opened:
        xr.testing.assert_identical(opened["T"].load(), array + 1)
        assert "lat" in opened.coords
    pool["g/T"] = array
    for length in (3, 4):  # without coordinates it stands for itself
        pool[f"h/{length}"] = xr.DataArray(np.arange(length), dims="x")
    pool["h/3"] = xr.DataArray(np.arange(5), dims="x")
    assert pool["h/3"].dims == pool["h/4"].dims == ("x",)
    pool["g/W"] = array.variable
    assert pool["g/W"].dims == ("time", "x")


def test_hits_of_a_query_are_a_dataset(pool: engram.Pool) -> None:
    for n in range(3):
        weather().assign(T=weather()["T"] + n).engram.to_pool(pool.create_group(f"run-{n}"))
    found = pool.query('@name = "T" and @group != "run-1"').to_xarray()
    assert found["T"].dims == ("group", "time", "x")
    assert list(np.asarray(found["group"])) == ["run-0", "run-2"]
    assert float((found["T"][1] - found["T"][0]).mean()) == 2
    one = pool.query('@name in ("T", "count") and @group = "run-1"').to_xarray(chunks={})
    assert set(one.data_vars) == {"T", "count"}
    assert one["T"].chunks is not None
    xr.testing.assert_equal(one["T"], weather()["T"] + 1)
    with pytest.raises(engram.ArgumentError, match="found nothing"):
        pool.query('@name = "none"').to_xarray()
    with pytest.raises(engram.ArgumentError, match="has no 'T'"):
        pool.query('@name = "count" or (@name = "T" and @group = "run-1")').to_xarray()


# Refusals


def along_x(values: Any) -> xr.Dataset:
    """Return a dataset of one variable."""
    return xr.Dataset({"v": ("x", np.asarray(values))})


UNFIT: dict[str, tuple[Any, Any, str]] = {
    "half hours": (
        np.array(["2020-01-01T00", "2020-01-01T01"], "M8[ns]"),
        np.array(["2020-01-01T01:30"], "M8[ns]"),
        "told in 'minutes since 2020-01-01', and are in 'hours since",
    ),
    "nanoseconds": (
        np.array(["2020-01-01", "2020-01-02"], "M8[ns]"),
        np.array(["2020-01-01T00:00:00.000000001"], "M8[ns]"),
        "and are in 'days since",
    ),
    "durations": (
        np.array([3600 * 10**9], "m8[ns]"),
        np.array([1], "m8[ns]"),
        "told in 'nanoseconds', and are in 'hours'",
    ),
    "longer texts": (["a"], ["bbbb"], "texts longer than <U1"),
    "longer bytes": ([b"ab"], [b"bbbb"], "texts longer than .S2"),
    "no text at all": (
        np.array(["a"], object),
        np.array([None], object),
        "float64, and is of text",
    ),
}


@pytest.mark.parametrize("chunks", [None, 1])
@pytest.mark.parametrize("name", UNFIT)
@pytest.mark.filterwarnings("ignore:Time")
def test_what_would_be_told_otherwise_is_not_added(
    pool: engram.Pool, name: str, chunks: int | None
) -> None:
    first, more, said = UNFIT[name]
    is_text = np.asarray(first).dtype.kind == "O"
    how = {} if chunks is None or is_text else {"v": {"chunks": (chunks,)}}
    pool.create_group("g")
    along_x(first).engram.to_pool(pool["g"], encoding=how)
    with pytest.raises(engram.ArgumentError, match=said):
        along_x(more).engram.to_pool(pool["g"], append_dim="x")
    with pytest.raises(engram.ArgumentError, match=said):
        along_x(more).engram.to_pool(pool["g"], region={"x": slice(0, 1)})
    with xr.open_dataset(pool["g"]) as opened:
        xr.testing.assert_identical(opened.load(), along_x(first))
    along_x(np.asarray(first)[:1]).engram.to_pool(pool["g"], append_dim="x")
    with xr.open_dataset(pool["g"]) as opened:
        xr.testing.assert_identical(opened.load(), along_x([*first, first[0]]))


def test_times_of_a_calendar_are_not_added_to_those_of_another(pool: engram.Pool) -> None:
    cftime = pytest.importorskip("cftime")
    pool.create_array("g/v", data=[0], dims=("x",), attrs={"units": "days since 2020-02-28"})
    with pytest.raises(engram.ArgumentError, match="told in 'noleap', and are in None"):
        more = along_x(np.array([cftime.DatetimeNoLeap(2020, 3, 1)], object))
        more.engram.to_pool(pool["g"], append_dim="x")


def test_an_array_that_has_become_shorter_is_told(pool: engram.Pool) -> None:
    array = pool.create_array("v", data=np.arange(10.0), chunks=(5,), dims=("x",))
    ways: tuple[Any, ...] = (None, {})
    for chunks in ways:
        array.resize(10)
        with xr.open_dataset(pool, chunks=chunks) as opened:
            array.resize(7)
            for part in (opened["v"], opened["v"][8:], opened["v"][-1]):
                with pytest.raises(engram.NotFoundError, match="open it again"):
                    part.load()
            assert opened["v"][:7].sum() == 21


def test_what_pandas_alone_has_is_refused_by_name(pool: engram.Pool) -> None:
    for index in (
        pd.date_range("2020", periods=2, tz="UTC"),
        pd.period_range("2020", periods=2),
        pd.CategoricalIndex(["a", "b"]),
        pd.interval_range(0, 2),
    ):
        array = xr.DataArray([1, 2], dims="x", coords={"x": index})
        with pytest.raises(engram.ArgumentError, match=r"'x' is of dtype .* only pandas has"):
            pool["v"] = array
        with pytest.raises(engram.ArgumentError, match=r"'x' is of dtype .* only pandas has"):
            array.to_dataset(name="v").engram.to_pool(pool)
    with pytest.raises(engram.ArgumentError, match="dimension 1 of 'v' is no str"):
        xr.Dataset({"v": ((1,), [1])}).engram.to_pool(pool)
    assert not len(pool)


def test_a_region_is_whole_numbers_of_places_that_are_there_once(pool: engram.Pool) -> None:
    twice = along_x([1.0, 2, 3]).assign_coords(x=[0, 0, 1])
    twice.engram.to_pool(pool)
    with pytest.raises(engram.ArgumentError, match=r"'x' is slice.0.5, 1.5, None.: give whole"):
        along_x([9.0]).engram.to_pool(pool, region={"x": slice(0.5, 1.5)})
    with pytest.raises(engram.ArgumentError, match=r"'x' cannot be found.* more than once"):
        along_x([9.0]).assign_coords(x=[1]).engram.to_pool(pool, region="auto")
    assert pool["v"][...].tolist() == [1, 2, 3]


def test_what_cannot_be_opened_is_named(path: str, pool: engram.Pool, home: Path) -> None:
    with pytest.raises(engram.PoolNotFoundError, match="nowhere"):
        xr.open_dataset(home / "nowhere", engine="engram")
    with pytest.raises(engram.NotFoundError, match="absent"):
        xr.open_dataset(f"{path}/absent")
    with pytest.raises(engram.ArgumentError, match=r"\['T'\]"):
        xr.open_dataset(f"{path}/w/T")
    with pytest.raises(engram.NotFoundError, match="nothing is known here of the cluster 'node-7'"):
        xr.open_dataset("engram://node-7/pool/w", engine="engram")
    with pytest.raises(engram.PoolNotFoundError, match="nowhere"):
        xr.open_dataset("engram:///nowhere/w", engine="engram")
    with pytest.raises(engram.ArgumentError, match="is no group"):
        xr.open_dataset(7, engine="engram")  # type: ignore[arg-type]
    (home / "broken").mkdir()
    (home / "broken" / "pool.toml").write_text("format = 9999\n")
    with pytest.raises(engram.FormatError):
        xr.open_dataset(home / "broken" / "g")
    pool["w/U"] = np.zeros(2)
    pool.create_array("w/V", data=np.zeros(9), dims=("x",))
    with pytest.raises(
        engram.ArgumentError, match=r"'x' has the length 9 in 'V', and 3|length 3.*9"
    ):
        xr.open_dataset(f"{path}/w")
    with xr.open_dataset(f"{path}/w", drop_variables="V") as opened:
        assert opened.sizes["x"] == 3
    group = pool["w"]
    pool.close()
    with pytest.raises(engram.ArgumentError, match="closed"):
        xr.open_dataset(group)


@pytest.mark.skipif(os.geteuid() != 0, reason="only root may become another user")
def test_another_users_pool_is_refused_by_name(path: str) -> None:
    code = (
        "import os, sys, xarray, engram\nos.setgid(65534); os.setuid(65534)\n"
        "try: xarray.open_dataset(sys.argv[1])\nexcept PermissionError as error: print(error)"
    )
    Path(path).parent.chmod(0o755)
    ran = subprocess.run([sys.executable, "-c", code, f"{path}/w"], capture_output=True, check=True)
    assert path in ran.stdout.decode()


@pytest.mark.parametrize("how", [{"append_dim": "time"}, {"mode": "w-"}, {"mode": "w"}], ids=str)
def test_a_pool_that_is_open_for_reading_says_so_whatever_is_written(
    pool: engram.Pool, how: dict[str, Any]
) -> None:
    weather().engram.to_pool(pool.create_group("g"))
    with (
        engram.open(pool.path, "r") as reading,
        pytest.raises(engram.ReadOnlyError, match=r'mode "r\+"'),
    ):
        weather().engram.to_pool(reading["g"], **how)


def test_an_encoding_of_a_variable_that_is_not_there_is_refused(pool: engram.Pool) -> None:
    with pytest.raises(engram.NotFoundError, match=r"\['nope'\].*'station'"):
        weather().engram.to_pool(pool.create_group("g"), encoding={"nope": {"dtype": "f4"}})
    assert list(pool["g"]) == []


def test_what_cannot_be_written_changes_nothing(path: str, pool: engram.Pool) -> None:
    group, whole = pool["w"], weather()
    before = snapshot(group)
    values = whole.drop_vars(["x", "lat", "run", "count"])
    refused: list[tuple[xr.Dataset, dict[str, Any], str]] = [
        (whole, {"append_dim": "z"}, "append_dim='z'"),
        (whole.assign(T=whole["T"].astype(str)), {"append_dim": "time"}, "dtype"),
        (whole.assign(T=whole["T"].astype("i8")), {"append_dim": "time"}, "int64"),
        (whole.drop_vars("T"), {"append_dim": "time"}, r"\['T'\]"),
        (whole.isel(x=slice(2)), {"append_dim": "time"}, "length"),
        (values, {"region": {"time": slice(2, 6)}}, "not within the length 4"),
        (values, {"region": {"time": slice(0, 2)}}, "shape"),
        (values, {"region": {"y": slice(0, 2)}}, "no dimension"),
        (values, {"region": {"time": slice(0, 4, 2)}}, "step"),
        (values, {"region": 7}, "region 7"),
        (whole, {"region": {"time": slice(0, 4)}}, "drop"),
        (values.rename(T="U"), {"region": {"time": slice(0, 4)}}, "'U' is not in the pool"),
        (values, {"region": {"time": slice(0, 4)}, "append_dim": "time"}, "exclude"),
        (values, {"region": {"time": slice(0, 4)}, "mode": "w"}, "mode 'w'"),
        (whole, {"mode": "x"}, "mode 'x'"),
        (whole, {"mode": "w", "encoding": {"T": {"chunks": (1,)}}}, "2 dimensions"),
        (whole, {"mode": "w", "encoding": {"T": {"zlip": 1}}}, "zlip"),
        (whole.assign_attrs(a=None), {"mode": "w"}, "'a'"),
        (whole.rename(T="a/b"), {"mode": "w"}, "a/b"),
    ]
    for dataset, how, message in refused:
        with pytest.raises(ValueError, match=message) as caught:
            dataset.engram.to_pool(group, **how)
        assert isinstance(caught.value, engram.EngramError), how
        assert snapshot(group) == before, how
    with pytest.raises(engram.NotFoundError, match="has no"):
        later = values.assign_coords(time=values["time"] + np.timedelta64(9, "D"))
        later.engram.to_pool(group, region="auto")
    with pytest.raises(engram.PoolNotFoundError):
        whole.engram.to_pool("/nowhere/pool")
    with engram.open(path, "r") as reading, pytest.raises(engram.ReadOnlyError):
        whole.engram.to_pool(reading["w"], mode="w")
    group.read_only = True
    for how in ({"mode": "w"}, {"append_dim": "time"}):
        with pytest.raises(engram.ReadOnlyError):
            whole.engram.to_pool(group, **how)
    with pytest.raises(engram.ReadOnlyError):
        values.engram.to_pool(group, region={"time": slice(0, 4)})
    assert snapshot(group) == before


def test_a_library_that_is_missing_is_named_with_its_extra() -> None:
    code = "import sys; sys.modules['xarray'] = None\nimport engram.xarray"
    ran = subprocess.run([sys.executable, "-c", code], capture_output=True, check=False)
    assert b"pip install 'engram[xarray]'" in ran.stderr


@pytest.mark.parametrize(
    "first", ["import engram, xarray", "import xarray, engram", "import xarray, engram.xarray"]
)
def test_datasets_have_their_way_to_pools_in_any_order(first: str, home: Path) -> None:
    code = (
        f"{first}\nimport sys\n"
        "with engram.create(sys.argv[1], size='64 MiB', force=True) as pool:\n"
        "    xarray.Dataset({'a': ('x', [1, 2])}).engram.to_pool(pool)\n    print(list(pool))"
    )
    ran = subprocess.run(
        [sys.executable, "-W", "error", "-c", code, home / "other"],
        capture_output=True,
        check=False,
    )
    assert ran.stdout == b"['a']\n", ran.stderr.decode()


def test_engram_alone_does_not_import_xarray() -> None:
    code = "import engram, sys; print('xarray' in sys.modules, 'engram.xarray' in sys.modules)"
    ran = subprocess.run([sys.executable, "-c", code], capture_output=True, check=True)
    assert ran.stdout == b"False False\n"


WRITER = """
import sys, numpy as np, xarray as xr, engram
while True:
    with xr.open_dataset(sys.argv[1]) as there:
        n = there.sizes["time"]
    values = np.repeat(np.arange(n, n + 2.0), 300).reshape(2, 300)
    more = xr.Dataset({"T": (("time", "x"), values)}, {"time": np.arange(n, n + 2.0)})
    more.engram.to_pool(sys.argv[1], append_dim="time")
"""
"""Appends two steps again and again, whatever is there."""


def test_readers_see_all_of_an_append_or_nothing_though_writers_are_killed(
    pool: engram.Pool,
) -> None:
    first = xr.Dataset({"T": (("time", "x"), np.zeros((0, 300)))}, {"time": np.zeros(0)})
    how = {"T": {"chunks": (8, 100)}, "time": {"chunks": (64,)}}
    first.engram.to_pool(pool.create_group("g"), encoding=how, unlimited_dims="time")
    path, length = f"{pool.path}/g", 0
    for more in (2, 8, 20):
        writer = subprocess.Popen([sys.executable, "-W", "ignore", "-c", WRITER, path])
        ends = length + more
        while length < ends:
            assert writer.poll() is None
            with xr.open_dataset(path) as opened:
                found = opened.load()
            assert found.sizes["time"] % 2 == 0
            assert found.sizes["time"] >= length
            length = found.sizes["time"]
            steps = np.arange(float(length))
            assert (found["time"].to_numpy() == steps).all()
            assert (found["T"].to_numpy() == steps[:, np.newaxis]).all()
        writer.kill()
        writer.wait()
