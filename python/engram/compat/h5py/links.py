"""Links: names that lead elsewhere, kept as words of their group, as an import keeps them.

A pool has one name for each object. A soft link is a word of its group, and followed here when it
is met; so are further hard links, which know the object by its id. When the name goes that an
object has in the pool, it gets the name of a hard link to it (`aliases.py`).
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from engram import _engram
from engram.compat.h5py import words
from engram.compat.h5py.errors import MissingError
from engram.compat.h5py.refused import EXTERNAL, refuse
from engram.errors import NotFoundError

if TYPE_CHECKING:
    from engram._engram import _Found

_DEEPEST = 16
"""So many links are followed one after another; HDF5 takes no more, either."""

LINKS = "links"


class HardLink:
    """What h5py says of a name that is an object's own."""


class SoftLink:
    """A name that leads to a path, of the same file, whether there is something or not."""

    def __init__(self, path: Any) -> None:
        self._path = str(path)

    @property
    def path(self) -> str:
        """Where it leads."""
        return self._path

    def __repr__(self) -> str:
        return f'<SoftLink to "{self.path}">'


class ExternalLink:
    """A name that leads into another file: kept of files that had it, and not followed."""

    def __init__(self, filename: Any, path: Any) -> None:
        self._filename = str(filename)
        self._path = str(path)

    @property
    def filename(self) -> str:
        """The other file."""
        return self._filename

    @property
    def path(self) -> str:
        """Where it leads in that."""
        return self._path

    def __repr__(self) -> str:
        return f'<ExternalLink to "{self.path}" in file "{self.filename}">'


class Spot:
    """A name in a group: what it is the name of may be there, or not.

    Attributes
    ----------
    gid
        The group's id.
    name
        The name; empty for the group itself.

    """

    __slots__ = ("gid", "name")

    def __init__(self, gid: int, name: str) -> None:
        self.gid = gid
        self.name = name

    def link(self, namespace: _engram.Namespace) -> dict[str, Any] | None:
        """Return the link of this name; None if it is none of a link."""
        if not self.name:
            return None
        return of_group(namespace, self.gid).get(self.name)


class Way:
    """How paths are followed in a file: from its root, over links.

    Attributes
    ----------
    namespace
        The namespace.
    root
        The group at which paths begin that have a leading slash.

    """

    __slots__ = ("namespace", "root")

    def __init__(self, namespace: _engram.Namespace, root: int) -> None:
        self.namespace = namespace
        self.root = root

    def spot(self, gid: int, path: str, *, make: bool = False) -> Spot:
        """Return the group and the name that a path ends with; with `make`, made on the way.

        Raises
        ------
        MissingError
            If there is no way.

        """
        return self._spot(gid, path, 0, make=make)

    def find(self, gid: int, path: str) -> _Found | None:
        """Return what there is at a path, over links; None if it leads to nothing."""
        try:
            return self._find(gid, path, 0)
        except MissingError:
            return None

    def follow(self, at: Spot) -> _Found | None:
        """Return what a name leads to."""
        try:
            return self._at(at, 0)
        except MissingError:
            return None

    def _spot(self, gid: int, path: str, depth: int, *, make: bool) -> Spot:
        parts = [part for part in path.split("/") if part not in {"", "."}]
        at = Spot(self.root if path.startswith("/") else gid, parts[-1] if parts else "")
        for part in parts[:-1]:
            found = self._at(Spot(at.gid, part), depth)
            if found is None and make:
                place = (self.namespace, at.gid, part)
                made = _engram.create_group(*place, attrs=None, origin=b"", exist_ok=True)
                found = (0, made, None, None)
            if found is None:
                raise MissingError(f"there is no {part!r} on the way of {path!r}")
            if found[0] != 0:
                raise MissingError(f"{part!r} on the way of {path!r} is no group")
            at.gid = found[1]
        return at

    def _find(self, gid: int, path: str, depth: int) -> _Found | None:
        return self._at(self._spot(gid, path, depth, make=False), depth)

    def _at(self, at: Spot, depth: int) -> _Found | None:
        if not at.name:
            return 0, at.gid, None, None
        found = _engram.find(self.namespace, at.gid, at.name)
        if found is not None:
            return found
        link = at.link(self.namespace)
        if link is None:
            return None
        if depth == _DEEPEST:
            raise MissingError(f"{at.name!r} is a link, and leads over more than {_DEEPEST} others")
        if "soft" in link:
            return self._soft(at.gid, link["soft"], depth)
        if "file" in link:
            refuse(f"{at.name!r} leads to {link.get('external')} in {link['file']}", EXTERNAL)
        return self._alias(link)

    def _soft(self, gid: int, path: str, depth: int) -> _Found | None:
        if not path.startswith("/"):
            return self._find(gid, path, depth + 1)
        root = imported_root(self.namespace, gid, self.root)
        return self._find(root, path.lstrip("/"), depth + 1)

    def _alias(self, link: dict[str, Any]) -> _Found | None:
        if not isinstance(link.get("alias"), str):
            return None
        return by_id(self.namespace, int(link["alias"], 16))


def by_id(namespace: _engram.Namespace, member: int) -> _Found | None:
    """Return an object or a group by its id."""
    try:
        info = _engram.object_info(namespace, member)
    except NotFoundError:
        try:
            _engram.group_info(namespace, member)
        except NotFoundError:
            return None
        return 0, member, None, None
    return _engram.find(namespace, info.parent, info.name)


def imported_root(namespace: _engram.Namespace, gid: int, root: int) -> int:
    """Return the group at which absolute paths of what lies in a group begin.

    What was imported knows the paths of its file: they begin at the group that it was put into.
    """
    while gid != root:
        info = _engram.group_info(namespace, gid)
        if b'"source"' in info.origin:
            return gid
        if info.parent == gid:
            break
        gid = info.parent
    return root


def of_group(namespace: _engram.Namespace, gid: int) -> dict[str, dict[str, Any]]:
    """Return the links of a group, by their names."""
    if b'"links"' not in _engram.group_info(namespace, gid).origin:
        return {}
    found = words.of_group(namespace, gid).get(LINKS)
    return found if isinstance(found, dict) else {}


def put(namespace: _engram.Namespace, at: Spot, link: dict[str, Any]) -> None:
    """Make a link."""

    def change(said: words.Words) -> None:
        said.setdefault(LINKS, {})[at.name] = link

    words.change_group(namespace, at.gid, change)


def take(namespace: _engram.Namespace, at: Spot) -> None:
    """Remove a link."""

    def change(said: words.Words) -> None:
        said.get(LINKS, {}).pop(at.name, None)

    words.change_group(namespace, at.gid, change)


def shown(link: dict[str, Any]) -> SoftLink | ExternalLink | HardLink:
    """Return a link as h5py shows it."""
    if "soft" in link:
        return SoftLink(link["soft"])
    if "file" in link:
        return ExternalLink(link["file"], link.get("external", ""))
    return HardLink()
