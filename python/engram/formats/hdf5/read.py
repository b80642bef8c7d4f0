"""HDF5 through h5py: the whole tree, each dataset once for each name that it has.

Links are followed only where they are hard. A soft or external link is kept in its group's
`origin`, from which an export makes it again. The report notes a soft link, since nothing is
missing: what it leads to is imported under its own name. An external link is left out, since its
values are in another file. An object with several hard links is copied under each of its names; a
hard link to a group that contains it, and a group met again inside such a copy, are noted.
"""

from __future__ import annotations

from collections import deque
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from h5py import h5g, h5l

from engram.errors import FormatError
from engram.formats.hdf5 import facts, objects, types
from engram.formats.hdf5.low import Dataset, File, Group, Owner, joined, opened
from engram.formats.names import name_problem
from engram.formats.source import GroupNode, Source

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from engram.formats.source import Attributes, Origin


@dataclass(frozen=True, slots=True)
class _Place:
    """Where the walk is: a group, the groups that contain it, and whether it is in a copy."""

    group: Group
    path: str
    above: tuple[int, ...]
    copied: bool


class HDF5Source(Source):
    """A plain HDF5 file."""

    def __init__(self, path: Path, file: File) -> None:
        """Walk the file's structure; `file` is closed with the source."""
        super().__init__(path, "HDF5")
        self._file = file
        self._met: dict[int, str] = {}
        self._facts: dict[str, dict[str, dict[str, Any]]] = {}
        root = Group(file, file.root)
        # First come, first served: of an object's names, the one nearest the root is the first.
        waiting = deque([_Place(root, "", (root.address,), copied=False)])
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
        for encoded, link, to in group.links():
            name = _shown(encoded)
            inner = joined(path, name)
            why = name_problem(encoded)
            if why is not None:
                self.leave_out(inner, "member", why)
                continue
            if not self._is_hard(place, name, link, inner):
                continue
            try:
                member = opened(self._file, group.id, encoded, to)
            except (KeyError, OSError, RuntimeError, ValueError) as error:
                message = f"{self.path}: /{inner} cannot be opened: {error}. The file is damaged"
                raise FormatError(message) from None
            if isinstance(member, Dataset):
                self._dataset(path, name, member)
            elif not isinstance(member, Group):
                self._named_type(path, name, member)
            elif (below := self._group(place, inner, member)) is not None:
                yield below

    def _is_hard(self, place: _Place, name: str, link: int, inner: str) -> bool:
        """Whether the link is a hard one; others are kept in the group's origin, and told."""
        if link == h5l.TYPE_HARD:
            return True
        if link not in {h5l.TYPE_SOFT, h5l.TYPE_EXTERNAL}:
            self.leave_out(inner, "user-defined link", f"its type {link} is a program's own")
            return False
        value = place.group.id.links.get_val(name.encode())
        if link == h5l.TYPE_SOFT:
            end = _shown(value)
            self._keep(place.path, "links", name, {"soft": end})
            ends = "which is imported under its own name" if self._ends(place, name) else "dangling"
            self.note(inner, "soft link", f"leads to {end}, {ends}")
        else:
            file, end = map(_shown, value)
            self._keep(place.path, "links", name, {"external": end, "file": file})
            self.leave_out(inner, "external link", f"leads to {end} in {file}: import that file")
        return False

    @staticmethod
    def _ends(place: _Place, name: str) -> bool:
        """Whether a soft link ends at an object of this file."""
        try:
            return bool(h5g.get_objinfo(place.group.id, name.encode()))
        except (KeyError, OSError, RuntimeError, ValueError):
            return False

    def _dataset(self, path: str, name: str, dataset: Dataset) -> None:
        """Add a dataset, once more for each further name."""
        inner = joined(path, name)
        if dataset.shape and objects.is_bare_dimension(dataset):
            unlimited = dataset.maxshape[0] is None
            fact = {"size": dataset.shape[0], "unlimited": unlimited}
            self._keep(path, "dimensions", name, fact)
            objects.leave_out_attributes(self, dataset, inner)
            return
        first = self._met.setdefault(dataset.address, inner)
        if first != inner:
            self.note(inner, "hard link", f"a copy of /{first}, which is the same object")
        self.nodes += objects.dataset_nodes(self, dataset, inner)

    def _group(self, place: _Place, inner: str, group: Group) -> _Place | None:
        """Return where to go on for a group; None if that would never end."""
        address = group.address
        name = inner.rpartition("/")[2]
        if address in place.above:
            self._keep(place.path, "links", name, {"hard": address})
            self.note(inner, "hard link", "leads to a group that contains it: a cycle")
            return None
        first = self._met.setdefault(address, inner)
        if first != inner and place.copied:
            self._keep(place.path, "links", name, {"hard": address})
            self.note(inner, "hard link", f"leads to /{first} again, inside a copy")
            return None
        if first != inner:
            self.note(inner, "hard link", f"a copy of /{first}, which is the same group")
        copied = place.copied or first != inner
        return _Place(group, inner, (*place.above, address), copied)

    def _named_type(self, path: str, name: str, named: Owner) -> None:
        """Keep a committed datatype in its group's origin."""
        inner = joined(path, name)
        self._keep(path, "types", name, types.describe_named(named.id))
        why = "no object: a type stands with the arrays that use it, and in its group's origin"
        self.note(inner, "named datatype", why)
        objects.leave_out_attributes(self, named, inner)

    def _describe(self, group: Group, path: str) -> tuple[Attributes, Origin]:
        """Read a group's attributes and origin."""
        values, kinds = objects.attributes(self, group, path)
        origin: Origin = {"format": "HDF5", **facts.of_object(group.id, group.plist)}
        if not path:
            origin["source"] = self.path.name
            origin.update(facts.of_file(self._file.id, self.path))
        if kinds:
            origin["attributes"] = kinds
        origin.update(self._facts.get(path, {}))
        if group.plist.get_link_creation_order():
            origin["order"] = [_shown(name) for name, *_ in group.links()]
        return values, origin


def _shown(name: bytes) -> str:
    """Return a path or a file's name as text, whatever its bytes."""
    return name.decode("utf-8", "backslashreplace")


def open_hdf5(path: Path) -> Source:
    """Open and walk an HDF5 file."""
    file = File(path)
    try:
        return HDF5Source(path, file)
    except BaseException:
        file.close()
        raise
