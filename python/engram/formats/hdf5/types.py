"""HDF5 datatypes: which have a dtype here, and what of them a dtype cannot say."""

from __future__ import annotations

import base64
from typing import TYPE_CHECKING, Any

import h5py
import numpy as np
from h5py import h5o, h5t

from engram.formats.hdf5.build import build

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

DType = np.dtype[Any]

_CHARSETS = {h5t.CSET_ASCII: "ascii", h5t.CSET_UTF8: "utf-8"}
_PADDINGS = {
    h5t.STR_NULLTERM: "nullterm",
    h5t.STR_NULLPAD: "nullpad",
    h5t.STR_SPACEPAD: "spacepad",
}


def is_text(dtype: DType) -> bool:
    """Whether it is HDF5's variable-length string."""
    info = h5py.check_string_dtype(dtype)
    return info is not None and info.length is None


def problem(dtype: DType) -> str | None:
    """Say why a dtype as h5py gives it has no like here; None if it has one."""
    if dtype.subdtype is not None:
        return problem(dtype.subdtype[0])
    for name in dtype.names or ():
        inner = problem(dtype[name])
        if inner is None and is_text(dtype[name].base):
            inner = "variable-length strings inside a compound type have no fixed size"
        if inner is not None:
            return f"field {name!r}: {inner}"
    if dtype.kind != "O" or is_text(dtype):
        return None
    reference = h5py.check_ref_dtype(dtype)
    if reference is not None:
        what = "object" if reference is h5py.Reference else "region"
        return f"{what} references have no meaning outside their file"
    base = h5py.check_vlen_dtype(dtype)
    what = "values of its type" if base is None else f"variable-length sequences of {base}"
    return f"{what} have no fixed size"


def plain(dtype: DType) -> DType:
    """Return the dtype without what h5py notes in it: the same bytes, named by numpy alone."""
    if dtype.subdtype is not None:
        base, shape = dtype.subdtype
        return np.dtype((plain(base), shape))
    if dtype.names is None:
        return np.dtype(dtype.str)
    fields: Mapping[str, Any] = dtype.fields or {}
    return np.dtype(
        {
            "names": list(dtype.names),
            "formats": [plain(dtype[name]) for name in dtype.names],
            "offsets": [fields[name][1] for name in dtype.names],
            "itemsize": dtype.itemsize,
        },
        align=dtype.isalignedstruct,
    )


def describe(tid: h5t.TypeID) -> dict[str, Any] | None:
    """Return what a datatype's dtype does not say, for `origin`; None where it says all.

    A variable-length UTF-8 string, a number, and a compound of such are said by their dtype. What
    no words here say, such as a number's odd precision, HDF5's own encoding says. ``committed``
    tells the types of one file that are the same one from those that are only equal.
    """
    words = _words(tid)
    if not _is_said(tid, words):
        words = {**(words or {}), "hdf5": _encoded(tid)}
    if tid.committed():
        words = {**(words or {}), "committed": int(h5o.get_info(tid).addr)}
    return words


def _words(tid: h5t.TypeID) -> dict[str, Any] | None:
    """Return what of a datatype has words here."""
    teller = _TELLERS.get(tid.get_class())
    return None if teller is None else teller(tid)


def _is_said(tid: h5t.TypeID, words: dict[str, Any] | None) -> bool:
    """Whether a datatype can be made again of its dtype and words; so for what has no dtype."""
    dtype = _dtype(tid)
    if dtype is None or problem(dtype) is not None:
        return True
    return bool(build(plain(dtype), words).equal(tid))


def _dtype(tid: h5t.TypeID) -> DType | None:
    """Return a datatype's dtype; None where there is none."""
    try:
        found: DType = tid.dtype
    except TypeError:
        return None
    return found


def _encoded(tid: h5t.TypeID) -> str:
    """Return HDF5's own encoding of a datatype in base64."""
    return base64.b64encode(tid.encode()).decode("ascii")


def describe_named(tid: h5t.TypeID) -> dict[str, Any]:
    """Return a committed datatype for `origin`: readable, and as HDF5's own encoding in base64."""
    return {**(describe(tid) or {}), "hdf5": _encoded(tid)}


def _string(tid: h5t.TypeID) -> dict[str, Any] | None:
    """Describe a string type."""
    variable = tid.is_variable_str()
    charset = _CHARSETS.get(tid.get_cset(), "unknown")
    if variable and charset == "utf-8":
        return None
    length = "variable" if variable else tid.get_size()
    padding = {} if variable else {"padding": _PADDINGS.get(tid.get_strpad(), "unknown")}
    return {"string": length, "charset": charset, **padding}


def _enum(tid: h5t.TypeID) -> dict[str, Any]:
    """Describe an enumeration."""
    members = {
        _text(tid.get_member_name(place)): int(tid.get_member_value(place))
        for place in range(tid.get_nmembers())
    }
    return {"enum": members, "base": tid.get_super().dtype.str}


def _opaque(tid: h5t.TypeID) -> dict[str, Any]:
    """Describe an opaque type."""
    return {"opaque": _text(tid.get_tag()), "bytes": tid.get_size()}


def _bitfield(tid: h5t.TypeID) -> dict[str, Any]:
    """Describe a bit field, which is an unsigned number here."""
    return {"bitfield": tid.dtype.str}


def _sequence(tid: h5t.TypeID) -> dict[str, Any]:
    """Describe a variable-length sequence."""
    base = tid.get_super()
    return {"sequence": _words(base) or base.dtype.str}


def _array(tid: h5t.TypeID) -> dict[str, Any]:
    """Describe an array type."""
    base = _words(tid.get_super())
    return {"array": list(tid.get_array_dims()), **({"base": base} if base else {})}


def _compound(tid: h5t.TypeID) -> dict[str, Any] | None:
    """Describe a compound type, by the fields that need it."""
    dtype = _dtype(tid)
    if dtype is not None and dtype.kind == "c":
        return {"complex": "compound"}
    fields = {}
    for place in range(tid.get_nmembers()):
        inner = _words(tid.get_member_type(place))
        if inner is not None:
            fields[_text(tid.get_member_name(place))] = inner
    return {"compound": fields} if fields else None


def _complex(tid: h5t.TypeID) -> dict[str, Any]:
    """Describe HDF5's own complex numbers, which are new and not what h5py writes."""
    return {"complex": "native", "bytes": tid.get_size()}


def _text(name: bytes | str) -> str:
    """Return a name of the file as text, whatever its bytes."""
    return name if isinstance(name, str) else name.decode("utf-8", "backslashreplace")


_TELLERS: dict[int, Callable[[h5t.TypeID], dict[str, Any] | None]] = {
    h5t.STRING: _string,
    h5t.ENUM: _enum,
    h5t.OPAQUE: _opaque,
    h5t.BITFIELD: _bitfield,
    h5t.VLEN: _sequence,
    h5t.ARRAY: _array,
    h5t.COMPOUND: _compound,
    getattr(h5t, "COMPLEX", -1): _complex,  # from HDF5 2.0 on
}
