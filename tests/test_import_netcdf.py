"""Importing netCDF: every file of the test data, and every kind of file, arrives value by value."""

from __future__ import annotations

import json
import os
import tracemalloc
from pathlib import Path
from typing import TYPE_CHECKING, Any, cast

import h5py
import netCDF4
import numpy as np
import pytest

import engram
from engram.formats.blocks import BLOCK_BYTES
from engram.formats.netcdf import classic
from same import assert_same

if TYPE_CHECKING:
    from collections.abc import Callable

    from engram.formats import ImportReport, Progress

FORMATS = {
    "NETCDF3_CLASSIC": "NETCDF3_CLASSIC",
    "NETCDF3_64BIT_OFFSET": "NETCDF3_64BIT_OFFSET",
    "NETCDF3_64BIT_DATA": "NETCDF3_64BIT_DATA",
    "NETCDF4_CLASSIC": "NETCDF4_CLASSIC",
    "NETCDF4": "NETCDF4",
}
CLASSIC = [name for name in FORMATS if name.startswith("NETCDF3")]


def data_files() -> list[Path]:
    """Return the real files to try: of ENGRAM_TEST_DATA, else beside the repository."""
    beside = Path(__file__).resolve().parents[2] / "shared" / "data"
    folder = Path(os.environ.get("ENGRAM_TEST_DATA", beside))
    found = [p for p in folder.glob("*") if p.suffix in {".nc", ".nc4", ".h5", ".cdf"}]
    return sorted(found)


DATA_FILES = data_files()


def write(
    path: Path, make: Callable[[netCDF4.Dataset], object], file_format: str = "NETCDF4"
) -> Path:
    """Make a netCDF file."""
    with netCDF4.Dataset(path, "w", format=cast("Any", file_format)) as file:
        make(file)
    return path


def origin(member: Any) -> dict[str, Any]:
    """Return what is kept for export."""
    found: dict[str, Any] = json.loads(member._origin)
    return found


def assert_equal_to_file(group: Any, file: netCDF4.Dataset) -> int:
    """Assert that a group equals a file's group, all the way down; return its variables."""
    assert set(group) == {*file.variables, *file.groups}
    assert set(group.attrs) == set(file.ncattrs())
    for name in file.ncattrs():
        assert_same(group.attrs[name], file.getncattr(name))
    for name, variable in file.variables.items():
        array = group[name]
        assert array.shape == variable.shape
        assert (array.dims or ()) == variable.dimensions
        assert_same(array[...], variable[...])
        assert set(array.attrs) == set(variable.ncattrs())
        for key in variable.ncattrs():
            assert_same(array.attrs[key], variable.getncattr(key))
    own = {name: len(d) for name, d in file.dimensions.items()}
    kept = origin(group).get("dimensions", {})
    assert {name: d["size"] for name, d in kept.items()} == own
    return len(file.variables) + sum(
        assert_equal_to_file(group[name], inner) for name, inner in file.groups.items()
    )


def assert_imported_whole(pool: Any, path: Path) -> ImportReport:
    """Import a file into a new group and assert that nothing differs from it."""
    group = pool.create_group(f"in/{path.stem}")
    report = engram.import_file(path, group)
    with netCDF4.Dataset(path) as file:
        file.set_auto_maskandscale(False)
        file.set_auto_chartostring(False)
        assert report.arrays == assert_equal_to_file(group, file)
        assert report.format == file.data_model
    return report


@pytest.mark.skipif(not DATA_FILES, reason="no shared/data here, nor ENGRAM_TEST_DATA")
@pytest.mark.parametrize("path", DATA_FILES, ids=lambda p: p.name)
def test_a_real_file_arrives_whole_value_by_value(pool: Any, path: Path) -> None:
    report = assert_imported_whole(pool, path)
    assert report.complete
    assert not report.noted


def make_common(file: netCDF4.Dataset) -> None:
    """Write what every netCDF format can hold."""
    file.createDimension("time", None)
    file.createDimension("x", 5)
    file.createDimension("strlen", 8)
    file.createDimension("unused", 7)
    file.title = "größe ☃"
    file.numbers = np.array([1, 2, 3], "i2")
    file.one = np.float64(0.1)
    file.empty_text = ""
    time = file.createVariable("time", "f8", ("time",))
    time.units = "days since 2000-01-01"
    time[:] = [0.5, 1.5, 2.5]
    packed = file.createVariable("packed", "i2", ("time", "x"), fill_value=-999)
    packed.set_auto_maskandscale(False)
    packed.setncatts({"scale_factor": 0.01, "add_offset": 273.15, "missing_value": np.int16(-1)})
    packed[:] = np.arange(15).reshape(3, 5) - 1
    packed[1, 2] = -999
    byte = file.createVariable("byte", "i1", ("x",))
    byte.setncattr("_Unsigned", "true")
    byte[:] = [-128, -1, 0, 1, 127]
    text = file.createVariable("text", "S1", ("x", "strlen"), fill_value=b"\0")
    text.setncattr("_Encoding", "utf-8")
    text.set_auto_chartostring(False)
    text[:] = np.array([list("abcdefgh")] * 5, "S1")
    grid = file.createVariable("crs", "i4", ())
    grid.grid_mapping_name = "mercator"
    file.createVariable("scalar_char", "S1", ())
    field = file.createVariable("größe", "f4", ("time", "x"))
    field[0:2] = [[np.nan, np.inf, -0.0, 1e-40, 1.5]] * 2
    file.createVariable("never_written", "i4", ("time",))


@pytest.mark.parametrize("file_format", FORMATS)
def test_every_format_arrives_whole(pool: Any, tmp_path: Path, file_format: str) -> None:
    path = write(tmp_path / "x.nc", make_common, file_format)
    report = assert_imported_whole(pool, path)
    assert report.complete
    assert report.format == file_format
    group = pool["in/x"]
    assert origin(group)["dimensions"]["time"] == {"size": 3, "unlimited": True}
    assert origin(group)["dimensions"]["unused"] == {"size": 7, "unlimited": False}
    assert group["packed"][1, 2] == -999
    assert group["packed"].dtype == np.int16
    assert group["text"].dtype == np.dtype("S1")


def test_64_bit_and_unsigned_integers_of_cdf5_arrive(pool: Any, tmp_path: Path) -> None:
    def make(file: netCDF4.Dataset) -> None:
        file.createDimension("x", 3)
        for kind in ("u1", "u2", "u4", "i8", "u8"):
            file.createVariable(kind, kind, ("x",))[:] = [0, 1, np.iinfo(kind).max]
            file.setncattr(f"a{kind}", np.array([5, 6], kind))

    assert_imported_whole(pool, write(tmp_path / "x.nc", make, "NETCDF3_64BIT_DATA"))


def make_netcdf4(file: netCDF4.Dataset) -> None:
    """Write what only netCDF-4 can hold."""
    file.createDimension("t", None)
    file.createDimension("x", 4)
    file.createDimension("z", 0)
    file.createDimension("y", None)
    clouds = file.createEnumType(np.uint8, "clouds", {"clear": 0, "cumulus": 3})
    file.createVariable("enum", clouds, ("x",), fill_value=0)[:] = [0, 3, 3, 0]
    inner = file.createCompoundType(np.dtype([("a", "i2"), ("b", "f8")]), "inner")
    outer_dtype = np.dtype([("i", inner.dtype), ("s", "S1", (5,)), ("k", "f4", (2, 3))])
    outer = file.createCompoundType(outer_dtype, "outer")
    data = np.zeros(4, outer.dtype)
    data["i"]["b"] = [1, 2, 3, 4]
    data["k"] = np.arange(6).reshape(2, 3)
    file.createVariable("compound", outer, ("x",))[:] = data
    words = file.createVariable("words", str, ("x",))
    words[:] = np.array(["é", "", "日本", "a" * 200], dtype=object)
    words.setncattr_string("list", ["a", "ö"])
    words.setncattr_string("single", "one")
    file.createVariable("word", str, ())[...] = "scalar ☃"
    big = file.createVariable("big", ">i4", ("x",), endian="big")
    big[:] = [1, 2, 3, 4]
    chunked = file.createVariable(
        "chunked", "f4", ("t", "y", "x"), zlib=True, complevel=3, chunksizes=(1, 3, 2),
        fletcher32=True,
    )  # fmt: skip
    chunked[:] = np.arange(2 * 5 * 4).reshape(2, 5, 4)
    file.createVariable("padded", "f8", ("t", "x"))[0] = 1
    file.createVariable("x", "f4", ("t", "z"))
    file.createVariable("nothing", "f4", ("z", "x"))
    group = file.createGroup("g")
    deep = group.createGroup("deep")
    deep.createDimension("x", 2)
    deep.note = "deep"
    deep.createVariable("own_x", "i8", ("x",))[:] = [7, 8]
    group.createVariable("outer_x", "i8", ("x",))[:] = [1, 2, 3, 4]
    file.createGroup("empty")


def test_groups_and_types_of_netcdf4_arrive_whole(pool: Any, tmp_path: Path) -> None:
    report = assert_imported_whole(pool, write(tmp_path / "x.nc", make_netcdf4))
    group = pool["in/x"]
    assert report.complete
    assert report.groups == 3
    assert group["big"].dtype == np.dtype(">i4")
    assert group["compound"].dtype["i"].names == ("a", "b")
    assert group["g/deep/own_x"].dims == ("x",)
    assert np.isfinite(group["padded"][0]).all()
    assert group["words"].dtype == np.dtypes.StringDType()


def test_how_netcdf4_stores_is_kept_in_origin_and_never_in_attributes(
    pool: Any, tmp_path: Path
) -> None:
    engram.import_file(write(tmp_path / "x.nc", make_netcdf4), pool)
    enum = origin(pool["enum"])["type"]
    assert enum == {"enum": {"clear": 0, "cumulus": 3}, "base": "|u1", "name": "clouds"}
    chunked = origin(pool["chunked"])
    assert chunked["chunks"] == [1, 3, 2]
    assert chunked["filters"]["zlib"] is True
    assert chunked["filters"]["complevel"] == 3
    assert chunked["filters"]["fletcher32"] is True
    assert not dict(pool["chunked"].attrs)
    kept = origin(pool["words"])["attributes"]
    assert kept == {"list": {"string": "variable"}, "single": {"string": "variable"}}
    assert set(origin(pool)["types"]) == {"clouds", "inner", "outer"}
    assert origin(pool)["order"][:3] == ["enum", "compound", "words"]
    assert "netcdf" in origin(pool)["provenance"]


def test_an_attribute_that_netcdf4_has_in_a_form_of_its_own_arrives_in_that_form(
    pool: Any, tmp_path: Path
) -> None:
    with h5py.File(tmp_path / "x.h5", "w") as file:
        file["x"] = np.arange(3.0)
        file["x"].make_scale()
        attrs = file["x"].attrs
        attrs["one"] = np.array([7], ">i4")
        attrs["words"] = np.array([b"a", b"bcd"])
        attrs["word"] = np.array([b"abc"])
        attrs["fixed"] = np.bytes_(b"K\0")
        attrs["latin"] = np.bytes_(b"\xb0C")
        attrs["empty"] = h5py.Empty("f4")
    report = engram.import_file(tmp_path / "x.h5", pool)
    assert report.format == "NETCDF4"
    with netCDF4.Dataset(tmp_path / "x.h5") as file:
        variable = file["x"]
        assert set(pool["x"].attrs) == set(variable.ncattrs())
        for name in ("one", "words", "word", "fixed", "empty"):
            assert_same(pool["x"].attrs[name], variable.getncattr(name))
    assert pool["x"].attrs["latin"] == np.bytes_(b"\xb0C")
    assert [(e.path, e.what) for e in report.noted] == [("/x", "attribute latin")]


def test_sequences_of_sequences_are_named_in_the_report(pool: Any, tmp_path: Path) -> None:
    def make(file: netCDF4.Dataset) -> None:
        file.createDimension("x", 2)
        file.createVariable("good", "i4", ("x",))

    path = write(tmp_path / "x.nc", make)
    with h5py.File(path, "a") as file:
        file["table"] = h5py.vlen_dtype(h5py.vlen_dtype("i4"))
        made = file.create_dataset("rows", (2,), dtype=file["table"])
        made.dims[0].attach_scale(file["x"])
    report = engram.import_file(path, pool)
    assert [e.path for e in report.left_out] == ["/rows"]
    assert "sequences of object (table)" in report.left_out[0].why
    assert list(pool) == ["good"]


def test_text_that_is_not_utf8_is_kept_as_bytes_and_noted(pool: Any, tmp_path: Path) -> None:
    def make(file: netCDF4.Dataset) -> None:
        file.createVariable("v", "f4", ()).units = "deg C"

    path = write(tmp_path / "x.nc", make, "NETCDF3_CLASSIC")
    path.write_bytes(path.read_bytes().replace(b"deg C", b"\xb0C  \xe9"))
    report = engram.import_file(path, pool)
    assert pool["v"].attrs["units"] == np.bytes_(b"\xb0C  \xe9")
    assert [(e.path, e.what) for e in report.noted] == [("/v", "attribute units")]


def test_an_hdf5_file_with_dimension_scales_is_read_as_netcdf(pool: Any, tmp_path: Path) -> None:
    with h5py.File(tmp_path / "x.h5", "w") as file:
        file["lat"] = np.arange(3.0)
        file["lat"].make_scale("latitude")
        file["T"] = np.ones((3,), ">f4")
        file["T"].dims[0].attach_scale(file["lat"])
        file["T"].attrs["units"] = "K"
        file["free"] = np.arange(3) * 1j
        file["T"].attrs["flag"] = True
        file["raw"] = np.array([b"\0\1\2"], "V3")
        file["refs"] = np.array([file["T"].ref], dtype=h5py.ref_dtype)
    report = engram.import_file(tmp_path / "x.h5", pool)
    assert report.format == "NETCDF4"
    assert pool["T"].dims == pool["lat"].dims == ("lat",)
    assert pool["T"].dtype == np.dtype(">f4")
    assert dict(pool["T"].attrs) == {"flag": np.True_, "units": "K"}
    assert not dict(pool["lat"].attrs)
    # What netCDF's library does not see, or invents dimensions for, is there all the same.
    assert pool["free"].dims is None
    assert pool["free"][...].tolist() == [0, 1j, 2j]
    assert pool["raw"][...].tobytes() == b"\0\1\2"
    assert [e.path for e in report.left_out] == ["/refs"]


@pytest.mark.parametrize("hindrance", ["soft", "external", "cycle", "null", "matrix", "texts"])
def test_what_misleads_netcdfs_library_is_read_as_hdf5_with_the_same_dims(
    pool: Any, tmp_path: Path, hindrance: str
) -> None:
    with h5py.File(tmp_path / "x.h5", "w") as file:
        file["lat"] = np.arange(3.0)
        file["lat"].make_scale()
        file["T"] = np.ones((3,), "f4")
        file["T"].dims[0].attach_scale(file["lat"])
        if hindrance == "soft":
            file["a"] = h5py.SoftLink("/lat")
        elif hindrance == "external":
            file["a"] = h5py.ExternalLink("other.h5", "/lat")
        elif hindrance == "cycle":
            file.create_group("g")["up"] = file["/"]
        elif hindrance == "null":
            file["a"] = h5py.Empty("f4")
        elif hindrance == "matrix":
            file["T"].attrs["matrix"] = np.eye(2)
        else:
            file["T"].attrs["matrix"] = [["a", "b"], ["c", "d"]]
    engram.import_file(tmp_path / "x.h5", pool)
    assert pool["T"].dims == pool["lat"].dims == ("lat",)
    assert set(pool["T"].attrs) <= {"matrix"}
    assert not dict(pool["lat"].attrs)


@pytest.mark.parametrize("file_format", CLASSIC)
def test_a_classic_file_cut_off_anywhere_is_refused(
    pool: Any, tmp_path: Path, file_format: str
) -> None:
    path = write(tmp_path / "x.nc", make_common, file_format)
    content = path.read_bytes()
    classic.read_header(path)
    # The last bytes may be padding, which is no value.
    for keep in sorted({*range(4, len(content) - 8, 37), len(content) - 9}):
        path.write_bytes(content[:keep])
        with pytest.raises(engram.FormatError, match="truncated or damaged"):
            engram.import_file(path, pool)
    assert list(pool) == []


def test_a_classic_header_with_any_byte_changed_ends_in_an_answer(tmp_path: Path) -> None:
    path = write(tmp_path / "x.nc", make_common, "NETCDF3_CLASSIC")
    content = path.read_bytes()
    answers = {"whole": 0, "refused": 0}
    for place in range(4, 400):
        for value in (0, 0xFF, content[place] ^ 1):
            path.write_bytes(content[:place] + bytes([value]) + content[place + 1 :])
            try:
                classic.read_header(path)
                answers["whole"] += 1
            except engram.FormatError:
                answers["refused"] += 1
    assert answers["refused"] > 100
    assert answers["whole"] > 100


def test_a_file_of_one_record_variable_has_records_without_padding(
    pool: Any, tmp_path: Path
) -> None:
    def make(file: netCDF4.Dataset) -> None:
        file.createDimension("t", None)
        file.createDimension("x", 3)
        file.createVariable("v", "i1", ("t", "x"))[:] = np.arange(30).reshape(10, 3)

    path = write(tmp_path / "x.nc", make, "NETCDF3_CLASSIC")
    assert_imported_whole(pool, path)


def test_a_failed_import_leaves_nothing(pool: Any, tmp_path: Path) -> None:
    def make(file: netCDF4.Dataset) -> None:
        file.title = "x"
        file.createDimension("x", 100_000)
        file.createVariable("first", "f8", ("x",))[:] = 1
        file.createVariable("second", "i8", ("x",), fletcher32=True, chunksizes=(1000,))[:] = (
            np.arange(100_000)
        )

    path = write(tmp_path / "x.nc", make)
    content = bytearray(path.read_bytes())
    content[content.find(np.arange(50_000, 50_100).tobytes())] ^= 0xFF
    path.write_bytes(content)
    used = pool.used
    with pytest.raises(engram.FormatError, match=r"x\.nc: /second: cannot be read"):
        engram.import_file(path, pool)
    assert list(pool) == []
    assert not dict(pool.attrs)
    assert pool.used == used


def test_a_large_variable_is_read_within_bounded_memory(pool: Any, tmp_path: Path) -> None:
    shape = (12, 1024, 1024)

    def make(file: netCDF4.Dataset) -> None:
        for name, length in zip("tyx", shape, strict=True):
            file.createDimension(name, length)
        variable = file.createVariable("v", "i4", ("t", "y", "x"), zlib=True, complevel=1)
        for step in range(shape[0]):
            variable[step] = step

    path = write(tmp_path / "x.nc", make)
    tracemalloc.start()
    try:
        engram.import_file(path, pool)
        peak = tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()
    assert peak < 2 * BLOCK_BYTES
    assert pool["v"][:, 0, 0].tolist() == list(range(12))
    assert pool["v"].view().sum() == sum(range(12)) << 20


def test_progress_tells_each_variable_and_ends_at_the_total(pool: Any, tmp_path: Path) -> None:
    seen: list[Progress] = []
    engram.import_file(write(tmp_path / "x.nc", make_common), pool, progress=seen.append)
    assert {p.path for p in seen} == {f"/{name}" for name in pool}
    assert seen[-1].done == seen[-1].total == sum(pool[name].nbytes for name in pool)


def test_a_file_that_turns_out_to_be_no_netcdf_is_read_as_if_nobody_had_looked(
    pool: Any, tmp_path: Path
) -> None:
    with h5py.File(tmp_path / "x.h5", "w") as file:
        file["lat"] = np.arange(3.0)
        file["lat"].make_scale()
        file["flags"] = np.dtype(bool)
        file.create_dataset("a", data=[True, False, True], dtype=file["flags"])
        file["a"].dims[0].attach_scale(file["lat"])
        file["z"] = np.arange(3)
        file["lat"].attrs["matrix"] = np.eye(2)  # which netCDF has no like of
    assert engram.import_file(tmp_path / "x.h5", pool).format == "HDF5"
    assert_same(pool["a"][...], np.array([True, False, True]))
    assert_same(pool["lat"].attrs["matrix"], np.eye(2))


def test_each_variable_is_as_long_as_its_unlimited_dimension(pool: Any, tmp_path: Path) -> None:
    def make(file: netCDF4.Dataset) -> None:
        file.createDimension("x", 3)
        file.createDimension("t", None)
        file.createVariable("long", "f4", ("t",))[:] = np.arange(5)
        file.createVariable("last", "f4", ("x", "t"), fill_value=-1.0)[:, 0:2] = 7
        file.createVariable("none", "i2", ("t",))
        file.createVariable("words", str, ("t",))[0] = "only"

    engram.import_file(write(tmp_path / "x.nc", make), pool)
    assert_same(pool["last"][...], np.array([[7, 7, -1, -1, -1]] * 3, "f4"))
    assert_same(pool["none"][...], np.full(5, -32767, "i2"))
    assert pool["words"][...].tolist() == ["only", "", "", "", ""]
    assert origin(pool)["dimensions"]["t"] == {"size": 5, "unlimited": True}
