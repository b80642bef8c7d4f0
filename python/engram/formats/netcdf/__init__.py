"""netCDF: what tells its files from others. Its library is loaded when one is read or written."""

from __future__ import annotations

from typing import TYPE_CHECKING

from engram.extras import library
from engram.formats.hdf5 import has_signature
from engram.formats.netcdf import classic
from engram.formats.netcdf.kinds import KINDS

if TYPE_CHECKING:
    from pathlib import Path

    from engram.formats.source import Source
    from engram.formats.target import Problem, Tell, Tree


class NetCDFFormat:
    """netCDF: classic, 64-bit offset, 64-bit data, and netCDF-4."""

    name = "netcdf"
    rank = 10
    suffixes = (".nc", ".nc4", ".cdf", ".netcdf")
    kinds = ("netcdf", *KINDS)
    makes_folder = False

    def matches(self, path: Path, head: bytes) -> bool:
        """Whether the signature of classic netCDF or of HDF5 is there."""
        magic, version = head[: len(classic.MAGIC)], head[len(classic.MAGIC) :][:1]
        if magic == classic.MAGIC and version and version[0] in classic.VERSIONS:
            return True
        return has_signature(path, head)

    def open(self, path: Path) -> Source:
        """Open and walk the file."""
        with path.open("rb") as file:
            is_classic = file.read(len(classic.MAGIC)) == classic.MAGIC
        if is_classic:
            from engram.formats.netcdf.read3 import ClassicSource  # noqa: PLC0415 - for files alone

            return ClassicSource(path)
        library("h5py", "hdf5", f"{path}: reading netCDF-4")
        from engram.formats.netcdf.read4 import open_netcdf4  # noqa: PLC0415 - as above

        return open_netcdf4(path)

    def problems(self, tree: Tree, kind: str) -> list[Problem]:
        """Return what a kind of file cannot hold."""
        from engram.formats.netcdf import write  # noqa: PLC0415 - as above

        return write.problems(tree, kind)

    def write(self, tree: Tree, path: Path, kind: str, tell: Tell) -> str:
        """Write the tree."""
        from engram.formats.netcdf import write  # noqa: PLC0415 - as above

        return write.write(tree, path, kind, tell)


FORMAT = NetCDFFormat()
