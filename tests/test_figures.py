"""Figures of many objects, parameters, and columns without records, as Python has them."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np
import pytest

import engram
from engram import attr, count, param

if TYPE_CHECKING:
    from pathlib import Path


pytestmark = pytest.mark.filterwarnings("ignore:no indexed object has:engram.EngramWarning")


@pytest.fixture
def filled(pool: engram.Pool) -> engram.Pool:
    """Give a pool with sixty objects in three groups, some of whose attributes are missing."""
    for orbit in (1, 2, 3):
        group = pool.create_group(f"orbit-{orbit}", attrs={"orbit": orbit})
        with pool.batch():
            for n in range(20):
                attrs: dict[str, Any] = {"t": n - 2.5 * orbit, "level": n % 4}
                attrs |= {"word": f"w{n % 3}"} if n % 2 else {"flag": n % 4 == 0}
                group.create_blob(f"b{n:02}", b"x" * n, attrs=attrs)
    return pool


def _sealed(pool: engram.Pool) -> None:
    pool.set_index(tail_rows=2, segment_rows=16)
    pool.reindex()
    pool.drain_index()


@pytest.mark.parametrize("sealed", [False, True])
def test_figures_are_of_groups_of_objects(filled: engram.Pool, sealed: bool) -> None:
    if sealed:
        _sealed(filled)
    figures = filled.aggregate("count(), sum(level), mean(t), min(word) group by group.orbit")
    assert figures.columns == ("group.orbit", "count()", "sum(level)", "mean(t)", "min(word)")
    assert list(figures) == [(n, 20, 30, 9.5 - 2.5 * n, "w0") for n in (1, 2, 3)]
    assert filled["orbit-2"].aggregate("max(t)").item() == 14.0
    by_flag = filled.aggregate("count() where level < 2 group by flag, level")
    assert list(by_flag) == [(1, 0, 15), (None, 1, 15)]
    assert list(filled.aggregate("count(x), distinct(x), max(x), mean(x)")) == [(0, 0, None, None)]
    assert list(filled.aggregate("count() where level > 9 group by level")) == []
    times = filled.aggregate("min(@created), max(@created)")[0]
    assert isinstance(times[0], np.datetime64)
    assert times[0] <= times[1]
    rows = filled.aggregate("count() group by level order by count() desc, level desc limit 2")
    assert list(rows) == [(3, 15), (2, 15)]
    asked = filled.aggregate(
        [count(), attr("t").mean()],
        attr("level").isin([1, 2]),
        group_by=[attr("level")],
        order_by="level desc",
        limit=1,
        offset=1,
    )
    assert asked.query == (
        "count(), mean(t) where level in (1, 2) group by level order by level desc limit 1 offset 1"
    )
    assert list(asked) == [(1, 15, 4.0)]
    assert asked.to_dict() == {"level": [1], "count()": [15], "mean(t)": [4.0]}
    assert "1 row" in repr(asked)
    assert str(asked).splitlines()[0].split() == ["level", "count()", "mean(t)"]
    assert asked[:1] == asked


def test_figures_are_tables(filled: engram.Pool) -> None:
    figures = filled.aggregate("sum(t) group by level")
    frame = figures.to_pandas()
    assert list(frame.columns) == ["level", "sum(t)"]
    assert figures.to_arrow().column_names == ["level", "sum(t)"]


def test_times_near_and_distant_are_a_column_of_one_unit(pool: engram.Pool) -> None:
    distant = np.datetime64(-500_000_000, "Y").astype("M8[s]")
    for n, time in enumerate([np.datetime64("2020-01-01T04:30:05"), distant]):
        pool.create_blob(f"b{n}", b"", attrs={"n": n, "at": time})
    pool.create_blob("none", b"", attrs={"n": 2})
    figures = pool.aggregate("max(at) group by n")
    table = figures.to_arrow()
    assert str(table.column("max(at)").type) == "timestamp[s]"
    seconds = table.column("max(at)").cast("int64").to_pylist()
    assert seconds == [1_577_853_005, int(distant.astype(int)), None]
    pool["b0"].attrs["at"] = np.datetime64("2020-01-01T04:30:05.5", "ns")
    with pytest.raises(engram.UnsupportedError, match=r"the column max\(at\).*05\.5"):
        pool.aggregate("max(at) group by n").to_arrow()


def test_sums_do_not_depend_on_the_index(filled: engram.Pool) -> None:
    with filled.batch():
        for n, value in enumerate([1e100, 0.1, -1e100, 0.2, 0.3] * 7):
            filled.create_blob(f"odd-{n}", b"", attrs={"odd": value})
    before = filled.aggregate("sum(odd)").item()
    _sealed(filled)
    assert filled.aggregate("sum(odd)").item() == before
    assert filled.aggregate("sum(odd)", threads=3).item() == before
    assert before == pytest.approx(4.2, rel=1e-15)


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("mean(word)", "column 1: mean(word) takes numbers, and some objects have text there"),
        ("count(), sum(@created)", "column 10: sum(@created) takes numbers"),
        ("avg(t)", "there is no function avg: did you mean mean?"),
        ("mean", "as a figure mean needs parentheses, as in mean(temperature), and as an"),
        ("count group by t", "as a figure count needs parentheses, as in count(), and as an"),
        ("count() group by t offset 2", "an offset counts in an order"),
        ("level = 1", "finds objects, and gives no figures"),
        ("count() where t < :low", "no parameter low was given (none was)"),
    ],
)
def test_what_no_figure_can_be_of_is_refused(filled: engram.Pool, text: str, said: str) -> None:
    with pytest.raises(engram.QueryError) as caught:
        filled.aggregate(text)
    assert said in str(caught.value)


def test_unlike_types_are_refused_in_one_figure_and_groups_of_their_own(pool: engram.Pool) -> None:
    for n, value in enumerate([1, 1.0, "a", np.datetime64("2020-01-01"), True]):
        pool.create_blob(f"b{n}", b"", attrs={"x": value})
    with pytest.raises(engram.QueryError, match=r"min\(x\) takes values of one type"):
        pool.aggregate("min(x)")
    assert pool.aggregate("min(x) where x < 5").item() == 1
    assert pool.aggregate("distinct(x)").item() == 3
    groups: dict[Any, int] = dict(pool.aggregate("count() group by x"))
    assert groups == {1: 3, "a": 1, np.datetime64("2020-01-01", "ns"): 1}
    pool.create_blob("array", b"", attrs={"x": np.arange(3)})
    with pytest.raises(engram.QueryError, match="they form no groups"):
        pool.aggregate("count() group by x")
    assert pool.aggregate("count(x)").item() == 6


def test_figures_and_objects_are_asked_for_apart(filled: engram.Pool) -> None:
    with pytest.raises(engram.QueryError, match=r"ask it by aggregate\(\)"):
        filled.query("count()")
    with pytest.raises(engram.QueryError, match="what is watched are objects"):
        filled.watch("count()")
    with pytest.raises(engram.ArgumentError, match="no single figure"):
        filled.aggregate("count() group by level").item()
    with pytest.raises(engram.ArgumentError, match="figures 5 is none"):
        filled.aggregate(5)  # type: ignore[arg-type]


def test_parameters_are_given_beside_a_query(filled: engram.Pool) -> None:
    low: Any = np.float64(-4)
    found = filled.query(
        "t < :low and @name in :names", params={"low": low, "names": ["b00", "b01"]}
    )
    assert found.query == 't < -4.0 and @name in ("b00", "b01")'
    expected = filled.query("t < -4 and @name in ('b00', 'b01')").paths()
    assert found.paths() == expected
    expression = (attr("t") < param("low")) & attr("word").like(param("pattern"))
    assert str(expression) == "t < :low and word like :pattern"
    asked = filled.query(expression, params={"low": 0, "pattern": "w%"})
    assert asked.paths() == filled.query("t < 0 and word like 'w%'").paths()
    some = param("some")
    assert str(attr("t").isin(some)) == "t in :some"
    listed = filled.query(attr("t").isin(some), params={"some": [0, 1]})
    assert listed.paths() == filled.query("t in (0, 1)").paths()
    denied = filled.query(attr("t").not_in(some), params={"some": (0, 1)})
    assert denied.paths() == filled.query("t not in (0, 1)").paths()
    with pytest.raises(engram.QueryError, match="a parameter that stands for a list"):
        filled.query("t in :some", params={"some": 3})
    with pytest.raises(engram.QueryError, match="has no parameter :higher"):
        filled.query("t < :high", params={"high": 1, "higher": 2})
    with pytest.raises(engram.QueryError, match="no parameter high was given"):
        filled.query("t < :high", params={"hi": 1})
    with pytest.raises(engram.ArgumentError, match="parameter high: NaN"):
        filled.query("t < :high", params={"high": float("nan")})
    with pytest.raises(engram.ArgumentError, match="is no mapping"):
        filled.query("t < :high", params=[1])  # type: ignore[arg-type]


def test_an_offset_begins_further_back_and_takes_an_order(filled: engram.Pool) -> None:
    everything = filled.query(order_by="t, @path").oids().tolist()
    for sealed in (False, True):
        if sealed:
            _sealed(filled)
        part = filled.query(order_by="t, @path", limit=5, offset=7)
        assert part.oids().tolist() == everything[7:12]
        assert part.count() == 5
        assert filled.query(order_by="t, @path", offset=58).count() == 2
        assert filled.query("order by t, @path offset 59").oids().tolist() == everything[59:]
        assert len(filled.query(order_by="t", offset=100)) == 0
    with pytest.raises(engram.ArgumentError, match="there is none: give order_by"):
        filled.query(offset=3)
    rows = list(filled.aggregate("mean(t) group by level order by level"))
    with pytest.raises(engram.QueryError, match="as in order by level limit 10 offset 20"):
        filled.aggregate("mean(t) group by level offset 1")
    assert list(filled.aggregate("mean(t) group by level order by level offset 1")) == rows[1:]


def test_columns_keep_their_dtypes_without_a_look_at_objects(pool: engram.Pool) -> None:
    values: dict[str, Any] = {
        "f4": np.float32(0.1),
        "f8": 0.1,
        "i2": np.int16(-3),
        "u8": np.uint64(2**64 - 1),
        "flag": True,
        "text": "é",
        "day": np.datetime64("2020-02-29", "D"),
        "us": np.datetime64("2020-02-29T12:00:00.5", "us"),
        "big": np.array(7, ">i4"),
        "one": np.array([7]),
        "list": np.arange(3),
        "long": "x" * 600,
        "complex": 1 + 2j,
    }
    with pool.batch():
        for n in range(80):
            pool.create_blob(f"b{n:02}", b"x", attrs=values | {"n": n, "unique": n / 7})
    _sealed(pool)
    result = pool.query(order_by="unique desc")
    columns = result.to_numpy([*values, "n", "unique", "@path", "@nbytes", "@created", "never"])
    for name, value in values.items():
        kept = columns[name]
        expected = np.asarray(pool["b00"].attrs[name])
        if name in {"text", "long", "one", "list"}:
            assert all(np.array_equal(each, value) for each in kept), name
        else:
            assert kept.dtype == expected.dtype.newbyteorder("="), name
            assert (kept == expected).all(), name
    assert columns["n"].tolist() == list(range(79, -1, -1))
    assert columns["unique"].tolist() == [n / 7 for n in range(79, -1, -1)]
    assert columns["@path"].tolist() == [f"b{n:02}" for n in range(79, -1, -1)]
    assert columns["@created"].dtype == "M8[ns]"
    assert np.ma.getmaskarray(columns["never"]).all()
    frame = result.to_pandas(["flag", "i2", "day", "@owner"])
    assert frame["flag"].dtype == bool
    assert frame["i2"].dtype == np.int16
    assert frame["@owner"].nunique() == 1


def test_fields_of_structures_are_compared_and_ordered(pool: engram.Pool) -> None:
    dtype = np.dtype([("x", "<i4"), ("y", ">f8", (2,)), ("in", [("z", "<f4")])])
    for n in range(6):
        value = np.array((n, (n / 2, 9), (n * 0.5,)), dtype)
        pool.create_blob(f"b{n}", b"", attrs={"position": value})
    pool.create_blob("plain", b"", attrs={"position": 7, "a.b": 3})
    assert pool.query("position.x > 3").names() == ["b4", "b5"]
    assert pool.query(attr("position")["in"]["z"] == 1.5).names() == ["b3"]
    assert pool.query("position.y contains 0.5").names() == ["b1"]
    assert pool.query("position.x is null").names() == ["plain"]
    assert pool.query("exists(position.x)", order_by="position.x desc", limit=2).names() == [
        "b5",
        "b4",
    ]
    assert pool.aggregate("sum(position.x), count(position.nothing)")[0] == (15, 0)
    columns = pool.query(order_by="@name").to_numpy(
        ["position.x", "position.`in`.z", "position.y", "a.b"]
    )
    assert columns["position.x"].tolist() == [0, 1, 2, 3, 4, 5, None]
    assert columns["position.x"].dtype == np.dtype("i4")
    assert columns["position.`in`.z"].tolist() == [0, 0.5, 1, 1.5, 2, 2.5, None]
    assert columns["position.y"][3].tolist() == [1.5, 9]
    assert columns["a.b"].tolist() == [None] * 6 + [3]
    only = pool.query("position.x < 2").to_numpy(["position.x", "`position`.x"])
    assert [column.tolist() for column in only.values()] == [[0, 1], [0, 1]]
    pool["b0"].attrs["position.x"] = 77
    mixed = pool.query(order_by="@name").to_numpy(["position.x"])["position.x"]
    assert mixed.tolist() == [77, 1, 2, 3, 4, 5, None]
    for name in (".", "..", "position."):
        with pytest.warns(engram.EngramWarning, match="has an attribute"):
            assert np.ma.getmaskarray(pool.query().to_numpy([name])[name]).all()
    with pytest.warns(engram.EngramWarning, match="position.nothing"):
        nothing = pool.query().to_numpy(["position.nothing"])["position.nothing"]
    assert np.ma.getmaskarray(nothing).all()
    with pytest.raises(engram.QueryError, match="stands in backquotes"):
        pool.query("a.b = 3").oids()
    assert pool.query("`a.b` = 3").names() == ["plain"]
    with pytest.raises(engram.ArgumentError, match="has no fields"):
        engram.field("path")["x"]


def test_what_an_array_contains_are_whole_items(pool: engram.Pool) -> None:
    for n, tags in enumerate([["box"], ["box", "y"], ["x"], "box", np.array(["box"], "S3"), []]):
        pool.create_blob(f"b{n}", b"", attrs={"tags": tags})
    field = np.array([("ox",), ("x",)], [("tag", "U2")])
    pool.create_blob("part", b"", attrs={"one": field[:1], "scalar": field[0]})
    for sealed in (False, True):
        if sealed:
            _sealed(pool)
        for asked, names in {
            "tags contains 'x'": ["b2", "b3"],
            "tags contains 'box'": ["b0", "b1", "b3", "b4"],
            "tags not contains 'x'": ["b0", "b1", "b4", "b5"],
            "tags contains ['o', 'x']": ["b3"],
            "tags = 'box'": ["b0", "b3", "b4"],
            "tags like '%x'": ["b0", "b2", "b3", "b4"],
            "one.tag contains 'x'": [],
            "one.tag contains 'ox'": ["part"],
            "scalar.tag contains 'x'": ["part"],
        }.items():
            assert pool.query(asked).names() == names, (asked, sealed)
    assert pool.aggregate("count() where tags >= '' group by tags")[0] == ("box", 3)


@pytest.mark.parametrize(
    "when",
    [
        np.datetime64("2017-09-01T04:30:05.123456789"),
        np.datetime64(-200_000, "Y"),
        np.datetime64(-1_000_000, "Y"),
        np.datetime64(200_000_000_000, "Y"),
        np.datetime64(2**63 - 1, "s"),
        np.datetime64(2**62, "D"),
    ],
)
def test_figures_of_times_are_as_distant_as_they_are(pool: engram.Pool, when: Any) -> None:
    pool.create_blob("a", b"", attrs={"age": when})
    for text in ("min(age)", "max(age) where exists(age)", "count() group by age"):
        assert when in pool.aggregate(text)[0], text


def test_times_that_are_none_are_named_and_left_out(pool: engram.Pool) -> None:
    for n, when in enumerate([np.datetime64("2017-01-01"), np.datetime64("NaT")]):
        pool.create_blob(f"b{n}", b"", attrs={"t": when, "took": np.timedelta64(n, "s")})
    for text in ("max(t)", "min(took)", "count() group by t"):
        with pytest.raises(engram.QueryError, match="NaT, durations"):
            pool.aggregate(text)
    assert pool.aggregate("max(t) where t >= '0001'").item() == np.datetime64("2017-01-01")


def test_the_language_of_nulls_lists_and_denials(pool: engram.Pool) -> None:
    for n, tags in enumerate([["a", "b"], ["b"], ["c"], None]):
        attrs: dict[str, Any] = {"n": n} | ({} if tags is None else {"tags": np.array(tags)})
        pool.create_blob(f"b{n}", b"", attrs=attrs)
    asked = {
        "tags contains 'b'": ["b0", "b1"],
        "tags contains ['a', 'b']": ["b0"],
        "tags not contains 'b'": ["b2"],
        "tags is null": ["b3"],
        "tags is not null and n not in [0, 1]": ["b2"],
        "n not between 1 and 2": ["b0", "b3"],
        "@name not like '%1'": ["b0", "b2", "b3"],
        "missing not in (1)": [],
        "not missing in (1) and n = 0": ["b0"],
    }
    for text, names in asked.items():
        assert pool.query(text).names() == names, text
    number, held = attr("n"), attr("tags")
    assert pool.query(held.contains(["a", "b"])).names() == ["b0"]
    assert pool.query(number.not_in([0, 1]) & ~held.is_null()).names() == ["b2"]
    assert pool.query(number.not_between(1, 2)).names() == ["b0", "b3"]
    assert pool.query(engram.field("name").not_like("%1")).names() == ["b0", "b2", "b3"]


def test_a_snapshot_has_figures_and_columns_of_its_moment(pool: engram.Pool, home: Path) -> None:
    del home
    pool.create_blob("a", b"", attrs={"n": 1})
    with pool.snapshot() as snapshot:
        pool["a"].attrs["n"] = 5
        pool.create_blob("b", b"", attrs={"n": 7})
        assert snapshot.aggregate("count(), sum(n)")[0] == (1, 1)
        assert snapshot.query().to_numpy(["n"])["n"].tolist() == [1]
    assert pool.aggregate("count(), sum(n)")[0] == (2, 12)
    assert pool.query().to_numpy(["n"])["n"].tolist() == [5, 7]
