"""Levels of arrays: the same cells as numpy makes of all of the array, in bounded memory."""

from __future__ import annotations

import subprocess
import sys
import warnings
from typing import TYPE_CHECKING, Any

import numpy as np
import pytest

pytest.importorskip("starlette", reason="engram[web] is not installed")

from engram.web import levels, picks, sources
from engram.web.refusal import RefusedError
from engram.web.sources import Source
from engram.web.working import Work

if TYPE_CHECKING:
    from collections.abc import Callable

    from numpy.typing import NDArray

    import engram
    from engram.web.levels import Level

DTYPES = ("f4", "f8", "i2", "i4", "u1", ">f4", "?", "f2", ">i8")


def cells_of(values: NDArray[Any], size: tuple[int, int], figure: Callable[..., Any]) -> Any:
    """Compute each cell as it is defined."""
    rows, columns = (
        np.arange(count + 1) * length // count
        for count, length in zip(size, values.shape, strict=True)
    )
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", RuntimeWarning)  # a cell may have nothing that is known
        return np.array(
            [
                [
                    figure(values[rows[y] : rows[y + 1], columns[x] : columns[x + 1]])
                    for x in range(size[1])
                ]
                for y in range(size[0])
            ]
        )


def drawn(array: Any, index: str, size: tuple[int, int], reduce: str) -> Level:
    source = Source(array)
    return levels.image(source, picks.read(index, source.shape, 2), size, reduce, Work())


@pytest.mark.parametrize("seed", range(24))
def test_cells_are_those_of_numpy(
    pool: engram.Pool, monkeypatch: pytest.MonkeyPatch, seed: int
) -> None:
    rng = np.random.default_rng(seed)
    monkeypatch.setattr(levels, "TILE", int(rng.choice([64, 999, 1 << 19])))
    shape = (3, int(rng.integers(1, 200)), int(rng.integers(1, 300)))
    values = (rng.normal(size=shape) * 50).astype(DTYPES[seed % len(DTYPES)])
    if values.dtype.kind == "f" and seed % 2:
        values[rng.random(shape) < 0.3] = np.nan
    chunks = None if seed % 3 == 0 else tuple(int(rng.integers(1, n + 1)) for n in shape)
    array = pool.create_array("a", data=values, chunks=chunks)
    index = f"{seed % 3},{rng.integers(0, shape[1])}:,::{rng.integers(1, 4)}"
    pick = picks.read(index, shape, 2)
    part = values[pick.key(*pick.ranges)].astype("f8")
    most = int(rng.integers(1, 50)), int(rng.integers(1, 50))
    size = min(most[0], part.shape[0]), min(most[1], part.shape[1])
    for reduce, figure in (("mean", np.nanmean), ("min", np.nanmin), ("max", np.nanmax)):
        found = drawn(array, index, most, reduce)
        expected = cells_of(part, size, figure)
        np.testing.assert_allclose(found.values, expected, rtol=2e-5, atol=2e-5)
    nearest = drawn(array, index, most, "nearest").values
    middles: list[Any] = [
        range(n) if size == part.shape else [(2 * at + 1) * n // (2 * count) for at in range(count)]
        for count, n in zip(size, part.shape, strict=True)
    ]
    np.testing.assert_allclose(nearest, part[np.ix_(*middles)].astype("f4"))
    line = picks.read(f"1,:,{shape[2] - 1}", shape, 1)
    along = values[1, :, -1].astype("f8")[np.newaxis]
    bins = min(most[0], shape[1])
    found = levels.line(Source(array), line, most[0], Work())
    figures: tuple[Any, ...] = (np.nanmin, np.nanmean, np.nanmax)
    for row, figure in enumerate(figures):
        expected = cells_of(along, (1, bins), figure)[0]
        np.testing.assert_allclose(found.values[row], expected, rtol=2e-5, atol=2e-5)


def test_values_that_are_not_finite_spoil_no_cell(pool: engram.Pool) -> None:
    values = np.ones((4, 6), "f4")
    values[0, 0], values[1, 1], values[2, :] = np.inf, np.nan, -np.inf
    values[3, :] = np.nan
    array = pool.create_array("a", data=values)
    found = drawn(array, ":,:", (2, 3), "mean")
    np.testing.assert_array_equal(found.values, [[1, 1, 1], [np.nan] * 3])
    assert found.range == (1.0, 1.0)
    huge = pool.create_array("h", data=np.full((4, 4), 3e38, "f4"))
    np.testing.assert_allclose(drawn(huge, ":,:", (1, 1), "mean").values, [[3e38]], rtol=1e-6)
    none = pool.create_array("n", data=np.full((4, 4), np.nan))
    assert np.isnan(drawn(none, ":,:", (2, 2), "max").values).all()


def test_large_sums_keep_their_precision(pool: engram.Pool) -> None:
    values = np.full((4000, 500), 16777.217, "f4")
    found = drawn(pool.create_array("a", data=values), ":,:", (1, 1), "mean").values
    np.testing.assert_allclose(found, values[0, 0], rtol=1e-6)


def test_missing_and_packed_values_are_as_they_are_meant(pool: engram.Pool) -> None:
    packed = np.arange(24, dtype="i2").reshape(4, 6)
    attrs = {"scale_factor": 0.1, "add_offset": 5.0, "missing_value": np.int16(0)}
    array = pool.create_array("a", data=packed, attrs=attrs)
    meant = np.where(packed == 0, np.nan, packed * 0.1 + 5)
    np.testing.assert_allclose(
        drawn(array, ":,:", (2, 2), "mean").values, cells_of(meant, (2, 2), np.nanmean), rtol=1e-6
    )
    stored = Source(array, is_decoded=False)
    pick = picks.read(":,:", (4, 6), 2)
    np.testing.assert_array_equal(levels.image(stored, pick, (4, 6), "mean", Work()).values, packed)


def test_complex_values_and_times_are_drawn_as_numbers(pool: engram.Pool) -> None:
    array = pool.create_array("c", data=np.array([[3 + 4j, 0]]))
    np.testing.assert_array_equal(drawn(array, ":,:", (1, 2), "mean").values, [[5, 0]])
    days = np.array([["1970-01-03", "NaT"]], "M8[ns]")
    found = drawn(pool.create_array("t", data=days), ":,:", (1, 2), "mean").values
    np.testing.assert_array_equal(found, [[2, np.nan]])


def test_beyond_the_bound_values_at_equal_distances_are_looked_at(
    pool: engram.Pool, monkeypatch: pytest.MonkeyPatch
) -> None:
    values = np.arange(400 * 300, dtype="f4").reshape(400, 300)
    flat = pool.create_array("flat", data=values)
    chunked = pool.create_array("chunked", data=values, chunks=(50, 300), codec="lz4")
    monkeypatch.setattr(sources, "READ_MOST", values[::3].nbytes)
    for array in (flat, chunked):
        found = drawn(array, ":,:", (10, 10), "mean")
        assert found.sampled == (3, 1)
        expected = cells_of(values[::3], (10, 10), np.mean)
        np.testing.assert_allclose(found.values, expected, rtol=1e-6)
        line = levels.line(Source(array), picks.read("0,:", (400, 300), 1), 10, Work())
        assert line.sampled == (1, 1)
    monkeypatch.setattr(sources, "READ_MOST", 100)
    with pytest.raises(RefusedError) as refused:
        drawn(flat, ":,:", (400, 299), "mean")
    assert refused.value.status == 413


def test_each_chunk_is_read_once(pool: engram.Pool, monkeypatch: pytest.MonkeyPatch) -> None:
    values = np.arange(96 * 128, dtype="f8").reshape(96, 128)
    array = pool.create_array("a", data=values, chunks=(32, 32), codec="zstd")
    monkeypatch.setattr(levels, "TILE", 32 * 40)
    source, read = Source(array), np.zeros(values.shape, int)
    numbers = source.numbers

    def counted(key: tuple[Any, ...]) -> NDArray[Any]:
        for part, length in zip(key, values.shape, strict=True):
            assert part.start % 32 == 0
            assert part.stop % 32 == 0 or part.stop == length
        read[key] += 1
        return numbers(key)

    monkeypatch.setattr(source, "numbers", counted)
    pick = picks.read(":,:", values.shape, 2)
    levels.image(source, pick, (7, 9), "mean", Work())
    assert (read == 1).all()


def test_work_that_is_dropped_ends_between_tiles(
    pool: engram.Pool, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(levels, "TILE", 16)
    source = Source(pool.create_array("a", data=np.zeros((100, 100))))
    work, tiles = Work(), []

    def dropped(key: tuple[Any, ...]) -> NDArray[Any]:
        tiles.append(key)
        work.is_dropped = True
        return source.raw(key)

    monkeypatch.setattr(source, "numbers", dropped)
    with pytest.raises(RefusedError, match="gone"):
        levels.image(source, picks.read(":,:", (100, 100), 2), (5, 5), "mean", work)
    assert len(tiles) == 1


MEASURED = """
import sys, threading, time, engram
from engram.web import levels, picks
from engram.web.sources import Source
from engram.web.working import Work

def own():
    status = dict(line.split(":", 1) for line in open("/proc/self/status"))
    return int(status["RssAnon"].split()[0]) << 10

def watch():
    while not over:
        seen.append(own())
        time.sleep(0.001)

with engram.open(sys.argv[1], mode="r") as pool:
    source = Source(pool[sys.argv[2]])
    pick = picks.read(":,:", source.shape, 2)
    levels.image(source, pick, (10, 10), "nearest", Work())
    before, seen, over = own(), [], []
    thread = threading.Thread(target=watch)
    thread.start()
    for reduce in levels.REDUCES:
        levels.image(source, pick, (1000, 1000), reduce, Work())
    levels.histogram(source, pick, 100, Work())
    over.append(True)
    thread.join()
    print(max(seen) - before)
"""


@pytest.mark.parametrize("name", ["flat", "chunked"])
def test_memory_is_bounded_whatever_the_size(pool: engram.Pool, name: str) -> None:
    """It is that of the process alone: pages of the pool, which are mapped, are the pool's."""
    side = 5000
    given: dict[str, Any] = {"shape": (side, side), "dtype": "f4"}
    if name == "chunked":
        given |= {"chunks": (500, 500), "codec": "lz4"}
    array = pool.create_array(name, **given)
    for row in range(0, side, 500):
        array[row : row + 500] = np.float32(row)
    words = [sys.executable, "-c", MEASURED, pool.path, name]
    told = subprocess.run(words, capture_output=True, text=True, check=True).stdout
    assert array.nbytes > 64 << 20
    assert int(told) < 64 << 20
