"""Writing FITS: HDU by HDU as planned, values in bounded pieces, under gzip where the name says so.

A header that goes out as it came in is left as it is, DATASUM and CHECKSUM included, as long as the
sum of the values is that. Else DATASUM is the sum of now, and CHECKSUM, which covers the header,
too, is left away and told of.
"""

from __future__ import annotations

import gzip
from typing import TYPE_CHECKING, Any

import numpy as np

from engram.formats.blocks import index, regions
from engram.formats.fits import cards
from engram.formats.fits.plan import CHECKSUM, DATASUM, HDU, Plan
from engram.formats.target import ArrayItem

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path
    from typing import IO

    from engram.formats.fits.cards import Card
    from engram.formats.target import Problem, Tell, Tree

_BLOCK = 2880
_WORD = 4
_MASK = (1 << 32) - 1


def problems(tree: Tree) -> list[Problem]:
    """Return what FITS cannot hold."""
    return Plan(tree).problems


def write_tree(tree: Tree, path: Path, tell: Tell) -> str:
    """Write a tree that has no problems."""
    plan = Plan(tree)
    for note in plan.notes:
        tree.note(*note)
    for left in plan.left_out:
        tree.leave_out(*left)
    with path.open("wb") as file:
        if path.suffix.lower() != ".gz":
            _write(plan, tree, file, tell)
        else:
            with gzip.GzipFile("", "wb", fileobj=file, mtime=0) as packed:
                _write(plan, tree, packed, tell)
    return "FITS"


def _write(plan: Plan, tree: Tree, file: IO[bytes] | gzip.GzipFile, tell: Tell) -> None:
    """Write all HDUs."""
    for hdu in plan.hdus:
        tell(hdu.item.path, 0)
        _padded(file, [cards.encoded(_summed(hdu, tree))], b" ")
        _padded(file, _values(hdu, tell), b"\0")


def _padded(file: IO[bytes] | gzip.GzipFile, pieces: Any, fill: bytes) -> None:
    """Write pieces, and fill the last block."""
    nbytes = 0
    for piece in pieces:
        file.write(piece)
        nbytes += len(piece)
    file.write(fill * (-nbytes % _BLOCK))


def _values(hdu: HDU, tell: Tell | None = None) -> Iterator[bytes]:
    """Yield the bytes of an HDU's values."""
    item = hdu.item
    if not isinstance(item, ArrayItem):
        return
    values = item.load()
    for region in regions(item.shape, None, item.dtype.itemsize):
        piece = values[index(region)]
        yield hdu.form.convert(piece).tobytes()
        if tell is not None:
            tell(item.path, piece.size * item.dtype.itemsize)


def _summed(hdu: HDU, tree: Tree) -> list[Card]:
    """Return the header with sums that are right."""
    names = {card.keyword for card in hdu.header}
    if names.isdisjoint({CHECKSUM, DATASUM}):
        return hdu.header
    total = cards.card(DATASUM, str(_sum(_values(hdu))))
    stated = [card for card in hdu.header if card.keyword == DATASUM]
    same = [_value(card) for card in stated] == [_value(total)] * len(stated)
    if hdu.is_kept and same:
        return hdu.header
    found = [card for card in hdu.header if card.keyword != CHECKSUM]
    if not same:
        found = [total if card.keyword == DATASUM else card for card in found]
        tree.note(hdu.item.path, f"attribute {DATASUM}", "the sum of the values as they are now")
    if CHECKSUM in names:
        tree.leave_out(hdu.item.path, f"attribute {CHECKSUM}", "the header or values have changed")
    return found


def _value(card: Card) -> str:
    """Return the value of a card."""
    return str(cards.header_of([card]).cards[0].value)


def _sum(pieces: Iterator[bytes]) -> int:
    """Return the sum of 32-bit words in ones' complement, as FITS's checksums have it."""
    total, rest = 0, b""
    for piece in pieces:
        content = rest + piece
        whole = len(content) // _WORD * _WORD
        total += int(np.frombuffer(content[:whole], ">u4").sum(dtype=np.uint64))
        rest = content[whole:]
    total += int.from_bytes(rest.ljust(_WORD, b"\0"), "big")
    while total > _MASK:
        total = (total & _MASK) + (total >> 32)
    return total
