"""Cards: an attribute as the 80-character lines of a header, and a header from kept lines and new.

A header that came in has all its lines in `origin`. Those whose attribute is as it was go out as
they stand, in their order, with their comments. A line is written anew where the attribute has
changed, and left away where it has gone; what is new comes last. What is written anew is read back,
and refused if that gives another value.
"""

from __future__ import annotations

import math
import re
import warnings
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np
from astropy.io import fits

from engram import nested
from engram.formats.fits.header import CARD_BYTES, COMMENTARY, STRUCTURE

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

    from engram.formats.source import Attributes

_KEYWORD = re.compile("[A-Z0-9_-]{1,8}")
_LONG_KEYWORD = re.compile("[!-<>-~]+(?: [!-<>-~]+)*")
_RESERVED = re.compile("END|CONTINUE|HIERARCH|")
_PRINTABLE = re.compile("[ -~]*")
_CONTINUE = "CONTINUE"
_CONTINUED = f"{_CONTINUE}  "
_COMMENTARY_BYTES = CARD_BYTES - 8
_SHORTEST_TEXT = 8
_NUMBER_END = 20
_START = 10
"""Where the standard's own keywords have their values."""

Plain = bool | int | float | complex | str


@dataclass(frozen=True, slots=True)
class Card:
    """A card: its keyword, and its lines, which are more than one where a text is continued."""

    keyword: str
    lines: tuple[str, ...]


def split(lines: Iterable[str]) -> list[Card]:
    """Return the cards of kept lines."""
    found: list[Card] = []
    for line in lines:
        if line.startswith(_CONTINUE) and found:
            last = found[-1]
            found[-1] = Card(last.keyword, (*last.lines, line))
        else:
            found.append(Card(_keyword(line), (line,)))
    return found


def _keyword(line: str) -> str:
    """Return the keyword of a line; nothing where it cannot be read."""
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            return str(fits.Card.fromstring(line.ljust(CARD_BYTES)).keyword)
    except (ValueError, fits.VerifyError):
        return ""


def header_of(cards: Iterable[Card]) -> fits.Header:
    """Return the header that astropy reads from cards."""
    text = "".join(line.ljust(CARD_BYTES) for card in cards for line in card.lines)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        return fits.Header.fromstring(text)


def plain(value: Any) -> Plain:
    """Return an attribute's value as one that a card can hold.

    Raises
    ------
    ValueError
        No card can; it says why.

    """
    if isinstance(value, np.datetime64) and not np.isnat(value):
        return str(value)
    if isinstance(value, np.generic) and not isinstance(value, np.bytes_ | np.void):
        if value.dtype.char in "gG":
            message = f"{value.dtype} has more digits than FITS's readers keep"
            raise ValueError(message)
        value = value.item()
    if isinstance(value, complex):
        whole = math.isfinite(value.real) and math.isfinite(value.imag)
    else:
        whole = not isinstance(value, float) or math.isfinite(value)
    if not whole:
        message = f"{value} is no number that a card can hold"
        raise ValueError(message)
    if isinstance(value, bool | int | float | complex | str):
        return value
    if isinstance(value, np.ndarray | np.void) and nested.is_tree(value.dtype):
        message = (
            "is a tree of dicts and lists, and a card holds one text or number: set an attribute "
            "for each value in it"
        )
        raise ValueError(message)
    kind = "an array" if isinstance(value, np.ndarray) else f"of type {type(value).__name__}"
    message = f"is {kind}, and a card holds one text or number"
    raise ValueError(message)


def made(keyword: str, value: Any) -> list[Card]:
    """Return the cards of an attribute: one, or one for each line of a commentary.

    Raises
    ------
    ValueError
        No card holds it; it says why.

    """
    if STRUCTURE.fullmatch(keyword) is not None or _RESERVED.fullmatch(keyword) is not None:
        message = "the name is one that FITS gives to the structure of a file"
        raise ValueError(message)
    if keyword in COMMENTARY:
        return [_commentary(keyword, line) for line in _lines(value)]
    return [card(keyword, plain(value))]


def card(keyword: str, value: Plain) -> Card:
    """Return the card of a value.

    Raises
    ------
    ValueError
        No card holds it, or it would be read as another one.

    """
    if _KEYWORD.fullmatch(keyword) is not None:
        start = f"{keyword:<8}= "
    elif _LONG_KEYWORD.fullmatch(keyword) is not None:
        start = f"HIERARCH {keyword} = "
    else:
        message = "the name has other characters than a keyword of FITS can have"
        raise ValueError(message)
    if isinstance(value, str):
        lines = tuple(_text(start, value))
    else:
        number = _number(value)
        # Integers end where the standard's fixed format has them end.
        lines = (start + number.rjust(_NUMBER_END if len(start) == _START else 0),)
    found = Card(keyword, lines)
    _check(found, value)
    return found


def _number(value: complex) -> str:
    """Return a number as a card has it."""
    if isinstance(value, bool):
        return "T" if value else "F"
    if isinstance(value, complex):
        return f"({_number(value.real)}, {_number(value.imag)})"
    if isinstance(value, float):
        found = repr(value).upper()
        if "." not in found:
            found = found.replace("E", ".0E")
        return found
    return str(value)


def _text(start: str, value: str) -> Iterator[str]:
    """Yield the lines of a text, which is continued where it is too long for one."""
    if _PRINTABLE.fullmatch(value) is None:
        message = "has characters that are not ASCII's printable ones"
        raise ValueError(message)
    quoted = value.replace("'", "''")
    if len(start) + len(quoted) + 2 <= CARD_BYTES:
        yield f"{start}'{quoted:<{_SHORTEST_TEXT if len(start) == _START else 0}}'"
        return
    while len(start) + len(quoted) + 2 > CARD_BYTES:
        room = CARD_BYTES - len(start) - 3
        if room < 2:  # noqa: PLR2004 - a quote that is doubled
            message = "the name leaves no room for a value in a card"
            raise ValueError(message)
        piece = quoted[:room]
        if (len(piece) - len(piece.rstrip("'"))) % 2:  # no doubled quote is cut in two
            piece = piece[:-1]
        yield f"{start}'{piece}&'"
        quoted = quoted[len(piece) :]
        start = _CONTINUED
    yield f"{start}'{quoted}'"


def _lines(value: Any) -> list[str]:
    """Return the lines of a commentary."""
    found = np.atleast_1d(value)
    if found.dtype.kind not in "UT" or found.ndim != 1 or not found.size:
        message = "is a commentary, which is an array of texts"
        raise ValueError(message)
    return [str(line) for line in found.tolist()]


def _commentary(keyword: str, line: str) -> Card:
    """Return a line of a commentary as a card."""
    if _PRINTABLE.fullmatch(line) is None or len(line) > _COMMENTARY_BYTES or line.endswith(" "):
        message = (
            f"the line {line[:80]!r} is none of {_COMMENTARY_BYTES} printable characters of ASCII "
            "at most, without a blank at its end"
        )
        raise ValueError(message)
    return Card(keyword, (f"{keyword:<8}{line}",))


def _check(found: Card, value: Plain) -> None:
    """See that a card is read as what it was made of."""
    if any(len(line) > CARD_BYTES for line in found.lines):
        message = f"the name leaves no room for {str(value)[:80]} in a card"
        raise ValueError(message)
    try:
        (read,) = header_of([found]).cards
        same = read.keyword == found.keyword and equal(read.value, value)
    except (ValueError, fits.VerifyError):
        same = False
    if not same:
        message = f"FITS's readers would take it for another value than {str(value)[:80]!r}"
        raise ValueError(message)


def equal(one: Any, other: Any) -> bool:
    """Whether two values of attributes are one card's."""
    if isinstance(one, np.ndarray) or isinstance(other, np.ndarray):
        same: bool = np.atleast_1d(one).tolist() == np.atleast_1d(other).tolist()
        return same
    try:
        one, other = plain(one), plain(other)
    except ValueError:
        return False
    alike = isinstance(one, str | bool) or isinstance(other, str | bool)
    return bool(one == other) and (not alike or type(one) is type(other))


def merged(
    kept: list[Card], before: Attributes, now: Attributes
) -> tuple[list[Card], dict[str, str]]:
    """Return cards without the structure's, as the attributes are now, and which were refused.

    Parameters
    ----------
    kept
        The cards that came in.
    before
        The attributes that they were read as.
    now
        The attributes.

    Returns
    -------
    The cards, and for each attribute that no card holds its name and why.

    """
    refused: dict[str, str] = {}
    found: list[Card] = []
    done: set[str] = set()
    for old in kept:
        name = old.keyword
        if name not in before:
            # A card without a value or keyword, or one that cannot be read: unless it is one now.
            if name not in now:
                found.append(old)
        elif name in now and equal(before[name], now[name]):
            found.append(old)
            done.add(name)
        elif name in now and name not in done:
            found += _made(name, now[name], refused)
            done.add(name)
    for name, value in now.items():
        if name not in done:
            found += _made(name, value, refused)
    return found, refused


def _made(name: str, value: Any, refused: dict[str, str]) -> list[Card]:
    """Return the cards of an attribute; none, with the reason told, where none can be."""
    try:
        return made(name, value)
    except ValueError as error:
        refused[name] = str(error)
        return []


def encoded(cards: Iterable[Card]) -> bytes:
    """Return a header's bytes: its cards, its end, and blanks."""
    lines = [line.ljust(CARD_BYTES) for card in cards for line in card.lines]
    return "".join([*lines, "END".ljust(CARD_BYTES)]).encode("latin-1")
