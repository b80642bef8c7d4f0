"""Formats cost nothing until a file is opened; what they may import, `make lint` checks."""

from __future__ import annotations

from typing import TYPE_CHECKING

import engram.formats
from support import in_child

if TYPE_CHECKING:
    from pathlib import Path

LIBRARIES = ("h5py", "netCDF4", "zarr", "astropy", "cfgrib", "eccodes", "xarray")


def test_formats_load_no_library_until_a_file_is_opened(tmp_path: Path) -> None:
    unknown = tmp_path / "unknown.bin"
    unknown.write_bytes(b"neither this nor that" * 100)
    loaded = in_child(
        "import sys, pathlib, engram\n"
        "from engram.formats.registry import formats, open_source\n"
        "try:\n    open_source(pathlib.Path(sys.argv[1]))\n"
        "except engram.FormatError:\n    pass\n"
        f"print(len(formats()), *[name for name in {LIBRARIES} if name in sys.modules])",
        unknown,
    )
    count, *libraries = loaded.split()
    assert int(count) >= 7
    assert not libraries


def test_reports_are_found_where_the_functions_are_that_give_them() -> None:
    functions = ("export_file", "import_file", "import_files")
    for name in {*engram.formats.__all__, *functions}:
        assert getattr(engram, name) is getattr(engram.formats, name)
        assert name in engram.__all__
    code = (
        "import engram, sys; print('ImportReport' in dir(engram), 'engram.formats' in sys.modules)"
    )
    assert in_child(code).split() == ["True", "False"]
