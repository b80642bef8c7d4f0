"""Any HDF5 file comes back: trees of types, shapes, layouts, attributes and links, made up."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import h5py
import numpy as np
from h5py import h5a, h5d, h5g, h5o, h5p, h5s, h5t
from hypothesis import given, settings
from hypothesis import strategies as st

import engram
from alike_hdf5 import assert_alike

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    Draw = Callable[[st.SearchStrategy[Any]], Any]

NAMES = st.text(
    st.characters(codec="utf-8", exclude_characters="/\0", exclude_categories=["Cs"]),
    min_size=1,
    max_size=6,
).filter(lambda name: name not in {".", ".."})

LETTERS = st.characters(codec="utf-8", exclude_characters="\0", exclude_categories=["Cs"])
WORDS = st.lists(st.text(LETTERS), max_size=4)

INTEGERS = [
    getattr(h5t, f"STD_{sign}{bits}{order}E")
    for sign in "IU" for bits in (8, 16, 32, 64) for order in "LB"
]  # fmt: skip
FLOATS = [getattr(h5t, f"IEEE_F{bits}{order}E") for bits in (32, 64) for order in "LB"]
BITS = [getattr(h5t, f"STD_B{bits}{order}E") for bits in (8, 16, 32, 64) for order in "LB"]


@st.composite
def enums(draw: Draw) -> h5t.TypeID:
    base = draw(st.sampled_from([t for t in INTEGERS if t.get_size() < 8]))
    made = h5t.enum_create(base)
    numbers = draw(st.lists(st.integers(0, 100), max_size=5, unique=True))
    for number in numbers:
        made.enum_insert(f"m{number} é".encode(), number)
    return made if numbers else base


@st.composite
def strings(draw: Draw) -> h5t.TypeID:
    made = h5t.C_S1.copy()
    made.set_size(draw(st.integers(1, 9)))
    made.set_strpad(draw(st.sampled_from([h5t.STR_NULLTERM, h5t.STR_NULLPAD, h5t.STR_SPACEPAD])))
    made.set_cset(draw(st.sampled_from([h5t.CSET_ASCII, h5t.CSET_UTF8])))
    return made


@st.composite
def opaques(draw: Draw) -> h5t.TypeID:
    made = h5t.create(h5t.OPAQUE, draw(st.integers(1, 20)))
    made.set_tag(draw(st.text("abc é", max_size=9)).encode())
    return made


@st.composite
def compounds(draw: Draw, inner: st.SearchStrategy[h5t.TypeID]) -> h5t.TypeID:
    names = draw(st.lists(NAMES, min_size=1, max_size=4, unique=True))
    members, end = [], 0
    for name in names:
        kind = draw(inner)
        start = end + draw(st.integers(0, 5))
        members.append((name.encode(), start, kind))
        end = start + kind.get_size()
    made = h5t.create(h5t.COMPOUND, end + draw(st.integers(0, 5)))
    for member in draw(st.permutations(members)):
        made.insert(*member)
    return made


@st.composite
def arrays(draw: Draw, inner: st.SearchStrategy[h5t.TypeID]) -> h5t.TypeID:
    dims = draw(st.lists(st.integers(1, 3), min_size=1, max_size=2))
    return h5t.array_create(draw(inner), tuple(dims))


LEAVES = st.one_of(
    st.sampled_from([*INTEGERS, *FLOATS, *BITS]),
    st.sampled_from([h5t.py_create(np.dtype(c), logical=True) for c in ("?", "<c8", ">c16", "f2")]),
    enums(),
    strings(),
    opaques(),
)
TYPES = st.recursive(LEAVES, lambda inner: st.one_of(compounds(inner), arrays(inner)), max_leaves=6)


def fill(tid: h5t.TypeID, out: np.ndarray[Any, Any], rng: np.random.Generator) -> None:
    """Put into an array what its type can hold, as it lies in the file."""
    kind = tid.get_class()
    if kind == h5t.COMPOUND and out.dtype.names:
        for place, name in enumerate(out.dtype.names):
            fill(tid.get_member_type(place), out[name], rng)
    elif kind == h5t.ARRAY:
        fill(tid.get_super(), out, rng)
    elif kind == h5t.STRING:
        room = tid.get_size() - (tid.get_strpad() == h5t.STR_NULLTERM)
        pad = b" " if tid.get_strpad() == h5t.STR_SPACEPAD else b"\0"
        for at in np.ndindex(out.shape):
            letters = b"x" * int(rng.integers(0, room + 1))
            out[at] = letters.ljust(tid.get_size(), pad)
    elif out.dtype.kind == "b":
        out[...] = rng.integers(0, 2, out.shape)
    elif out.dtype.kind == "V":
        for at in np.ndindex(out.shape):
            out[at] = rng.bytes(out.dtype.itemsize)
    else:
        out[...] = rng.integers(0, 100, out.shape)


def values(tid: h5t.TypeID, shape: tuple[int, ...], seed: int) -> np.ndarray[Any, Any]:
    """Return values of a type."""
    base, inner = tid.dtype.subdtype or (tid.dtype, ())
    out = np.zeros((*shape, *inner), base)
    fill(tid, out, np.random.default_rng(seed))
    return out


SHAPES = st.none() | st.lists(st.integers(0, 4), max_size=3).map(tuple)


def space_of(shape: tuple[int, ...] | None) -> h5s.SpaceID:
    """Return a dataspace."""
    if shape is None:
        return h5s.create(h5s.NULL)
    return h5s.create_simple(shape) if shape else h5s.create(h5s.SCALAR)


class Maker:
    """Makes up a file."""

    def __init__(self, draw: Draw, file: h5py.File) -> None:
        self.draw = draw
        self.file = file.id
        self.types: list[h5t.TypeID] = []
        self.paths: list[bytes] = []

    def group(self, at: h5g.GroupID, path: bytes, depth: int) -> None:
        """Fill a group."""
        self.attributes(at)
        for name in self.draw(st.lists(NAMES, max_size=3, unique=True)):
            encoded = name.encode()
            kind = self.draw(
                st.sampled_from(["dataset", "dataset", "group", "type", "text", "link"])
            )
            if kind == "group" and depth:
                plist = h5p.create(h5p.GROUP_CREATE)
                self.order(plist, links=True)
                self.group(h5g.create(at, encoded, gcpl=plist), path + b"/" + encoded, depth - 1)
            elif kind == "type":
                made = self.draw(TYPES).copy()
                made.commit(at, encoded)
                self.types.append(h5t.open(at, encoded))
            elif kind == "text":
                self.text(at, encoded)
            elif kind == "link":
                self.link(at, encoded)
            else:
                self.dataset(at, encoded)
                self.paths.append(path + b"/" + encoded)

    def order(self, plist: Any, *, links: bool) -> None:
        """Keep the order of creation, or not."""
        flags = st.sampled_from([0, h5p.CRT_ORDER_TRACKED, 3])
        plist.set_attr_creation_order(self.draw(flags))
        if links:
            plist.set_link_creation_order(self.draw(flags))

    def type(self) -> h5t.TypeID:
        """Return a type, committed perhaps."""
        known = st.sampled_from(self.types) if self.types else st.nothing()
        found = self.draw(known | TYPES)
        assert isinstance(found, h5t.TypeID)
        return found

    def dataset(self, at: h5g.GroupID, name: bytes) -> None:
        """Make a dataset."""
        tid, shape = self.type(), self.draw(SHAPES)
        plist, space = h5p.create(h5p.DATASET_CREATE), space_of(shape)
        plist.set_obj_track_times(False)
        self.order(plist, links=False)
        if shape and self.draw(st.booleans()):
            most = tuple(self.draw(st.sampled_from([n, n + 3, h5s.UNLIMITED])) for n in shape)
            limits = [9 if n == h5s.UNLIMITED else n for n in most]
            if all(limits):
                space = h5s.create_simple(shape, most)
                plist.set_chunk(tuple(self.draw(st.integers(1, n)) for n in limits))
                for code, *given in self.draw(st.lists(st.sampled_from(
                    [(1, 1, (5,)), (2, 1, ()), (3, 0, ()), (32000, 1, ())]
                ), max_size=3, unique=True)):  # fmt: skip
                    plist.set_filter(code, *given)
        elif shape is not None and self.draw(st.booleans()):
            plist.set_layout(h5d.COMPACT)
        plist.set_fill_time(self.draw(st.sampled_from([0, 1, 2])))
        if self.draw(st.booleans()) and tid.get_class() in {h5t.INTEGER, h5t.FLOAT}:
            plist.set_fill_value(values(tid, (), 3))
        made = h5d.create(at, name, tid, space, plist)
        if shape is not None and 0 not in shape:
            made.write(h5s.ALL, h5s.ALL, values(tid, shape, 1), tid)
        self.attributes(made)

    def text(self, at: h5g.GroupID, name: bytes) -> None:
        """Make a dataset and an attribute of strings of variable length."""
        words = self.draw(WORDS)
        dtype = h5py.string_dtype()
        held = np.array(words, dtype=object).astype(dtype)
        tid, space = h5t.py_create(dtype, logical=True), h5s.create_simple((len(words),))
        made = h5d.create(at, name, tid, space)
        attribute = h5a.create(made, b"words", tid, space)
        if words:
            made.write(h5s.ALL, h5s.ALL, held)
            attribute.write(held)

    def link(self, at: h5g.GroupID, name: bytes) -> None:
        """Make a link of any kind."""
        kind = self.draw(st.sampled_from(["soft", "external", "hard"]))
        if kind == "hard" and self.paths:
            h5o.link(h5o.open(self.file, self.draw(st.sampled_from(self.paths))), at, name)
        elif kind == "external":
            at.links.create_external(name, b"other.h5", self.draw(NAMES).encode())
        else:
            at.links.create_soft(name, self.draw(NAMES).encode())

    def attributes(self, owner: Any) -> None:
        """Give an object attributes."""
        for name in self.draw(st.lists(NAMES, max_size=3, unique=True)):
            tid, shape = self.type(), self.draw(SHAPES)
            made = h5a.create(owner, name.encode(), tid, space_of(shape))
            if shape is not None and 0 not in shape:
                made.write(values(tid, shape, 2), tid)


@settings(max_examples=60)
@given(st.data(), st.booleans(), st.sampled_from(["earliest", "v108", "latest"]))
def test_any_file_comes_back(
    pool: engram.Pool, tmp_path: Path, data: st.DataObject, track_order: bool, libver: str
) -> None:
    original, exported = tmp_path / "o.h5", tmp_path / "x.h5"
    with h5py.File(original, "w", track_order=track_order, libver=(libver, "latest")) as file:
        root = h5g.open(file.id, b"/")
        Maker(data.draw, file).group(root, b"", 2)
    if "file" in pool:
        del pool["file"]
    engram.import_file(original, pool.create_group("file"))
    report = engram.export_file(pool["file"], exported, overwrite=True)
    assert report.complete
    assert_alike(exported, original)
