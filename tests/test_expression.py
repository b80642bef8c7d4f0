"""Expressions: they say in Python what the query language says, and refuse what it cannot."""

from __future__ import annotations

import datetime as dt
import pickle
from typing import TYPE_CHECKING, Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

import engram
from engram import ArgumentError, Expression, _engram, attr, field, group_attr, under
from engram.expression import BUILTINS

if TYPE_CHECKING:
    from collections.abc import Callable

x = attr("x")
five: Any = 5
half: Any = 0.5
true: Any = np.True_
"""Where a type checker would refuse them."""


def read(expression: Expression) -> str:
    """Give the expression as the engine's parser reads and writes it."""
    return _engram.Query(str(expression)).text


@pytest.mark.parametrize(
    ("expression", "text"),
    [
        (attr("temperature") < -15, "temperature < -15"),
        (x <= 1.5, "x <= 1.5"),
        (x > 1e300, "x > 1e300"),
        (x >= float("-inf"), "x >= -inf"),
        (x == "five", 'x = "five"'),
        (x != b"five", 'x != "five"'),
        (x == 2**64 - 1, "x = 18446744073709551615"),
        (x == -(2**63), "x = -9223372036854775808"),
        (5 < x, "x > 5"),  # noqa: SIM300 - a value first, too
        (x == True, "x = 1"),  # noqa: E712 - a value
        (x.isin([1, "a", 2.5]), 'x in (1, "a", 2.5)'),
        (x.isin({"b", "a"}), 'x in ("a", "b")'),
        (x.isin(np.arange(3)), "x in (0, 1, 2)"),
        (x.isin([]), "x in ()"),
        (x.between(20170901, 20170930), "x between 20170901 and 20170930"),
        (x.contains("9610/Inf"), 'x contains "9610/Inf"'),
        (x.contains(5), "x contains 5"),
        (x.startswith("GLAH"), 'x startswith "GLAH"'),
        (x.endswith(b".nc"), 'x endswith ".nc"'),
        (x.like(r"100\%_"), r'x like "100\\%_"'),
        (x.exists(), "exists(x)"),
        (under("run-17"), 'under("run-17")'),
        (attr("a-b") == 1, "`a-b` = 1"),
        (attr("a`b") == 1, "`a``b` = 1"),
        (attr("Limit") == 1, "`Limit` = 1"),
        (attr("température") == 1, "température = 1"),
        (group_attr("orbit") == 1, "group.orbit = 1"),
        (group_attr("order by") == 1, "group.`order by` = 1"),
        (attr("steps")[0]["kind"] == "a", 'steps.`0`.kind = "a"'),
        (attr("steps")[np.int64(12)].exists(), "exists(steps.`12`)"),
        (attr("group")["kind"] == 1, "`group`.kind = 1"),
        (group_attr("cfg")["steps"][0] == 1, "group.cfg.steps.`0` = 1"),
        (field("path").contains("a"), '@path contains "a"'),
        (field("@ndim") == 2, "@ndim = 2"),
        (x == 'say "é\\\n\t\0"', r'x = "say \"é\\\n\t\u{0}\""'),
    ],
)
def test_an_expression_is_written_in_the_query_language(expression: Expression, text: str) -> None:
    assert read(expression) == text


@pytest.mark.parametrize(
    ("value", "text"),
    [
        (np.int8(-3), "x = -3"),
        (np.uint64(2**64 - 1), "x = 18446744073709551615"),
        (np.float32(0.1), "x = 0.10000000149011612"),
        (np.longdouble(2), "x = 2.0"),
        (np.bool_(False), "x = 0"),
        (np.str_("é"), 'x = "é"'),
        (np.bytes_(b"a"), 'x = "a"'),
        (np.array(7), "x = 7"),
        (np.datetime64("2017-09-01"), 'x = "2017-09-01T00"'),
        (np.datetime64("2017"), 'x = "2017-01-01T00"'),
        (np.datetime64("2017-09"), 'x = "2017-09-01T00"'),
        (np.datetime64("2017-09-01T10", "h"), 'x = "2017-09-01T10"'),
        (np.datetime64("2017-09-01T10:00", "ns"), 'x = "2017-09-01T10:00:00.000000000"'),
        (np.datetime64("12017-09-01"), 'x = "12017-09-01T00"'),
        (np.datetime64("-0044-03-15"), 'x = "-0044-03-15T00"'),
        (np.datetime64("0987"), 'x = "0987-01-01T00"'),
        (np.datetime64("-44-03"), 'x = "-0044-03-01T00"'),
        (dt.date(2017, 9, 1), 'x = "2017-09-01"'),
        (dt.datetime(2017, 9, 1, 10), 'x = "2017-09-01T10:00:00"'),  # noqa: DTZ001 - it is UTC
        (
            dt.datetime(2017, 9, 1, 1, 30, tzinfo=dt.timezone(dt.timedelta(hours=2))),
            'x = "2017-08-31T23:30:00+00:00"',
        ),
        (
            dt.datetime(1, 1, 1, tzinfo=dt.timezone(dt.timedelta(hours=2))),
            'x = "0001-01-01T00:00:00"',
        ),
    ],
)
def test_values_of_every_kind_are_written(value: Any, text: str) -> None:
    assert read(x == value) == text
    assert read(value == x) == text


def test_expressions_are_joined_as_they_are_meant() -> None:
    a, b, c = (attr(key) == 1 for key in "abc")
    assert read(a & b & c) == "a = 1 and b = 1 and c = 1"
    assert read(a & (b & c)) == "a = 1 and b = 1 and c = 1"
    assert read((a | b) & c) == "(a = 1 or b = 1) and c = 1"
    assert read((a & b) | c) == "(a = 1 and b = 1) or c = 1".replace("(", "").replace(")", "")
    assert read(~(a & b)) == "not (a = 1 and b = 1)"
    assert read(~a & ~~b) == "not a = 1 and not not b = 1"
    assert read(~(a | ~b)) == "not (a = 1 or not b = 1)"


def test_many_expressions_are_joined_without_nesting() -> None:
    many = x == 0
    for number in range(1, 2000):
        many |= x == number
    assert read(many).count(" or ") == 1999


def test_expressions_written_alike_are_equal() -> None:
    assert (x < 5) == (5 > x)  # noqa: SIM300 - a value first, too
    assert (x < 5) != (x < 6)
    assert (x < 5) != "x < 5"
    assert len({x < 5, x < 5, x < 6}) == 2
    assert {x: 1}[x] == 1
    assert hash(attr("y")) != hash(x)
    assert pickle.loads(pickle.dumps(x < 5)) == (x < 5)


def test_a_repr_shows_the_language_and_nothing_a_terminal_obeys() -> None:
    assert repr(x < 5) == "<engram.Expression x < 5>"
    assert repr(attr("a\x1b")) == "<engram.Field `a\\x1b`>"


@pytest.mark.parametrize(
    ("wrong", "advice"),
    [
        (lambda: bool(x < 5), r"join expressions with & and \|"),
        (lambda: x > 1 and x < 5, "neither true nor false"),
        (lambda: not (x < 5), "negate them with ~"),
        (lambda: 0 < x < 5, "between"),
        (lambda: bool(x), r"\.exists\(\)"),
        (lambda: x & (x < 5), "compare it first, in parentheses"),
        (lambda: x == 1 | x, "bind tighter"),
        (lambda: ~x, "compare it first"),
        (lambda: x == None, r"\.exists\(\)"),  # noqa: E711 - that is what is tried
        (lambda: x == np.float64("nan"), "NaN is equal to nothing"),
        (lambda: x.isin([1, np.float32("nan")]), "NaN is equal to nothing"),
        (lambda: x == np.datetime64("NaT"), "NaT is equal to nothing"),
        (lambda: x == x, "with values alone"),  # noqa: PLR0124 - that is what is tried
        (lambda: x == [1, 2], "isin"),
        (lambda: x == np.arange(2), "isin"),
        (lambda: x == 2**64, "beyond the integers of 64 bits: give a float"),
        (lambda: x < -(2**63) - 1, "give a float"),
        (lambda: x == 1j, r"\(complex\) cannot be compared"),
        (lambda: x == np.timedelta64(1, "s"), "timedelta64"),
        (lambda: x == "\ud800", "half a surrogate pair"),
        (lambda: x == b"\xff", "decode it first"),
        (lambda: x.isin("abc"), "give a list"),
        (lambda: x.isin(five), "give a list"),
        (lambda: x.like(five), "like takes a str, not 5"),
        (lambda: under(five), "under takes a str"),
        (lambda: attr(""), "key of an attribute"),
        (lambda: attr(five), "key of an attribute"),
        (lambda: attr("\udfff"), "half a surrogate pair"),
        (lambda: attr("steps")[-1], "-1 is no place in a list: places are counted"),
        (lambda: attr("steps")[true], "by a str, or by its place in a list, not by"),
        (lambda: attr("steps")[True], "by a str, or by its place in a list, not by True"),
        (lambda: attr("steps")[half], r"not by 0\.5: "),
        (lambda: field("path")["a"], "@path has no fields"),
        (lambda: field("pth"), "did you mean 'path'"),
        (lambda: field("temperature"), r"engram\.attr\(key\)"),
        (lambda: field(five), "no built-in field 5"),
    ],
)
def test_what_cannot_be_meant_is_refused_with_advice(
    wrong: Callable[[], object], advice: str
) -> None:
    with pytest.raises(ArgumentError, match=advice):
        wrong()


def test_every_built_in_field_of_the_language_is_one_here() -> None:
    with pytest.raises(engram.QueryError) as caught:
        _engram.Query("exists(@unheard-of)")
    listed = str(caught.value).split("there are ")[1].split("\n")[0].split()
    assert listed == [f"@{name}" for name in BUILTINS]


@pytest.fixture
def stored(pool: engram.Pool) -> engram.Pool:
    """Give a pool of objects whose attributes are of every comparable kind."""
    run = pool.create_group("run-17", attrs={"orbit": 4})
    step = run.create_group("step-1")
    step.create_array("a", data=np.zeros((3, 4)), attrs={"t": -20, "unit": "K", "ok": True})
    step.create_array("b", data=np.arange(3), attrs={"t": np.float32(0.5), "unit": "°C"})
    run.create_array("c", data=np.arange(3), attrs={"t": np.nan, "unit": "100%"})
    pool.create_array("d", data=1.0, attrs={"when": np.datetime64("2017-09-01T10"), "t": "-20"})
    pool.create_array("e", data=1.0, attrs={"t": np.array([-20, 7]), "when": "2017-09-01T10"})
    return pool


@pytest.mark.parametrize(
    ("expression", "names"),
    [
        (attr("t") < 0, "a"),
        (attr("t") <= 0.5, "ab"),
        (attr("t") != 0, "abc"),
        (~(attr("t") < 0), "bcde"),
        (attr("t") == "-20", "d"),
        (attr("t") == np.int16(-20), "a"),
        (attr("t").contains(7), "e"),
        (attr("t").contains(-20), "ae"),
        (attr("t").isin([-20, 0.5, "x"]), "ab"),
        (attr("t").between(-20, 0), "a"),
        (attr("t").exists(), "abcde"),
        (~attr("unit").exists(), "de"),
        (attr("ok") == True, "a"),  # noqa: E712 - a value
        (attr("ok") == 1, "a"),
        (attr("unit") == "°C", "b"),
        (attr("unit").endswith("C") | attr("unit").startswith("K"), "ab"),
        (attr("unit").like(r"%\%"), "c"),
        (attr("unit").like("_"), "a"),
        (attr("when") < np.datetime64("2017-09-02"), "de"),
        (attr("when") == dt.datetime(2017, 9, 1, 10, tzinfo=dt.UTC), "d"),
        (attr("when") > np.datetime64("2017-09-01"), "de"),
        (attr("when") > dt.date(2017, 9, 1), "e"),
        (attr("when") == dt.date(2017, 9, 1), "d"),
        (attr("when") == "2017", "d"),
        (attr("when") == np.datetime64("2017"), ""),
        (group_attr("orbit") == 4, "abc"),
        (under("run-17/step-1"), "ab"),
        (under("run-17") & (attr("t") > 0), "b"),
        (field("path").contains("7/step") & (field("ndim") == 2), "a"),
        (field("name").isin(["a", "e", "x"]), "ae"),
        (field("dtype") == "int64", "bc"),
        (field("created") > np.datetime64("2020-01-01"), "abcde"),
    ],
)
def test_an_expression_finds_what_it_says(
    stored: engram.Pool, expression: Expression, names: str
) -> None:
    assert sorted(stored.query(expression).names()) == list(names)


texts = st.text(max_size=8) | st.text("ab`\"'\\%\n\x00é日", max_size=6)
values = (
    st.integers(-(2**63), 2**64 - 1)
    | st.floats(allow_nan=False)
    | texts
    | st.booleans()
    | st.datetimes(timezones=st.none() | st.timezones())
    | st.dates()
)
fields = (
    st.builds(attr, texts.filter(bool))
    | st.builds(group_attr, texts.filter(bool))
    | st.builds(attr, st.sampled_from(["and", "LIMIT", "group", "inf", "nan", "a.b", "1x"]))
    # Those that are instants take no other values: `test_query.py` has them.
    | st.builds(field, st.sampled_from([f for f in BUILTINS if f not in {"created", "modified"}]))
)
tests = (
    st.builds(lambda f, v: f == v, fields, values)
    | st.builds(lambda f, v: f < v, fields, values)
    | st.builds(lambda f, v: f.isin(v), fields, st.lists(values, max_size=3))
    | st.builds(lambda f, low, high: f.between(low, high), fields, values, values)
    | st.builds(lambda f, v: f.contains(v), fields, values)
    | st.builds(lambda f, t: f.like(t), fields, texts)
    | st.builds(lambda f, t: f.startswith(t) | f.endswith(t), fields, texts)
    | st.builds(lambda f: f.exists(), fields)
    | st.builds(under, texts)
)
expressions = st.recursive(
    tests,
    lambda inner: (
        st.builds(lambda a, b: a & b, inner, inner)
        | st.builds(lambda a, b: a | b, inner, inner)
        | st.builds(lambda a: ~a, inner)
    ),
    max_leaves=6,
)


@given(expressions)
def test_any_expression_is_read_as_it_is_written(expression: Expression) -> None:
    once = read(expression)
    assert _engram.Query(once).text == once


@given(values, texts.filter(bool))
def test_a_value_is_read_back_as_it_was(value: Any, key: str) -> None:
    text = read(attr(key) == value)
    assert text == read(attr(key) == value)
    if isinstance(value, float):
        number = text.rsplit(" = ", 1)[1]
        assert float(number) == value
    if isinstance(value, int) and not isinstance(value, bool):
        assert text.endswith(f" = {value}")
