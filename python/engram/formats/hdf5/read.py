"""HDF5 through h5py: the whole tree, each dataset once for each name that it has.

Links are followed only where they are hard. A soft or external link is kept in its group's
`origin` and named in the report: what a soft link leads to is imported under its own name. An
object with several hard links is copied under each of its names; a hard link to a group that
contains it, and a group met again inside such a copy, are named in the report.
"""

from __future__ import annotations

import contextlib
from collections import deque
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import h5py
from h5py import h5o

from engram.errors import BusyError, FormatError
from engram.formats.hdf5 import facts, objects, types
from engram.formats.names import name_problem
from engram.formats.source import GroupNode, Source

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from engram.formats.source import Attributes, Origin

with contextlib.suppress(ImportError):
    import hdf5plugin  # noqa: F401 - where it is installed, its filters are found


def open_file(path: Path) -> h5py.File:
    """Open an HDF5 file for reading.

    Raises
    ------
    BusyError
        Another process has it open for writing.
    FormatError
        It is damaged.

    """
    try:
        return h5py.File(path, "r")
    except BlockingIOError:
        message = f"{path}: another process has it open for writing; import it when that has ended"
        raise BusyError(message) from None
    except (OSError, ValueError, RuntimeError) as error:
        message = f"{path}: not a whole HDF5 file: {error}. Get it again, or look with `h5ls`"
        raise FormatError(message) from None


@dataclass(frozen=True, slots=True)
class _Place:
    """Where the walk is: a group, the groups that contain it, and whether it is in a copy."""

    group: h5py.Group
    path: str
    above: tuple[int, ...]
    copied: bool


class HDF5Source(Source):
    """A plain HDF5 file."""

    def __init__(self, path: Path, file: h5py.File) -> None:
        """Walk the file's structure; `file` is closed with the source."""
        super().__init__(path, "HDF5")
        self._file = file
        self._met: dict[int, str] = {}
        self._facts: dict[str, dict[str, dict[str, Any]]] = {}
        root = file["/"]
        # First come, first served: of an object's names, the one nearest the root is the first.
        waiting = deque([_Place(root, "", (_address(root),), copied=False)])
        while waiting:
            waiting.extend(self._visit(waiting.popleft()))

    def close(self) -> None:
        """Close the file."""
        self._file.close()

    def _keep(self, path: str, kind: str, name: str, fact: dict[str, Any]) -> None:
        """Keep a fact for the origin of a group."""
        self._facts.setdefault(path, {}).setdefault(kind, {})[name] = fact

    def _visit(self, place: _Place) -> Iterator[_Place]:
        """Add a group and its datasets to the nodes, and yield the groups in it."""
        group, path = place.group, place.path
        self.nodes.append(GroupNode(path, lambda: self._describe(group, path)))
        for name in group:
            inner = f"{path}/{name}" if path else str(name)
            why = name_problem(name)
            if why is not None:
                self.leave_out(inner, "member", why)
                continue
            if not self._is_hard(place, name, inner):
                continue
            try:
                member = group[name]
            except (KeyError, OSError, RuntimeError, ValueError) as error:
                message = f"{self.path}: /{inner} cannot be opened: {error}. The file is damaged"
                raise FormatError(message) from None
            if isinstance(member, h5py.Datatype):
                self._named_type(path, name, member)
            elif isinstance(member, h5py.Dataset):
                self._dataset(path, name, member)
            elif (below := self._group(place, inner, member)) is not None:
                yield below

    def _is_hard(self, place: _Place, name: str, inner: str) -> bool:
        """Whether the link is a hard one; others are kept in the group's origin, and told."""
        try:
            link = place.group.get(name, getlink=True)
        except TypeError as error:
            self.leave_out(inner, "user-defined link", str(error))
            return False
        if isinstance(link, h5py.HardLink):
            return True
        if isinstance(link, h5py.SoftLink):
            self._keep(place.path, "links", name, {"soft": link.path})
            ends = "which is imported under its own name" if self._ends(place, name) else "dangling"
            self.leave_out(inner, "soft link", f"leads to {link.path}, {ends}")
        else:
            fact = {"external": link.path, "file": link.filename}
            self._keep(place.path, "links", name, fact)
            self.leave_out(
                inner, "external link", f"leads to {link.path} in {link.filename}: import that file"
            )
        return False

    @staticmethod
    def _ends(place: _Place, name: str) -> bool:
        """Whether a soft link ends at an object of this file."""
        try:
            return place.group.get(name) is not None
        except (KeyError, OSError, RuntimeError):
            return False

    def _dataset(self, path: str, name: str, dataset: h5py.Dataset) -> None:
        """Add a dataset, once more for each further name."""
        inner = f"{path}/{name}" if path else name
        if objects.is_bare_dimension(dataset):
            unlimited = dataset.maxshape[0] is None
            fact = {"size": dataset.shape[0], "unlimited": unlimited}
            self._keep(path, "dimensions", name, fact)
            objects.leave_out_attributes(self, dataset, inner)
            return
        first = self._met.setdefault(_address(dataset), inner)
        if first != inner:
            self.note(inner, "hard link", f"a copy of /{first}, which is the same object")
        node = objects.dataset_node(self, dataset, inner)
        if node is not None:
            self.nodes.append(node)

    def _group(self, place: _Place, inner: str, group: h5py.Group) -> _Place | None:
        """Return where to go on for a group; None if that would never end."""
        address = _address(group)
        name = inner.rpartition("/")[2]
        if address in place.above:
            self._keep(place.path, "links", name, {"hard": address})
            self.leave_out(inner, "hard link", "leads to a group that contains it: a cycle")
            return None
        first = self._met.setdefault(address, inner)
        if first != inner and place.copied:
            self._keep(place.path, "links", name, {"hard": address})
            self.leave_out(inner, "hard link", f"leads to /{first} again, inside a copy")
            return None
        if first != inner:
            self.note(inner, "hard link", f"a copy of /{first}, which is the same group")
        copied = place.copied or first != inner
        return _Place(group, inner, (*place.above, address), copied)

    def _named_type(self, path: str, name: str, named: h5py.Datatype) -> None:
        """Keep a committed datatype in its group's origin."""
        inner = f"{path}/{name}" if path else name
        self._keep(path, "types", name, types.describe_named(named.id))
        why = "no object: a type stands with the arrays that use it, and in its group's origin"
        self.leave_out(inner, "named datatype", why)
        objects.leave_out_attributes(self, named, inner)

    def _describe(self, group: h5py.Group, path: str) -> tuple[Attributes, Origin]:
        """Read a group's attributes and origin."""
        values, kinds = objects.attributes(self, group, path)
        origin: Origin = {"format": "HDF5", **facts.of_object(group.id)}
        if not path:
            origin["source"] = self.path.name
            origin.update(facts.of_file(self._file.id, self.path))
        if kinds:
            origin["attributes"] = kinds
        origin.update(self._facts.get(path, {}))
        if group.id.get_create_plist().get_link_creation_order():
            origin["order"] = [name for name in group if isinstance(name, str)]
        return values, origin


def _address(obj: h5py.Group | h5py.Dataset) -> int:
    """Return the object's address: equal for two names of one object."""
    return int(h5o.get_info(obj.id).addr)


def open_hdf5(path: Path) -> Source:
    """Open and walk an HDF5 file."""
    file = open_file(path)
    try:
        return HDF5Source(path, file)
    except BaseException:
        file.close()
        raise
