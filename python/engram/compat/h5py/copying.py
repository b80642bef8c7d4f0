"""Copies of groups and datasets, with attributes and what is said of them."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, NamedTuple

from engram import _engram
from engram.batch import Batch
from engram.compat.h5py import links, words
from engram.compat.h5py.links import Spot
from engram.formats import origin
from engram.handle import make
from engram.member import new_member

if TYPE_CHECKING:
    from engram.compat.h5py.base import HLObject
    from engram.compat.h5py.file import File

_OWN = ("source", "aliases", "members", "superblock", "user_block")
"""Words of a group that a copy of it does not have."""


class How(NamedTuple):
    """What of an object is copied."""

    shallow: bool
    expand_soft: bool
    without_attrs: bool


def copy(source: HLObject, file: File, at: Spot, how: How) -> None:
    """Copy an object to a name of another group, or of another file: all of it, or nothing."""
    with Batch(file._ns):
        if source._is_group:
            _group(source._file, source._id, (file, at), how, depth=0)
        else:
            _object(source._file, source._id, (file, at), how)


def _object(source: File, oid: int, to: tuple[File, Spot], how: How) -> None:
    file, at = to
    info = _engram.object_info(source._ns, oid)
    found = _engram.find(source._ns, info.parent, info.name)
    if found is None:
        return
    member: Any = make(source._ns, found)
    attrs = None if how.without_attrs else dict(member.attrs)
    place = (file._ns, at.gid, at.name)
    if found[0] == 2:  # noqa: PLR2004 - a blob
        _engram.put_blob(*place, member.view(), new_member(attrs=attrs, origin=info.origin))
        return
    new = new_member(
        attrs=attrs, dims=info.dims, chunks=info.chunks, codec=info.codec, origin=info.origin
    )
    made = _engram.put_array(*place, member, new)
    words.carry(source._ns, info.parent, oid, (file._ns, at.gid, made[1]))


def _group(source: File, gid: int, to: tuple[File, Spot], how: How, depth: int) -> None:
    file, at = to
    said = origin.decode(_engram.group_info(source._ns, gid).origin)
    kept = {name: fact for name, fact in said.items() if name not in _OWN}
    linked = kept.pop(links.LINKS, {})
    soft = {n: link for n, link in linked.items() if "soft" in link and not how.expand_soft}
    if soft:
        kept[links.LINKS] = soft
    attrs = None if how.without_attrs else dict(_engram.attr_items(source._ns, True, gid))
    place = (file._ns, at.gid, at.name)
    new = _engram.create_group(*place, attrs=attrs, origin=origin.encode(kept), exist_ok=False)
    if how.shallow and depth:
        return
    members, after = [], None
    while True:
        page, after = _engram.members(source._ns, gid, after, 1024)
        members += page
        if after is None:
            break
    for name in linked.keys() - soft.keys():
        led = source._way.follow(Spot(gid, name))
        if led is not None:
            members.append((name, led))
    for name, found in members:
        inner = (file, Spot(new, name))
        if found[1] == new:  # a group that is copied into itself
            continue
        if found[0] == 0:
            _group(source, found[1], inner, how, depth + 1)
        else:
            _object(source, found[1], inner, how)
