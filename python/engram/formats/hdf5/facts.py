"""What export needs to know of HDF5's objects and files, beside types and layouts, for `origin`.

object      its address, if it has several hard links: what has the same one was the same object
tracked     {"links", "attributes"}: whether creation order is kept, as HDF5's flags
comment     an object's comment
fill_time, alloc_time      HDF5's numbers, where they are not what its layout has anyway
superblock, user_block     of the root: the version, and the bytes before the file in base64
"""

from __future__ import annotations

import base64
from typing import TYPE_CHECKING, Any

from h5py import h5d, h5i, h5o

if TYPE_CHECKING:
    from pathlib import Path

    from h5py import h5f, h5g

    from engram.formats.hdf5.low import Group, Owner
    from engram.formats.source import Origin

_USER_BLOCK_BYTES = 64 << 10
"""Longer user blocks are not kept."""

_COMMENT = 1 << 13
"""An object header has a message of this kind; asking for a comment that is not there is slow."""

_ALLOC_TIMES = {
    h5d.COMPACT: h5d.ALLOC_TIME_EARLY,
    h5d.CHUNKED: h5d.ALLOC_TIME_INCR,
    h5d.CONTIGUOUS: h5d.ALLOC_TIME_LATE,
    h5d.VIRTUAL: h5d.ALLOC_TIME_INCR,
}


def of_object(member: h5g.GroupID | h5d.DatasetID, plist: Any) -> Origin:
    """Return what groups and datasets have alike; `plist` is how it was created."""
    found: Origin = {}
    info = h5o.get_info(member)
    if info.rc > 1:
        found["object"] = int(info.addr)
    if info.hdr.mesg.present & _COMMENT:
        comment = h5i.get_file_id(member).get_comment(h5i.get_name(member))
        found["comment"] = comment.decode("utf-8", "replace")
    orders = {"attributes": plist.get_attr_creation_order()}
    if not isinstance(member, h5d.DatasetID):
        orders["links"] = plist.get_link_creation_order()
    tracked = {name: flags for name, flags in orders.items() if flags}
    return {**found, "tracked": tracked} if tracked else found


def of_storage(plist: Any) -> Origin:
    """Return when a dataset's space is taken and filled, where that is unusual."""
    found: Origin = {}
    if plist.get_fill_time() != h5d.FILL_TIME_IFSET:
        found["fill_time"] = plist.get_fill_time()
    usual = _ALLOC_TIMES.get(plist.get_layout())
    if plist.get_alloc_time() not in {usual, h5d.ALLOC_TIME_DEFAULT}:
        found["alloc_time"] = plist.get_alloc_time()
    return found


def of_file(file: h5f.FileID, path: Path) -> Origin:
    """Return what the file itself is like."""
    plist = file.get_create_plist()
    found: Origin = {"superblock": plist.get_version()[0]}
    size = plist.get_userblock()
    if size:
        with path.open("rb") as stream:
            block = stream.read(size) if size <= _USER_BLOCK_BYTES else b""
        content = base64.b64encode(block.rstrip(b"\0")).decode("ascii")
        found["user_block"] = {"bytes": size, "content": content}
    return found


def of_attributes(owner: Owner, hidden: frozenset[bytes]) -> dict[str, Origin]:
    """Return the types and shapes of attributes in their file, by name, but of the hidden ones."""
    found: dict[str, Origin] = {}
    for name in owner.names:
        kind, attr = owner.attribute(name)
        if name in hidden or kind.problem is not None:
            continue
        words = dict(kind.told or {})
        if attr.shape is None:
            words["dataspace"] = "null"
        else:
            words["shape"] = [*attr.shape, *kind.inner]
        if not kind.is_text and kind.plain.names is None:
            words["dtype"] = kind.plain.str
        found[name.decode("utf-8", "backslashreplace")] = words
    return found


def of_group(group: Group, hidden: frozenset[bytes]) -> Origin:
    """Return the origin of a group as HDF5."""
    found: Origin = {**of_object(group.id, group.plist), "attributes": of_attributes(group, hidden)}
    if group.plist.get_link_creation_order():
        found["order"] = [name.decode("utf-8", "backslashreplace") for name, *_ in group.links()]
    return found
