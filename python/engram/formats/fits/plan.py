"""Plans: the HDUs that a tree becomes, each with its header; what FITS cannot hold is found here.

The primary HDU has the root's attributes, unless the root has none and an array came from a primary
HDU: then it is that. Every group is an HDU without values, and comes before what is in it.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
from astropy.io import fits

from engram.errors import FormatError
from engram.formats.fits import cards, forms, header, table
from engram.formats.fits.forms import Form
from engram.formats.fits.naming import Names
from engram.formats.source import Source
from engram.formats.target import ArrayItem, GroupItem, Problem

if TYPE_CHECKING:
    from collections.abc import Iterable

    from engram.formats.fits.cards import Card
    from engram.formats.source import Attributes
    from engram.formats.target import Item, Tree

CHECKSUM, DATASUM = "CHECKSUM", "DATASUM"

_EXTNAME, _EXTVER = "EXTNAME", "EXTVER"
_ERRORS = (KeyError, ValueError, TypeError, IndexError, FormatError, fits.VerifyError)
_OF_COLUMN = re.compile("(T(?:TYPE|FORM|DIM|BCOL|SCAL|ZERO|NULL|UNIT|DISP))([0-9]+)")
_OF_LAYOUT = ("TTYPE", "TFORM", "TDIM", "TBCOL")
_OF_OTHERS = re.compile("Z(IMAGE|TENSION|BITPIX|NAXIS[0-9]*|TILE[0-9]+|CMPTYPE)|THEAP|ZTABLE")
_OF_COMPRESSED = re.compile("Z.*|T(TYPE|FORM|DIM)[0-9]+|THEAP|EXTEND")
_CARD_TYPES = (np.bool_, np.int64, np.float64, np.complex128, str)


@dataclass(frozen=True, slots=True)
class HDU:
    """An HDU to be written.

    Attributes
    ----------
    item
        What it holds.
    header
        Its cards.
    form
        How its values lie.
    is_kept
        Whether its header is the one that came in, card by card.

    """

    item: Item
    header: list[Card]
    form: Form
    is_kept: bool


class Plan:
    """The HDUs of a tree, what is refused of it, and what is to be told."""

    def __init__(self, tree: Tree) -> None:
        """Plan all of the tree."""
        self.hdus: list[HDU] = []
        self.problems: list[Problem] = []
        self.notes: list[tuple[str, str, str]] = []
        self.left_out: list[tuple[str, str, str]] = []
        self._names = Names()
        first = _primary(tree)
        others = [item for item in tree.items if item is not first]
        if first is not tree.root:
            others.remove(tree.root)
        for number, item in enumerate([first, *others]):
            self._add(number, item)

    def _add(self, number: int, item: Item) -> None:
        """Add the HDU of an item."""
        form = self._form(item)
        if form is None:
            return
        kept = _kept(item)
        before = _attributes(kept)
        fitting = _fitting(kept, item, is_primary=number == 0)
        attrs = dict(item.attrs)
        if _layout(before) != _layout(attrs):
            fitting = None
        if item.path and not self._name(number, item, attrs):
            return
        self._dims(item, attrs)
        if fitting is None:
            attrs = self._columns(item, form, kept, before, attrs)
            ours = _ours(kept)
        else:
            ours = fitting
        found, refused = cards.merged(ours, before, attrs)
        for name, why in refused.items():
            attribute = name if name in item.attrs else None
            self.problems.append(Problem(item.path, f"attribute {name}", why, attribute))
        if fitting is None:
            found = [*self._structure(number, item, form), *found]
        else:
            form = forms.EMPTY if isinstance(item, GroupItem) else Form(form.extension, [])
        self._tell(item, form)
        self.hdus.append(HDU(item, found, form, is_kept=found == kept))

    def _form(self, item: Item) -> Form | None:
        """Return the form of an item; None, with the problem told, if there is none."""
        if isinstance(item, GroupItem):
            return forms.EMPTY
        try:
            return forms.form(item.shape, item.dtype, is_blob=item.is_blob)
        except ValueError as error:
            what = "fields" if item.dtype.names else f"dtype {item.dtype}"
            self.problems.append(Problem(item.path, what, str(error)))
            return None

    def _name(self, number: int, item: Item, attrs: Attributes) -> bool:
        """Have the header name the item as it is called; whether it can."""
        found, why = self._names.find(number, attrs.get(_EXTNAME, ""), attrs.get(_EXTVER, 1))
        if found != item.path:
            for name in (_EXTNAME, _EXTVER):
                if attrs.pop(name, None) is not None:
                    why = f"as the HDU is called {item.path!r}, which is where it is in the pool"
                    self.notes.append((item.path, f"attribute {name}", why))
            stated = {_EXTNAME: item.path, **attrs}
            attrs.clear()
            attrs.update(stated)
            found, why = self._names.find(number, item.path, 1)
            try:
                cards.card(_EXTNAME, item.path)
            except ValueError as error:
                found, why = "", f"its name {error}"
        if found != item.path:
            what = "group" if isinstance(item, GroupItem) else "array"
            why = why or f"its name would be read as {found!r}"
            self.problems.append(Problem(item.path, what, why))
            return False
        self._names.taken[item.path] = isinstance(item, GroupItem)
        return True

    def _dims(self, item: Item, attrs: Attributes) -> None:
        """Have CTYPEs name the dimensions, where they can."""
        if isinstance(item, GroupItem) or not item.dims:
            return
        axes = [f"CTYPE{n}" for n in range(len(item.dims), 0, -1)]
        if item.dtype.names is None and header.dims(attrs, item.shape) != item.dims:
            more = dict(zip(axes, item.dims, strict=True))
            both = {**attrs, **more}
            free = not any(name in attrs for name in axes)
            if (
                free
                and header.dims(both, item.shape) == item.dims
                and all(map(_is_text, item.dims))
            ):
                attrs.update(more)
                return
        elif item.dtype.names is None:
            return
        why = "no axis of an image has such a name (CTYPE)"
        if taken := [name for name in axes if name in attrs]:
            why = f"the attribute {taken[0]} has the place of their names"
        if item.dtype.names is not None:
            why = "the rows of a table have no name"
        self.left_out.append((item.path, f"dims {', '.join(item.dims)}", why))

    def _columns(
        self, item: Item, form: Form, kept: list[Card], before: Attributes, attrs: Attributes
    ) -> Attributes:
        """Return the attributes without those that the form says, columns renumbered."""
        said = dict(form.more)
        places = _places(before, item)
        found: Attributes = {}
        is_ascii = any(card.lines[0].startswith("XTENSION= 'TABLE ") for card in kept[:1])
        if is_ascii and places:
            why = "its numbers are decoded, and go out in a binary table"
            self.notes.append((item.path, "ASCII table", why))
        for name, value in attrs.items():
            match = _OF_COLUMN.fullmatch(name)
            if match is not None and places and cards.equal(before.get(name, ()), value):
                number = places.get(int(match[2]))
                if number is None or match[1] in _OF_LAYOUT or (is_ascii and match[1] == "TNULL"):
                    continue
                name = f"{match[1]}{number}"  # noqa: PLW2901 - what it is called now
            of_layout = form is not forms.EMPTY and match is not None and match[1] in _OF_LAYOUT
            if cards.equal(said.get(name, ()), value):
                continue
            if name in said or _OF_OTHERS.fullmatch(name) or of_layout:
                why = "FITS gives the name to how the values lie, and they do not lie so"
                self.problems.append(Problem(item.path, f"attribute {name}", why, name))
                continue
            found[name] = value
        return found

    def _structure(self, number: int, item: Item, form: Form) -> list[Card]:
        """Return the cards of a structure that is made anew."""
        first: list[tuple[str, Any]] = [("SIMPLE", True)]
        last: list[tuple[str, Any]] = [("EXTEND", True)]
        if number:
            first = [("XTENSION", f"{form.extension:<8}")]
            last = [("PCOUNT", 0), ("GCOUNT", 1)]
        found: list[Card] = []
        for keyword, value in (*first, *form.cards, *last, *form.more):
            text = value if keyword != "XTENSION" else form.extension
            try:
                found.append(cards.card(keyword, text))
            except ValueError as error:
                self.problems.append(Problem(item.path, f"field {value!r}", str(error)))
        return found

    def _tell(self, item: Item, form: Form) -> None:
        """Tell what of an item is written in another way."""
        self.notes += [(item.path, *note) for note in form.notes]
        times = [n for n, v in item.attrs.items() if isinstance(v, np.datetime64)]
        if times:
            self.notes.append((item.path, f"attributes {', '.join(times)}", "as text of ISO 8601"))
        narrow = [
            name
            for name, value in item.attrs.items()
            if isinstance(value, np.number) and not isinstance(value, _CARD_TYPES)
        ]
        if narrow:
            why = "cards do not say how wide numbers are; they are read as 64 bits"
            self.notes.append((item.path, f"attributes {', '.join(narrow)}", why))


def _primary(tree: Tree) -> Item:
    """Return what becomes the primary HDU: the root, or an array that was one."""
    if not tree.root.attrs:
        for item in tree.arrays:
            facts = item.origin
            if facts.get("format") == "FITS" and facts.get("hdu") == 0 and "/" not in item.path:
                is_image = item.dtype.names is None
                if is_image or _fitting(_kept(item), item, is_primary=True) is not None:
                    return item
    return tree.root


def _is_text(name: str) -> bool:
    """Whether a card can hold a name."""
    try:
        cards.card("CTYPE1", name)
    except ValueError:
        return False
    return True


def _kept(item: Item) -> list[Card]:
    """Return the cards that an item came in with; none if they are no FITS's."""
    lines = item.origin.get("cards")
    if item.origin.get("format") != "FITS" or not isinstance(lines, list):
        return []
    try:
        if all(len(line.encode("latin-1")) <= header.CARD_BYTES for line in lines):
            return cards.split(lines)
    except (AttributeError, UnicodeError):
        pass
    return []


def _attributes(kept: Iterable[Card]) -> Attributes:
    """Return the attributes that cards were read as."""
    return header.attributes(_nobody(), "", cards.header_of(kept))


def _nobody() -> Source:
    """Return a source whose notes nobody reads."""
    return Source(Path(), "FITS")


def _ours(kept: list[Card]) -> list[Card]:
    """Return the kept cards that another structure can have, too."""
    is_compressed = any(card.keyword == "ZIMAGE" for card in kept)
    found = [card for card in kept if header.STRUCTURE.fullmatch(card.keyword) is None]
    found = [card for card in found if _OF_COLUMN.fullmatch(card.keyword) is None]
    if is_compressed:
        found = [card for card in found if _OF_COMPRESSED.fullmatch(card.keyword) is None]
    return found


def _layout(attrs: Attributes) -> dict[str, str]:
    """Return those of attributes that say how a table's values lie."""
    return {
        name: str(value)
        for name, value in attrs.items()
        if _OF_OTHERS.fullmatch(name)
        or ((match := _OF_COLUMN.fullmatch(name)) is not None and match[1] in _OF_LAYOUT)
    }


def _places(before: Attributes, item: Item) -> dict[int, int]:
    """Return the number that each column of a header has now, by its name."""
    names = item.dtype.names if isinstance(item, ArrayItem) else None
    if names is None:
        return {}
    places = {name: number for number, name in enumerate(names, 1)}
    found = {}
    for name in before:
        match = _OF_COLUMN.fullmatch(name)
        if match is not None and match[1] == "TFORM":
            number = int(match[2])
            title = str(before.get(f"TTYPE{number}", "")).strip() or f"col{number}"
            if title in places:
                found[number] = places[title]
    return found


def _fitting(kept: list[Card], item: Item, *, is_primary: bool) -> list[Card] | None:
    """Return the cards that came in, with the lengths of now; None if they are of other values."""
    if not kept or kept[0].keyword != ("SIMPLE" if is_primary else "XTENSION"):
        return None
    try:
        lengths = _lengths(cards.header_of(kept), item)
    except _ERRORS:
        return None
    if lengths is None:
        return None
    found = []
    for card in kept:
        length = lengths.pop(card.keyword, None)
        stated = None if length is None else cards.header_of([card]).cards[0].value
        same = length is None or stated == length
        found.append(card if same else cards.card(card.keyword, length or 0))
    return None if lengths else found


def _lengths(head: fits.Header, item: Item) -> dict[str, int] | None:
    """Return what a header says of how long an item is, if it says the rest of it rightly."""
    kind = str(head.get("XTENSION", "IMAGE")).strip()
    if "ZIMAGE" in head or kind not in {"IMAGE", "BINTABLE"}:
        return None
    if isinstance(item, GroupItem):
        return {} if kind == "IMAGE" and head["NAXIS"] == 0 else None
    if kind == "BINTABLE":
        found = table.layout(nobody := _nobody(), "", head, is_ascii=False)
        whole = head["PCOUNT"] == 0 and not nobody.left_out
        same = whole and len(item.shape) == 1 and found.stored == item.dtype
        return {"NAXIS2": item.shape[0]} if same else None
    dtype = np.dtype(header.IMAGES[head["BITPIX"]])
    if head.get("GROUPS") is True and head["NAXIS1"] == 0:
        found = table.group_layout(_nobody(), "", head, dtype)
        same = len(item.shape) == 1 and found.stored == item.dtype
        return {"GCOUNT": item.shape[0]} if same else None
    if dtype != item.dtype or head["NAXIS"] != len(item.shape) or not item.shape:
        return None
    return {f"NAXIS{n}": length for n, length in enumerate(reversed(item.shape), 1)}
