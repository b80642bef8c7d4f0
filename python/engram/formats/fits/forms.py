"""Forms: how an array's values lie in an HDU, as cards of its structure and as bytes.

An array of numbers is an image, and one of records a binary table with a column for each field.
FITS has unsigned integers and signed bytes by its convention of an offset (BZERO, TZERO): they are
written so. All numbers are big-endian there.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

import numpy as np

if TYPE_CHECKING:
    from collections.abc import Callable

    from engram.formats.fits.cards import Plain

Array = np.ndarray[Any, Any]
DType = np.dtype[Any]

_BITPIX = {"u1": 8, "i2": 16, "i4": 32, "i8": 64, "f4": -32, "f8": -64, "b1": 8}
_COLUMNS = {"b1": "L", "u1": "B", "i2": "I", "i4": "J", "i8": "K"}
_COLUMNS |= {"f4": "E", "f8": "D", "c8": "C", "c16": "M"}
_OFFSETS = {"i1": ("u1", -(1 << 7)), "u2": ("i2", 1 << 15), "u4": ("i4", 1 << 31)}
_OFFSETS["u8"] = ("i8", 1 << 63)
_COLUMNS_MOST = 999


@dataclass(frozen=True, slots=True)
class Form:
    """What an HDU is.

    Attributes
    ----------
    extension
        What XTENSION calls it.
    cards
        The structure's keywords and values, from BITPIX on; PCOUNT and GCOUNT not among them.
    more
        Those that may follow others: names, formats and offsets.
    convert
        Gives the bytes of the file for a piece of the values, as an array of any dtype.
    notes
        What is written in another way: what it is, and how.

    """

    extension: str
    cards: list[tuple[str, Plain]]
    more: list[tuple[str, Plain]] = field(default_factory=list)
    convert: Callable[[Array], Array] = np.ascontiguousarray
    notes: list[tuple[str, str]] = field(default_factory=list)


EMPTY = Form("IMAGE", [("BITPIX", 8), ("NAXIS", 0)])
"""The form of an HDU that has no values."""


def form(shape: tuple[int, ...], dtype: DType, *, is_blob: bool = False) -> Form:
    """Return the form of an array.

    Raises
    ------
    ValueError
        FITS has none; it says why.

    """
    made = _image(shape, dtype) if dtype.names is None else _table(shape, dtype)
    if not shape:
        made.notes.append(("array", "of no dimensions, written as one value of one dimension"))
    if is_blob:
        made.notes.append(("blob", "written as an image of its bytes"))
    return made


def _code(dtype: DType) -> str:
    """Return a dtype's kind and size."""
    return f"{dtype.kind}{dtype.itemsize}"


def _image(shape: tuple[int, ...], dtype: DType) -> Form:
    """Return the form of numbers."""
    code, offset = _OFFSETS.get(_code(dtype), (_code(dtype), 0))
    if code not in _BITPIX:
        message = f"images of FITS have integers and numbers of 32 and 64 bits, no {dtype}"
        if dtype.kind in "cS":
            message += "; a table can: make it a field of records"
        raise ValueError(message)
    lengths = shape or (1,)
    if len(lengths) > _COLUMNS_MOST:
        message = f"it has {len(lengths)} dimensions, and FITS at most {_COLUMNS_MOST}"
        raise ValueError(message)
    cards: list[tuple[str, Plain]] = [("BITPIX", _BITPIX[code]), ("NAXIS", len(lengths))]
    cards += [(f"NAXIS{n}", length) for n, length in enumerate(reversed(lengths), 1)]
    made = Form("IMAGE", cards, convert=_Stored(np.dtype(code).newbyteorder(">"), bool(offset)))
    if offset:
        made.more.extend([("BSCALE", 1), ("BZERO", offset)])
    if dtype.kind == "b":
        made.notes.append(("array", "of booleans, written as 0 and 1: images of FITS have none"))
    return made


def _table(shape: tuple[int, ...], dtype: DType) -> Form:
    """Return the form of records."""
    names = dtype.names or ()
    if len(shape) > 1:
        message = f"records of the shape {shape}; the rows of a table have one dimension"
        raise ValueError(message)
    if not 0 < len(names) <= _COLUMNS_MOST:
        message = f"records of {len(names)} fields; a table has from 1 to {_COLUMNS_MOST}"
        raise ValueError(message)
    columns = [_column(name, dtype[name], n) for n, name in enumerate(names, 1)]
    stored = np.dtype(
        [(name, c.stored.dtype, c.shape) for name, c in zip(names, columns, strict=True)]
    )
    cards: list[tuple[str, Plain]] = [("BITPIX", 8), ("NAXIS", 2), ("NAXIS1", stored.itemsize)]
    cards.append(("NAXIS2", shape[0] if shape else 1))
    more = [card for column in columns for card in column.cards]
    convert = _Rows(stored, {n: c.stored for n, c in zip(names, columns, strict=True)})
    made = Form("BINTABLE", cards, [("TFIELDS", len(names)), *more], convert)
    logical = [name for name in names if dtype[name].base.kind == "b"]
    if logical:
        made.notes.append((f"fields {', '.join(logical)}", "of booleans, written as T and F"))
    return made


@dataclass(frozen=True, slots=True)
class _Stored:
    """Makes the values of a file: of a dtype, and with the sign bit turned where that is so."""

    dtype: DType
    is_offset: bool = False

    def __call__(self, values: Array) -> Array:
        if values.dtype.kind == "b" and self.dtype.kind == "S":
            return np.where(values, b"T", b"F")
        if not self.is_offset:
            return np.ascontiguousarray(values, self.dtype)
        unsigned = np.dtype(f"u{values.dtype.itemsize}")
        native = np.ascontiguousarray(values, values.dtype.newbyteorder("=")).view(unsigned)
        turned: Array = native ^ unsigned.type(1 << (8 * unsigned.itemsize - 1))
        return turned.view(self.dtype.newbyteorder("=")).astype(self.dtype)


@dataclass(frozen=True, slots=True)
class _Rows:
    """Makes the rows of a file of records."""

    dtype: DType
    columns: dict[str, _Stored]

    def __call__(self, values: Array) -> Array:
        rows = np.zeros(values.shape, self.dtype)
        for name, stored in self.columns.items():
            rows[name] = stored(values[name])
        return rows


@dataclass(frozen=True, slots=True)
class _Column:
    """A column: its cards, and the dtype and shape of its values."""

    cards: list[tuple[str, Plain]]
    stored: _Stored
    shape: tuple[int, ...]


def _column(name: str, dtype: DType, number: int) -> _Column:
    """Return the column of a field."""
    base, shape = dtype.base, dtype.shape
    code, offset = _OFFSETS.get(_code(base), (_code(base), 0))
    width = base.itemsize if base.kind == "S" else 1
    if base.kind != "S" and code not in _COLUMNS:
        message = f"the field {name!r} is of {base}, which tables of FITS have not"
        raise ValueError(message)
    repeat = width * math.prod(shape)
    if not repeat:
        message = f"the field {name!r} has no bytes ({dtype}), so no column says what it is"
        raise ValueError(message)
    if not name or name != name.strip():
        message = f"the field {name!r} has a name with blanks at an end; rename it"
        raise ValueError(message)
    letter = "A" if base.kind == "S" else _COLUMNS[code]
    cards: list[tuple[str, Plain]] = [
        (f"TTYPE{number}", name),
        (f"TFORM{number}", f"{repeat}{letter}"),
    ]
    if shape and (len(shape) > 1 or base.kind == "S" or shape == (1,)):
        lengths = ([width] if base.kind == "S" else []) + list(reversed(shape))
        cards.append((f"TDIM{number}", f"({','.join(map(str, lengths))})"))
    if offset:
        cards += [(f"TSCAL{number}", 1), (f"TZERO{number}", offset)]
    stored = base if base.kind == "S" else np.dtype("S1" if base.kind == "b" else code)
    return _Column(cards, _Stored(stored.newbyteorder(">"), bool(offset)), shape)
