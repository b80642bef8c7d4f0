"""Arrays of their parts again: the groups that `parts` makes of an import, for an export.

A group is written as the dataset that it came from if its origin tells of one, and it still has the
very arrays that such a type becomes, of the same lengths. Else it is written as the group that it
is, and a note says so. Values are put together a bounded piece at a time.
"""

from __future__ import annotations

import base64
import dataclasses
from typing import TYPE_CHECKING, Any

import h5py
import numpy as np
from h5py import h5t

from engram.formats.blocks import index
from engram.formats.hdf5.low import joined
from engram.formats.hdf5.parts import NUMBERS, SEQUENCES, TEXT, parts
from engram.formats.origin import SPLIT
from engram.formats.ragged import OFFSETS, VALUES, problem
from engram.formats.target import ArrayItem, GroupItem

if TYPE_CHECKING:
    from collections.abc import Callable

    from engram.formats.blocks import Region
    from engram.formats.hdf5.parts import Part
    from engram.formats.target import Item, Tree

    Array = np.ndarray[Any, Any]
    Shape = tuple[int, ...]


class _Changed(Exception):  # noqa: N818 - an answer within an export
    """A group no longer has the parts of its dataset; says why."""


def rejoined(tree: Tree, wanted: Callable[[GroupItem], bool] = lambda _: True) -> Tree:
    """Return a tree with arrays for the groups that are their parts, of those that are wanted."""
    tree = _named(tree)
    below: dict[str, dict[str, Item]] = {
        group.path: {}
        for group in tree.groups
        if group.path
        and isinstance(group.origin.get(SPLIT), dict)
        and str(group.origin.get("format")).startswith(("HDF5", "NETCDF4"))
        and wanted(group)
    }
    for item in tree.items if below else ():
        for path, members in below.items():
            if item.path.startswith(path + "/"):
                members[item.path] = item
    arrays: dict[str, ArrayItem] = {}
    gone: set[str] = set()
    for group in tree.groups:
        if group.path in below:
            try:
                arrays[group.path] = _joined(group, below[group.path])
                gone |= below[group.path].keys()
            except _Changed as why:
                tree.note(group.path, "group", f"written as its parts, which it is here: {why}")
    items: list[Item] = [arrays.get(i.path, i) for i in tree.items if i.path not in gone]
    return dataclasses.replace(tree, items=items)


def _named(tree: Tree) -> Tree:
    """Return a tree whose root is not itself an array's group: that stands in it, by its name."""
    name = tree.name.rpartition("/")[2]
    if SPLIT not in tree.root.origin or not name:
        return tree
    moved = [dataclasses.replace(item, path=joined(name, item.path)) for item in tree.items[1:]]
    whole = dataclasses.replace(tree.root, path=name)
    return dataclasses.replace(tree, items=[GroupItem("", {}, {}), whole, *moved])


def _joined(group: GroupItem, members: dict[str, Item]) -> ArrayItem:
    """Return the array that a group's members are the parts of."""
    told = group.origin[SPLIT]
    tid = _type(told)
    found = parts(tid)
    if found is None or found.left_out:
        raise _Changed("a part of its type has no like in a pool")
    base, inner = _elements(tid)
    expected = {joined(group.path, path) for path in found.groups}
    pieces: list[_Piece] = []
    for part in found.arrays:
        at = joined(group.path, part.path) if part.path else group.path
        pieces.append(_Sequences(at, part, members) if part.form == SEQUENCES else
                      _Values(at, part, members))  # fmt: skip
        expected |= pieces[-1].paths | ({at} if part.path and part.form == SEQUENCES else set())
    if members.keys() != expected:
        more = min(members.keys() ^ expected)
        raise _Changed(f"{more.rpartition('/')[2]!r} is missing, or new")
    shapes = {piece.outer for piece in pieces}
    if not _is_scalar(told, shapes) and len(shapes) > 1:
        raise _Changed(f"its parts are of several lengths, {sorted(shapes)}")
    shape = () if _is_scalar(told, shapes) else shapes.pop()
    dims = told.get("dims")
    kept = {name: fact for name, fact in told.items() if name not in {"shape", "dims"}}
    origin = {"attributes": group.origin.get("attributes", {}), **kept}
    item = ArrayItem(
        group.path,
        (*shape, *inner),
        base,
        tuple(dims) if dims and len(dims) == len(shape) and not inner else None,
        group.attrs,
        {**origin, "format": group.origin["format"]},
        lambda: _Whole(pieces, base, shape),  # type: ignore[arg-type,return-value]
    )
    nbytes = sum(m.nbytes if m.text_nbytes is None else m.text_nbytes for m in _arrays(members))
    return dataclasses.replace(item, text_nbytes=nbytes)


def _arrays(members: dict[str, Item]) -> list[ArrayItem]:
    """Return the arrays among a group's members."""
    return [member for member in members.values() if isinstance(member, ArrayItem)]


def _is_scalar(told: dict[str, Any], shapes: set[Shape]) -> bool:
    """Whether the dataset had no axes, and its parts still are of one value."""
    return told.get("shape") == [] and shapes <= {(), (1,)}


def _type(told: dict[str, Any]) -> h5t.TypeID:
    """Return the datatype that an origin tells of."""
    words = told.get("type")
    try:
        return h5t.decode(base64.b64decode(words["hdf5"], validate=True))  # type: ignore[index]
    except (ValueError, RuntimeError, TypeError, KeyError):
        raise _Changed("its origin has no type that HDF5 reads") from None


def _elements(tid: h5t.TypeID) -> tuple[np.dtype[Any], Shape]:
    """Return h5py's dtype of a type's elements, and the axes of array types around them."""
    dtype, inner = tid.dtype, ()
    while dtype.subdtype is not None:
        dtype, axes = dtype.subdtype
        inner += axes
    return dtype, inner


def _array(path: str, members: dict[str, Item]) -> ArrayItem:
    """Return a member that is an array."""
    found = members.get(path)
    if not isinstance(found, ArrayItem) or found.is_blob:
        raise _Changed(f"it has no array {path.rpartition('/')[2]!r}")
    return found


class _Values:
    """A part that is one array."""

    def __init__(self, at: str, part: Part, members: dict[str, Item]) -> None:
        """Take the array, if it is as the part has it."""
        self.part = part
        self._item = item = _array(at, members)
        self.paths = {at}
        rank = len(item.shape) - len(part.inner)
        is_like = item.dtype.kind in "TS" if part.form == TEXT else item.dtype == part.plain
        if rank < 0 or item.shape[rank:] != part.inner or not is_like:
            raise _Changed(f"{at!r} is of shape {item.shape} and dtype {item.dtype}")
        self.outer = item.shape[:rank]
        self._found: Any = None

    def read(self, region: Region) -> Array:
        """Read a region of it."""
        self._found = self._item.load() if self._found is None else self._found
        piece: Array = self._found[index(region)]
        return piece.astype(object) if self.part.form == TEXT else piece


class _Sequences:
    """A part that is two arrays."""

    def __init__(self, at: str, part: Part, members: dict[str, Item]) -> None:
        """Take the two, if they are sequences of what the part has."""
        self.part = part
        offsets = _array(joined(at, OFFSETS), members)
        self._values = values = _array(joined(at, VALUES), members)
        self.paths = {offsets.path, values.path}
        is_text = part.element.kind == "T"
        is_like = values.dtype.kind in "TS" if is_text else values.dtype == part.element
        if len(values.shape) != 1 or not is_like:
            raise _Changed(f"{values.path!r} is of shape {values.shape} and dtype {values.dtype}")
        self._offsets = offsets.load()
        why = problem(self._offsets, values.shape[0])
        if why is not None:
            raise _Changed(why)
        shape = (*self._offsets.shape[:-1], self._offsets.shape[-1] - 1)
        rank = len(shape) - len(part.inner)
        # Of a dataset without axes, one sequence; what is around it says whether it has any.
        if rank < 0 or shape[rank:] != part.inner:
            raise _Changed(f"{offsets.path!r} is of the shape {offsets.shape}")
        self.outer = shape[:rank]
        self._found: Any = None

    def read(self, region: Region) -> Array:
        """Read a region of it: an array of objects."""
        if self._found is None:
            self._found = self._values.load()
        if len(region) < self._offsets.ndim:  # of a dataset without axes
            region = (*region, slice(None))
        starts = self._offsets[..., :-1][index(region)]
        stops = self._offsets[..., 1:][index(region)]
        found = [self._found[a:b] for a, b in zip(starts.flat, stops.flat, strict=True)]
        if self.part.element.kind == "T":
            found = [one.astype(object) for one in found]
        return _objects(found).reshape(starts.shape)


_Piece = _Values | _Sequences


class _Whole:
    """The values of a rejoined array: what is indexed is put together then."""

    def __init__(self, pieces: list[_Piece], dtype: np.dtype[Any], shape: Shape) -> None:
        """Take the pieces of an array of a shape, without the axes of array types."""
        self._pieces = pieces
        self._dtype = dtype
        self._shape = shape

    def __getitem__(self, region: Any) -> Array:
        """Return a region, given as `blocks.index` gives it."""
        *given, _ = region
        outer, inner = tuple(given[: len(self._shape)]), tuple(given[len(self._shape) :])
        lengths = tuple(part.stop - part.start for part in (*outer, *inner))
        made: Array = np.zeros(lengths, self._dtype)
        for piece in self._pieces:
            found = piece.read((*outer, *inner))
            at: Any = made
            for name in piece.part.fields:
                at = at[name]
            _put(at, found, piece.part)
        return made


def _put(at: Array, found: Array, part: Part) -> None:
    """Put the values of a part where they belong in a piece of the whole."""
    if part.form == NUMBERS:
        at[...] = found.reshape(at.shape).view(at.dtype.base)
        return
    base = h5py.check_vlen_dtype(at.dtype) if part.form == SEQUENCES else None
    if base is not None and base.kind != "O":
        # As h5py has the elements: with what it notes of enumerations and the like.
        found = _objects([one.view(base) for one in found.flat])
    at[...] = found.reshape(at.shape)


def _objects(found: list[Any]) -> Array:
    """Return an array of objects, which may be arrays themselves."""
    made: Array = np.empty(len(found), object)
    for place, one in enumerate(found):
        made[place] = one
    return made
