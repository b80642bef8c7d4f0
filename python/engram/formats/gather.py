"""From a pool to a tree: what an export is asked for, walked once, each object as it is then.

What is exported is a group with all that is in it, one object, or any objects of one namespace (a
query's result), which keep the groups that they are in. Objects that are deleted during the walk
are left out, as if the walk had been later; values of extents are pinned by it.

A name that the walk has listed is left out only if it is gone, not if what it stood for was
replaced: then it is looked up again, and all of it taken anew, so that an item's attributes, shape
and values are always of one object.
"""

from __future__ import annotations

import functools
from collections.abc import Iterable
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from engram import nested
from engram.blob import Blob
from engram.errors import ArgumentError, BusyError, NotFoundError
from engram.formats import origin
from engram.formats.blocks import index
from engram.formats.target import ArrayItem, GroupItem, Tree
from engram.group import Group
from engram.handle import Handle
from engram.pool import Pool

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from engram.array import Array
    from engram.formats.blocks import Region
    from engram.formats.select import Selection
    from engram.formats.source import Origin
    from engram.formats.target import Item

    Exported = Group | Array | Blob | Iterable[Array | Blob]

_TRIES = 1000
"""So often is a name looked up that is replaced each time before it has been read."""

_SHORT_TEXT_BYTES = 16 << 10
"""Strings of no more bytes are decoded at once: nothing that happens later changes them."""

_OFFSET_BYTES = 8

_LEVEL = 4
"""zlib's level for what is encoded in another way here."""


class _Listed(NamedTuple):
    """A member as it was listed, and how to look its name up again; None if it has no name here."""

    member: Any
    again: Callable[[], Any] | None


def gather(source: Exported, selection: Selection) -> Tree:
    """Return what of `source` the selection wants, as a tree.

    Raises
    ------
    ArgumentError
        `source` is nothing that can be exported.
    NotFoundError
        It is gone, or the selection meets nothing.
    BusyError
        A name is replaced faster than it can be read, or an array by a group.

    """
    name, members, asked = _members(_plain(source))
    wanted = selection.chosen([path for path, _ in members])
    items: list[Item] = []
    for path, listed in members:
        if path not in wanted:
            continue
        try:
            is_asked = asked is None or path in asked
            items.append(_taken(path, listed, selection, asked=is_asked))
        except NotFoundError:
            if not path or listed.member is source:
                raise
    selection.check_dims()
    return Tree(_with_groups(items, wanted), name)


def _taken(path: str, listed: _Listed, selection: Selection, *, asked: bool) -> Item:
    """Return a member as it is now, or what has taken its name since it was listed."""
    member = listed.member
    for _ in range(_TRIES):
        try:
            return _item(path, member, selection, asked=asked)
        except NotFoundError:
            found = None if listed.again is None else _plain(listed.again())
            if found is None:
                raise
        if isinstance(found, Group) and not isinstance(member, Group):
            message = f"{path!r} became a group while it was exported; export again"
            raise BusyError(message)
        member = found
    message = f"{path!r} is replaced faster than it can be read; export it when that has ended"
    raise BusyError(message)


def _members(source: Exported) -> tuple[str, list[tuple[str, _Listed]], set[str] | None]:
    """Return the name of the whole, each member with its path, parents first, and what was asked.

    The last are the paths that were asked for, where others are there only as places; else None.
    """
    if isinstance(source, Group):
        return _path_of(source), [("", _Listed(source, None)), *_below(source)], None
    if isinstance(source, Handle):
        members = [("", _Listed(source.parent, None)), (source.name, _Listed(source, None))]
        return source.path, members, {source.name}
    if not isinstance(source, Iterable) or isinstance(source, str | bytes):
        message = f"{source!r} cannot be exported: give a group, an array, or objects of a pool"
        raise ArgumentError(message)
    found: dict[str, _Listed] = {}
    asked: set[str] = set()
    for member in map(_plain, source):
        if not isinstance(member, Handle):
            message = f"{member!r} cannot be exported: give objects of a pool"
            raise ArgumentError(message)
        asked |= _add_with_groups(found, member)
    if not found:
        message = "there is nothing to export: of the objects given, none is there"
        raise ArgumentError(message)
    ordered = sorted(found, key=lambda p: p.split("/"))
    return "objects", [(path, found[path]) for path in ordered], asked


def _add_with_groups(found: dict[str, _Listed], member: Handle) -> set[str]:
    """Add one of several members, the groups that it is in, and what is in it; none if it is gone.

    Returns
    -------
    The paths that were asked for with it: its own, and those of what is in it.

    Raises
    ------
    ArgumentError
        It is of another namespace than the first one.

    """
    root = found[""].member if "" in found else None
    if root is not None and (root.namespace != member.namespace or not _same_pool(root, member)):
        message = (
            f"{member!r} is of another namespace than the others, {root.namespace!r}: export "
            "each namespace's objects by themselves"
        )
        raise ArgumentError(message)
    chain: dict[str, _Listed] = {}
    asked: dict[str, _Listed] = {}
    try:
        above, path = member, _path_of(member)
        asked[path] = _Listed(member, None)
        prefix = f"{path}/" if path else ""
        while path not in found and path not in chain:
            chain[path] = _Listed(above, None)
            above = above.parent
            path = path.rpartition("/")[0]
        if isinstance(member, Group):
            asked.update(_below(member, prefix))
    except NotFoundError:
        return set()
    found.update(chain)
    found.update(asked)
    return set(asked)


def _plain(member: Any) -> Any:
    """Return a member as files have it: of a table the group that it lies in."""
    if isinstance(member, Handle) and member._is_group and not isinstance(member, Group):
        return Group(member._namespace, member._id)
    return member


def _path_of(member: Handle) -> str:
    """Return a member's path in its namespace; a pool is the root of one."""
    return "" if isinstance(member, Pool) else member.path


def _same_pool(one: Handle, other: Handle) -> bool:
    """Whether two handles are of the same pool."""
    return one._namespace.same_pool(other._namespace)


def _below(group: Group, prefix: str = "") -> Iterator[tuple[str, _Listed]]:
    """Yield what is in a group, all the way down, in the order of the file it came from."""
    waiting = [("", group)]
    while waiting:
        at, inner = waiting.pop()
        members = _listed(group, at, inner)
        for name, member in members.items():
            again = functools.partial(group.get, at + name)
            yield prefix + at + name, _Listed(member, again)
        waiting += [
            (f"{at}{name}/", member)
            for name, member in reversed(members.items())
            if isinstance(member, Group)
        ]


def _listed(group: Group, at: str, inner: Any) -> dict[str, Any]:
    """Return the members of a group below another, or of that which has its name by now."""
    for _ in range(_TRIES):
        try:
            members = {name: _plain(member) for name, member in inner._members()}
            return _in_order(members, origin.decode(inner._origin).get("order"))
        except NotFoundError:  # deleted meanwhile, after its members or before
            if inner is group:
                raise
            inner = _plain(group.get(at[:-1]))
        if not isinstance(inner, Group):
            break
    return {}


def _in_order(found: dict[str, Any], order: object) -> dict[str, Any]:
    """Return a mapping in the order that an origin tells of; what it does not know comes last."""
    if not isinstance(order, list):
        return found
    known = dict.fromkeys(name for name in order if isinstance(name, str) and name in found)
    return {name: found[name] for name in {**known, **dict.fromkeys(found)}}


def _item(path: str, member: Any, selection: Selection, *, asked: bool) -> Item:
    """Return a member as it is now."""
    facts = origin.decode(member._origin)
    if not isinstance(member, Group):
        facts = _with_later(member, facts)
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
    text_nbytes = None
    if dtype.kind == "T":
        load = functools.partial(_load_text, member, region)
        text_nbytes = _text_nbytes(member, region, shape)
        if member.nbytes <= _SHORT_TEXT_BYTES:
            load = functools.partial(np.ndarray.view, _text(member, region))
    elif not is_blob and member.chunks is not None:
        facts = _as_stored(member, facts)
        load = functools.partial(_load_chunked, member, region, whole)
    else:
        values = np.asarray(member)[index(region)]
        load = functools.partial(np.ndarray.view, values)
    return ArrayItem(path, shape, dtype, dims, attrs, facts, load, is_blob, text_nbytes)


def _with_later(member: Array | Blob, facts: Origin) -> Origin:
    """Return an object's origin with what its group has of it."""
    above = member.parent._origin
    if f'"{origin.MEMBERS}"'.encode() not in above:
        return facts
    return origin.with_later(facts, origin.decode(above), member.oid)


def _as_stored(member: Array, facts: Origin) -> Origin:
    """Return an origin that says how a chunked array is kept here, where it says nothing else.

    Of HDF5's codecs all can read zlib's alone: it stands for any.
    """
    stored: Origin = {"chunks": list(member.chunks or ())}
    if member.codec not in (None, "none") and not {"filters", "codecs", "zarr"} & set(facts):
        shuffled = str(member.codec).startswith("shuffle+")
        stored["filters"] = {"shuffle": shuffled, "zlib": True, "complevel": _LEVEL}
    return stored | facts


def _load_chunked(member: Array, region: Region, shape: tuple[int, ...]) -> np.ndarray[Any, Any]:
    """Read a region of a chunked array: when it is written, not before."""
    try:
        if member.shape == shape:
            return np.asarray(member[index(region)])
    except NotFoundError:
        pass
    message = f"{member!r} was resized or replaced while it was exported; export again"
    raise BusyError(message)


def _without_gaps(value: Any) -> Any:
    """Return a record with zeros between its fields: numpy leaves whatever stood in memory there.

    No file should hold that, and two exports of the same should be the same. A tree is the record
    that it is in the pool.
    """
    if isinstance(value, dict | list):
        return nested.encode("", value)
    if not isinstance(value, np.void) or value.dtype.names is None:
        return value
    clean: np.ndarray[Any, Any] = np.zeros((), value.dtype)
    clean[()] = value
    return clean


def _text_nbytes(member: Array, region: Region, shape: tuple[int, ...]) -> int:
    """Return how many bytes of UTF-8 a region of strings has, whose shape is this."""
    if shape != member.shape:
        return sum(len(value.encode()) for value in _text(member, region).flat)
    # The pool keeps the bytes behind the offsets of each string and of the end.
    return int(member.nbytes) - (_OFFSET_BYTES * (member.size + 1) if shape else 0)


def _text(member: Array, region: Region) -> np.ndarray[Any, Any]:
    """Read a region of strings."""
    read = member[...]  # numpy would copy strings to make sure of their dtype
    values = read if isinstance(read, np.ndarray) else np.array(read, dtype=member.dtype)
    found: np.ndarray[Any, Any] = values[index(region)]
    return found


def _load_text(member: Array, region: Region) -> np.ndarray[Any, Any]:
    """Read long strings, which are decoded when they are written and not before."""
    try:
        return _text(member, region)
    except NotFoundError:
        message = f"{member!r} was replaced while it was exported; export again"
        raise BusyError(message) from None


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
