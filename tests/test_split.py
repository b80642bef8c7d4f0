"""What has no fixed size in a file comes in as its parts, and goes out as what it was."""

from __future__ import annotations

import json
import math
from typing import TYPE_CHECKING, Any

import h5py
import netCDF4
import numcodecs
import numpy as np
import pytest
import zarr
from h5py import h5d, h5p, h5s, h5t
from hypothesis import given, settings
from hypothesis import strategies as st

import engram
from alike_hdf5 import assert_alike
from engram.formats import ragged
from engram.formats.blocks import index
from engram.formats.zarr import documents
from support import TEXT

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

STRING, ASCII = h5py.string_dtype(), h5py.string_dtype("ascii")
CLOUDS = h5py.enum_dtype({"clear": 0, "cumulus": 3}, basetype="u1")
STATION = np.dtype(
    [
        ("name", STRING),
        ("height", ">f8"),
        ("levels", h5py.vlen_dtype("<i4")),
        ("cloud", CLOUDS),
        ("place", [("code", ASCII), ("at", "<f4", (2,))]),
        ("tags", STRING, (2,)),
        ("log", [("text", STRING), ("n", "<i2")], (3,)),
    ]
)


def stations(count: int) -> np.ndarray[Any, Any]:
    """Return records of which each field differs from place to place."""
    made = np.zeros(count, STATION)
    for n in range(count):
        made[n]["name"] = "höhe" * n
        made[n]["height"] = n / 4
        made[n]["levels"] = np.arange(n, dtype="i4")
        made[n]["cloud"] = 3 * (n % 2)
        made[n]["place"]["code"] = f"c{n}"
        made[n]["place"]["at"] = (n, -n)
        made[n]["tags"][:] = [f"a{n}", ""]
        for k in range(3):
            made[n]["log"][k] = (f"{n}.{k}", 10 * n + k)
    return made


def imported(pool: engram.Pool, path: Path, make: Callable[[h5py.File], object]) -> Any:
    """Make an HDF5 file and import it whole."""
    with h5py.File(path, "w") as file:
        make(file)
    report = engram.import_file(path, pool)
    assert report.complete, str(report)
    return pool


def sequences(offsets: Any, values: Any) -> list[list[Any]]:
    """Return the sequences of a group's two arrays, in C order."""
    starts, stops = offsets[...][..., :-1], offsets[...][..., 1:]
    bounds = zip(starts.flat, stops.flat, strict=True)
    return [values[...][a:b].tolist() for a, b in bounds]


def test_a_compound_with_text_comes_in_as_a_group_of_its_fields(
    pool: engram.Pool, tmp_path: Path
) -> None:
    def make(file: h5py.File) -> None:
        made = file.create_dataset("stations", data=stations(5), chunks=(2,), maxshape=(None,))
        made.attrs["network"] = "A"
        made.dims[0].label = "station"

    found = imported(pool, tmp_path / "x.h5", make)["stations"]
    assert dict(found.attrs) == {"network": "A"}
    assert found["name"][...].tolist() == ["höhe" * n for n in range(5)]
    assert (found["name"].dtype, found["name"].dims) == (TEXT, ("station",))
    assert (found["height"].dtype, found["height"][...].tolist()) == (
        np.dtype(">f8"),
        [0, 0.25, 0.5, 0.75, 1],
    )
    assert found["levels/offsets"][...].tolist() == [0, 0, 1, 3, 6, 10]
    assert found["levels/values"][6:].tolist() == [0, 1, 2, 3]
    assert found["cloud"][...].tolist() == [0, 3, 0, 3, 0]
    assert found["place/code"][...].tolist() == ["c0", "c1", "c2", "c3", "c4"]
    assert found["place/at"][3].tolist() == [3, -3]
    assert found["tags"][2].tolist() == ["a2", ""]
    assert found["log/text"][4].tolist() == ["4.0", "4.1", "4.2"]
    assert found["log/n"][4].tolist() == [40, 41, 42]


def test_what_came_in_as_parts_goes_out_as_it_was(pool: engram.Pool, tmp_path: Path) -> None:
    def make(file: h5py.File) -> None:
        file["kinds/station"] = STATION
        data = stations(5)
        file.create_dataset("a/named", data=data, dtype=file["kinds/station"])
        file.create_dataset("chunked", data=data, chunks=(2,), maxshape=(None,), shuffle=True)
        file.create_dataset("none", (0,), dtype=STATION)
        file.create_dataset("one", data=stations(2)[1])
        file["again"] = file["chunked"]
        for name, base in {"i": "<i4", "big": ">f8", "cloud": CLOUDS, "text": STRING}.items():
            made = file.create_dataset(name, (2, 3), dtype=h5py.vlen_dtype(base))
            words = np.array(["x", "yy"], object) if name == "text" else np.array([3, 0], base)
            made[0, 1] = made[1, 2] = words
            made.attrs["units"] = "m"
        pair = h5py.vlen_dtype(np.dtype([("a", "<i2"), ("b", ">f4")]))
        file.create_dataset("pairs", (2,), dtype=pair)[1] = np.array([(1, 2)], "<i2,>f4")
        file.create_dataset("scalar", (), dtype=h5py.vlen_dtype("u1"))[()] = np.arange(
            3, dtype="u1"
        )
        rows = file.create_dataset("words", (3,), dtype=np.dtype((STRING, (2,))))
        rows[...] = np.array([["a", "b"], ["c", "é"], ["", "f"]], object)
        pairs_of_text = np.array([["a", "b"], ["c", "é"]], object)
        rows.attrs.create("two", pairs_of_text, dtype=np.dtype((STRING, (2,))))
        for dimension in ("chunked", "i"):
            file[dimension].dims[0].label = "x"
        file["i"].dims[1].label = "y"

    with h5py.File(tmp_path / "x.h5", "w") as file:
        make(file)
    report = engram.import_file(tmp_path / "x.h5", pool)
    assert report.complete, str(report)
    assert "named datatype" in [e.what for e in report.noted]
    written = engram.export_file(pool, tmp_path / "y.h5")
    assert not written.noted, str(written)
    assert_alike(tmp_path / "y.h5", tmp_path / "x.h5")


@pytest.mark.parametrize("base", ["<i4", ">i4", ">f8", "<c16", "?", "S3"])
def test_sequences_have_the_values_that_were_written(
    pool: engram.Pool, tmp_path: Path, base: str
) -> None:
    given = [[1, 2, 3], [], [1], [0, 2], [], [3]]

    def make(file: h5py.File) -> None:
        made = file.create_dataset("v", (2, 3), dtype=h5py.vlen_dtype(np.dtype(base)))
        for place, values in enumerate(given):
            if values:
                made[place // 3, place % 3] = np.array(values).astype(base)

    found = imported(pool, tmp_path / "x.h5", make)["v"]
    assert found["offsets"].shape == (2, 4)
    assert found["values"].dtype == np.dtype(base)
    assert sequences(found["offsets"], found["values"]) == [
        np.array(values).astype(base).tolist() for values in given
    ]


def test_ragged_variables_of_netcdf_come_in_and_go_out(pool: engram.Pool, tmp_path: Path) -> None:
    with netCDF4.Dataset(tmp_path / "x.nc", "w") as file:
        file.createDimension("x", 3)
        file.createDimension("t", None)
        rows = file.createVariable("rows", file.createVLType(np.int32, "row"), ("x",), zlib=True)
        rows.units = "m"
        rows[0], rows[2] = np.array([1, 2, 3], "i4"), np.array([9], "i4")
        group = file.createGroup("g")
        late = group.createVariable("late", file.createVLType(np.float64, "late"), ("t", "x"))
        late[1, 1] = np.array([1.5, 2.5])
        file.createVariable("long", "i4", ("t",))[:] = np.arange(4)
    report = engram.import_file(tmp_path / "x.nc", pool)
    assert (report.complete, report.arrays) == (True, 5)
    found: Any = pool
    assert dict(found["rows"].attrs) == {"units": "m"}
    assert sequences(found["rows/offsets"], found["rows/values"]) == [[1, 2, 3], [], [9]]
    # The dimension is longer than the variable, which has nothing there.
    assert found["g/late/offsets"].shape == (4, 4)
    assert sequences(found["g/late/offsets"], found["g/late/values"])[4] == [1.5, 2.5]
    assert not engram.export_file(pool, tmp_path / "y.nc").noted
    with netCDF4.Dataset(tmp_path / "x.nc") as one, netCDF4.Dataset(tmp_path / "y.nc") as other:
        assert list(one.vltypes) == list(other.vltypes)
        for name in ("rows", "g/late"):
            assert one[name].dimensions == other[name].dimensions
            assert one[name].datatype.name == other[name].datatype.name
            assert one[name].filters() == other[name].filters()
            assert one[name].ncattrs() == other[name].ncattrs()
            pairs = zip(one[name][...].flat, other[name][...].flat, strict=True)
            assert all(a.tolist() == b.tolist() for a, b in pairs)


def test_sequences_with_dimension_scales_go_out_as_they_were(
    pool: engram.Pool, tmp_path: Path
) -> None:
    def make(file: h5py.File) -> None:
        file["row"] = h5py.vlen_dtype("<i4")
        file["x"] = np.arange(3.0)
        file["x"].make_scale("x")
        for name, dtype in {"named": file["row"], "plain": h5py.vlen_dtype(">f4")}.items():
            made = file.create_dataset(name, (3,), dtype=dtype)
            made[1] = np.array([1, 2])
            made.dims[0].attach_scale(file["x"])
            made.attrs["units"] = "m"

    with h5py.File(tmp_path / "x.h5", "w") as file:
        make(file)
    assert engram.import_file(tmp_path / "x.h5", pool).complete
    found = [one.path for one in pool.query('group.units = "m" and @name = "values"')]
    assert sorted(found) == ["named/values", "plain/values"]
    assert not engram.export_file(pool, tmp_path / "y.h5").noted
    assert_alike(tmp_path / "y.h5", tmp_path / "x.h5")
    assert not engram.export_file(pool, tmp_path / "y.nc").left_out
    with netCDF4.Dataset(tmp_path / "y.nc") as again:
        assert [one.tolist() for one in again["named"][...]] == [[], [1, 2], []]


def test_what_was_changed_goes_out_as_its_parts_and_is_noted(
    pool: engram.Pool, tmp_path: Path
) -> None:
    def make(file: h5py.File) -> None:
        for name in ("longer", "gone", "more", "falls", "same"):
            file.create_dataset(name, data=stations(3))

    found = imported(pool, tmp_path / "x.h5", make)
    found["longer/height"] = np.zeros(4, ">f8")
    del found["gone/name"]
    found["more/new"] = np.zeros(3)
    found["falls/levels/offsets"][...] = [0, 3, 1, 2]
    found["same/height"][...] = 7
    report = engram.export_file(pool, tmp_path / "y.h5")
    assert {e.path: e.why.partition(": ")[2] for e in report.noted} == {
        "/falls": "its offsets do not ascend",
        "/gone": "it has no array 'name'",
        "/longer": "its parts are of several lengths, [(3,), (4,)]",
        "/more": "'new' is missing, or new",
    }
    with h5py.File(tmp_path / "y.h5") as file:
        assert file["longer/height"].shape == (4,)
        assert file["same"]["height"].tolist() == [7, 7, 7]
        assert [n.decode() for n in file["same"]["name"]] == ["", "höhe", "höhehöhe"]


def test_a_field_without_a_like_is_left_out_alone(pool: engram.Pool, tmp_path: Path) -> None:
    dtype = np.dtype([("name", STRING), ("to", h5py.ref_dtype), ("a/b", "<i4")])
    with h5py.File(tmp_path / "x.h5", "w") as file:
        made = file.create_dataset("v", (2,), dtype=dtype)
        made[...] = np.array([("x", file.ref, 1), ("y", file.ref, 2)], dtype)
    report = engram.import_file(tmp_path / "x.h5", pool)
    assert {(e.path, e.what) for e in report.left_out} == {("/v/to", "field"), ("/v/a/b", "field")}
    assert list(pool["v"]) == ["name"]
    noted = engram.export_file(pool, tmp_path / "y.h5").noted
    assert [(e.path, e.what) for e in noted] == [("/v", "group")]


def test_a_part_of_sequences_is_read(pool: engram.Pool, tmp_path: Path) -> None:
    def make(file: h5py.File) -> None:
        made = file.create_dataset("v", (6, 4), dtype=h5py.vlen_dtype("i4"), chunks=(2, 3))
        for i in range(6):
            for j in range(4):
                made[i, j] = np.full((i + j) % 3, 10 * i + j)
        made.dims[0].label, made.dims[1].label = "y", "x"

    with h5py.File(tmp_path / "x.h5", "w") as file:
        make(file)
    engram.import_file(tmp_path / "x.h5", pool, slices=["y=1:6:2", "x=1:4"])
    found: Any = pool["v"]
    assert sequences(found["offsets"], found["values"]) == [
        [10 * i + j] * ((i + j) % 3) for i in (1, 3, 5) for j in (1, 2, 3)
    ]


def test_many_sequences_are_read_a_piece_at_a_time(
    pool: engram.Pool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(ragged, "BLOCK_BYTES", 4000)
    monkeypatch.setattr("engram.formats.blocks.BLOCK_BYTES", 4000)
    lengths = [*np.random.default_rng(1).integers(0, 50, 400).tolist(), 5000, 0, 1]

    def make(file: h5py.File) -> None:
        made = file.create_dataset("v", (len(lengths),), dtype=h5py.vlen_dtype("i4"))
        made[...] = np.array([np.arange(n, dtype="i4") + n for n in lengths], object)

    found = imported(pool, tmp_path / "x.h5", make)["v"]
    got = sequences(found["offsets"], found["values"])
    assert got == [list(range(n, 2 * n)) for n in lengths]
    assert not engram.export_file(pool, tmp_path / "y.h5").noted
    assert_alike(tmp_path / "y.h5", tmp_path / "x.h5")


@settings(max_examples=50, deadline=None)
@given(st.data())
def test_runs_cover_what_they_are_of(data: st.DataObject) -> None:
    shape = tuple(data.draw(st.lists(st.integers(1, 5), max_size=4)))
    numbers = np.arange(math.prod(shape)).reshape(shape)
    start = data.draw(st.integers(0, numbers.size - 1))
    stop = data.draw(st.integers(start + 1, numbers.size))
    met = [n for region in ragged.runs(shape, start, stop) for n in numbers[index(region)].flat]
    assert met == list(range(start, stop))


def second_version(store: Path, **arrays: dict[str, Any]) -> Path:
    """Write a store of Zarr's second version by hand; `chunk` is the only chunk of an array."""
    store.mkdir()
    (store / ".zgroup").write_text('{"zarr_format": 2}')
    for name, said in arrays.items():
        chunk = said.pop("chunk", None)
        document = {"zarr_format": 2, "shape": [3], "chunks": [3], "filters": None, "order": "C"}
        document |= {"compressor": None, "fill_value": None, **said}
        (store / name).mkdir()
        (store / name / ".zarray").write_text(json.dumps(document))
        if chunk is not None:
            (store / name / "0").write_bytes(chunk)
    return store


def test_sequences_of_zarrs_second_version_come_in(pool: engram.Pool, tmp_path: Path) -> None:
    codec = numcodecs.VLenArray(">i4")
    rows = np.empty(3, object)
    rows[:] = [np.array([1, 2], ">i4"), np.array([], ">i4"), np.array([3], ">i4")]
    said = {"dtype": "|O", "filters": [codec.get_config()], "fill_value": 0}
    packed = numcodecs.Zlib()
    store = second_version(
        tmp_path / "x.zarr",
        rows={
            **said,
            "compressor": packed.get_config(),
            "chunk": packed.encode(codec.encode(rows)),
        },
        empty=dict(said),
    )
    assert engram.import_file(store, pool).complete
    found: Any = pool
    assert sequences(found["rows/offsets"], found["rows/values"]) == [[1, 2], [], [3]]
    assert found["rows/values"].dtype == np.dtype(">i4")
    assert sequences(found["empty/offsets"], found["empty/values"]) == [[], [], []]
    report = engram.export_file(pool, tmp_path / "y.zarr")
    assert [(e.path, e.what) for e in report.noted] == [("/empty", "group"), ("/rows", "group")]
    again = zarr.open_array(tmp_path / "y.zarr/rows/values", mode="r")
    assert again[...].tolist() == [1, 2, 3]


def test_arrays_whose_codecs_are_not_there_are_left_out_by_name(
    pool: engram.Pool, tmp_path: Path
) -> None:
    store = second_version(
        tmp_path / "x.zarr",
        good={"dtype": "<i4"},
        filtered={"dtype": "<i4", "filters": [{"id": "rot13"}]},
        packed={"dtype": "<i4", "compressor": {"id": "no-such-codec"}},
        objects={"dtype": "|O", "filters": [{"id": "json2"}]},
    )
    report = engram.import_file(store, pool)
    assert {e.path: "not available" in e.why for e in report.left_out} == {
        "/filtered": True,
        "/objects": False,
        "/packed": True,
    }
    assert "'rot13'" in str(report)
    assert "json2" in str(report)
    assert list(pool) == ["good"]


@pytest.mark.parametrize("place", ["codecs", "inner codecs"])
@pytest.mark.parametrize("name", ["rot13", "numcodecs.rot13", "numcodecs.zfpy"])
def test_an_array_of_zarr_whose_codec_is_not_there_is_left_out_by_name(
    pool: engram.Pool, tmp_path: Path, place: str, name: str
) -> None:
    if documents.is_known(name.removeprefix("numcodecs.")):
        pytest.skip(f"{name} is installed here")
    root = zarr.open_group(tmp_path / "x.zarr", mode="w")
    root.create_array("good", shape=(3,), dtype="i4")[...] = [1, 2, 3]
    root.create_array("v", shape=(4,), dtype="i4", chunks=(2,), shards=(4,))[...] = 1
    file = tmp_path / "x.zarr/v/zarr.json"
    document = json.loads(file.read_bytes())
    codecs = document["codecs"]
    inner = codecs[0]["configuration"]["codecs"] if place == "inner codecs" else codecs
    inner.append({"name": name, "configuration": {}})
    file.write_text(json.dumps(document))
    report = engram.import_file(tmp_path / "x.zarr", pool)
    assert [(e.path, e.what) for e in report.left_out] == [("/v", "array")]
    assert repr(name) in report.left_out[0].why
    found: Any = pool
    assert found["good"][...].tolist() == [1, 2, 3]


FILLS: dict[str, tuple[Any, Any]] = {
    "big": (">i4", 7),
    "float": (">f8", -2.5),
    "bytes": ("|S3", "YWI="),
    "text": (">U2", "xx"),
    "record": ([["a", ">i2"], ["b", "<f4"]], "AAEAAAAA"),
    "when": (">M8[ns]", 5),
    "truth": ("|b1", True),
    "raw": ("|V4", "AQIDBA=="),
}


@pytest.mark.parametrize("kind", FILLS)
def test_fill_values_and_byte_order_of_zarrs_second_version_are_kept(
    pool: engram.Pool, tmp_path: Path, kind: str
) -> None:
    dtype, fill = FILLS[kind]
    store = second_version(tmp_path / "x.zarr", v={"dtype": dtype, "fill_value": fill})
    engram.import_file(store, pool)
    engram.export_file(pool, tmp_path / "y.zarr")
    one = zarr.open_array(store / "v", mode="r")
    other = zarr.open_array(tmp_path / "y.zarr/v", mode="r")
    assert one[...].tolist() == other[...].tolist()
    assert np.asarray(one.fill_value).tolist() == np.asarray(other.fill_value).tolist()
    found: Any = pool["v"]
    assert found.dtype == one.dtype
    if one.dtype.names is None and one.dtype.kind in "iuf":
        codecs = json.loads((tmp_path / "y.zarr/v/zarr.json").read_bytes())["codecs"]
        assert codecs[0]["configuration"]["endian"] == "big"


def test_no_fill_value_of_zarrs_second_version_is_noted(pool: engram.Pool, tmp_path: Path) -> None:
    store = second_version(tmp_path / "x.zarr", v={"dtype": "<i4"}, w={"dtype": "<i4"})
    (store / "w/.zattrs").write_text('{"_FillValue": 3}')
    engram.import_file(store, pool)
    report = engram.export_file(pool, tmp_path / "y.zarr")
    assert [(e.path, e.what) for e in report.noted] == [("/v", "fill value")]


@pytest.mark.parametrize("count", [2000, 300_000])
def test_a_filter_that_fails_is_named_and_no_value_is_lost(
    pool: engram.Pool, tmp_path: Path, count: int
) -> None:
    pytest.importorskip("hdf5plugin")
    plist = h5p.create(h5p.DATASET_CREATE)
    plist.set_chunk((1000,))
    plist.set_shuffle()
    plist.set_filter(307, 0, (77,))  # bzip2 has levels up to 9
    with h5py.File(tmp_path / "x.h5", "w") as file:  # nothing is written, so nothing has failed
        space = h5s.create_simple((count,))
        h5d.create(file.id, b"v", h5t.NATIVE_DOUBLE, space, plist)
    engram.import_file(tmp_path / "x.h5", pool)
    found: Any = pool["v"]
    found[...] = np.arange(count)
    report = engram.export_file(pool, tmp_path / "y.h5")
    assert [e.path for e in report.noted] == ["/v"]
    assert "filter bzip2 (HDF5's number 307)" in report.noted[0].why
    with h5py.File(tmp_path / "y.h5") as file:
        assert np.array_equal(file["v"][...], np.arange(count))


@pytest.mark.filterwarnings("ignore:Numcodecs codecs")
def test_a_codec_that_fails_is_named(pool: engram.Pool, tmp_path: Path) -> None:
    root = zarr.open_group(tmp_path / "x.zarr", mode="w")
    root.create_array("v", shape=(3,), dtype="i4")[...] = 1
    file = tmp_path / "x.zarr/v/zarr.json"
    document = json.loads(file.read_bytes())
    offset = {"offset": 0, "scale": 1, "dtype": "<f8", "astype": "<u1"}
    codec = {"name": "numcodecs.fixedscaleoffset", "configuration": offset}
    document["codecs"] = [codec, *document["codecs"]]
    (tmp_path / "x.zarr/v/c/0").unlink()
    file.write_text(json.dumps(document))
    engram.import_file(tmp_path / "x.zarr", pool)
    found: Any = pool["v"]
    found[...] = 5
    with pytest.raises(engram.EngramError, match=r"/v: .*numcodecs\.fixedscaleoffset"):
        engram.export_file(pool, tmp_path / "y.zarr")


def test_a_filter_that_refuses_a_variable_of_netcdf_is_named(
    pool: engram.Pool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    pytest.importorskip("hdf5plugin")
    with netCDF4.Dataset(tmp_path / "x.nc", "w") as file:
        file.createDimension("x", 3)
        file.createVariable("v", "f8", ("x",), compression="zstd")[:] = [1, 2, 3]
    engram.import_file(tmp_path / "x.nc", pool)
    create = h5d.create

    def refusing(place: Any, name: Any, tid: Any, space: Any, plist: Any = None) -> Any:
        codes = [plist.get_filter(n)[0] for n in range(plist.get_nfilters())]
        if 32015 in codes:
            raise ValueError("the plugin was built for another HDF5")
        return create(place, name, tid, space, plist)

    monkeypatch.setattr("engram.formats.netcdf.write4.h5d.create", refusing)
    report = engram.export_file(pool, tmp_path / "y.nc")
    assert [(e.path, e.what) for e in report.noted] == [("/v", "filters")]
    assert report.noted[0].why.startswith("zstd (HDF5's number 32015): left away")
    with netCDF4.Dataset(tmp_path / "y.nc") as file:
        assert file["v"][...].tolist() == [1, 2, 3]
