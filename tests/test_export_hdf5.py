"""Exporting HDF5: what was imported goes out as it came in, to the last creation property."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import h5py
import numpy as np
import pytest
from h5py import h5d, h5o, h5p, h5s, h5t

import engram
from alike_hdf5 import assert_alike, differences

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from engram.formats import ExportReport

    Maker = Callable[[h5py.File], object]

CLOUDS = h5py.enum_dtype({"clear": 0, "cumulus": 3, "größe": 7}, basetype="<u2")
INNER = np.dtype([("a", "<i2"), ("b", ">f8"), ("kind", CLOUDS)])
OUTER = np.dtype(
    {
        "names": ["id", "inner", "tag", "utf8", "grid", "on", "z", "raw"],
        "formats": [
            *("<u4", INNER, "S6", h5py.string_dtype("utf-8", 5), (">f4", (2, 3))),
            *("?", "<c8", "V3"),
        ],
        "offsets": [1, 8, 30, 40, 48, 80, 88, 99],
        "itemsize": 120,
    }
)
"""Nested records with padding, enumerations, text of two character sets, arrays, opaque bytes."""


def round_trip(
    pool: engram.Pool, tmp_path: Path, make: Maker, **options: Any
) -> tuple[Path, Path, ExportReport]:
    """Make a file, import it and export it again; give both, and the report."""
    original, exported = tmp_path / "original.h5", tmp_path / "exported.h5"
    with h5py.File(original, "w", **options) as file:
        make(file)
    engram.import_file(original, pool)
    report = engram.export_file(pool, exported)
    assert report.complete
    return original, exported, report


def check(pool: engram.Pool, tmp_path: Path, make: Maker, **options: Any) -> None:
    """Assert that a file comes back as it was, and that nothing is to be noted."""
    original, exported, report = round_trip(pool, tmp_path, make, **options)
    assert_alike(exported, original)
    assert not report.noted


def records(dtype: np.dtype[Any], count: int) -> np.ndarray[Any, Any]:
    """Return records of random bytes that every type can hold."""
    rng = np.random.default_rng(7)
    out = np.zeros(count, dtype)
    for name in dtype.names or ():
        field = out[name]
        if field.dtype.names:
            field[...] = records(field.dtype, count)
        elif field.dtype.kind == "S":
            field[...] = [f"t{place}".encode() for place in range(count)]
        elif field.dtype.kind == "V":
            field[...] = [bytes(rng.integers(0, 256, 3, np.uint8)) for _ in range(count)]
        else:
            field[...] = rng.integers(0, 2, field.shape)
    return out


VALUES: dict[str, Any] = {
    **{
        f"{order}{code}": np.arange(12).astype(f"{order}{code}").reshape(3, 4)
        for order in "<>"
        for code in ("i2", "i4", "i8", "u2", "u4", "u8", "f2", "f4", "f8", "c8", "c16")
    },
    "i1": np.arange(-3, 3, dtype="i1"),
    "u1": np.arange(6, dtype="u1"),
    "longdouble": np.array([1, 2], np.longdouble) / 3,
    "clongdouble": np.array([1 + 2j, 3], np.clongdouble) / 3,
    "nan": np.array([np.nan, -0.0, np.inf]),
    "bool": np.array([[True, False], [False, True]]),
    "scalar": np.array(42.5),
    "scalar_be": np.array(7, ">i4"),
    "zero": np.zeros((0, 5), "f4"),
    "zero_inside": np.zeros((3, 0, 2), "i2"),
    "bytes": np.array([b"abc", b"", b"a\0cdef"], "S6"),
    "opaque": np.array([b"\x00\x01\x02", b"\xff\x00\xfe"], "V3"),
    "enum": np.array([0, 3, 7], CLOUDS),
    "records": records(OUTER, 5),
    "record": records(OUTER, 1).reshape(()),
    "words": np.array(["héllo", "", "日本"], dtype=h5py.string_dtype()),
    "word": np.array("scalar ☃", dtype=h5py.string_dtype()),
    "ascii": np.array([b"abc", b""], dtype=h5py.string_dtype("ascii")),
    "not_utf8": np.array([b"\xb0C", b"m"], dtype=h5py.string_dtype("ascii")),
    "fixed_utf8": np.array(["é".encode(), b"abcde"], dtype=h5py.string_dtype("utf-8", 5)),
    "no_words": np.zeros((0, 3), dtype=h5py.string_dtype()),
    "null": h5py.Empty("f4"),
    "null_words": h5py.Empty(h5py.string_dtype()),
    "date": np.array(["2024-02-29", "NaT"], "M8[ns]").astype(h5py.opaque_dtype("M8[ns]")),
}


@pytest.mark.parametrize("kind", VALUES)
def test_a_dataset_and_an_attribute_of_each_kind_come_back(
    pool: engram.Pool, tmp_path: Path, kind: str
) -> None:
    def make(file: h5py.File) -> None:
        value = VALUES[kind]
        file.create_dataset("v", data=value, dtype=value.dtype)
        file.create_dataset("g/same", data=value, dtype=value.dtype)
        for owner in (file, file["g"], file["v"]):
            owner.attrs.create("x", value, dtype=value.dtype)

    original, exported, report = round_trip(pool, tmp_path, make)
    assert_alike(exported, original)
    assert bool(report.noted) == (kind == "date")


FILE_TYPES: dict[str, h5t.TypeID] = {
    **{
        f"{size}{pad}{charset}": (size, pad, charset)
        for size in (4, h5t.VARIABLE)
        for pad in (h5t.STR_NULLTERM, h5t.STR_NULLPAD, h5t.STR_SPACEPAD)
        for charset in (h5t.CSET_ASCII, h5t.CSET_UTF8)
    },
    "bits": h5t.STD_B16BE.copy(),
    "byte_of_bits": h5t.STD_B8LE.copy(),
}


def string_type(size: int, pad: int, charset: int) -> h5t.TypeID:
    """Return a string type."""
    made = h5t.C_S1.copy()
    made.set_size(size)
    made.set_strpad(pad)
    made.set_cset(charset)
    return made


@pytest.mark.parametrize("kind", FILE_TYPES)
def test_types_that_numpy_has_no_word_for_come_back(
    pool: engram.Pool, tmp_path: Path, kind: str
) -> None:
    def make(file: h5py.File) -> None:
        found = FILE_TYPES[kind]
        tid = string_type(*found) if isinstance(found, tuple) else found
        is_text = isinstance(found, tuple)
        values = np.array([b"ab", b"", b"abcd"], "S4") if is_text else np.arange(3, dtype=tid.dtype)
        space = h5s.create_simple((3,))
        made = h5d.create(file.id, b"v", tid, space)
        attribute = h5py.h5a.create(made, b"a", tid, space)
        if is_text:
            if tid.is_variable_str():
                values = values.astype(object).astype(h5py.string_dtype("ascii"))
            else:
                values = values.astype(h5py.string_dtype(("ascii", "utf-8")[tid.get_cset()], 4))
            made.write(h5s.ALL, h5s.ALL, values)
            attribute.write(values)
        else:
            made.write(h5s.ALL, h5s.ALL, values, tid)
            attribute.write(values, tid)

    check(pool, tmp_path, make)


def odd(base: h5t.TypeID, precision: int, offset: int) -> h5t.TypeID:
    """Return an integer type of fewer bits than its bytes have."""
    made = base.copy()
    made.set_precision(precision)
    made.set_offset(offset)
    return made


@pytest.mark.parametrize(
    "tid",
    [odd(h5t.STD_I16LE, 12, 2), odd(h5t.STD_U32BE, 20, 4), odd(h5t.STD_U8LE, 4, 0)],
    ids=["12of16", "20of32be", "4of8"],
)
@pytest.mark.parametrize("nbit", [False, True])
def test_numbers_of_odd_precision_come_back(
    pool: engram.Pool, tmp_path: Path, tid: h5t.TypeID, nbit: bool
) -> None:
    def make(file: h5py.File) -> None:
        plist = h5p.create(h5p.DATASET_CREATE)
        if nbit:
            plist.set_chunk((4,))
            plist.set_filter(5, 1)
        made = h5d.create(file.id, b"v", tid, h5s.create_simple((10,)), plist)
        made.write(h5s.ALL, h5s.ALL, np.arange(10, dtype="i4"))

    check(pool, tmp_path, make)
    assert pool["v"][...].tolist() == list(range(10))


def test_values_that_outgrew_a_type_are_written_in_a_plain_one(
    pool: engram.Pool, tmp_path: Path
) -> None:
    def make(file: h5py.File) -> None:
        tid = odd(h5t.STD_I16LE, 12, 2)
        h5d.create(file.id, b"v", tid, h5s.create_simple((10,)))

    round_trip(pool, tmp_path, make)
    pool["v"][3] = 30000
    report = engram.export_file(pool, tmp_path / "more.h5")
    with h5py.File(tmp_path / "more.h5") as file:
        assert file["v"][...].tolist() == [0, 0, 0, 30000, 0, 0, 0, 0, 0, 0]
    assert [(e.path, e.what) for e in report.noted] == [("/v", "array")]


LAYOUTS: list[dict[str, Any]] = [
    {"chunks": (7, 11)},
    {"chunks": (64, 1), "compression": "gzip", "compression_opts": 9, "shuffle": True},
    {"chunks": (1, 30), "fletcher32": True, "maxshape": (None, 30)},
    {"chunks": (200, 30), "compression": "lzf", "maxshape": (None, None)},
    {"chunks": (50, 30), "compression": "szip", "compression_opts": ("nn", 16)},
    {"chunks": (50, 30), "compression": "szip", "compression_opts": ("ec", 8)},
    {"chunks": (50, 30), "scaleoffset": 0},
    {"chunks": (50, 30), "scaleoffset": 14, "maxshape": (300, None)},
    {"chunks": (500, 31), "maxshape": (None, None), "fillvalue": -7},
    {"fillvalue": 5},
    {"fill_time": "never", "chunks": (7, 11)},
    {"fill_time": "alloc"},
]


@pytest.mark.parametrize("options", LAYOUTS, ids=str)
def test_chunks_filters_and_fill_values_come_back(
    pool: engram.Pool, tmp_path: Path, options: dict[str, Any]
) -> None:
    data = np.arange(6000, dtype="i4").reshape(200, 30)
    check(pool, tmp_path, lambda f: f.create_dataset("v", data=data, **options))


@pytest.mark.parametrize("kind", ["records", "words", "fixed_utf8", "enum", "bool", ">c8"])
def test_fill_values_of_every_kind_come_back(pool: engram.Pool, tmp_path: Path, kind: str) -> None:
    def make(file: h5py.File) -> None:
        value = VALUES[kind]
        one = value.reshape(-1)[-1]
        file.create_dataset("v", (2,), value.dtype, fillvalue=one, maxshape=(None,))

    check(pool, tmp_path, make)


def test_a_compact_layout_and_alloc_times_come_back(pool: engram.Pool, tmp_path: Path) -> None:
    def make(file: h5py.File) -> None:
        for name, time in ((b"early", h5d.ALLOC_TIME_EARLY), (b"late", h5d.ALLOC_TIME_LATE)):
            plist = h5p.create(h5p.DATASET_CREATE)
            plist.set_alloc_time(time)
            plist.set_chunk((3,))
            h5d.create(file.id, name, h5t.STD_I32LE, h5s.create_simple((9,)), plist)
        plist = h5p.create(h5p.DATASET_CREATE)
        plist.set_layout(h5d.COMPACT)
        made = h5d.create(file.id, b"compact", h5t.STD_I32LE, h5s.create_simple((9,)), plist)
        made.write(h5s.ALL, h5s.ALL, np.arange(9, dtype="i4"))

    check(pool, tmp_path, make)


def test_groups_links_and_names_come_back(pool: engram.Pool, tmp_path: Path) -> None:
    def make(file: h5py.File) -> None:
        file["größe ☃/d"] = np.arange(3)
        file["a/d"] = np.arange(3)
        file["b"] = file["a"]
        file["a/again"] = file["a/d"]
        file["a/up"] = file["a"]
        file["a/root"] = file["/"]
        file.create_group("empty/inside")
        file["soft"] = h5py.SoftLink("/a/d")
        file["größe ☃/s"] = h5py.SoftLink("../a")
        file["dangling"] = h5py.SoftLink("/nowhere")
        file["external"] = h5py.ExternalLink("other.h5", "/x/ü")

    check(pool, tmp_path, make)


def test_links_lead_to_the_same_when_the_file_was_imported_into_a_group(
    pool: engram.Pool, tmp_path: Path
) -> None:
    with h5py.File(tmp_path / "o.h5", "w") as file:
        file["a/d"] = np.arange(3)
        file["soft"] = h5py.SoftLink("/a/d")
        file["relative"] = h5py.SoftLink("a/d")
        file["again"] = file["a"]
        file["a/d"].make_scale("")
        file["v"] = np.zeros(3)
        file["v"].attrs["matrix"] = np.zeros((2, 2))
        file["v"].dims[0].attach_scale(file["a/d"])
    engram.import_file(tmp_path / "o.h5", pool.create_group("x/y"))
    engram.export_file(pool, tmp_path / "all.h5")
    with h5py.File(tmp_path / "all.h5") as file:
        assert file["x/y/soft"] == file["x/y/a/d"] == file["x/y/relative"]
        assert file["x/y/again"] == file["x/y/a"]
        assert file["x/y/v"].dims[0][0] == file["x/y/a/d"]
    engram.export_file(pool["x/y"], tmp_path / "part.h5")
    assert_alike(tmp_path / "part.h5", tmp_path / "o.h5")


def test_what_was_one_object_and_was_changed_is_two(pool: engram.Pool, tmp_path: Path) -> None:
    def make(file: h5py.File) -> None:
        for name in ("values", "attributes", "same"):
            file[name] = np.arange(3)
            file[f"{name}2"] = file[name]

    with h5py.File(tmp_path / "o.h5", "w") as file:
        make(file)
    engram.import_file(tmp_path / "o.h5", pool)
    pool["values2"][1] = 9
    pool["attributes"].attrs["new"] = 1
    engram.export_file(pool, tmp_path / "x.h5")
    with h5py.File(tmp_path / "x.h5") as file:
        assert file["same"] == file["same2"]
        assert file["values"] != file["values2"]
        assert file["values"][...].tolist() == [0, 1, 2]
        assert file["values2"][...].tolist() == [0, 9, 2]
        assert list(file["attributes"].attrs) == ["new"]
        assert not list(file["attributes2"].attrs)


def test_committed_types_come_back_with_what_is_of_them(pool: engram.Pool, tmp_path: Path) -> None:
    def make(file: h5py.File) -> None:
        file["types/record"] = OUTER
        file["clouds"] = CLOUDS
        file["equal"] = CLOUDS
        file["ragged"] = h5py.vlen_dtype("i4")
        file.create_dataset("a/v", data=records(OUTER, 3), dtype=file["types/record"])
        file.create_dataset("e", (3,), dtype=file["equal"])
        file.create_dataset("c", (3,), dtype=file["clouds"])
        file.create_dataset("own", (3,), dtype=CLOUDS)
        file["c"].attrs.create("x", 3, dtype=file["clouds"])

    check(pool, tmp_path, make)


def test_order_of_creation_and_of_attributes_comes_back(pool: engram.Pool, tmp_path: Path) -> None:
    def make(file: h5py.File) -> None:
        file["z"] = h5py.SoftLink("/b")
        file["b"] = 1
        group = file.create_group("a", track_order=True)
        made = group.create_dataset("second", data=[1, 2], track_order=True)
        group.create_group("inner")
        group["first"] = 1
        group["kind"] = CLOUDS
        for owner in (file, group, made, file["b"]):
            for name in "zax":
                owner.attrs[name] = name
        made.attrs["A"] = 1

    check(pool, tmp_path, make, track_order=True)


@pytest.mark.parametrize("libver", ["earliest", "v108", "v110", "latest"])
def test_the_files_version_and_large_attributes_come_back(
    pool: engram.Pool, tmp_path: Path, libver: str
) -> None:
    def make(file: h5py.File) -> None:
        file["v"] = np.arange(4)
        for place in range(20):
            file["v"].attrs[f"a{place}"] = place
        if libver != "earliest":
            file["v"].attrs["large"] = np.arange(20_000.0)
            file.attrs["large"] = "long " * 20_000

    check(pool, tmp_path, make, libver=(libver, "latest"))


def test_a_user_block_and_comments_come_back(pool: engram.Pool, tmp_path: Path) -> None:
    original, exported = tmp_path / "o.h5", tmp_path / "x.h5"
    with h5py.File(original, "w", userblock_size=1024) as file:
        file["v"] = np.arange(3)
        file["g/w"] = 1
        for path in ("/", "/v", "/g"):
            h5o.set_comment(file[path].id, f"of {path} é".encode())
    with original.open("r+b") as stream:
        stream.write(b"#!/bin/sh\n")
    engram.import_file(original, pool)
    engram.export_file(pool, exported)
    assert_alike(exported, original)
    assert exported.read_bytes()[:1024] == original.read_bytes()[:1024]


def test_labels_and_scales_come_back(pool: engram.Pool, tmp_path: Path) -> None:
    def make(file: h5py.File) -> None:
        file["y"], file["x"], file["x2"] = np.arange(2.0), np.arange(3.0), np.arange(3.0)
        file["y"].make_scale("latitude")
        file["x"].make_scale()
        file["x2"].make_scale("other")
        for name in ("v", "w"):
            file[name] = np.zeros((2, 3))
            file[name].attrs["matrix"] = np.zeros((2, 2))  # which netCDF has no like of
            file[name].dims[0].attach_scale(file["y"])
            file[name].dims[1].attach_scale(file["x"])
            file[name].dims[1].attach_scale(file["x2"])
        file["w"].dims[0].label = "north"
        file["labels"] = np.zeros((2, 3))
        file["labels"].dims[1].label = "größe"

    check(pool, tmp_path, make)


def test_array_types_come_back(pool: engram.Pool, tmp_path: Path) -> None:
    def make(file: h5py.File) -> None:
        kind = np.dtype((">f4", (2, 3)))
        file.create_dataset("v", (4,), kind)[...] = np.arange(24).reshape(4, 2, 3)
        file.create_dataset("c", (4,), kind, chunks=(3,), compression="gzip")
        file["v"].attrs.create("a", np.arange(12.0).reshape(2, 2, 3), dtype=kind)
        file["v"].attrs.create("one", np.arange(6.0).reshape(2, 3), dtype=kind)
        nested = h5t.array_create(h5t.array_create(h5t.STD_I16LE, (2,)), (3,))
        h5d.create(file.id, b"nested", nested, h5s.create_simple((4,)))

    check(pool, tmp_path, make)


def test_the_comparison_sees_what_differs(tmp_path: Path) -> None:
    def make(path: Path, **options: Any) -> Path:
        with h5py.File(path, "w") as file:
            file.create_dataset("v", data=np.arange(6, dtype="i4"), chunks=(3,), **options)
            file["v"].attrs["a"] = options.get("fillvalue", 0)
        return path

    plain = make(tmp_path / "plain.h5")
    assert not differences(make(tmp_path / "same.h5"), plain)
    for options in ({"compression": "gzip"}, {"fillvalue": 3}, {"maxshape": (None,)}):
        assert differences(make(tmp_path / "other.h5", **options), plain)
