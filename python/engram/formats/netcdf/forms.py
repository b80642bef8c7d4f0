"""What becomes of an array's values in a netCDF file, whose types are fewer than numpy's.

Most dtypes have a netCDF type of the same bytes. Others are written in the form in which xarray
writes them, so that it reads them back: truth values as bytes, times as numbers with units, each
with the attributes that say so. Where a kind of file lacks a number's type, the number goes into
another only if no value changes. Nothing else is converted.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

import numpy as np

from engram.formats import text
from engram.formats.blocks import index, regions

if TYPE_CHECKING:
    from collections.abc import Callable

    from engram.formats.netcdf.kinds import Kind
    from engram.formats.target import ArrayItem

    Array = np.ndarray[Any, Any]
    DType = np.dtype[Any]

NUMBERS, CHARS, STRINGS = "numbers", "chars", "strings"
ENUM, COMPOUND, OPAQUE = "enum", "compound", "opaque"
SEQUENCES = "sequences"
HIDDEN = "hidden"
"""A dataset of HDF5 beside netCDF's variables, which goes out as it came in."""

_TIME_WORDS = {
    "D": "days",
    "h": "hours",
    "m": "minutes",
    "s": "seconds",
    "ms": "milliseconds",
    "us": "microseconds",
    "ns": "nanoseconds",
}
_NUL = "a string has a NUL, which ends a string in netCDF"
_UNSEEN = "opaque values, which ncdump shows and netCDF4 does not"
_TEXT_BYTES = 256
_DATES_IN = dict.fromkeys(("Y", "M", "W"), "D")
_DURATIONS_IN = dict.fromkeys(("W", "D", "h", "m"), "s")
_COMPLEX_NAMES = {8: "_PFNC_FLOAT_COMPLEX_TYPE", 16: "_PFNC_DOUBLE_COMPLEX_TYPE"}
"""What netCDF4 calls its complex types, by which it knows them again."""


@dataclass(frozen=True, slots=True)
class Form:
    """How an array stands in the file.

    Attributes
    ----------
    kind
        Which of netCDF's kinds of type it has: one of the words above.
    dtype
        The dtype of its values there; `StringDType` for strings.
    convert
        Turns a piece of the array into a piece of the file.
    attrs
        Attributes that tell of the conversion.
    note
        What to tell the user of it, or None.
    type_name
        The name of a user-defined type that is known for this, or None.
    width
        The characters of each value, which are the last axis of the variable; 0 if it has none.

    """

    kind: str
    dtype: DType
    convert: Callable[[Array], Array] | None = None
    attrs: dict[str, Any] = field(default_factory=dict)
    note: str | None = None
    type_name: str | None = None
    width: int = 0


def form_of(item: ArrayItem, kind: Kind) -> Form | str:
    """Return how an array stands in a kind of file, or why it cannot."""
    dtype = item.dtype
    if text.of_objects(dtype):  # put together again of its parts, as a file had it
        return Form(SEQUENCES if dtype.names is None else COMPOUND, dtype)
    if dtype.itemsize == 0:
        return f"values of no bytes ({dtype})"
    if dtype.kind in "iuf" and dtype.itemsize <= 8:  # noqa: PLR2004 - longer ones are no netCDF
        return _number(item, kind)
    maker = _MAKERS.get(dtype.kind)
    return f"the dtype {dtype} has no netCDF type" if maker is None else maker(item, kind)


def _number(item: ArrayItem, kind: Kind) -> Form | str:
    """Return the form of numbers: as they are, or in the next type that changes no value."""
    dtype = item.dtype
    code = dtype.kind + str(dtype.itemsize)
    if code == "f2":
        note = "16-bit floats, as netCDF's smallest, of 32 bits"
        return Form(NUMBERS, np.dtype("f4"), _as_type("f4"), note=note)
    if code in kind.types:
        is_enum = not kind.is_classic and _enum_fits(item)
        return Form(ENUM if is_enum else NUMBERS, dtype)
    signed = f"i{dtype.itemsize}"
    if dtype.kind == "u" and signed in kind.types:
        note = "unsigned numbers, as signed ones of the same bytes with _Unsigned"
        attrs = {"_Unsigned": "true"}
        signed_dtype = np.dtype(signed).newbyteorder(dtype.byteorder)
        return Form(NUMBERS, signed_dtype, lambda piece: piece.view(signed_dtype), attrs, note)
    if _within_i4(item):
        note = f"{dtype.itemsize * 8}-bit integers, as 32-bit ones, which hold all its values"
        return Form(NUMBERS, np.dtype("i4"), _as_type("i4"), note=note)
    return f"64-bit integers ({dtype}) beyond 32 bits; netcdf4 and netcdf3-64bit-data hold them"


def _enum_fits(item: ArrayItem) -> bool:
    """Whether the enumeration that the origin tells of is one of this dtype."""
    facts = item.origin.get("type")
    if not isinstance(facts, dict) or not isinstance(facts.get("enum"), dict):
        return False
    return np.dtype(facts.get("base", "V1")).str[1:] == item.dtype.str[1:]


def _within_i4(item: ArrayItem) -> bool:
    """Whether all of an array's integers are within 32 bits."""
    info, values = np.iinfo("i4"), item.load()
    return all(
        info.min <= int(piece.min()) and int(piece.max()) <= info.max
        for piece in (values[index(r)] for r in regions(item.shape, None, item.dtype.itemsize))
    )


def _bool(item: ArrayItem, kind: Kind) -> Form | str:
    """Return the form of truth values: as xarray writes them."""
    del item, kind
    note = 'truth values, as bytes with the attribute dtype = "bool"'
    return Form(NUMBERS, np.dtype("i1"), lambda piece: piece.view("i1"), {"dtype": "bool"}, note)


def _time(item: ArrayItem, kind: Kind) -> Form | str:
    """Return the form of times and durations: 64-bit integers with units, as xarray's."""
    if "i8" not in kind.types:
        return f"times ({item.dtype}) are 64-bit integers; netcdf4 and netcdf3-64bit-data have them"
    unit, count = np.datetime_data(item.dtype)
    is_date = item.dtype.kind == "M"
    # Seconds are the longest units in which xarray knows durations again.
    kept = _DATES_IN.get(unit, unit) if is_date else _DURATIONS_IN.get(unit, unit)
    if kept not in _TIME_WORDS:
        return f"times ({item.dtype}) in units that CF has no word for"
    plain = np.dtype(f"{item.dtype.kind}8[{kept}]")
    word = _TIME_WORDS[kept]
    attrs = {
        "_FillValue": np.int64(np.iinfo("i8").min),
        "units": f"{word} since 1970-01-01" if is_date else word,
    }
    if is_date:
        attrs["calendar"] = "proleptic_gregorian"
    else:
        attrs["dtype"] = f"timedelta64[{kept}]"

    def convert(piece: Array) -> Array:
        found = piece.astype(plain)
        if (unit, count) != (kept, 1) and (found.astype(piece.dtype) != piece).any():
            lost = ~np.isnat(piece) & (found.astype(piece.dtype) != piece)
            if lost.any():
                message = f"{piece[lost][0]!r} is no {word} of 64 bits"
                raise ValueError(message)
        return found.view("i8")

    note = f'times, as 64-bit integers with the units "{attrs["units"]}"'
    return Form(NUMBERS, np.dtype("i8"), convert, attrs, note)


def _complex(item: ArrayItem, kind: Kind) -> Form | str:
    """Return the form of complex numbers: a compound type that netCDF4 knows."""
    width = item.dtype.itemsize
    if kind.is_classic or width not in _COMPLEX_NAMES:
        return f"complex numbers ({item.dtype}) have no type in {kind.model}"
    part = f"{item.dtype.byteorder}f{width // 2}"
    dtype = np.dtype([("r", part), ("i", part)])
    note = "complex numbers, as a compound type of r and i"
    name = _COMPLEX_NAMES[width]
    return Form(COMPOUND, dtype, lambda piece: piece.view(dtype), note=note, type_name=name)


def _bytes(item: ArrayItem, kind: Kind) -> Form | str:
    """Return the form of bytes: characters, one each; strings where they came from such."""
    width = item.dtype.itemsize
    if width == 1:
        return Form(CHARS, item.dtype)
    if not kind.is_classic and str(item.origin.get("format", "")).startswith("NETCDF"):
        return Form(STRINGS, item.dtype)

    def convert(piece: Array) -> Array:
        return np.ascontiguousarray(piece).reshape(-1).view("S1").reshape(*piece.shape, width)

    note = f"byte strings ({item.dtype}), as characters along a dimension string{width}"
    return Form(CHARS, np.dtype("S1"), convert, note=note, width=width)


def _unicode(item: ArrayItem, kind: Kind) -> Form | str:
    """Return the form of unicode strings of fixed width: strings."""
    if kind.is_classic:
        return f"strings ({item.dtype}) have no type in {kind.model}, which has characters alone"
    if _has_nul(item):
        return _NUL
    dtype = text.string_dtype()
    note = "strings of fixed width, as strings of variable length"
    native = item.dtype.newbyteorder("=")
    return Form(STRINGS, dtype, lambda piece: piece.astype(native).astype(dtype), note=note)


def _strings(item: ArrayItem, kind: Kind) -> Form | str:
    """Return the form of strings."""
    if kind.is_classic:
        return f"strings have no type in {kind.model}, which has characters alone"
    return _NUL if _has_nul(item) else Form(STRINGS, item.dtype)


def _has_nul(item: ArrayItem) -> bool:
    """Whether any of an array's strings has a NUL inside."""
    values = item.load()
    return any(
        "\0" in value
        for region in regions(item.shape, None, _TEXT_BYTES)
        for value in values[index(region)].astype(object).flat
    )


def _void(item: ArrayItem, kind: Kind) -> Form | str:
    """Return the form of records and of opaque bytes."""
    if kind.is_classic:
        return f"the type {item.dtype} has no like in {kind.model}, which has no types of its own"
    if item.dtype.names is None:
        note = None if "opaque" in str(item.origin.get("type")) else _UNSEEN
        return Form(OPAQUE, item.dtype, note=note)
    why = record_problem(item.dtype)
    if why is None and not str(item.origin.get("format", "")).startswith("NETCDF4"):
        why = unopened(item.dtype)
    return why or Form(COMPOUND, item.dtype)


def record_problem(dtype: DType) -> str | None:
    """Say why a structured dtype is no compound type; None if it is one."""
    if not dtype.names:
        return "a structured dtype of no fields"
    end = 0
    for name, (field_dtype, offset, *_) in sorted(
        (dtype.fields or {}).items(), key=lambda found: found[1][1]
    ):
        if name not in dtype.names:
            continue  # a title
        base = field_dtype.base
        if offset < end:
            return f"its field {name!r} overlaps another"
        end = offset + field_dtype.itemsize
        if base.names is not None:
            inner = record_problem(base)
            if inner is not None:
                return f"field {name!r}: {inner}"
        elif not _is_plain(base) or 0 in field_dtype.shape:
            return f"its field {name!r} is of {field_dtype}, which netCDF has not"
    return None


def unopened(dtype: DType) -> str | None:
    """Say which field would keep netCDF4 from opening the file, though netCDF has such; or None."""
    for name in dtype.names or ():
        if dtype[name].base.names is not None:
            if dtype[name].shape:
                return f"its field {name!r} is an array of records: netCDF4 opens no file with one"
            inner = unopened(dtype[name])
            if inner is not None:
                return f"field {name!r}: {inner}"
    return None


def _is_plain(dtype: DType) -> bool:
    """Whether a dtype is a number or bytes that a compound type may have."""
    if dtype.kind in "iuf":
        return 2 <= dtype.itemsize + (dtype.kind != "f") <= 9 and dtype != np.dtype("f2")  # noqa: PLR2004
    return dtype.kind == "S" and dtype.itemsize > 0


def _as_type(code: str) -> Callable[[Array], Array]:
    """Return a conversion to a native number."""
    return lambda piece: piece.astype(code)


_MAKERS: dict[str, Callable[[ArrayItem, Kind], Form | str]] = {
    "b": _bool,
    "M": _time,
    "m": _time,
    "c": _complex,
    "S": _bytes,
    "U": _unicode,
    "T": _strings,
    "V": _void,
}
