"""Decoded values are those that are meant, as other readers of the CF conventions have them."""

from __future__ import annotations

import itertools
import subprocess
import sys
import warnings
from typing import TYPE_CHECKING, Any

import cftime
import netCDF4
import numpy as np
import pytest
import xarray as xr
from hypothesis import given, settings
from hypothesis import strategies as st

import engram
from engram.time_units import TimeUnits
from test_import_netcdf import DATA_FILES

if TYPE_CHECKING:
    from pathlib import Path


def kept(pool: engram.Pool, data: Any, **attrs: Any) -> Any:
    """Return an array of these values and attributes, decoded."""
    return pool.create_array("x", data=np.asarray(data), attrs=attrs, overwrite=True).decoded()


def test_packed_values_are_unpacked_and_missing_ones_nan(pool: engram.Pool) -> None:
    data = np.array([[1, -1, 300], [4, 5, -2]], "i2")
    found = kept(
        pool,
        data,
        scale_factor=np.float32(0.5),
        add_offset=np.float32(273),
        _FillValue=np.int16(-1),
        missing_value=np.int16(-2),
        units="K",
    )
    meant = np.array([[273.5, np.nan, 423], [275, 275.5, np.nan]], "f4")
    np.testing.assert_array_equal(found[...], meant)
    np.testing.assert_array_equal(np.asarray(found), meant)
    np.testing.assert_array_equal(found[1, ::2], meant[1, ::2])
    np.testing.assert_array_equal(found[:, [0, 2]], meant[:, [0, 2]])
    assert found[0, 0] == np.float32(273.5)
    assert isinstance(found[0, 0], np.float32)
    assert (found.dtype, found.shape, found.ndim, found.size) == (np.float32, (2, 3), 2, 6)
    assert found.attrs == {"units": "K"}
    assert set(found.encoding) == {"scale_factor", "add_offset", "_FillValue", "missing_value"}
    assert np.nanmean(found) == np.nanmean(meant)
    assert np.nanmax(found - np.float32(273)) == np.float32(150)
    np.testing.assert_array_equal(np.concatenate([found, found]), np.concatenate([meant, meant]))
    assert found.max(axis=0)[0] == 275
    assert "scale_factor 0.5" in repr(found)


def test_it_is_lazy_and_of_now(pool: engram.Pool) -> None:
    array = pool.create_array("x", data=np.arange(3, dtype="i2"), attrs={"add_offset": 1.0})
    found = array.decoded()
    array[0] = 5
    assert found[...].tolist() == [6, 2, 3]
    assert pool["x"][...].tolist() == [5, 1, 2]
    del pool["x"]
    with pytest.raises(engram.NotFoundError):
        found[...]


def test_nothing_is_copied_where_nothing_is_decoded(pool: engram.Pool) -> None:
    array = pool.create_array("x", data=np.arange(1e5), attrs={"units": "K"})
    assert np.shares_memory(np.asarray(array.decoded()), array.view())
    assert array.decoded().encoding == {}
    packed = kept(pool, np.arange(3), scale_factor=2.0)
    with pytest.raises(engram.ArgumentError, match="scale_factor"):
        np.asarray(packed, copy=False)


def test_decoded_values_cannot_be_written(pool: engram.Pool) -> None:
    found = kept(pool, np.arange(3), scale_factor=2.0)
    with pytest.raises(engram.ArgumentError, match="write stored ones"):
        np.add(found, 1, out=found)
    with pytest.raises(TypeError):
        found[0] = 1
    with pytest.raises(AttributeError, match="all of them"):
        found.sort()


def test_chunked_strings_records_and_empty_arrays(pool: engram.Pool) -> None:
    array = pool.create_array("c", data=np.arange(12, dtype="i4").reshape(3, 4), chunks=(2, 2))
    array.attrs["scale_factor"] = 0.5
    assert array.decoded()[1:, 1].tolist() == [2.5, 4.5]
    assert array.decoded().chunks == (2, 2)
    texts = pool.create_array("t", data=np.array(["a", "bc"], np.dtypes.StringDType()))
    texts.attrs["_FillValue"] = "a"
    assert texts.decoded()[...].tolist() == ["a", "bc"]
    record = pool.create_array("r", data=np.zeros(2, "i4,f8"), attrs={"scale_factor": 2.0})
    assert record.decoded()["f1"].tolist() == [0, 0]
    assert kept(pool, np.zeros((0, 3), "i2"), scale_factor=0.5)[...].shape == (0, 3)
    assert kept(pool, np.zeros(0, "i8"), units="days since 2000-01-01")[...].shape == (0,)
    assert kept(pool, np.int16(7), scale_factor=0.5)[()] == 3.5


@pytest.mark.parametrize(
    ("stored", "attrs", "dtype"),
    [
        ("i2", {"scale_factor": np.float32(1)}, "f4"),
        ("i2", {"scale_factor": 1.0}, "f8"),
        ("i4", {"scale_factor": np.float32(1)}, "f8"),
        ("i2", {"_FillValue": np.int16(0)}, "f4"),
        ("i8", {"_FillValue": 0}, "f8"),
        ("f4", {"_FillValue": np.float32(0)}, "f4"),
        (">f4", {"_FillValue": np.float32(0)}, "f4"),
        ("f8", {"scale_factor": np.float32(1)}, "f8"),
        ("u1", {"add_offset": 1}, "f8"),
        ("i1", {"_Unsigned": "true"}, "u1"),
        ("i1", {"dtype": "bool"}, "?"),
        ("c8", {"scale_factor": np.float32(2)}, "c8"),
        ("i4", {"units": "days since 2000-01-01"}, "M8[us]"),
        ("i8", {"units": "nanoseconds since 2000-01-01"}, "M8[ns]"),
        ("f8", {"units": "days since 2000-01-01", "calendar": "noleap"}, "O"),
        ("f8", {"units": "days"}, "f8"),
        ("i2", {"scale_factor": "none", "_FillValue": "x", "valid_range": [1]}, "i2"),
    ],
)
def test_the_dtype_is_told_beforehand(
    pool: engram.Pool, stored: str, attrs: dict[str, Any], dtype: str
) -> None:
    found = kept(pool, np.ones(3, stored), **attrs)
    assert found.dtype == np.dtype(dtype)
    assert found[...].dtype == np.dtype(dtype)


def test_signs_and_valid_ranges(pool: engram.Pool) -> None:
    data = np.array([-1, -2, 0, 127], "i1")
    unsigned = {"_Unsigned": "true", "_FillValue": np.int8(-1)}
    np.testing.assert_array_equal(
        kept(pool, data, **unsigned, scale_factor=0.5)[...], [np.nan, 127, 0, 63.5]
    )
    np.testing.assert_array_equal(
        kept(pool, data, valid_min=np.int8(-1), valid_max=0)[...], [-1, np.nan, 0, np.nan]
    )
    np.testing.assert_array_equal(
        kept(pool, data, valid_range=np.array([-2, 0], "i1"))[...], [-1, -2, 0, np.nan]
    )


def test_times_are_told_by_units_and_calendar(pool: engram.Pool) -> None:
    found = kept(pool, [0, 36], units="hours since 2003-01-01 12:00:00 +1:00")
    assert found[...].tolist() == np.array(["2003-01-01T11", "2003-01-02T23"], "M8[us]").tolist()
    assert found.attrs == {}
    missing = kept(pool, [0.25, np.nan, -1], units="days since 2003-01-01", _FillValue=-1.0)
    np.testing.assert_array_equal(missing[...], np.array(["2003-01-01T06", "NaT", "NaT"], "M8[us]"))
    days = kept(pool, [59.0, np.nan], units="days since 2000-01-01", calendar="360_day")
    assert days[...].tolist() == [cftime.Datetime360Day(2000, 2, 30), None]
    assert days[0] == cftime.Datetime360Day(2000, 2, 30)


@pytest.mark.parametrize(
    ("attrs", "said"),
    [
        ({"units": "months since 2000-01-01"}, "a month has no one length"),
        ({"units": "days since yesterday"}, "must read like"),
        ({"units": "days since 2000-13-01"}, "no such day"),
        ({"units": "days since 2000-01-01", "calendar": "lunar"}, "calendar 'lunar' is unknown"),
    ],
)
def test_times_that_cannot_be_told_are_refused(
    pool: engram.Pool, attrs: dict[str, str], said: str
) -> None:
    with pytest.raises(engram.ArgumentError, match=said):
        kept(pool, [1, 2], **attrs)


def test_times_beyond_all_datetimes_are_refused_and_not_wrapped(pool: engram.Pool) -> None:
    for number in (2**40, -(2**40), 1e15):
        with pytest.raises(engram.ArgumentError, match="lies beyond"):
            kept(pool, [0, number], units="days since 2000-01-01")[...]


UNITS = ("days", "hours", "minutes", "seconds", "milliseconds", "d", "h", "s", "min", "hr")
EPOCHS = (1, 4, 100, 1000, 1500, 1581, 1583, 1600, 1899, 1970, 2000, 2024)


@pytest.mark.filterwarnings("ignore:this date/calendar")
@settings(max_examples=300, deadline=None)
@given(
    unit=st.sampled_from(UNITS),
    date=st.tuples(st.sampled_from(EPOCHS), st.integers(1, 12), st.integers(1, 28)),
    hour=st.sampled_from(["", " 06:30:00", " 1:2:3.5", "T23:59:59"]),
    zone=st.sampled_from(["", " Z", " +01:00", "-05:30", " UTC"]),
    calendar=st.sampled_from(["standard", "gregorian", "proleptic_gregorian"]),
    number=st.one_of(st.integers(-1000, 800_000), st.floats(0, 800_000)),
)
def test_times_are_those_of_cftime(  # noqa: PLR0917 - what is tried
    unit: str,
    date: tuple[int, int, int],
    hour: str,
    zone: str,
    calendar: str,
    number: float,
) -> None:
    units = f"{unit} since {date[0]:04}-{date[1]}-{date[2]}{hour}{zone if hour else ''}"
    told = cftime.num2date(number, units, calendar, only_use_cftime_datetimes=True)
    if told.year < 1 or (calendar[0] != "p" and told.timetuple()[:3] < (1582, 10, 15)):
        return  # numpy has no other name for that day
    found = TimeUnits(units, calendar).decode(np.array([number]), np.zeros(1, bool))[0]
    assert abs((found - np.datetime64(told.isoformat()[:26])).astype("m8[us]").astype(int)) < 100


@pytest.mark.parametrize("file", DATA_FILES, ids=lambda file: file.name)
def test_real_files_are_decoded_as_others_decode_them(pool: engram.Pool, file: Path) -> None:
    engram.import_file(file, pool)
    compared = 0
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        try:
            peer = xr.open_dataset(file, engine="netcdf4", decode_timedelta=False)
        except (OSError, ValueError):
            pytest.skip("xarray does not open it")
        with peer:
            for name, variable in peer.variables.items():
                array = pool.get(str(name))
                if not isinstance(array, engram.Array) or array.shape != variable.shape:
                    continue
                if {"valid_range", "valid_min", "valid_max"} & set(variable.attrs):
                    continue  # which xarray leaves to its user
                found, meant = np.asarray(array.decoded()), variable.values
                compared += 1
                if meant.dtype.kind == "M":
                    assert abs(found.astype("M8[ns]") - meant).max() < np.timedelta64(1, "ms")
                elif meant.dtype.kind in "fiu" and found.dtype.kind in "fiu":
                    np.testing.assert_allclose(found, meant, rtol=1e-5)
                elif meant.dtype.kind == "O" and found.dtype.kind == "O":
                    assert all(
                        itertools.starmap(_are_one, zip(found.flat, meant.flat, strict=True))
                    )
    assert compared


def _are_one(mine: Any, theirs: Any) -> bool:
    """Whether two objects are the same time, or the same text."""
    if isinstance(theirs, cftime.datetime):
        return bool(abs((mine - theirs).total_seconds()) < 1e-3)
    return bool(mine == theirs)


def test_valid_ranges_are_those_of_netcdf(pool: engram.Pool, tmp_path: Path) -> None:
    file = tmp_path / "v.nc"
    with netCDF4.Dataset(file, "w") as made:
        made.createDimension("x", 6)
        packed = made.createVariable("v", "i2", ("x",), fill_value=-9)
        packed.set_auto_maskandscale(False)
        packed.setncatts({"scale_factor": 0.5, "valid_range": np.array([0, 10], "i2")})
        packed[:] = np.array([-9, -1, 0, 5, 10, 11], "i2")
    engram.import_file(file, pool)
    with netCDF4.Dataset(file) as made:
        meant = np.ma.filled(made["v"][:].astype("f8"), np.nan)
    np.testing.assert_array_equal(pool["v"].decoded()[...], meant)


def test_the_command_writes_decoded_values(pool: engram.Pool, tmp_path: Path) -> None:
    pool.create_array("T", data=np.array([1, -1], "i2"), attrs={"scale_factor": 0.5})
    pool.create_array("time", data=[1], attrs={"units": "days since 2000-01-01"})
    odd = {"units": "days since 2000-01-01", "calendar": "noleap"}
    pool.create_array("odd", data=[1], attrs=odd)
    pool["b"] = b"xy"

    def get(name: str) -> Any:
        command = [sys.executable, "-m", "engram", "get", pool.path, name, "--decoded"]
        return subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, check=False)

    assert get("T").returncode == 0
    assert np.load(tmp_path / "T.npy").tolist() == [0.5, -0.5]
    assert get("time").returncode == 0
    assert np.load(tmp_path / "time.npy") == np.datetime64("2000-01-02")
    for name, said in (("odd", "noleap"), ("b", "is a blob")):
        refused = get(name)
        assert refused.returncode != 0
        assert said in refused.stderr
        assert not (tmp_path / f"{name}.npy").exists()
