"""Types that numpy's dtypes do not say: h5py's notes in a dtype, and the words kept for them.

h5py notes in a dtype's metadata what HDF5 knows more than numpy: which texts of variable length
are meant by `object`, an enumeration's names, the encoding of `S`. Here a pool keeps the plain
dtype, and these are words of the object's `origin`, as an import keeps them.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np

from engram.compat.h5py.refused import REFERENCES, Reference, RegionReference, refuse

DType = np.dtype[Any]
Words = dict[str, Any]

_ENCODINGS = ("ascii", "utf-8")


class string_info(NamedTuple):  # noqa: N801 - as h5py has it
    """What `check_string_dtype` tells of a type of strings."""

    encoding: str
    length: int | None


def _noted(dtype: Any, name: str) -> Any:
    metadata = getattr(dtype, "metadata", None)
    return None if metadata is None else metadata.get(name)


def string_dtype(encoding: str = "utf-8", length: int | None = None) -> DType:
    """Return the dtype of strings: of variable length, or of `length` bytes."""
    encoding = {"utf8": "utf-8"}.get(encoding.lower(), encoding.lower())
    if encoding not in _ENCODINGS:
        raise ValueError(f'encoding {encoding!r} is unknown: use "utf-8" or "ascii"')
    if isinstance(length, int) and length is not True:
        return np.dtype(f"|S{length}", metadata={"h5py_encoding": encoding})
    if length is not None:
        raise TypeError(f"length {length!r} is no number: give an integer, or None for any length")
    return np.dtype("O", metadata={"vlen": str if encoding == "utf-8" else bytes})


def vlen_dtype(basetype: Any) -> DType:
    """Return the dtype of sequences of any length, each of items of `basetype`."""
    return np.dtype("O", metadata={"vlen": basetype})


def enum_dtype(values_dict: dict[str, int], basetype: Any = np.uint8) -> DType:
    """Return the dtype of an enumeration: integers with names."""
    base: DType = np.dtype(basetype)
    if base.kind not in "iu":
        raise TypeError(f"an enumeration is of integers, not of {base}")
    return np.dtype(base, metadata={"enum": values_dict})


def opaque_dtype(np_dtype: Any) -> DType:
    """Return a dtype that is kept as it is, though HDF5 has no such type: times, above all."""
    base: DType = np.dtype(np_dtype)
    if base.kind == "O":
        raise TypeError("objects have no bytes of their own: give a dtype of a fixed size")
    if base.names is not None or base.subdtype is not None:
        raise TypeError("structured and array dtypes are kept anyway: give a dtype without fields")
    return np.dtype(base, metadata={"h5py_opaque": True})


def check_string_dtype(dt: Any) -> string_info | None:
    """Tell the encoding and length of a dtype of strings; None for any other."""
    kind = check_vlen_dtype(dt)
    if kind is str or getattr(dt, "kind", None) == "T":
        return string_info("utf-8", None)
    if kind is bytes:
        return string_info("ascii", None)
    if getattr(dt, "kind", None) == "S":
        return string_info(_noted(dt, "h5py_encoding") or "ascii", dt.itemsize)
    return None


def check_vlen_dtype(dt: Any) -> Any:
    """Tell what a sequence's items are; None if the dtype is none of sequences."""
    return _noted(dt, "vlen")


def check_enum_dtype(dt: Any) -> dict[str, int] | None:
    """Tell an enumeration's names and numbers; None for any other dtype."""
    found: dict[str, int] | None = _noted(dt, "enum")
    return found


def check_ref_dtype(dt: Any) -> Any:
    """Tell which references a dtype is of; None for any other."""
    return _noted(dt, "ref")


def check_opaque_dtype(dt: Any) -> bool:
    """Tell whether a dtype was made by `opaque_dtype`."""
    return bool(_noted(dt, "h5py_opaque"))


def special_dtype(**kwds: Any) -> DType:
    """Return a dtype by the older names: `vlen=`, `enum=(base, values)`, `ref=`."""
    if len(kwds) != 1:
        raise TypeError(f"exactly one of vlen, enum and ref is asked for, not {sorted(kwds)}")
    name, value = kwds.popitem()
    if name == "vlen":
        return (
            string_dtype("ascii" if value is bytes else "utf-8")
            if value
            in {
                bytes,
                str,
            }
            else vlen_dtype(value)
        )
    if name == "enum":
        try:
            base, values = value
        except TypeError:
            raise TypeError("enum= takes a pair: the dtype, and the names with numbers") from None
        return enum_dtype(values, base)
    if name == "ref":
        if value not in {Reference, RegionReference}:
            raise ValueError("ref= is Reference or RegionReference")
        return np.dtype("O", metadata={"ref": value})
    raise TypeError(f"{name!r} is unknown: use vlen, enum or ref")


def check_dtype(**kwds: Any) -> Any:
    """Tell by the older names: `vlen=`, `enum=` or `ref=` a dtype."""
    if len(kwds) != 1:
        raise TypeError(f"exactly one of vlen, enum and ref is asked for, not {sorted(kwds)}")
    name, dt = kwds.popitem()
    if name not in {"vlen", "enum", "ref"}:
        return None
    return _noted(dt, name)


ref_dtype = special_dtype(ref=Reference)
regionref_dtype = special_dtype(ref=RegionReference)


def is_text(dtype: DType) -> bool:
    """Whether values are strings of variable length."""
    return dtype.kind == "T" or check_vlen_dtype(dtype) in {str, bytes}


def is_variable(dtype: DType) -> bool:
    """Whether values are, or have inside, sequences or strings of variable length."""
    if dtype.subdtype is not None:
        return is_variable(dtype.subdtype[0])
    if dtype.names is not None:
        return any(dtype[name].base.kind == "O" or is_variable(dtype[name]) for name in dtype.names)
    return dtype.kind == "O" and not is_text(dtype)


def check_storable(dtype: DType) -> None:
    """Refuse a dtype that HDF5 has no type for, as h5py does, or that a pool cannot have.

    Raises
    ------
    TypeError
        Always of this class; it says which dtype, and what to do.

    """
    if dtype.subdtype is not None:
        check_storable(dtype.subdtype[0])
    for name in dtype.names or ():
        check_storable(dtype[name])
    if check_ref_dtype(dtype) is not None:
        refuse("references", REFERENCES)
    if dtype.kind == "U":
        raise TypeError(
            f"No conversion path for dtype: {dtype!r}. Give strings of variable length, "
            "dtype=h5py.string_dtype(), or bytes: values.astype('S')"
        )
    if dtype.kind in "mM" and not check_opaque_dtype(dtype):
        raise TypeError(
            f"No conversion path for dtype: {dtype!r}. Times are kept as they are with "
            "dtype=h5py.opaque_dtype(values.dtype), or as numbers: values.astype('i8')"
        )
    if dtype.kind == "O" and check_vlen_dtype(dtype) is None:
        raise TypeError(
            f"Object dtype {dtype!r} has no native HDF5 equivalent. Give strings dtype="
            "h5py.string_dtype(), sequences dtype=h5py.vlen_dtype(...), and all else as numbers"
        )


def words_of(dtype: DType) -> Words | None:
    """Return the words of an origin for what a plain dtype does not say; None where it says all."""
    if dtype.subdtype is not None:
        base = words_of(dtype.subdtype[0])
        return {"array": list(dtype.subdtype[1]), **({"base": base} if base else {})}
    if dtype.names is not None:
        fields = {name: words_of(dtype[name]) for name in dtype.names}
        told = {name: words for name, words in fields.items() if words}
        return {"compound": told} if told else None
    enum = check_enum_dtype(dtype)
    if enum is not None:
        return {"enum": {str(k): int(v) for k, v in enum.items()}, "base": dtype.str}
    if check_vlen_dtype(dtype) is bytes:
        return {"string": "variable", "charset": "ascii"}
    if dtype.kind == "S" and _noted(dtype, "h5py_encoding") == "utf-8":
        return {"string": dtype.itemsize, "charset": "utf-8", "padding": "nullpad"}
    return None


def told_dtype(dtype: DType, words: Any) -> DType:
    """Return a dtype with what words say of it, as h5py notes that; words that do not fit, not."""
    words = words if isinstance(words, dict) else {}
    if dtype.kind == "T":
        return string_dtype("ascii" if words.get("charset") == "ascii" else "utf-8")
    if dtype.subdtype is not None:
        base, shape = dtype.subdtype
        return np.dtype((told_dtype(base, words.get("base")), shape))
    if dtype.names is not None:
        return _told_record(dtype, words.get("compound"))
    return _told_plain(dtype, words)


def _told_plain(dtype: DType, words: Words) -> DType:
    if dtype.kind in "iu" and words.get("base") == dtype.str and "enum" in words:
        return np.dtype(dtype, metadata={"enum": dict(words["enum"])})
    if dtype.kind == "S" and words.get("charset") == "utf-8":
        return string_dtype("utf-8", dtype.itemsize)
    return opaque_dtype(dtype) if dtype.kind in "mM" else dtype


def _told_record(dtype: DType, told: Any) -> DType:
    if not isinstance(told, dict) or not told:
        return dtype
    fields: Any = dtype.fields
    return np.dtype(
        {
            "names": list(dtype.names or ()),
            "formats": [told_dtype(dtype[name], told.get(name)) for name in dtype.names or ()],
            "offsets": [fields[name][1] for name in dtype.names or ()],
            "itemsize": dtype.itemsize,
        }
    )


def split_array(dtype: DType) -> tuple[DType, tuple[int, ...]]:
    """Return the dtype of an array dtype's items, and the axes that it adds to a dataset's."""
    if dtype.subdtype is None:
        return dtype, ()
    base, shape = dtype.subdtype
    return base, shape
