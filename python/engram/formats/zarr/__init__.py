"""Zarr: what tells its stores from others. Its library is loaded when one is opened."""

from __future__ import annotations

import zipfile
from typing import TYPE_CHECKING

from engram.extras import library

if TYPE_CHECKING:
    from pathlib import Path

    from engram.formats.source import Source
    from engram.formats.target import Problem, Tell, Tree

DOCUMENTS = ("zarr.json", ".zgroup", ".zarray")
"""What a node of a store has one of: of the third version, or of the second."""

_ZIP = b"PK\x03\x04"


class ZarrFormat:
    """Zarr: folders of the third version in and out; of the second, and zip archives, in."""

    name = "zarr"
    rank = 40
    suffixes = (".zarr", ".zarr.zip")
    kinds = ("zarr",)
    makes_folder = True

    def matches(self, path: Path, head: bytes) -> bool:
        """Whether there is a document of Zarr's at the top."""
        if path.is_dir():
            return any((path / name).is_file() for name in DOCUMENTS)
        if not head.startswith(_ZIP):
            return False
        if path.name.endswith(".zarr.zip"):
            return True
        try:
            with zipfile.ZipFile(path) as archive:
                return not {*DOCUMENTS}.isdisjoint(archive.namelist())
        except zipfile.BadZipFile:
            return False

    def open(self, path: Path) -> Source:
        """Open and walk the store."""
        library("zarr", "zarr", f"{path}: reading Zarr")
        from engram.formats.zarr import read  # noqa: PLC0415 - zarr is loaded for stores alone

        return read.open_zarr(path)

    def problems(self, tree: Tree, kind: str) -> list[Problem]:  # noqa: ARG002 - there is one kind
        """Return the dtypes, attributes and names that Zarr has no way to write."""
        library("zarr", "zarr", f"/{tree.name}: writing Zarr")
        from engram.formats.zarr import write  # noqa: PLC0415 - as above

        return write.problems(tree)

    def write(self, tree: Tree, path: Path, kind: str, tell: Tell) -> str:  # noqa: ARG002 - as above
        """Write the tree as a folder."""
        from engram.formats.zarr import write  # noqa: PLC0415 - as above

        return write.write_tree(tree, path, tell)


FORMAT = ZarrFormat()
