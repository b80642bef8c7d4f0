"""What came from netCDF and goes out as Zarr is the same to xarray, decoded and raw."""

from __future__ import annotations

import warnings
from typing import TYPE_CHECKING, Any

import netCDF4
import numpy as np
import pytest
import xarray as xr
import zarr

import engram
from alike_zarr import assert_alike, nodes
from test_import_netcdf import DATA_FILES

if TYPE_CHECKING:
    from pathlib import Path


def opened(path: Path, group: str | None, *, raw: bool) -> xr.Dataset:
    """Open a netCDF file or a Zarr store with xarray, all of it in memory."""
    engine: Any = "zarr" if path.is_dir() else "netcdf4"
    options: dict[str, Any] = {"decode_cf": False, "mask_and_scale": False} if raw else {}
    with warnings.catch_warnings():
        # xarray's own look at consolidated metadata, of groups that have none of their own
        warnings.filterwarnings("ignore", "Failed to open Zarr store with consolidated")
        with xr.open_dataset(path, engine=engine, group=group, **options) as found:
            return found.load()


def assert_same_to_xarray(pool: engram.Pool, file: Path, store: Path, *groups: str) -> None:
    """Assert that a file exported as Zarr is identical to the file, in each of its groups."""
    group = pool.create_group("g")
    engram.import_file(file, group)
    assert engram.export_file(group, store).complete
    for name in (None, *groups):
        for raw in (False, True):
            expected = opened(file, name, raw=raw)
            assert len(expected.variables) > 0
            xr.testing.assert_identical(opened(store, name, raw=raw), expected)


@pytest.mark.skipif(not DATA_FILES, reason="no shared/data here, nor ENGRAM_TEST_DATA")
@pytest.mark.parametrize("path", DATA_FILES, ids=lambda p: p.name)
def test_a_real_file_is_the_same_to_xarray(pool: engram.Pool, tmp_path: Path, path: Path) -> None:
    assert_same_to_xarray(pool, path, tmp_path / "x.zarr")


@pytest.mark.parametrize("kind", ["NETCDF3_CLASSIC", "NETCDF4"])
def test_a_file_of_every_convention_is_the_same_to_xarray(
    pool: engram.Pool, tmp_path: Path, kind: Any
) -> None:
    groups: tuple[str, ...] = ()
    with netCDF4.Dataset(tmp_path / "x.nc", "w", format=kind) as file:
        fill(file)
        if kind == "NETCDF4":
            groups = ("inner", "inner/innermost")
            fill(file.createGroup("inner"))
            fill(file.createGroup("inner/innermost"))
            for number, dtype in enumerate(("u1", "u2", "u4", "i8", "u8")):
                made = file.createVariable(f"n{number}", dtype, ("x",), fill_value=7)
                made[:] = [1, 7, 3]
            file.createVariable("words", str, ("x",))[:] = np.array(["", "höhe", "b"], object)
            file.createVariable("word", str)[...] = "one"
            file.setncattr_string("names", ["a", "höhe"])
    assert_same_to_xarray(pool, tmp_path / "x.nc", tmp_path / "x.zarr", *groups)


def fill(file: netCDF4.Dataset) -> None:
    """Write variables of each netCDF type, packed, masked, of times, of texts, and coordinates."""
    file.setncatts({"title": "größe", "levels": np.array([1, 2], "i2"), "one": np.float32(0.1)})
    file.createDimension("time", None)
    file.createDimension("x", 3)
    file.createDimension("strlen", 4)
    time = file.createVariable("time", "f8", ("time",))
    time.setncatts({"units": "days since 2000-01-01", "calendar": "noleap"})
    time[:] = [0.5, 59, 60]
    file.createVariable("x", "f4", ("x",))[:] = [1, 2, 3]
    packed = file.createVariable("packed", "i2", ("time", "x"), fill_value=-32767)
    packed.setncatts({"scale_factor": np.float32(0.01), "add_offset": 20.0, "units": "K"})
    packed.setncattr("coordinates", "scalar lat")
    packed.setncattr("valid_range", np.array([-100, 100], "i2"))
    packed[:] = np.ma.masked_greater(np.arange(9).reshape(3, 3) + 20.0, 26)
    for number, (dtype, value) in enumerate(
        [("f4", 1e20), ("f8", np.nan), ("f4", -0.0), ("i4", -9), ("i1", 0)]
    ):
        made = file.createVariable(f"filled{number}", dtype, ("x",), fill_value=value)
        made.set_auto_mask(False)
        made[:] = [1, value, 3]
    file.createVariable("scalar", "i4")[...] = 5
    file.createVariable("lat", "f8", ("x",))[:] = [1, np.nan, 3]
    text = file.createVariable("text", "S1", ("x", "strlen"))
    text.set_auto_chartostring(False)
    text[:] = np.array([b"a---", b"bcde", b"----"]).view("S1").reshape(3, 4)
    utf8 = file.createVariable("utf8", "S1", ("strlen",))
    utf8.setncattr("_Encoding", "utf-8")
    utf8[:] = np.array([b"\xc3\xb6ab"]).view("S1")


def test_fill_values_and_chunks_follow_the_file(pool: engram.Pool, tmp_path: Path) -> None:
    with netCDF4.Dataset(tmp_path / "x.nc", "w") as file:
        file.createDimension("x", 400_000)
        made = file.createVariable("v", "f4", ("x",), fill_value=1e20, chunksizes=(50_000,))
        made[:] = np.arange(400_000)
        file.createVariable("small", "i2", ("x",), chunksizes=(1000,))[:] = 1
    engram.import_file(tmp_path / "x.nc", pool)
    engram.export_file(pool, tmp_path / "x.zarr")
    found = nodes(tmp_path / "x.zarr")
    assert found["v"]["chunk_grid"]["configuration"]["chunk_shape"] == [50_000]
    assert np.float32(found["v"]["fill_value"]) == np.float32(1e20)
    assert found["small"]["chunk_grid"]["configuration"]["chunk_shape"] == [400_000]
    assert found["v"]["dimension_names"] == ["x"]


def test_the_fill_value_of_text_is_the_arrays(pool: engram.Pool, tmp_path: Path) -> None:
    attrs = {"_FillValue": "-"}
    pool.create_array("v", data=np.array([b"a", b"-"]), dims=("x",), attrs=attrs)
    report = engram.export_file(pool, tmp_path / "x.zarr")
    assert "attribute _FillValue" in {entry.what for entry in report.noted}
    assert opened(tmp_path / "x.zarr", None, raw=True)["v"].values.tolist() == [b"a", b"-"]
    assert zarr.open_array(tmp_path / "x.zarr/v", mode="r").fill_value == b"-"


def test_fill_values_are_of_the_arrays_dtype_when_they_come_back(
    pool: engram.Pool, tmp_path: Path
) -> None:
    attrs = {"_FillValue": np.float32(1e20)}
    pool.create_array("a/v", data=np.zeros(3, "f4"), dims=("x",), attrs=attrs)
    pool.create_array("a/w", data=np.zeros(3, "i2"), dims=("x",), attrs={"_FillValue": np.int16(9)})
    engram.export_file(pool["a"], tmp_path / "x.zarr")
    engram.import_file(tmp_path / "x.zarr", pool.create_group("b"))
    for name, fill in (("v", np.float32(1e20)), ("w", np.int16(9))):
        found = pool[f"b/{name}"].attrs["_FillValue"]
        assert (type(found), found) == (type(fill), fill)


def test_a_dataset_of_xarrays_comes_back_document_by_document(
    pool: engram.Pool, tmp_path: Path
) -> None:
    made = made_dataset()
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # zarr's and xarray's, of what Zarr v3 does not specify
        made.to_zarr(tmp_path / "x.zarr", zarr_format=3)
    engram.import_file(tmp_path / "x.zarr", pool)
    assert pool["t"].dims == ("time", "x")
    engram.export_file(pool, tmp_path / "y.zarr")
    assert_alike(tmp_path / "y.zarr", tmp_path / "x.zarr")


@pytest.mark.parametrize("version", [2, 3])
@pytest.mark.parametrize("suffix", ["zarr", "nc"])
def test_a_dataset_of_xarrays_is_the_same_in_another_format(
    pool: engram.Pool, tmp_path: Path, version: Any, suffix: str
) -> None:
    made = made_dataset()
    made["packed"].encoding = {"dtype": "i2", "scale_factor": 0.5, "_FillValue": -9}
    del made.attrs["nested"]  # which netCDF cannot hold but as text
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        made.to_zarr(tmp_path / "x.zarr", zarr_format=version)
    engram.import_file(tmp_path / "x.zarr", pool)
    engram.export_file(pool, tmp_path / f"y.{suffix}")
    xr.testing.assert_identical(opened(tmp_path / f"y.{suffix}", None, raw=False), made)


def made_dataset() -> xr.Dataset:
    """Make a dataset with missing values, times and texts."""
    values = np.array([[1.0, np.nan], [3, 4]])
    return xr.Dataset(
        {"t": (("time", "x"), values, {"units": "K"}), "packed": (("time", "x"), values)},
        coords={
            "time": np.array(["2020-01-01", "2020-02-01"], "M8[ns]"),
            "name": ("x", ["a", "bc"]),
        },
        attrs={"title": "made", "nested": {"a": [1, None]}},
    )
