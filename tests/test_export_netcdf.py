"""Exporting netCDF: what was imported comes out equal, and what was not in its best form."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest

import engram
from alike_netcdf import assert_alike, assert_identical_in_xarray
from test_import_netcdf import DATA_FILES, FORMATS, make_common, make_netcdf4, write

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
