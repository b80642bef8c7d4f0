"""HDF5 out: a tree as groups, datasets and links, as the file it came from had them.

Groups are written from the root down, one after another; the members of each are linked in the
order of its origin. Every object is made without a name and linked when it is whole. Committed
datatypes come first, under names of their own, since datasets are made of them. Links of the file
that were not followed come back as they were; a soft link's path, which began at the file's root,
begins at the group that the file was imported into. Scales are attached when all datasets are
there.

Dimensions are written as the scales that `scales` finds, and where it finds none as labels.
"""

from __future__ import annotations

import base64
import dataclasses
from typing import TYPE_CHECKING, Any

import numpy as np
from h5py import h5d, h5ds, h5f, h5fd, h5g, h5o, h5p, h5s, h5t

from engram.formats import trees
from engram.formats.hdf5 import alike
from engram.formats.hdf5.build import build, problem
from engram.formats.hdf5.join import rejoined
from engram.formats.hdf5.outfile import OutFile
from engram.formats.hdf5.scales import NO_VARIABLE, as_hdf5, dimension, import_root, scales
from engram.formats.hdf5.storage import track
from engram.formats.hdf5.trees import stored
from engram.formats.hdf5.values import DatasetWriter, write_attribute
from engram.formats.target import ArrayItem, GroupItem, Problem

if TYPE_CHECKING:
    from pathlib import Path

    from engram.formats.target import Item, Tell, Tree

_DENSE_BYTES = 60_000
"""Larger attributes need a format of HDF5 1.8 or later."""

_SUPERBLOCKS = {"2": h5f.LIBVER_V18, "3": h5f.LIBVER_V110}
"""Which versions of HDF5's library write which superblock; the oldest write others."""

_MOST_AXES = 32
_RESERVED = frozenset({"DIMENSION_LIST", "DIMENSION_LABELS", "REFERENCE_LIST"})
_SCALE = frozenset({"CLASS", "NAME"})


def problems(tree: Tree) -> list[Problem]:
    """Return what of a tree HDF5 cannot hold."""
    found = []
    for item in tree.items:
        if isinstance(item, ArrayItem):
            why = _value_problem(item.dtype, item.shape)
            if why is None and item.dtype.kind in "TU" and _has_nul(item.load()):
                why = "a string has a NUL, which ends a string in HDF5"
            if why is not None:
                found.append(Problem(item.path, "array", why))
        for name, value in item.attrs.items():
            why = _attribute_problem(item, name, value)
            if why is not None:
                found.append(Problem(item.path, f"attribute {name}", why, name))
    return found


def _attribute_problem(item: Item, name: str, value: Any) -> str | None:
    """Say why an attribute cannot be held."""
    is_scale = "scale" in item.origin
    if isinstance(item, ArrayItem) and name in (_RESERVED | _SCALE if is_scale else _RESERVED):
        return "HDF5 itself uses this name, for dimension scales"
    if trees.is_taken(name, item.attrs):
        return trees.TAKEN
    if trees.is_tree(value):
        return None
    if isinstance(value, str):
        return "it has a NUL, which ends a string in HDF5" if "\0" in value else None
    values = np.asarray(value)
    if values.dtype.kind in "TU" and _has_nul(values):
        return "a string has a NUL, which ends a string in HDF5"
    return _value_problem(values.dtype, values.shape)


def _value_problem(dtype: np.dtype[Any], shape: tuple[int, ...]) -> str | None:
    """Say why values of a dtype and shape cannot be held."""
    if len(shape) > _MOST_AXES:
        return f"it has {len(shape)} axes, more than HDF5's {_MOST_AXES}"
    return problem(dtype)


def _has_nul(values: np.ndarray[Any, Any]) -> bool:
    """Whether any string has a NUL inside."""
    if not values.size or not values.dtype.itemsize:
        return False
    if values.dtype.kind == "T":
        return any("\0" in value for value in values.flat)  # numpy.strings.find sees no NUL
    width = values.dtype.itemsize // 4
    letters = np.dtype((f"{values.dtype.byteorder}u4", width))
    codes = np.ascontiguousarray(values).view(letters).reshape(-1, width)
    return bool(((codes[:, :-1] == 0) & (codes[:, 1:] != 0)).any())


def write(tree: Tree, path: Path, tell: Tell) -> None:
    """Write a tree as an HDF5 file; raise what its medium or HDF5 fails of."""
    tree = rejoined(tree)
    tree = dataclasses.replace(tree, items=[as_hdf5(item) for item in tree.items])
    with OutFile(path) as out:
        file = _create(tree.root, out, latest=_needs_dense(tree))
        try:
            _Writer(tree, file, out, tell).run()
        finally:
            file.close()
            out.check()
    _put_user_block(tree.root, path)


def _needs_dense(tree: Tree) -> bool:
    """Whether an attribute is too large for the oldest format."""
    return any(
        _nbytes(np.asarray(value)) > _DENSE_BYTES
        for item in tree.items
        for value in item.attrs.values()
    )


def _nbytes(value: np.ndarray[Any, Any]) -> int:
    """Return the bytes of an attribute: its value's, and those of its type if that has fields."""
    if value.dtype.names is None or problem(value.dtype) is not None:
        return value.nbytes
    return value.nbytes + len(build(value.dtype).encode())


def _create(root: GroupItem, out: OutFile, *, latest: bool) -> h5f.FileID:
    """Create the file, of the format's version that the origin's was of."""
    access, made = h5p.create(h5p.FILE_ACCESS), h5p.create(h5p.FILE_CREATE)
    access.set_fclose_degree(h5f.CLOSE_STRONG)
    access.set_fileobj_driver(h5fd.fileobj_driver, out)
    superblock = str(root.origin.get("superblock"))
    oldest = _SUPERBLOCKS.get(superblock, h5f.LIBVER_EARLIEST)
    if oldest == h5f.LIBVER_EARLIEST and latest:
        oldest = h5f.LIBVER_V18
    access.set_libver_bounds(oldest, h5f.LIBVER_LATEST)
    size, _ = _user_block(root)
    if size:
        made.set_userblock(size)
    track(made, root)
    return h5f.create(b"export", h5f.ACC_TRUNC, made, access)


def _user_block(root: GroupItem) -> tuple[int, bytes]:
    """Return the bytes before the file that there are to be, and what they hold."""
    told = root.origin.get("user_block")
    if not isinstance(told, dict) or not isinstance(told.get("bytes"), int):
        return 0, b""
    try:
        return told["bytes"], base64.b64decode(str(told.get("content", "")))
    except ValueError:
        return told["bytes"], b""


def _put_user_block(root: GroupItem, path: Path) -> None:
    """Write what stands before the file."""
    _, content = _user_block(root)
    if content:
        with path.open("r+b") as stream:
            stream.write(content)


class _Writer:
    """One file being written."""

    def __init__(self, tree: Tree, file: h5f.FileID, out: OutFile, tell: Tell) -> None:
        self._tree = tree
        self._file = file
        self._out = out
        self._tell_save = tell
        self._members = alike.children(tree)
        self._by_path = {item.path: item for item in tree.items}
        self._written: dict[int, list[Item]] = {}
        self._types: dict[int, list[tuple[str, h5t.TypeID]]] = {}
        self._named: dict[tuple[str, str], h5t.TypeID] = {}
        self._hard: list[tuple[str, str, int]] = []
        self._further: list[tuple[str, str, str]] = []
        self._scales = scales(tree)

    def run(self) -> None:
        """Write everything."""
        root = self._tree.root
        for group in self._tree.groups:
            self._commit_types(group)
        if (address := alike.address(root)) is not None:
            self._written[address] = [root]
        _comment(self._open(""), root)
        waiting = [root]
        for group in waiting:  # grows
            waiting += self._fill(group)
        for path, name, address in self._hard:
            self._link_back(path, name, address)
        for path, name, target in self._further:
            self._link_further(path, name, target)
        for path, (length, grows) in self._scales.bare.items():
            self._stand_for(path, length, grows=grows)
        for path, axes in self._scales.attached.items():
            self._attach(path, axes)
        for hidden in range(len(self._named)):
            self._file.unlink(_hidden(hidden))
        self._out.check()

    def _tell(self, path: str, nbytes: int) -> None:
        """Stop if the medium has failed; tell of progress."""
        self._out.check()
        self._tell_save(path, nbytes)

    def _fill(self, group: GroupItem) -> list[GroupItem]:
        """Write a group's attributes and members, and return the groups in it."""
        at = h5g.open(self._file, _absolute(group.path))
        self._attributes(at, group)
        inner = []
        members, links = self._members[group.path], alike.links(group)
        for name in self._names(group, members, links):
            if name in members:
                item = members[name]
                if not self._linked(at, name, item):
                    inner += [item] if isinstance(item, GroupItem) else []
                    self._make(at, name, item)
            elif (group.path, name) in self._named:
                h5o.link(self._named[group.path, name], at, name.encode(), lcpl=_lcpl(name))
            elif name in links:
                self._link(at, group, name, links[name])
        self._out.check()
        return inner

    def _names(
        self, group: GroupItem, members: dict[str, Item], links: dict[str, dict[str, Any]]
    ) -> list[str]:
        """Return the names of all that a group holds, in the order of its origin."""
        types = [name for path, name in self._named if path == group.path]
        there = dict.fromkeys([*types, *members, *links])
        told = group.origin.get("order")
        known = [n for n in told if n in there] if isinstance(told, list) else []
        return list(dict.fromkeys([*known, *there]))

    def _linked(self, at: h5g.GroupID, name: str, item: Item) -> bool:
        """Link an object that is another's like, instead of writing it again."""
        address = alike.address(item)
        if address is None:
            return False
        for other in self._written.setdefault(address, []):
            if alike.are_alike(other, item, self._members):
                h5o.link(self._open(other.path), at, name.encode(), lcpl=_lcpl(name))
                for array in self._arrays_in(item):
                    self._tell(array.path, array.nbytes)
                return True
        self._written[address].append(item)
        return False

    def _arrays_in(self, item: Item) -> list[ArrayItem]:
        """Return the arrays of a group, or the array itself."""
        if isinstance(item, ArrayItem):
            return [item]
        return [a for a in self._tree.arrays if a.path.startswith(item.path + "/")]

    def _make(self, at: h5g.GroupID, name: str, item: Item) -> None:
        """Make a group or dataset, and link it."""
        if isinstance(item, GroupItem):
            plist = h5p.create(h5p.GROUP_CREATE)
            plist.set_obj_track_times(False)
            track(plist, item)
            made = h5g.create(at, None, gcpl=plist)
        else:
            made = self._dataset(item)
        _comment(made, item)
        h5o.link(made, at, name.encode(), lcpl=_lcpl(name))

    def _dataset(self, item: ArrayItem) -> h5d.DatasetID:
        """Write an array."""
        self._tell(item.path, 0)
        writer = DatasetWriter(self._file, item, self._typed, self._unlimited(item), self._tell)
        made = writer.write()
        for why in writer.notes:
            self._tree.note(item.path, "array", why)
        if item.path in self._scales.names:
            h5ds.set_scale(made, self._scales.names[item.path].encode())
        self._attributes(made, item)
        self._label(made, item)
        return made

    def _attributes(self, owner: h5g.GroupID | h5d.DatasetID, item: Item) -> None:
        """Write an object's attributes."""
        told = item.origin.get("attributes")
        attrs, as_trees = stored(item.attrs)
        for name, value in attrs.items():
            words = told.get(name) if isinstance(told, dict) else None
            words = words if isinstance(words, dict) else {}
            other = write_attribute(owner, name, value, words, self._typed)
            other = as_trees.get(name, other)
            if other is not None:
                self._tree.note(item.path, f"attribute {name}", other)

    def _typed(self, dtype: np.dtype[Any], words: dict[str, Any]) -> h5t.TypeID:
        """Return a datatype; the committed one, where it was and still is of that type."""
        made = build(dtype, words)
        for _, named in self._types.get(words.get("committed", -1), ()):
            if named.equal(made):
                return named
        return made

    def _commit_types(self, group: GroupItem) -> None:
        """Commit the named datatypes of a group."""
        told = group.origin.get("types")
        for name, words in told.items() if isinstance(told, dict) else ():
            if name in self._members[group.path] or "hdf5" not in words:
                continue
            try:
                made = h5t.decode(base64.b64decode(words["hdf5"]))
            except (ValueError, RuntimeError, TypeError) as error:
                self._tree.note(group.path, f"datatype {name}", f"left away: {error}")
                continue
            hidden = _hidden(len(self._named))
            made.commit(self._file, hidden)
            found = h5t.open(self._file, hidden)
            self._named[group.path, name] = found
            if isinstance(words.get("committed"), int):
                self._types.setdefault(words["committed"], []).append((group.path, found))

    def _unlimited(self, item: ArrayItem) -> tuple[bool, ...]:
        """Return which axes have a dimension that a netCDF file had as unlimited."""
        if not item.dims:
            return (False,) * len(item.shape)
        known = [dimension(self._by_path, item.path, name) for name in item.dims]
        return tuple(found is not None and found[1] for found in known)

    def _label(self, made: h5d.DatasetID, item: ArrayItem) -> None:
        """Write the names of an array's dimensions, where its scales do not tell them."""
        labels = item.origin.get("labels")
        if labels is None and not (
            item.path in self._scales.names or item.path in self._scales.attached
        ):
            labels = item.dims
        if labels and len(labels) == made.rank:
            for axis, label in enumerate(labels):
                if label:
                    h5ds.set_label(made, axis, str(label).encode())

    def _stand_for(self, path: str, length: int, *, grows: bool) -> None:
        """Make the scale of a dimension that has no variable, as netCDF-4 does."""
        space = h5s.create_simple((length,), (h5s.UNLIMITED if grows else length,))
        plist = h5p.create(h5p.DATASET_CREATE)
        plist.set_obj_track_times(False)
        if grows:
            plist.set_chunk((max(1, min(length, 1024)),))
        made = h5d.create(self._file, None, h5t.IEEE_F32BE, space, plist)
        h5ds.set_scale(made, f"{NO_VARIABLE}{length:10}".encode())
        above, _, name = path.rpartition("/")
        at = h5g.open(self._file, _absolute(above))
        h5o.link(made, at, name.encode(), lcpl=_lcpl(name))

    def _attach(self, path: str, axes: list[list[str]]) -> None:
        """Attach its scales to a dataset."""
        made, item = self._open(path), self._by_path[path]
        for axis, paths in enumerate(axes):
            for scale in paths:
                try:
                    h5ds.attach_scale(made, self._open(scale), axis)
                except (RuntimeError, KeyError, TypeError, ValueError, OSError):
                    why = f"not attached to axis {axis}: it is not what it was"
                    self._tree.note(path, f"dimension scale {scale}", why)
                    if isinstance(item, ArrayItem) and item.dims and "labels" not in item.origin:
                        h5ds.set_label(made, axis, item.dims[axis].encode())

    def _link(self, at: h5g.GroupID, group: GroupItem, name: str, fact: dict[str, Any]) -> None:
        """Make a link as it was."""
        if isinstance(fact.get("hard"), int):
            self._hard.append((group.path, name, fact["hard"]))
        elif isinstance(fact.get("alias"), str):
            self._further.append((group.path, name, str(fact.get("path"))))
        elif isinstance(fact.get("file"), str):
            target = str(fact.get("external", "")).encode()
            at.links.create_external(name.encode(), fact["file"].encode(), target, _lcpl(name))
        elif isinstance(fact.get("soft"), str):
            target = fact["soft"]
            if target.startswith("/"):
                target = import_root(self._by_path, group.path) + target
            at.links.create_soft(name.encode(), target.encode(), _lcpl(name))

    def _link_further(self, path: str, name: str, target: str) -> None:
        """Make a hard link to an object by its path."""
        whole = (import_root(self._by_path, path) + target).strip("/")
        if whole not in self._by_path:
            self._tree.note(path, f"hard link {name}", f"left away: {target} is not exported")
            return
        at = h5g.open(self._file, _absolute(path))
        h5o.link(self._open(whole), at, name.encode(), lcpl=_lcpl(name))

    def _link_back(self, path: str, name: str, address: int) -> None:
        """Make a hard link to what stands at another place in the tree."""
        there = self._written.get(address)
        if not there:
            self._tree.note(path, f"hard link {name}", "left away: what it led to is not exported")
            return
        at = h5g.open(self._file, _absolute(path))
        h5o.link(self._open(there[0].path), at, name.encode(), lcpl=_lcpl(name))

    def _open(self, path: str) -> Any:
        """Open an object of the file."""
        return h5o.open(self._file, _absolute(path))


def _hidden(number: int) -> bytes:
    """Return the name that a committed datatype has until its own is made."""
    return f".engram-type-{number}".encode()


def _absolute(path: str) -> bytes:
    """Return a path of the tree as one of the file."""
    return b"/" + path.encode()


def _lcpl(name: str) -> Any:
    """Return the properties of a link: its name's character set."""
    plist = h5p.create(h5p.LINK_CREATE)
    plist.set_char_encoding(h5t.CSET_ASCII if name.isascii() else h5t.CSET_UTF8)
    return plist


def _comment(made: h5g.GroupID | h5d.DatasetID, item: Item) -> None:
    """Give an object the comment that it had."""
    told = item.origin.get("comment")
    if isinstance(told, str) and told:
        h5o.set_comment(made, told.encode())
