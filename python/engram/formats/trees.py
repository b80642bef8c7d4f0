"""Trees in files: attributes that are dicts and lists, in a form that other programs read.

That form is JSON, or, where a format has structures, a structure. What it does not say stands in
one more attribute of the same object, `MARK`: for each of its trees, by name, what `as_json` or
`nested.kinds` says beside the values. So a tree comes back equal.

JSON has text, truths, null, and numbers. Any other value stands there as text or as a list, and the
mark says which type it is of, as a list: `["bytes"]`, `["complex"]`, `["float"]` (for NaN and the
infinities), or an array's dtype and shape, with the word `"base64"` if the text is its bytes. What
another program has changed so that it no longer is of that type is what JSON says that it is.
"""

from __future__ import annotations

import ast
import base64
import json
import math
from typing import TYPE_CHECKING, Any

import numpy as np

from engram import _engram, nested
from engram.errors import ArgumentError

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable

    from engram.formats.source import Attributes

    Array = np.ndarray[Any, Any]
    Types = dict[str, Any] | list[Any]

MARK = "engram_trees"
"""The attribute that tells which others are trees."""

AS_TEXT = f"a tree, as JSON text, which the attribute {MARK} tells from other text"
TAKEN = (
    f"the attribute {MARK} stands beside trees, or beside what it would make trees of, and is "
    "Engram's own: give yours another name"
)

ATTRS_BYTES_MAX = 64 << 20
"""So many bytes the attributes of one object take at most: the engine's constant of this name."""

_DTYPE_BYTES_MAX = 0xFFFF
"""So many bytes the engine's description of an attribute's dtype takes at most."""

_CODE_POINT_MAX = 0x10FFFF

_MISFITS = (
    *(ValueError, TypeError, LookupError, ArithmeticError, SyntaxError, RecursionError),
    MemoryError,
)
"""What reading a value raises that is not of the type that a mark says."""

_FLOAT_BYTES, _COMPLEX_BYTES = 8, 16  # Python's numbers are no longer


def is_tree(value: Any) -> bool:
    """Whether an attribute to be written is a tree."""
    return isinstance(value, np.ndarray) and nested.is_tree(value.dtype)


def is_beside_trees(name: str, attrs: Attributes) -> bool:
    """Whether an attribute has the name of the mark, where there is to be one."""
    return name == MARK and any(is_tree(value) for value in attrs.values())


def is_taken(name: str, attrs: Attributes) -> bool:
    """Whether an attribute has the name of the mark, where there is to be one, or would be one.

    It would be one if it told of others, as they are read from a file, that they are trees.
    """
    if name != MARK or is_beside_trees(name, attrs):
        return name == MARK
    read = {
        other: value if isinstance(value, str | bytes) else np.asarray(value)
        for other, value in attrs.items()
    }
    return bool(restore(read))


def as_json(tree: Any) -> tuple[Any, Types]:
    """Return a tree, or what is in it, as JSON, and the types that JSON does not say of it."""
    if isinstance(tree, dict | list):
        pairs: Iterable[Any] = tree.items() if isinstance(tree, dict) else enumerate(tree)
        made = {key: as_json(item) for key, item in pairs}
        plain = {key: value for key, (value, _) in made.items()}
        types: Types = {str(key): inner for key, (_, inner) in made.items() if inner}
        return (plain if isinstance(tree, dict) else list(plain.values())), types
    if isinstance(tree, np.ndarray | np.generic):
        return _of_array(np.asarray(tree))
    if isinstance(tree, bytes):
        return base64.b64encode(tree).decode("ascii"), ["bytes"]
    if isinstance(tree, complex) or (isinstance(tree, float) and not math.isfinite(tree)):
        return _spelled(tree), [type(tree).__name__]
    return tree, {}


def of_json(found: Any, types: Any, room: _Room) -> Any:
    """Return what `as_json` has made these of, but for arrays that there is no room for."""
    if isinstance(types, list):
        try:
            return _typed(found, types, room)
        except _MISFITS:  # another program has changed it
            types = {}
    if isinstance(found, dict):
        return {key: of_json(item, types.get(key, {}), room) for key, item in found.items()}
    if isinstance(found, list):
        return [of_json(item, types.get(str(at), {}), room) for at, item in enumerate(found)]
    return found


def text_of(value: Array) -> tuple[str, Types]:
    """Return a tree as JSON text, and what the mark is to say of it."""
    plain, types = as_json(nested.decode(value))
    return json.dumps(plain, ensure_ascii=False, allow_nan=False), types


def mark_of(forms: dict[str, Any]) -> str:
    """Return the mark, as text, of trees by their names."""
    return json.dumps(forms, ensure_ascii=False)


def restore(values: Attributes) -> list[str]:
    """Put trees where a mark tells of them, and take the mark away.

    Parameters
    ----------
    values
        An object's attributes as a file has them: JSON as text, structures as arrays.

    Returns
    -------
    The names of what was changed; none if there is no mark, or none that fits.

    """
    told = _read(_text(values.get(MARK)))
    found = _trees(values, told, _of_file)
    if found:
        values.update(found)
        del values[MARK]
        return [*found, MARK]
    return []


def of_document(document: dict[str, Any]) -> Attributes:
    """Return the trees, by name, that a mark tells of in a document of JSON."""
    return _trees(document, document.get(MARK), of_json)


def _trees(values: Attributes, told: Any, read: Callable[[Any, Any, _Room], Any]) -> Attributes:
    """Return those of some values that are trees."""
    found: Attributes = {}
    room = _Room()
    for name, form in told.items() if isinstance(told, dict) else ():
        if name == MARK:
            continue
        try:
            tree = read(values[name], form, room)
            if isinstance(tree, dict | list) and _is_held(nested.encode(name, tree)):
                found[name] = tree
        except (*_MISFITS, AttributeError, ArgumentError):  # what a pool cannot hold is no tree
            continue
    return found


def _is_held(made: Array) -> bool:
    """Whether what was made of a dict or a list is a tree that a pool can hold.

    Raises
    ------
    ArgumentError
        The engine does not know its dtype: a key is too long, or has no UTF-8.

    """
    if not nested.is_tree(made.dtype):
        return False
    described = len(_engram.dtype_bytes(made.dtype))
    return described <= _DTYPE_BYTES_MAX and described + made.nbytes <= ATTRS_BYTES_MAX


class _Room:
    """So many bytes the arrays in an object's trees may still take: no pool holds more.

    A file of a few bytes can tell of arrays of any size, whose text is all padding.
    """

    def __init__(self) -> None:
        self._left = ATTRS_BYTES_MAX

    def take(self, size: int) -> None:
        """Take bytes before an array is made of them; ValueError if there are too few."""
        if size > self._left:
            message = f"an array of {size} bytes does not fit into attributes"
            raise ValueError(message)
        self._left -= size


def _of_file(value: Any, form: Any, room: _Room) -> Any:
    """Return the tree that a structure, or text, is."""
    if isinstance(value, np.ndarray) and value.dtype.names is not None:
        _check_text(value)
        return nested.decode(value.reshape(()).view(nested.titled(value.dtype, form)))
    return of_json(_read(_text(value)), form, room)


def _text(value: Any) -> str:
    """Return an attribute of one text as `str`, as whichever kind of text it stands there."""
    if isinstance(value, np.ndarray) and value.size == 1 and value.dtype.kind in "STU":
        _check_text(value)
        value = value.reshape(-1)[0]
    if isinstance(value, bytes):
        return value.decode("utf-8", "replace")
    return value if isinstance(value, str) else ""


def _read(text: str) -> Any:
    """Read JSON; None if it is none."""
    try:
        return json.loads(text)
    except (ValueError, RecursionError):
        return None


def _of_array(array: Array) -> tuple[Any, Types]:
    """Return an array, or a scalar, as lists if these give it back, and else as its bytes."""
    dtype = array.dtype
    types = [dtype.str if dtype.names is None else str(dtype), list(array.shape)]
    listed = _listed(array)
    if listed is not None:
        try:
            again = np.asarray(_typed(listed, types, _Room()))
        except _MISFITS:
            again = np.empty(0)
        if again.dtype == dtype and again.tobytes() == array.tobytes():
            return listed, types
    clean = np.zeros(array.shape, dtype)  # also between a record's fields
    clean[...] = array
    return base64.b64encode(clean.tobytes()).decode("ascii"), [*types, "base64"]


def _typed(found: Any, types: list[Any], room: _Room) -> Any:
    """Return a value of the type that a mark says."""
    if len(types) == 1:
        return _WORDS[types[0]](found)
    text, shape, *how = types
    dtype = _dtype_of(text)
    if not isinstance(shape, list) or not all(type(n) is int and n >= 0 for n in shape):
        message = f"{shape!r} is no shape"
        raise ValueError(message)
    array = (_of_bytes if how else _of_lists)(found, dtype, shape, room)
    return array if array.ndim else array[()]


def _of_bytes(found: str, dtype: np.dtype[Any], shape: list[int], room: _Room) -> Array:
    """Return an array of its bytes in base64."""
    raw = _raw(found)
    if len(raw) != dtype.itemsize * math.prod(shape):
        message = f"{len(raw)} bytes are no array of {dtype} and the shape {shape}"
        raise ValueError(message)
    room.take(len(raw))
    array = np.ndarray(tuple(shape), dtype, raw).copy()
    _check_text(array)
    return array


def _of_lists(found: Any, dtype: np.dtype[Any], shape: list[int], room: _Room) -> Array:
    """Return an array of its lists."""
    if _has_shape(found, shape):
        room.take(dtype.itemsize * math.prod(shape))
        array = _unlisted(found, dtype).reshape(shape)
        listed = _listed(array)
        if listed is not None and listed == found:
            return array
    message = f"{found!r:.60} is no array of {dtype} and the shape {shape}"
    raise ValueError(message)


def _has_shape(found: Any, shape: list[int]) -> bool:
    """Whether lists within each other are of these lengths."""
    if not shape:
        return not isinstance(found, list | dict)
    if not isinstance(found, list) or len(found) != shape[0]:
        return False
    if len(shape) == 1:
        return {list, dict}.isdisjoint(map(type, found))
    return all(_has_shape(item, shape[1:]) for item in found)


def _check_text(array: Array) -> None:
    """Raise ValueError if text of numpy's, in an array or its fields, has what is no character.

    Python raises SystemError of some of it, and makes text of the rest that it cannot use.
    """
    for name in array.dtype.names or ():
        _check_text(array[name])
    if array.dtype.kind == "U" and array.dtype.itemsize:
        order = array.dtype.byteorder
        points = np.array(array, ndmin=1, order="C").view(np.dtype("u4").newbyteorder(order))
        if points.size and points.max() > _CODE_POINT_MAX:
            message = f"{int(points.max()):#x} is no character"
            raise ValueError(message)


def _raw(text: str) -> bytes:
    """Return the bytes that a text of base64 has."""
    return base64.b64decode(text, validate=True)


_WORDS: dict[str, Callable[[Any], Any]] = {"bytes": _raw, "float": float, "complex": complex}
"""What makes a value of the types that have a word."""


def _listed(array: Array) -> Any:
    """Return an array as lists of what JSON has; None if there are none that tell all."""
    kind, size = array.dtype.kind, array.dtype.itemsize
    if kind in "bium":
        return (array.astype("i8") if kind == "m" else array).tolist()
    if (kind == "f" and size <= _FLOAT_BYTES) or (kind == "c" and size <= _COMPLEX_BYTES):
        return _spelled(array.tolist())
    try:
        return _texts(array)
    except UnicodeError:
        return None


def _texts(array: Array) -> Any:
    """Return lists of text; None if the array is none of text or of times.

    Raises
    ------
    UnicodeError
        It is no UTF-8, or has none.

    """
    kind = array.dtype.kind
    if kind == "U":
        np.strings.encode(array, "utf-8")
        return array.tolist()
    if kind == "S":
        return np.asarray(np.strings.decode(array, "utf-8")).tolist()
    return np.asarray(np.datetime_as_string(array)).tolist() if kind == "M" else None


def _unlisted(found: Any, dtype: np.dtype[Any]) -> Array:
    """Return the array that `_listed` has made a list of."""
    if dtype.kind == "m":
        return np.array(found, "i8").astype(dtype)
    if dtype.kind == "S":
        # No text has more characters than bytes; what is longer, and so cut, is found to differ.
        as_text = np.array(found, f"U{dtype.itemsize}")
        return np.asarray(np.strings.encode(as_text, "utf-8")).astype(dtype)
    return np.array(found, dtype)


def _spelled(found: Any) -> Any:
    """Return floats, or lists of them, as JSON has them, and complex numbers as text."""
    if isinstance(found, list):
        return [_spelled(item) for item in found]
    if isinstance(found, complex):
        return str(found)
    if math.isnan(found):
        return "NaN"
    if math.isinf(found):
        return "Infinity" if found > 0 else "-Infinity"
    return found


def _dtype_of(text: str) -> np.dtype[Any]:
    """Return the dtype that a text tells of."""
    dtype: np.dtype[Any] = np.dtype(ast.literal_eval(text) if text[:1] in {"[", "{"} else text)
    if dtype.hasobject or not dtype.itemsize:
        message = f"{text} has Python's objects, or no bytes"
        raise ValueError(message)
    return dtype
