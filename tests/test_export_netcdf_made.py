"""Exporting to netCDF what never was in a file: its best form there, or why there is none."""

from __future__ import annotations

import json
import subprocess
import sys
from typing import TYPE_CHECKING, Any

import netCDF4
import numpy as np
import pytest

import engram
from engram.formats.netcdf import plan
from support import DTYPES, filled

if TYPE_CHECKING:
    from pathlib import Path

TEXT = np.dtypes.StringDType()
HELD = "i1 u1 <i2 >i2 <u2 >u2 <i4 >i4 <u4 >u4 <i8 >i8 <u8 >u8 <f4 >f4 <f8 >f8 S1"
NETCDF3 = ("netcdf3", "netcdf3-64bit-offset", "netcdf4-classic")

_DECODE = """
import json, sys, warnings
warnings.simplefilter("ignore")
import numpy as np
import xarray as xr
with xr.open_dataset(sys.argv[1], engine="netcdf4") as file, np.load(sys.argv[2]) as made:
    found = {}
    for name in made.files:
        value, wanted = file[name].values, made[name]
        same = (value == wanted) | ((value != value) & (wanted != wanted))
        found[name] = [value.dtype.kind, value.shape == wanted.shape and bool(same.all())]
print(json.dumps(found))
"""


def seen_by_xarray(path: Path, made: dict[str, Any]) -> dict[str, Any]:
    """Return, of each variable, the kind that xarray decodes it to, and whether it is as made."""
    values = path.with_suffix(".npz")
    np.savez(values, **made)
    ended = subprocess.run(
        [sys.executable, "-c", _DECODE, path, values], check=True, capture_output=True, text=True
    )
    found: dict[str, Any] = json.loads(ended.stdout)
    return found


def problems(group: Any, path: Path, kind: str) -> list[str]:
    """Return what an export leaves out if it may, each with its reason."""
    with pytest.raises(engram.FormatError) as caught:
        engram.export_file(group, path, format=kind)
    assert not path.exists()
    report = engram.export_file(group, path, format=kind, lossy=True, overwrite=True)
    for entry in report.left_out[:5]:
        assert entry.why in str(caught.value)
    return [str(entry) for entry in report.left_out]


def noted(report: Any) -> set[tuple[str, str]]:
    """Return which entries a report has noted."""
    return {(entry.path, entry.what) for entry in report.noted}


@pytest.mark.parametrize("name", HELD.split())
def test_a_number_that_netcdf4_has_goes_out_and_comes_back_as_it_is(
    pool: Any, tmp_path: Path, name: str
) -> None:
    value = filled(np.dtype(name), (3, 4))
    pool.create_array("out/v", data=value, dims=("y", "x"))
    assert not engram.export_file(pool["out"], tmp_path / "x.nc").noted
    engram.import_file(tmp_path / "x.nc", pool.create_group("in"))
    assert pool["in/v"].dtype == value.dtype
    assert pool["in/v"][...].tobytes() == value.tobytes()
    assert pool["in/v"].dims == ("y", "x")


def test_what_xarray_has_a_form_for_is_read_by_it_as_it_was(pool: Any, tmp_path: Path) -> None:
    days = np.array(["2000-02-29", "NaT", "1815-06-18"], "M8[D]")
    made = {
        "flag": np.array([True, False, True]),
        "half": np.array([0.5, np.nan, 65504], "f2"),
        "day": days,
        "second": days.astype("M8[s]"),
        "nano": np.array([1, -1, 10**18], "M8[ns]"),
        "year": np.array(["1999", "1970", "1700"], "M8[Y]"),
        "big_endian": days.astype(">M8[ms]"),
        "lasts": np.array([1, -(10**15), 7], "m8[ns]"),
        "hours": np.array([1, 2, -3], "m8[h]"),
        "bytes": np.array([b"abc", b"", b"\xb0C"]),
    }
    for name, value in made.items():
        pool.create_array(name, data=value, dims=("x",))
    report = engram.export_file(pool, tmp_path / "x.nc")
    assert noted(report) == {(f"/{name}", "values") for name in made}
    kinds = {"flag": "b", "half": "f", "bytes": "S", "lasts": "m", "hours": "m"}
    expected = {name: [kinds.get(name, "M"), True] for name in made}
    assert seen_by_xarray(tmp_path / "x.nc", made) == expected


def test_strings_of_every_kind_become_strings(pool: Any, tmp_path: Path) -> None:
    words = ["é", "", "日本", "a" * 200]
    for name, value in (
        ("var", np.array(words, TEXT)),
        ("fixed", np.array(words)),
        ("swapped", np.array(words).astype(">U200")),
        ("scalar", np.array("ö", TEXT)),
    ):
        pool.create_array(name, data=value, dims=("x",) * value.ndim)
    engram.export_file(pool, tmp_path / "x.nc")
    with netCDF4.Dataset(tmp_path / "x.nc") as file:
        for name in ("var", "fixed", "swapped"):
            assert file[name][...].tolist() == words
        assert file["scalar"][...] == "ö"


@pytest.mark.parametrize("code", ["<c8", ">c8", "<c16", ">c16"])
def test_complex_numbers_are_ones_that_netcdf4_knows(pool: Any, tmp_path: Path, code: str) -> None:
    value = (np.arange(3) + 1j * np.arange(3)[::-1]).astype(code)
    pool.create_array("v", data=value, dims=("x",))
    assert noted(engram.export_file(pool, tmp_path / "x.nc")) == {("/v", "values")}
    with netCDF4.Dataset(tmp_path / "x.nc", auto_complex=True) as file:
        assert np.asarray(file["v"][...]).tolist() == value.tolist()


def test_each_dtype_is_written_readable_or_refused_by_name(pool: Any, tmp_path: Path) -> None:
    ends = {"written": 0, "refused": 0}
    for place, dtype in enumerate(DTYPES):
        value = filled(dtype, (3,))
        if dtype.kind in "Mm":
            value = np.arange(3).astype("i8").view(dtype.newbyteorder("=")).astype(dtype)
        group = pool.create_group(f"g{place}")
        group.create_array("v", data=value, dims=("x",))
        path = tmp_path / f"{place}.nc"
        try:
            engram.export_file(group, path)
        except engram.FormatError as error:
            assert "/v: variable: " in str(error)  # noqa: PT017 - either end is right
            ends["refused"] += 1
            continue
        ends["written"] += 1
        engram.import_file(path, pool.create_group(f"back{place}"))
        assert "v" in pool[f"back{place}"]
        if dtype.kind != "V" or dtype.names:  # netCDF4 warns that it has no opaque types
            with netCDF4.Dataset(path) as file:
                assert file["v"].shape[0] == 3
    assert ends["written"] > 40
    assert ends["refused"] > 5


def test_nested_records_have_their_types_beside_them(pool: Any, tmp_path: Path) -> None:
    inner = np.dtype([("a", "<i2"), ("b", ">f8")])
    dtype = np.dtype([("i", inner), ("k", "<f4", (2, 3)), ("s", "S5")])
    value = filled(dtype, (4,))
    pool.create_array("v", data=value, dims=("x",))
    pool.create_array("w", data=value["i"].copy(), dims=("x",))
    engram.export_file(pool, tmp_path / "x.nc")
    with netCDF4.Dataset(tmp_path / "x.nc") as file:
        assert set(file.cmptypes) == {"v_t", "v_i_t"}
        assert file["v"][...]["i"]["b"].tolist() == value["i"]["b"].tolist()
        assert file["w"].datatype.name == "v_i_t"
    deep = np.dtype([("many", inner, (2,))])
    pool.create_array("deep", data=filled(deep, (2,)), dims=("y",))
    left = problems(pool, tmp_path / "y.nc", "netcdf4")
    assert left == [
        "/deep: variable: its field 'many' is an array of records: netCDF4 opens no file with one"
    ]


# Dimensions


def test_axes_without_names_get_names_that_say_whose_they_are(pool: Any, tmp_path: Path) -> None:
    pool["T"] = np.ones((3, 4))
    pool["U"] = np.ones((3, 4))
    report = engram.export_file(pool, tmp_path / "x.nc")
    assert noted(report) == {("/T", "dimensions"), ("/U", "dimensions")}
    with netCDF4.Dataset(tmp_path / "x.nc") as file:
        assert file["T"].dimensions == ("T_dim_0", "T_dim_1")
        assert file["U"].dimensions == ("U_dim_0", "U_dim_1")


def test_a_dimension_is_found_in_the_groups_above(pool: Any, tmp_path: Path) -> None:
    pool.create_array("x", data=np.arange(4), dims=("x",))
    pool.create_array("g/h/T", data=np.arange(4), dims=("x",))
    pool.create_array("g/own", data=np.arange(5), dims=("x",))
    pool.create_array("g/i/also", data=np.arange(5), dims=("x",))
    engram.export_file(pool, tmp_path / "x.nc")
    with netCDF4.Dataset(tmp_path / "x.nc") as file:
        assert {n: len(d) for n, d in file.dimensions.items()} == {"x": 4}
        assert {n: len(d) for n, d in file["g"].dimensions.items()} == {"x": 5}
        # Names are looked up, so that what is nearer hides what is further up.
        assert {n: len(d) for n, d in file["g/h"].dimensions.items()} == {"x": 4}
        assert not file["g/i"].dimensions
        for name in ("g/h/T", "g/own", "g/i/also"):
            assert file[name].shape == pool[name].shape


def test_a_dimension_of_two_lengths_in_a_group_is_refused_with_both_arrays(
    pool: Any, tmp_path: Path
) -> None:
    pool.create_array("a", data=np.arange(4), dims=("x",))
    pool.create_array("b", data=np.arange(5), dims=("x",))
    pool.create_array("c", data=np.ones((2, 3)), dims=("y", "y"))
    left = problems(pool, tmp_path / "x.nc", "netcdf4")
    one = "a dimension has one length in its group"
    assert left == [
        f"/b: dimensions: its dimension 'x' has the length 5, in /a it has 4; {one}",
        f"/c: dimensions: its dimension 'y' has the length 3, in /c it has 2; {one}",
    ]


def test_what_was_sliced_or_changed_since_its_import_has_dimensions_that_fit(
    pool: Any, tmp_path: Path
) -> None:
    with netCDF4.Dataset(tmp_path / "in.nc", "w") as file:
        file.createDimension("t", None)
        file.createDimension("x", 4)
        file.createDimension("unused", 9)
        file.createVariable("t", "f8", ("t",))[:] = [1, 2, 3]
        file.createVariable("v", "i2", ("t", "x"), zlib=True, chunksizes=(1, 4))[:] = 1
        file.createVariable("w", "i2", ("x",), fill_value=3)[:] = 1
    engram.import_file(tmp_path / "in.nc", pool)
    engram.export_file(pool, tmp_path / "part.nc", slices=["t=1:", "x=:2"])
    with netCDF4.Dataset(tmp_path / "part.nc") as file:
        sizes = {n: (len(d), d.isunlimited()) for n, d in file.dimensions.items()}
        assert sizes == {"t": (2, True), "x": (2, False), "unused": (9, False)}
        assert file["v"].chunking() == [1, 2]
    pool.create_array("w", data=np.ones(4, "f8"), dims=("x",), overwrite=True)
    pool["v"].attrs["_FillValue"] = np.int16(5)
    engram.export_file(pool, tmp_path / "changed.nc")
    with netCDF4.Dataset(tmp_path / "changed.nc") as file:
        assert file["w"].dtype == np.float64
        assert file["v"].get_fill_value() == 5


# What a kind of file cannot hold


def fill_awkward(pool: Any) -> None:
    """Make what classic files cannot hold."""
    pool.create_array("ok", data=np.arange(4, dtype="i8"), dims=("x",))
    pool.create_array("bytes", data=np.arange(4, dtype="u1"), dims=("x",))
    pool.create_array("large", data=np.array([2**40] * 4), dims=("x",))
    pool.create_array("words", data=np.array(["a"] * 4, TEXT), dims=("x",))
    pool.create_array("when", data=np.zeros(4, "M8[s]"), dims=("x",))
    pool.create_array("record", data=np.zeros(4, [("a", "i4")]), dims=("x",))
    pool.create_array("z", data=np.zeros(4, "c16"), dims=("x",))
    pool.create_array("g/inner/deep", data=np.arange(4), dims=("x",))
    pool.create_array("h/v", data=np.arange(4), dims=("x",))
    pool["ok"].attrs.update({"list": np.array(["a", "b"], TEXT), "far": np.int64(2**40)})
    pool["ok"].attrs["worse"] = np.int64(2**60 + 1)


@pytest.mark.parametrize("kind", NETCDF3)
def test_classic_files_name_each_thing_that_they_cannot_hold(
    pool: Any, tmp_path: Path, kind: str
) -> None:
    fill_awkward(pool)
    left = problems(pool, tmp_path / "x.nc", kind)
    paths = [entry.split(": ")[:2] for entry in left]
    assert sorted(map(tuple, paths)) == [
        ("/g", "group"), ("/h", "group"), ("/large", "variable"),
        ("/ok", "attribute list"), ("/ok", "attribute worse"), ("/record", "variable"),
        ("/when", "variable"), ("/words", "variable"), ("/z", "variable"),
    ]  # fmt: skip
    with netCDF4.Dataset(tmp_path / "x.nc") as file:
        assert list(file.variables) == ["bytes", "ok"]
        assert file["ok"].dtype == np.int32
        assert file["ok"].far == 2.0**40
        assert file["bytes"].getncattr("_Unsigned") == "true"


def test_cdf5_has_all_numbers_and_neither_groups_nor_strings(pool: Any, tmp_path: Path) -> None:
    fill_awkward(pool)
    left = problems(pool, tmp_path / "x.nc", "netcdf3-64bit-data")
    assert {entry.split(": ")[0] for entry in left} == {
        "/g", "/h", "/ok", "/record", "/words", "/z",
    }  # fmt: skip


def test_unlimited_dimensions_must_be_one_and_first_in_classic_files(
    pool: Any, tmp_path: Path
) -> None:
    with netCDF4.Dataset(tmp_path / "in.nc", "w") as file:
        for name in ("t", "u"):
            file.createDimension(name, None)
        file.createDimension("x", 2)
        file.createVariable("good", "i2", ("t", "x"))[:] = np.ones((3, 2))
        file.createVariable("second", "i2", ("u",))[:] = [1, 2]
        file.createVariable("last", "i2", ("x", "t"))[:] = np.ones((2, 3))
    engram.import_file(tmp_path / "in.nc", pool)
    left = problems(pool, tmp_path / "x.nc", "netcdf3")
    assert left == [
        "/second: dimensions: 'u' is unlimited, as 't' is; there can be one",
        "/last: dimensions: 't' is unlimited and not the first dimension",
    ]


def test_a_variable_beyond_a_classic_files_limit_is_named(
    pool: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(plan, "_LIMITS", {1: 1000, 2: 2000})
    pool.create_array("small", data=np.ones(100), dims=("x",))
    pool.create_array("large", data=np.ones(200), dims=("y",))
    left = problems(pool, tmp_path / "x.nc", "netcdf3")
    why = "1600 bytes, and NETCDF3_CLASSIC has at most 1000; netcdf3-64bit-data has more"
    assert left == [f"/large: variable: {why}"]
    assert engram.export_file(pool, tmp_path / "y.nc", format="netcdf3-64bit-offset").complete


@pytest.mark.parametrize(
    "name", [" a", "-a", "a ", "a\tb", "a\x7f", "e\N{COMBINING ACUTE ACCENT}", "+1"]
)
def test_a_name_that_netcdf_cannot_carry_is_refused_with_its_reason(
    pool: Any, tmp_path: Path, name: str
) -> None:
    pool.create_array(f"{name}/v", data=np.ones(2), dims=("x",))
    pool.create_array("dims", data=np.ones(2), dims=(name,))
    pool.create_array("ok", data=np.ones(1), dims=("x",), attrs={name: 1})
    left = problems(pool, tmp_path / "x.nc", "netcdf4")
    assert len(left) == 3
    assert all("the name" in entry for entry in left)
    with netCDF4.Dataset(tmp_path / "x.nc") as file:
        assert "ok" in file.variables


def test_names_that_netcdf_has_are_carried_however_odd(pool: Any, tmp_path: Path) -> None:
    names = ["größe", "日本", "1st", "_x", "a b", "a.b-c+d@e", "x" * 200]
    for name in names:
        pool.create_array(name, data=np.arange(2), dims=(name,), attrs={name: name})
    assert not engram.export_file(pool, tmp_path / "x.nc").noted
    with netCDF4.Dataset(tmp_path / "x.nc") as file:
        assert set(file.variables) == set(names)
        assert all(file[name].getncattr(name) == name for name in names)


def test_a_reserved_attribute_and_one_that_would_mislead_are_refused(
    pool: Any, tmp_path: Path
) -> None:
    pool.create_array("v", data=np.ones(2), dims=("x",), attrs={"_Netcdf4Dimid": 7})
    when = {"units": "furlongs"}
    pool.create_array("when", data=np.zeros(2, "M8[s]"), dims=("x",), attrs=when)
    left = problems(pool, tmp_path / "x.nc", "netcdf4")
    assert [entry.split(": ")[:2] for entry in left] == [
        ["/v", "attribute _Netcdf4Dimid"],
        ["/when", "attribute units"],
    ]
    with netCDF4.Dataset(tmp_path / "x.nc") as file:
        assert file["when"].units == "seconds since 1970-01-01"


def test_what_came_classic_and_no_longer_fits_goes_out_as_netcdf4_and_says_so(
    pool: Any, tmp_path: Path
) -> None:
    with netCDF4.Dataset(tmp_path / "in.nc", "w", format="NETCDF3_CLASSIC") as file:
        file.createDimension("x", 2)
        file.createVariable("v", "f4", ("x",))[:] = 1
    engram.import_file(tmp_path / "in.nc", pool)
    assert engram.export_file(pool, tmp_path / "same.nc").format == "NETCDF3_CLASSIC"
    pool["group/inner"] = np.ones(2)
    report = engram.export_file(pool, tmp_path / "more.nc")
    assert report.format == "NETCDF4"
    assert "NETCDF3_CLASSIC" in str(report)


def test_a_name_that_a_group_and_a_dimension_would_share_is_refused(
    pool: Any, tmp_path: Path
) -> None:
    pool.create_array("v", data=np.ones(2), dims=("g",))
    pool["g/inner"] = np.ones(2)
    left = problems(pool, tmp_path / "x.nc", "netcdf4")
    assert left == ["/g: group: a dimension beside it has its name"]


def test_an_array_with_the_name_of_an_imported_type_takes_that_name(
    pool: Any, tmp_path: Path
) -> None:
    with netCDF4.Dataset(tmp_path / "in.nc", "w") as file:
        file.createDimension("x", 2)
        clouds = file.createEnumType("u1", "clouds", {"clear": 0, "cumulus": 3})
        file.createVariable("v", clouds, ("x",))[:] = [0, 3]
    engram.import_file(tmp_path / "in.nc", pool)
    pool.create_array("clouds", data=np.ones(2), dims=("x",))
    engram.export_file(pool, tmp_path / "x.nc")
    with netCDF4.Dataset(tmp_path / "x.nc") as file:
        assert file["clouds"][...].tolist() == [1, 1]
        assert file["v"].datatype.enum_dict == {"clear": 0, "cumulus": 3}


def test_an_array_kept_from_an_enumeration_goes_out_as_one_wherever_its_group_is(
    pool: Any, tmp_path: Path
) -> None:
    with netCDF4.Dataset(tmp_path / "in.nc", "w") as file:
        file.createDimension("x", 2)
        clouds = file.createEnumType("u1", "clouds", {"clear": 0, "cumulus": 3})
        file.createGroup("g").createVariable("v", clouds, ("x",))[:] = [0, 3]
    engram.import_file(tmp_path / "in.nc", pool)
    engram.export_file(pool["g"], tmp_path / "x.nc")  # without the dimension and the type above
    with netCDF4.Dataset(tmp_path / "x.nc") as file:
        assert file["v"].datatype.name == "clouds"
        assert file["v"].dimensions == ("x",)
