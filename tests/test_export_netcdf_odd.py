"""Odd netCDF files, of kinds that are about: they come back as they were, oddities included."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import h5py
import netCDF4
import numpy as np
import pytest
from h5py import h5d, h5ds, h5p, h5s, h5t

import engram
from alike_netcdf import assert_alike
from engram.formats.netcdf import plan, write3
from test_export_netcdf import there_and_back
from test_import_netcdf import CLASSIC, FORMATS, write

if TYPE_CHECKING:
    from pathlib import Path

PADDED = np.dtype([("x", "f4"), ("y", "f8")], align=True)


@pytest.mark.parametrize("file_format", CLASSIC)
def test_a_classic_name_ends_at_a_nul(pool: Any, tmp_path: Path, file_format: str) -> None:
    def make(file: netCDF4.Dataset) -> None:
        file.createDimension("dimZ", 2)
        file.createVariable("varZ", "i2", ("dimZ",))[:] = [1, 2]
        file.attZ = np.int32(3)

    path = write(tmp_path / "x.nc", make, file_format)
    path.write_bytes(path.read_bytes().replace(b"Z", b"\0"))
    report = there_and_back(pool, path, tmp_path / "out.nc")
    assert not report.noted
    assert pool["in/x/var"].dims == ("dim",)
    assert pool["in/x"].attrs["att"] == 3
    assert_alike(path, tmp_path / "out.nc")


@pytest.mark.parametrize("file_format", FORMATS)
@pytest.mark.parametrize("raw", [b"x\0y", b"\0x", b"x\0\0y\0", b"\0", b"\xb0\0C"])
def test_nuls_anywhere_in_a_text_come_back(
    pool: Any, tmp_path: Path, file_format: str, raw: bytes
) -> None:
    def make(file: netCDF4.Dataset) -> None:
        file.text = np.bytes_(b"Z" * len(raw))
        file.setncattr("numbers", np.array([1, 2], "i4"))

    path = write(tmp_path / "x.nc", make, file_format)
    if file_format in CLASSIC:
        path.write_bytes(path.read_bytes().replace(b"Z" * len(raw), raw))
    else:
        with h5py.File(path, "r+") as file:
            tid = file.attrs.get_id("text").get_type()
            file.attrs.get_id("text").write(np.array(raw, f"S{len(raw)}"), mtype=tid)
    there_and_back(pool, path, tmp_path / "out.nc")
    assert raw in (tmp_path / "out.nc").read_bytes()
    assert pool["in/x"].attrs["text"] in {raw.replace(b"\0", b"").decode("latin1"), b"\xb0C"}
    if file_format in CLASSIC:
        assert path.read_bytes() == (tmp_path / "out.nc").read_bytes()
    elif raw[0] != 0xB0:
        assert_alike(path, tmp_path / "out.nc")


def test_a_text_that_was_changed_has_no_nuls_of_the_file(pool: Any, tmp_path: Path) -> None:
    path = write(tmp_path / "x.nc", lambda f: f.setncattr("t", "aZb"), "NETCDF3_CLASSIC")
    path.write_bytes(path.read_bytes().replace(b"aZb", b"a\0b"))
    group = pool.create_group("in")
    engram.import_file(path, group)
    group.attrs["t"] = "new"
    engram.export_file(group, tmp_path / "out.nc")
    with netCDF4.Dataset(tmp_path / "out.nc") as file:
        assert file.getncattr("t") == "new"


def test_a_type_keeps_its_layout_in_the_file(pool: Any, tmp_path: Path) -> None:
    packed = h5t.create(h5t.COMPOUND, 13)
    packed.insert(b"a", 0, h5t.STD_I8BE)
    packed.insert(b"b", 1, h5t.STD_I32BE)
    packed.insert(b"c", 5, h5t.IEEE_F64LE)
    dtype = np.dtype([("a", "i1"), ("b", "i4"), ("c", "f8")], align=True)
    values = np.array([(1, 2, 0.5), (-3, 70000, np.inf)], dtype)
    with h5py.File(tmp_path / "x.nc", "w", track_order=True) as file:
        packed.commit(file.id, b"packed_t")
        file["n"] = np.arange(2.0)
        file["n"].make_scale("n")
        made = h5d.create(file.id, b"v", packed, h5s.create_simple((2,)))
        made.write(h5s.ALL, h5s.ALL, values)
        h5ds.attach_scale(made, file["n"].id, 0)
        file["v"].attrs.create("one", values[0], dtype=h5py.Datatype(packed.copy()))
    report = there_and_back(pool, tmp_path / "x.nc", tmp_path / "out.nc")
    assert not report.noted
    assert_alike(tmp_path / "x.nc", tmp_path / "out.nc")
    with h5py.File(tmp_path / "x.nc") as one, h5py.File(tmp_path / "out.nc") as other:
        assert one["v"].id.get_type().equal(other["v"].id.get_type())
        assert list(one) == list(other) == ["packed_t", "n", "v"]


def test_types_come_back_in_their_order_but_inner_ones_first(pool: Any, tmp_path: Path) -> None:
    def make(file: netCDF4.Dataset) -> None:
        inner = file.createCompoundType(np.dtype([("i", "i2")]), "inner")
        dtype = np.dtype([("p", inner.dtype), ("q", "f4")])
        file.createCompoundType(dtype, "z_outer")
        file.createEnumType("i1", "colour", {"red": 1})
        file.createCompoundType(np.dtype([("k", "i8")]), "a_later")
        file.createVLType("i4", "b_unused")

    path = write(tmp_path / "x.nc", make)
    there_and_back(pool, path, tmp_path / "out.nc")
    assert_alike(path, tmp_path / "out.nc")
    with h5py.File(tmp_path / "out.nc") as file:
        assert list(file) == ["inner", "z_outer", "colour", "a_later", "b_unused"]


def test_strings_in_an_inner_record_come_in_and_those_of_an_attribute_are_left_out(
    pool: Any, tmp_path: Path
) -> None:
    words = h5py.string_dtype()
    with h5py.File(tmp_path / "x.h5", "w") as file:
        inner = np.dtype([("word", words, (2,))])
        file.create_dataset("field", shape=(2,), dtype=inner)
        file.create_dataset("nested", shape=(2,), dtype=np.dtype([("in", inner)]))
        file.attrs.create("told", np.array((("a", "b"),), inner), dtype=inner)
        file["kept"] = np.arange(3)
    group = pool.create_group("in")
    report = engram.import_file(tmp_path / "x.h5", group)
    assert list(group) == ["field", "kept", "nested"]
    assert group["field/word"].shape == group["nested/in/word"].shape == (2, 2)
    assert [(e.path, e.what) for e in report.left_out] == [("/", "attribute told")]


def test_a_dimension_of_another_group_is_found_there(pool: Any, tmp_path: Path) -> None:
    def make(file: netCDF4.Dataset) -> None:
        above = file.createDimension("x", 2)
        one, other = file.createGroup("one"), file.createGroup("other")
        beside = one.createDimension("y", 3)
        other.createDimension("x", 2)
        other.createVariable("hidden", "i4", (above,))[:] = [1, 2]
        other.createVariable("own", "i4", ("x",))[:] = [3, 4]
        other.createVariable("beside", "i4", (beside,))

    path = write(tmp_path / "x.nc", make)
    there_and_back(pool, path, tmp_path / "out.nc")
    for found in (path, tmp_path / "out.nc"):
        with h5py.File(found) as file:
            at = {name: file["other"][name].dims[0][0].name for name in ("hidden", "own", "beside")}
        assert at == {"hidden": "/x", "own": "/other/x", "beside": "/one/y"}
    alone = pool["in/x/other"]
    engram.export_file(alone, tmp_path / "alone.nc")
    with netCDF4.Dataset(tmp_path / "alone.nc") as part:
        assert {name: len(d) for name, d in part.dimensions.items()} == {"x": 2, "y": 3}


def test_labels_and_the_order_of_variables_without_dimensions_come_back(
    pool: Any, tmp_path: Path
) -> None:
    with h5py.File(tmp_path / "x.nc", "w") as file:
        for name in ("a", "b"):
            file[name] = np.ones((2, 3), "i4")
        for name, length in (("y", 2), ("x", 3)):
            file[name] = np.arange(length)
            file[name].make_scale(name)
        for axis, label in enumerate(("down", "across")):
            file["a"].dims[axis].label = label
            file["a"].dims[axis].attach_scale(file["yx"[axis]])
    there_and_back(pool, tmp_path / "x.nc", tmp_path / "out.nc")
    assert_alike(tmp_path / "x.nc", tmp_path / "out.nc")
    with netCDF4.Dataset(tmp_path / "out.nc") as out:
        assert list(out.variables) == ["a", "b", "x", "y"]
        assert out["a"].DIMENSION_LABELS == ["down", "across"]


def test_the_fill_value_of_opaque_values_comes_back(pool: Any, tmp_path: Path) -> None:
    path = write(tmp_path / "x.nc", lambda file: file.createDimension("x", 4))
    with h5py.File(path, "r+") as file:
        tid = h5t.create(h5t.OPAQUE, 5)
        tid.commit(file.id, b"five_t")
        create = h5p.create(h5p.DATASET_CREATE)
        create.set_fill_value(np.array(b"abcde", "V5"))
        made = h5d.create(file.id, b"opaque", tid, h5s.create_simple((4,)), create)
        h5ds.attach_scale(made, file["x"].id, 0)
    report = there_and_back(pool, path, tmp_path / "out.nc")
    assert not report.noted
    with h5py.File(tmp_path / "out.nc") as file:
        fill = np.zeros((), "V5")
        file["opaque"].id.get_create_plist().get_fill_value(fill)
        assert fill.tobytes() == b"abcde"


@pytest.mark.parametrize("suffix", [".nc", ".h5"])
def test_nothing_stands_between_the_fields_of_an_exported_record(
    pool: Any, tmp_path: Path, suffix: str
) -> None:
    value = np.zeros((), PADDED)
    value["x"], value["y"] = 1, 2
    pool.attrs.update({f"a{number}": value for number in range(40)})
    engram.export_file(pool, tmp_path / f"out{suffix}")
    with h5py.File(tmp_path / f"out{suffix}") as file:
        for number in range(40):
            attribute = file.attrs.get_id(f"a{number}")
            found = np.full(attribute.shape or (), b"\xff" * 16, "V16").view(PADDED)
            attribute.read(found, mtype=attribute.get_type())
            assert found.tobytes() == value.tobytes()


# To other kinds than they came from


@pytest.mark.parametrize("kind", ["netcdf3", "netcdf3-64bit-offset"])
def test_a_dimension_too_long_for_a_classic_file_is_left_away_or_refused(
    pool: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, kind: str
) -> None:
    def make(file: netCDF4.Dataset) -> None:
        file.createDimension("unused", 4_500_000_000)
        file.createDimension("x", 6)
        file.createVariable("v", "i2", ("x",))[:] = np.arange(6)

    engram.import_file(write(tmp_path / "x.nc", make), pool)
    report = engram.export_file(pool, tmp_path / "out.nc", format=kind)
    assert [(e.path, e.what) for e in report.noted] == [("/", "dimension unused")]
    with netCDF4.Dataset(tmp_path / "out.nc") as file:
        assert list(file.dimensions) == ["x"]
        assert file["v"][...].tolist() == list(range(6))
    monkeypatch.setattr(plan, "_LENGTH", 5)
    with pytest.raises(engram.FormatError, match="/v: dimensions: 'x' has the length 6"):
        engram.export_file(pool, tmp_path / "no.nc", format=kind)


def test_an_attribute_that_would_keep_netcdf4_from_opening_a_file_is_refused(
    pool: Any, tmp_path: Path
) -> None:
    point = np.dtype([("x", "f4"), ("y", "f4")])
    line = np.dtype([("ends", point, (2,))])
    with h5py.File(tmp_path / "x.h5", "w") as file:
        file["point_t"], file["line_t"] = point, line
        file.attrs.create("line", np.zeros((), line), dtype=file["line_t"])
        file["v"] = 1
    engram.import_file(tmp_path / "x.h5", pool)
    with pytest.raises(engram.FormatError, match="attribute line"):
        engram.export_file(pool, tmp_path / "out.nc")
    report = engram.export_file(pool, tmp_path / "out.nc", lossy=True)
    assert [e.what for e in report.left_out] == ["attribute line"]
    with netCDF4.Dataset(tmp_path / "out.nc") as out:
        assert list(out.cmptypes) == ["point_t"]
        assert out["v"][...] == 1


def test_a_file_of_the_classic_model_has_no_types(pool: Any, tmp_path: Path) -> None:
    path = write(tmp_path / "x.nc", lambda file: file.createEnumType("i1", "colour_t", {"red": 1}))
    with h5py.File(path, "r+") as file:
        record = np.array([(1, 2.0)], PADDED)
        file["record_t"] = PADDED
        file.attrs.create("record", record, dtype=file["record_t"])
    engram.import_file(path, pool)
    report = engram.export_file(pool, tmp_path / "out.nc", format="netcdf4-classic", lossy=True)
    assert [e.what for e in report.left_out] == ["attribute record"]
    with h5py.File(tmp_path / "out.nc") as out:
        assert list(out) == []


def test_what_would_begin_beyond_32_bits_in_a_classic_file_is_refused(
    pool: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    pool.create_array("a", data=np.zeros(1000, "i2"), dims=("x",))
    pool.create_array("b", data=np.ones(3, "i2"), dims=("y",))
    monkeypatch.setattr(write3, "BEGIN_MAX", 2000)
    with pytest.raises(engram.FormatError, match="/b: variable: it would begin"):
        engram.export_file(pool, tmp_path / "out.nc", format="netcdf3")
    engram.export_file(pool, tmp_path / "wide.nc", format="netcdf3-64bit-offset")
    report = engram.export_file(pool, tmp_path / "out.nc", format="netcdf3", lossy=True)
    assert [e.path for e in report.left_out] == ["/b"]
    with netCDF4.Dataset(tmp_path / "out.nc") as file:
        assert list(file.variables) == ["a"]
