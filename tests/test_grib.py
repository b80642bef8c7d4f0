"""Importing GRIB: every message reaches the pool, as the hypercubes that cfgrib makes."""

from __future__ import annotations

import itertools
import tracemalloc
from typing import TYPE_CHECKING, Any

import numpy as np
import pytest
from hypothesis import example, given
from hypothesis import strategies as st

import engram
from engram.formats.blocks import region_shape, whole
from engram.formats.grib import width
from engram.formats.registry import open_source
from engram.formats.source import ArrayNode
from same import assert_same
from support import said_without

if TYPE_CHECKING:
    from pathlib import Path

    from engram.formats import ImportReport

try:
    import eccodes
except (ImportError, OSError, RuntimeError) as error:
    pytest.skip(f"eccodes cannot be loaded here: {error}", allow_module_level=True)
cfgrib = pytest.importorskip("cfgrib")

SFC, PL = "regular_ll_sfc_grib2", "regular_ll_pl_grib2"
T2M, MSL = {"shortName": "2t"}, {"shortName": "msl"}


def message(sample: str, values: Any = None, **keys: Any) -> bytes:
    """Make a message from a sample of eccodes."""
    handle = eccodes.codes_grib_new_from_samples(sample)
    try:
        for key, value in keys.items():
            eccodes.codes_set(handle, key, value)
        if values is not None:
            eccodes.codes_set_values(handle, np.asarray(values, "f8").ravel())
        content: bytes = eccodes.codes_get_message(handle)
        return content
    finally:
        eccodes.codes_release(handle)


def field(seed: float, count: int = 496) -> np.ndarray[Any, Any]:
    """Return values for a sample's grid, different for each seed."""
    return 200 + seed + np.arange(count) / 7


def write(path: Path, *messages: bytes) -> Path:
    """Make a GRIB file."""
    path.write_bytes(b"".join(messages))
    return path


def arrays(group: Any, prefix: str = "") -> dict[str, Any]:
    """Return every array in a group by path."""
    found: dict[str, Any] = {}
    for name, member in group.items():
        if isinstance(member, engram.Group):
            found.update(arrays(member, f"{prefix}{name}/"))
        else:
            found[prefix + name] = member
    return found


def noted(report: ImportReport) -> dict[tuple[str, str], str]:
    """Return what a report says is otherwise than in the file."""
    return {(e.path, e.what): e.why for e in report.noted}


def assert_as_cfgrib_has_it(group: Any, path: Path, **filters: Any) -> None:
    """Assert that a group has the variables, dimensions and attributes that cfgrib gives.

    Values are float32 where that holds each of them, and as eccodes decodes them in any case.
    """
    expected = cfgrib.open_file(
        str(path), indexpath="", errors="raise", filter_by_keys=filters, values_dtype=np.dtype("f8")
    )
    found = arrays(group)
    assert set(found) == set(expected.variables)
    for name, variable in expected.variables.items():
        data = variable.data
        decoded = hasattr(data, "build_array")
        values = data.build_array() if decoded else np.asarray(data)
        if decoded and np.array_equal(values.astype("f4"), values, equal_nan=True):
            values = values.astype("f4")
        assert_same(found[name][...], values)
        assert (found[name].dims or ()) == variable.dimensions
        attrs = dict(found[name].attrs.items())
        for key, value in variable.attributes.items():
            np.testing.assert_array_equal(attrs[key], value)
    for key in ("GRIB_edition", "GRIB_centre", "Conventions", "institution"):
        assert group.attrs[key] == expected.attributes[key]


@pytest.mark.parametrize(
    "sample",
    [
        *("regular_ll_sfc_grib1", SFC, PL, "regular_gg_ml_grib1", "reduced_gg_pl_32_grib2"),
        *("reduced_ll_sfc_grib1", "polar_stereographic_pl_grib2", "rotated_ll_sfc_grib2"),
    ],
)
def test_each_kind_of_grid_arrives_as_cfgrib_has_it(pool: Any, tmp_path: Path, sample: str) -> None:
    path = write(tmp_path / "x.grib", message(sample))
    report = engram.import_file(path, pool)
    assert (report.format, report.complete) == ("GRIB", True)
    assert_as_cfgrib_has_it(pool, path)
    assert "no raw form" in noted(report)["/", "values"]
    assert [p.name for p in tmp_path.iterdir()] == ["x.grib"]


@pytest.mark.parametrize("sample", ["regular_ll_pl_grib1", PL])
def test_messages_become_one_array_over_time_step_and_level(
    pool: Any, tmp_path: Path, sample: str
) -> None:
    places = list(itertools.product([20200101, 20200102], [0, 6], [1000, 850, 500]))
    messages = [
        message(sample, field(n), shortName="t", dataDate=date, stepRange=step, level=level)
        for n, (date, step, level) in enumerate(places)
    ]
    path = write(tmp_path / "x.grib", *messages[::-1])
    engram.import_file(path, pool)
    assert_as_cfgrib_has_it(pool, path)
    variable = pool["t"]
    assert variable.dims == ("time", "step", "isobaricInhPa", "latitude", "longitude")
    assert pool["isobaricInhPa"][...].tolist() == [1000, 850, 500]
    assert pool["step"].attrs["units"] == "hours"
    for n, place in enumerate(np.ndindex(2, 2, 3)):
        np.testing.assert_allclose(variable[place].ravel(), field(n), atol=0.01)


def test_variables_that_agree_share_the_root(pool: Any, tmp_path: Path) -> None:
    path = write(tmp_path / "x.grib", message(SFC, field(1), **T2M), message(SFC, field(2), **MSL))
    engram.import_file(path, pool)
    assert_as_cfgrib_has_it(pool, path)
    assert {"t2m", "msl"} <= set(pool)


def test_variables_that_conflict_are_put_into_groups_by_level(pool: Any, tmp_path: Path) -> None:
    path = write(
        tmp_path / "x.grib",
        message(SFC, field(1), **T2M),
        message(SFC, field(2), shortName="10u"),
        message(PL, field(3), level=500, dataDate=20200101),
        message(PL, field(4), level=850, dataDate=20200102),
    )
    report = engram.import_file(path, pool)
    assert list(pool) == ["heightAboveGround", "heightAboveGround_2", "isobaricInhPa"]
    assert_as_cfgrib_has_it(pool["heightAboveGround"], path, shortName="2t")
    assert_as_cfgrib_has_it(pool["heightAboveGround_2"], path, shortName="10u")
    assert report.groups == 3
    assert pool["isobaricInhPa/t"].dims == ("time", "isobaricInhPa", "latitude", "longitude")
    missing = np.isnan(pool["isobaricInhPa/t"][...]).all(axis=(2, 3))
    assert missing.tolist() == [[True, False], [False, True]]
    assert "2 of its 4" in noted(report)["/isobaricInhPa/t", "variable"]


def test_a_hypercube_of_mostly_nothing_is_parted(pool: Any, tmp_path: Path) -> None:
    messages = [
        message(PL, field(n), dataDate=20200101 + n, level=1000 - n * 10) for n in range(12)
    ]
    report = engram.import_file(write(tmp_path / "x.grib", *messages), pool)
    found = {k: v for k, v in arrays(pool).items() if k.endswith("/t")}
    assert len(found) == 12
    assert report.nbytes < 20 * 496 * 8 * 2


def test_two_messages_of_one_place_both_arrive(pool: Any, tmp_path: Path) -> None:
    path = write(tmp_path / "x.grib", *(message(PL, field(n)) for n in range(3)))
    engram.import_file(path, pool)
    found = {k: v[...] for k, v in arrays(pool).items() if k.endswith("/t")}
    assert sorted(found) == ["isobaricInhPa/t", "isobaricInhPa_2/t", "isobaricInhPa_3/t"]
    for n, name in enumerate(sorted(found)):
        np.testing.assert_allclose(found[name].ravel(), field(n), atol=0.01)


def test_both_editions_in_one_file_arrive(pool: Any, tmp_path: Path) -> None:
    one = message("regular_ll_sfc_grib1", field(1), **T2M)
    path = write(tmp_path / "x.grib", one, message(SFC, field(2), **T2M))
    engram.import_file(path, pool)
    found = [name for name in arrays(pool) if name.endswith("t2m")]
    assert len(found) == 2
    assert {pool[name].parent.attrs["GRIB_edition"] for name in found} == {1, 2}


def test_parameters_without_a_name_are_not_mixed(pool: Any, tmp_path: Path) -> None:
    messages = [
        message(PL, field(n), parameterCategory=191, parameterNumber=200 + n, level=500 + n)
        for n in range(2)
    ]
    engram.import_file(write(tmp_path / "x.grib", *messages), pool)
    numbers = {
        int(v.attrs["GRIB_parameterNumber"])
        for v in arrays(pool).values()
        if "GRIB_parameterNumber" in v.attrs
    }
    assert numbers == {200, 201}


def test_several_fields_of_one_message_arrive(pool: Any, tmp_path: Path) -> None:
    path = tmp_path / "x.grib"
    multi = eccodes.codes_grib_multi_new()
    for level, seed in ((500, 1), (850, 2)):
        handle = eccodes.codes_grib_new_from_samples(PL)
        eccodes.codes_set(handle, "level", level)
        eccodes.codes_set_values(handle, field(seed))
        eccodes.codes_grib_multi_append(handle, 4, multi)
        eccodes.codes_release(handle)
    with path.open("wb") as file:
        eccodes.codes_grib_multi_write(multi, file)
    eccodes.codes_grib_multi_release(multi)
    engram.import_file(path, pool)
    assert pool["isobaricInhPa"][...].tolist() == [850, 500]
    np.testing.assert_allclose(pool["t"][0].ravel(), field(2), atol=0.01)
    np.testing.assert_allclose(pool["t"][1].ravel(), field(1), atol=0.01)


def test_missing_values_are_nan(pool: Any, tmp_path: Path) -> None:
    values = field(1)
    values[[3, 77]] = 9999
    content = message(SFC, values, bitmapPresent=1, missingValue=9999, **T2M)
    path = write(tmp_path / "x.grib", content)
    engram.import_file(path, pool)
    assert np.flatnonzero(np.isnan(pool["t2m"][...].ravel())).tolist() == [3, 77]
    assert_as_cfgrib_has_it(pool, path)


def test_values_of_more_than_24_bits_are_float64(pool: Any, tmp_path: Path) -> None:
    values = 1e6 + np.arange(496) / 2**20
    content = message(SFC, packingType="grid_ieee", precision=2, **T2M)
    handle = eccodes.codes_new_from_message(content)
    eccodes.codes_set_values(handle, values)
    path = write(tmp_path / "x.grib", eccodes.codes_get_message(handle))
    eccodes.codes_release(handle)
    engram.import_file(path, pool)
    assert pool["t2m"].dtype == np.dtype("f8")
    assert pool["t2m"][...].ravel().tolist() == values.tolist()


@pytest.mark.parametrize(
    ("bits", "ends", "dtype"),
    [
        (16, (0.0, 50.0), "f4"),
        (16, (250.0, 255.0), "f4"),
        (16, (250.1, 300.0), "f8"),
        (16, (51_234.567, 103_210.9), "f8"),
        (16, (98_765.4, 103_210.9), "f4"),
        (24, (250.0, 300.0), "f8"),
        (0, (273.15, 273.15), "f4"),
    ],
    ids=str,
)
@pytest.mark.parametrize("sample", ["regular_ll_sfc_grib1", SFC])
def test_values_are_of_the_least_width_that_holds_them(
    pool: Any, tmp_path: Path, sample: str, *, bits: int, ends: tuple[float, float], dtype: str
) -> None:
    values = np.random.default_rng(3).uniform(*ends, 496)
    values[:2] = ends
    content = message(sample, values, bitsPerValue=bits, **T2M)
    engram.import_file(write(tmp_path / "x.grib", content), pool)
    handle = eccodes.codes_new_from_message(content)
    expected = eccodes.codes_get_values(handle)
    eccodes.codes_release(handle)
    assert pool["t2m"].dtype == np.dtype(dtype)
    assert pool["t2m"][...].ravel().tolist() == expected.tolist()


def test_one_message_of_many_makes_a_variable_wide(pool: Any, tmp_path: Path) -> None:
    parts = [message(PL, np.arange(496) % 16, bitsPerValue=4, level=n) for n in (1, 2, 3)]
    odd = np.random.default_rng(4).uniform(250, 300, 496)
    path = write(tmp_path / "x.grib", *parts, message(PL, odd, bitsPerValue=24, level=4))
    engram.import_file(path, pool)
    assert pool["t"].dtype == np.dtype("f8")


@given(
    reference=st.floats(width=32, allow_nan=False, allow_infinity=False) | st.just(0.0),
    scale=st.integers(-160, 130),
    bits=st.integers(0, 12),
)
@example(reference=0.0, scale=-149, bits=12)
@example(reference=250.0, scale=-12, bits=12)
def test_what_is_said_of_scaled_values_holds(reference: float, scale: int, bits: int) -> None:
    values = reference + np.arange(1 << bits) * 2.0**scale
    said = width.holds_scaled(reference, scale, bits)
    assert not said or width.is_held(values)
    assert said or reference or not -149 <= scale <= 100


@pytest.mark.parametrize("west", [0, 1])
@pytest.mark.parametrize("north", [0, 1])
@pytest.mark.parametrize("columns", [0, 1])
def test_values_stand_at_their_latitude_and_longitude(
    pool: Any, tmp_path: Path, west: int, north: int, columns: int
) -> None:
    first, last = "OfFirstGridPointInDegrees", "OfLastGridPointInDegrees"
    keys = {
        "iScansNegatively": west,
        "jScansPositively": north,
        "jPointsAreConsecutive": columns,
        f"longitude{first}": 30 if west else 0,
        f"longitude{last}": 0 if west else 30,
        f"latitude{first}": 0 if north else 60,
        f"latitude{last}": 60 if north else 0,
        "bitsPerValue": 24,
    }
    blank = eccodes.codes_new_from_message(message(SFC, **keys))
    latitude = eccodes.codes_get_array(blank, "latitudes")
    longitude = eccodes.codes_get_array(blank, "longitudes")
    eccodes.codes_release(blank)
    path = write(tmp_path / "x.grib", message(SFC, latitude * 100 + longitude, **keys, **T2M))
    engram.import_file(path, pool)
    rows, line = pool["latitude"][...], pool["longitude"][...]
    assert (len(rows), len(line)) == (31, 16)
    expected = rows[:, None] * 100 + line[None]
    np.testing.assert_allclose(pool["t2m"][...], expected, atol=0.01)


def test_every_other_row_backwards_is_put_right(pool: Any, tmp_path: Path) -> None:
    values = np.arange(496.0).reshape(31, 16)
    stored = values.copy()
    stored[1::2] = stored[1::2, ::-1]
    path = write(tmp_path / "x.grib", message(SFC, stored, alternativeRowScanning=1, **T2M))
    engram.import_file(path, pool)
    np.testing.assert_allclose(pool["t2m"][...], values, atol=0.01)
    assert pool["longitude"][0] == 0


def test_spectral_coefficients_arrive_and_their_lack_of_a_grid_is_noted(
    pool: Any, tmp_path: Path
) -> None:
    report = engram.import_file(write(tmp_path / "x.grib", message("sh_pl_grib2")), pool)
    assert pool["t"].dims == ("values",)
    assert "no latitudes" in noted(report)["/t", "variable"]


def test_a_bulletins_heading_is_left_out_by_name(pool: Any, tmp_path: Path) -> None:
    heading = b"\x01\r\r\n123\r\r\nHTXX80 ECMF 010000\r\r\n"
    path = write(tmp_path / "x", heading, message(SFC, field(1), **T2M), b"\r\r\n\x03")
    report = engram.import_file(path, pool)
    assert "t2m" in pool
    assert len(report.left_out) == 2


def assert_refused(pool: Any, path: Path, *words: str) -> None:
    """Assert that an import fails as said and that nothing of it is there."""
    with pytest.raises(engram.FormatError) as caught:
        engram.import_file(path, pool)
    for word in (str(path), *words):
        assert word in str(caught.value)
    assert list(pool) == []
    assert dict(pool.attrs) == {}


@pytest.mark.parametrize("cut", [-1, -200, 20])
def test_a_truncated_file_is_refused_with_its_message(pool: Any, tmp_path: Path, cut: int) -> None:
    path = write(tmp_path / "x.grib", message(SFC, field(1), **T2M))
    whole = path.read_bytes()
    last = message(SFC, field(2), **MSL)[:cut]
    assert_refused(pool, write(path, whole, last), "message")
    assert_refused(pool, write(path, last))


@pytest.mark.parametrize("where", ["begin", "end"])
def test_a_damaged_message_in_the_middle_is_refused(pool: Any, tmp_path: Path, where: str) -> None:
    first, middle, last = (message(PL, field(n), level=500 + n) for n in range(3))
    damaged = b"GRUB" + middle[4:] if where == "begin" else middle[:-4] + b"7767"
    assert_refused(pool, write(tmp_path / "x.grib", first, damaged, last), "damaged")


def test_any_region_is_read_as_slicing_gives_it(tmp_path: Path) -> None:
    places = itertools.product([20200101, 20200102], [1000, 850, 500])
    messages = [
        message(PL, field(n), shortName="t", dataDate=date, level=level)
        for n, (date, level) in enumerate(places)
    ]
    path = write(tmp_path / "x.grib", *messages[1:])
    with open_source(path) as source:
        nodes = [node for node in source.nodes if isinstance(node, ArrayNode) and node.shape]
        for node in nodes:
            everything = np.zeros(node.shape, node.dtype)
            node.read(everything, whole(node.shape))
            for start, step in ((0, 1), (1, 1), (1, 2)):
                region = tuple(slice(min(start, n - 1), n, step) for n in node.shape)
                out = np.zeros(region_shape(region), node.dtype)
                node.read(out, region)
                assert_same(out, everything[region])
    assert {node.path for node in nodes} >= {"t", "time", "isobaricInhPa", "latitude", "longitude"}


@pytest.mark.parametrize(
    "packing", [{"bitsPerValue": 16}, {"packingType": "grid_ieee", "precision": 1}], ids=str
)
def test_a_large_file_is_read_and_written_in_bounded_memory(
    pool: Any, tmp_path: Path, packing: dict[str, Any]
) -> None:
    size = 500
    keys = {"Ni": size, "Nj": size, **packing}
    messages = [message(PL, field(n, size * size), level=n + 1, **keys) for n in range(40)]
    path = write(tmp_path / "x.grib", *messages)
    tracemalloc.start()
    engram.import_file(path, pool)
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert pool["t"].nbytes == 40 * size * size * 4
    assert peak < pool["t"].nbytes / 2
    np.testing.assert_allclose(pool["t"][0].ravel(), field(39, size * size), atol=1)
    tracemalloc.start()
    engram.export_file(pool, tmp_path / "again.grib")
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert peak < pool["t"].nbytes / 2


def test_without_cfgrib_the_error_says_what_to_install(home: Path, tmp_path: Path) -> None:
    path = write(tmp_path / "x.grib", message(SFC))
    said = said_without("cfgrib", home, path)
    assert "engram[grib]" in said
    assert str(path) in said
