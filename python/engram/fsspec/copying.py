"""Copies of members, within a pool or into another: with attributes, and what is said of them."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, NamedTuple

from engram import _engram
from engram.formats import origin
from engram.fsspec.entry import BLOB
from engram.fsspec.tree import at
from engram.handle import make
from engram.member import new_member

if TYPE_CHECKING:
    from engram._engram import _Found
    from engram.fsspec.place import Place

_BY_ID = (origin.MEMBERS, "aliases")
"""Words of a group that know members by their ids, which those of a copy have not."""


class Said(NamedTuple):
    """What is said of a group: its attributes, and the words of its origin."""

    attrs: dict[str, Any] | None = None
    origin: bytes = b""


def said_of_group(source: Place, group: int) -> Said:
    """Return what a copy of a group has of it beside its members."""
    words = origin.decode(_engram.group_info(source.namespace, group).origin)
    kept = {name: fact for name, fact in words.items() if name not in _BY_ID}
    if isinstance(links := kept.get("links"), dict):
        kept["links"] = {name: link for name, link in links.items() if "alias" not in link}
    return Said(dict(_engram.attr_items(source.namespace, True, group)), origin.encode(kept))


def copy_object(source: Place, found: _Found, target: Place) -> None:
    """Copy a file or an array; it replaces what is there.

    Raises
    ------
    LookupError
        If it is gone.

    """
    info = _engram.object_info(source.namespace, found[1])
    above = origin.decode(_engram.group_info(source.namespace, info.parent).origin)
    words = origin.with_later(origin.decode(info.origin), above, found[1])
    member: Any = make(source.namespace, found)
    new = new_member(
        attrs=dict(member.attrs),
        dims=info.dims,
        chunks=info.chunks,
        codec=info.codec,
        origin=origin.encode(words),
        overwrite=True,
    )
    if found[0] == BLOB:
        _engram.put_blob(*at(target), target.inner, member.view(), new)
    else:
        _engram.put_array(*at(target), target.inner, member, new)
