"""Dimension scales of a file to be written: which datasets are scales, and of which axes.

An HDF5 file had its scales where its origin says. Arrays of a netCDF file, and what was put beside
them, have names of dimensions that a group's origin tells of: the scale of such a dimension is the
variable of its name, or, as in netCDF-4, a dataset that only stands for it. Other names of
dimensions are labels alone.
"""

from __future__ import annotations

import dataclasses
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from engram.formats.target import ArrayItem, GroupItem

if TYPE_CHECKING:
    from engram.formats.source import Origin
    from engram.formats.target import Item, Tree

NO_VARIABLE = "This is a netCDF dimension but not a netCDF variable."


def as_hdf5(item: Item) -> Item:
    """Return an item with the origin that it had as HDF5, where it was read as netCDF from that."""
    facts = item.origin.get("hdf5")
    if not isinstance(facts, dict):
        return item
    words = ("source", "types", "dimensions", "order")
    kept: Origin = {name: item.origin[name] for name in words if name in item.origin}
    return dataclasses.replace(item, origin={**kept, **facts, "format": "HDF5"})


@dataclass(slots=True)
class Scales:
    """The scales of a tree.

    Attributes
    ----------
    names
        The scales that are arrays, by path, each with its own name.
    attached
        Of each array that has scales: of each axis, the paths of its scales.
    bare
        The scales that only stand for a dimension, by path, with its length and whether it grows.

    """

    names: dict[str, str] = field(default_factory=dict)
    attached: dict[str, list[list[str]]] = field(default_factory=dict)
    bare: dict[str, tuple[int, bool]] = field(default_factory=dict)


def scales(tree: Tree) -> Scales:
    """Return the scales that a tree's origins tell of."""
    found = Scales()
    items = {item.path: item for item in tree.items}
    for item in tree.arrays:
        if "scale" in item.origin and len(item.shape) == 1:
            found.names[item.path] = str(item.origin["scale"] or "")
        told = item.origin.get("scales")
        if isinstance(told, list) and len(told) == len(item.shape):
            _as_told(found, items, item, told, tree)
        elif item.dims and "labels" not in item.origin and item.path not in found.names:
            _by_names(found, items, item, tree)
    for group in tree.groups:
        _unused(found, items, group)
    return found


def import_root(items: dict[str, Item], path: str) -> str:
    """Return the group that a file was imported into, as what its paths begin with."""
    while True:
        item = items.get(path)
        if isinstance(item, GroupItem) and "source" in item.origin:
            return f"/{path}" if path else ""
        if not path:
            return ""
        path = path.rpartition("/")[0]


def dimension(items: dict[str, Item], path: str, name: str) -> tuple[str, bool] | None:
    """Return the group that a dimension of an array belongs to, and whether it is unlimited."""
    while path:
        path = path.rpartition("/")[0]
        group = items.get(path)
        told = group.origin.get("dimensions") if group is not None else None
        if isinstance(told, dict) and isinstance(told.get(name), dict):
            return path, bool(told[name].get("unlimited"))
    return None


def _as_told(
    found: Scales, items: dict[str, Item], item: ArrayItem, told: list[Any], tree: Tree
) -> None:
    """Take an array's scales as they were in its file, of which the tree may be a part."""
    root = import_root(items, item.path)
    is_part = not root and "source" not in tree.root.origin
    axes = [
        [_within(tree.name, name) if is_part else f"{root}{name}".strip("/") for name in names]
        for names in ([name for name in each if name] for each in told)
    ]
    found.attached[item.path] = axes
    for length, paths in zip(item.shape, axes, strict=True):
        for path in paths:
            if path not in items:
                known = dimension(items, path, path.rpartition("/")[2])
                if known is not None:
                    found.bare[path] = length, known[1]


def _within(part: str, name: str) -> str:
    """Return a path of a file as a path of a part of it, whose own path ends as it does there."""
    path, names = name.strip("/"), part.split("/")
    for first in range(len(names)):
        begun = "/".join(names[first:]) + "/"
        if path.startswith(begun):
            return path.removeprefix(begun)
    return path


def _by_names(found: Scales, items: dict[str, Item], item: ArrayItem, tree: Tree) -> None:
    """Find an array's scales by the names of its dimensions: for all of them, or none."""
    paths: list[str] = []
    bare: dict[str, tuple[int, bool]] = {}
    for name, length in zip(item.dims or (), item.shape, strict=True):
        known = dimension(items, item.path, name)
        if known is None:
            return
        path = f"{known[0]}/{name}".strip("/")
        scale = items.get(path)
        if scale is None:
            bare[path] = length, known[1]
            if found.bare.get(path, bare[path]) != bare[path]:
                return
        elif not _is_coordinate(scale, name, length):
            why = f"are labels, not scales: /{path} has the name of one, and is no coordinate of it"
            tree.note(item.path, "dimensions", why)
            return
        paths.append(path)
    found.bare.update(bare)
    if paths == [item.path]:
        found.names[item.path] = item.path.rpartition("/")[2]
        return
    for path in paths:
        if path not in found.bare:
            found.names[path] = path.rpartition("/")[2]
    found.attached[item.path] = [[path] for path in paths]


def _unused(found: Scales, items: dict[str, Item], group: GroupItem) -> None:
    """Add the dimensions of a group that no array has."""
    told = group.origin.get("dimensions")
    for name, fact in told.items() if isinstance(told, dict) else ():
        path = f"{group.path}/{name}".strip("/")
        if path not in items and path not in found.bare and isinstance(fact.get("size"), int):
            found.bare[path] = fact["size"], bool(fact.get("unlimited"))


def _is_coordinate(item: Item, name: str, length: int) -> bool:
    """Whether an item is the coordinate variable of a dimension."""
    return isinstance(item, ArrayItem) and item.dims == (name,) and item.shape == (length,)
