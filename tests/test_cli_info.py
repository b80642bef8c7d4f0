"""The command line's `info`: what an array is like, told and drawn, whatever is in it."""

from __future__ import annotations

import json
import re
from typing import TYPE_CHECKING, Any

import numpy as np
import pytest

import engram
from engram.cli import summary
from shell import each_in_terminal, example, in_terminal, run

if TYPE_CHECKING:
    from pathlib import Path

COLOURS = re.compile(r"\x1b\[[0-9;]*m")


def pool_of(home: Path, value: Any, **attrs: Any) -> Path:
    """Make a pool with one array, named a."""
    with engram.create(home / "p", size="64 MiB") as pool:
        pool.create_array("a", data=value, attrs=attrs)
    return home / "p"


def drawing(out: str) -> list[str]:
    """Return the lines below the first values and above the caption."""
    lines = out.splitlines()
    start = next(i for i in range(lines.index("values"), len(lines)) if "]" in lines[i])
    return lines[start + 1 : -1]


def told(path: Path) -> dict[str, Any]:
    """Return the summary that JSON has of the array a."""
    found: dict[str, Any] = json.loads(run("info", path, "a", "--json").out)["summary"]
    return found


def test_info_tells_of_values_as_they_are_meant(home: Path) -> None:
    raw = np.array([0, 10, 20, -9], "i2")
    path = pool_of(home, raw, _FillValue=np.int16(-9), scale_factor=0.5, units="K")
    assert told(path) == {"minimum": 0, "maximum": 10, "mean": 5, "missing": 0.25, "step": 1}
    out = run("info", path, "a").out
    assert "0 to 10, mean 5 K; 25 % missing (unpacked)" in out
    assert "[ 0 10 20 -9]" in out


@pytest.mark.parametrize(
    ("value", "said"),
    [
        (np.full(3, np.nan), "all missing"),
        (np.full((2, 3), 4.5), "4.5 to 4.5, mean 4.5"),
        (np.array([1 + 1j, 3 + 3j]), "mean 2+2j"),
        (np.array([True, False]), "0 to 1, mean 0.5"),
        (np.array(["2020-01-02", "NaT", "2019-05-06"], "M8[D]"), "2019-05-06 to 2020-01-02"),
        (np.array([np.inf, 1, -np.inf]), "-inf to inf, mean nan"),
        (np.array([2.0**70, 1]), "1 to 1.18059e+21"),
    ],
)
def test_info_tells_the_range_of_any_numbers(home: Path, value: Any, said: str) -> None:
    code, out, err = run("info", pool_of(home, value), "a")
    assert (code, err) == (0, "")
    assert said in out
    assert run("info", home / "p", "a", "--json").code == 0


@pytest.mark.parametrize(
    "value",
    [
        np.array(["a", "b"], dtype=object),
        np.zeros(3, [("x", "f4"), ("y", "S3")]),
        np.zeros((0, 4)),
        np.array(3.5),
        np.array([b"ab"]),
        np.array(b"\x00", "V4"),
    ],
)
def test_info_draws_nothing_of_what_has_no_numbers(home: Path, value: Any) -> None:
    code, out, err = run("info", pool_of(home, value), "a")
    assert (code, err) == (0, "")
    assert not set(out) & set("▁▂▃▄▅▆▇█▀")


def test_the_work_for_a_large_array_is_bounded_and_said(
    home: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(summary, "MOST", 1000)
    path = pool_of(home, np.arange(10_000.0).reshape(100, 100))
    assert told(path)["step"] == 10
    assert "one of every 10 values" in run("info", path, "a").out


def test_a_curve_rises_where_the_values_rise(home: Path) -> None:
    lines = drawing(run("info", pool_of(home, np.arange(300.0)), "a").out)
    assert [len(line.strip()) for line in lines] == sorted(len(line.strip()) for line in lines)
    assert lines[-1].startswith("▁")
    assert lines[0].endswith("█")


def test_a_gap_in_a_curve_is_blank(home: Path) -> None:
    value = np.where(abs(np.arange(100) - 50) < 10, np.nan, 1.0)
    lines = drawing(run("info", pool_of(home, value), "a").out)
    assert re.fullmatch(r"█+ {10,20}█+", lines[-1]) or re.fullmatch(
        r"[▁-█]+ {10,20}[▁-█]+", lines[-1]
    )


def test_a_map_without_colours_is_made_of_characters(home: Path) -> None:
    value = np.add.outer(np.arange(50.0), np.arange(100.0))
    value[:10, :20] = np.nan
    lines = drawing(run("info", pool_of(home, value), "a").out)
    assert set("".join(lines)) <= set(" .:-=+*#%@")
    assert lines[0].startswith("    ")
    assert lines[-1].endswith("@")
    assert not COLOURS.search("".join(lines))


def test_north_is_up_in_a_map(home: Path) -> None:
    with engram.create(home / "p", size="1 MiB") as pool:
        degrees = {"lat": "degrees_north", "lon": "degrees_east"}
        for dim, units in degrees.items():
            pool.create_array(dim, data=np.arange(20.0), dims=(dim,), attrs={"units": units})
        value = np.repeat(np.arange(20.0)[:, None], 20, axis=1)
        pool.create_array("a", data=value, dims=("lat", "lon"))
    lines = drawing(run("info", home / "p", "a").out)
    assert set(lines[0]) == {"@"}
    assert set(lines[-1]) == {"."}
    assert "lat [degrees_north] 0 to 19 up" in run("info", home / "p", "a").out


def test_a_map_in_a_terminal_has_colours_and_blanks_where_values_are_missing(home: Path) -> None:
    value = np.add.outer(np.arange(40.0), np.arange(40.0))
    value[:, :20] = np.nan
    path = pool_of(home, value)
    code, seen = in_terminal("info", path, "a", colour=True, rows=50)
    assert code == 0
    (line, *_) = (line for line in seen.splitlines() if "▀" in line)
    assert "\x1b[38;" in line
    assert COLOURS.sub("", line).startswith("     ")
    assert "▀" not in in_terminal("info", path, "a")[1]


@pytest.mark.parametrize("columns", [20, 40, 80, 200])
def test_drawings_fit_the_terminal(home: Path, columns: int) -> None:
    path = example(home)
    with engram.open(path) as pool:
        pool["wide"] = np.zeros((3, 1000))
        pool["tall"] = np.arange(3000.0).reshape(1000, 3)
        pool["line"] = np.arange(1000)
    names = ("wide", "tall", "line", "run-17/step-0400/T")
    for code, seen in each_in_terminal((("info", path, n) for n in names), columns=columns):
        assert code == 0
        assert max(map(len, seen.splitlines())) <= columns


def test_times_of_a_coordinate_are_told_in_iso_8601(home: Path) -> None:
    with engram.create(home / "p", size="1 MiB") as pool:
        for name, units, calendar in (
            ("days", "days since 2000-02-28", "standard"),
            ("model", "days since 2000-02-28", "360_day"),
            ("hours", "hours since 2000-02-28 12:00:00", "gregorian"),
            ("odd", "eras since the flood", "standard"),
        ):
            attrs = {"units": units, "calendar": calendar}
            pool.create_array(name, data=np.arange(3), attrs=attrs)
    spans = {
        name: json.loads(run("info", home / "p", name, "--json").out).get("times")
        for name in ("days", "model", "hours", "odd")
    }
    assert spans["days"] == ["2000-02-28", "2000-03-01"]
    assert spans["model"] == ["2000-02-28", "2000-02-30"]
    assert spans["hours"] == ["2000-02-28T12:00:00", "2000-02-28T14:00:00"]
    assert spans["odd"] is None
    assert "2000-02-28 to 2000-03-01" in run("info", home / "p", "days").out


def test_info_tells_where_an_import_came_from(home: Path) -> None:
    import netCDF4  # noqa: PLC0415 - this test alone

    with netCDF4.Dataset(home / "x.nc", "w") as file:
        file.createDimension("t", None)
        made = file.createVariable("v", "f4", ("t",), zlib=True, chunksizes=(8,))
        made[:] = np.arange(5)
    with engram.create(home / "p", size="1 MiB") as pool:
        engram.import_file(home / "x.nc", pool.create_group("g"))
    out = run("info", home / "p", "g/v").out
    for word in ("NETCDF4", "chunks 8", "zlib"):
        assert word in out
    assert "t: 5 (unlimited)" in run("info", home / "p", "g").out
    assert json.loads(run("info", home / "p", "g/v", "--json").out)["origin"]["chunks"] == [8]


def test_info_of_a_namespace_tells_whose_it_is_and_its_space(home: Path) -> None:
    path = example(home)
    found = json.loads(run("info", path, "-n", "icesat", "--json").out)
    assert (found["kind"], found["name"], found["members"]) == ("namespace", "icesat", 1)
    with engram.open(path) as pool:
        assert found["size"] == pool.namespaces["icesat"].size
    out = run("info", path, "-n", "icesat").out
    assert "namespace" in out
    assert "64 MiB" in out


def test_info_json_has_the_first_values_as_they_are_stored(home: Path) -> None:
    path = pool_of(home, np.arange(100, dtype="i2"), scale_factor=0.5)
    with engram.open(path) as pool:
        pool["blob"] = b"hello"
        pool["when"] = np.array("2001-02-03", "M8[D]")
        pool["none"] = np.zeros((0, 3))
        oid = pool["a"].oid
    found = {name: json.loads(run("info", path, name, "--json").out) for name in pool_names(path)}
    assert found["a"]["first_values"] == list(range(12))
    assert found["blob"]["first_values"] == "hello"
    assert found["when"]["first_values"] == "2001-02-03"
    assert found["none"]["first_values"] == []
    assert found["a"]["oid"] == oid
    assert f"{oid:#x}" in run("info", path, "a").out


def pool_names(path: Path) -> list[str]:
    """Return the members of a pool's root."""
    with engram.open(path, mode="r") as pool:
        return list(pool)
