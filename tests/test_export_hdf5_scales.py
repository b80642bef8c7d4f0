"""Exporting HDF5 with dimension scales, of HDF5 files and of netCDF: readers find dimensions."""

from __future__ import annotations

import os
from pathlib import Path
from typing import TYPE_CHECKING, Any

import h5py
import netCDF4
import numpy as np
import pytest
from h5py import h5d, h5s, h5t

import engram
from alike_hdf5 import assert_alike
from same import assert_same

if TYPE_CHECKING:
    from collections.abc import Iterator

DATA = Path(os.environ.get("ENGRAM_TEST_DATA", "/tmp/shared")) / "data"
FILES = sorted(DATA.glob("*.nc"))


def make_scales(file: h5py.File) -> None:
    """Make scales with names, several of one axis, labels, and attributes that netCDF has not."""
    file["y"], file["x"], file["x2"] = np.arange(2.0), np.arange(3.0), np.arange(3.0)
    file["y"].make_scale("latitude")
    file["x"].make_scale()
    file["x2"].make_scale("other")
    for name in ("v", "below/w"):
        made = file.create_dataset(name, data=np.zeros((2, 3), ">f4"), chunks=(1, 3), shuffle=True)
        made.dims[0].attach_scale(file["y"])
        made.dims[1].attach_scale(file["x"])
        made.dims[1].attach_scale(file["x2"])
    file["v"].dims[0].label = "north"
    for owner in (file, file["v"], file["y"], file["below"]):
        owner.attrs["one"] = np.array([1], ">i2")
        owner.attrs["fixed"] = np.bytes_(b"abc")
        owner.attrs["several"] = np.array([b"abc", b"d"])
        owner.attrs["text"] = "ü"
        owner.attrs["texts"] = ["ü"]
        owner.attrs["many"] = ["ü", "y"]
        owner.attrs["null"] = h5py.Empty("f4")
        owner.attrs["numbers"] = np.arange(3, dtype=">f8")
        owner.attrs.create("ascii", "a", dtype=h5py.string_dtype("ascii"))


@pytest.mark.parametrize("track_order", [False, True])
def test_an_hdf5_file_with_scales_comes_back_though_it_is_read_as_netcdf(
    pool: engram.Pool, tmp_path: Path, track_order: bool
) -> None:
    with h5py.File(tmp_path / "o.h5", "w", track_order=track_order) as file:
        make_scales(file)
    assert engram.import_file(tmp_path / "o.h5", pool).format == "NETCDF4"
    report = engram.export_file(pool, tmp_path / "x.h5")
    assert_alike(tmp_path / "x.h5", tmp_path / "o.h5")
    assert not report.noted


def test_what_was_changed_after_being_read_as_netcdf_is_written_as_it_is(
    pool: engram.Pool, tmp_path: Path
) -> None:
    with h5py.File(tmp_path / "o.h5", "w") as file:
        make_scales(file)
    engram.import_file(tmp_path / "o.h5", pool)
    new: dict[str, Any] = {"one": 2.5, "fixed": "größer", "several": [1, 2], "null": "no"}
    pool["v"].attrs.update(new)
    engram.export_file(pool, tmp_path / "x.h5")
    with h5py.File(tmp_path / "x.h5") as file:
        for name, value in new.items():
            assert np.array_equal(file["v"].attrs[name], value)
        assert file["v"].attrs["texts"].tolist() == ["ü"]


def test_dimensions_without_a_variable_come_back(pool: engram.Pool, tmp_path: Path) -> None:
    with h5py.File(tmp_path / "o.h5", "w") as file:
        for name, length, most in (("t", 3, None), ("n", 2, 2), ("unused", 5, 5)):
            made = file.create_dataset(name, (length,), ">f4", maxshape=(most,))
            made.make_scale(f"This is a netCDF dimension but not a netCDF variable.{length:10}")
        file.create_dataset("v", data=np.zeros((3, 2)), maxshape=(None, 2))
        file["v"].dims[0].attach_scale(file["t"])
        file["v"].dims[1].attach_scale(file["n"])
    engram.import_file(tmp_path / "o.h5", pool)
    assert list(pool) == ["v"]
    engram.export_file(pool, tmp_path / "x.h5")
    with h5py.File(tmp_path / "x.h5") as file:
        assert sorted(file) == ["n", "t", "unused", "v"]
        assert [d[0] for d in file["v"].dims] == [file["t"], file["n"]]
        assert file["v"].maxshape == (None, 2)
    with netCDF4.Dataset(tmp_path / "x.h5") as data:
        assert {n: (len(d), d.isunlimited()) for n, d in data.dimensions.items()} == {
            "t": (3, True), "n": (2, False), "unused": (5, False),
        }  # fmt: skip
        assert list(data.variables) == ["v"]


def test_a_scale_that_is_not_exported_is_noted_and_its_name_kept_as_a_label(
    pool: engram.Pool, tmp_path: Path
) -> None:
    with h5py.File(tmp_path / "o.h5", "w") as file:
        make_scales(file)
        del file["v"].attrs["DIMENSION_LABELS"]
        file["link"] = h5py.SoftLink("v")  # which netCDF has no like of
    engram.import_file(tmp_path / "o.h5", pool)
    report = engram.export_file(pool, tmp_path / "x.h5", select=["v", "x", "x2"])
    assert [(e.path, e.what) for e in report.noted] == [("/v", "dimension scale y")]
    with h5py.File(tmp_path / "x.h5") as file:
        assert [label.label for label in file["v"].dims] == ["y", ""]
        assert list(file["v"].dims[1].values()) == [file["x"], file["x2"]]


def test_an_array_put_beside_a_netcdf_files_has_its_dimensions(
    pool: engram.Pool, tmp_path: Path
) -> None:
    with netCDF4.Dataset(tmp_path / "o.nc", "w") as data:
        data.createDimension("time", None)
        data.createDimension("x", 3)
        data.createVariable("time", "f8", ("time",))[:] = [0, 1]
        data.createGroup("g")
    engram.import_file(tmp_path / "o.nc", pool)
    pool["g"].create_array("new", data=np.zeros((2, 3)), dims=("time", "x"))
    pool["g"].create_array("odd", data=np.zeros((2, 4)), dims=("time", "elsewhere"))
    pool["g"].create_array("long", data=np.zeros((5, 3)), dims=("time", "x"))
    engram.export_file(pool, tmp_path / "x.h5")
    with h5py.File(tmp_path / "x.h5") as file:
        assert [d[0] for d in file["g/new"].dims] == [file["time"], file["x"]]
        assert file["g/new"].maxshape == (None, 3)
        assert [d.label for d in file["g/odd"].dims] == ["time", "elsewhere"]
        assert [d.label for d in file["g/long"].dims] == ["time", "x"]


def members(group: engram.Group) -> Iterator[tuple[str, Any]]:
    """Yield a group and all that is in it."""
    found: list[tuple[str, Any]] = [("", group)]
    group.visititems(lambda path, member: found.append((path, member)))
    yield from found


@pytest.mark.skipif(not FILES, reason="the real files are not here")
@pytest.mark.parametrize("file", FILES, ids=lambda p: p.name)
def test_a_real_netcdf_file_as_hdf5_gives_back_values_attributes_and_dimensions(
    pool: engram.Pool, tmp_path: Path, file: Path
) -> None:
    engram.import_file(file, pool.create_group("out"))
    report = engram.export_file(pool["out"], tmp_path / "x.h5")
    # A dimension has no scale if the variable of its name has other axes.
    told = {"/time_bnds"} if file.name.startswith("rotated-xyt") else set()
    assert report.complete
    assert {e.path for e in report.noted} == told
    assert engram.import_file(tmp_path / "x.h5", pool.create_group("back")).complete
    expected, found = dict(members(pool["out"])), dict(members(pool["back"]))
    assert list(found) == list(expected)
    for path, member in expected.items():
        assert list(found[path].attrs) == list(member.attrs)
        for name, value in member.attrs.items():
            assert_same(found[path].attrs[name], value)
        if isinstance(member, engram.Array):
            assert (found[path].dims, found[path].shape) == (member.dims, member.shape)
            assert_same(found[path][...], member[...])


def test_scales_of_types_that_hdf5_alone_has_come_back(pool: engram.Pool, tmp_path: Path) -> None:
    with h5py.File(tmp_path / "o.h5", "w") as file:
        file["x"] = np.arange(3, dtype="f2")
        file["x"].make_scale("x")
        h5d.create(file.id, b"bits", h5t.STD_B8LE, h5s.create_simple((3,)))
        file["bits"].dims[0].attach_scale(file["x"])
        file["record"] = np.zeros(3, [("a", "i2"), ("b", "f8")])
        file["record"].dims[0].attach_scale(file["x"])
    engram.import_file(tmp_path / "o.h5", pool)
    engram.export_file(pool, tmp_path / "x.h5")
    assert_alike(tmp_path / "x.h5", tmp_path / "o.h5")


def test_a_dimension_with_a_variable_of_its_name_and_two_axes_is_noted(
    pool: Any, tmp_path: Path
) -> None:
    with netCDF4.Dataset(tmp_path / "x.nc", "w") as file:
        file.createDimension("x", 2)
        file.createDimension("y", 3)
        file.createVariable("x", "f8", ("y", "x"))[:] = 1.0
        file.createVariable("v", "f8", ("x",))[:] = 1.0
    engram.import_file(tmp_path / "x.nc", pool)
    report = engram.export_file(pool, tmp_path / "x.h5")
    assert {e.path for e in report.noted if e.what == "dimensions"} >= {"/v"}


def test_a_part_of_a_file_has_the_scales_that_lie_in_it(pool: engram.Pool, tmp_path: Path) -> None:
    from engram.compat import h5py as names  # noqa: PLC0415 - the one test that needs it

    with names.File(pool) as file:
        file["g/x"], file["outside"] = np.arange(3.0), np.arange(2.0)
        file["g/x"].make_scale("longitude")
        file["outside"].make_scale()
        made = file.create_dataset("g/v", data=np.zeros((2, 3)))
        made.dims[0].attach_scale(file["outside"])
        made.dims[1].attach_scale(file["g/x"])
    report = engram.export_file(pool["g"], tmp_path / "part.h5")
    assert [(e.path, e.what) for e in report.noted] == [("/v", "dimension scale outside")]
    with h5py.File(tmp_path / "part.h5") as file:
        assert [len(dim) for dim in file["v"].dims] == [0, 1]
        assert file["v"].dims[1][0].name == "/x"
    engram.export_file(pool, tmp_path / "whole.h5")
    with h5py.File(tmp_path / "whole.h5") as file:
        assert [dim[0].name for dim in file["g/v"].dims] == ["/outside", "/g/x"]
