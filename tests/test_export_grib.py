"""Exporting GRIB: the messages that came in go out again, byte for byte; all else is refused."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np
import pytest

import engram
from test_grib import PL, SFC, arrays, field, message, write

if TYPE_CHECKING:
    from pathlib import Path


eccodes = pytest.importorskip("eccodes")


def back(pool: Any, path: Path) -> tuple[Any, Path]:
    """Import a file, export it, and import that."""
    group = pool.create_group("first")
    engram.import_file(path, group)
    out = path.with_name("again.grib")
    engram.export_file(group, out)
    again = pool.create_group("second")
    engram.import_file(out, again)
    return again, out


def assert_alike(one: Any, other: Any) -> None:
    """Assert that two groups have the same arrays and attributes."""
    found, expected = arrays(other), arrays(one)
    assert set(found) == set(expected)
    for name, array in expected.items():
        assert found[name].dtype == array.dtype
        assert np.array_equal(found[name][...], array[...], equal_nan=True)
        assert {k: str(v) for k, v in found[name].attrs.items()} == {
            k: str(v) for k, v in array.attrs.items()
        }


@pytest.mark.parametrize("sample", ["regular_ll_pl_grib1", PL, SFC, "reduced_gg_pl_32_grib2"])
def test_messages_go_out_byte_for_byte(pool: Any, tmp_path: Path, sample: str) -> None:
    handle = eccodes.codes_grib_new_from_samples(sample)
    count = eccodes.codes_get_size(handle, "values")
    eccodes.codes_release(handle)
    parts = [
        message(sample, field(n, count), bitsPerValue=16, level=level, dataDate=date)
        for n, (level, date) in enumerate([(500, 20200102), (850, 20200101), (500, 20200101)])
    ]
    path = write(tmp_path / "x.grib", *parts)
    again, out = back(pool, path)
    assert out.read_bytes() == path.read_bytes()
    assert_alike(pool["first"], again)


def test_missing_values_and_places_stay_so(pool: Any, tmp_path: Path) -> None:
    values = field(0)
    values[[3, 100]] = 9999
    one = message(PL, values, bitmapPresent=1, missingValue=9999, bitsPerValue=16, level=500)
    other = message(PL, field(1), bitsPerValue=16, level=850, dataDate=20200102)
    again, _ = back(pool, write(tmp_path / "x.grib", one, other))
    assert np.isnan(arrays(pool["first"])["t"][...]).any()
    assert_alike(pool["first"], again)


@pytest.mark.parametrize("sample", ["regular_ll_pl_grib1", PL])
@pytest.mark.parametrize("columns", [0, 1])
def test_values_that_packing_would_round_go_out_whole(
    pool: Any, tmp_path: Path, sample: str, columns: int
) -> None:
    keys = {"bitsPerValue": 12, "jPointsAreConsecutive": columns}
    group = pool.create_group("first")
    engram.import_file(write(tmp_path / "x.grib", message(sample, field(0), **keys)), group)
    name = "t2m" if "t2m" in group else "t"
    shape = group[name].shape
    group[name][...] = np.random.default_rng(1).normal(size=shape).astype("f4")
    report = engram.export_file(group, tmp_path / "y.grib")
    assert [(e.path, e.what) for e in report.noted] == [(f"/{name}", "values")]
    again = pool.create_group("second")
    engram.import_file(tmp_path / "y.grib", again)
    assert np.array_equal(again[name][...].astype("f4"), group[name][...])


def decoded(path: Path) -> list[list[float]]:
    """Return the values of each message of a file, as eccodes decodes them."""
    found = []
    with path.open("rb") as file:
        while (handle := eccodes.codes_grib_new_from_file(file)) is not None:
            found.append(eccodes.codes_get_values(handle).tolist())
            eccodes.codes_release(handle)
    return found


@pytest.mark.parametrize(
    ("bits", "ends"), [(24, (250, 300)), (16, (250.1, 300)), (16, (51_234.567, 103_210.9))], ids=str
)
@pytest.mark.parametrize("sample", ["regular_ll_sfc_grib1", SFC])
def test_nothing_is_rounded_on_the_way_in_and_out(
    pool: Any, tmp_path: Path, sample: str, *, bits: int, ends: tuple[float, float]
) -> None:
    values = np.random.default_rng(2).uniform(*ends, 496)
    values[:2] = ends
    path = write(tmp_path / "x.grib", message(sample, values, bitsPerValue=bits, shortName="2t"))
    again, out = back(pool, path)
    for group in (pool["first"], again):
        assert [group["t2m"][...].ravel().tolist()] == decoded(path)
    assert decoded(out) == decoded(path)


@pytest.mark.parametrize("sample", ["regular_ll_pl_grib1", PL])
@pytest.mark.parametrize(
    ("bits", "odd"), [(12, (np.inf, -np.inf)), (24, (np.nan, np.inf)), (24, (-1e300, 1e76))]
)
def test_values_beyond_any_packing_go_out_without_a_word_on_stderr(
    pool: Any, tmp_path: Path, capfd: Any, *, sample: str, bits: int, odd: tuple[float, float]
) -> None:
    group = pool.create_group("first")
    content = message(sample, field(0) + 1 / 3, bitsPerValue=bits, shortName="t")
    engram.import_file(write(tmp_path / "x.grib", content), group)
    group["t"][0, :2] = odd
    capfd.readouterr()
    report = engram.export_file(group, tmp_path / "y.grib")
    assert capfd.readouterr().err == ""
    assert [(e.path, e.what) for e in report.noted] == [("/t", "values")]
    assert "eccodes cannot pack them as they came" in report.noted[0].why
    again = pool.create_group("second")
    engram.import_file(tmp_path / "y.grib", again)
    assert np.array_equal(again["t"][...], group["t"][...], equal_nan=True)


def test_what_eccodes_packs_otherwise_than_it_came_is_said_to_be_so(
    pool: Any, tmp_path: Path
) -> None:
    kind = "grid_complex_spatial_differencing"
    path = write(tmp_path / "x.grib", message(PL, field(0), packingType=kind, bitsPerValue=16))
    engram.import_file(path, pool)
    report = engram.export_file(pool, tmp_path / "y.grib")
    assert [e.why for e in report.noted] == [
        "as IEEE's numbers, since eccodes cannot pack them as they came without a change"
    ]
    assert decoded(tmp_path / "y.grib") == decoded(path)


def test_values_that_scaling_makes_too_large_do_not_end_the_process(
    pool: Any, tmp_path: Path
) -> None:
    content = message(PL, field(0), decimalScaleFactor=20, bitsPerValue=0)
    engram.import_file(write(tmp_path / "x.grib", content), pool)
    pool["t"][0, 0] = -1e37
    assert engram.export_file(pool, tmp_path / "y.grib").noted
    (values,) = decoded(tmp_path / "y.grib")
    assert values[0] == pool["t"][0, 0]


def refused(group: Any, path: Path, *words: str, **how: Any) -> None:
    """Assert that an export is refused with these words, and writes nothing."""
    with pytest.raises(engram.FormatError) as caught:
        engram.export_file(group, path, **how)
    assert all(word in str(caught.value) for word in words), str(caught.value)
    assert not path.exists()


def test_what_did_not_come_from_grib_is_refused_by_name(pool: Any, tmp_path: Path) -> None:
    pool["wind"] = np.zeros((3, 4), "f4")
    refused(pool, tmp_path / "x.grib", "/wind", "the grid", "the parameter", "not enough")
    refused(pool, tmp_path / "x.grib", "nothing that came from GRIB", "not enough", lossy=True)
    refused(pool.create_group("empty"), tmp_path / "x.grib", "nothing that came from GRIB")


def test_what_was_changed_that_messages_say_is_refused_by_name(pool: Any, tmp_path: Path) -> None:
    parts = [message(PL, field(n), level=level) for n, level in enumerate([500, 850])]
    engram.import_file(write(tmp_path / "x.grib", *parts), pool)
    refused(pool, tmp_path / "y.grib", "/t: array", "export all", slices="isobaricInhPa=0:1")
    pool["t"].attrs["units"] = "degC"
    refused(pool, tmp_path / "y.grib", "/t: attribute units", "or pass lossy=True to")
    pool["t"].attrs["units"] = "K"
    pool["latitude"][...] = 1.0
    refused(pool, tmp_path / "y.grib", "/latitude", "coordinate")
    assert engram.export_file(pool, tmp_path / "y.grib", lossy=True).arrays > 1


def test_coefficients_of_edition_2_go_out(pool: Any, tmp_path: Path) -> None:
    path = write(tmp_path / "x.grib", message("sh_pl_grib2"))
    again, _ = back(pool, path)
    assert_alike(pool["first"], again)


def test_coefficients_that_lose_their_grid_are_refused(pool: Any, tmp_path: Path) -> None:
    engram.import_file(write(tmp_path / "x.grib", message("sh_pl_grib1")), pool)
    refused(pool, tmp_path / "y.grib", "/t: GRIB cannot hold")


def test_many_messages_are_kept(pool: Any, tmp_path: Path) -> None:
    first = message(PL, field(0), bitsPerValue=16)
    handle = eccodes.codes_new_from_message(first)
    parts = []
    for step in range(1000):
        eccodes.codes_set(handle, "step", step)
        parts.append(eccodes.codes_get_message(handle))
    eccodes.codes_release(handle)
    path = write(tmp_path / "x.grib", *parts)
    _, out = back(pool, path)
    assert out.read_bytes() == path.read_bytes()
    assert len(arrays(pool["first"])["t"]._origin) < 1 << 18
