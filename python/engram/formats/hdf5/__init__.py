"""HDF5: what tells its files from others. Its library is loaded when one is opened or written."""

from __future__ import annotations

from typing import TYPE_CHECKING

from engram.extras import library

if TYPE_CHECKING:
    from pathlib import Path

    from engram.formats.source import Source
    from engram.formats.target import Problem, Tell, Tree

SIGNATURE = b"\x89HDF\r\n\x1a\n"
_FIRST_USER_BLOCK = 512


def has_signature(path: Path, head: bytes) -> bool:
    """Whether HDF5's signature stands at 0, 512, 1024, 2048 ..., after any user block."""
    if head.startswith(SIGNATURE):
        return True
    if len(head) < _FIRST_USER_BLOCK:
        return False
    offset = _FIRST_USER_BLOCK
    with path.open("rb") as file:
        while file.seek(offset) == offset and (found := file.read(len(SIGNATURE))):
            if found == SIGNATURE:
                return True
            offset *= 2
    return False


class HDF5Format:
    """HDF5, for what is not netCDF."""

    name = "hdf5"
    rank = 20
    suffixes = (".h5", ".hdf5", ".he5", ".hdf")
    kinds = ("hdf5",)
    makes_folder = False

    def matches(self, path: Path, head: bytes) -> bool:
        """Whether HDF5's signature is there."""
        return has_signature(path, head)

    def open(self, path: Path) -> Source:
        """Open and walk the file."""
        library("h5py", "hdf5", f"{path}: reading HDF5")
        from engram.formats.hdf5 import read  # noqa: PLC0415 - h5py is loaded for files alone

        return read.open_hdf5(path)

    def problems(self, tree: Tree, kind: str) -> list[Problem]:
        """Return what of the tree HDF5 cannot hold."""
        library("h5py", "hdf5", f"/{tree.name}: writing HDF5")
        from engram.formats.hdf5 import write  # noqa: PLC0415 - as above

        del kind  # there is one
        return write.problems(tree)

    def write(self, tree: Tree, path: Path, kind: str, tell: Tell) -> str:
        """Write the tree."""
        from engram.formats.hdf5 import write  # noqa: PLC0415 - as above

        del kind
        write.write(tree, path, tell)
        return "HDF5"


FORMAT = HDF5Format()
