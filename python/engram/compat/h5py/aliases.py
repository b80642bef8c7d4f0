"""Further names of one object: h5py's hard links.

A pool has one name for each object, under which it lies. A further one is a link of its group that
has the object's id, and the root's word `aliases` lists these links, so that an object whose own
name is deleted takes the name of one of them.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from engram import _engram
from engram.compat.h5py import links, words
from engram.errors import NotFoundError

if TYPE_CHECKING:
    from engram.compat.h5py.file import File
    from engram.compat.h5py.links import Spot

ALIASES = "aliases"


def put(file: File, at: Spot, member: int, *, is_group: bool) -> None:
    """Give an object a further name."""
    path = _engram.path_of(file._ns, is_group, member)
    link = {"alias": f"{member:x}", "path": file._named(path)}
    links.put(file._ns, at, link)

    def change(said: words.Words) -> None:
        listed = said.setdefault(ALIASES, {}).setdefault(f"{member:x}", [])
        listed.append([f"{at.gid:x}", at.name])

    words.change_group(file._ns, file._id, change)


def of_file(file: File) -> dict[str, list[list[str]]]:
    """Return the further names of all objects of a file, by the objects' ids."""
    if b'"aliases"' not in _engram.group_info(file._ns, file._id).origin:
        return {}
    found = words.of_group(file._ns, file._id).get(ALIASES)
    return found if isinstance(found, dict) else {}


def keep(file: File, path: str) -> bool:
    """Have what is about to be deleted live on under its further names.

    `path` is from the namespace's root. Tells whether the very member at `path` did, so that
    nothing is left to delete.
    """
    is_kept = False
    for member, names in of_file(file).items():
        own = _path_of(file._ns, int(member, 16))
        if own is None or not (own == path or own.startswith(path + "/")):
            continue
        other = _first_outside(file, names, path)
        if other is None:
            continue
        gid, name = other
        links.take(file._ns, links.Spot(gid, name))
        target = f"{_engram.path_of(file._ns, True, gid)}/{name}".strip("/")
        _engram.rename(file._ns, file._ns.root, own, target)
        _forget(file, member, gid, name)
        is_kept = is_kept or own == path
    return is_kept


def renumber(file: File, old: int, new: int) -> None:
    """Have further names lead to what an object was replaced by."""
    names = of_file(file).get(f"{old:x}")
    if not names:
        return
    for gid, name in names:
        at = links.Spot(int(gid, 16), name)
        link = at.link(file._ns)
        if link is not None:
            links.put(file._ns, at, {**link, "alias": f"{new:x}"})

    def change(said: words.Words) -> None:
        said[ALIASES][f"{new:x}"] = said[ALIASES].pop(f"{old:x}")

    words.change_group(file._ns, file._id, change)


def _path_of(namespace: _engram.Namespace, member: int) -> str | None:
    for is_group in (False, True):
        try:
            return _engram.path_of(namespace, is_group, member)
        except NotFoundError:
            continue
    return None


def _first_outside(file: File, names: list[list[str]], path: str) -> tuple[int, str] | None:
    """Return a further name that is still there, and not inside what is to be deleted."""
    for encoded, name in names:
        gid = int(encoded, 16)
        above: Any = _path_of(file._ns, gid)
        if above is None or above == path or above.startswith(path + "/"):
            continue
        if links.Spot(gid, name).link(file._ns) is not None:
            return gid, name
    return None


def _forget(file: File, member: str, gid: int, name: str) -> None:
    def change(said: words.Words) -> None:
        listed = said[ALIASES]
        listed[member] = [one for one in listed[member] if one != [f"{gid:x}", name]]
        if not listed[member]:
            del listed[member]

    words.change_group(file._ns, file._id, change)
