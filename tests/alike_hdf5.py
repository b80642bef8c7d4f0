"""Whether two HDF5 files are alike, found by a walk of its own over both with h5py's low level.

It looks at what a reader of either file could tell apart: links and their kinds, which names are of
one object, datatypes by HDF5's own equality, dataspaces, creation properties, comments, attributes
in their order, and every value as its bytes. Addresses, times, heaps and the character sets of
links' names, which no reader goes by, are not looked at.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import h5py
import numpy as np
from h5py import h5a, h5d, h5f, h5g, h5i, h5l, h5o, h5p, h5r, h5s, h5t

if TYPE_CHECKING:
    from collections.abc import Iterable
    from pathlib import Path

_REFERENCES = frozenset({b"DIMENSION_LIST", b"REFERENCE_LIST"})
_COMMENT = 1 << 13


def assert_alike(got: Path, expected: Path, *, ignore: Iterable[str] = ()) -> None:
    """Assert that two files are alike, but for what differs in the words that `ignore` begins."""
    found = [d for d in differences(got, expected) if not d.startswith(tuple(ignore))]
    assert not found, "\n".join(found)


def differences(got: Path, expected: Path) -> list[str]:
    """Return in what two files differ, each as a line ``what path: one / other``."""
    with h5py.File(got, "r") as one, h5py.File(expected, "r") as other:
        walk = _Walk(one.id, other.id)
        walk.files()
        return walk.found


class _Walk:
    """A walk over two files at once."""

    def __init__(self, one: h5f.FileID, other: h5f.FileID) -> None:
        self._roots = h5g.open(one, b"/"), h5g.open(other, b"/")
        self._files = one, other
        self._met: dict[int, int] = {}
        self.found: list[str] = []

    def _differ(self, what: str, path: bytes, one: object, other: object) -> None:
        if one != other:
            self.found.append(f"{what} {path.decode(errors='replace')}: {one!r} / {other!r}"[:500])

    def files(self) -> None:
        """Compare the files, all of them."""
        plists = [f.get_create_plist() for f in self._files]
        for name in ("get_userblock", "get_link_creation_order", "get_attr_creation_order"):
            self._differ(name, b"/", *(getattr(p, name)() for p in plists))
        self._differ("superblock", b"/", *(p.get_version()[0] for p in plists))
        waiting = [(b"", *self._roots)]
        while waiting:
            path, one, other = waiting.pop()
            if not self._again(path, one, other):
                waiting += self._objects(path, one, other)

    def _again(self, path: bytes, one: Any, other: Any) -> bool:
        """Whether two objects have been met; both must have been, as the same pair."""
        ours, theirs = (int(h5o.get_info(o).addr) for o in (one, other))
        known = self._met.setdefault(ours, -theirs)
        first = known == -theirs
        self._met[ours] = theirs
        if not first:
            self._differ("hard link", path, known, theirs)
            return True
        if list(self._met.values()).count(theirs) > 1:
            self._differ("hard link", path, "one object", "several")
        return False

    def _objects(self, path: bytes, one: Any, other: Any) -> list[tuple[bytes, Any, Any]]:
        """Compare two objects."""
        self._differ("kind", path, type(one), type(other))
        if type(one) is not type(other):
            return []
        infos = [h5o.get_info(o) for o in (one, other)]
        self._differ("links to", path, *(i.rc for i in infos))
        comments = [
            f.get_comment(h5i.get_name(o)) if i.hdr.mesg.present & _COMMENT else None
            for f, o, i in zip(self._files, (one, other), infos, strict=True)
        ]
        self._differ("comment", path, *comments)
        if isinstance(one, h5t.TypeID):
            self._differ("committed type", path, bool(one.equal(other)), True)
            return []
        self._attributes(path, one, other)
        if isinstance(one, h5d.DatasetID):
            self._datasets(path, one, other)
            return []
        return self._groups(path, one, other)

    def _groups(self, path: bytes, one: Any, other: Any) -> list[tuple[bytes, Any, Any]]:
        """Compare two groups, and return the pairs of objects in them."""
        plists = [g.get_create_plist() for g in (one, other)]
        for fact in ("get_link_creation_order", "get_attr_creation_order"):
            self._differ(fact, path, *(getattr(p, fact)() for p in plists))
        names = [_names(g) for g in (one, other)]
        self._differ("members", path, *names)
        pairs = []
        for name in (n for n in names[0] if n in names[1]):
            inner = path + b"/" + name
            links = [g.links.get_info(name) for g in (one, other)]
            self._differ("link type", inner, *(i.type for i in links))
            if links[0].type != links[1].type:
                continue
            if links[0].type == h5l.TYPE_HARD:
                pairs.append((inner, h5o.open(one, name), h5o.open(other, name)))
            else:
                self._differ("link", inner, *(g.links.get_val(name) for g in (one, other)))
        return pairs

    def _types(self, what: str, path: bytes, one: h5t.TypeID, other: h5t.TypeID) -> None:
        """Compare two datatypes, and whether they are committed ones."""
        self._differ(f"{what} type", path, bool(one.equal(other)), True)
        self._differ(f"{what} committed", path, *(bool(t.committed()) for t in (one, other)))
        if one.committed() and other.committed():
            self._again(path, one, other)

    def _attributes(self, path: bytes, one: Any, other: Any) -> None:
        """Compare the attributes of two objects, in their order."""
        names = [_attribute_names(o) for o in (one, other)]
        self._differ("attributes", path, *names)
        for name in names[0]:
            if name not in names[1]:
                continue
            what, pair = f"attribute {name.decode()}", [h5a.open(o, name) for o in (one, other)]
            self._types(what, path, *(a.get_type() for a in pair))
            self._spaces(what, path, *(a.get_space() for a in pair))
            if name in _REFERENCES:
                held = (
                    _referred(f, a, o)
                    for f, a, o in zip(self._files, pair, (one, other), strict=True)
                )
                self._differ(what, path, *held)
            else:
                self._differ(what, path, *(_value(a) for a in pair))

    def _spaces(self, what: str, path: bytes, one: h5s.SpaceID, other: h5s.SpaceID) -> None:
        """Compare two dataspaces."""
        kinds = [s.get_simple_extent_type() for s in (one, other)]
        self._differ(f"{what} space", path, *kinds)
        if kinds == [h5s.SIMPLE, h5s.SIMPLE]:
            self._differ(f"{what} shape", path, one.shape, other.shape)
            limits = (s.get_simple_extent_dims(True) for s in (one, other))
            self._differ(f"{what} maxshape", path, *limits)

    def _datasets(self, path: bytes, one: h5d.DatasetID, other: h5d.DatasetID) -> None:
        """Compare two datasets."""
        self._types("dataset", path, one.get_type(), other.get_type())
        self._spaces("dataset", path, one.get_space(), other.get_space())
        plists = [d.get_create_plist() for d in (one, other)]
        for name in (
            *("get_layout", "get_nfilters", "fill_value_defined", "get_fill_time"),
            *("get_alloc_time", "get_attr_creation_order", "get_external_count"),
        ):
            self._differ(name, path, *(getattr(p, name)() for p in plists))
        if {p.get_layout() for p in plists} == {h5d.CHUNKED}:
            self._differ("chunks", path, *(p.get_chunk() for p in plists))
        filters = [[p.get_filter(i) for i in range(p.get_nfilters())] for p in plists]
        self._differ("filters", path, *filters)
        if {p.fill_value_defined() for p in plists} == {h5d.FILL_VALUE_USER_DEFINED}:
            self._differ("fill", path, *(_fill(d) for d in (one, other)))
        self._differ("values", path, *(_value(d) for d in (one, other)))


def _names(group: h5g.GroupID) -> list[bytes]:
    """Return the names of a group's members: in the order of creation where it is kept."""
    found: list[bytes] = []
    tracked = group.get_create_plist().get_link_creation_order() & h5p.CRT_ORDER_TRACKED
    order = h5py.h5.INDEX_CRT_ORDER if tracked else h5py.h5.INDEX_NAME
    group.links.iterate(found.append, idx_type=order)
    return found


def _attribute_names(owner: Any) -> list[bytes]:
    """Return the names of an object's attributes: in the order of creation where it is kept."""
    found: list[bytes] = []
    tracked = owner.get_create_plist().get_attr_creation_order() & h5p.CRT_ORDER_TRACKED
    order = h5py.h5.INDEX_CRT_ORDER if tracked else h5py.h5.INDEX_NAME

    def see(name: bytes, *_: object) -> None:
        found.append(name)

    h5a.iterate(owner, see, index_type=order)
    return found


def _referred(file: h5f.FileID, attribute: h5a.AttrID, owner: Any) -> object:
    """Return the names of what an attribute of dimension scales refers to."""
    del owner
    value = np.zeros(attribute.shape, attribute.dtype)
    attribute.read(value)

    def name(reference: Any) -> bytes:
        found: bytes = h5i.get_name(h5r.dereference(reference, file))
        return found

    if value.dtype.names:
        return sorted((name(row[0]), int(row[1])) for row in value)
    return [[name(reference) for reference in axis] for axis in value]


def _fill(dataset: h5d.DatasetID) -> object:
    """Return a dataset's fill value, as far as h5py can read it."""
    try:
        return _bytes(np.asarray(h5py.Dataset(dataset).fillvalue))
    except (TypeError, ValueError, RuntimeError) as error:
        return str(error)


def _value(holder: h5a.AttrID | h5d.DatasetID) -> object:
    """Return all values as they lie in the file; text by its bytes."""
    space, tid = holder.get_space(), holder.get_type()
    if space.get_simple_extent_type() == h5s.NULL:
        return None
    dtype = tid.dtype
    base, inner = dtype.subdtype or (dtype, ())
    out = np.zeros((*space.shape, *inner), base)
    if not out.size:
        return ()
    raw = not _has_objects(dtype) and dtype.itemsize == tid.get_size()
    kind = tid if raw else h5t.py_create(dtype)
    if isinstance(holder, h5a.AttrID):
        holder.read(out, mtype=kind)
    else:
        holder.read(h5s.ALL, h5s.ALL, out, kind)
    return _bytes(out)


def _has_objects(dtype: np.dtype[Any]) -> bool:
    """Whether values of a dtype are pointers."""
    return dtype.hasobject


def _bytes(values: np.ndarray[Any, Any]) -> object:
    """Return values as what can be compared, without what lies between fields."""
    if values.dtype.names:
        # HDF5 itself orders the members of a type when it converts values, and calls it equal.
        return [(name, _bytes(values[name])) for name in sorted(values.dtype.names)]
    if values.dtype.hasobject:
        flat = values.reshape(-1).tolist()
        return [_bytes(one) if isinstance(one, np.ndarray) else one for one in flat]
    return np.ascontiguousarray(values).tobytes()
