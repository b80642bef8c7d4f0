"""pandas, pyarrow, kerchunk, h5py, dask, zarr and fsspec's chains use files of a pool by URL."""

from __future__ import annotations

import contextlib
import io
import json
import zipfile
from typing import TYPE_CHECKING, Any

import dask.bytes
import fsspec
import h5py
import numpy as np
import pandas as pd
import pyarrow as pa
import pyarrow.dataset
import pyarrow.fs
import pyarrow.ipc
import pyarrow.parquet
import pytest
import xarray as xr
import zarr
from kerchunk.combine import MultiZarrToZarr
from kerchunk.hdf import SingleHdf5ToZarr

import engram

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from engram.fsspec import EngramFileSystem


@pytest.fixture
def url(pool: engram.Pool, fs: EngramFileSystem) -> str:
    """Give the URL of a pool."""
    assert fs
    return f"engram://{pool.path}"


@pytest.fixture
def frame() -> pd.DataFrame:
    """Give a table of numbers, texts, times and missing values."""
    return pd.DataFrame(
        {
            "n": np.arange(1000),
            "x": np.where(np.arange(1000) % 7, np.arange(1000) / 3, np.nan),
            "name": [f"station {n % 10}" for n in range(1000)],
            "time": pd.date_range("2000-01-01", periods=1000, freq="h", unit="us"),
        }
    )


# pandas


@pytest.mark.parametrize("suffix", ["csv", "csv.gz", "csv.zip", "csv.xz", "csv.bz2"])
def test_pandas_writes_and_reads_csv(url: str, frame: pd.DataFrame, suffix: str) -> None:
    path = f"{url}/tables/a.{suffix}"
    frame.to_csv(path, index=False)
    again = pd.read_csv(path, parse_dates=["time"])
    pd.testing.assert_frame_equal(again, frame, check_dtype=False)


def test_pandas_appends_to_csv(url: str, frame: pd.DataFrame) -> None:
    for part in range(4):
        rows = frame.iloc[part * 250 : (part + 1) * 250]
        rows.to_csv(f"{url}/a.csv", index=False, mode="a", header=part == 0)
    again = pd.read_csv(f"{url}/a.csv", parse_dates=["time"])
    pd.testing.assert_frame_equal(again, frame, check_dtype=False)


@pytest.mark.parametrize(
    ("write", "read"),
    [
        (pd.DataFrame.to_parquet, pd.read_parquet),
        (pd.DataFrame.to_feather, pd.read_feather),
        (pd.DataFrame.to_pickle, pd.read_pickle),
    ],
)
def test_pandas_writes_and_reads_what_is_binary(
    url: str, frame: pd.DataFrame, write: Callable[..., None], read: Callable[[str], pd.DataFrame]
) -> None:
    write(frame, f"{url}/deep/er/table")
    pd.testing.assert_frame_equal(read(f"{url}/deep/er/table"), frame)


def test_pandas_gives_options_of_the_file_system(
    url: str, frame: pd.DataFrame, pool: engram.Pool
) -> None:
    pool.create_namespace("icesat", mode=0o700)
    options = {"namespace": "icesat"}
    frame.to_csv(f"{url}/a.csv", storage_options=options)
    assert "a.csv" in pool.namespaces["icesat"]
    assert len(pd.read_csv(f"{url}/a.csv", storage_options=options)) == 1000
    with pytest.raises(PermissionError):
        frame.to_csv(f"{url}/b.csv", storage_options={"pool_mode": "r"})
    with pytest.raises(FileNotFoundError):
        pd.read_csv(f"{url}/a.csv")


def test_pandas_that_fails_leaves_what_was_there(url: str, frame: pd.DataFrame) -> None:
    class Refuses:
        def __str__(self) -> str:
            message = "no text for this"
            raise ZeroDivisionError(message)

    frame.to_csv(f"{url}/a.csv", index=False)
    before = fsspec.filesystem("engram").cat(f"{url}/a.csv")
    worse = pd.concat([frame.astype(object), pd.DataFrame({"n": [Refuses()]})])
    told = pytest.warns(engram.EngramWarning, match="not written")
    with told, pytest.raises(ZeroDivisionError):
        worse.to_csv(f"{url}/a.csv", index=False, chunksize=100)
    assert fsspec.filesystem("engram").cat(f"{url}/a.csv") == before


# pyarrow


def test_arrow_reads_files_of_the_pool_without_a_copy(
    fs: EngramFileSystem, pool: engram.Pool
) -> None:
    table = pa.table({"x": np.arange(100_000.0)})
    with (
        fs.open(f"{pool.path}/x.arrow", "wb") as file,
        pa.ipc.new_file(file, table.schema) as writer,
    ):
        writer.write_table(table)
    theirs = pa.fs.PyFileSystem(pa.fs.FSSpecHandler(fs))
    with theirs.open_input_file(f"{pool.path}/x.arrow") as file:
        found = pa.ipc.open_file(file).read_all()
    assert found == table
    assert np.shares_memory(found["x"].chunk(0).to_numpy(), pool["x.arrow"].view())


def test_arrow_knows_what_a_pool_holds(fs: EngramFileSystem, pool: engram.Pool) -> None:
    top = pool.path
    pool["g/file"] = b"12345"
    pool["g/array"] = np.arange(4)
    theirs = pa.fs.PyFileSystem(pa.fs.FSSpecHandler(fs))
    kinds = pa.fs.FileType
    found = theirs.get_file_info([f"{top}/g/file", f"{top}/g", f"{top}/g/array", f"{top}/none"])
    assert [f.type for f in found] == [kinds.File, kinds.Directory, kinds.Unknown, kinds.NotFound]
    assert found[0].size == 5
    assert found[0].mtime == pool["g/file"].modified
    found = theirs.get_file_info(pa.fs.FileSelector(top, recursive=True))
    assert [f.path for f in found] == [f"{top}/g", f"{top}/g/array", f"{top}/g/file"]
    theirs.create_dir(f"{top}/new/deep", recursive=True)
    theirs.copy_file(f"{top}/g/file", f"{top}/new/copy")
    theirs.move(f"{top}/new/copy", f"{top}/new/moved")
    with theirs.open_append_stream(f"{top}/new/moved") as stream:
        stream.write(b"67")
    with theirs.open_input_stream(f"{top}/new/moved") as stream:
        assert stream.read() == b"1234567"
    theirs.delete_file(f"{top}/new/moved")
    theirs.delete_dir_contents(f"{top}/new")
    assert list(pool["new"]) == []
    theirs.delete_dir(f"{top}/new")
    assert "new" not in pool
    with pytest.raises(FileNotFoundError):
        theirs.open_input_file(f"{top}/none")
    with pytest.raises(FileNotFoundError):
        theirs.delete_file(f"{top}/none")


def test_datasets_of_parquet_are_written_and_read(
    fs: EngramFileSystem, pool: engram.Pool, frame: pd.DataFrame
) -> None:
    table = pa.Table.from_pandas(frame)
    top = f"{pool.path}/dataset"
    pa.dataset.write_dataset(
        table,
        top,
        format="parquet",
        filesystem=fs,
        partitioning=["name"],
        partitioning_flavor="hive",
    )
    assert len(fs.ls(top)) == 10
    pool["dataset/mask"] = np.zeros(4)  # an array beside them is no file
    found = pa.dataset.dataset(top, format="parquet", filesystem=fs, partitioning="hive")
    assert found.count_rows() == 1000
    some = found.to_table(filter=pa.dataset.field("name") == "station 3").to_pandas()
    pd.testing.assert_series_equal(some["n"], frame["n"][3::10].reset_index(drop=True))
    pa.parquet.write_table(table, f"{pool.path}/one.parquet", filesystem=fs, row_group_size=100)
    one = pa.parquet.read_table(f"{pool.path}/one.parquet", columns=["x"], filesystem=fs)
    assert one["x"].combine_chunks() == table["x"].combine_chunks()


# kerchunk


def hdf5(fs: EngramFileSystem, path: str, day: int) -> np.ndarray[Any, Any]:
    """Write an HDF5 file into a pool; return its values."""
    values = np.random.default_rng(day).normal(size=(1, 100, 100))
    with fs.open(path, "w+b") as file, h5py.File(file, "w") as made:
        made.create_dataset("T", data=values, chunks=(1, 50, 100), compression="gzip")
        made.create_dataset("time", data=[day])
        made["T"].dims[0].attach_scale(made["time"])
    return values


def test_kerchunk_reads_hdf5_in_a_pool_as_zarr(fs: EngramFileSystem, url: str) -> None:
    values, references = [], []
    for day in range(3):
        path = f"{url}/day-{day}.h5"
        values.append(hdf5(fs, path, day))
        with fs.open(path) as file:
            references.append(SingleHdf5ToZarr(file, path, inline_threshold=0).translate())
    combined = MultiZarrToZarr(
        references, remote_protocol="engram", concat_dims=["time"], coo_map={"time": "data:time"}
    ).translate()
    with fsspec.open(f"{url}/all.json", "w") as file:
        json.dump(combined, file)
    options = {"fo": f"{url}/all.json", "remote_protocol": "engram"}
    with xr.open_dataset(
        "reference://",
        engine="zarr",
        backend_kwargs={"consolidated": False, "storage_options": options},
    ) as found:
        np.testing.assert_array_equal(found["T"], np.concatenate(values))
        assert found["time"].to_numpy().tolist() == [0, 1, 2]
    first = fsspec.filesystem("reference", fo=references[0], remote_protocol="engram")
    assert "T/0.0.0" in first.ls("T", detail=False)


# h5py


def test_h5py_writes_changes_and_reads_a_file_of_a_pool(
    fs: EngramFileSystem, pool: engram.Pool
) -> None:
    path = f"{pool.path}/a.h5"
    with fs.open(path, "w+b") as file, h5py.File(file, "w") as made:
        made["x"] = np.arange(10_000)
        made.create_dataset("c", data=np.arange(10_000), chunks=(100,), compression="gzip")
    with fs.open(path, "r+b") as file, h5py.File(file, "r+") as changed:
        changed["x"][7] = -1
        changed.create_group("new").attrs["units"] = "K"
    with fs.open(path) as file, h5py.File(file, "r") as found:
        assert found["x"][5:9].tolist() == [5, 6, -1, 8]
        assert found["c"][::1000].tolist() == list(range(0, 10_000, 1000))
        assert found["new"].attrs["units"] == "K"
        assert found["x"][-1] == 9999
    assert [*pool] == ["a.h5"]


def test_h5py_that_fails_leaves_what_was_there(fs: EngramFileSystem, pool: engram.Pool) -> None:
    path = f"{pool.path}/a.h5"
    hdf5(fs, path, 1)
    before = fs.cat(path)
    with (
        pytest.raises(ZeroDivisionError),
        fs.open(path, "r+b") as file,
        h5py.File(file, "r+") as changed,
    ):
        changed["T"][...] = 0
        changed["new"] = 1
        1 / 0  # noqa: B018 - it raises
    assert fs.cat(path) == before


# Chains, caches, stores


def test_numpy_and_zip_files_are_written_to_and_read(fs: EngramFileSystem, url: str) -> None:
    with fs.open(f"{url}/a.npy", "wb") as file:
        np.save(file, np.arange(1000))
    with fs.open(f"{url}/a.npz", "wb") as file:
        np.savez(file, a=np.arange(9), b=np.eye(3))
    with fs.open(f"{url}/a.npy") as file:
        assert np.load(file).sum() == 499_500
    with fs.open(f"{url}/a.npz") as file, np.load(file) as found:
        assert found["b"].trace() == 3
    with fs.open(f"{url}/a.zip", "wb") as file, zipfile.ZipFile(file, "w") as made:
        made.writestr("in/x.txt", "in a zip")
    with fsspec.open(f"zip://in/x.txt::{url}/a.zip", "r") as file:
        assert file.read() == "in a zip"
    with fs.open(f"{url}/b.zip", "wb") as file:
        made = fsspec.filesystem("zip", fo=file, mode="w")
        made.pipe("y.txt", b"by a file system")
        made.close()
    assert fsspec.filesystem("zip", fo=f"{url}/b.zip").cat("y.txt") == b"by a file system"


@pytest.mark.filterwarnings("ignore::pytest.PytestUnraisableExceptionWarning")  # blockcache's own
@pytest.mark.parametrize("protocol", ["simplecache", "filecache", "blockcache"])
def test_caches_of_fsspec_keep_what_they_read(
    fs: EngramFileSystem, url: str, tmp_path: Path, protocol: str
) -> None:
    fs.pipe(f"{url}/f", b"first")
    options = {protocol: {"cache_storage": str(tmp_path)}}
    for _ in range(2):
        with fsspec.open(f"{protocol}::{url}/f", **options) as file:
            assert file.read() == b"first"


def test_a_cache_that_checks_sees_what_was_written(
    fs: EngramFileSystem, url: str, tmp_path: Path
) -> None:
    for content in (b"first", b"other"):
        fs.pipe(f"{url}/f", content)
        options = {"cache_storage": str(tmp_path), "check_files": True}
        with fsspec.open(f"filecache::{url}/f", filecache=options) as file:
            assert file.read() == content


def test_dask_reads_bytes_in_blocks(fs: EngramFileSystem, url: str) -> None:
    lines = b"".join(b"line %06d\n" % n for n in range(5000))
    fs.pipe({f"{url}/a.txt": lines, f"{url}/b.txt": lines})
    _, found = dask.bytes.read_bytes(f"{url}/*.txt", blocksize=10_000, delimiter=b"\n")
    assert len(found) == 2
    assert len(found[0]) == 6
    for blocks in found:
        assert b"".join(block.compute(scheduler="threads") for block in blocks) == lines


def test_zarr_and_xarray_keep_stores_in_a_pool(url: str, pool: engram.Pool) -> None:
    group = zarr.open_group(f"{url}/store", mode="w")
    array = group.create_array("a", shape=(100,), chunks=(10,), dtype="i4")
    array[:] = np.arange(100)
    assert "store/a/c/9" in pool
    assert zarr.open_group(f"{url}/store", mode="r")["a"][95:].tolist() == [95, 96, 97, 98, 99]
    ds = xr.Dataset({"T": (("y", "x"), np.eye(4))}, attrs={"title": "t"})
    ds.to_zarr(f"{url}/xarray", consolidated=False)
    with xr.open_zarr(f"{url}/xarray", consolidated=False) as found:
        xr.testing.assert_identical(found.load(), ds)


def test_other_file_systems_stand_on_it(fs: EngramFileSystem, pool: engram.Pool, url: str) -> None:
    mapper = fs.get_mapper(f"{url}/map")
    mapper["a/b"] = b"1"
    assert dict(mapper) == {"a/b": b"1"}
    assert mapper.get("none") is None
    assert mapper.getitems(["a/b", "c"], on_error="omit") == {"a/b": b"1"}
    del mapper["a/b"]
    inner = fsspec.filesystem("dir", path=f"{pool.path}/map", fs=fs)
    inner.pipe("x", b"2")
    assert inner.ls("", detail=False) == ["a", "x"]
    fsspec.filesystem("generic").cp(f"{url}/map/x", "memory://engram/x")
    assert fsspec.filesystem("memory").cat("/engram/x") == b"2"
    files = fsspec.open_files(f"{url}/many/*.txt", "w", num=3)
    with contextlib.ExitStack() as stack:
        for n, file in enumerate(files):
            stack.enter_context(file).write(str(n))
    assert fs.cat(f"{url}/many/2.txt") == b"2"
    assert "map" in fs.tree(pool.path)
    assert isinstance(fsspec.open(f"{url}/many/2.txt", "r").open(), io.TextIOBase)
