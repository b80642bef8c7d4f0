"""Exporting netCDF: what was imported comes out equal, and what was not in its best form."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import h5py
import netCDF4
import numpy as np
import pytest

import engram
from alike_netcdf import assert_alike, assert_identical_in_xarray, assert_stored_alike
from engram.formats.netcdf import write3
from test_import_netcdf import CLASSIC, DATA_FILES, FORMATS, make_common, make_netcdf4, write

if TYPE_CHECKING:
    from pathlib import Path

    from engram.formats import ExportReport

KINDS = {
    "NETCDF4": "netcdf4",
    "NETCDF4_CLASSIC": "netcdf4-classic",
    "NETCDF3_CLASSIC": "netcdf3",
    "NETCDF3_64BIT_OFFSET": "netcdf3-64bit-offset",
    "NETCDF3_64BIT_DATA": "netcdf3-64bit-data",
}


def there_and_back(pool: Any, path: Path, out: Path) -> ExportReport:
    """Import a file and export it again."""
    group = pool.create_group(f"in/{path.stem}")
    engram.import_file(path, group)
    return engram.export_file(group, out)


@pytest.mark.skipif(not DATA_FILES, reason="no shared/data here, nor ENGRAM_TEST_DATA")
@pytest.mark.parametrize("path", DATA_FILES, ids=lambda p: p.name)
def test_a_real_file_comes_back_as_it_was(pool: Any, tmp_path: Path, path: Path) -> None:
    out = tmp_path / "out.nc"
    report = there_and_back(pool, path, out)
    assert report.complete
    assert not report.noted
    assert_alike(path, out)
    assert_identical_in_xarray(path, out)


@pytest.mark.parametrize("file_format", FORMATS)
def test_every_kind_comes_back_as_it_was(pool: Any, tmp_path: Path, file_format: str) -> None:
    path = write(tmp_path / "x.nc", make_common, file_format)
    report = there_and_back(pool, path, tmp_path / "out.nc")
    assert report.format == file_format
    assert not report.noted
    assert_alike(path, tmp_path / "out.nc")
    assert_identical_in_xarray(path, tmp_path / "out.nc")


def test_groups_and_types_of_netcdf4_come_back(pool: Any, tmp_path: Path) -> None:
    path = write(tmp_path / "x.nc", make_netcdf4)
    report = there_and_back(pool, path, tmp_path / "out.nc")
    assert not report.noted
    assert_alike(path, tmp_path / "out.nc")
    assert_identical_in_xarray(path, tmp_path / "out.nc")


# Byte for byte, and below what netCDF's library shows


@pytest.mark.parametrize("file_format", CLASSIC)
def test_a_classic_file_comes_back_byte_for_byte(
    pool: Any, tmp_path: Path, file_format: str
) -> None:
    path = write(tmp_path / "x.nc", make_common, file_format)
    there_and_back(pool, path, tmp_path / "out.nc")
    assert (tmp_path / "out.nc").read_bytes() == path.read_bytes()


@pytest.mark.parametrize("kind", ["i1", "i2", "S1", "f8"])
def test_records_of_one_variable_and_of_several_come_back(
    pool: Any, tmp_path: Path, kind: str
) -> None:
    for number in (1, 2):

        def make(file: netCDF4.Dataset, number: int = number) -> None:
            file.createDimension("t", None)
            file.createDimension("x", 3)
            for name in range(number):
                new = file.createVariable(f"v{name}", kind, ("t", "x"))
                new.set_auto_chartostring(False)
                new[:] = np.arange(15).reshape(5, 3).astype(kind)

        path = write(tmp_path / f"{number}.nc", make, "NETCDF3_CLASSIC")
        out = tmp_path / f"out{number}.nc"
        there_and_back(pool, path, out)
        assert_alike(path, out)
        assert out.stat().st_size == path.stat().st_size
        if number == 1:  # without padding, which holds anything
            assert out.read_bytes() == path.read_bytes()


def test_records_larger_than_a_piece_are_written_in_pieces(
    pool: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(write3, "BLOCK_BYTES", 64)
    path = write(tmp_path / "x.nc", make_common, "NETCDF3_64BIT_OFFSET")
    there_and_back(pool, path, tmp_path / "out.nc")
    assert (tmp_path / "out.nc").read_bytes() == path.read_bytes()


def make_texts(file: netCDF4.Dataset) -> None:
    """Write text attributes of every kind."""
    file.setncattr("z_ascii", b"abc")
    file.setncattr("y_utf8", np.bytes_("é".encode()))
    file.setncattr("x_empty", "")
    file.setncattr("a_latin", np.bytes_(b"\xb0C"))
    if file.data_model == "NETCDF4":
        file.setncattr_string("string", "one")
        file.setncattr_string("w_strings", ["a", "é", ""])
        file.setncattr_string("empty_string", "")
    file.setncattr("none", np.array([], "i4"))
    for kind in ("i1", "i2", "i4", "f4", "f8"):
        file.setncattr(f"one_{kind}", np.array([1], kind))
        file.setncattr(f"many_{kind}", np.array([1, 2], kind))


@pytest.mark.parametrize("file_format", FORMATS)
def test_attributes_of_every_type_come_back_in_their_order(
    pool: Any, tmp_path: Path, file_format: str
) -> None:
    path = write(tmp_path / "x.nc", make_texts, file_format)
    there_and_back(pool, path, tmp_path / "out.nc")
    assert_alike(path, tmp_path / "out.nc")


@pytest.mark.parametrize(
    "options",
    [
        {"compression": "zlib", "complevel": 7, "shuffle": False},
        {"compression": "szip", "szip_coding": "ec", "szip_pixels_per_block": 16},
        {"compression": "zstd", "complevel": 3},
        {"compression": "bzip2", "complevel": 5},
        {"compression": "zlib", "significant_digits": 3, "quantize_mode": "GranularBitRound"},
        {"fletcher32": True, "chunksizes": (2, 5)},
        {"contiguous": True},
        {"datatype": ">f4", "endian": "big"},
        {"fill_value": False},
        {"fill_value": 7.5},
    ],
    ids=lambda options: "-".join(map(str, options.values())),
)
def test_storage_comes_back(pool: Any, tmp_path: Path, options: dict[str, Any]) -> None:
    def make(file: netCDF4.Dataset) -> None:
        file.createDimension("y", 40)
        file.createDimension("x", 10)
        arguments = {"datatype": "f4", **options}
        file.createVariable("v", dimensions=("y", "x"), **arguments)[:] = (
            np.arange(400).reshape(40, 10) / 7
        )

    path = write(tmp_path / "x.nc", make)
    report = there_and_back(pool, path, tmp_path / "out.nc")
    assert not report.noted
    assert_alike(path, tmp_path / "out.nc")


def test_a_filter_that_cannot_be_had_here_is_left_away_and_noted(
    pool: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def make(file: netCDF4.Dataset) -> None:
        file.createDimension("x", 400)
        file.createVariable("v", "i4", ("x",), compression="zstd")[:] = np.arange(400)

    path = write(tmp_path / "x.nc", make)
    monkeypatch.setattr(h5py.h5z, "filter_avail", lambda code: code < 256)
    report = there_and_back(pool, path, tmp_path / "out.nc")
    assert [(e.path, e.what) for e in report.noted] == [("/v", "filter zstd")]
    assert_identical_in_xarray(path, tmp_path / "out.nc", encoding=False)


def test_a_filter_that_fails_here_is_left_away_and_noted(pool: Any, tmp_path: Path) -> None:
    def make(file: netCDF4.Dataset) -> None:
        file.createDimension("x", 400)
        made = file.createVariable("v", "i4", ("x",), compression="blosc_lz4", blosc_shuffle=2)
        made[:] = np.arange(400)

    path = write(tmp_path / "x.nc", make)
    report = there_and_back(pool, path, tmp_path / "out.nc")
    # netCDF4's own plugin works in its own library alone; hdf5plugin's works in h5py's.
    assert [e.what for e in report.noted] in ([], ["filters"])
    assert_identical_in_xarray(path, tmp_path / "out.nc", encoding=not report.noted)


def test_what_hdf5_alone_shows_comes_back(pool: Any, tmp_path: Path) -> None:
    with h5py.File(tmp_path / "x.h5", "w", track_order=True) as file:
        file["lat"] = np.arange(3.0)
        file["lat"].make_scale("lat")
        storage: list[tuple[str, dict[str, Any]]] = [
            ("T", {"compression": "lzf", "shuffle": True}),
            ("U", {"fillvalue": 4, "chunks": (2,)}),
            ("V", {"compression": "gzip", "fletcher32": True}),
        ]
        for name, more in storage:
            file.create_dataset(name, data=np.ones(3, ">f4"), **more)
            file[name].dims[0].attach_scale(file["lat"])
        file["T"].attrs["flag"] = True
        file["free"] = np.arange(3) * 1j
        file["raw"] = np.array([b"\0\1\2"], "V3")
        file["free"].attrs["matrix"] = np.eye(2)
    group = pool.create_group("in")
    engram.import_file(tmp_path / "x.h5", group)
    report = engram.export_file(group, tmp_path / "out.nc")
    assert not report.noted
    assert_stored_alike(tmp_path / "x.h5", tmp_path / "out.nc")  # netCDF4 cannot open such a file
    with h5py.File(tmp_path / "out.nc") as file:
        assert file["free"][...].tolist() == [0, 1j, 2j]
        assert file["free"].attrs["matrix"].tolist() == [[1, 0], [0, 1]]
        assert bytes(file["raw"][0]) == b"\0\1\2"
        assert file["T"].attrs["flag"] is np.True_


def test_opaque_variables_and_attributes_of_user_defined_types_come_back(
    pool: Any, tmp_path: Path
) -> None:
    path = write(tmp_path / "x.nc", make_netcdf4)
    with h5py.File(path, "r+") as file:
        tid = h5py.h5t.create(h5py.h5t.OPAQUE, 5)
        tid.set_tag(b"five")
        tid.commit(file.id, b"five_t")
        space = h5py.h5s.create_simple((4,))
        made = h5py.h5d.create(file.id, b"opaque", tid, space)
        h5py.h5ds.attach_scale(made, file["words"].dims[0][0].id, 0)
        file["words"].attrs.create("a_cloud", 3, dtype=file["enum"].dtype)
        file["words"].attrs["zz_last"] = np.int32(1)
    there_and_back(pool, path, tmp_path / "out.nc")
    assert_alike(path, tmp_path / "out.nc")
    with h5py.File(path) as one, h5py.File(tmp_path / "out.nc") as other:
        assert one["opaque"].id.get_type().equal(other["opaque"].id.get_type())
        assert [scale.name for scale in other["opaque"].dims[0].values()] == ["/x"]


# The file is one that netCDF's library can go on with


def test_an_exported_file_can_be_extended_by_netcdfs_library(pool: Any, tmp_path: Path) -> None:
    path = write(tmp_path / "x.nc", make_netcdf4)
    there_and_back(pool, path, tmp_path / "out.nc")
    for target in (path, tmp_path / "out.nc"):
        with netCDF4.Dataset(target, "a") as file:
            file["padded"][2] = np.arange(4.0)
            file["chunked"][2] = np.ones((5, 4))  # where nothing is, netCDF4 may read anything
            file.createDimension("later", 2)
            file.createVariable("later", "i4", ("later",))[:] = [1, 2]
            file.createVariable("both", "f4", ("t", "later"))[:] = 1
            file["words"].note = "new"
            file.createGroup("later_group").createVariable("v", "f4", ("x",))
    assert_alike(path, tmp_path / "out.nc")
