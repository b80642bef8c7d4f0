"""Exporting to HDF5 what was never in a file: every dtype, in the best form that HDF5 has."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import h5py
import numpy as np
import pytest

import engram
from same import assert_same
from support import DTYPES, TEXT, filled

if TYPE_CHECKING:
    from pathlib import Path

    from engram.formats import ExportReport

WITHOUT_TYPE = {
    np.dtype([("grid", "<i2", (2, 3)), ("cells", [("x", "<f4"), ("y", ">f8")], (2,)),
              ("none", "f8", (0,))]): "field 'none'",
    np.dtype({"names": ["all", "low"], "formats": ["<u4", "<u2"], "offsets": [0, 0]}): "over",
    np.dtype([]): "no fields",
}  # fmt: skip


def there_and_back(pool: engram.Pool, tmp_path: Path) -> tuple[engram.Group, ExportReport]:
    """Export the group ``out``, and import it again."""
    report = engram.export_file(pool["out"], tmp_path / "x.h5")
    back = pool.create_group("back")
    assert engram.import_file(tmp_path / "x.h5", back).complete
    return back, report


def is_changed(dtype: np.dtype[Any]) -> bool:
    """Whether HDF5 has no type of its own for it."""
    if dtype.names:
        titles = any(len(field) > 2 for field in (dtype.fields or {}).values())
        return titles or any(is_changed(dtype[name].base) for name in dtype.names)
    return dtype.kind in "UMm"


@pytest.mark.parametrize("dtype", [d for d in DTYPES if d not in WITHOUT_TYPE], ids=str)
@pytest.mark.parametrize("shape", [(), (3, 2), (0, 4)], ids=str)
def test_an_array_and_an_attribute_of_every_dtype_come_back_equal(
    pool: engram.Pool, tmp_path: Path, dtype: np.dtype[Any], shape: tuple[int, ...]
) -> None:
    value = filled(dtype, shape)
    out = pool.create_group("out")
    out.create_array("v", data=value, attrs={"a": value})
    back, report = there_and_back(pool, tmp_path)
    for found in (back["v"][...], back["v"].attrs["a"]):
        if dtype.kind == "U":
            assert np.asarray(found).tolist() == value.tolist()
        elif dtype.char in "gG":  # of whose 16 bytes 6 are none of the value
            assert np.array_equal(found, value, equal_nan=True)
        else:
            # Titles of fields and what lies between them are not values.
            assert_same(found, _untitled(value))
    assert {e.what for e in report.noted} == (
        {"array", "attribute a"} if is_changed(dtype) else set()
    )


def _untitled(value: np.ndarray[Any, Any]) -> np.ndarray[Any, Any]:
    """Return records without the titles of their fields."""
    dtype = value.dtype
    if dtype.names is None or all(len(f) == 2 for f in (dtype.fields or {}).values()):
        return value
    return value.astype([(name, dtype[name]) for name in dtype.names])


@pytest.mark.parametrize("dtype", WITHOUT_TYPE, ids=str)
def test_a_dtype_that_hdf5_cannot_hold_is_named_and_left_out_if_that_is_wanted(
    pool: engram.Pool, tmp_path: Path, dtype: np.dtype[Any]
) -> None:
    pool.create_array("v", data=np.zeros(3, dtype))
    pool["good"] = np.arange(3)
    pool["good"].attrs["a"] = np.zeros(3, dtype)
    with pytest.raises(engram.FormatError, match=WITHOUT_TYPE[dtype]) as caught:
        engram.export_file(pool, tmp_path / "x.h5")
    assert "/v" in str(caught.value)
    assert "attribute a" in str(caught.value)
    report = engram.export_file(pool, tmp_path / "x.h5", lossy=True)
    assert {(e.path, e.what) for e in report.left_out} == {
        ("/v", "array"),
        ("/good", "attribute a"),
    }
    with h5py.File(tmp_path / "x.h5") as file:
        assert list(file) == ["good"]


def test_strings_of_variable_length_come_back(pool: engram.Pool, tmp_path: Path) -> None:
    words = np.array([["héllo", "", "日本"], ["a" * 300, "x\ty", " z "]], TEXT)
    out = pool.create_group("out", attrs={"text": "☃", "empty": "", "words": words})
    out["words"] = words
    out["none"] = np.zeros((0, 3), TEXT)
    out["one"] = "scalar"
    back, report = there_and_back(pool, tmp_path)
    assert not report.noted
    assert back["words"][...].tolist() == words.tolist()
    assert back["none"].shape == (0, 3)
    assert back["none"].dtype == back["one"].dtype == TEXT
    assert str(back["one"][()]) == "scalar"
    assert (back.attrs["text"], back.attrs["empty"]) == ("☃", "")
    assert back.attrs["words"].tolist() == words.tolist()


@pytest.mark.parametrize("kind", ["T", "U"])
def test_a_string_with_a_nul_is_refused_by_name(
    pool: engram.Pool, tmp_path: Path, kind: str
) -> None:
    dtype = TEXT if kind == "T" else np.dtype("U5")
    pool["fine"] = np.array(["ab", "", "e"], dtype)
    pool["cut"] = np.array(["a", "b\0c"], dtype)
    pool["fine"].attrs["cut"] = np.array(["b\0c"], dtype)
    pool.attrs["cut"] = "b\0c"
    with pytest.raises(engram.FormatError, match="3 of what") as caught:
        engram.export_file(pool, tmp_path / "x.h5")
    for place in ("/: attribute cut", "/fine: attribute cut", "/cut: array"):
        assert place in str(caught.value)


def test_dates_are_read_by_h5py_as_dates(pool: engram.Pool, tmp_path: Path) -> None:
    days = np.array(["2024-02-29", "NaT"], "M8[D]")
    pool["days"] = days
    report = engram.export_file(pool, tmp_path / "x.h5")
    assert [e.path for e in report.noted] == ["/days"]
    with h5py.File(tmp_path / "x.h5") as file:
        assert_same(file["days"][...], days)


def test_a_blob_is_its_bytes(pool: engram.Pool, tmp_path: Path) -> None:
    pool.create_blob("log", b"\x00\xffabc", attrs={"a": 1})
    pool.create_blob("none", b"")
    report = engram.export_file(pool, tmp_path / "x.h5")
    assert {e.path for e in report.noted} == {"/log", "/none"}
    with h5py.File(tmp_path / "x.h5") as file:
        assert_same(file["log"][...], np.frombuffer(b"\x00\xffabc", "u1"))
        assert file["log"].attrs["a"] == 1
        assert file["none"].shape == (0,)


def test_dims_come_back(pool: engram.Pool, tmp_path: Path) -> None:
    out = pool.create_group("out")
    out.create_array("v", data=np.zeros((2, 3)), dims=("größe", "x"))
    out.create_array("x", data=np.zeros(3), dims=("x",))
    out.create_array("one", data=1.0, dims=())
    out["none"] = np.zeros((2, 3))
    back, _ = there_and_back(pool, tmp_path)
    assert [back[n].dims for n in ("v", "x", "none")] == [("größe", "x"), ("x",), None]


def test_names_of_dimension_scales_are_refused_for_attributes_of_arrays(
    pool: engram.Pool, tmp_path: Path
) -> None:
    pool["v"] = np.zeros(3)
    pool["v"].attrs["DIMENSION_LIST"] = 1
    with pytest.raises(engram.FormatError, match="HDF5 itself uses this name"):
        engram.export_file(pool, tmp_path / "x.h5")


def test_a_slice_is_what_stands_in_the_file(pool: engram.Pool, tmp_path: Path) -> None:
    with h5py.File(tmp_path / "o.h5", "w") as file:
        data = np.arange(600, dtype="i4").reshape(20, 30)
        for name, more in (("v", {}), ("w", {"maxshape": (None, 30), "chunks": (16, 16)})):
            made = file.create_dataset(name, data=data, **more)
            made.dims[0].label, made.dims[1].label = "y", "x"
        file["words"] = [f"w{n}" for n in range(20)]
        file["words"].dims[0].label = "y"
    engram.import_file(tmp_path / "o.h5", pool)
    engram.export_file(pool, tmp_path / "x.h5", slices=["y=3:17:4", "x=5:2"])
    engram.export_file(pool, tmp_path / "y.h5", slices=["y=3:17:4", "x=-3:"])
    with h5py.File(tmp_path / "x.h5") as file:
        assert file["v"].shape == file["w"].shape == (4, 0)
        assert file["words"].asstr()[...].tolist() == ["w3", "w7", "w11", "w15"]
    with h5py.File(tmp_path / "y.h5") as file:
        assert_same(file["v"][...], data[3:17:4, -3:])
        assert_same(file["w"][...], data[3:17:4, -3:])
        assert file["w"].maxshape == (None, 30)


def test_what_was_changed_since_its_import_is_written_as_it_is(
    pool: engram.Pool, tmp_path: Path
) -> None:
    with h5py.File(tmp_path / "o.h5", "w") as file:
        file.create_dataset("v", data=np.arange(6), chunks=(4,), compression="gzip")
        file["v"].attrs["fixed"] = np.bytes_(b"abc")
        file["v"].attrs["enum"] = np.array(1, h5py.enum_dtype({"on": 1}, "u1"))
        file["v"].attrs["empty"] = h5py.Empty("f4")
        file.create_dataset("gone", data=1)
        file["w"] = np.arange(6)
    engram.import_file(tmp_path / "o.h5", pool)
    new: dict[str, Any] = {"fixed": "now längre", "enum": np.float32(0.5), "empty": np.arange(2)}
    pool["v"].attrs.update(new)
    pool["v"][2] = 77
    pool["w"] = np.array(["other"], TEXT)
    del pool["gone"]
    pool.create_array("new/inner", data=np.arange(3))
    engram.export_file(pool, tmp_path / "x.h5")
    with h5py.File(tmp_path / "x.h5") as file:
        assert file["v"][...].tolist() == [0, 1, 77, 3, 4, 5]
        assert (file["v"].chunks, file["v"].compression) == ((4,), "gzip")
        assert file["v"].attrs["fixed"] == "now längre"
        assert_same(file["v"].attrs["enum"], np.float32(0.5))
        assert_same(file["v"].attrs["empty"], np.arange(2))
        assert file["w"].asstr()[0] == "other"
        assert sorted(file) == ["new", "v", "w"]


def test_a_lossy_filter_is_left_away_where_it_would_change_values(
    pool: engram.Pool, tmp_path: Path
) -> None:
    data = np.arange(50) * 1000
    with h5py.File(tmp_path / "o.h5", "w") as file:
        file.create_dataset("v", data=data % 8, chunks=(20,), scaleoffset=3, shuffle=True)
    engram.import_file(tmp_path / "o.h5", pool)
    assert_same(pool["v"][...], data % 8)
    pool["v"][...] = data
    report = engram.export_file(pool, tmp_path / "x.h5")
    with h5py.File(tmp_path / "x.h5") as file:
        assert_same(file["v"][...], data)
        assert file["v"].scaleoffset is None
        assert file["v"].shuffle
    assert {e.path for e in report.noted} == {"/v"}


def test_a_copy_in_the_pool_is_exported_as_its_original(pool: engram.Pool, tmp_path: Path) -> None:
    numbers = h5py.enum_dtype({"off": 0, "on": 1}, basetype="u1")
    with h5py.File(tmp_path / "a.h5", "w") as file:
        file.create_dataset("e", data=np.array([0, 1, 1], "u1"), dtype=numbers)
    engram.import_file(tmp_path / "a.h5", pool.create_group("g"))
    pool["g/copy"] = pool["g/e"]
    engram.export_file(pool["g"], tmp_path / "b.h5")
    with h5py.File(tmp_path / "b.h5") as file:
        assert h5py.check_enum_dtype(file["copy"].dtype) == {"off": 0, "on": 1}
