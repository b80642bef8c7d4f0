"""What the web page's server holds and reads at most, whatever a pool has; and what it says."""

from __future__ import annotations

import csv
import io
import json
import math
from typing import TYPE_CHECKING, Any

import numpy as np
import pytest

pytest.importorskip("starlette", reason="engram[web] is not installed")
pytest.importorskip("uvicorn", reason="engram[web] is not installed")

from engram import _engram, results
from engram.web import blocks, levels, objects, picks, sources, tables, wire
from engram.web.sources import Source
from engram.web.working import Work
from web_client import Browser, served

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    import engram

MANY = 10**12


@pytest.fixture
def browser(
    pool: engram.Pool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> Iterator[Browser]:
    with served(monkeypatch, tmp_path, pool.path) as made:
        yield made


def rows_of(browser: Browser, path: str, **words: object) -> list[list[str]]:
    """Download an array as CSV, and read it."""
    answer = browser.get("api/p/0/download", as_="csv", path=path, **words)
    assert answer.status == 200, answer.body
    return list(csv.reader(io.StringIO(answer.body.decode(), newline="")))


# Dimensions of no places


@pytest.mark.parametrize("shape", [(MANY, 0), (0, MANY), (MANY, 1, 0)])
def test_rows_without_cells_are_counted(
    pool: engram.Pool, browser: Browser, shape: tuple[int, ...]
) -> None:
    pool.create_array("none", shape=shape, dtype="f8")
    index = ",".join([":"] * len(shape))
    told = browser.of("table", path="none")
    assert len(told["rows"]) <= 100
    assert browser.of("histogram", path="none")["count"] == 0
    if shape[0]:
        words: dict[str, Any] = {"path": "none", "index": index if len(shape) == 2 else ":,0,:"}
        answer = browser.get("api/p/0/table", **words)
        assert (answer.status, answer.json["error"]) == (413, "TooLarge")
        assert f"{MANY:,}" in answer.json["message"]
        assert browser.get("api/p/0/download", as_="csv", **words).status == 413
    npy = browser.get("api/p/0/download", path="none", as_="npy").body
    assert np.load(io.BytesIO(npy)).shape == shape
    source = Source(pool["none"])
    assert levels.tiled(source, picks.read(index, shape), [range(n) for n in shape]) == [[]]


def test_attributes_without_items_are_told_by_their_shape(
    pool: engram.Pool, browser: Browser
) -> None:
    pool.create_array("a", data=[1.0], attrs={"none": np.zeros((10**9, 0))})
    told = browser.of("object", path="a")["attrs"]["none"]
    assert told == {"array": [], "dtype": "float64", "shape": [10**9, 0]}
    assert json.loads(wire.dumps(np.zeros((2, 0, 3))))["array"] == []


# Values as text, in full


def test_csv_has_values_in_full(pool: engram.Pool, browser: Browser) -> None:
    pool["texts"] = ["x" * 1000, "y"]
    assert rows_of(browser, "texts") == [["x" * 1000], ["y"]]
    assert len(browser.of("table", path="texts")["rows"][0][0]) == 201
    record = np.zeros(1, [("n", "f4"), ("v", "f8", (2000,)), ("s", "S4"), ("r", [("a", "i2")])])
    record["n"], record["v"], record["s"] = 0.1, np.arange(2000), b"\xff\x01"
    pool["record"] = record
    assert rows_of(browser, "record") == [
        ["n", "v", "s", "r"],
        ["0.1", str(np.arange(2000.0).tolist()), "0xff01", "(0)"],
    ]
    (row,) = browser.of("table", path="record")["rows"]
    assert (row[0], row[2], row[3]) == ("0.1", "0xff01", "(0)")


def test_bytes_that_are_no_text_are_told_from_text(pool: engram.Pool, browser: Browser) -> None:
    pool["bytes"] = np.array([b"ff", b"\xff", b"0xff", b""])
    expected = [["ff"], ["0xff"], ["0x30786666"], [""]]
    assert browser.of("table", path="bytes")["rows"] == expected
    assert [row or [""] for row in rows_of(browser, "bytes")] == expected


@pytest.mark.parametrize(
    ("unit", "told"),
    [
        ("D", "2001-01-01T00:00:00"),
        ("s", "2001-01-01T00:00:00"),
        ("ms", "2001-01-01T00:00:00.12"),
        ("ns", "2001-01-01T00:00:00.120000789"),
    ],
)
def test_times_are_told_in_full(pool: engram.Pool, browser: Browser, unit: str, told: str) -> None:
    when = np.datetime64("2001-01-01T00:00:00.120000789")
    pool["times"] = np.array([when, "NaT"], f"M8[{unit}]")
    assert browser.of("table", path="times")["rows"] == [[told], [""]]
    assert [row or [""] for row in rows_of(browser, "times")] == [[told], [""]]
    pool["record"] = np.array([(when,)], [("t", f"M8[{unit}]")])
    assert rows_of(browser, "record") == [["t"], [told]]


def test_no_formula_hides_behind_a_mark_of_order(pool: engram.Pool, browser: Browser) -> None:
    pool["texts"] = ["\ufeff=1+2", "\ufeff-x", "\ufeffplain"]
    expected = [["'\ufeff=1+2"], ["'\ufeff-x"], ["\ufeffplain"]]
    assert rows_of(browser, "texts") == expected


def test_tables_of_large_items_are_bounded(pool: engram.Pool, browser: Browser) -> None:
    pool.create_array("wide", shape=(100,), dtype=[("v", "f8", (100_000,))])
    answer = browser.get("api/p/0/table", path="wide", index=":")
    assert (answer.status, answer.json["error"]) == (413, "TooLarge")
    assert len(browser.of("table", path="wide")["rows"]) < 100
    answer = browser.get("api/p/0/download", path="wide", as_="csv")
    assert "10,000,000 values" in answer.json["message"]


# Comparisons


def stats_of(browser: Browser, one: str, other: str, **words: object) -> dict[str, Any]:
    answer = browser.get("api/p/0/compare", a=one, b=other, index=":", **words)
    assert answer.status == 200, answer.body
    told: dict[str, Any] = json.loads(answer.headers["x-engram-stats"])
    return told


@pytest.mark.parametrize(
    ("one", "other", "apart"),
    [
        (np.array([2**60, 7]), np.array([2**60 + 1, 7]), 1.0),
        (np.array([2**63 - 1, 7]), np.array([2**64 - 1, 7], "u8"), 2.0**63),
        (np.array([2**60, 0], "M8[ns]"), np.array([2**60 + 1, 0], "M8[ns]"), 1 / 86_400e9),
        (np.array([2**60, 0], "m8[ns]"), np.array([2**60 + 1, 0], "m8[ns]"), 1.0),
        (np.array([1, 2], "g"), np.array([1 + np.finfo("g").eps, 2], "g"), np.finfo("g").eps),
    ],
)
def test_values_that_differ_by_the_least_are_not_equal(
    pool: engram.Pool, browser: Browser, one: Any, other: Any, apart: float
) -> None:
    pool["one"], pool["other"] = one, other
    told = stats_of(browser, "one", "other")
    assert (told["equal"], told["count"]) == (1, 2)
    assert told["max_abs"] == pytest.approx(float(apart), rel=1e-3)
    assert stats_of(browser, "one", "one")["equal"] == 2


def test_missing_whole_numbers_and_counted_times_are_compared_exactly(
    pool: engram.Pool, browser: Browser
) -> None:
    fill = {"_FillValue": np.int64(5)}
    pool.create_array("one", data=np.array([5, 2**60]), attrs=fill)
    pool.create_array("other", data=np.array([5, 2**60 + 1]), attrs=fill)
    assert stats_of(browser, "one", "other")["equal"] == 1
    assert stats_of(browser, "one", "other", decoded=0)["equal"] == 1
    units = {"units": "nanoseconds since 1970-01-01"}
    pool.create_array("counted", data=np.array([5, 2**60]), attrs=units)
    pool["times"] = np.array([5, 2**60 + 1], "M8[ns]")
    assert stats_of(browser, "counted", "times")["equal"] == 1


@pytest.mark.parametrize(
    "other", [np.zeros(3), np.zeros(3, "m8[s]"), np.zeros(3, "?"), np.array(["x"] * 3)]
)
def test_times_are_not_compared_with_numbers(
    pool: engram.Pool, browser: Browser, other: Any
) -> None:
    pool["times"], pool["other"] = np.zeros(3, "M8[ns]"), other
    pool.create_array("counted", data=np.zeros(3), attrs={"units": "days since 2000-01-01"})
    for one in ("times", "counted"):
        answer = browser.get("api/p/0/compare", a=one, b="other", index=":")
        assert (answer.status, answer.json["error"]) == (400, "ArgumentError")
    pool["short"] = np.zeros(3, "m8[ns]")
    pool["long"] = np.zeros(3, "m8[s]")
    answer = browser.get("api/p/0/compare", a="short", b="long", index=":")
    assert "durations in 1 ns" in answer.json["message"]
    assert stats_of(browser, "counted", "times")["count"] == 3


# What is read of arrays in chunks

TERA = 1 << 37
"""So many double precision numbers are a tebibyte; chunks that nobody wrote take no room."""


class Loads:
    """The boxes of chunks that were read."""

    def __init__(self) -> None:
        self.count = self.most = self.total = 0

    def add(self, nbytes: int) -> None:
        self.count, self.total = self.count + 1, self.total + nbytes
        self.most = max(self.most, nbytes)


@pytest.fixture
def loads(monkeypatch: pytest.MonkeyPatch) -> Loads:
    found, load = Loads(), _engram.load_box

    def counted(
        namespace: Any, oid: int, dtype: Any, offsets: tuple[int, ...], counts: tuple[int, ...]
    ) -> Any:
        found.add(math.prod(counts) * dtype.itemsize)
        return load(namespace, oid, dtype, offsets, counts)

    monkeypatch.setattr(_engram, "load_box", counted)
    return found


@pytest.fixture
def small(monkeypatch: pytest.MonkeyPatch) -> None:
    """Let a request read a mebibyte of chunks, and 64 KiB at once."""
    monkeypatch.setattr(blocks, "DECODED_MOST", 1 << 20)
    monkeypatch.setattr(sources, "SPAN", 1 << 16)
    monkeypatch.setattr(levels, "TILE", 1 << 13)


@pytest.mark.parametrize("codec", ["lz4", None])
@pytest.mark.parametrize("what", ["image", "nearest", "line", "histogram", "compare"])
@pytest.mark.usefixtures("small")
def test_of_a_tebibyte_blocks_at_equal_distances_are_read(
    pool: engram.Pool, browser: Browser, loads: Loads, what: str, codec: str | None
) -> None:
    chunk = 1 << 12
    shape: tuple[int, ...] = (1 << 17, 1 << 20)
    chunks: tuple[int, ...] = (64, 64)
    if what in {"line", "histogram"}:
        shape, chunks = (TERA,), (chunk,)
    pool.create_array("t", shape=shape, dtype="f8", chunks=chunks, codec=codec)
    index = ",".join([":"] * len(shape))
    words: dict[str, Any] = {"path": "t", "index": index}
    if what == "nearest":
        what, words = "image", words | {"reduce": "nearest"}
    if what == "compare":
        words = {"a": "t", "b": "t"}
    answer = browser.get(f"api/p/0/{what}", **words)
    assert answer.status == 200, answer.body
    twice = 2 if what == "compare" else 1
    assert 0 < loads.total <= twice << 20
    assert loads.most <= 1 << 16
    if what == "histogram":
        assert answer.json["sampled"] is True
    else:
        assert (answer.cells == 0).all()
        assert 0 < answer.cells.size <= 3 * 32


def test_blocks_of_a_large_array_tell_where_they_lie(
    pool: engram.Pool, browser: Browser, small: None
) -> None:
    del small
    side = 1024
    values = np.add.outer(np.arange(side), np.arange(side) / side).astype("f8")
    pool.create_array("a", data=values, chunks=(16, 32), codec="lz4")
    answer = browser.get("api/p/0/image", path="a", index=":,:")
    cells = answer.cells
    rows, columns = cells.shape
    assert rows * columns * 16 * 32 * 8 <= 1 << 20
    expected = (np.arange(rows) + 0.5) * side / rows
    np.testing.assert_allclose(cells.mean(axis=1), expected + 0.5, atol=16)
    assert (np.diff(cells, axis=1) > 0).all()
    flat = browser.of("histogram", path="a")
    assert flat["mean"] == pytest.approx(values.mean(), rel=0.05)
    assert flat["count"] * 8 <= 1 << 20


@pytest.mark.usefixtures("small")
def test_what_lies_between_places_is_read_in_pieces(
    pool: engram.Pool, browser: Browser, loads: Loads
) -> None:
    size, chunk = 1 << 17, 1 << 12
    values = np.arange(size, dtype="f8")
    group = pool.create_group("g")
    group.create_array("x", data=values, chunks=(chunk,), dims=["x"], codec="lz4")
    group.create_array("v", shape=(size,), dtype="i1", dims=["x"])
    for step in (3, chunk - 1, chunk, 2 * chunk):
        rows = browser.of("table", path="g/x", index=f":{20 * step}:{step}")["rows"]
        assert rows == [[str(value)] for value in values[: 20 * step : step]]
        index = f"::{max(step, 16)}"
        told = browser.of("coordinate", path="g/v", dim="x", index=index)["values"]
        assert told == values[:: max(step, 16)].tolist()
    assert loads.most <= 1 << 16
    cube = np.arange(60**3).reshape(60, 60, 60)
    array = pool.create_array("cube", data=cube, chunks=(7, 60, 11), codec="zstd")
    key = (slice(3, None, 5), slice(0, 50, 2), slice(None, None, 3))
    np.testing.assert_array_equal(Source(array).raw(key), cube[key])
    assert loads.most <= 7 * 60 * 11 * 8 * 2


def test_opening_an_object_reads_few_chunks_of_its_coordinates(
    pool: engram.Pool, browser: Browser, loads: Loads, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(objects, "_READ_MOST", 1 << 20)
    size, chunk = 1 << 30, 1 << 14
    pool.create_array("g/x", shape=(size,), dtype="f8", chunks=(chunk,), dims=["x"])
    pool.create_array("g/v", shape=(size,), dtype="i1", chunks=(1 << 20,), dims=["x"])
    told = browser.of("object", path="g/v")["coordinates"]["x"]
    assert (told["first"], told["last"], told["regular"]) == (0, 0, False)
    assert loads.count <= 10
    assert loads.total <= 1 << 20


def test_histograms_of_thin_arrays_take_whole_tiles(
    pool: engram.Pool, browser: Browser, monkeypatch: pytest.MonkeyPatch
) -> None:
    pool["thin"] = np.ones((200_000, 1, 1), "i1")
    read: list[int] = []
    numbers = Source.numbers

    def counted(self: Source, key: tuple[Any, ...]) -> Any:
        found = numbers(self, key)
        read.append(found.size)
        return found

    monkeypatch.setattr(Source, "numbers", counted)
    told = browser.of("histogram", path="thin")
    assert (told["count"], told["mean"], read) == (200_000, 1, [200_000])


def test_large_compressed_chunks_are_refused(
    pool: engram.Pool, browser: Browser, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(sources, "CHUNK_MOST", 1 << 20)
    for codec in ("lz4", None):
        pool.create_array(
            f"large {codec}", shape=(600, 600), dtype="f8", chunks=(600, 600), codec=codec
        )
    for what, words in (
        ("image", {"index": ":,:"}),
        ("table", {"index": "0,0"}),
        ("histogram", {}),
    ):
        answer = browser.get(f"api/p/0/{what}", path="large lz4", **words)
        assert (answer.status, answer.json["error"]) == (413, "TooLarge")
        assert "2,880,000 bytes" in answer.json["message"]
        assert "smaller chunks" in answer.json["remedy"]
        assert browser.get(f"api/p/0/{what}", path="large None", **words).status == 200
    assert browser.get("api/p/0/object", path="large lz4").status == 200


@pytest.mark.filterwarnings("error")
def test_large_numbers_warn_nobody(pool: engram.Pool) -> None:
    values = np.array([[np.finfo("g").max, 1], [2, 3]])
    pick = picks.read(":,:", (2, 2))
    for data in (values, values.astype("G")):
        source = Source(pool.create_array("a", data=data, overwrite=True))
        for is_decoded in (True, False):
            source = Source(source.array, is_decoded=is_decoded)
            levels.histogram(source, pick, 3, Work())
            levels.image(source, pick, (2, 2), "mean", Work())
            levels.image(source, pick, (1, 2), "nearest", Work())
            levels.difference(source, source, pick, (2, 2), Work())
            tables.texts(source, data)


# Values in listings


def test_values_in_a_listing_are_read_a_few_at_a_time_and_cut(
    pool: engram.Pool, browser: Browser, monkeypatch: pytest.MonkeyPatch
) -> None:
    for number in range(40):
        attrs = {"t": f"{number}" + "x" * 50_000, "short": "s", "n": np.arange(100)}
        pool.create_array(f"a{number}", data=[1], attrs=attrs)
    read: list[int] = []
    lists_of = results.lists_of

    def counted(namespace: Any, oids: Any, columns: Any) -> Any:
        assert columns is not None
        read.append(len(oids))
        return lists_of(namespace, oids, columns)

    monkeypatch.setattr(results, "lists_of", counted)
    for text in ("exists(t)", ""):
        answer = browser.get("api/p/0/query", text=text, limit=1000)
        rows = answer.json["rows"]
        assert len(rows) == 40
        assert {len(row["attrs"]["t"]["text"]) for row in rows} == {200}
        assert rows[0]["attrs"]["t"]["cut"] is True
        assert len(answer.body) < 40_000
    assert (sum(read), max(read)) == (80, 16)
    assert rows[0]["attrs"]["short"] == "s"
    assert len(rows[0]["attrs"]["n"]["array"]) == 8
    told = browser.of("complete", text='t = "')
    assert [each for each in told["choices"] if each["kind"] == "value"] == []
    values = [each["text"] for each in browser.of("complete", text='short = "')["choices"]]
    assert '"s"' in values
    assert max(read) == 16


def test_columns_of_a_listing_are_called_as_they_are(pool: engram.Pool, browser: Browser) -> None:
    strange = ("@path", "group.k", "a b", "`", "ä", "not", "k")
    pool.create_array("a", data=[1], attrs=dict.fromkeys(strange, 1))
    told = browser.of("query", text="")
    assert set(told["columns"]) == set(strange)
    assert told["rows"][0]["attrs"] == dict.fromkeys(strange, 1)
