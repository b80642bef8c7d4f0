"""Queries from Python: results, tables, explanations, refusals; and what another sees meanwhile."""

from __future__ import annotations

import datetime as dt
import pickle
import sys
import threading
from typing import TYPE_CHECKING, Any

import numpy as np
import pytest

import engram

if TYPE_CHECKING:
    from pathlib import Path

    import pandas as pd


@pytest.fixture
def filled(pool: engram.Pool) -> engram.Pool:
    """Give a pool with two groups of five arrays, a blob and a string."""
    for orbit in (1, 2):
        group = pool.create_group(f"orbit-{orbit}", attrs={"orbit": orbit})
        for n in range(5):
            attrs: dict[str, Any] = {"t": n - 2.5 * orbit, "n": n}
            attrs |= {"level": "four"} if n % 2 else {"flag": True}
            group.create_array(f"a{n}", data=np.arange(n + 1.0), attrs=attrs)
    pool.create_blob("orbit-2/log", b"four bytes", attrs={"level": "log"})
    pool.create_array("note", data="a text", attrs={"when": np.datetime64("2020-02-29", "D")})
    return pool


def test_a_result_is_a_collection_of_handles(filled: engram.Pool) -> None:
    result = filled.query("t < -2 and group.orbit = 2", order_by="t desc")
    assert "not looked up yet" in repr(result)
    assert len(result) == 3
    assert "3 objects" in repr(result)
    assert result.names() == ["a2", "a1", "a0"]
    assert result.paths() == [f"orbit-2/{name}" for name in result.names()]
    assert [member.path for member in result] == result.paths()
    assert all(isinstance(member, engram.Array) for member in result)
    assert result[0].path == "orbit-2/a2"
    assert result[int(np.int64(-1))].path == "orbit-2/a0"
    assert result[1:].names() == ["a1", "a0"]
    assert result[::-2].names() == ["a0", "a2"]
    assert result[5:].names() == []
    assert not result[5:]
    assert result.query == "t < -2 and group.orbit = 2 order by t desc"


def test_ids_are_numbers_of_numpy_that_nobody_changes(filled: engram.Pool) -> None:
    oids = filled.query("exists(flag)").oids()
    assert oids.dtype == np.uint64
    assert oids.shape == (6,)
    assert oids.tolist() == sorted(oids.tolist())
    assert set(oids.tolist()) == {filled[f"orbit-{o}/a{n}"].oid for o in (1, 2) for n in (0, 2, 4)}
    with pytest.raises(ValueError, match="read-only"):
        oids[0] = 0


def test_a_place_beyond_the_end_and_no_place_are_refused(filled: engram.Pool) -> None:
    result = filled.query("exists(flag)")
    for beyond in (6, -7):
        with pytest.raises(IndexError, match="6 objects"):
            result[beyond]
    with pytest.raises(engram.ArgumentError, match="integer or a slice"):
        result["a"]  # type: ignore[call-overload]  # which is the point


def test_without_a_condition_all_objects_are_found(filled: engram.Pool) -> None:
    assert filled.query().count() == filled.query("").count() == len(filled.query(None)) == 12
    assert filled["orbit-1"].query().count() == 5
    assert filled.create_group("empty").query().count() == 0


def test_counts_need_no_list_and_agree_with_it(filled: engram.Pool) -> None:
    for text in ("", "t < 0", "exists(level) and not t > 0", "n = 99"):
        unread, used = filled.query(text), filled.query(text)
        assert unread.count() == len(used)
        assert unread.count_attributes() == used.count_attributes()
        assert unread.attribute_keys() == used.attribute_keys()
        assert "not looked up yet" in repr(unread)
    keys = filled.query("under('orbit-1')").attribute_keys()
    assert keys == {"flag": 3, "level": 2, "n": 5, "t": 5}
    assert list(keys) == sorted(keys)


def test_what_is_found_is_of_one_moment_and_what_is_gone_is_left_out(filled: engram.Pool) -> None:
    result = filled.query("level = 'four'", order_by="@path")
    assert len(result) == 4
    del filled["orbit-1/a1"]
    filled.create_array("orbit-1/new", data=[1], attrs={"level": "four"})
    assert len(result) == 4
    assert result.paths() == ["orbit-1/a3", "orbit-2/a1", "orbit-2/a3"]
    assert [member.path for member in result] == result.paths()
    assert result.names() == ["a3", "a1", "a3"]
    assert result.to_pandas()["@path"].tolist() == result.paths()
    with pytest.raises(engram.NotFoundError, match="deleted or replaced since"):
        result[0]
    assert len(filled.query("level = 'four'")) == 4


def test_a_query_on_a_group_is_of_what_lies_below_it(filled: engram.Pool) -> None:
    below = filled["orbit-2"]
    assert below.query("n = 1").paths() == ["orbit-2/a1"]
    assert below.query("@path startswith 'orbit-1'").count() == 0
    deep = below.create_group("x/y")
    deep["z"] = 1
    assert below.query("under('x')").paths() == ["orbit-2/x/y/z"]
    assert filled.query("under('x')").count() == 0
    assert deep.query("under('/orbit-2')").count() == 1
    gone = filled["orbit-1"]
    del filled["orbit-1"]
    with pytest.raises(engram.NotFoundError):
        gone.query("n = 1").count()


def test_order_and_limit_are_given_in_the_text_or_beside_it(filled: engram.Pool) -> None:
    by_text = filled.query("exists(t) order by n desc, @path limit 3").paths()
    assert by_text == ["orbit-1/a4", "orbit-2/a4", "orbit-1/a3"]
    for order_by in ("n desc, @path", ["n desc", "@path"], ("n desc", engram.field("path"))):
        assert filled.query("exists(t)", order_by=order_by, limit=3).paths() == by_text
    replaced = filled.query("exists(t) order by t limit 1", order_by="@path desc", limit=2)
    assert replaced.paths() == ["orbit-2/a4", "orbit-2/a3"]
    assert filled.query("exists(t)", limit=0).count() == 0
    last = filled.query(order_by="when").paths()
    assert last[0] == "note"


@pytest.mark.parametrize(
    ("asked", "why"),
    [
        ({"limit": -1}, "limit -1"),
        ({"limit": "3"}, "limit '3'"),
        ({"threads": 0}, "threads 0"),
        ({"consistency": "weak"}, "'strong' or 'eventual'|\"strong\" or \"eventual\""),
        ({"order_by": 5}, "order_by 5"),
        ({"order_by": []}, "order_by"),
        ({"order_by": "t limit 3"}, "limit="),
    ],
)
def test_what_makes_no_sense_is_refused_at_once(
    filled: engram.Pool, asked: dict[str, Any], why: str
) -> None:
    with pytest.raises(engram.ArgumentError, match=why):
        filled.query("t < 0", **asked)


def test_no_query_at_all_is_refused_with_an_example(filled: engram.Pool) -> None:
    for wrong in (5, b"t < 0", True):
        with pytest.raises(engram.ArgumentError, match="temperature < -15"):
            filled.query(wrong)  # type: ignore[arg-type]  # which is the point


def test_an_ill_formed_query_is_refused_with_a_caret_under_the_place(filled: engram.Pool) -> None:
    with pytest.raises(engram.QueryError) as caught:
        filled.query("t < -15 and n = ")
    first, line, caret = str(caught.value).split("\n")
    assert "expected" in first
    assert line == "  t < -15 and n ="
    assert caret.index("^") == len("  t < -15 and n = ") - 1 + caret.count("^") - 1
    assert isinstance(caught.value, ValueError)
    with pytest.raises(engram.QueryError):
        filled.query(order_by="t sideways")


def test_what_would_move_a_terminal_is_shown_as_text(filled: engram.Pool) -> None:
    with pytest.raises(engram.QueryError) as caught:
        filled.query("t < \x1b[31m")
    assert "\x1b" not in str(caught.value)


def test_expressions_are_queries(filled: engram.Pool) -> None:
    cold = (engram.attr("t") < -2) & (engram.group_attr("orbit") == 2)
    assert filled.query(cold).oids().tolist() == (
        filled.query("t < -2 and group.orbit = 2").oids().tolist()
    )
    assert filled.query(cold).query == str(cold)


def test_values_of_many_types_are_compared_as_the_guide_says(pool: engram.Pool) -> None:
    kept: dict[str, Any] = {
        "i1": np.int8(1),
        "f4": np.float32(1),
        "true": True,
        "one": np.array([[1]], ">i2"),
        "two": np.array([1, 2]),
        "text": "1",
        "bytes": b"1",
        "nan": np.nan,
        "time": np.datetime64("1970-01-02"),
        "no_unit": np.array(1, "i8").view("M8")[()],
        "complex": 1 + 0j,
    }
    for name, value in kept.items():
        pool.create_array(name, data=[0], attrs={"x": value})

    def names(text: str) -> list[str]:
        return sorted(pool.query(text).names())

    ones = ["f4", "i1", "one", "true"]
    assert names("x = 1") == ones
    assert names("x = true") == ones
    assert names("x = '1'") == ["bytes", "text"]
    assert names("x != 1") == ["nan"]
    assert names("x contains 1") == sorted([*ones, "two"])
    assert names("x = '1970-01-02'") == names("x > '1970-01-01T12:00'") == ["time"]
    assert names("exists(x)") == sorted(kept)
    assert names("not x = 1") == sorted(set(kept) - set(ones))
    assert names("not exists(x)") == []


def test_empty_strings_of_any_type_are_empty_texts(pool: engram.Pool) -> None:
    for name, value in {"a": "", "b": b"", "c": np.str_(""), "d": np.array([""], "U1")}.items():
        pool.create_array(name, data=[0], attrs={"x": value})
    pool.create_array("e", data=[0], attrs={"x": np.array([b"", b""])})
    assert pool.query("x = ''").names() == ["a", "b", "c", "d"]
    assert pool.query("x contains ''").names() == ["a", "b", "c", "d", "e"]


def test_a_table_has_a_row_for_each_object_and_a_column_for_each_field(
    filled: engram.Pool,
) -> None:
    table = filled.query("", order_by="@path").to_pandas()
    assert table["@path"].tolist() == sorted(filled.query().paths())
    assert list(table.columns)[:3] == ["@path", "@name", "@dtype"]
    assert list(table.columns)[8:] == ["flag", "level", "n", "t", "when"]
    assert table["n"].dtype == "Int64"
    assert table["t"].dtype == "float64"
    assert table["flag"].dtype == "boolean"
    assert table["when"].dtype.kind == "M"
    assert table["@nbytes"].dtype == "int64"
    assert int(table["n"].isna().sum()) == 2
    assert int(table["t"].isna().sum()) == 2
    whole = filled.query("exists(n)").to_pandas()
    assert whole["n"].dtype == "int64"
    assert whole["t"].tolist() == [n - 2.5 * o for o in (1, 2) for n in range(5)]


@pytest.mark.filterwarnings("ignore:no indexed object has:engram.EngramWarning")
def test_columns_are_chosen_and_called_as_in_queries(filled: engram.Pool) -> None:
    columns = ["group.orbit", "t", "@group", "@ndim", "@size", "@shape", "never", "`n`"]
    table = filled.query("n = 2", order_by="@path").to_pandas(columns)
    assert list(table.columns) == columns
    assert table.iloc[0].tolist()[:6] == [1, -0.5, "orbit-1", 1, 3, "(3,)"]
    assert table["group.orbit"].tolist() == [1, 2]
    assert table["never"].isna().all()
    assert table["`n`"].tolist() == [2, 2]
    with pytest.raises(engram.ArgumentError, match=r"@pth.*@path"):
        filled.query().to_pandas(["@pth"])


def test_columns_of_mixed_values_keep_them(pool: engram.Pool) -> None:
    values: dict[str, list[Any]] = {
        "widths": [np.int8(1), np.uint32(2), np.float32(0.5)],
        "exact": [np.int64(2**60), 0.5, 1],
        "mixed": [1, "text", np.array([1, 2])],
        "truth": [True, 2, 3],
        "times": [np.datetime64("2020-01-01"), np.datetime64("2020-01-01T12", "h"), None],
        "old": [np.datetime64("0001-01-01", "D"), np.datetime64("9999-01-01", "Y"), None],
        "complex": [1j, None, 2.0 + 0j],
        "big": [np.array(5, ">i4"), np.array(6, ">i4"), None],
    }
    for n in range(3):
        attrs = {key: found[n] for key, found in values.items() if found[n] is not None}
        pool.create_array(f"a{n}", data=[n], attrs=attrs)
    table: pd.DataFrame = pool.query().to_pandas()
    assert table["widths"].tolist() == [1, 2, 0.5]
    assert table["exact"].tolist() == [2**60, 0.5, 1]
    assert table["mixed"].tolist()[:2] == [1, "text"]
    assert table["truth"].tolist() == [True, 2, 3]
    assert table["times"].isna().tolist() == [False, False, True]
    assert str(table["times"][1]) == "2020-01-01 12:00:00"
    assert table["old"].isna().tolist() == [False, False, True]
    assert table["complex"].isna().tolist() == [False, True, False]
    assert table["big"].tolist()[:2] == [5, 6]
    arrow = pool.query().to_arrow()
    assert arrow.column("widths").to_pylist() == [1, 2, 0.5]
    assert arrow.column("mixed").to_pylist() == ["1", "text", "[1, 2]"]
    assert arrow.column("big").to_pylist() == [5, 6, None]
    assert arrow.column("times").null_count == 1
    assert arrow.num_rows == 3


def test_times_of_mixed_units_keep_their_instants(pool: engram.Pool) -> None:
    far, fine = np.datetime64("1500-01-01"), np.datetime64("2020-01-01T00:00:00.000000001", "ns")
    half, none = np.datetime64("2020-01-01T00:00:00.5", "ns"), np.datetime64("NaT")
    values = {
        "shared": (far, half),
        "apart": (far, fine),
        "none": (none, none),
        "some": (none, far),
    }
    values |= {"distant": (np.datetime64(10**12, "Y"), far)}
    values |= {"tiny": (np.datetime64(1, "ps"), np.datetime64(2, "ps"))}
    for n in range(2):
        attrs = {key: found[n] for key, found in values.items()}
        pool.create_array(f"a{n}", data=[n], attrs=attrs)
    table = pool.query().to_pandas()
    assert [str(value) for value in table["shared"]] == [
        "1500-01-01 00:00:00",
        "2020-01-01 00:00:00.500000",
    ]
    for key in ("apart", "distant", "tiny"):
        assert table[key].tolist() == list(values[key])
    assert table["none"].isna().all()
    assert table["some"].isna().tolist() == [True, False]
    arrow = pool.query().to_arrow()
    assert [value.isoformat() for value in arrow.column("shared").to_pylist()] == [
        "1500-01-01T00:00:00",
        "2020-01-01T00:00:00.500000",
    ]
    assert arrow.column("apart").to_pylist() == [str(far), str(fine)]
    assert arrow.column("none").null_count == 2
    assert arrow.column("some").null_count == 1


def test_spans_of_units_that_share_none_keep_their_units(pool: engram.Pool) -> None:
    for n, span in enumerate((np.timedelta64(5, "Y"), np.timedelta64(6, "D"))):
        pool.create_array(f"a{n}", data=[n], attrs={"span": span})
    assert pool.query().to_arrow().column("span").to_pylist() == ["5 years", "6 days"]
    assert pool.query("@name = 'a1'").to_arrow().column("span").to_pylist() == [dt.timedelta(6)]


def test_built_in_fields_are_of_one_type_whether_or_not_there_are_rows(
    filled: engram.Pool,
) -> None:
    columns = ["@path", "@owner", "@shape", "@nbytes", "@created", "@modified"]
    some, none = filled.query("n = 1"), filled.query("exists(never)")
    assert none.to_arrow(columns).schema == some.to_arrow(columns).schema
    assert str(some.to_arrow(columns).field("@created").type) == "timestamp[ns, tz=UTC]"
    for result in (some, none):
        assert str(result.to_pandas()["@modified"].dtype) == "datetime64[ns, UTC]"


def test_a_column_is_named_once(filled: engram.Pool) -> None:
    for make in (filled.query().to_pandas, filled.query().to_arrow):
        with pytest.raises(engram.ArgumentError, match=r"'n' is there twice"):
            make(["n", "t", "n"])
        with pytest.raises(engram.ArgumentError, match=r"give a list, \['n'\]"):
            make("n")


def test_a_result_does_not_pickle_and_says_what_does(filled: engram.Pool) -> None:
    with pytest.raises(engram.ArgumentError, match=r"list\(r\).*n = 1"):
        pickle.dumps(filled.query("n = 1"))


def test_empty_results_are_empty_tables(pool: engram.Pool) -> None:
    pool["a"] = 1
    result = pool.query("exists(never)")
    assert result.to_pandas().shape == (0, 8)
    assert result.to_arrow().num_rows == 0
    assert (result.names(), result.paths(), list(result), result.oids().size) == ([], [], [], 0)


@pytest.mark.parametrize("library", ["pandas", "pyarrow"])
def test_a_missing_library_is_named_with_what_brings_it(
    filled: engram.Pool, library: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(sys.modules, library, None)
    make = {"pandas": filled.query().to_pandas, "pyarrow": filled.query().to_arrow}[library]
    with pytest.raises(engram.UnsupportedError, match=rf"engram\[{library}\]"):
        make()


def test_what_a_query_finds_is_exported(filled: engram.Pool, home: Path) -> None:
    report = engram.export_file(filled.query("level = 'four'"), home / "found.h5")
    assert report.arrays == 4
    again = filled.create_group("again")
    engram.import_file(home / "found.h5", again)
    assert again.query("level = 'four'").count() == 4
    assert again["orbit-1/a1"].attrs["n"] == 1


def test_a_batch_is_seen_by_its_own_queries_alone(filled: engram.Pool) -> None:
    seen: list[int] = []
    with filled.batch():
        filled.create_array("inside", data=[1], attrs={"t": -50})
        del filled["orbit-1/a0"]
        assert filled.query("t < -40").names() == ["inside"]
        assert filled.query("exists(t)").count() == 10
        other = threading.Thread(target=lambda: seen.append(filled.query("exists(t)").count()))
        other.start()
        other.join()
        assert filled.query("t < -40")[0].attrs["t"] == -50
        assert filled.query("t < -40").to_pandas()["t"].tolist() == [-50]
    assert seen == [10]
    assert filled.query("t < -40").names() == ["inside"]
    assert filled.query("t = -2.5 and group.orbit = 1").count() == 0


def test_an_explanation_tells_of_the_query_and_what_was_looked_at(filled: engram.Pool) -> None:
    told = filled.query("t < 0 and level = 'four'").explain()
    assert told.hits == filled.query("t < 0 and level = 'four'").count() == 3
    assert told.query == 't < 0 and level = "four"'
    assert told.threads >= 1
    assert sum(told.records.values()) + sum(s.objects for s in told.segments) >= 12
    for word in ("t < 0", "found", "3 objects", "index"):
        assert word in str(told)
    assert "3 found" in repr(told)


def test_a_closed_pool_answers_no_query(home: Path) -> None:
    with engram.create(home / "p", size="16 MiB") as pool:
        pool["a"] = 1
        used, unread = pool.query(), pool.query()
        assert len(used) == 1
    assert len(used) == 1
    assert "1 object" in repr(used)
    for ask in (unread.count, unread.oids, used.paths, lambda: used[0], unread.explain):
        with pytest.raises(engram.ArgumentError, match="closed"):
            ask()
    assert "not looked up" in repr(unread)


def test_cards_show_results_explanations_and_figures_escaped(pool: engram.Pool) -> None:
    for n in range(30):
        pool.create_array(f"<b>{n}", data=[n], attrs={"<i>": n, "t": "<script>"})
    found = pool.query("`<i>` >= 0 and t != 'x'")
    html = found._repr_html_()
    assert "30 objects" in html
    assert "10 more" in html
    for card in (html, found.explain()._repr_html_(), pool.index_stats()._repr_html_()):
        assert "engram-card" in card
        assert "<b>0" not in card
        assert "<script" not in card
    gone = pool.query()
    pool.close()
    assert "not looked up yet" in gone._repr_html_()
