"""From dtypes to HDF5 datatypes: what a dtype says, and what `types.describe` says beside it.

The words of an origin are used as far as they fit the dtype, field by field; the dtype is what is
there and wins. What HDF5 has no type for becomes opaque with the tag that h5py reads as a dtype,
such as ``NUMPY:<M8[ns]``, so that dates come back as they were; text of a fixed width (``U``) does
so inside records, and outside is written as strings of variable length, which others can read.
"""

from __future__ import annotations

import base64
from typing import Any

import h5py
import numpy as np
from h5py import h5t

DType = np.dtype[Any]
Words = dict[str, Any]

CHARSETS = {"ascii": h5t.CSET_ASCII, "utf-8": h5t.CSET_UTF8}
PADDINGS = {
    "nullterm": h5t.STR_NULLTERM,
    "nullpad": h5t.STR_NULLPAD,
    "spacepad": h5t.STR_SPACEPAD,
}
_OPAQUE = b"NUMPY:"
_BITFIELDS = {
    "|u1": h5t.STD_B8LE,
    "<u2": h5t.STD_B16LE,
    "<u4": h5t.STD_B32LE,
    "<u8": h5t.STD_B64LE,
    ">u2": h5t.STD_B16BE,
    ">u4": h5t.STD_B32BE,
    ">u8": h5t.STD_B64BE,
}
_COMPLEX = {  # None before HDF5 2.0
    "<c8": getattr(h5t, "COMPLEX_IEEE_F32LE", None),
    "<c16": getattr(h5t, "COMPLEX_IEEE_F64LE", None),
    ">c8": getattr(h5t, "COMPLEX_IEEE_F32BE", None),
    ">c16": getattr(h5t, "COMPLEX_IEEE_F64BE", None),
}


def problem(dtype: DType) -> str | None:
    """Say why HDF5 has no type for values of a dtype; None if it has."""
    if dtype.subdtype is not None:
        base, shape = dtype.subdtype
        return "an array of no elements has no type in HDF5" if 0 in shape else problem(base)
    if dtype.names is None:
        is_empty = dtype.kind == "V" and dtype.itemsize == 0
        return "values of no bytes have no type in HDF5" if is_empty else None
    if not dtype.names:
        return "records of no fields have no type in HDF5"
    end = 0
    for offset, width, name in sorted(
        (dtype.fields[name][1], dtype[name].itemsize, name)  # type: ignore[index]  # it has fields
        for name in dtype.names
    ):
        if offset < end:
            return f"field {name!r} lies over another, which HDF5 does not allow"
        end = offset + width
        inner = problem(dtype[name])
        if inner is None and width == 0:
            inner = "values of no bytes have no type in HDF5"
        if inner is not None:
            return f"field {name!r}: {inner}"
    return None


def build(dtype: DType, words: Words | None = None) -> h5t.TypeID:
    """Return the HDF5 datatype of a dtype.

    Parameters
    ----------
    dtype
        A dtype without a `problem`; ``T`` or ``O`` for strings of variable length.
    words
        What `types.describe` said of the type that it came from; used where it fits.

    """
    words = words if isinstance(words, dict) else {}
    if "hdf5" in words and (found := _decoded(dtype, words["hdf5"])) is not None:
        return found
    if "array" in words or dtype.subdtype is not None:
        return _array(dtype, words)
    if dtype.names is not None:
        return _compound(dtype, words.get("compound"))
    if dtype.kind in "TOS":
        return _string(dtype, words)
    if dtype.kind in "UMm" or (dtype.kind == "V" and "opaque" in words):
        return _opaque(dtype, words)
    if dtype.kind in "iu" and "enum" in words:
        found = _enum(dtype, words)
    elif dtype.kind == "u" and "bitfield" in words:
        found = _BITFIELDS.get(dtype.str)
    elif dtype.kind == "c" and words.get("complex") == "native":
        found = _COMPLEX.get(dtype.str)
    else:
        found = None
    return h5t.py_create(dtype, logical=True) if found is None else found


def in_memory(tid: h5t.TypeID) -> h5t.TypeID:
    """Return the type of the values that go to or come from a datatype: `tid.dtype`, as they lie.

    Enumerations, bit fields, opaque values and strings are moved as bytes, which converts nothing.
    Numbers are converted where the file's are of a width or precision of their own, and so are
    enumerations that h5py has as `bool`. What is of variable length is moved as objects.
    """
    kind = tid.get_class()
    if kind == h5t.VLEN or (kind == h5t.STRING and tid.is_variable_str()):
        return h5t.py_create(tid.dtype)
    if kind == h5t.ARRAY:
        return h5t.array_create(in_memory(tid.get_super()), tid.get_array_dims())
    if kind == h5t.COMPOUND and tid.dtype.kind != "c":
        dtype = tid.dtype
        made = h5t.create(h5t.COMPOUND, dtype.itemsize)
        for name in dtype.names:
            member = tid.get_member_type(tid.get_member_index(name.encode()))
            made.insert(name.encode(), dtype.fields[name][1], in_memory(member))
        return made
    if kind == h5t.STRING and not tid.is_variable_str() and tid.get_strpad() == h5t.STR_SPACEPAD:
        made = tid.copy()
        made.set_strpad(h5t.STR_NULLPAD)
        return made
    is_as_wide = tid.get_size() == tid.dtype.itemsize  # not of a wide `bool`
    if kind in {h5t.ENUM, h5t.BITFIELD, h5t.OPAQUE, h5t.STRING} and is_as_wide:
        return tid.copy()
    return h5t.py_create(tid.dtype, logical=True)


def _decoded(dtype: DType, encoded: object) -> h5t.TypeID | None:
    """Return the datatype that HDF5's own encoding tells; None if the dtype is not of it."""
    if not isinstance(encoded, str):
        return None
    try:
        found = h5t.decode(base64.b64decode(encoded, validate=True))
        dtype_of_it = found.dtype
    except (ValueError, RuntimeError, TypeError):
        return None
    sequence = h5py.check_vlen_dtype(dtype)
    if sequence is not None:
        return found if _is_sequence_of(h5py.check_vlen_dtype(dtype_of_it), sequence) else None
    if dtype.kind in "TO":
        info = h5py.check_string_dtype(dtype_of_it)
        return found if info is not None and info.length is None else None
    return found if _flat(dtype_of_it) == _flat(dtype) else None


def _is_sequence_of(dtype: DType | None, other: DType) -> bool:
    """Whether a sequence's elements are of a dtype, where it is one."""
    return dtype is not None and _flat(dtype) == _flat(other)


def _flat(dtype: DType) -> tuple[DType, tuple[int, ...]]:
    """Return the dtype of an array type's elements, and all its axes."""
    axes: tuple[int, ...] = ()
    while dtype.subdtype is not None:
        dtype, more = dtype.subdtype
        axes += more
    return dtype, axes


def _array(dtype: DType, words: Words) -> h5t.TypeID:
    """Return an array type: of the shape that is there, nested as the words say."""
    base, shape = dtype.subdtype if dtype.subdtype is not None else (dtype, ())
    told = tuple(words.get("array", ()))
    inner = words.get("base") if told else words
    if not told or shape[: len(told)] != told:
        return h5t.array_create(build(base, {}), shape) if shape else build(base, {})
    rest = shape[len(told) :]
    return h5t.array_create(build(np.dtype((base, rest)) if rest else base, inner), told)


def _compound(dtype: DType, words: object) -> h5t.TypeID:
    """Return a compound type, each field at its offset."""
    told = words if isinstance(words, dict) else {}
    made = h5t.create(h5t.COMPOUND, dtype.itemsize)
    for name in dtype.names or ():
        offset = dtype.fields[name][1]  # type: ignore[index]  # it has fields
        made.insert(name.encode(), offset, build(dtype[name], told.get(name)))
    return made


def _string(dtype: DType, words: Words) -> h5t.TypeID:
    """Return a string type: of variable length if the dtype is, or if the words say so."""
    variable = dtype.kind != "S" or words.get("string") == "variable"
    made = h5t.C_S1.copy()
    made.set_size(h5t.VARIABLE if variable else max(1, dtype.itemsize))
    charset = "utf-8" if dtype.kind != "S" else "ascii"
    made.set_cset(CHARSETS.get(words.get("charset", charset), CHARSETS[charset]))
    if not variable:
        made.set_strpad(PADDINGS.get(words.get("padding", "nullpad"), h5t.STR_NULLPAD))
    return made


def _opaque(dtype: DType, words: Words) -> h5t.TypeID:
    """Return an opaque type, tagged as the words say, or as h5py tags dates."""
    made = h5t.create(h5t.OPAQUE, dtype.itemsize)
    if dtype.kind == "V":
        made.set_tag(str(words["opaque"]).encode())
    else:
        made.set_tag(_OPAQUE + dtype.str.encode())
    return made


def _enum(dtype: DType, words: Words) -> h5t.TypeID | None:
    """Return an enumeration; None if its numbers are of another dtype."""
    members = words["enum"]
    if words.get("base") != dtype.str or not isinstance(members, dict):
        return None
    made = h5t.enum_create(h5t.py_create(dtype))
    for name, number in members.items():
        made.enum_insert(name.encode(), number)
    return made
