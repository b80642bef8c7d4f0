"""Tables: from a header to columns, and from rows of the file to records here.

Records are raw: no TSCAL or TZERO is applied, no TNULL masked. A binary table's field has the
file's bytes: logicals are the characters T and F (none where undefined), bits are whole bytes. An
ASCII table's numbers are decoded, for their characters are only how they are written. Left out by
name are variable-length columns, whose values lie elsewhere in the file.
"""

from __future__ import annotations

import math
import re
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np

from engram.errors import FormatError

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from astropy.io import fits

    from engram.formats.source import Source

Array = np.ndarray[Any, Any]
DType = np.dtype[Any]

_BINARY = re.compile(r"\s*(\d*)([LXBIJKAEDCMPQ])\s*(.*?)\s*")
_ASCII = re.compile(r"\s*([AIFED])(\d+)(?:\.(\d+))?\s*")
_NUMBERS = {
    "L": "S1",
    "B": "u1",
    "I": ">i2",
    "J": ">i4",
    "K": ">i8",
    "E": ">f4",
    "D": ">f8",
    "C": ">c8",
    "M": ">c16",
}
_DESCRIPTORS = {"P": 8, "Q": 16}
_INT64_DIGITS = 18


@dataclass(frozen=True, slots=True)
class Column:
    """A column of a table.

    Attributes
    ----------
    name
        Its name here.
    stored
        The dtype of its bytes in the file, with the shape of one row's value.
    offset
        Where they lie in a row.
    dtype
        The dtype of its values here.
    convert
        Makes these of those; None where they are the same.

    """

    name: str
    stored: DType
    offset: int
    dtype: DType
    convert: Callable[[Array], Array] | None = None


@dataclass(frozen=True, slots=True)
class Layout:
    """How a table's rows lie in the file, and what they are here.

    Attributes
    ----------
    stored
        The dtype of a row in the file.
    dtype
        The dtype of a record here.
    columns
        The columns.

    """

    stored: DType
    dtype: DType
    columns: list[Column]

    def pour(self, rows: Array, out: Array) -> None:
        """Put rows of the file into records of `dtype`."""
        for column in self.columns:
            found = rows[column.name]
            out[column.name] = found if column.convert is None else column.convert(found)


def layout(source: Source, path: str, header: fits.Header, *, is_ascii: bool) -> Layout:
    """Return the layout of a table; what has no like here is told to the source.

    Raises
    ------
    FormatError
        The header contradicts itself.

    """
    found = list((_ascii if is_ascii else _binary)(source, path, header))
    nbytes = int(header["NAXIS1"])
    end = max((c.offset + c.stored.itemsize for c in found), default=0)
    if end > nbytes:
        message = f"its columns end at byte {end} of rows that have {nbytes} (NAXIS1)"
        raise FormatError(message)
    return make_layout(source, path, found, nbytes)


def make_layout(source: Source, path: str, columns: list[Column], nbytes: int) -> Layout:
    """Return a layout of columns in rows of so many bytes; names are made different."""
    names: dict[str, None] = {}
    for column in columns:
        name, count = column.name, 1
        while name in names:
            count += 1
            name = f"{column.name}_{count}"
        if name != column.name:
            source.note(path, f"column {column.name}", f"a second one; it is named {name} here")
        names[name] = None
    columns = [
        Column(name, c.stored, c.offset, c.dtype, c.convert)
        for name, c in zip(names, columns, strict=True)
    ]
    stored = np.dtype(
        {
            "names": list(names),
            "formats": [c.stored for c in columns],
            "offsets": [c.offset for c in columns],
            "itemsize": nbytes,
        }
    )
    return Layout(stored, np.dtype([(c.name, c.dtype) for c in columns]), columns)


def group_layout(source: Source, path: str, header: fits.Header, dtype: DType) -> Layout:
    """Return the layout of random groups: their parameters, then ``DATA``."""
    columns = [
        Column(str(header.get(f"PTYPE{n}", f"par{n}")).strip(), dtype, 0, dtype)
        for n in range(1, int(header["PCOUNT"]) + 1)
    ]
    inner = tuple(int(header[f"NAXIS{n}"]) for n in range(int(header["NAXIS"]), 1, -1))
    values = np.dtype((dtype, inner)) if inner else dtype
    columns.append(Column("DATA", values, 0, values))
    offset, placed = 0, []
    for column in columns:
        placed.append(Column(column.name, column.stored, offset, column.dtype))
        offset += column.stored.itemsize
    return make_layout(source, path, placed, offset)


def _binary(source: Source, path: str, header: fits.Header) -> Iterator[Column]:
    """Yield the columns of a binary table."""
    offset = 0
    for number in range(1, int(header["TFIELDS"]) + 1):
        form = str(header[f"TFORM{number}"])
        name = _name(header, number)
        what = f"column {name}"
        parsed = _BINARY.fullmatch(form)
        if parsed is None:
            message = f"{what}: its TFORM{number} {form!r} is no format of a binary table"
            raise FormatError(message)
        repeat, code = int(parsed[1] or 1), parsed[2]
        if code in _DESCRIPTORS:
            offset += repeat * _DESCRIPTORS[code]
            why = f"variable-length values ({form.strip()}) have no fixed size"
            source.leave_out(path, what, why)
            continue
        dtype = _value(code, repeat, parsed[3], str(header.get(f"TDIM{number}", "")))
        if dtype.itemsize == 0:
            source.note(path, what, f"has no values in any row ({form.strip()}), so no field here")
            continue
        yield Column(name, dtype, offset, dtype)
        offset += dtype.itemsize


def _value(code: str, repeat: int, rest: str, tdim: str) -> DType:
    """Return the dtype of one row's value in a column of a binary table."""
    if code == "X":
        nbytes = -(-repeat // 8)
        return np.dtype("u1") if nbytes == 1 else np.dtype(("u1", (nbytes,)))
    lengths = [int(n) for n in re.findall(r"\d+", tdim)]
    if not lengths or math.prod(lengths) != repeat:
        lengths = []
    if code == "A":
        if not lengths and rest.isdigit() and 0 < int(rest) <= repeat and not repeat % int(rest):
            lengths = [int(rest), repeat // int(rest)]  # the convention rAw
        width, *lengths = lengths or [repeat]
        base = np.dtype(f"S{width}")
    else:
        base = np.dtype(_NUMBERS[code])
        lengths = lengths or ([repeat] if repeat != 1 else [])
    return np.dtype((base, tuple(lengths[::-1]))) if lengths else base


def _ascii(source: Source, path: str, header: fits.Header) -> Iterator[Column]:
    """Yield the columns of an ASCII table."""
    for number in range(1, int(header["TFIELDS"]) + 1):
        form = str(header[f"TFORM{number}"])
        name = _name(header, number)
        parsed = _ASCII.fullmatch(form)
        if parsed is None or not int(parsed[2]):
            message = f"column {name}: its TFORM{number} {form!r} is no format of an ASCII table"
            raise FormatError(message)
        code, width, digits = parsed[1], int(parsed[2]), int(parsed[3] or 0)
        stored, offset = np.dtype(f"S{width}"), int(header[f"TBCOL{number}"]) - 1
        null = header.get(f"TNULL{number}")
        if code == "A":
            yield Column(name, stored, offset, stored)
        elif code != "I":
            decode = _Reals(digits, null)
            if null is not None:
                source.note(path, f"column {name}", f"NaN where it is TNULL, {null!r}")
            yield Column(name, stored, offset, np.dtype("f8"), decode)
        elif null is not None or width > _INT64_DIGITS:
            why = "may be undefined" if null is not None else "may have more than 64 bits"
            source.note(path, f"column {name}", f"integers that {why}: their characters stand here")
            yield Column(name, stored, offset, stored)
        else:
            yield Column(name, stored, offset, np.dtype("i8"), _integers)


def _name(header: fits.Header, number: int) -> str:
    """Return a column's name."""
    return str(header.get(f"TTYPE{number}", "")).strip() or f"col{number}"


def _integers(written: Array) -> Array:
    """Decode integers; a blank one is 0, as the standard says."""
    stripped = np.char.strip(written)
    stripped[stripped == b""] = b"0"
    return stripped.astype("i8")


@dataclass(frozen=True, slots=True)
class _Reals:
    """Decodes real numbers.

    Undefined and blank ones are NaN. One without a point or exponent has as many decimals as its
    format says: so says the standard of old files.
    """

    digits: int
    null: object

    def __call__(self, written: Array) -> Array:
        stripped: Any = np.char.strip(written)
        undefined: Any = stripped == b""
        if self.null is not None:
            undefined |= stripped == str(self.null).strip().encode("latin-1")
        stripped[undefined] = b"nan"
        upper: Any = np.char.upper(stripped)
        spelled = np.char.replace(upper, b"D", b"E")
        values: Array = spelled.astype("f8")
        implied = (np.char.find(spelled, b".") < 0) & (np.char.find(spelled, b"E") < 0)
        values[implied & ~undefined] /= 10.0**self.digits
        return values
