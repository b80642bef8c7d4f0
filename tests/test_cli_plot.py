"""The command line's `plot`: what is drawn of an array, against what, and that it is drawn."""

from __future__ import annotations

import os
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import engram
from engram import conventions
from engram.cli.plot.choose import choose
from engram.conventions import Role
from shell import example, piped, run

BESIDE = Path(__file__).resolve().parents[2] / "shared" / "data"
DATA = Path(os.environ.get("ENGRAM_TEST_DATA", BESIDE))


@pytest.fixture
def grid(pool: engram.Pool) -> engram.Group:
    """Give a group with coordinates of many kinds."""
    group = pool.create_group("model/run")
    above = pool["model"]
    degrees = {"lat": "degrees_north", "lon": "degrees_east"}
    group.create_array(
        "lat", data=np.linspace(60, 40, 5), dims=("lat",), attrs={"units": degrees["lat"]}
    )
    above.create_array(
        "lon", data=np.linspace(0, 30, 7), dims=("lon",), attrs={"units": degrees["lon"]}
    )
    time = {"units": "hours since 2000-02-28", "calendar": "standard"}
    above.create_array("time", data=np.arange(3) * 24, dims=("time",), attrs=time)
    depth = {"units": "m", "positive": "down"}
    above.create_array("depth", data=np.array([0.0, 5, 20, 80]), dims=("depth",), attrs=depth)
    return group


def made(group: engram.Group, *dims: str, **attrs: Any) -> engram.Array:
    """Make an array of these dimensions."""
    sizes = {"time": 3, "depth": 4, "lat": 5, "lon": 7, "member": 2, "node": 6}
    shape = tuple(sizes[dim] for dim in dims)
    data = np.arange(np.prod(shape), dtype="f4").reshape(shape)
    return group.create_array("T", data=data, dims=dims, attrs=attrs)


def test_latitude_and_longitude_make_a_map_and_the_rest_is_at_its_first_place(
    grid: engram.Group,
) -> None:
    choice = choose(made(grid, "time", "lat", "lon", units="K", long_name="temperature"))
    assert (choice.kind, choice.values.shape) == ("map", (5, 7))
    assert (choice.title, choice.label) == ("temperature", "temperature [K]")
    assert choice.y is not None
    assert (choice.y.role, choice.x.role) == (Role.latitude, Role.longitude)
    assert choice.y.values.tolist() == [60, 55, 50, 45, 40]
    assert choice.fixed == ["time = 2000-02-28 (0 of 3)"]


def test_another_place_is_taken_on_demand(grid: engram.Group) -> None:
    choice = choose(made(grid, "time", "lat", "lon"), {"time": -1})
    assert choice.values[0, 0] == 70
    assert choice.fixed == ["time = 2000-03-01 (2 of 3)"]
    choice = choose(grid["T"], {"lat": 1, "lon": 2})
    assert (choice.kind, choice.values.tolist()) == ("line", [9, 44, 79])
    assert choice.fixed == ["lat = 55 degrees_north (1 of 5)", "lon = 10 degrees_east (2 of 7)"]


@pytest.mark.parametrize("dims", [("lon", "lat"), ("lat", "lon"), ("lon", "member", "lat")])
def test_north_is_up_whatever_the_order_of_dimensions(
    grid: engram.Group, dims: tuple[str, ...]
) -> None:
    choice = choose(made(grid, *dims))
    assert (choice.kind, choice.values.shape) == ("map", (5, 7))
    assert choice.x.values[-1] == 30


def test_depth_is_drawn_downwards_and_time_to_the_right(grid: engram.Group) -> None:
    choice = choose(made(grid, "time", "depth"))
    assert (choice.kind, choice.values.shape) == ("image", (4, 3))
    assert choice.y is not None
    assert (choice.y.role, choice.y.down, choice.x.role) == (Role.z, True, Role.time)
    assert choice.x.times is not None
    assert conventions.iso(choice.x.times) == ["2000-02-28", "2000-02-29", "2000-03-01"]


def test_points_with_places_of_their_own_make_points_on_a_map(grid: engram.Group) -> None:
    for name, units in (("x", "degrees_east"), ("y", "degrees_north")):
        grid.create_array(name, data=np.arange(6.0), dims=("node",), attrs={"units": units})
    choice = choose(made(grid, "time", "node", coordinates="x y nothing"))
    assert (choice.kind, choice.values.shape) == ("points", (6,))
    assert choice.x.values.tolist() == list(range(6))


def test_a_curvilinear_grid_makes_a_map(grid: engram.Group) -> None:
    for name, units in (("x2", "degrees_east"), ("y2", "degrees_north")):
        places = np.add.outer(np.arange(4.0), np.arange(2.0))
        grid.create_array(name, data=places, dims=("depth", "member"), attrs={"units": units})
    choice = choose(made(grid, "time", "depth", "member", coordinates="y2 x2"))
    assert (choice.kind, choice.x.values.shape) == ("map", (4, 2))


def test_packed_and_missing_values_are_shown_as_they_are_meant(grid: engram.Group) -> None:
    attrs = {
        "_FillValue": np.int16(-9),
        "missing_value": np.int16(-8),
        "scale_factor": 0.5,
        "add_offset": 10.0,
        "valid_max": np.int16(100),
    }
    raw = np.array([0, 4, -9, -8, 101], "i2")
    shown = choose(grid.create_array("p", data=raw, attrs=attrs)).values
    np.testing.assert_array_equal(shown, [10, 12, np.nan, np.nan, np.nan])
    raw = np.array([-1, 1], "i1")
    shown = choose(grid.create_array("u", data=raw, attrs={"_Unsigned": "true"})).values
    np.testing.assert_array_equal(shown, [255, 1])


def test_attributes_that_make_no_sense_are_as_if_they_were_not_there(grid: engram.Group) -> None:
    attrs = {
        "units": 5,
        "_FillValue": "x",
        "scale_factor": "y",
        "add_offset": np.arange(3.0),
        "valid_range": "q",
        "coordinates": "no /such ../x a//b T",
        "long_name": b"name",
    }
    choice = choose(made(grid, "member", "node", **attrs))
    assert choice.values.tolist() == [list(range(6)), list(range(6, 12))]
    assert choice.title == "name"


def test_times_of_no_calendar_and_coordinates_in_no_order_are_indices(grid: engram.Group) -> None:
    for name, data, units in (
        ("member", np.arange(2.0), "fortnights since the flood"),
        ("node", np.array([3.0, 1, 2, 4, 5, 6]), "1"),
    ):
        grid.create_array(name, data=data, dims=(name,), attrs={"units": units})
    choice = choose(made(grid, "member", "node"))
    assert choice.y is not None
    assert choice.y.values.tolist() == list(range(6))
    assert choice.x.times is None


def test_large_arrays_are_read_in_part(pool: engram.Pool) -> None:
    wide = pool.create_array("wide", shape=(3, 5000), dtype="u1")
    choice = choose(wide)
    assert (choice.values.shape, choice.step) == ((3, 1000), 5)
    assert choice.x.values[-1] == 4995
    assert len(choose(pool.create_array("long", shape=10**6, dtype="u1")).values) <= 20000


@pytest.mark.parametrize(
    ("value", "said"),
    [
        (np.array(["a"], dtype=object), "only numbers"),
        (np.zeros(2, [("a", "f4")]), "only numbers"),
        (np.array(3.0), "single value"),
        (np.zeros((0, 3)), "empty"),
    ],
)
def test_what_cannot_be_drawn_is_refused(pool: engram.Pool, value: Any, said: str) -> None:
    pool["x"] = value
    with pytest.raises(engram.ArgumentError, match=said):
        choose(pool["x"])


@pytest.mark.parametrize(
    ("at", "said"),
    [({"z": 0}, "no dimension 'z'"), ({"lat": 5}, "5 places"), ({"lat": 0, "lon": 0}, "every")],
)
def test_places_that_are_not_there_are_refused(
    grid: engram.Group, at: dict[str, int], said: str
) -> None:
    with pytest.raises(engram.ArgumentError, match=said):
        choose(made(grid, "lat", "lon"), at)


PICTURES = {
    "line": np.sin(np.arange(99)),
    "nan": np.full((4, 5), np.nan),
    "constant": np.full((4, 5), 3.0),
    "one": np.array([5.0]),
    "bool": np.eye(4, dtype=bool),
    "complex": np.exp(1j * np.arange(20)).reshape(4, 5),
    "infinite": np.array([[1, np.inf], [-np.inf, 2]]),
    "far": np.append(np.arange(0.5, 999), 1e9).reshape(10, -1),
    "both signs": np.arange(-10.5, 10).reshape(3, 7),
    "$x_1$ {": np.arange(5),
    "\x1b[31m \u6c34\u6e29": np.arange(5),
}


@pytest.mark.parametrize("name", PICTURES)
def test_pictures_of_all_kinds_are_drawn(home: Path, name: str) -> None:
    with engram.create(home / "p", size="16 MiB") as pool:
        pool.create_array(name, data=PICTURES[name], attrs={"units": "$", "long_name": name})
    code, out, err = run("plot", home / "p", name, "-o", home / "x.png", "--dpi", 20)
    assert (code, err) == (0, "")
    assert out.replace("\n", "").isprintable()
    assert (home / "x.png").read_bytes().startswith(b"\x89PNG")
    assert out.startswith(f"{home}/x.png: a")


@pytest.mark.parametrize(
    ("suffix", "magic"), [("pdf", b"%PDF"), ("svg", b"<?xml"), ("png", b"\x89")]
)
def test_the_name_says_which_kind_of_picture(home: Path, suffix: str, magic: bytes) -> None:
    path = example(home)
    words = ("plot", path, "run-17/step-0400/T", "-o", home / f"x.{suffix}", "--dpi", 20)
    assert run(*words).code == 0
    assert (home / f"x.{suffix}").read_bytes().startswith(magic)
    assert run(*words).code == engram.ExistsError.exit_code
    assert run(*words, "--overwrite").code == 0


def test_plot_writes_to_a_pipe(home: Path) -> None:
    ended = piped("plot", example(home), "run-17/step-0400/T", "-o", "-", "--dpi", 20)
    assert (ended.returncode, ended.stderr) == (0, b"")
    assert ended.stdout.startswith(b"\x89PNG")


@pytest.mark.parametrize(
    ("words", "error", "said"),
    [
        ("run-17", engram.ArgumentError, "is a group"),
        ("log", engram.ArgumentError, "is a blob"),
        ("nope", engram.NotFoundError, "nope"),
        ("run-17/step-0400/names", engram.ArgumentError, "only numbers"),
        ("run-17/step-0400/T -o x.xyz", engram.ArgumentError, ".png"),
        ("run-17/step-0400/T --at y", engram.ArgumentError, "DIM=INDEX"),
        ("run-17/step-0400/T --at y=first", engram.ArgumentError, "DIM=INDEX"),
        ("run-17/step-0400/T --at q=1", engram.ArgumentError, "y, x"),
        ("run-17/step-0400/T -o no/such/x.png", engram.NotFoundError, "folder"),
    ],
)
def test_plot_says_what_cannot_be_and_leaves_no_file(
    home: Path,
    monkeypatch: pytest.MonkeyPatch,
    words: str,
    error: type[engram.EngramError],
    said: str,
) -> None:
    path = example(home)
    monkeypatch.chdir(home)
    code, out, err = run("plot", path, *words.split())
    assert (code, out, err.count("\n")) == (error.exit_code, "", 1)
    assert said in err
    assert [each.name for each in home.iterdir()] == ["pool"]


def test_without_matplotlib_the_error_says_what_to_install(
    home: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = example(home)
    monkeypatch.chdir(home)
    monkeypatch.setitem(sys.modules, "matplotlib", None)
    code, _, err = run("plot", path, "run-17/step-0400/T")
    assert code == engram.UnsupportedError.exit_code
    assert "engram[plot]" in err
    assert [each.name for each in home.iterdir()] == ["pool"]


REAL = [
    ("basin_mask.nc", "basin", "map"),
    ("global-xyt-SMALL_total_column_co2.nc", "tcco2", "map"),
    ("rotated-xyt-small_rotPole_precipitation.nc", "pr", "map"),
    ("mercator-toa_brightness_temperature.nc", "data", "map"),
    ("lambert_azimuthal_equal_area-euro_air_temp.nc", "air_temperature", "image"),
    ("testing-small_theta_colpex.nc", "air_potential_temperature", "image"),
    ("ugrid-21_triangle_example.nc", "u", "points"),
    ("unstructured_grid-theta_nodal_xios.nc", "theta", "points"),
]


@pytest.mark.parametrize(("file", "name", "kind"), REAL)
def test_real_files_are_drawn_as_what_they_are(
    pool: engram.Pool, home: Path, file: str, name: str, kind: str
) -> None:
    if not (DATA / file).is_file():
        pytest.skip(f"no {file} here")
    engram.import_file(DATA / file, pool)
    assert choose(pool[name]).kind == kind
    code, _, err = run("plot", pool.path, name, "-o", home / "x.png", "--dpi", 20)
    assert (code, err) == (0, "")


@pytest.mark.parametrize("size", [100_000, 1_000_003])
@pytest.mark.parametrize("peak", [100.0, -100.0])
def test_a_line_of_very_many_values_keeps_its_peaks(home: Path, size: int, peak: float) -> None:
    with engram.create(home / "p", size="64 MiB") as pool:
        data = np.zeros(size, "f4")
        data[71_234] = peak
        data[99_998] = np.nan
        pool.create_array("long", data=data, dims=("x",))
        pool.create_array("x", data=np.arange(size) * 2.0, dims=("x",))
        for most in (100, 1200):
            choice = choose(pool["long"], most=most)
            assert len(choice.values) <= 16 * most
            assert choice.indices is not None
            (place,) = np.flatnonzero(choice.values == peak)
            assert (choice.indices[place], choice.x.values[place]) == (71_234, 142_468)
            assert np.all(np.diff(choice.indices) > 0)
    blocks = run("info", home / "p", "long").out
    assert "█" in blocks if peak > 0 else " " in blocks
    seen = run("plot", home / "p", "long", "-o", home / "long.png")
    assert seen.out == f"{home / 'long.png'}: a line of {size} values\n"
    several = next(line for line in blocks.splitlines() if "█" in line)
    assert (several.count("█") == 1) == (peak > 0)


def test_times_are_drawn_as_dates(pool: engram.Pool) -> None:
    for name, data, units in (
        ("M", np.array(["2001-01-02", "NaT", "2001-01-04T12"], "M8[h]"), None),
        ("cf", np.array([24.0, np.nan, 84.0]), "hours since 2001-01-01"),
        ("ancient", np.array([730488.0, np.nan, 730490.5]), "days since 0001-01-01"),
    ):
        attrs = {} if units is None else {"units": units}
        choice = choose(pool.create_array(name, data=data, attrs=attrs))
        days = np.array([11324, np.nan, 11326.5])
        assert choice.dated
        assert choice.label == name
        np.testing.assert_allclose(choice.values, days)
    pool["dt"] = np.array([3, -1, "NaT"], "m8[10ms]")
    choice = choose(pool["dt"])
    assert (choice.label, choice.dated) == ("dt [ms]", False)
    np.testing.assert_array_equal(choice.values, [30, -10, np.nan])
    pool.create_array("model", data=np.arange(3), attrs=PLAIN_CALENDAR)
    choice = choose(pool["model"])
    assert (choice.label, choice.dated) == ("model [days since 2001-01-01]", False)
    pool["far"] = np.array([10**6, 1], "M8[Y]")
    choice = choose(pool["far"])
    assert (choice.label, choice.dated) == ("far [days since 1970-01-01]", False)


PLAIN_CALENDAR = {"units": "days since 2001-01-01", "calendar": "360_day"}


@pytest.mark.parametrize(
    "data",
    [
        np.array([1e308, -1e308]),
        np.array([[1e308, -1e308], [0, np.nan]]),
        np.array([5e-324, 0, 1e-310]),
        np.array([np.inf, -np.inf, 1e300]),
        np.array([10**18, 1], "M8[Y]"),
        np.array([["2001-01-02", "NaT"], ["2003-01-02", "2004-05-06"]], "M8[D]"),
        np.array(["NaT", "NaT"], "M8[ns]"),
        np.array([2**63 - 1, -(2**63) + 1], "m8[s]"),
    ],
    ids=str,
)
def test_whatever_numbers_there_are_a_picture_comes(home: Path, data: Any) -> None:
    with engram.create(home / "p", size="64 MiB") as pool:
        pool["a"] = data
    ended = run("plot", home / "p", "a", "-o", home / "a.png")
    assert (ended.code, ended.err) == (0, "")
    assert (home / "a.png").stat().st_size > 1000
    assert run("info", home / "p", "a").code == 0


def test_numbers_out_of_reach_are_drawn_in_a_power_of_ten(pool: engram.Pool) -> None:
    draw = pytest.importorskip("engram.cli.plot.draw")
    pool.create_array("huge", data=np.array([1e308, -1e308]), attrs={"units": "K"})
    scaled = draw._in_reach(choose(pool["huge"]))
    assert scaled.label == "huge [K] (in 1e308)"
    np.testing.assert_allclose(scaled.values, [1, -1])


def test_magnitudes_that_are_the_same_are_drawn_as_a_constant(home: Path) -> None:
    with engram.create(home / "p", size="64 MiB") as pool:
        pool["turning"] = np.exp(1j * np.linspace(0, 20, 500))
        assert np.ptp(np.abs(pool["turning"][...])) > 0
        assert np.ptp(choose(pool["turning"]).values) == 0
        pool["growing"] = np.exp(1j * np.linspace(0, 20, 500)) * np.linspace(1, 1.0001, 500)
        assert np.ptp(choose(pool["growing"]).values) > 0
    assert "; drawn is |turning|" in run("info", home / "p", "turning").out


def test_dates_with_one_missing_place_nothing_and_are_said_to(home: Path) -> None:
    with engram.create(home / "p", size="64 MiB") as pool:
        dates = np.array(["2001-01-02", "NaT", "2001-01-04"], "M8[D]")
        pool.create_array("t", data=dates, dims=("t",))
        pool.create_array("v", data=np.arange(3.0), dims=("t",))
        assert choose(pool["v"]).x.label == "t (index)"
    assert "t (index) 0 to 2" in run("info", home / "p", "v").out
