"""Attributes that a query or a table names and nothing has: what was probably meant instead.

Nothing here runs for a query whose attributes are known.
"""

import warnings
from typing import NamedTuple

from engram import _engram
from engram.errors import EngramWarning
from engram.expression import BUILTINS, attr, group_attr

_OBJECTS, _GROUPS = 0, 1

_CLOSE = 0.7
"""So alike are a key and what was meant by it, by difflib's measure."""

_COMPARED = 2000
"""With so many keys at most a key is compared."""

_SHOWN = 5
"""So many keys are shown where none is like the one that was named."""

_SAMPLES = 64
"""Of so many objects the groups are looked at for the keys of groups."""


class _Remedy(NamedTuple):
    words: str
    is_close: bool
    """Whether it says what was probably meant."""


def tell(
    namespace: _engram.Namespace,
    texts: tuple[str, str],
    in_vain: list[tuple[int, str, bool]],
    stacklevel: int,
    *,
    strict: bool,
) -> None:
    """Warn of attributes that a query names in vain, or refuse the query.

    `texts` are its condition and its order, as they were given.

    In a namespace whose objects have no attributes yet nobody is warned. Nor is one who only asks
    whether a key is there, as a program does that looks for what it will mark with it, unless a
    key like it is.

    Raises
    ------
    QueryError
        With `strict`: at the first of them.

    """
    there = [key for key, _ in _engram.Query("").attribute_keys(namespace, namespace.root)]
    for kind, key, only_presence in in_vain:
        remedy = _remedy(namespace, kind, key, there)
        whose = "no group above an object" if kind == _GROUPS else "no indexed object"
        message = f"{whose} has an attribute {key!r}{remedy.words}"
        if strict:
            _engram.refuse_name(*texts, kind == _GROUPS, key, message)
        if there and (remedy.is_close or not only_presence):
            warnings.warn(message, EngramWarning, stacklevel)


def tell_of_column(
    namespace: _engram.Namespace, key: str, stacklevel: int, *, is_group: bool
) -> None:
    """Warn of a column that was asked for, if nothing at all has such an attribute."""
    text = f"{_written(_GROUPS if is_group else _OBJECTS, key)} = 0"
    in_vain = _engram.named_in_vain(_engram.Query(text), namespace)
    tell(namespace, (text, ""), in_vain, stacklevel, strict=False)


def _remedy(namespace: _engram.Namespace, kind: int, key: str, there: list[str]) -> _Remedy:
    """Say what was probably meant, or what there is."""
    other = _other_way(namespace, kind, key)
    if other:
        return _Remedy(other, is_close=True)
    keys = _keys_of_groups(namespace) if kind == _GROUPS else there
    near = nearest(key, keys)
    if near is not None:
        return _Remedy(f": did you mean {_written(kind, near)}?", is_close=True)
    if kind == _OBJECTS and key.lower() in BUILTINS:
        return _Remedy(f": did you mean @{key.lower()}?", is_close=True)
    if not keys:
        return _Remedy("", is_close=False)
    shown = ", ".join(_written(kind, each) for each in keys[:_SHOWN])
    more = f" and {len(keys) - _SHOWN} more" if len(keys) > _SHOWN else ""
    return _Remedy(f": there are {shown}{more}", is_close=False)


def _other_way(namespace: _engram.Namespace, kind: int, key: str) -> str:
    """Say so where groups have what objects lack, or the other way round."""
    other = _OBJECTS if kind == _GROUPS else _GROUPS
    asked = _engram.Query(f"exists({_written(other, key)}) limit 1")
    if not asked.count(namespace, namespace.root):
        return ""
    have = "objects have" if other == _OBJECTS else "groups above objects have"
    return f", but {have}: write {_written(other, key)}"


def nearest(key: str, keys: list[str]) -> str | None:
    """Find the key that is most like another: first one that differs in case alone."""
    import difflib  # noqa: PLC0415 - for what is seldom told

    folded = {each.casefold(): each for each in reversed(keys[:_COMPARED])}
    near = difflib.get_close_matches(key.casefold(), folded, 1, _CLOSE)
    return folded[near[0]] if near else None


def _keys_of_groups(namespace: _engram.Namespace) -> list[str]:
    """Give the keys of the groups above some objects, in order."""
    oids = _engram.Query(f"limit {_SAMPLES}").oids(namespace, namespace.root)
    looked: set[int] = set()
    keys: set[str] = set()
    for info in _engram.object_infos(namespace, oids):
        group = None if info is None else info.parent
        while group is not None and group not in looked:
            looked.add(group)
            keys.update(_engram.attr_names(namespace, True, group))
            above = group != namespace.root
            group = _engram.group_info(namespace, group).parent if above else None
    return sorted(keys)


def _written(kind: int, key: str) -> str:
    """Write a key as the language has it."""
    return str(group_attr(key) if kind == _GROUPS else attr(key))
