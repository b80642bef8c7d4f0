"""Copies of members, within a pool or into another: with attributes, and what is said of them."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, NamedTuple

from engram import _engram, copying
from engram.copying import Spot
from engram.formats import origin
from engram.fsspec.tree import at

if TYPE_CHECKING:
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


def copy_object(source: Place, target: Place) -> None:
    """Copy a file or an array; it replaces what is there.

    Raises
    ------
    LookupError
        If it is gone.

    """
    copying.copy(Spot(*at(source), source.inner), Spot(*at(target), target.inner), overwrite=True)
