"""Attributes that are trees: dicts and lists within each other, down to scalars and arrays.

A list that numpy makes an array of is one, and no tree: of numbers, of text. Any other list is one.

Such a value is kept as one of a structure's, which attributes can be anyway (`docs/format.md`): a
dict is a structure with a field for each key, and so is a list, whose fields are "0", "1" and so
on; a list of numbers of one kind, or of truth values, is one field with a shape. So a tree is
stored whole or not at all, is seen by C as what it is, and is queried by path: `solver.tol < 1e-5`,
as the fields of any structure are.

What numpy has no type for is said by the title of a field: `MARK`, what the field is in ("dict" or
"list"), what it is, and its place. A structure of which no field has such a title is a structure
of its user's. An empty dict or list has one field, "nothing".

*Invariant*: `decode(encode(x)) == x`, with the types that Python had, but that a tuple comes back
as a list, and a time of `datetime` as numpy's.
"""

from __future__ import annotations

import datetime as dt
from collections.abc import Callable, Mapping
from typing import Any

import numpy as np
from numpy.typing import NDArray

from engram.errors import ArgumentError, CorruptError

MARK = "tree "
"""What the titles of a tree's fields begin with."""

DEPTH_MAX = 15
"""So many dicts and lists may stand within each other."""

FIELDS_MAX = 1000
"""So many keys a dict, or items a list that is no array, may have."""

_KINDS = frozenset(
    [
        "tree",
        "items",
        "int",
        "digits",
        "float",
        "complex",
        "bool",
        "str",
        "bytes",
        "raw",
        "none",
        "nothing",
        "numpy",
    ]
)
"""What the title of a field may say that it is."""

_CONTAINERS = frozenset(["dict", "list"])
"""What the title of a field may say that it is in."""

_Node = tuple[str, NDArray[Any]]
"""What a value is, as a title says it, and the value."""

_TIMES = (dt.datetime, dt.date, dt.timedelta)


def encode(name: str, value: Any) -> NDArray[Any]:
    """Make a structure of a dict or a list.

    Raises
    ------
    ArgumentError
        If it is too deep, has a key that is no str, or a value that no array can have; its path is
        named.

    """
    return _node(name, value, 0)[1]


def decode(found: NDArray[Any]) -> Any:
    """Give back what `encode` has made this of.

    Raises
    ------
    CorruptError
        If some fields are of a tree, and others are not.

    """
    if not is_tree(found.dtype):
        return found[()].copy()
    names = found.dtype.names or ()
    said = [_said(found.dtype, name) for name in names]
    for name, (container, _) in zip(names, said, strict=True):
        if container not in _CONTAINERS or container != said[0][0]:
            raise CorruptError(
                f"a tree of attributes is damaged: its field {name!r} does not say what it is: "
                "`engram verify` tells what else is damaged"
            )
    items = {
        name: _value(kind, found[name])
        for name, (_, kind) in zip(names, said, strict=True)
        if kind != "nothing"
    }
    return items if said[0][0] == "dict" else list(items.values())


def is_tree(dtype: np.dtype[Any]) -> bool:
    """Whether a structure is of a tree."""
    return any(_said(dtype, name)[0] for name in dtype.names or ())


def kinds(dtype: np.dtype[Any]) -> list[Any]:
    """Say what the titles of a tree's structure say: what it is, and what each of its fields is.

    A field that is a tree itself is said likewise, as a list.
    """
    names = dtype.names or ()
    said = [_said(dtype, name) for name in names]
    inner = [
        kinds(dtype[name]) if kind == "tree" else kind
        for name, (_, kind) in zip(names, said, strict=True)
    ]
    return [said[0][0], inner]


def titled(dtype: np.dtype[Any], said: list[Any]) -> np.dtype[Any]:
    """Return a structure's dtype with the titles that `kinds` has said of it.

    Raises
    ------
    ValueError, TypeError
        If that was said of another structure.

    """
    container, inner = said
    names = dtype.names or ()
    fields: Mapping[str, Any] = dtype.fields or {}
    each = list(zip(names, inner, strict=True))
    words = [kind if isinstance(kind, str) else "tree" for kind in inner]
    if container not in _CONTAINERS or not _KINDS.issuperset(words):
        message = f"{container!r:.60} is no dict or list, or has what no title says"
        raise ValueError(message)
    return np.dtype(
        {
            "names": list(names),
            "formats": [
                dtype[name] if isinstance(kind, str) else titled(dtype[name], kind)
                for name, kind in each
            ],
            "offsets": [fields[name][1] for name in names],
            "titles": [_title(container, word, at) for at, word in enumerate(words)],
            "itemsize": dtype.itemsize,
        }
    )


def _title(container: str, kind: str, at: int) -> str:
    """Return the title of a field: what it is in, what it is, and its place."""
    return f"{MARK}{container} {kind} {at}"


def _node(path: str, value: Any, depth: int) -> _Node:
    """Encode a value at a path."""
    if isinstance(value, Mapping | list | tuple):
        if depth == DEPTH_MAX:
            raise ArgumentError(
                f"attribute {path!r} is a tree of more than {DEPTH_MAX} levels: keep what is "
                "deeper as an object's attributes, or as text, such as json.dumps makes"
            )
        if isinstance(value, Mapping):
            return _dict(path, value, depth)
        return _list(path, value, depth)
    for types, make in _LEAVES:
        if isinstance(value, types):
            return make(path, value)
    raise ArgumentError(
        f"attribute {path!r} is {value!r}, of the type {type(value).__name__}: a tree has dicts, "
        "lists, numbers, text, bytes, None, times and numpy's arrays"
    )


def _dict(path: str, value: Mapping[Any, Any], depth: int) -> _Node:
    fields = []
    for key, item in value.items():
        if not isinstance(key, str) or not key:
            raise ArgumentError(
                f"attribute {path!r} has the key {key!r}: keys of a tree are str, and not empty"
            )
        fields.append((key, *_node(f"{path}.{key}", item, depth + 1)))
    return "tree", _structure("dict", path, fields)


def _list(path: str, value: list[Any] | tuple[Any, ...], depth: int) -> _Node:
    kinds = {type(item) for item in value}
    if len(value) > 1 and len(kinds) == 1:
        (kind,) = kinds
        if kind in {bool, float} or (kind is int and _fits(min(value), max(value))):
            return "items", np.array(value)
    items = [(str(at), *_node(f"{path}.{at}", item, depth + 1)) for at, item in enumerate(value)]
    return "tree", _structure("list", path, items)


def _structure(
    container: str, path: str, fields: list[tuple[str, str, NDArray[Any]]]
) -> NDArray[Any]:
    """Make a structure of names, kinds and values."""
    if len(fields) > FIELDS_MAX:
        raise ArgumentError(
            f"attribute {path!r} has {len(fields)} keys or items, and a tree has {FIELDS_MAX} at "
            "most in one place: store an array, or an object for each"
        )
    # What is no value has bytes of no kind, so that no query takes it for a number.
    fields = fields or [("nothing", "nothing", np.zeros((), "V1"))]
    # No two fields may have one title.
    titles = [_title(container, kind, at) for at, (_, kind, _) in enumerate(fields)]
    names = [name for name, _, _ in fields]
    if taken := set(titles) & set(names):
        raise ArgumentError(f"attribute {path!r} has the key {taken.pop()!r}, which is taken")
    formats = [(made.dtype, made.shape) for _, _, made in fields]
    try:
        dtype = np.dtype({"names": names, "formats": formats, "titles": titles})
    except ValueError as error:
        raise ArgumentError(
            f"attribute {path!r} is no structure that numpy has: {error}"
        ) from error
    out = np.zeros((), dtype)
    for name, (_, _, made) in zip(names, fields, strict=True):
        out[name] = made
    return out


def _fits(least: int, most: int) -> bool:
    return least >= -(2**63) and most < 2**63


def _int(path: str, value: int) -> _Node:
    if -(2**63) <= value < 2**64:
        return "int", np.array(int(value))
    return _text_of("digits", path, str(int(value)))


def _str(path: str, value: str) -> _Node:
    if value.endswith("\0"):
        raise _ends_in_nul(path, value)
    return _text_of("str", path, str.__str__(value))  # of a subclass, the text alone


def _ends_in_nul(path: str, value: Any) -> ArgumentError:
    return ArgumentError(
        f"attribute {path!r} is {value!r}: text in a tree cannot end in NUL, as numpy drops zeros "
        "there"
    )


def _text_of(kind: str, path: str, text: str) -> _Node:
    try:
        text.encode()
    except UnicodeEncodeError:
        raise ArgumentError(f"attribute {path!r} is {text!r}, which has no UTF-8") from None
    return kind, np.array(text)


def _bytes(_path: str, value: bytes) -> _Node:
    if value.endswith(b"\0"):  # which numpy would take off
        return "raw", np.array(np.void(value))
    return "bytes", np.array(bytes(value))


def _numpy(path: str, value: Any) -> _Node:
    if np.ma.isMaskedArray(value):
        raise ArgumentError(
            f"attribute {path!r} is masked, and an attribute keeps no mask: give a.filled(...)"
        )
    array = np.asarray(value)
    if isinstance(value, np.str_ | np.bytes_) and array[()] != value:
        raise _ends_in_nul(path, value)
    if array.dtype.hasobject or array.dtype.kind == "T":
        raise ArgumentError(
            f"attribute {path!r} is an array of {array.dtype}: within a tree, give a list, or an "
            "array of a fixed width such as 'U16'"
        )
    return "numpy", array


def _time(path: str, value: Any) -> _Node:
    array = np.array(value, _unit(path, value))
    if type(value) not in _TIMES or array.item() != value:
        raise ArgumentError(
            f"attribute {path!r} is {value!r}, of the type {type(value).__name__}: give a "
            "datetime64 or a timedelta64 of numpy's that has it exactly"
        )
    return "numpy", array


def _unit(path: str, value: Any) -> str:
    if isinstance(value, dt.timedelta):
        return "m8[us]"
    if getattr(value, "tzinfo", None) is not None:
        raise ArgumentError(
            f"attribute {path!r} is {value}, and numpy's times have no zone: give "
            "t.astimezone(datetime.UTC).replace(tzinfo=None), and the zone beside it"
        )
    return "M8[us]" if isinstance(value, dt.datetime) else "M8[D]"


_LEAVES: list[tuple[Any, Callable[[str, Any], _Node]]] = [
    (np.ndarray | np.generic, _numpy),
    (bool, lambda _path, value: ("bool", np.array(value))),
    (int, _int),
    (float, lambda _path, value: ("float", np.array(value))),
    (complex, lambda _path, value: ("complex", np.array(value))),
    (str, _str),
    (bytes, _bytes),
    (type(None), lambda _path, _value: ("none", np.zeros((), "V1"))),
    (_TIMES, _time),
]


def _said(dtype: np.dtype[Any], name: str) -> tuple[str, str]:
    """Return what a field's title says: what it is in, and what it is; if it is a tree's."""
    assert dtype.fields is not None  # noqa: S101 - it has names
    found = dtype.fields[name]
    title = found[2] if len(found) > 2 else ""  # noqa: PLR2004 - dtype, offset, title
    words = str(title).removeprefix(MARK).split(" ")
    is_ours = str(title).startswith(MARK) and len(words) == 3  # noqa: PLR2004 - in what, what, where
    if not is_ours or words[0] not in _CONTAINERS or words[1] not in _KINDS:
        return "", ""
    return words[0], words[1]


def _value(kind: str, found: NDArray[Any]) -> Any:
    """Decode a field."""
    if kind == "tree":
        return decode(found)
    if kind == "numpy":
        array = np.array(found)
        return array[()] if array.ndim == 0 else array
    if kind == "none":
        return None
    if kind == "digits":
        return int(str(found))
    return bytes(found[()]) if kind == "raw" else found.tolist()
