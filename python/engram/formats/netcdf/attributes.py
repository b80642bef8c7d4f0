"""What becomes of an attribute's value in a netCDF file.

netCDF has three kinds of attribute: text (NC_CHAR), strings (NC_STRING, netCDF-4 alone), and
numbers, always in one dimension. In the pool a `str` stands for the first two; `origin` tells which
it was. netCDF-4 files may have attributes of other types, which netCDF's own library may not show:
these go out as they came in.
"""

from __future__ import annotations

import base64
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np

if TYPE_CHECKING:
    from engram.formats.netcdf.kinds import Kind

    Array = np.ndarray[Any, Any]

TEXT, STRINGS, NUMBERS, TYPED = "text", "strings", "numbers", "typed"


@dataclass(frozen=True, slots=True)
class Attribute:
    """An attribute as it stands in the file.

    Attributes
    ----------
    name
        Its name.
    kind
        One of the words above.
    value
        `bytes` for text; a list of `bytes` for strings; a native array of one dimension for
        numbers; an array of any kind for what has a type of its own.
    facts
        What its import kept of its type.
    note
        What to tell the user of it, or None.

    """

    name: str
    kind: str
    value: Any
    facts: dict[str, Any]
    note: str | None = None


def attribute_of(name: str, value: Any, facts: Any, kind: Kind) -> Attribute | str:
    """Return how an attribute stands in a kind of file, or why it cannot.

    Parameters
    ----------
    name
        Its name.
    value
        Its value, as the pool has it.
    facts
        What its import kept of its type, or None.
    kind
        The kind of file.

    """
    known: dict[str, Any] = facts if isinstance(facts, dict) else {}
    if isinstance(value, str):
        return _str(name, value, known, kind)
    array = np.asarray(value)
    if array.dtype.kind in "SUT":
        return _text(name, array, known, kind)
    if array.dtype.kind in "biufV" and kind.is_hdf5 and _is_typed(array, known):
        return Attribute(name, TYPED, array, known)
    if array.ndim > 1:
        return f"its value has the shape {array.shape}; netCDF's have one dimension"
    return _numbers(name, array.reshape(-1), known, kind)


def _str(name: str, value: str, known: dict[str, Any], kind: Kind) -> Attribute | str:
    """Return the form of a `str`: text, or a string where it was one."""
    if "\0" in value:
        return "its text has a NUL, which ends a text in netCDF"
    if known.get("string") == "variable" and not kind.is_classic:
        return Attribute(name, STRINGS, [value.encode()], known)
    return Attribute(name, TEXT, _with_nuls(value.encode(), known), known)


def text_facts(raw: bytes) -> dict[str, Any]:
    """Return what tells where the NULs of a text were, which netCDF4 shows without them.

    Those at its end are counted; of a text with others, all bytes are kept, in base64.
    """
    content = raw.replace(b"\0", b"")
    if content == raw:
        return {}
    if raw.startswith(content):
        return {"nuls": len(raw) - len(content)}
    return {"raw": base64.b64encode(raw).decode("ascii")}


def _with_nuls(content: bytes, known: dict[str, Any]) -> bytes:
    """Return a text with its NULs where `text_facts` has seen them."""
    try:
        raw = base64.b64decode(known.get("raw", ""), validate=True)
    except (TypeError, ValueError):
        raw = b""
    if raw and raw.replace(b"\0", b"") == content:
        return raw
    nuls = known.get("nuls", 0)
    return content + bytes(nuls if isinstance(nuls, int) and nuls > 0 else 0)


def _is_typed(array: Array, known: dict[str, Any]) -> bool:
    """Whether an attribute came with a type that numbers do not have, and still fits it."""
    if "enum" in known:
        return array.dtype.kind in "biu"
    return array.dtype.kind == "V" or "bitfield" in known


def _text(name: str, array: Array, known: dict[str, Any], kind: Kind) -> Attribute | str:
    """Return the form of text: one piece of it, or several strings."""
    if array.ndim > 1:
        return f"its value has the shape {array.shape}; netCDF's have one dimension"
    flat = array.reshape(-1).tolist()
    pieces = [piece if isinstance(piece, bytes) else str(piece).encode() for piece in flat]
    strings = known.get("string") == "variable" or len(pieces) != 1
    if not strings or (name == "_FillValue" and array.dtype.kind == "S"):
        return Attribute(name, TEXT, _with_nuls(pieces[0], known), known)
    if not kind.is_classic:
        return Attribute(name, STRINGS, pieces, known)
    if len(pieces) == 1:
        return Attribute(name, TEXT, pieces[0], known)
    return f"{len(pieces)} strings: {kind.model} has text of one piece only"


def _numbers(name: str, flat: Array, known: dict[str, Any], kind: Kind) -> Attribute | str:
    """Return the form of numbers: as they are, or in a type that changes no value."""
    dtype = flat.dtype
    code = dtype.kind + str(dtype.itemsize)
    if code in kind.types:
        native = flat.astype(dtype.newbyteorder("="), copy=False)
        return Attribute(name, NUMBERS, native, known)
    if dtype.kind == "b":
        return Attribute(name, NUMBERS, flat.astype("i1"), known, "a truth value, as a byte")
    if code == "f2":
        return Attribute(name, NUMBERS, flat.astype("f4"), known, "as a 32-bit float")
    if dtype.kind == "M":
        joined = ", ".join(np.datetime_as_string(flat).tolist())
        return Attribute(name, TEXT, joined.encode(), known, "a time, as text of ISO 8601")
    cast = _widened(flat) if dtype.kind in "iu" else None
    if cast is None:
        return f"its value is of {dtype}, and {kind.model} has no number that holds it"
    return Attribute(name, NUMBERS, cast, known, f"{dtype} as {cast.dtype}")


def _widened(flat: Array) -> Array | None:
    """Return integers as the numbers that every kind of file has, if those hold them."""
    for code in ("i4", "f8"):
        cast: Array = flat.astype(code)
        if all(int(a) == int(b) for a, b in zip(flat, cast, strict=True)):
            return cast
    return None
