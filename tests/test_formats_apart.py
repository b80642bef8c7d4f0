"""Formats stand apart: they know nothing of pools, and cost nothing until a file is opened."""

from __future__ import annotations

import ast
from pathlib import Path

import pytest

import engram.formats
from support import in_child

FOLDER = Path(engram.formats.__file__).parent
SHARED = {
    "__init__.py",  # the public door
    "gather.py",  # from a pool to a tree
    "load.py",  # from a source to a pool
    "many.py",  # many files into a pool
    "save.py",  # from a tree to a file
    "stream.py",  # from a source to a pool: strings, piece by piece
}
POOLS = {"engram.pool", "engram.group", "engram.array", "engram.blob", "engram.batch"}
LIBRARIES = ("h5py", "netCDF4", "zarr", "astropy", "cfgrib", "eccodes", "xarray")
FORMATS = sorted(p for p in FOLDER.rglob("*.py") if str(p.relative_to(FOLDER)) not in SHARED)


def imported(path: Path) -> set[str]:
    """Return the modules that a file imports, for types alone or in a function too."""
    found: set[str] = set()
    for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
        if isinstance(node, ast.Import):
            found.update(alias.name for alias in node.names)
        elif isinstance(node, ast.ImportFrom) and node.module:
            found.add(node.module)
            found.update(f"{node.module}.{alias.name}" for alias in node.names)
    return found


@pytest.mark.parametrize("path", FORMATS, ids=lambda p: str(p.relative_to(FOLDER)))
def test_formats_know_nothing_of_pools(path: Path) -> None:
    assert not imported(path) & POOLS


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
