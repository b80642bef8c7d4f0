"""What manifests say of dtypes and attributes.

A dtype is numpy's own text, such as `<f8`; one with fields is the engine's bytes of it, as digits
after an x. An attribute is kept exactly: its dtype, its shape and
its bytes in base64; text is kept as text, so that people can read it.
"""

import base64
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from engram import _engram, kept, later, times
from engram.errors import ArgumentError, CorruptError

_LIBRARIES = ("xarray", "pandas", "polars", "pyarrow")
"""Libraries whose arrays have more than values."""


def dtype_text(dtype: np.dtype[Any]) -> str:
    """Give a dtype as a manifest has it.

    Raises
    ------
    ArgumentError
        If its items have no fixed bytes.

    """
    if dtype.kind not in "biufcSUVMm":
        raise ArgumentError(
            f"dtype {dtype} cannot be an array's over nodes: take one of numbers, times, records, "
            "or text of fixed width"
        )
    if dtype.fields is None and dtype.subdtype is None:
        return dtype.str
    return f"x{_engram.dtype_bytes(dtype).hex()}"


def dtype_of(text: str) -> np.dtype[Any]:
    """Give the dtype that a manifest's text is.

    Raises
    ------
    CorruptError
        If it is none.

    """
    try:
        if text.startswith("x"):
            return _engram.dtype_of(bytes.fromhex(text[1:]))
        return np.dtype(text)
    except (TypeError, ValueError) as error:
        raise CorruptError(f"{text!r} in a manifest is no dtype: {error}") from None


def array_of(what: str, value: Any) -> np.ndarray[Any, Any]:
    """Give what numpy makes of a value, which `what` names, if nothing of it is lost.

    Raises
    ------
    ArgumentError
        If numpy would drop a mask, labels or attributes, or change what is in a sequence.

    """
    refuse_labelled(what, value)
    kept.check_given(what, value, labels=True)
    if type(value) is str:
        kept.check(what, [value], np.asarray([value]))
    try:
        array = np.asarray(value)
    except (ValueError, TypeError, OverflowError) as error:
        raise ArgumentError(f"{what}: {value!r} is no array: {error}") from error
    if isinstance(value, list | tuple):
        kept.check(what, value, array)
        times.check(what, value, array.dtype)
    return array


def refuse_labelled(what: str, value: Any) -> None:
    """Refuse what has names for its parts, which an array of a cluster would not have.

    Raises
    ------
    ArgumentError
        If it has such.

    """
    if isinstance(value, np.ndarray) or not any(later.is_of(value, lib) for lib in _LIBRARIES):
        return
    instead = "put its to_numpy(), the values alone; tables lie in the pool of one node"
    if hasattr(value, "data_vars"):
        instead = "put each of its variables under a name of its own"
    elif hasattr(value, "dims"):
        instead = (
            "put its to_numpy(), with dims=data.dims and attrs=data.attrs, and each coordinate "
            "under a name of its own"
        )
    raise ArgumentError(
        f"{what} is a {kept.kind_of(value)}, of which a cluster would keep the values alone: "
        f"{instead}"
    )


def item_bytes(fill: Any, dtype: np.dtype[Any]) -> bytes:
    """Give the bytes of one item of this value; none for zeros.

    Raises
    ------
    ArgumentError
        If it is no item of the dtype, or would be cut to be one.

    """
    if fill is None:
        return b""
    item = np.zeros((), dtype)
    try:
        kept.check_given("fill", fill)
        times.check("fill", fill, dtype)
        with np.errstate(over="ignore", invalid="ignore"):
            item[()] = fill
    except (TypeError, ValueError, OverflowError) as error:
        raise ArgumentError(f"fill {fill!r} is no item of dtype {dtype}: {error}") from error
    _check_item(fill, item)
    return item.tobytes()


def _check_item(fill: Any, item: np.ndarray[Any, Any]) -> None:
    """Refuse a fill that an item of the dtype is not, but a part or a remainder of it."""
    if hasattr(fill, "__array__") and not isinstance(fill, np.generic):
        fill = np.asarray(fill)[()]
    names = item.dtype.names
    if item.ndim:
        given = _spread(fill, item.shape, is_record=names is not None)
        for index in np.ndindex(item.shape):
            _check_item(given[index], item[(*index, ...)])
    elif names:
        for name, part in zip(names, _fields_of(fill, len(names)), strict=True):
            _check_item(part, item[name])
    elif _is_cut(fill, item):
        raise ArgumentError(
            f"fill {fill!r} would become {item[()]!r} in dtype {item.dtype}: take a dtype that "
            "holds it"
        )


def _spread(fill: Any, shape: tuple[int, ...], *, is_record: bool) -> np.ndarray[Any, Any]:
    """Give of each item of a field with a shape what numpy puts there; a record is a tuple."""
    level, lengths = [fill], []
    while level and all(_is_sequence(one, is_record) for one in level):
        lengths.append(len(level[0]))
        level = [part for one in level for part in one]
    found = np.empty(len(level), object)
    for at, one in enumerate(level):
        found[at] = one
    return np.broadcast_to(found.reshape(lengths[-len(shape) :]), shape)


def _is_sequence(thing: Any, is_record: bool) -> bool:
    if isinstance(thing, np.ndarray):
        return thing.ndim > 0
    single = (str, bytes, bytearray, memoryview, *([tuple] if is_record else []))
    return isinstance(thing, Sequence) and not isinstance(thing, single)


def _fields_of(fill: Any, count: int) -> Sequence[Any]:
    """Give what numpy puts into each field of a record: it goes by place, and repeats a number."""
    if isinstance(fill, tuple):
        return fill
    if isinstance(fill, np.ndarray | np.void) and fill.dtype.names:
        record = fill if isinstance(fill, np.void) else fill.reshape(-1)[0]
        return [record[name] for name in fill.dtype.names]
    return [fill] * count


def _is_cut(fill: Any, item: np.ndarray[Any, Any]) -> bool:
    dtype = item.dtype
    if dtype.kind in "SUV":
        given = bytes(fill) if isinstance(fill, bytearray | memoryview) else fill
        given = given if isinstance(given, str | bytes) else np.asarray(given).item()
        length = len(given if isinstance(given, str | bytes) else str(given))
        return bool(length > dtype.itemsize // (4 if dtype.kind == "U" else 1))
    if dtype.kind in "fc":
        return bool(np.isinf(item) & ~np.isinf(np.asarray(fill, "c16")))
    if dtype.kind in "mM":
        return bool(~np.isnat(item) & (np.asarray(fill, dtype.kind) != item))
    return bool(np.asarray(fill) != item)


def encode(attrs: Mapping[str, Any] | None) -> dict[str, Any]:
    """Give attributes as a manifest has them."""
    if attrs is None:
        return {}
    if not isinstance(attrs, Mapping):
        raise ArgumentError(f"attrs {attrs!r} are no attributes: give a dict of values by key")
    for name in attrs:
        if not isinstance(name, str) or not name:
            raise ArgumentError(f"{name!r} is no key of an attribute: give a str")
    return {name: _encoded(name, value) for name, value in attrs.items()}


def _encoded(name: str, value: Any) -> Any:
    if isinstance(value, str):
        return value
    array = array_of(f"attribute {name!r}", value)
    if array.dtype.kind == "U":
        return {"text": array.tolist()}
    if array.dtype.kind not in "biufcSVMm" or array.dtype.fields is not None:
        raise ArgumentError(
            f"attribute {name!r}: a value of dtype {array.dtype} cannot be kept; use text, "
            "numbers, times or arrays of them"
        )
    data = base64.b64encode(np.ascontiguousarray(array).tobytes()).decode()
    return {"dtype": array.dtype.str, "shape": list(array.shape), "data": data}


def decode(attrs: Mapping[str, Any]) -> dict[str, Any]:
    """Give attributes as they were: text as `str`, scalars as numpy's, all else as arrays."""
    return {name: _decoded(name, value) for name, value in attrs.items()}


def _decoded(name: str, value: Any) -> Any:
    if isinstance(value, str):
        return value
    try:
        if "text" in value:
            return np.array(value["text"], np.str_)  # of none numpy would make numbers
        data = base64.b64decode(value["data"])
        array = np.frombuffer(data, np.dtype(value["dtype"])).reshape(value["shape"])
    except (KeyError, TypeError, ValueError) as error:
        raise CorruptError(f"attribute {name!r} of a manifest cannot be read: {error}") from None
    return array[()] if array.ndim == 0 else array
