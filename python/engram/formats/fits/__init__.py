"""FITS: what tells its files from others. Astropy is loaded when one is opened."""

from __future__ import annotations

import zlib
from typing import TYPE_CHECKING

from engram.extras import library

if TYPE_CHECKING:
    from pathlib import Path

    from engram.formats.source import Source

SIGNATURE = b"SIMPLE  ="
GZIP = b"\x1f\x8b"


class FITSFormat:
    """FITS, also as a whole compressed by gzip, as archives hand it out."""

    name = "fits"
    rank = 30
    suffixes = (".fits", ".fit", ".fts", ".fits.gz")

    def matches(self, path: Path, head: bytes) -> bool:
        """Whether the first card is FITS's own, under gzip too."""
        del path
        return (_inflated(head) if head.startswith(GZIP) else head).startswith(SIGNATURE)

    def open(self, path: Path) -> Source:
        """Open and walk the file."""
        library("astropy.io.fits", "fits", f"{path}: reading FITS")
        from engram.formats.fits import read  # noqa: PLC0415 - astropy is loaded for files alone

        return read.open_fits(path)


def _inflated(head: bytes) -> bytes:
    """Return the first bytes of what gzip has compressed; nothing if that is damaged."""
    try:
        return zlib.decompressobj(wbits=31).decompress(head, len(SIGNATURE))
    except zlib.error:
        return b""


FORMAT = FITSFormat()
