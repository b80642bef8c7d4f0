"""FITS: what tells its files from others. Astropy is loaded when one is opened."""

from __future__ import annotations

import zlib
from typing import TYPE_CHECKING

from engram.extras import library

if TYPE_CHECKING:
    from pathlib import Path

    from engram.formats.source import Source
    from engram.formats.target import Problem, Tell, Tree

SIGNATURE = b"SIMPLE  ="
GZIP = b"\x1f\x8b"


class FITSFormat:
    """FITS, also as a whole compressed by gzip, as archives hand it out."""

    name = "fits"
    rank = 30
    suffixes = (".fits", ".fit", ".fts", ".fits.gz")
    kinds = ("fits",)
    makes_folder = False

    def matches(self, path: Path, head: bytes) -> bool:
        """Whether the first card is FITS's own, under gzip too."""
        del path
        return (_inflated(head) if head.startswith(GZIP) else head).startswith(SIGNATURE)

    def open(self, path: Path) -> Source:
        """Open and walk the file."""
        library("astropy.io.fits", "fits", f"{path}: reading FITS")
        from engram.formats.fits import read  # noqa: PLC0415 - astropy is loaded for files alone

        return read.open_fits(path)

    def problems(self, tree: Tree, kind: str) -> list[Problem]:  # noqa: ARG002 - there is one kind
        """Return the dtypes, names and attributes that FITS cannot hold."""
        library("astropy.io.fits", "fits", f"/{tree.name}: writing FITS")
        from engram.formats.fits import write  # noqa: PLC0415 - as above

        return write.problems(tree)

    def write(self, tree: Tree, path: Path, kind: str, tell: Tell) -> str:  # noqa: ARG002 - as above
        """Write the tree as HDUs."""
        from engram.formats.fits import write  # noqa: PLC0415 - as above

        return write.write_tree(tree, path, tell)


def _inflated(head: bytes) -> bytes:
    """Return the first bytes of what gzip has compressed; nothing if that is damaged."""
    try:
        return zlib.decompressobj(wbits=31).decompress(head, len(SIGNATURE))
    except zlib.error:
        return b""


FORMAT = FITSFormat()
