"""From a pool to a tree: what an export is asked for, walked once, each object as it is then.

What is exported is a group with all that is in it, one object, or any objects of one namespace (a
query's result), which keep the groups that they are in. Objects that are deleted during the walk
are left out, as if the walk had been later; values of extents are pinned by it.
"""

from __future__ import annotations

import functools
from collections.abc import Iterable
from typing import TYPE_CHECKING, Any

import numpy as np

from engram.blob import Blob
from engram.errors import ArgumentError, BusyError, NotFoundError
from engram.formats import origin
from engram.formats.blocks import index
from engram.formats.target import ArrayItem, GroupItem, Tree
from engram.group import Group
from engram.handle import Handle
from engram.pool import Pool

if TYPE_CHECKING:
    from collections.abc import Iterator

    from engram.array import Array
    from engram.formats.blocks import Region
    from engram.formats.select import Selection
    from engram.formats.target import Item

    Exported = Group | Array | Blob | Iterable[Array | Blob]


def gather(source: Exported, selection: Selection) -> Tree:
    """Return what of `source` the selection wants, as a tree.

    Raises
    ------
    ArgumentError
        `source` is nothing that can be exported.
    NotFoundError
        It is gone, or the selection meets nothing.

    """
    name, members, asked = _members(source)
    wanted = selection.chosen([path for path, _ in members])
    items: list[Item] = []
    for path, member in members:
        if path not in wanted:
            continue
        try:
            items.append(_item(path, member, selection, asked=asked is None or path in asked))
        except NotFoundError:
            if not path or member is source:
                raise
    selection.check_dims()
    return Tree(_with_groups(items, wanted), name)


def _members(source: Exported) -> tuple[str, list[tuple[str, Any]], set[str] | None]:
    """Return the name of the whole, each member with its path, parents first, and what was asked.

    The last are the paths that were asked for, where others are there only as places; else None.
    """
    if isinstance(source, Group):
        return _path_of(source), [("", source), *_below(source)], None
    if isinstance(source, Handle):
        return source.path, [("", source.parent), (source.name, source)], {source.name}
    if not isinstance(source, Iterable) or isinstance(source, str | bytes):
        message = f"{source!r} cannot be exported: give a group, an array, or objects of a pool"
        raise ArgumentError(message)
    found: dict[str, Any] = {}
    asked: set[str] = set()
    for member in source:
        if not isinstance(member, Handle):
            message = f"{member!r} cannot be exported: give objects of a pool"
            raise ArgumentError(message)
        asked |= _add_with_groups(found, member)
    if not found:
        message = "there is nothing to export: of the objects given, none is there"
        raise ArgumentError(message)
    ordered = sorted(found, key=lambda p: p.split("/"))
    return "objects", [(path, found[path]) for path in ordered], asked


def _add_with_groups(found: dict[str, Any], member: Handle) -> set[str]:
    """Add one of several members, the groups that it is in, and what is in it; none if it is gone.

    Returns
    -------
    The paths that were asked for with it: its own, and those of what is in it.

    Raises
    ------
    ArgumentError
        It is of another namespace than the first one.

    """
    root = found.get("")
    if root is not None and (root.namespace != member.namespace or not _same_pool(root, member)):
        message = (
            f"{member!r} is of another namespace than the others, {root.namespace!r}: export "
            "each namespace's objects by themselves"
        )
        raise ArgumentError(message)
    chain: dict[str, Any] = {}
    asked: dict[str, Any] = {}
    try:
        above, path = member, _path_of(member)
        asked[path] = member
        prefix = f"{path}/" if path else ""
        while path not in found and path not in chain:
            chain[path] = above
            above = above.parent
            path = path.rpartition("/")[0]
        if isinstance(member, Group):
            asked.update(_below(member, prefix))
    except NotFoundError:
        return set()
    found.update(chain)
    found.update(asked)
    return set(asked)


def _path_of(member: Handle) -> str:
    """Return a member's path in its namespace; a pool is the root of one."""
    return "" if isinstance(member, Pool) else member.path


def _same_pool(one: Handle, other: Handle) -> bool:
    """Whether two handles are of the same pool."""
    return one._realm.same_pool(other._realm)


def _below(group: Group, prefix: str = "") -> Iterator[tuple[str, Any]]:
    """Yield what is in a group, all the way down, in the order of the file it came from."""
    waiting = [(prefix, group)]
    while waiting:
        at, inner = waiting.pop()
        members = dict(inner._members_if_there())
        try:
            order = origin.decode(inner._origin).get("order")
        except NotFoundError:  # deleted meanwhile, after its members or before
            if inner is group:
                raise
            order = None
        members = _in_order(members, order)
        for name, member in members.items():
            yield at + name, member
        waiting += [
            (f"{at}{name}/", member)
            for name, member in reversed(members.items())
            if isinstance(member, Group)
        ]


def _in_order(found: dict[str, Any], order: object) -> dict[str, Any]:
    """Return a mapping in the order that an origin tells of; what it does not know comes last."""
    if not isinstance(order, list):
        return found
    known = dict.fromkeys(name for name in order if isinstance(name, str) and name in found)
    return {name: found[name] for name in {**known, **dict.fromkeys(found)}}


def _item(path: str, member: Any, selection: Selection, *, asked: bool) -> Item:
    """Return a member as it is now."""
    facts = origin.decode(member._origin)
    kept = {name: _without_gaps(value) for name, value in member.attrs.items()}
    attrs = _in_order(kept, facts.get("attribute_order"))
    if isinstance(member, Group):
        return GroupItem(path, attrs, facts, asked)
    is_blob = isinstance(member, Blob)
    dims = None if is_blob else member.dims
    dtype = np.dtype(np.uint8) if is_blob else member.dtype
    whole = (member.nbytes,) if is_blob else member.shape
    region = selection.region(dims, whole)
    shape = tuple(len(range(*part.indices(n))) for part, n in zip(region, whole, strict=True))
    if dtype.kind == "T":
        load = functools.partial(_load_text, member, region)
    else:
        values = np.asarray(member)[index(region)]
        load = functools.partial(np.ndarray.view, values)
    return ArrayItem(path, shape, dtype, dims, attrs, facts, load, is_blob)


def _without_gaps(value: Any) -> Any:
    """Return a record with zeros between its fields: numpy leaves whatever stood in memory there.

    No file should hold that, and two exports of the same should be the same.
    """
    if not isinstance(value, np.void) or value.dtype.names is None:
        return value
    clean: np.ndarray[Any, Any] = np.zeros((), value.dtype)
    clean[()] = value
    return clean


def _load_text(member: Array, region: Region) -> np.ndarray[Any, Any]:
    """Read strings, which are decoded when they are written and not before."""
    try:
        read = member[...]  # numpy would copy strings to make sure of their dtype
        values = read if isinstance(read, np.ndarray) else np.array(read, dtype=member.dtype)
    except NotFoundError:
        message = f"{member!r} was replaced while it was exported; export again"
        raise BusyError(message) from None
    found: np.ndarray[Any, Any] = values[index(region)]
    return found


def _with_groups(items: list[Item], wanted: set[str]) -> list[Item]:
    """Return the items without those whose group is no longer there."""
    there: set[str] = set()
    kept: list[Item] = []
    for item in items:
        above = item.path.rpartition("/")[0]
        if item.path and above not in there and above in wanted:
            continue
        if isinstance(item, GroupItem):
            there.add(item.path)
        kept.append(item)
    return kept
