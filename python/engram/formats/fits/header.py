"""Headers: cards as attributes of their types, and every card as it is in `origin`.

What shape and dtype say already (NAXIS and its like) is no attribute. All cards stand in `origin`
as the file has them, so that comments, their units in brackets, and the order are kept.
"""

from __future__ import annotations

import os
import re
from typing import TYPE_CHECKING, Any

import numpy as np
from astropy.io import fits

from engram.formats import text

if TYPE_CHECKING:
    from engram.formats.source import Attributes, Source

CARD_BYTES = 80
IMAGES = {8: "u1", 16: ">i2", 32: ">i4", 64: ">i8", -32: ">f4", -64: ">f8"}
"""BITPIX and the dtype of an image that it says."""

STRUCTURE = re.compile("SIMPLE|XTENSION|BITPIX|NAXIS[0-9]*|PCOUNT|GCOUNT|GROUPS|EXTEND|TFIELDS")
COMMENTARY = ("COMMENT", "HISTORY")
_IN_ORIGIN = "kept in the origin alone"
_INT64_BITS = 63
_UINT64_BITS = 64


def cards(fd: int, start: int, stop: int) -> list[str]:
    """Return the cards of a header that lies there, without END, trailing blanks removed."""
    content = os.pread(fd, stop - start, start).decode("latin-1")
    found = [content[at : at + CARD_BYTES].rstrip() for at in range(0, len(content), CARD_BYTES)]
    return found[: found.index("END")] if "END" in found else found


def attributes(source: Source, path: str, header: fits.Header) -> Attributes:
    """Return a header as attributes; what of it has no like here is noted in the source.

    Parameters
    ----------
    source
        Takes the notes.
    path
        The node whose header it is.
    header
        The header: of a compressed image, that of the image.

    Returns
    -------
    Values of type bool, int64, float64, complex128 and `str`; COMMENT and HISTORY as arrays of
    strings, a line each.

    """
    found: Attributes = {}
    commentary: dict[str, list[str]] = {}
    for card in header.cards:
        try:
            keyword, value = card.keyword, card.value
        except (ValueError, fits.VerifyError) as error:
            source.note(path, "card", f"cannot be read ({error}); {_IN_ORIGIN}")
            continue
        if keyword in COMMENTARY:
            commentary.setdefault(keyword, []).append(str(value))
        elif not keyword:
            if str(value).strip():
                source.note(path, "cards without a keyword", _IN_ORIGIN)
        elif STRUCTURE.fullmatch(keyword) is None:
            _add(source, path, found, keyword, value)
    for keyword, lines in commentary.items():
        found[keyword] = np.array(lines, dtype=text.string_dtype())
    return found


def dims(head: fits.Header | Attributes, shape: tuple[int, ...]) -> tuple[str, ...] | None:
    """Return the axes' names after CTYPE, without its projection; None unless each has its own."""
    kinds = [str(head.get(f"CTYPE{n}", "")) for n in range(len(shape), 0, -1)]
    names = tuple(kind.partition("-")[0].strip() for kind in kinds)
    return names if all(names) and len(set(names)) == len(names) else None


def _add(source: Source, path: str, found: Attributes, keyword: str, value: Any) -> None:
    """Add a card to the attributes, or note why not."""
    what = f"attribute {keyword}"
    if keyword in found:
        source.note(path, what, f"the first card of several; the others are {_IN_ORIGIN}")
    elif isinstance(value, fits.card.Undefined):
        source.note(path, what, f"has no value; {_IN_ORIGIN}")
    elif isinstance(value, int) and not isinstance(value, bool):
        fits_int64 = -(1 << _INT64_BITS) <= value < 1 << _INT64_BITS
        if not fits_int64 and not 0 <= value < 1 << _UINT64_BITS:
            source.note(path, what, "fits no 64-bit integer; its digits stand as text")
            found[keyword] = str(value)
        else:
            found[keyword] = value
    else:
        found[keyword] = value
