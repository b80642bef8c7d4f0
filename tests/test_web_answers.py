"""What the web page is told of pools: members, objects, values, queries, panels, downloads."""

from __future__ import annotations

import csv
import io
import json
import shutil
import subprocess
import sys
from typing import TYPE_CHECKING, Any

import numpy as np
import pytest

pytest.importorskip("starlette", reason="engram[web] is not installed")
pytest.importorskip("uvicorn", reason="engram[web] is not installed")
pytest.importorskip("msgpack", reason="engram[active] is not installed")

import engram
from active_models import Block
from engram import active
from engram.web import asking, levels, members, panels, tables, wire
from web_client import Browser, served

if TYPE_CHECKING:
    import re
    from collections.abc import Iterator
    from pathlib import Path

HOSTILE = (
    *("<script>alert(1)", "'><img src=x onerror=alert(1)>", "a\nb\r\nc", "\u2028x\u2029"),
    *(
        "\u202egnp.exe",
        "x\x1b[31m",
        "\"'`&",
        "%2e%2e",
        "\ud7ff\U0010ffff",
        "\ufeff",
        " ",
        "a" * 255,
    ),
)


@pytest.fixture
def browser(
    pool: engram.Pool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> Iterator[Browser]:
    with served(monkeypatch, tmp_path, pool.path) as made:
        yield made


def weather(pool: engram.Pool) -> None:
    """Store packed temperatures with coordinates."""
    group = pool.create_group("run", attrs={"title": "a run"})
    group.create_array(
        "lat", data=np.linspace(-90, 90, 7), dims=["lat"], attrs={"units": "degrees_north"}
    )
    group.create_array("lon", data=[0.0, 10.0, 30.0], dims=["lon"], attrs={"units": "degrees_east"})
    group.create_array(
        "time", data=np.arange(4), dims=["time"], attrs={"units": "days since 2003-05-01"}
    )
    packed = np.arange(4 * 7 * 3, dtype="i2").reshape(4, 7, 3)
    attrs = {"scale_factor": 0.5, "add_offset": 200.0, "_FillValue": np.int16(5), "units": "K"}
    group.create_array(
        "T", data=packed, dims=["time", "lat", "lon"], attrs=attrs, chunks=(2, 7, 3), codec="lz4"
    )


def meant() -> np.ndarray[Any, Any]:
    """Give the temperatures that are meant."""
    values = np.arange(4 * 7 * 3, dtype="f8").reshape(4, 7, 3)
    return np.where(values == 5, np.nan, values * 0.5 + 200)


# Values as JSON


def test_what_cannot_become_json_is_one_requests_error(
    browser: Browser, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr(panels, "stages", lambda _: {"seconds": float("nan")})
    answer = browser.get("api/p/0/stages")
    assert (answer.status, answer.json["error"]) == (500, "ValueError")
    assert "/api/p/0/stages failed: ValueError" in caplog.text


@pytest.mark.parametrize(
    ("value", "told"),
    [
        (2**53, 2**53),
        (2**53 + 1, {"int": str(2**53 + 1)}),
        (-(2**63), {"int": str(-(2**63))}),
        (float("nan"), {"float": "nan"}),
        (float("-inf"), {"float": "-inf"}),
        (1.5, 1.5),
        (True, True),
        (np.bool_(0), False),
        (np.float32(0.5), 0.5),
        (np.uint64(2**64 - 1), {"int": str(2**64 - 1)}),
        (b"\x00\xff", {"bytes": "00ff", "size": 2}),
        (1 + 2j, {"complex": [1.0, 2.0]}),
        (np.datetime64("2003-05-01"), "2003-05-01"),
        (np.array([[1, 2]], "i2"), {"array": [[1, 2]], "dtype": "int16", "shape": [1, 2]}),
        (np.array(3), 3),
        ("x", "x"),
        (None, None),
    ],
)
def test_values_become_json(value: Any, told: Any) -> None:
    assert json.loads(wire.dumps({"v": wire.plain(value)})) == {"v": told}


def test_long_values_are_cut_and_say_so() -> None:
    long = wire.plain(np.arange(1000))
    assert (len(long["array"]), long["shape"], long["cut"]) == (64, [1000], True)
    text = wire.plain("x" * 100_000)
    assert (len(text["text"]), text["size"], text["cut"]) == (1 << 14, 100_000, True)
    assert wire.plain(b"x" * 1000)["cut"] is True
    assert len(wire.attributes({str(n): n for n in range(5000)})) == 1000


def test_answers_are_ascii_and_have_nothing_of_html() -> None:
    told = wire.dumps({"<b>&": "</script>\u2028\x00é"})
    assert told.isascii()
    assert not set(b"<>&") & set(told)
    assert json.loads(told) == {"<b>&": "</script>\u2028\x00é"}


# Members and objects


def test_hostile_names_come_as_they_are(pool: engram.Pool, browser: Browser) -> None:
    for name in HOSTILE:
        pool.create_array(name, data=[1.0], attrs={name: name})
    told = browser.of("members")
    assert {each["name"] for each in told["members"]} == set(HOSTILE)
    for name in HOSTILE:
        about = browser.of("object", path=name)
        assert (about["path"], about["attrs"]) == (name, {name: name})
        assert browser.of("table", path=name)["rows"] == [["1.0"]]
        download = browser.get("api/p/0/download", path=name, as_="csv")
        assert download.status == 200
        assert "\n" not in download.headers["content-disposition"]


def test_members_of_each_kind_are_told(pool: engram.Pool, browser: Browser) -> None:
    weather(pool)
    pool["bytes"] = b"some"
    pool.symlink("bytes", "link")
    pool["texts"] = ["a", "bc"]
    pool.create_table("table", {"a": [1, 2], "b": ["x", "y"]})
    told = {each["name"]: each for each in browser.of("members")["members"]}
    assert {name: each["kind"] for name, each in told.items()} == {
        "bytes": "blob",
        "link": "link",
        "run": "group",
        "table": "table",
        "texts": "array",
    }
    assert told["run"]["members"] == 4
    assert told["bytes"]["bytes"] == 4
    inner = {each["name"]: each for each in browser.of("members", path="run")["members"]}
    assert inner["T"] == {
        "name": "T",
        "path": "run/T",
        "kind": "array",
        "dtype": "int16",
        "shape": [4, 7, 3],
        "bytes": 168,
    }


def test_a_large_group_comes_in_pages(pool: engram.Pool, browser: Browser) -> None:
    names = [f"m{number:05}" for number in range(2500)]
    with pool.batch():
        group = pool.create_group("many")
        for name in names:
            group.create_group(name)
    found: list[str] = []
    after: str | None = ""
    pages = 0
    while after is not None:
        told = browser.of("members", path="many", limit=999, after=after)
        found += [each["name"] for each in told["members"]]
        after, pages = told["after"], pages + 1
    assert (found, pages) == (names, 3)
    assert browser.of("members")["members"][0]["many"] is True
    few = browser.of("members", path="many", contains="M0249")
    assert [each["name"] for each in few["members"]] == names[2490:]
    assert few["after"] is None
    two = browser.of("members", path="many", contains="7", limit=2)
    rest = browser.of("members", path="many", contains="7", limit=1000, after=two["after"])
    both = [each["name"] for each in (*two["members"], *rest["members"])]
    assert both == [name for name in names if "7" in name]


def test_pages_are_bounded(pool: engram.Pool, browser: Browser) -> None:
    pool["a"] = [1]
    for limit in (0, members.MOST + 1, "x", -1):
        assert browser.get("api/p/0/members", limit=limit).status == 400
    assert browser.get("api/p/0/members", path="a").status == 400
    assert browser.get("api/p/0/members", path="none").status == 404
    assert browser.get("api/p/1/members").status == 404


def test_an_object_is_told_with_its_coordinates_and_decoding(
    pool: engram.Pool, browser: Browser
) -> None:
    weather(pool)
    told = browser.of("object", path="run/T")
    assert (told["kind"], told["dtype"], told["shape"]) == ("array", "int16", [4, 7, 3])
    assert told["dims"] == ["time", "lat", "lon"]
    assert (told["chunks"], told["codec"], told["bytes"]) == ([2, 7, 3], "lz4", 168)
    assert told["decoding"] == {
        "kind": "scale",
        "scale_factor": 0.5,
        "add_offset": 200.0,
        "fill": 5,
        "units": "K",
    }
    assert told["views"] == ["table", "line", "image", "map", "histogram"]
    time = told["coordinates"]["time"]
    assert (time["first"], time["last"], time["regular"]) == ("2003-05-01", "2003-05-04", True)
    assert told["coordinates"]["lat"]["regular"] is True
    assert told["coordinates"]["lon"]["regular"] is False
    assert told["coordinates"]["lon"]["last"] == 30.0
    assert told["owner"] == pool["run"].owner
    assert told["attrs"]["units"] == "K"
    assert browser.of("object", path="run/time")["decoding"]["kind"] == "time"
    group = browser.of("object", path="run")
    assert (group["kind"], group["attrs"]) == ("group", {"title": "a run"})
    assert browser.of("object", path="")["kind"] == "group"


def test_flags_and_records_are_told(pool: engram.Pool, browser: Browser) -> None:
    attrs = {"flag_values": np.array([0, 1], "i1"), "flag_meanings": "dry wet"}
    pool.create_array("flags", data=np.zeros(3, "i1"), attrs=attrs)
    told = browser.of("object", path="flags")["decoding"]
    assert (told["kind"], told["meanings"], told["values"]["array"]) == ("flags", "dry wet", [0, 1])
    pool["record"] = np.zeros(2, [("x", "f8"), ("n", "i4")])
    told = browser.of("object", path="record")
    assert [each["name"] for each in told["fields"]] == ["x", "n"]
    assert told["views"] == ["table"]


# Values


def test_tables_show_values_as_they_are_meant(pool: engram.Pool, browser: Browser) -> None:
    weather(pool)
    told = browser.of("table", path="run/T", index="0,1:3,:")
    assert (told["shape"], told["index"]) == ([4, 7, 3], "0,1:3,0:3")
    assert told["rows"] == [["201.5", "202.0", ""], ["203.0", "203.5", "204.0"]]
    stored = browser.of("table", path="run/T", index="0,1,:", decoded=0)
    assert stored["rows"] == [["3"], ["4"], ["5"]]
    times = browser.of("table", path="run/time")
    assert times["rows"][1] == ["2003-05-02T00:00:00"]
    pool["record"] = np.array([(1.5, 2)], [("x", "f8"), ("n", "i4")])
    told = browser.of("table", path="record")
    assert (told["columns"], told["rows"]) == (["x", "n"], [["1.5", "2"]])
    pool["texts"] = ["a", "<b>"]
    assert browser.of("table", path="texts")["rows"] == [["a"], ["<b>"]]
    pool["names"] = np.array([b"north", b"\xc3\xa9", b"\xff\x00\x01", b"a\nb"])
    rows = browser.of("table", path="names")["rows"]
    assert rows == [["north"], ["\u00e9"], ["0xff0001"], ["0x610a62"]]
    pool["one"] = np.float32(0.1)
    assert browser.of("table", path="one")["rows"] == [["0.1"]]
    pool.create_table("table", {"a": [1, None], "b": ["x", "y"]})
    told = browser.of("table", path="table", index="0:2")
    assert (told["columns"], told["rows"]) == (["a", "b"], [["1", "x"], ["", "y"]])


def test_tables_are_bounded(pool: engram.Pool, browser: Browser) -> None:
    pool["wide"] = np.zeros((200, 200))
    answer = browser.get("api/p/0/table", path="wide", index=":,:")
    assert (answer.status, answer.json["error"]) == (413, "TooLarge")
    assert answer.json["remedy"]
    told = browser.of("table", path="wide")
    assert len(told["rows"]) * len(told["rows"][0]) <= tables.CELLS_MOST
    pool["deep"] = np.zeros((2, 2, 2))
    assert browser.get("api/p/0/table", path="deep", index=":,:,:").status == 400


@pytest.mark.parametrize(
    "index", [":", "0,0,0,0", "x,:,:", "9,:,:", ":,:,:", "1:2:0,:,:", "0,,:", "0;1;:", "0,:," * 400]
)
def test_an_index_that_is_none_is_refused(pool: engram.Pool, browser: Browser, index: str) -> None:
    weather(pool)
    answer = browser.get("api/p/0/image", path="run/T", index=index)
    assert (answer.status, answer.json["error"]) == (400, "ArgumentError")


def test_images_and_lines_come_as_cells(pool: engram.Pool, browser: Browser) -> None:
    weather(pool)
    answer = browser.get("api/p/0/image", path="run/T", index="0,:,:", width=9, height=9)
    np.testing.assert_allclose(answer.cells, meant()[0])
    assert answer.headers["x-engram-box"] == "0,7,0,3"
    low, high = map(float, answer.headers["x-engram-range"].split(","))
    assert (low, high) == (200.0, 210.0)
    small = browser.get("api/p/0/image", path="run/T", index="-1,2:6,:", width=1, height=2)
    expected = meant()[3, 2:6].reshape(2, 6).mean(axis=1)
    np.testing.assert_allclose(small.cells[:, 0], expected)
    assert small.headers["x-engram-box"] == "2,6,0,3"
    line = browser.get("api/p/0/line", path="run/T", index=":,0,0", bins=2)
    along = np.array([[200, 221], [205.25, 226.25], [210.5, 231.5]])
    np.testing.assert_allclose(line.cells, along)
    assert line.headers["x-engram-step"] == "2"
    stored = browser.get("api/p/0/line", path="run/T", index="0,1,:", bins=9, decoded=0)
    np.testing.assert_array_equal(stored.cells[1], [3, 4, 5])
    times = browser.get("api/p/0/line", path="run/time", index=":")
    assert times.headers["x-engram-units"] == "days since 1970-01-01"
    assert times.cells[1][0] == 12173
    empty = pool.create_array("empty", shape=(0, 3))
    assert browser.get("api/p/0/image", path=empty.path, index=":,:").cells.shape == (0, 3)


@pytest.mark.parametrize(
    ("what", "words"),
    [
        ("image", {"width": levels.SIDE_MOST + 1}),
        ("image", {"height": 0}),
        ("image", {"reduce": "median"}),
        ("line", {"bins": levels.BINS_MOST + 1}),
        ("histogram", {"bins": levels.EDGES_MOST + 1}),
        ("image", {"decoded": "maybe"}),
    ],
)
def test_sizes_are_bounded(
    pool: engram.Pool, browser: Browser, what: str, words: dict[str, Any]
) -> None:
    pool["a"] = np.zeros((4, 4))
    index = ":,:" if what == "image" else "0,:"
    assert browser.get(f"api/p/0/{what}", path="a", index=index, **words).status == 400


def test_what_is_no_number_is_not_drawn(pool: engram.Pool, browser: Browser) -> None:
    pool["texts"] = ["a", "b"]
    for what in ("line", "histogram"):
        answer = browser.get(f"api/p/0/{what}", path="texts")
        assert answer.status == 400
        assert "table" in answer.json["message"]
    pool["bytes"] = b"x"
    assert browser.get("api/p/0/line", path="bytes").status == 400


def test_histograms_count_what_is_known(pool: engram.Pool, browser: Browser) -> None:
    weather(pool)
    told = browser.of("histogram", path="run/T", bins=4)
    known = meant()[np.isfinite(meant())]
    counts, edges = np.histogram(known, 4)
    assert (told["counts"], told["nan"], told["count"]) == (counts.tolist(), 1, 84)
    np.testing.assert_allclose(told["edges"], edges)
    np.testing.assert_allclose(told["mean"], known.mean())
    np.testing.assert_allclose(told["std"], known.std())
    assert (told["min"], told["max"], told["sampled"]) == (known.min(), known.max(), False)
    pool["none"] = np.full(3, np.nan)
    told = browser.of("histogram", path="none")
    assert (told["counts"], told["nan"], told["mean"]) == ([], 3, None)
    pool["same"] = np.full(3, 7.0)
    assert sum(browser.of("histogram", path="same")["counts"]) == 3
    pool["far"] = np.array([-1.7e308, 1.7e308])
    assert sum(browser.of("histogram", path="far")["counts"]) == 2


def test_places_of_a_dimension_are_told(pool: engram.Pool, browser: Browser) -> None:
    weather(pool)
    told = browser.of("coordinate", path="run/T", dim="lat", index="::3")
    assert told == {"values": [-90.0, 0.0, 90.0], "units": "degrees_north"}
    told = browser.of("coordinate", path="run/T", dim="time", index="1:3")
    assert told["values"] == ["2003-05-02", "2003-05-03"]
    pool.create_array("bare", data=np.zeros(3), dims=["n"])
    told = browser.of("coordinate", path="bare", dim="n")
    assert (told["values"], told["index"]) == ([0, 1, 2], True)
    assert browser.get("api/p/0/coordinate", path="run/T", dim="depth").status == 400
    pool.create_array("long", data=np.zeros(9000), dims=["n"])
    answer = browser.get("api/p/0/coordinate", path="long", dim="n")
    assert answer.status == 400
    assert "::2" in answer.json["message"]


def test_arrays_are_compared_across_pools(
    pool: engram.Pool, home: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    one = np.arange(12.0).reshape(3, 4)
    two = one.copy()
    two[1, 2] += 8
    two[0, 0] = np.nan
    pool["a"] = one
    with engram.create(home / "other", size="16 MiB", force=True) as other:
        other["b"] = two
        with served(monkeypatch, tmp_path, pool.path, other.path) as browser:
            words = {"a": "a", "b": "b", "with_": 1, "index": ":,:"}
            answer = browser.get("api/p/0/compare", **words)
            np.testing.assert_array_equal(answer.cells, (two - one).astype("f4"))
            stats = json.loads(answer.headers["x-engram-stats"])
            assert (stats["equal"], stats["count"], stats["max_abs"]) == (10, 12, 8.0)
            np.testing.assert_allclose(stats["rms"], np.sqrt(64 / 11))
            line = browser.get("api/p/0/compare", **(words | {"index": "1,:"}))
            np.testing.assert_array_equal(line.cells, [[0, 0, 8, 0]])
            same = browser.get("api/p/0/compare", a="a", b="a", index=":,:", width=2, height=1)
            np.testing.assert_array_equal(same.cells, [[0, 0]])
            pool["c"] = np.zeros(3)
            assert browser.get("api/p/0/compare", a="a", b="c", index=":,:").status == 400


# Queries


def test_queries_find_and_say_where_they_are_wrong(pool: engram.Pool, browser: Browser) -> None:
    for number in range(5):
        attrs = {"step": number, "name": f"n<{number}>"}
        pool.create_array(f"g/a{number}", data=np.zeros(number), attrs=attrs)
    pool["g"].attrs["orbit"] = 4
    told = browser.of("query", text="step >= 1", order="step desc", limit=2, offset=1)
    assert told["columns"] == ["step"]
    assert [row["path"] for row in told["rows"]] == ["g/a3", "g/a2"]
    assert told["rows"][0]["attrs"] == {"step": 3}
    assert told["rows"][0]["shape"] == [3]
    assert told["more"] is True
    assert browser.of("query", text="step >= 1", limit=4)["more"] is False
    told = browser.of("query", text="group.orbit = 4 and @ndim = 1", limit=1)
    assert told["columns"] == ["group.orbit", "@ndim"]
    assert told["rows"][0]["attrs"] == {"group.orbit": 4, "@ndim": 1}
    everything = browser.of("query", text="")
    assert everything["columns"] == ["name", "step"]
    wrong = browser.get("api/p/0/query", text="step = 1 and\n step << 3")
    assert (wrong.status, wrong.json["error"]) == (400, "QueryError")
    assert wrong.json["at"] == [19, 21]
    assert browser.get("api/p/0/query", text="step = 1", limit=0).status == 400
    assert browser.get("api/p/0/query", text="step = 1", offset=-1).status == 400
    explained = browser.of("explain", text="step >= 1")
    assert explained["tree"]["rows"] == 4
    assert "4 objects" in explained["text"]
    assert browser.get("api/p/0/explain", text="step >").json["at"] is not None


@pytest.mark.parametrize("order", ["(", "k desc desc", "@nope", "k,,"])
def test_an_error_of_the_order_has_no_place_in_the_query(browser: Browser, order: str) -> None:
    wrong = browser.get("api/p/0/query", text="step = 1", order=order)
    assert (wrong.status, wrong.json["error"]) == (400, "QueryError")
    assert "at" not in wrong.json
    assert f"the order {order!r} is none: " in wrong.json["message"]
    both = browser.get("api/p/0/query", text="step =", order=order)
    assert both.json["at"] == [6, 7]


def test_words_of_a_query_are_completed(pool: engram.Pool, browser: Browser) -> None:
    for number in range(3):
        attrs = {"station": f"S{number}", "odd key": number}
        pool.create_array(f"a{number}", data=[number], attrs=attrs)

    def words(text: str, at: int | None = None) -> list[str]:
        told = browser.of("complete", text=text, at=len(text) if at is None else at)
        made = [
            text[: told["from"]] + each["text"] + text[told["to"] :] for each in told["choices"]
        ]
        return list(made)

    assert words("sta") == ["station"]
    assert "`odd key`" in words("`o")
    assert words("@dt") == ["@dtype"]
    assert words("exi") == ["exists("]
    assert 'station = "S1"' in words("station = ")
    both = ['station = "S1" and station', 'station = "S1" and startswith']
    assert words('station = "S1" and sta') == both
    assert words("stx and x", 2) == ["station and x"]
    assert words("sta", 99) == ["station"]
    assert "station like" in words("station li")
    assert words("zzz") == []


@pytest.mark.parametrize("word", ["not", "5", "k.k", "exists", "and", "under", "``"])
def test_what_is_no_attribute_has_no_values(pool: engram.Pool, browser: Browser, word: str) -> None:
    pool.create_array("a", data=[1], attrs={"k": "x"})
    told = browser.of("complete", text=f"{word} = ")
    assert "value" not in {each["kind"] for each in told["choices"]}


def test_a_long_query_is_completed_by_its_end(
    pool: engram.Pool, browser: Browser, monkeypatch: pytest.MonkeyPatch
) -> None:
    pool.create_array("a", data=[1], attrs={"station": "S0"})
    texts: list[str] = []

    class Searched:
        """A pattern that notes the texts it is given."""

        def __init__(self, pattern: re.Pattern[str]) -> None:
            self._pattern = pattern

        def search(self, text: str) -> re.Match[str] | None:
            texts.append(text)
            return self._pattern.search(text)

        def match(self, text: str) -> re.Match[str] | None:
            texts.append(text)
            return self._pattern.match(text)

    for name in ("_WORD", "_REST", "_COMPARED"):
        monkeypatch.setattr(asking, name, Searched(getattr(asking, name)))
    text = "step = 1 and " * 1000
    told = browser.of("complete", text=f"{text}station = ")
    assert (told["from"], told["to"]) == (len(text) + 10,) * 2
    assert told["choices"][0]["text"] == '"S0"'
    assert "operator" in {each["kind"] for each in told["choices"]}
    told = browser.of("complete", text="a" * 8000 + '" ' + "a" * 8000, at=8002)
    assert told["from"] == 8002
    assert len(texts) == 6
    assert max(map(len, texts)) <= 512


# Panels


def test_the_index_is_told(home: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    settings: Any = {"segment_rows": 16, "tail_rows": 8}
    with engram.create(home / "small", size="32 MiB", force=True, **settings) as pool:
        for number in range(64):
            pool.create_array(f"a{number}", data=[1], attrs={"step": number})
        stats = pool.index_stats()
        assert stats.sealed
        with served(monkeypatch, tmp_path, pool.path) as browser:
            told = browser.of("index")
    frequencies = [each["frequencies"].get("step", 0) for each in told["groups"]]
    (step,) = [each["objects"] for each in told["keys"] if each["key"] == "step"]
    assert step == sum(frequencies) > 0
    assert (told["figures"]["sealed"], told["tail"]) == (stats.sealed, stats.tail)
    assert told["bytes"] == stats.nbytes
    assert len(told["groups"]) == len(stats.groups)


def test_space_and_its_holders_are_told(pool: engram.Pool, browser: Browser) -> None:
    pool["a"] = np.zeros(1 << 17)
    view = pool["a"].view()
    told = browser.of("space")
    assert told["size"] == pool.size
    assert told["used"] >= view.nbytes
    mine = [each for each in told["holders"] if each["views"]]
    assert mine
    assert all(each["alive"] for each in told["holders"])
    assert [each["namespace"] for each in told["quotas"]] == ["default"]
    assert told["devices"][0]["path"] == pool.path


def test_active_objects_and_their_references_are_told(pool: engram.Pool, browser: Browser) -> None:
    assert browser.of("active") == {"classes": [], "objects": [], "cut": False}
    with active.use(pool):
        first = Block(data=np.arange(3.0), label="first", next=Block(data=np.zeros(2)))
        first.make_persistent("one")
    told = browser.of("active")
    (kind,) = told["classes"]
    assert kind["name"].endswith("Block")
    assert kind["fields"]["label"] == "str"
    assert "class Block" in kind["source"]
    named = next(each for each in told["objects"] if each["aliases"] == ["one"])
    (other,) = [each for each in told["objects"] if each is not named]
    assert named["refs"] == [other["path"]]
    assert other["refs"] == []
    assert browser.of("object", path=named["path"])["kind"] == "active"


def test_files_and_stages_are_told(pool: engram.Pool, browser: Browser, tmp_path: Path) -> None:
    pool["first"] = b"1"
    with pool.open_file("second", "wb") as file:
        file.write(b"22")
    told = browser.of("files")
    assert [each["path"] for each in told["files"]] == ["second", "first"]
    assert told["files"][0]["bytes"] == 2
    source = tmp_path / "source"
    source.mkdir()
    (source / "x").write_bytes(b"123")
    engram.stage.bring_in(pool, {str(source): "staged"}, name="s")
    (stage,) = browser.of("stages")["stages"]
    assert (stage["name"], stage["state"], stage["progress"]["files"]) == ("s", "whole", 1)
    assert stage["paths"] == [[str(source), "staged"]]


def test_a_pool_has_no_nodes(browser: Browser) -> None:
    assert browser.get("api/p/0/nodes").status == 400


# Downloads


def test_parts_of_arrays_are_downloaded(
    pool: engram.Pool, browser: Browser, tmp_path: Path
) -> None:
    netcdf = pytest.importorskip("netCDF4", reason="netCDF4 is not installed")
    weather(pool)
    words = {"path": "run/T", "index": "1:3,:,1"}
    npy = browser.get("api/p/0/download", as_="npy", **words)
    raw = np.load(io.BytesIO(npy.body))
    np.testing.assert_array_equal(raw, pool["run/T"][1:3, :, 1])
    assert 'filename="T.npy"' in npy.headers["content-disposition"]
    text = browser.get("api/p/0/download", as_="csv", **words).body.decode()
    rows = [[float(cell) for cell in row] for row in csv.reader(io.StringIO(text))]
    np.testing.assert_allclose(rows, meant()[1:3, :, 1])
    (tmp_path / "T.nc").write_bytes(browser.get("api/p/0/download", as_="netcdf", **words).body)
    with netcdf.Dataset(tmp_path / "T.nc") as file:
        found = file["run/T"][:] if "run" in file.groups else file["T"][:]
        np.testing.assert_allclose(found.filled(np.nan)[..., 0], meant()[1:3, :, 1])
    png = browser.get("api/p/0/download", path="run/T", index="0,:,:", as_="png")
    assert png.body.startswith(b"\x89PNG")
    cube = browser.get("api/p/0/download", path="run/T", as_="csv").body.decode().splitlines()
    assert cube[:2] == ["time,lat,lon,value", "0,0,0,200.0"]
    assert len(cube) == 1 + 84
    for wrong in ({"as_": "exe"}, {"as_": "png"}):
        assert browser.get("api/p/0/download", path="run/T", **wrong).status == 400


def test_downloads_are_bounded(pool: engram.Pool, browser: Browser) -> None:
    pool.create_array("large", shape=(1100, 1000), dtype="i1")
    answer = browser.get("api/p/0/download", path="large", as_="csv")
    assert answer.status == 413
    assert "narrow" in answer.json["remedy"]
    assert browser.get("api/p/0/download", path="large", as_="npy").status == 200
    pool.create_array("huge", shape=(300, 1 << 20), dtype="i1", chunks=(1, 1 << 20), codec="lz4")
    for form in ("npy", "netcdf", "csv"):
        assert browser.get("api/p/0/download", path="huge", as_=form).status == 413


def test_no_cell_of_a_table_is_a_formula(pool: engram.Pool, browser: Browser) -> None:
    pool["texts"] = ["=1+2", "@SUM", "-1", "+x", "plain", "-cmd"]
    text = browser.get("api/p/0/download", path="texts", as_="csv").body.decode()
    assert text.splitlines() == ["'=1+2", "'@SUM", "-1", "'+x", "plain", "'-cmd"]


# Changes


def test_the_page_changes_what_it_may(
    pool: engram.Pool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    weather(pool)
    with served(monkeypatch, tmp_path, pool.path, write=True) as browser:
        assert browser.get("api/pools").json["write"] is True
        told = {"set": {"n": 3, "t": "x", "big": {"int": str(2**60)}}, "remove": ["title"]}
        assert browser.post("attr", told, path="run").status == 200
        assert dict(pool["run"].attrs) == {"n": 3, "t": "x", "big": 2**60}
        before = dict(pool["run"].attrs)
        wrong = browser.post("attr", {"set": {"m": 1}, "remove": ["none"]}, path="run")
        assert wrong.status == 404
        assert dict(pool["run"].attrs) == before
        for bad in ({"set": [1]}, {"set": {"x": None}}, {"set": {"x": {"y": 1}}}):
            assert browser.post("attr", bad, path="run").status == 400
        assert browser.post("rename", path="run/T", to="run/U").status == 200
        assert "U" in pool["run"]
        assert browser.post("rename", path="run/U", to="run/lat").json["error"] == "ExistsError"
        assert browser.post("delete", path="").status == 400
        assert browser.post("delete", path="run").status == 200
        assert list(pool) == []


# A pool that goes away, or fills


def test_a_pool_that_was_removed_is_gone_and_the_others_go_on(
    pool: engram.Pool, home: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    pool["a"] = [1]
    place = home / "other"
    with engram.create(place, size="16 MiB", force=True) as other:
        other["b"] = [2]
    with served(monkeypatch, tmp_path, pool.path, place) as browser:
        assert browser.of("members", 1)["total"] == 1
        with pytest.raises(engram.BusyError, match="open in process"):
            engram.destroy(place)
        shutil.rmtree(place)
        for what in ("members", "object", "space", "query", "table"):
            answer = browser.get(f"api/p/1/{what}", path="b")
            assert (answer.status, answer.json["error"]) == (410, "PoolGoneError")
        first, second = browser.get("api/pools").json["pools"]
        assert "error" not in first
        assert "removed" in second["error"]
        with engram.create(place, size="16 MiB", force=True):
            assert browser.get("api/p/1/members").status == 410  # another one, in its place
        assert browser.of("table", path="a")["rows"] == [["1"]]


def test_a_pool_that_fills_is_read_on(
    pool: engram.Pool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with served(monkeypatch, tmp_path, pool.path) as browser:
        number = 0
        with pytest.raises(engram.PoolFullError):
            while True:
                pool[f"a{number}"] = np.ones(1 << 20)
                number += 1
        assert browser.of("members")["total"] == number
        cells = browser.get("api/p/0/line", path="a0", bins=4).cells
        np.testing.assert_array_equal(cells, np.ones((3, 4)))


def test_another_namespace_is_served(
    pool: engram.Pool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    pool.create_namespace("lab")["x"] = [1]
    with served(monkeypatch, tmp_path, pool.path, namespace="lab") as browser:
        assert [each["name"] for each in browser.of("members")["members"]] == ["x"]
        assert browser.get("api/pools").json["pools"][0]["namespace"] == "lab"


def test_what_another_process_stores_is_told_at_once(pool: engram.Pool, browser: Browser) -> None:
    program = "import sys, engram; engram.open(sys.argv[1])['new'] = [1, 2, 3]"
    subprocess.run([sys.executable, "-c", program, pool.path], check=True)
    assert browser.of("object", path="new")["shape"] == [3]
