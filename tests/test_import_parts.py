"""Part of a file: what is selected and sliced arrives, as numpy slices it, and nothing else."""

from __future__ import annotations

import fnmatch
import json
import math
from typing import TYPE_CHECKING, Any

import h5py
import netCDF4
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

import engram
from engram.formats.blocks import BLOCK_BYTES, pieces, region_shape, whole
from engram.formats.select import Selection
from same import assert_same

if TYPE_CHECKING:
    from pathlib import Path

DATA = np.arange(24 * 10 * 12, dtype="f4").reshape(24, 10, 12)
DIMS = ("time", "lat", "lon")
KINDS = ["NETCDF3_CLASSIC", "NETCDF3_64BIT_DATA", "NETCDF4", "contiguous", "hdf5"]


def make(path: Path, kind: str) -> Path:
    """Make a file of one field, one number for each record, and strings where they can be."""
    if kind == "hdf5":
        with h5py.File(path, "w") as file:
            file.create_dataset("run/T", data=DATA, chunks=(5, 3, 12), compression="gzip")
            file.create_dataset("run/n", data=np.arange(24, dtype=">i2"))
            file["run/text"] = [f"step {n}" for n in range(24)]
            for axis, name in enumerate(DIMS):
                file["run/T"].dims[axis].label = name
            for name in ("n", "text"):
                file[f"run/{name}"].dims[0].label = "time"
        return path
    model: Any = kind if kind.startswith("NETCDF") else "NETCDF4"
    with netCDF4.Dataset(path, "w", format=model) as file:
        length = 24 if kind == "contiguous" else None
        for name, size in zip(DIMS, (length, 10, 12), strict=True):
            file.createDimension(name, size)
        within = file if kind.startswith("NETCDF3") else file.createGroup("run")
        within.createVariable("T", "f4", DIMS)[:] = DATA
        within.createVariable("n", "i2", ("time",))[:] = np.arange(24)
        if not kind.startswith("NETCDF3"):
            text = within.createVariable("text", str, ("time",))
            text[:] = np.array([f"step {n}" for n in range(24)], object)
    return path


def imported(pool: Any, path: Path, **part: Any) -> Any:
    """Import part of a file; give the group of its variables."""
    engram.import_file(path, pool, **part)
    return pool.get("run", pool)


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize(
    "asked",
    [
        {"time": slice(2, 9)},
        {"time": slice(None, None, 7), "lat": slice(3, 4)},
        {"lon": slice(1, None, 3)},
        {"time": 5, "lat": slice(0, 10, 2), "lon": slice(2, 11, 4)},
        {"time": slice(30, 40)},
        {"lat": -1},
    ],
    ids=str,
)
def test_a_slice_arrives_as_numpy_takes_it(
    pool: Any, tmp_path: Path, kind: str, asked: dict[str, slice | int]
) -> None:
    group = imported(pool, make(tmp_path / "x", kind), slices=asked)
    ranges = {d: asked.get(d, slice(None)) for d in DIMS}
    region = tuple(
        s if isinstance(s, slice) else slice(s, None if s == -1 else s + 1) for s in ranges.values()
    )
    assert_same(group["T"][...], DATA[region])
    assert group["T"].dims == DIMS
    assert group["n"][...].tolist() == list(range(24))[region[0]]
    if "text" in group:
        assert group["text"][...].tolist() == [f"step {n}" for n in range(24)][region[0]]


def test_dimensions_kept_for_export_follow_the_slice(pool: Any, tmp_path: Path) -> None:
    imported(pool, make(tmp_path / "x", "NETCDF4"), slices=["time=3:11:2", "lon=0"])
    kept = json.loads(pool._origin)["dimensions"]
    assert {name: fact["size"] for name, fact in kept.items()} == {"time": 4, "lat": 10, "lon": 1}
    assert kept["time"]["unlimited"]


def test_what_is_selected_comes_with_its_groups_and_nothing_else(pool: Any, tmp_path: Path) -> None:
    with h5py.File(tmp_path / "x.h5", "w") as file:
        for name in ("a/one", "a/two", "b/one", "top", "c/deep/one"):
            file[name] = np.arange(3)
        file["a"].attrs["title"] = "kept"
    report = engram.import_file(tmp_path / "x.h5", pool, select=["a/t*", "**/deep"])
    assert sorted(path for path, _ in walked(pool)) == ["a", "a/two", "c", "c/deep", "c/deep/one"]
    assert pool["a"].attrs["title"] == "kept"
    assert report.arrays == 2


def walked(group: Any) -> list[tuple[str, Any]]:
    """Return all members below a group."""
    found: list[tuple[str, Any]] = []
    group.visititems(lambda path, member: found.append((path, member)))
    return found


@pytest.mark.parametrize(
    ("part", "words"),
    [
        ({"select": "nothing*"}, "no member matches 'nothing\\*'"),
        ({"slices": "height=0:3"}, "no array has a dimension 'height'"),
    ],
)
def test_a_part_that_is_not_there_is_refused_with_the_file(
    pool: Any, tmp_path: Path, part: dict[str, str], words: str
) -> None:
    path = make(tmp_path / "x", "NETCDF4")
    with pytest.raises(engram.NotFoundError, match=words) as caught:
        engram.import_file(path, pool, **part)  # type: ignore[arg-type]  # one of each
    assert str(path) in str(caught.value)
    assert list(pool) == []


@pytest.mark.parametrize("text", ["time", "time=", "=3", "time=a", "time=1:2:0", "time=1:2:-1"])
def test_what_is_no_slice_is_refused(text: str) -> None:
    with pytest.raises(engram.ArgumentError):
        Selection(None, text)


def slices(length: int) -> st.SearchStrategy[slice]:
    """Slices with positive steps."""
    bound = st.none() | st.integers(-length - 2, length + 2)
    step = st.none() | st.integers(1, length + 2)
    return st.builds(slice, bound, bound, step)


@given(st.data())
def test_pieces_cover_a_selection_once_in_order_and_end_where_chunks_end(
    data: st.DataObject,
) -> None:
    shape = tuple(data.draw(st.lists(st.integers(1, 12), min_size=1, max_size=3)))
    chunks = data.draw(st.none() | st.tuples(*(st.integers(1, n) for n in shape)))
    asked = {f"d{n}": data.draw(slices(length)) for n, length in enumerate(shape)}
    region = Selection(None, asked).region(tuple(asked), shape)
    source = np.arange(math.prod(shape)).reshape(shape)
    expected = source[tuple(asked.values())]
    assert region_shape(region) == expected.shape
    out = np.full(expected.shape, -1)
    times = np.zeros(expected.shape, int)
    for part, place in pieces(region, chunks, 8, limit=data.draw(st.integers(8, 512))):
        out[place] = source[part]
        times[place] += 1
        for axis, cut in enumerate(part):
            ends = cut.stop == region[axis].stop or cut.stop % (chunks or shape)[axis] == 0
            assert ends or chunks is None
    assert (out == expected).all()
    assert (times == 1).all()


@given(st.data())
def test_slices_written_as_text_are_numpys_own(data: st.DataObject) -> None:
    length = data.draw(st.integers(0, 9))
    asked = data.draw(slices(9))
    texts = ["" if n is None else str(n) for n in (asked.start, asked.stop, asked.step)]
    chosen = Selection(None, "x=" + ":".join(texts)).region(("x",), (length,))
    assert list(range(length))[chosen[0]] == list(range(length))[asked]


NAMES = st.text("ab*?", min_size=1, max_size=3)


@given(st.lists(st.text("ab", min_size=1, max_size=3), min_size=1, max_size=8, unique=True), NAMES)
def test_patterns_of_one_component_choose_what_fnmatch_chooses(
    names: list[str], pattern: str
) -> None:
    expected = {name for name in names if fnmatch.fnmatchcase(name, pattern)}
    try:
        found = Selection(pattern).chosen(names)
    except engram.NotFoundError:
        found = {""}
    assert found == {"", *expected}


def test_a_step_over_many_chunks_is_cut_into_bounded_pieces() -> None:
    region = (slice(0, 1 << 30, 1 << 20),)
    found = [part for part, _ in pieces(region, (1 << 10,), 8)]
    assert sum(region_shape(part)[0] for part in found) == 1024
    assert max(8 * (part[0].stop - part[0].start) for part in found) <= BLOCK_BYTES
    assert list(pieces(whole((4, 0)), None, 8)) == []
