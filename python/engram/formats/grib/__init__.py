"""GRIB: what tells its files from others. eccodes is loaded when one is opened."""

from __future__ import annotations

from typing import TYPE_CHECKING

from engram.extras import library

if TYPE_CHECKING:
    from pathlib import Path

    from engram.formats.source import Source
    from engram.formats.target import Problem, Tell, Tree

SIGNATURE = b"GRIB"
_BULLETIN_BYTES = 128
_EDITION = 7
_EDITIONS = b"\1\2"


class GRIBFormat:
    """GRIB of edition 1 and 2, also behind the heading of a bulletin."""

    name = "grib"
    rank = 40
    suffixes = (".grib", ".grib2", ".grb", ".grb2")
    kinds = ("grib",)
    makes_folder = False

    def matches(self, path: Path, head: bytes) -> bool:
        """Whether a message of a known edition begins there."""
        del path
        at = head.find(SIGNATURE, 0, _BULLETIN_BYTES)
        edition = head[at + _EDITION : at + _EDITION + 1]
        return at >= 0 and edition != b"" and edition in _EDITIONS

    def open(self, path: Path) -> Source:
        """Open and walk the file."""
        library("cfgrib", "grib", f"{path}: reading GRIB")
        from engram.formats.grib import read  # noqa: PLC0415 - eccodes is loaded for files alone

        return read.open_grib(path)

    def problems(self, tree: Tree, kind: str) -> list[Problem]:  # noqa: ARG002 - there is one kind
        """Return what did not come from GRIB, or is not as its messages say it."""
        library("cfgrib", "grib", f"/{tree.name}: writing GRIB")
        from engram.formats.grib import write  # noqa: PLC0415 - as above

        return write.problems(tree)

    def write(self, tree: Tree, path: Path, kind: str, tell: Tell) -> str:  # noqa: ARG002 - as above
        """Write the messages that the tree came from."""
        from engram.formats.grib import write  # noqa: PLC0415 - as above

        return write.write_tree(tree, path, tell)


FORMAT = GRIBFormat()
