"""Zarr: a store that goes in comes out with the same documents and the same bits."""

from __future__ import annotations

import json
import math
import shutil
import zipfile
from typing import TYPE_CHECKING, Any

import numpy as np
import pytest
import zarr
from hypothesis import given, settings
from hypothesis import strategies as st
from numcodecs import Blosc
from zarr import codecs

import engram
from alike_zarr import assert_alike, assert_same_values, nodes, spelled, values
from engram.formats.zarr import attributes, documents
from stores import NUMBERS, STORED, edited, made
from support import DTYPES, TEXT, assert_exactly, filled

if TYPE_CHECKING:
    from pathlib import Path

pytestmark = pytest.mark.filterwarnings("error")

KINDS = [
    *("bool", "int8", "uint8", "int16", "uint16", "int32", "uint32", "int64", "uint64"),
    *("float16", "float32", "float64", "complex64", "complex128", "S5", "<U3", "V4", "V3"),
    *("<M8[ns]", "<M8[D]", "<M8[25us]", "<m8[ms]", "<m8[7D]"),
]
RECORDS = [
    np.dtype([("x", "<f4"), ("y", "<i8")]),
    np.dtype([("inner", [("x", "<f4"), ("s", "S3")]), ("when", "<M8[ms]"), ("u", "<U2")]),
]


def around(pool: engram.Pool, store: Path) -> Path:
    """Import a store, and export what came of it."""
    group = pool.create_group(f"g{len(pool)}")
    came = engram.import_file(store, group)
    assert {entry.what for entry in came.left_out} <= {"dimension names"}, str(came)
    out = store.with_name(f"{len(pool)}-{store.name}")
    report = engram.export_file(group, out, format="zarr")
    assert (report.complete, report.format) == (True, "ZARR3")
    return out


@pytest.mark.parametrize("dtype", [*KINDS, *RECORDS], ids=str)
def test_a_store_of_each_dtype_comes_back(pool: engram.Pool, tmp_path: Path, dtype: Any) -> None:
    members: dict[str, Any] = {
        f"v{len(shape)}{math.prod(shape)}": {
            "data": filled(np.dtype(dtype), shape),
            "chunks": tuple(max(1, n // 2) for n in shape),
        }
        for shape in [(), (7,), (5, 6), (0,), (3, 0, 2)]
    }
    store = made(tmp_path / "x.zarr", **members)
    assert_alike(around(pool, store), store)
    for name, said in members.items():
        assert_exactly(pool[f"g0/{name}"], said["data"])


def test_strings_and_bytes_of_variable_length_come_back(pool: engram.Pool, tmp_path: Path) -> None:
    text = np.array([["x", "", "höhe ✓"], ["long" * 99, "\n", "a\0"]], dtype=TEXT)
    raw = np.array([b"x", b"", b"\xff\0\xfe"], dtype=object)
    store = made(
        tmp_path / "x.zarr",
        text={"data": text, "dtype": "string", "chunks": (1, 2)},
        scalar={"data": np.array("one", dtype=TEXT), "dtype": "string"},
        none={"data": np.array([], dtype=TEXT), "dtype": "string"},
        raw={"data": raw, "dtype": "variable_length_bytes"},
    )
    assert_alike(around(pool, store), store)
    assert_exactly(pool["g0/text"], text)
    assert pool["g0/raw"][...].tolist() == raw.tolist()


def test_bytes_that_end_with_nul_are_refused_by_name(pool: engram.Pool, tmp_path: Path) -> None:
    data = np.array([b"x\0"], dtype=object)
    store = made(tmp_path / "x.zarr", raw={"data": data, "dtype": "variable_length_bytes"})
    with pytest.raises(engram.FormatError, match=r"x\.zarr: /raw: .*NUL"):
        engram.import_file(store, pool)
    assert not list(pool)


@pytest.mark.parametrize("how", STORED)
def test_each_way_to_store_comes_back(pool: engram.Pool, tmp_path: Path, how: str) -> None:
    arguments = {"data": NUMBERS, "chunks": (4, 5), **STORED[how]}
    store = made(tmp_path / "x.zarr", v=arguments)
    out = around(pool, store)
    assert_alike(out, store)
    found = pool["g0/v"]
    assert np.array_equal(found[...], NUMBERS)
    assert found.dims == (("y", "x") if how == "named" else None)
    assert found.dtype.byteorder == (">" if "big" in how else "=")


def test_groups_and_consolidated_metadata_come_back(pool: engram.Pool, tmp_path: Path) -> None:
    store = made(tmp_path / "x.zarr", **{"a/b/v": [1, 2], "a/w": [3.0], "höhe": [True]})
    zarr.open_group(store, path="empty", mode="w", attributes={"title": "nothing in it"})
    assert_alike(around(pool, store), store)
    for path in ("a", None):
        with pytest.warns(UserWarning, match="Consolidated"):
            zarr.consolidate_metadata(store, path=path)
    document = nodes(store)["."]
    assert set(document["consolidated_metadata"]["metadata"]) == set(nodes(store)) - {"."}
    out = around(pool, store)
    assert_alike(out, store)
    assert set(zarr.open_consolidated(out)) == {"a", "empty", "höhe"}


def test_consolidated_metadata_follow_what_is_exported(pool: engram.Pool, tmp_path: Path) -> None:
    store = made(tmp_path / "x.zarr", v=[1, 2])
    with pytest.warns(UserWarning, match="Consolidated"):
        zarr.consolidate_metadata(store)
    engram.import_file(store, pool)
    pool["w"] = np.arange(3)
    pool["v"] = np.arange(4.0)
    engram.export_file(pool, tmp_path / "y.zarr")
    opened = zarr.open_consolidated(tmp_path / "y.zarr")
    assert {name: array[:].tolist() for name, array in opened.arrays()} == {
        "v": [0.0, 1.0, 2.0, 3.0],
        "w": [0, 1, 2],
    }


def test_what_this_library_does_not_know_comes_back(pool: engram.Pool, tmp_path: Path) -> None:
    store = made(tmp_path / "x.zarr", v=[1, 2], g=[1])
    extension = {"must_understand": False, "of": [1.0, None]}
    edited(store, "v", lambda d: d.update(extension=extension))
    edited(store, "", lambda d: d.update(extension=extension, consolidated_metadata=None))
    edited(store, "g", lambda d: d.update(dimension_names=[""]))
    edited(store, "v", lambda d: d.pop("attributes"))
    edited(store, "v", lambda d: d.pop("storage_transformers"))
    edited(store, "", lambda d: d.pop("attributes"))
    assert_alike(around(pool, store), store)


def test_raw_bits_come_back(pool: engram.Pool, tmp_path: Path) -> None:
    data = filled(np.dtype("V2"), (5,))
    store = made(tmp_path / "x.zarr", v={"data": data, "compressors": None})
    chunk = (store / "v/c/0").read_bytes()
    edited(store, "v", lambda d: d.update(data_type="r16", fill_value=[0, 0]))
    out = around(pool, store)
    assert spelled(nodes(out)) == spelled(nodes(store))
    assert (out / "v/c/0").read_bytes() == chunk
    assert_exactly(pool["g0/v"], data)


def test_a_store_of_one_array_comes_back(pool: engram.Pool, tmp_path: Path) -> None:
    zarr.create_array(tmp_path / "x.zarr", data=NUMBERS, attributes={"a": [None]})
    assert_alike(around(pool, tmp_path / "x.zarr"), tmp_path / "x.zarr")
    assert np.array_equal(pool["g0/x"][...], NUMBERS)


JSON = st.recursive(
    st.none()
    | st.booleans()
    | st.integers(-(2**70), 2**70)
    | st.floats()
    | st.text(max_size=5)
    | st.sampled_from(["\ud800", "a\0", 2**53 + 1, 2**64 - 1, 2**63, -(2**63)]),
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(st.text(max_size=3), inner),
    max_leaves=12,
)


@given(document=st.dictionaries(st.sampled_from(["a", "b", "_FillValue"]), JSON))
def test_every_attribute_comes_back_as_the_json_it_was(document: dict[str, Any]) -> None:
    document = json.loads(json.dumps(document))  # of NaNs, JSON has only one
    for dtype in map(np.dtype, ("V1", "<f4", "<c8", "<i2", "S4")):
        found, kept, _ = attributes.read(document, dtype)
        again, changed = attributes.write(found, json.loads(json.dumps(kept)), dtype)
        assert spelled(again) == spelled(document)
        assert not changed


@settings(max_examples=50)
@given(document=st.dictionaries(st.text(st.characters(codec="utf-8"), min_size=1), JSON))
def test_every_attribute_comes_back_through_a_pool(
    pool: engram.Pool, tmp_path: Path, document: dict[str, Any]
) -> None:
    if any("\0" in name or len(name.encode()) > 255 for name in document):
        return
    shutil.rmtree(tmp_path, ignore_errors=True)
    tmp_path.mkdir()
    store = made(tmp_path / "x.zarr")
    edited(store, "", lambda d: d.update(attributes=document))
    assert_alike(around(pool, store), store)


@pytest.mark.parametrize(
    ("said", "value"),
    [
        ("text", "text"),
        (True, np.True_),
        (3, np.int64(3)),
        (3.0, np.float64(3)),
        (2**63, np.uint64(2**63)),
        ([1, 2], np.array([1, 2])),
        ([1, 2.5], np.array([1, 2.5])),
        ([[1.5], [2.0]], np.array([[1.5], [2.0]])),
        ([True, False], np.array([True, False])),
        (["a", "höhe"], np.array(["a", "höhe"], dtype=TEXT)),
        (None, "null"),
        ({"a": [1, None]}, '{"a": [1, null]}'),
        ([1, "a"], '[1, "a"]'),
        (2**70, str(2**70)),
    ],
)
def test_an_attribute_is_the_value_that_one_would_write(
    pool: engram.Pool, tmp_path: Path, said: Any, value: Any
) -> None:
    store = edited(made(tmp_path / "x.zarr"), "", lambda d: d.update(attributes={"a": said}))
    report = engram.import_file(store, pool)
    found = pool.attrs["a"]
    assert type(found) is type(value)
    assert np.asarray(found).dtype == np.asarray(value).dtype
    assert np.array_equal(found, value)
    has_no_like = isinstance(value, str) and not isinstance(said, str)
    assert [entry.what for entry in report.noted] == ["attribute a"] * has_no_like


def test_an_attribute_changed_since_is_written_as_it_is_now(
    pool: engram.Pool, tmp_path: Path
) -> None:
    said = {"a": {"b": None}, "c": [1, 2.5]}
    store = edited(made(tmp_path / "x.zarr"), "", lambda d: d.update(attributes=said))
    engram.import_file(store, pool)
    pool.attrs["a"] = "other"
    engram.export_file(pool, tmp_path / "y.zarr")
    assert nodes(tmp_path / "y.zarr")["."]["attributes"] == {"a": "other", "c": [1, 2.5]}


@pytest.mark.parametrize("fill", ["0.0", "-0.0", "NaN", "1.5"])
@pytest.mark.parametrize("dtype", ["f2", "f4", "f8", "c8", "c16"])
def test_no_bit_is_lost_where_a_chunk_is_like_the_fill_value(
    pool: engram.Pool, tmp_path: Path, fill: str, dtype: str
) -> None:
    bits = np.dtype(f"u{np.dtype(dtype).itemsize // (2 if dtype[0] == 'c' else 1)}")
    signalling = np.full((2,), np.nan, dtype).view(bits)
    signalling += 1
    likes = [np.zeros(2, dtype), -np.zeros(2, dtype), np.full(2, np.nan, dtype)]
    data = np.concatenate([*likes, signalling.view(dtype), np.full(2, 1.5, dtype)])
    number = float(fill)
    pool["v"] = data
    engram.export_file(pool, tmp_path / "x.zarr")
    edited(tmp_path / "x.zarr", "", lambda d: d.pop("consolidated_metadata"))

    def change(document: dict[str, Any]) -> None:
        document["fill_value"] = fill if fill == "NaN" else number
        if dtype[0] == "c":
            document["fill_value"] = [document["fill_value"], 0.0]
        document["chunk_grid"]["configuration"]["chunk_shape"] = [2]

    edited(tmp_path / "x.zarr", "v", change)
    shutil.rmtree(tmp_path / "x.zarr/v/c")
    with zarr.config.set({"array.write_empty_chunks": True}):
        zarr.open_array(tmp_path / "x.zarr/v", mode="r+")[...] = data
    out = around(pool, tmp_path / "x.zarr")
    assert_alike(out, tmp_path / "x.zarr")
    assert values(out / "v").tobytes() == data.tobytes()


SHAPES = st.lists(st.integers(0, 7), max_size=3).map(tuple)


@st.composite
def arrays(draw: st.DrawFn) -> dict[str, Any]:
    """Draw an array with a way to store it."""
    shape = draw(SHAPES)
    dtype = np.dtype(draw(st.sampled_from([*KINDS, *RECORDS])))
    chunks = tuple(draw(st.integers(1, 4)) for _ in shape)
    arguments: dict[str, Any] = {"data": filled(dtype, shape, draw(st.integers(0, 99)))}
    arguments["chunks"] = chunks
    if draw(st.booleans()) and shape and dtype.kind != "V":  # zarr cannot write those
        arguments["shards"] = tuple(n * draw(st.integers(1, 3)) for n in chunks)
    if draw(st.booleans()):
        names = st.text(
            st.characters(codec="utf-8", exclude_characters="\0"), min_size=1, max_size=9
        )
        arguments["dimension_names"] = [draw(names | st.none()) for _ in shape]
    if draw(st.booleans()):
        arguments["fill_value"] = (
            arguments["data"].reshape(-1)[0] if arguments["data"].size else None
        )
    arguments["compressors"] = draw(st.sampled_from([None, codecs.GzipCodec(), "auto"]))
    if dtype.kind in "iufcMm" and dtype.itemsize > 1:
        arguments["serializer"] = codecs.BytesCodec(endian=draw(st.sampled_from(["little", "big"])))
    return arguments


@settings(max_examples=60)
@given(drawn=st.lists(arrays(), min_size=1, max_size=3))
def test_whatever_zarr_writes_comes_back(
    pool: engram.Pool, tmp_path: Path, drawn: list[dict[str, Any]]
) -> None:
    shutil.rmtree(tmp_path, ignore_errors=True)
    tmp_path.mkdir()
    store = made(tmp_path / "x.zarr", **{f"v{n}": said for n, said in enumerate(drawn)})
    assert_alike(around(pool, store), store)


def is_stored(dtype: np.dtype[Any]) -> bool:
    """Whether Zarr has a like of a dtype."""
    try:
        documents.stored(dtype)
    except engram.FormatError:
        return False
    return True


@pytest.mark.parametrize("dtype", DTYPES, ids=str)
def test_arrays_of_a_pool_are_written_or_refused_by_name(
    pool: engram.Pool, tmp_path: Path, dtype: np.dtype[Any]
) -> None:
    value = filled(dtype, (3, 4))
    pool["g/v"] = value
    pool["w"] = np.arange(3)
    if not is_stored(dtype):
        with pytest.raises(engram.FormatError, match=r"/g/v: dtype .*no like"):
            engram.export_file(pool, tmp_path / "x.zarr")
        assert not list(tmp_path.iterdir())
        report = engram.export_file(pool, tmp_path / "x.zarr", lossy=True)
        assert [entry.path for entry in report.left_out] == ["/g/v"]
        assert set(nodes(tmp_path / "x.zarr")) == {".", "g", "w"}
        return
    engram.export_file(pool, tmp_path / "x.zarr")
    assert_same_values(values(tmp_path / "x.zarr/g/v"), value.astype(documents.stored(dtype)))
    engram.import_file(tmp_path / "x.zarr", pool.create_group("again"))
    again = pool["again/g/v"]
    assert again.dtype == (dtype if dtype.names is None else documents.stored(dtype))


def test_at_least_the_usual_dtypes_are_stored() -> None:
    stored = {dtype.str for dtype in DTYPES if dtype.names is None and is_stored(dtype)}
    assert {"|b1", ">i8", "<f2", ">c16", "|S7", ">U5", "|V16", ">M8[D]", "<m8[7D]"} <= stored
    assert np.dtype("longdouble").str not in stored


def test_what_zarr_has_in_another_way_is_noted(pool: engram.Pool, tmp_path: Path) -> None:
    attrs = {"a": np.int16(3), "b": np.array([1.5], "f4"), "c": 2.5, "d": "x"}
    pool.create_array("v", data=np.zeros(3, "S2"), attrs=attrs)
    pool.create_blob("raw", b"bytes")
    report = engram.export_file(pool, tmp_path / "x.zarr")
    assert {(entry.path, entry.what) for entry in report.noted} == {
        ("/v", "attributes a (int16), b (float32)"),
        ("/v", "dtype |S2"),
        ("/raw", "blob"),
    }
    said = nodes(tmp_path / "x.zarr")["v"]["attributes"]
    assert spelled(said) == spelled({"a": 3, "b": [1.5], "c": 2.5, "d": "x"})


def test_attributes_that_json_lacks_are_refused_by_name(pool: engram.Pool, tmp_path: Path) -> None:
    pool.attrs["when"] = np.datetime64("2020-01-01")
    pool.create_group("g", attrs={"bytes": np.bytes_(b"\xff"), "fine": 1})
    with pytest.raises(engram.FormatError, match=r"/: attribute when.*/g: attribute bytes"):
        engram.export_file(pool, tmp_path / "x.zarr")
    report = engram.export_file(pool, tmp_path / "x.zarr", lossy=True)
    assert [entry.what for entry in report.left_out] == ["attribute when", "attribute bytes"]
    assert nodes(tmp_path / "x.zarr")["g"]["attributes"] == {"fine": 1}


def test_large_arrays_get_chunks_of_a_few_mib(pool: engram.Pool, tmp_path: Path) -> None:
    pool["large"] = np.zeros((1000, 1100), "f8")
    pool["small"] = np.zeros((10, 11), "f8")
    told: list[int] = []
    engram.export_file(pool, tmp_path / "x.zarr", progress=lambda p: told.append(p.done))
    assert zarr.open_array(tmp_path / "x.zarr/large", mode="r").chunks == (476, 1100)
    assert zarr.open_array(tmp_path / "x.zarr/small", mode="r").chunks == (10, 11)
    assert told[-1] == 8 * (1100 * 1000 + 110)


def test_a_slice_keeps_how_the_array_is_stored(pool: engram.Pool, tmp_path: Path) -> None:
    said = {**STORED["sharded-big"], "data": NUMBERS, "dimension_names": ("y", "x")}
    engram.import_file(made(tmp_path / "x.zarr", v=said), pool)
    engram.export_file(pool, tmp_path / "y.zarr", slices="y=2:7:2")
    before, after = nodes(tmp_path / "x.zarr")["v"], nodes(tmp_path / "y.zarr")["v"]
    assert after == {**before, "shape": [3, 12]}
    assert np.array_equal(values(tmp_path / "y.zarr/v"), NUMBERS[2:7:2])


@pytest.mark.parametrize("how", ["plain", "sharded", "transposed", "big"])
def test_part_of_a_store_is_read(pool: engram.Pool, tmp_path: Path, how: str) -> None:
    said = {"chunks": (4, 5), **STORED[how], "data": NUMBERS, "dimension_names": ("y", "x")}
    text = {"data": np.array([f"{n}" for n in range(10)], dtype=TEXT), "dtype": "string"}
    names = {**text, "chunks": (3,), "dimension_names": ("y",)}
    store = made(tmp_path / "x.zarr", **{"g/v": said, "g/names": names, "w": [1]})
    engram.import_file(store, pool, select="g/*", slices=["y=1:9:3", "x=2:11:4"])
    assert list(pool) == ["g"]
    assert np.array_equal(pool["g/v"][...], NUMBERS[1:9:3, 2:11:4])
    assert pool["g/names"][...].tolist() == ["1", "4", "7"]


def test_an_array_replaced_since_is_written_as_it_is_now(pool: engram.Pool, tmp_path: Path) -> None:
    engram.import_file(made(tmp_path / "x.zarr", v=NUMBERS), pool)
    pool.create_array("v", data=NUMBERS.astype("f8"), dims=("y", "x"), overwrite=True)
    engram.export_file(pool, tmp_path / "y.zarr")
    found = zarr.open_array(tmp_path / "y.zarr/v", mode="r")
    assert (found.dtype, found.metadata.dimension_names) == (np.dtype("f8"), ("y", "x"))
    assert np.array_equal(found[...], NUMBERS)


def test_an_export_replaces_a_store_but_no_other_folder(pool: engram.Pool, tmp_path: Path) -> None:
    pool["v"] = np.arange(3)
    engram.export_file(pool, tmp_path / "x.zarr")
    pool["v"] = np.arange(4)
    engram.export_file(pool, tmp_path / "x.zarr", overwrite=True)
    assert values(tmp_path / "x.zarr/v").tolist() == [0, 1, 2, 3]
    (tmp_path / "other").mkdir()
    (tmp_path / "other/file").touch()
    with pytest.raises(engram.ExistsError, match="folder"):
        engram.export_file(pool, tmp_path / "other", format="zarr", overwrite=True)


def test_a_zip_archive_is_read_as_the_folder_is(pool: engram.Pool, tmp_path: Path) -> None:
    store = made(tmp_path / "x.zarr", **{"a/v": NUMBERS, "w": [1.5]})
    for name in ("x.zarr.zip", "y.zip"):
        with zipfile.ZipFile(tmp_path / name, "w") as archive:
            for file in sorted(store.rglob("*")):
                archive.write(file, str(file.relative_to(store)))
        group = pool.create_group(name)
        assert engram.import_file(tmp_path / name, group).format == "ZARR3"
        assert np.array_equal(group["a/v"][...], NUMBERS)
        engram.export_file(group, tmp_path / f"{name}.zarr")
        assert_alike(tmp_path / f"{name}.zarr", store)


def test_stores_of_the_second_version_are_read(pool: engram.Pool, tmp_path: Path) -> None:
    root = zarr.open_group(tmp_path / "x.zarr", mode="w", zarr_format=2, attributes={"t": "x"})
    array = root.create_array(
        "g/v", shape=(10, 12), chunks=(4, 5), dtype=">i4", fill_value=7, compressors=Blosc()
    )
    array[:6] = NUMBERS[:6]
    array.attrs.update({"_ARRAY_DIMENSIONS": ["y", "x"], "units": "K"})
    names = root.create_array("names", shape=(2,), dtype="string")
    names[...] = np.array(["a", "höhe"], dtype=TEXT)
    report = engram.import_file(tmp_path / "x.zarr", pool)
    noted = [entry.what for entry in report.noted]
    assert (report.format, noted) == ("ZARR2", ["Zarr v2", "attribute _FillValue"])
    found = pool["g/v"]
    assert (found.dims, dict(found.attrs), dict(pool.attrs)) == (
        ("y", "x"),
        {"_FillValue": 7, "units": "K"},
        {"t": "x"},
    )
    assert found.dtype == np.dtype(">i4")
    assert np.array_equal(found[:6], NUMBERS[:6])
    assert (found[6:] == 7).all()
    assert pool["names"][...].tolist() == ["a", "höhe"]
    engram.export_file(pool, tmp_path / "y.zarr")
    assert np.array_equal(values(tmp_path / "y.zarr/g/v"), found[...])
    assert zarr.open_array(tmp_path / "y.zarr/g/v", mode="r").chunks == (4, 5)
    chunk = tmp_path / "x.zarr/g/v/1.1"
    chunk.write_bytes(chunk.read_bytes()[:-3])
    with pytest.raises(engram.FormatError, match=r"/g/v: .*chunk.*truncated"):
        engram.import_file(tmp_path / "x.zarr", pool.create_group("again"))


def test_files_that_are_none_of_zarrs_are_told(pool: engram.Pool, tmp_path: Path) -> None:
    store = made(tmp_path / "x.zarr", v=[1])
    (store / "README.md").touch()
    (store / "notes").mkdir()
    (store / "notes/a").touch()
    report = engram.import_file(store, pool)
    assert [entry.path for entry in report.left_out] == ["/README.md", "/notes"]
    assert list(pool) == ["v"]


@pytest.mark.parametrize("name", ["zarr.json", "a\\b"])
def test_names_that_zarr_lacks_are_refused(pool: engram.Pool, tmp_path: Path, name: str) -> None:
    pool[name] = np.arange(3)
    with pytest.raises(engram.FormatError, match="no nodes named"):
        engram.export_file(pool, tmp_path / "x.zarr")
