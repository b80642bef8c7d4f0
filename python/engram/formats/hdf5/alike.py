"""Which objects of a tree were one object of a file, and still are alike: they become links.

An import copies an object once for each of its hard links, and keeps its address in the file. What
has the same address, and the same attributes and values to the last byte, is written once and
linked. If either was changed since, they are written as two.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

from engram.formats.blocks import index, regions
from engram.formats.target import ArrayItem, GroupItem

if TYPE_CHECKING:
    from engram.formats.target import Item, Tree

Array = np.ndarray[Any, Any]
Children = dict[str, dict[str, "Item"]]


def children(tree: Tree) -> Children:
    """Return the members of each group, by the group's path and their names, in order."""
    found: Children = {}
    for item in tree.items:
        if isinstance(item, GroupItem):
            found[item.path] = {}
        if item.path:
            above, _, name = item.path.rpartition("/")
            found[above][name] = item
    return found


def address(item: Item) -> int | None:
    """Return where an object was in its file, if it had several names there."""
    found = item.origin.get("object")
    return found if isinstance(found, int) else None


def links(item: GroupItem) -> dict[str, dict[str, Any]]:
    """Return the links of a group that were not followed, by name."""
    found = item.origin.get("links")
    if not isinstance(found, dict):
        return {}
    return {name: fact for name, fact in found.items() if isinstance(fact, dict)}


def are_alike(one: Item, other: Item, members: Children) -> bool:
    """Whether two groups or arrays are alike, with all that is in them."""
    waiting = [(one, other)]
    while waiting:
        left, right = waiting.pop()
        if isinstance(left, ArrayItem) and isinstance(right, ArrayItem):
            if not _alike_arrays(left, right):
                return False
        elif isinstance(left, GroupItem) and isinstance(right, GroupItem):
            pairs = _pairs(left, right, members)
            if pairs is None or not _alike_attributes(left, right):
                return False
            waiting += pairs
        else:
            return False
    return True


def _pairs(left: GroupItem, right: GroupItem, members: Children) -> list[tuple[Item, Item]] | None:
    """Return the members of two groups by pairs; None if they do not have the same ones."""
    ours, theirs = members[left.path], members[right.path]
    our_links, their_links = links(left), links(right)
    pairs: list[tuple[Item, Item]] = []
    for name in {**ours, **theirs, **our_links, **their_links}:
        if name in ours and name in theirs:
            pairs.append((ours[name], theirs[name]))
        else:
            at = [
                group[name].origin.get("object")
                if name in group
                else told.get(name, {}).get("hard")
                for group, told in ((ours, our_links), (theirs, their_links))
            ]
            same_link = our_links.get(name) == their_links.get(name) and name in our_links
            if not same_link and (at[0] is None or at[0] != at[1]):
                return None
    return pairs


def _alike_attributes(left: Item, right: Item) -> bool:
    """Whether two objects have the same attributes."""
    if left.attrs.keys() != right.attrs.keys():
        return False
    return all(_alike_values(left.attrs[name], right.attrs[name]) for name in left.attrs)


def _alike_values(left: Any, right: Any) -> bool:
    """Whether two values are the same, to the last byte."""
    if isinstance(left, str) or isinstance(right, str):
        return type(left) is type(right) and bool(left == right)
    return same_bytes(np.asarray(left), np.asarray(right))


def same_bytes(one: Array, other: Array) -> bool:
    """Whether two arrays are of one dtype and shape, and have the same bytes in each field.

    The order of fields says nothing: HDF5 changes it when it converts values.
    """
    if one.shape != other.shape:
        return False
    if one.dtype.names is not None and other.dtype.names is not None:
        names = sorted(one.dtype.names)
        return names == sorted(other.dtype.names) and all(
            same_bytes(one[name], other[name]) for name in names
        )
    if one.dtype != other.dtype:
        return False
    if one.dtype.kind in "TO":
        pairs = zip(one.reshape(-1).tolist(), other.reshape(-1).tolist(), strict=True)
        return all(_same_objects(left, right) for left, right in pairs)
    if one.dtype.char in "gG":  # of whose 16 bytes 6 are of no value
        return np.array_equal(one, other, equal_nan=True)
    return one.tobytes() == other.tobytes()


def _same_objects(left: object, right: object) -> bool:
    """Whether two strings, or two sequences, are the same."""
    if isinstance(left, np.ndarray) and isinstance(right, np.ndarray):
        return same_bytes(left, right)
    return bool(left == right)


def _alike_arrays(left: ArrayItem, right: ArrayItem) -> bool:
    """Whether two arrays have the same attributes and values, compared in pieces."""
    stated = [(i.shape, i.dims, i.is_blob) for i in (left, right)]
    if stated[0] != stated[1] or not _alike_attributes(left, right):
        return False
    if not same_bytes(np.empty(0, left.dtype), np.empty(0, right.dtype)):
        return False
    one, other = left.load(), right.load()
    return all(
        _alike_values(one[index(region)], other[index(region)])
        for region in regions(left.shape, None, left.dtype.itemsize)
    )
