"""Importing HDF5: every kind of dataset and attribute arrives equal, or is named in the report."""

from __future__ import annotations

import json
import math
import tracemalloc
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

import h5py
import numpy as np
import pytest
from h5py import h5d, h5s, h5t
from hypothesis import given
from hypothesis import strategies as st

import engram
from engram.formats.blocks import BLOCK_BYTES, regions
from same import assert_same

if TYPE_CHECKING:
    from pathlib import Path

    from engram.formats import ImportReport, Progress

Maker = Callable[[h5py.File], object] if TYPE_CHECKING else object

INNER = np.dtype([("a", "<i2"), ("b", ">f8")])
OUTER = np.dtype([("id", "<u4"), ("inner", INNER), ("tag", "S6"), ("grid", "<f4", (2, 3))])
CLOUDS = h5py.enum_dtype({"clear": 0, "cumulus": 3, "stratus": 7}, basetype="u1")


def write(path: Path, make: Callable[[h5py.File], object]) -> Path:
    """Make an HDF5 file."""
    with h5py.File(path, "w") as file:
        make(file)
    return path


def named(report: ImportReport) -> dict[tuple[str, str], str]:
    """Return what a report says was left out."""
    return {(e.path, e.what): e.why for e in report.left_out}


def noted(report: ImportReport) -> dict[tuple[str, str], str]:
    """Return what a report says is otherwise than in the file."""
    return {(e.path, e.what): e.why for e in report.noted}


def origin(member: Any) -> dict[str, Any]:
    """Return what is kept for export."""
    found: dict[str, Any] = json.loads(member._origin)
    return found


def records(dtype: np.dtype[Any], count: int) -> np.ndarray[Any, Any]:
    """Return records with a different value in every field."""
    out = np.zeros(count, dtype)
    for place in range(count):
        out[place]["id"] = place
        out[place]["inner"]["a"] = -place
        out[place]["inner"]["b"] = place / 3
        out[place]["tag"] = f"t{place}".encode()
        out[place]["grid"] = np.arange(6).reshape(2, 3) + place
    return out


VALUES: dict[str, np.ndarray[Any, Any]] = {
    **{
        f"{code}{width}{'be' if order == '>' else ''}": np.arange(-3, 9)
        .astype(f"{order}{code}{width}")
        .reshape(3, 4)
        for order in "<>"
        for code, width in [("i", 1), ("i", 2), ("i", 4), ("i", 8), ("u", 2), ("u", 8)]
    },
    **{f"f{w}": np.array([0.5, -0.0, np.nan, np.inf], dtype=f"f{w}") for w in (2, 4, 8)},
    "f4be": np.array([1.5, np.nan], dtype=">f4"),
    "longdouble": np.array([1, 2], dtype=np.longdouble) / 3,
    "complex": np.array([1 + 2j, -3.5j]),
    "complex64": np.array([1 + 2j, -3.5j], dtype="c8"),
    "bool": np.array([[True, False], [False, True]]),
    "scalar": np.array(42.5),
    "scalar_be": np.array(7, dtype=">i4"),
    "zero_length": np.zeros((0, 5), "f4"),
    "zero_inside": np.zeros((3, 0, 2), "i2"),
    "bytes": np.array([b"abc", b"", b"abcdef"], dtype="S6"),
    "records": records(OUTER, 5),
    "one_record": records(OUTER, 1)[0:1].reshape(()),
    "opaque": np.array([b"\x00\x01\x02", b"\xff\x00\xfe"], dtype="V3"),
    "large": np.arange(50_000, dtype="f8").reshape(250, 200),
}


@pytest.mark.parametrize("kind", VALUES)
def test_a_dataset_arrives_with_dtype_shape_and_every_byte(
    pool: Any, tmp_path: Path, kind: str
) -> None:
    file = write(tmp_path / "x.h5", lambda f: f.create_dataset("v", data=VALUES[kind]))
    report = engram.import_file(file, pool)
    assert report.complete
    assert (report.format, report.arrays) == ("HDF5", 1)
    assert_same(pool["v"][...], VALUES[kind])


@pytest.mark.parametrize(
    "options",
    [
        {"chunks": (7, 11)},
        {"chunks": (64, 1), "compression": "gzip", "shuffle": True},
        {"chunks": (1, 300), "fletcher32": True, "maxshape": (None, 300)},
        {"chunks": (200, 300), "compression": "lzf"},
        {"chunks": (50, 300), "scaleoffset": 0},
    ],
    ids=str,
)
def test_chunks_and_filters_change_no_value_and_are_kept_in_origin(
    pool: Any, tmp_path: Path, options: dict[str, Any]
) -> None:
    data = np.arange(60_000, dtype="i4").reshape(200, 300)
    file = write(tmp_path / "x.h5", lambda f: f.create_dataset("v", data=data, **options))
    engram.import_file(file, pool)
    assert_same(pool["v"][...], data)
    assert origin(pool["v"])["chunks"] == list(options["chunks"])
    assert bool(origin(pool["v"]).get("filters")) == (len(options) > 1)
    assert not dict(pool["v"].attrs)


def test_a_compact_layout_a_fill_value_and_a_maximum_shape_are_kept_in_origin(
    pool: Any, tmp_path: Path
) -> None:
    def make(file: h5py.File) -> None:
        file.create_dataset("v", (4,), "f4", maxshape=(None,), fillvalue=-9.5)

    engram.import_file(write(tmp_path / "x.h5", make), pool)
    assert_same(pool["v"][...], np.full(4, -9.5, "f4"))
    kept = origin(pool["v"])
    assert kept["maxshape"] == [None]
    assert kept["fill"] == "AAAYwQ=="


def test_an_enumeration_keeps_its_numbers_and_its_table_in_origin(
    pool: Any, tmp_path: Path
) -> None:
    data = np.array([0, 3, 7, 3], dtype=CLOUDS)
    file = write(tmp_path / "x.h5", lambda f: f.create_dataset("v", data=data, dtype=CLOUDS))
    engram.import_file(file, pool)
    assert_same(pool["v"][...], np.array([0, 3, 7, 3], "u1"))
    table = {"clear": 0, "cumulus": 3, "stratus": 7}
    assert origin(pool["v"])["type"] == {"enum": table, "base": "|u1"}


def test_variable_length_strings_become_string_arrays(pool: Any, tmp_path: Path) -> None:
    words = [["héllo", "", "日本"], ["a" * 300, "x\ty", "z"]]

    def make(file: h5py.File) -> None:
        file.create_dataset("v", data=np.array(words, dtype=object), dtype=h5py.string_dtype())
        file.create_dataset("one", data="scalar ☃", dtype=h5py.string_dtype())
        file.create_dataset("many", data=[f"s{i}" for i in range(9999)], chunks=(1000,))
        file.create_dataset("none", (0, 3), dtype=h5py.string_dtype())

    report = engram.import_file(write(tmp_path / "x.h5", make), pool)
    assert report.complete
    assert pool["v"].dtype == np.dtypes.StringDType()
    assert pool["v"][...].tolist() == words
    assert str(pool["one"][()]) == "scalar ☃"
    assert pool["many"][...].tolist() == [f"s{i}" for i in range(9999)]
    assert pool["none"].shape == (0, 3)


def test_fixed_strings_keep_their_bytes_and_charset(pool: Any, tmp_path: Path) -> None:
    utf8 = h5py.string_dtype("utf-8", 5)
    data = np.array(["é".encode(), b"abcde"], dtype=utf8)
    file = write(tmp_path / "x.h5", lambda f: f.create_dataset("v", data=data))
    engram.import_file(file, pool)
    assert_same(pool["v"][...], data)
    assert origin(pool["v"])["type"]["charset"] == "utf-8"


def test_text_that_is_not_utf8_is_kept_as_bytes_and_noted(pool: Any, tmp_path: Path) -> None:
    def make(file: h5py.File) -> None:
        file.create_dataset("v", data=[b"\xb0C", b"m"], dtype=h5py.string_dtype("ascii"))
        file["v"].attrs.create("units", b"\xb0C", dtype=h5py.string_dtype("ascii"))

    report = engram.import_file(write(tmp_path / "x.h5", make), pool)
    assert pool["v"][...].tolist() == [b"\xb0C", b"m"]
    assert pool["v"].attrs["units"] == np.bytes_(b"\xb0C")
    assert set(noted(report)) == {("/v", "dataset"), ("/v", "attribute units")}


def test_a_null_dataspace_is_an_empty_array_and_says_so_in_origin(
    pool: Any, tmp_path: Path
) -> None:
    def make(file: h5py.File) -> None:
        file["v"] = h5py.Empty("f4")
        file["v"].attrs["e"] = h5py.Empty("i2")

    assert engram.import_file(write(tmp_path / "x.h5", make), pool).complete
    assert_same(pool["v"][...], np.empty((0,), "f4"))
    assert_same(pool["v"].attrs["e"], np.empty((0,), "i2"))
    kept = origin(pool["v"])
    assert kept["dataspace"] == kept["attributes"]["e"]["dataspace"] == "null"


def test_an_array_type_becomes_further_axes(pool: Any, tmp_path: Path) -> None:
    kind = np.dtype(("f4", (2, 3)))

    def make(file: h5py.File) -> None:
        file.create_dataset("v", (4,), kind)[...] = np.arange(24, dtype="f4").reshape(4, 2, 3)

    engram.import_file(write(tmp_path / "x.h5", make), pool)
    assert_same(pool["v"][...], np.arange(24, dtype="f4").reshape(4, 2, 3))
    assert origin(pool["v"])["type"] == {"array": [2, 3]}


ATTRIBUTES: dict[str, Any] = {
    "text": "metres ☃",
    "empty_text": "",
    "bytes": np.bytes_(b"raw"),
    "int": np.int16(-7),
    "big_endian": np.array([1, 2], ">i4"),
    "float": np.float32(0.1),
    "half": np.float16(0.5),
    "complex": np.complex128(1 - 2j),
    "bool": np.bool_(True),
    "vector": np.arange(5, dtype="u2"),
    "matrix": np.arange(6.0).reshape(2, 3),
    "one": np.array([3], "i8"),
    "none": np.zeros((0,), "f8"),
    "byte_list": np.array([b"a", b"bcd"]),
    "record": records(OUTER, 1)[0],
    "records": records(OUTER, 2),
}


def test_attributes_of_every_type_arrive_exactly(pool: Any, tmp_path: Path) -> None:
    def make(file: h5py.File) -> None:
        for owner in (file, file.create_group("g"), file.create_dataset("g/v", data=1)):
            for name, value in ATTRIBUTES.items():
                owner.attrs[name] = value
            owner.attrs["words"] = ["one", "två"]

    report = engram.import_file(write(tmp_path / "x.h5", make), pool.create_group("in"))
    assert report.complete
    assert report.attributes == 3 * (len(ATTRIBUTES) + 1)
    for owner in (pool["in"], pool["in/g"], pool["in/g/v"]):
        assert set(owner.attrs) == {*ATTRIBUTES, "words"}
        assert owner.attrs["words"].tolist() == ["one", "två"]
        for name, value in ATTRIBUTES.items():
            if isinstance(value, str):
                assert owner.attrs[name] == value
            else:
                assert_same(owner.attrs[name], value)


def test_groups_in_groups_arrive_with_non_ascii_names(pool: Any, tmp_path: Path) -> None:
    def make(file: h5py.File) -> None:
        file.create_group("empty/inside")
        file["a/b/c/d/größe ☃"] = np.arange(3)

    report = engram.import_file(write(tmp_path / "x.h5", make), pool)
    assert report.groups == 6
    assert_same(pool["a/b/c/d/größe ☃"][...], np.arange(3))
    assert len(pool["empty/inside"]) == 0


def test_what_has_no_like_here_is_named_with_its_reason(pool: Any, tmp_path: Path) -> None:
    def make(file: h5py.File) -> None:
        file["good"] = np.arange(3)
        file["refs"] = np.array([file["good"].ref], dtype=h5py.ref_dtype)
        file["regions"] = np.array([file["good"].regionref[0:1]], dtype=h5py.regionref_dtype)
        file.create_dataset("links", (2,), dtype=h5py.vlen_dtype(h5py.ref_dtype))
        file.create_dataset("mixed", (2,), dtype=[("ref", h5py.ref_dtype), ("n", "i4")])
        file["type"] = np.dtype("f8")
        file["good"].attrs["ref"] = file["good"].ref
        h5d.create(file.id, b"time", h5t.UNIX_D32LE, h5s.create_simple((2,)))

    report = engram.import_file(write(tmp_path / "x.h5", make), pool)
    why = named(report)
    assert not report.complete
    assert "object references" in why["/refs", "dataset"]
    assert "region references" in why["/regions", "dataset"]
    assert "no like here" in why["/links", "dataset"]
    assert "field 'ref'" in why["/mixed", "dataset"]
    assert "no like here" in why["/time", "dataset"]
    assert "object references" in why["/good", "attribute ref"]
    assert ("/type", "named datatype") in noted(report)
    assert len(why) == 6
    assert list(pool) == ["good"]


def test_a_float_of_four_words_is_left_out_alone(pool: Any, tmp_path: Path) -> None:
    quad = h5py.h5t.IEEE_F64LE.copy()
    quad.set_size(16)
    quad.set_precision(128)
    quad.set_fields(127, 112, 15, 0, 112)
    quad.set_ebias(16383)
    pair = h5py.h5t.create(h5py.h5t.COMPOUND, 24)
    pair.insert(b"plain", 0, h5py.h5t.IEEE_F64LE)
    pair.insert(b"quad", 8, quad)
    space = h5py.h5s.create_simple((3,))

    def make(file: h5py.File) -> None:
        file["good"] = np.arange(5.0)
        h5py.h5d.create(file.id, b"quad", quad, space)
        h5py.h5d.create(file.id, b"pair", pair, space)
        h5py.h5a.create(file["good"].id, b"exact", quad, space)

    report = engram.import_file(write(tmp_path / "x.h5", make), pool)
    found = named(report)
    assert set(found) == {("/quad", "dataset"), ("/pair", "dataset"), ("/good", "attribute exact")}
    assert all("no like here" in why for why in found.values())
    assert pool["good"][...].tolist() == [0, 1, 2, 3, 4]


def test_names_that_cannot_be_names_are_named_in_the_report(pool: Any, tmp_path: Path) -> None:
    long = "n" * 256

    def make(file: h5py.File) -> None:
        file["good"] = 1
        file[long] = 2
        file.id.links.create_hard(b"n\xe9", file.id, b"good")
        file.id.links.create_hard(b"..", file.id, b"good")
        file.create_group("g" * 300)["inside"] = 3

    report = engram.import_file(write(tmp_path / "x.h5", make), pool)
    assert "256 bytes" in named(report)[f"/{long}", "member"]
    assert len(report.left_out) == 4
    assert list(pool) == ["good"]


def test_links_are_reported_and_kept_in_origin_but_not_followed(pool: Any, tmp_path: Path) -> None:
    def make(file: h5py.File) -> None:
        file["d"] = np.arange(3)
        file["soft"] = h5py.SoftLink("/d")
        file["dangling"] = h5py.SoftLink("/nowhere")
        file["external"] = h5py.ExternalLink("other.h5", "/x")

    report = engram.import_file(write(tmp_path / "x.h5", make), pool.create_group("g"))
    why = named(report)
    assert set(why) == {("/external", "external link")}  # its values are not in this file
    assert "/d, which is imported" in noted(report)["/soft", "soft link"]
    assert "dangling" in noted(report)["/dangling", "soft link"]
    assert "other.h5" in why["/external", "external link"]
    assert list(pool["g"]) == ["d"]
    assert origin(pool["g"])["links"]["soft"] == {"soft": "/d"}


def test_a_second_hard_link_is_a_copy_and_a_cycle_ends(pool: Any, tmp_path: Path) -> None:
    def make(file: h5py.File) -> None:
        file["a/d"] = np.arange(3)
        file["b"] = file["a"]
        file["a/again"] = file["a/d"]
        file["a/up"] = file["a"]
        file["a/root"] = file["/"]

    report = engram.import_file(write(tmp_path / "x.h5", make), pool)
    for path in ("a/d", "a/again", "b/d", "b/again"):
        assert_same(pool[path][...], np.arange(3))
    copies = {"/a/d", "/b", "/b/again", "/b/d"}
    cycles = {"/a/root", "/a/up", "/b/root", "/b/up"}
    assert {path for path, _ in noted(report)} == copies | cycles
    assert report.complete


def test_hard_links_that_multiply_do_not_multiply_the_import(pool: Any, tmp_path: Path) -> None:
    def make(file: h5py.File) -> None:
        group = file["/"]
        for _ in range(40):
            below = group.create_group("l")
            group["r"] = below
            group = below

    report = engram.import_file(write(tmp_path / "x.h5", make), pool)
    assert report.groups < 40 * 41
    assert any("inside a copy" in why for why in noted(report).values())


def test_a_deep_tree_is_walked_without_recursion(pool: Any, tmp_path: Path) -> None:
    depth = 1500

    def make(file: h5py.File) -> None:
        group = file["/"]
        for _ in range(depth):
            group = group.create_group("g")

    report = engram.import_file(write(tmp_path / "x.h5", make), pool)
    assert report.groups == depth


def test_dimension_labels_become_dims(pool: Any, tmp_path: Path) -> None:
    def make(file: h5py.File) -> None:
        file["v"] = np.zeros((2, 3))
        file["v"].dims[0].label = "y"
        file["v"].dims[1].label = "x"
        file["half"] = np.zeros((2, 3))
        file["half"].dims[1].label = "x"

    report = engram.import_file(write(tmp_path / "x.h5", make), pool)
    assert pool["v"].dims == ("y", "x")
    assert pool["half"].dims is None
    assert ("/half", "dimension names") in noted(report)
    assert origin(pool["half"])["labels"] == ["", "x"]


def test_a_virtual_dataset_is_read_through_and_missing_files_are_noted(
    pool: Any, tmp_path: Path
) -> None:
    write(tmp_path / "part.h5", lambda f: f.create_dataset("d", data=np.arange(4)))

    def make(file: h5py.File) -> None:
        layout = h5py.VirtualLayout((2, 4), "i8")
        layout[0] = h5py.VirtualSource("part.h5", "d", (4,))
        layout[1] = h5py.VirtualSource("gone.h5", "d", (4,))
        file.create_virtual_dataset("v", layout, fillvalue=-1)

    report = engram.import_file(write(tmp_path / "x.h5", make), pool)
    assert_same(pool["v"][...], np.array([[0, 1, 2, 3], [-1] * 4]))
    assert "gone.h5" in noted(report)["/v", "virtual dataset"]


def test_a_file_with_a_user_block_is_found_by_its_signature(pool: Any, tmp_path: Path) -> None:
    path = tmp_path / "anything.bin"
    with h5py.File(path, "w", userblock_size=2048) as file:
        file["v"] = np.arange(3)
    assert engram.import_file(path, pool).format == "HDF5"


def test_a_large_dataset_streams_into_the_pool_within_bounded_memory(
    pool: Any, tmp_path: Path
) -> None:
    count = 6 << 20
    path = write(
        tmp_path / "x.h5",
        lambda f: f.create_dataset(
            "v", data=np.arange(count, dtype="f8"), chunks=(1 << 18,), compression="lzf"
        ),
    )
    seen: list[Progress] = []
    tracemalloc.start()
    try:
        engram.import_file(path, pool, progress=seen.append)
        peak = tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()
    assert peak < BLOCK_BYTES
    assert [p.done for p in seen] == [n << 20 for n in range(4, 52, 4)]
    assert {p.total for p in seen} == {count * 8}
    assert_same(pool["v"][...], np.arange(count, dtype="f8"))


SHAPES = st.lists(st.integers(0, 9), max_size=4).flatmap(
    lambda shape: st.tuples(
        st.just(tuple(shape)),
        st.none() | st.tuples(*(st.integers(1, 12) for _ in shape)),
    )
)


@given(SHAPES, st.integers(1, 9), st.integers(1, 500))
def test_regions_cover_every_element_once_in_bounded_whole_chunks(
    shape_and_chunks: tuple[tuple[int, ...], tuple[int, ...] | None], itemsize: int, limit: int
) -> None:
    shape, chunks = shape_and_chunks
    covered = np.zeros(shape, int)
    chunk = tuple(min(c, n) for c, n in zip(chunks or (1,) * len(shape), shape, strict=True))
    least = itemsize * math.prod(chunk)
    for region in regions(shape, chunks, itemsize, limit):
        covered[region] += 1
        assert covered[region].size * itemsize <= max(limit, least)
        assert all(s.start % c == 0 for s, c in zip(region, chunk, strict=True))
    assert (covered == 1).all()
