"""A pool's arrays as Zarr arrays: the same memory, every dtype, and what Zarr has no like of."""

from __future__ import annotations

import json
import pickle
import tracemalloc
import warnings
from typing import TYPE_CHECKING, Any

import numcodecs
import numpy as np
import pandas as pd
import pytest
import xarray as xr
import zarr
from hypothesis import given
from hypothesis import strategies as st
from zarr.abc.store import RangeByteRequest
from zarr.core.buffer import cpu
from zarr.core.sync import sync

import engram
from engram.zarr import Store, View, view
from engram.zarr.runs import begin, chunk_shape
from support import DTYPES, TEXT, filled, in_child

if TYPE_CHECKING:
    from pathlib import Path

VALUES = np.arange(24 * 30, dtype="f8").reshape(24, 30)
UNSPECIFIED = "ignore:.*does not have a Zarr V3 specification"


def opened(group: engram.Group, **how: Any) -> zarr.Group:
    return zarr.open_group(view(group, **how), mode="r")


def keys(shown: View, prefix: str = "") -> list[str]:
    async def collect() -> list[str]:
        return [key async for key in shown.list_prefix(prefix)]

    return sorted(sync(collect()))


def names(shown: View, prefix: str = "") -> list[str]:
    async def collect() -> list[str]:
        return [name async for name in shown.list_dir(prefix)]

    return sorted(sync(collect()))


# Memory


def test_no_chunk_is_copied_before_zarr_copies_it(pool: engram.Pool) -> None:
    made = pool.create_array("T", data=np.arange(4 << 20, dtype="f8").reshape(8, 512, 1024))
    shown = view(pool, chunk_bytes="8 MiB")
    assert shown.get_sync("T/zarr.json") is not None
    memory = made.view()
    for n, place in enumerate(["0/0/0", "3/0/0"]):
        tracemalloc.start()
        found = shown.get_sync(f"T/c/{place}").as_numpy_array()
        part = shown.get_sync(f"T/c/{place}", byte_range=RangeByteRequest(8, 1 << 20))
        _, peak = tracemalloc.get_traced_memory()
        tracemalloc.stop()
        assert peak < 64 << 10
        assert found.nbytes == 8 << 20
        assert not found.flags.writeable
        assert np.shares_memory(found, memory)
        assert np.array_equal(found.view("f8").reshape(2, 512, 1024), memory[n * 6 : n * 6 + 2])
        assert np.shares_memory(part.as_numpy_array(), memory)


def test_zarr_decodes_a_chunk_in_place(pool: engram.Pool) -> None:
    """Nor does zarr copy more than it is asked for, though the chunk is of 32 MiB."""
    pool.create_array("T", data=np.arange(4 << 20, dtype="f8"))
    array = opened(pool)["T"]
    array[:1]
    tracemalloc.start()
    found = array[1000:2000]
    _, peak = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    assert np.array_equal(found, np.arange(1000.0, 2000.0))
    assert peak < 1 << 20


def test_what_is_written_in_place_shows(pool: engram.Pool) -> None:
    pool["T"] = VALUES
    array = opened(pool)["T"]
    pool["T"][3, 4] = -1
    assert array[3, 4] == -1


@given(
    shape=st.lists(st.integers(0, 40), max_size=4).map(tuple),
    itemsize=st.integers(1, 16),
    limit=st.integers(1, 4000),
)
def test_virtual_chunks_are_runs_of_memory_and_end_where_the_array_ends(
    shape: tuple[int, ...], itemsize: int, limit: int
) -> None:
    chunks = chunk_shape(shape, itemsize, limit)
    memory = np.arange(np.prod(shape, dtype=int)).reshape(shape)
    seen = 0
    if 0 not in shape:
        grid = tuple(n // c for n, c in zip(shape, chunks, strict=True))
        assert tuple(g * c for g, c in zip(grid, chunks, strict=True)) == shape
        for place in np.ndindex(grid):
            box = tuple(slice(p * c, p * c + c) for p, c in zip(place, chunks, strict=True))
            first = begin(place, chunks, shape)
            run = memory.reshape(-1)[first : first + int(np.prod(chunks))]
            assert np.array_equal(memory[box].reshape(-1), run)
            seen += run.size
        assert seen == memory.size
    assert chunk_shape(shape, itemsize, None) == tuple(max(1, n) for n in shape)


def test_virtual_chunks_are_about_as_large_as_asked_for() -> None:
    assert chunk_shape((365, 720, 1440), 4, 64 << 20) == (5, 720, 1440)
    assert chunk_shape((100, 7200, 14400), 4, 64 << 20) == (1, 1200, 14400)
    assert chunk_shape((1 << 30,), 8, 64 << 20) == (8 << 20,)
    assert chunk_shape((1_000_000_007,), 1, 64 << 20) == (1_000_000_007,)
    assert chunk_shape((), 8, 1) == ()


# What is shown


@pytest.mark.filterwarnings(UNSPECIFIED)
@pytest.mark.parametrize("dtype", DTYPES, ids=str)
@pytest.mark.parametrize("chunks", [None, (2, 4)], ids=["contiguous", "chunked"])
def test_every_dtype_is_as_it_is_or_left_out_by_name(
    pool: engram.Pool, dtype: np.dtype[Any], chunks: tuple[int, ...] | None
) -> None:
    if dtype.itemsize == 0 and chunks is not None:
        return
    values = filled(dtype, (3, 6))
    pool.create_array("x", data=values, chunks=chunks, codec="shuffle+lz4" if chunks else None)
    shown = view(pool)
    if "x" in shown.left_out:
        with pytest.warns(engram.EngramWarning, match=r"'x' is left out of the view of engram://"):
            assert [*opened(pool)] == []
        with pytest.raises(engram.FormatError, match=r"'x' is not shown: .*no like"):
            zarr.open_array(shown, path="x", mode="r")
        return
    array = zarr.open_array(shown, path="x", mode="r")
    found = array[...]
    assert found.shape == values.shape
    if dtype.names is None:
        assert found.astype(dtype).tobytes() == values.tobytes()
    else:
        assert found.dtype.names == dtype.names
        assert values.astype(found.dtype).tobytes() == found.tobytes()


def test_which_dtypes_are_left_out(pool: engram.Pool) -> None:
    for n, dtype in enumerate(DTYPES):
        pool.create_array(f"x{n:02}", data=filled(dtype, (2,)))
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        left_out = view(pool).left_out
    found = {str(DTYPES[int(name[1:])]) for name in left_out}
    kept = {str(dtype) for dtype in DTYPES} - found
    assert {"float128", "complex256"} <= found
    assert {">f4", "int8", "complex64", "|S7", "<U1", "|V16", "datetime64[25us]"} <= kept
    assert {"[('x', '<f4'), ('y', '>f8')]"} <= kept


def test_a_table_is_left_out_by_name(pool: engram.Pool) -> None:
    pool["g/v"] = VALUES
    pool["g/t"] = pd.DataFrame({"a": [1]})
    shown = view(pool["g"])
    with pytest.warns(engram.EngramWarning, match="'t' is left out.*table"):
        assert [name for name, _ in zarr.open_group(shown, mode="r").members()] == ["v"]
    assert list(shown.left_out) == ["t"]


@pytest.mark.parametrize("codec", ["none", "lz4", "zstd:3", "shuffle+lz4", "shuffle+zstd"])
def test_chunked_arrays_are_shown_chunk_by_chunk(pool: engram.Pool, codec: str) -> None:
    made = pool.create_array("T", shape=(24, 31), dtype=">f4", chunks=(5, 7), codec=codec)
    made[:10, :20] = VALUES[:10, :20]
    array = opened(pool)["T"]
    assert array.chunks == (5, 7)
    assert np.array_equal(array[...], made[...])
    assert array[3, 19] == made[3, 19]
    assert len(keys(view(pool), "T/c/")) == 5 * 5
    edge = view(pool).get_sync("T/c/4/4")
    if codec == "zstd:3":
        edge = numcodecs.Zstd().decode(edge.as_numpy_array())
    assert len(edge) == 5 * 7 * 4


def test_a_chunk_that_nothing_encodes_is_the_pools_memory(pool: engram.Pool) -> None:
    made = pool.create_array("T", data=np.arange(4 << 20, dtype="f8"), chunks=(1 << 20,))
    shown = view(pool)
    assert shown.get_sync("T/zarr.json") is not None
    tracemalloc.start()
    found = [shown.get_sync(f"T/c/{n}").as_numpy_array() for n in (0, 3, 3)]
    _, peak = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    assert peak < 64 << 10
    assert np.shares_memory(found[1], found[2])
    assert not found[1].flags.writeable
    before = made[3 << 20 :]
    # A chunk is replaced, and not written in place: what shows it stays what it was.
    made[3 << 20] = -1.0
    assert np.array_equal(found[2].view("f8"), before)
    assert opened(pool)["T"][3 << 20] == -1.0


def test_a_chunk_that_zstd_encoded_is_given_as_it_is(pool: engram.Pool) -> None:
    smooth = np.arange(20_000, dtype="i8")
    noise = np.random.default_rng(1).integers(0, 256, 20_000, "u1")
    pool.create_array("smooth", data=smooth, chunks=(5000,), codec="zstd:7", attrs={"n": 1})
    pool.create_array("noise", data=noise, chunks=(5000,), codec="zstd")
    gaps = pool.create_array("gaps", shape=(20_000,), dtype="f4", chunks=(5000,), codec="zstd")
    gaps.attrs["_FillValue"] = np.float32(-9)
    gaps[5000:10_000] = 1.5
    root = opened(pool)
    said = json.loads(view(pool).get_sync("smooth/zarr.json").to_bytes())["codecs"]
    assert said[1:] == [{"name": "zstd", "configuration": {"level": 7, "checksum": False}}]
    sizes = [len(view(pool).get_sync(f"smooth/c/{n}")) for n in range(4)]
    # The pool has a check of four bytes beside each, and gives space in units of 64.
    assert sum(-(-(size + 4) // 64) * 64 for size in sizes) == pool["smooth"].stored_nbytes
    assert sync(view(pool).getsize("smooth/c/1")) == sizes[1] < 8 * 5000
    assert np.array_equal(root["smooth"][...], smooth)
    assert np.array_equal(root["noise"][...], noise)
    assert np.array_equal(root["gaps"][...], gaps[...])
    assert root["gaps"][0] == 0


def test_a_place_beyond_the_edge_has_no_chunk(pool: engram.Pool) -> None:
    made = pool.create_array("T", shape=(10,), dtype="f8", chunks=(4,), codec="zstd")
    shown = view(pool)
    assert shown.get_sync("T/c/3") is None
    assert shown.get_sync("T/c/2") is not None
    made.resize((8,))
    with pytest.raises(engram.NotFoundError, match=r"another shape .* no chunk \[2\]"):
        shown.get_sync("T/c/2")


def test_strings_scalars_blobs_and_empty_arrays(pool: engram.Pool) -> None:
    pool["s"] = np.array([["a", "Øystein"], ["", "x" * 5000]], dtype=TEXT)
    pool["text"] = "one text"
    pool["number"] = np.float32(2.5)
    pool["blob"] = b"any bytes"
    pool["empty"] = np.zeros((0, 3), "i2")
    pool["none"] = np.array([], dtype=TEXT)
    root = opened(pool)
    assert root["s"][...].tolist() == pool["s"][...].tolist()
    assert root["text"][()] == "one text"
    assert root["number"][()] == 2.5
    assert root["blob"][...].tobytes() == b"any bytes"
    assert root["empty"][...].shape == (0, 3)
    assert root["none"][...].tolist() == []
    assert names(view(pool), "empty") == ["zarr.json"]


@pytest.fixture
def climate(pool: engram.Pool) -> engram.Group:
    group = pool.create_group("climate", attrs={"title": "model", "years": np.array([1, 2])})
    group.create_array("T", data=VALUES, dims=("time", "x"), attrs={"units": "K"})
    packed = np.arange(24, dtype="i2")
    facts = {"scale_factor": 0.5, "_FillValue": np.int16(3)}
    group.create_array("p", data=packed, dims=("time",), attrs=facts)
    since = {"units": "days since 2000-01-01", "calendar": "standard"}
    group.create_array("time", data=np.arange(24), dims=("time",), attrs=since)
    group.create_array("inner/U", data=VALUES, dims=("a", "b"), attrs={"_FillValue": np.nan})
    return group


def test_it_has_groups_dims_and_attributes(climate: engram.Group) -> None:
    root = opened(climate)
    assert dict(root.attrs) == {"title": "model", "years": [1, 2]}
    assert root["T"].metadata.dimension_names == ("time", "x")
    assert dict(root["T"].attrs) == {"units": "K"}
    assert sorted(dict(root.members(max_depth=None))) == ["T", "inner", "inner/U", "p", "time"]
    assert root["p"].fill_value == 3
    assert np.isnan(root["inner/U"].fill_value)
    assert names(view(climate)) == ["T", "inner", "p", "time", "zarr.json"]
    assert names(view(climate), "T") == ["c", "zarr.json"]
    assert names(view(climate), "T/c/") == ["0"]
    assert names(view(climate), "nothing") == []
    assert keys(view(climate), "inner/") == [
        "inner/U/c/0/0",
        "inner/U/zarr.json",
        "inner/zarr.json",
    ]


def test_each_key_that_is_listed_can_be_read_and_no_other(climate: engram.Group) -> None:
    shown = view(climate, chunk_bytes=500)
    listed = keys(shown)
    for key in listed:
        assert sync(shown.exists(key))
        assert sync(shown.getsize(key)) == len(shown.get_sync(key))
    for key in ("T/c/0/1/0", "T/c/99/0", "T/c", "T/c/-1/0", "T", "", "c/0", "/T/zarr.json", "T/x"):
        assert key not in listed
        assert not sync(shown.exists(key))
        assert shown.get_sync(key) is None
    with pytest.raises(FileNotFoundError):
        sync(shown.getsize("T/c/99/0"))


def dataset(group: engram.Group) -> Any:
    place: Any = group
    return xr.open_dataset(place)


def test_xarray_opens_it_as_it_opens_the_group(climate: engram.Group) -> None:
    with dataset(climate) as expected:
        found = xr.open_zarr(view(climate))
        xr.testing.assert_identical(found.load(), expected.load())
        assert found.time.dtype == "M8[ns]"
        assert np.isnan(found.p[3])
        assert (found.p[4:] == np.arange(4, 24) / 2).all()
    inner = xr.open_zarr(view(climate), group="inner")
    assert np.array_equal(inner.U, VALUES)


def test_arrays_without_dims_get_the_names_that_xarray_has_for_them(pool: engram.Pool) -> None:
    pool["T"] = VALUES
    with dataset(pool) as expected:
        xr.testing.assert_identical(xr.open_zarr(view(pool)).load(), expected.load())


@pytest.mark.parametrize(
    ("dtype", "fill"),
    [("i2", np.nan), ("i2", 1.5), ("u1", -1), ("i2", 1e9), ("f4", "none"), ("i2", [1, 2])],
)
@pytest.mark.parametrize("way", ["view", "export"])
def test_fill_values_that_are_none_of_the_dtype_are_left_out_by_name(
    pool: engram.Pool, tmp_path: Path, dtype: str, fill: Any, way: str
) -> None:
    packed = np.arange(5).astype(dtype)
    facts = {"_FillValue": fill, "scale_factor": 0.5}
    pool.create_array("T", data=packed, dims=("x",), attrs=facts)
    if way == "view":
        with pytest.warns(engram.EngramWarning, match="'T@_FillValue' is left out"):
            found = xr.open_zarr(view(pool)).load()
        assert [*view(pool).left_out] == ["T@_FillValue"]
    else:
        report = engram.export_file(pool, tmp_path / "x.zarr")
        assert [entry.what for entry in report.noted] == ["attribute _FillValue"]
        found = xr.open_zarr(tmp_path / "x.zarr").load()
    assert np.array_equal(found.T.to_numpy(), packed * 0.5)
    assert "_FillValue" in pool["T"].attrs


@pytest.mark.parametrize(
    ("dtype", "fill"),
    [("i2", 3.0), ("i2", np.int16(3)), ("u8", np.uint64(3)), ("f4", 3), ("f8", np.float32(3))],
)
def test_fill_values_of_another_dtype_that_say_the_same_count(
    pool: engram.Pool, dtype: str, fill: Any
) -> None:
    pool.create_array("T", data=np.arange(5).astype(dtype), attrs={"_FillValue": fill})
    assert view(pool).left_out == {}
    assert np.isnan(xr.open_zarr(view(pool)).load().T.to_numpy()).tolist() == [0, 0, 0, 1, 0]


# What is not


def test_names_and_attributes_without_a_like_are_left_out_by_name(pool: engram.Pool) -> None:
    pool["zarr.json"] = b"{}"
    pool["a\\b"] = VALUES
    zarr.create_array(Store(pool.create_group("store")), name="T", data=VALUES)
    pool.create_array("T", data=VALUES, attrs={"wide": np.longdouble(1), "units": "K"})
    shown = view(pool)
    assert sorted(shown.left_out) == ["T@wide", "a\\b", "store", "zarr.json"]
    root = zarr.open_group(shown, mode="r")
    with pytest.warns(engram.EngramWarning) as told:
        assert [*root] == ["T"]
    assert len(told) == 4
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        assert [*root] == ["T"]  # told once
        assert dict(root["T"].attrs) == {"units": "K"}
    with pytest.raises(engram.FormatError, match=r"'store' is not shown: it is a store of Zarr's"):
        shown.get_sync("store/zarr.json")
    with pytest.raises(engram.FormatError, match="no nodes named"):
        shown.get_sync("zarr.json/zarr.json")


def test_an_array_that_was_replaced_is_never_mixed_with_another(pool: engram.Pool) -> None:
    pool["T"] = VALUES
    pool.create_array("C", data=VALUES, chunks=(5, 5))
    root = opened(pool)
    array, chunked = root["T"], root["C"]
    pool["T"] = VALUES.astype("f4")
    for old in (array, pickle.loads(pickle.dumps(array))):
        with pytest.raises(engram.NotFoundError, match="'T' was deleted or replaced since it was"):
            old[...]
    assert np.array_equal(opened(pool)["T"][...], VALUES.astype("f4"))
    pool["C"].resize((5, 5))
    with pytest.raises(engram.NotFoundError, match="'C' has got another shape"):
        chunked[...]
    del pool["C"]
    with pytest.raises(KeyError):
        opened(pool)["C"]


def test_a_view_of_a_snapshot_is_of_one_moment(pool: engram.Pool) -> None:
    pool["T"] = VALUES
    with pool.snapshot() as then:
        del pool["T"]
        assert np.array_equal(opened(then)["T"][...], VALUES)


def test_nothing_is_written_to_it(climate: engram.Group) -> None:
    shown = view(climate)
    assert shown.read_only
    with pytest.raises(ValueError, match="read-only"):
        zarr.open_group(shown, mode="a")
    for work in (
        shown.set("a", cpu.Buffer.from_bytes(b"1")),
        shown.delete("T/zarr.json"),
        shown.delete_dir("T"),
        shown.clear(),
    ):
        with pytest.raises(ValueError, match="store was opened in read-only mode"):
            sync(work)
    with pytest.raises(engram.ArgumentError, match="a view of a pool's arrays is for reading"):
        shown.with_read_only()
    assert shown.with_read_only(read_only=True) is shown
    assert not shown.supports_writes
    assert not shown.supports_deletes


def test_a_closed_pool_and_a_group_that_is_gone_are_named(
    climate: engram.Group, pool: engram.Pool
) -> None:
    shown = view(climate)
    array = zarr.open_group(shown, mode="r")["T"]
    del pool["climate"]
    for work in (lambda: array[...], lambda: shown.get_sync("T/zarr.json"), lambda: keys(shown)):
        with pytest.raises(engram.NotFoundError):
            work()
    pool.close()
    for work in (lambda: array[...], lambda: shown.get_sync("T/zarr.json"), lambda: keys(shown)):
        with pytest.raises(engram.ArgumentError, match="closed"):
            work()
    assert repr(shown) == f"View('engram://{pool.path}')"


def test_it_pickles_and_is_equal(climate: engram.Group, tmp_path: Path) -> None:
    shown = view(climate, chunk_bytes=None)
    assert pickle.loads(pickle.dumps(shown)) == shown
    assert hash(shown) == hash(view(climate, chunk_bytes=None))
    assert shown != view(climate)
    assert shown != 1
    array = zarr.open_group(shown, mode="r")["T"]
    (tmp_path / "array").write_bytes(pickle.dumps(array))
    code = (
        "import pickle, sys; a = pickle.load(open(sys.argv[1], 'rb'));print(a[...].sum(), a.store)"
    )
    said = in_child(code, tmp_path / "array")
    assert said == f"{VALUES.sum()} engram://{climate._namespace.pool_path}/climate"
    with pytest.raises(engram.ArgumentError, match="is no group"):
        view("/dev/shm/pool")  # type: ignore[arg-type]
    with pytest.raises(engram.ArgumentError, match="size 'many' cannot be read"):
        view(climate, chunk_bytes="many")


def test_documents_are_json_as_zarr_writes_it(climate: engram.Group) -> None:
    """What zarr would write of what it has read is what it was told."""
    shown = view(climate)
    for path, array in zarr.open_group(shown, mode="r").arrays():
        told = json.loads(shown.get_sync(f"{path}/zarr.json").to_bytes())
        written = array.metadata.to_dict()
        assert {name: _plain(written[name]) for name in told if name != "codecs"} == {
            name: value for name, value in told.items() if name != "codecs"
        }


def _plain(value: Any) -> Any:
    return json.loads(json.dumps(value, default=list))
