"""Any objects, any changes, any query: the engine finds what brute force in Python finds."""

from __future__ import annotations

import itertools
import pickle
import random
import subprocess
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import engram
import query_oracle as oracle
from query_oracle import Both, Condition, Denied, Every, Not, Null, Test, Under
from query_work import VERIFY, Work, random_step, work

if TYPE_CHECKING:
    from collections.abc import Iterator

    from hypothesis.strategies import SearchStrategy

pytestmark = pytest.mark.filterwarnings("ignore:no .* has an attribute:engram.EngramWarning")

GROUPS = ("", "g", "g/h", "k", "g 2")
NAMES = ("a", "b", "ab", "ba", "é", "a b")
KEYS = ("t", "name", "x y", "date", "order")
WORDS = (
    "",
    "a",
    "ab",
    "b%",
    "é",
    "2017-09-01",
    "2017-09-01T12:30",
    "2017",
    "2017-09",
    "1000",
    "2500-09",
    "A",
    "日本",
    "z" * 600,
)
DATES = ("2017-09-01", "2017-09-01T12:30", "1969-12-31", "2262-05-01", "1000-01-01")
WHOLE = (0, 1, -1, 2, 7, 255, 2**31, 2**53, 2**53 + 1, -(2**63), 2**63 - 1, 2**64 - 1)
FLOATS = (0.0, -0.0, 1.0, 0.5, -1.5, 0.1, 2.0**53, 1e300, -1e19, float("inf"), float("-inf"))


def _fits(dtype: str, number: int) -> bool:
    info = np.iinfo(dtype)
    return info.min <= number <= info.max


INTEGERS: SearchStrategy[Any] = st.builds(
    lambda dtype, number: np.dtype(dtype).type(number if _fits(dtype, number) else 1),
    st.sampled_from(["i1", "u1", "i2", "u2", "i4", "u4", "i8", "u8"]),
    st.sampled_from(WHOLE) | st.integers(-3, 3),
)


def _float(dtype: str, number: float) -> Any:
    with np.errstate(all="ignore"):
        return np.dtype(dtype).type(number)


NUMBERS: SearchStrategy[Any] = st.one_of(
    INTEGERS,
    st.builds(
        _float,
        st.sampled_from(["f2", "f4", "f8", "longdouble"]),
        st.sampled_from([*FLOATS, float("nan")]),
    ),
    st.booleans(),
)
TIMES: SearchStrategy[Any] = st.builds(
    lambda date, unit: np.array(date, f"M8[{unit}]")[()],
    st.sampled_from([*DATES, "NaT"]),
    st.sampled_from(["Y", "M", "W", "D", "h", "m", "s", "ms", "us"]),
)
TEXTS: SearchStrategy[Any] = st.one_of(
    st.sampled_from(WORDS),
    st.sampled_from(WORDS).map(np.str_),
    st.sampled_from([b"a", b"ab", b"\xff", b"a\0", b""]),
)
ODD: SearchStrategy[Any] = st.sampled_from(
    [1j, np.complex64(2), np.timedelta64(3, "s"), np.void(b"ab")]
)
SINGLE = NUMBERS | TIMES | TEXTS | ODD
ARRAYS: SearchStrategy[Any] = st.one_of(
    st.lists(INTEGERS, max_size=3).map(lambda found: np.array(found or [0])[: len(found)]),
    st.lists(st.sampled_from(FLOATS), max_size=2).map(lambda found: np.array(found, "f8")),
    st.lists(st.sampled_from(WORDS), max_size=3).map(
        lambda found: np.array(found, np.dtypes.StringDType())
    ),
    st.sampled_from([np.array([[7]], ">i2"), np.array(["a"], "U3"), np.array(7, ">f4")]),
    st.sampled_from([np.zeros(2, [("x", "i4")]), np.array([b"a", b"b"])]),
    st.sampled_from([np.array((7, 1.5), [("x", "<i2"), ("y", ">f8")]), np.array(["a", "ab"])]),
)
VALUES = SINGLE | ARRAYS
ATTRS = st.dictionaries(st.sampled_from(KEYS), VALUES, max_size=4)
PATHS = st.builds(
    lambda group, name: f"{group}/{name}".lstrip("/"),
    st.sampled_from(GROUPS),
    st.sampled_from(NAMES),
)
DATA: SearchStrategy[Any] = st.sampled_from(
    [np.arange(3.0), np.zeros((2, 3), ">i4"), np.int8(1), b"bytes", "text", np.zeros(300)]
)
MODES = st.sampled_from([None, None, "sync", "async", "none"])

PUT = st.builds(lambda *a: ("put", *a), PATHS, DATA, ATTRS, MODES)
CHANGE: SearchStrategy[Any] = st.one_of(
    PUT,
    PUT,
    st.builds(lambda *a: ("annotate", *a), PATHS, ATTRS),
    st.builds(lambda *a: ("annotate", *a), st.sampled_from(GROUPS), ATTRS),
    st.builds(lambda *a: ("forget", *a), PATHS, st.sampled_from(KEYS)),
    st.builds(lambda *a: ("delete", *a), PATHS | st.sampled_from(["g/h", "k"])),
    st.builds(lambda *a: ("move", *a), PATHS | st.sampled_from(["g/h", "k"]), PATHS),
    st.builds(lambda *a: ("promote", *a), PATHS),
)
STEP: SearchStrategy[Any] = st.one_of(
    CHANGE,
    CHANGE,
    st.lists(CHANGE, min_size=2, max_size=12).map(lambda steps: ("batch", steps)),
    st.lists(PUT, min_size=8, max_size=30).map(lambda steps: ("batch", steps)),
    st.just(("drain",)),
    st.builds(lambda *a: ("settings", *a), st.sampled_from(GROUPS), MODES),
    st.builds(lambda group: ("reindex", group), st.sampled_from(GROUPS)),
)
HISTORY = st.lists(STEP, min_size=1, max_size=25)

LITERALS: SearchStrategy[Any] = st.one_of(
    st.sampled_from(WHOLE), st.sampled_from(FLOATS), st.sampled_from(WORDS[:-1]), st.booleans()
)
STRINGS = st.sampled_from([*WORDS[:-1], "g", "/a", "h/a", "k/", "%a%", "_", "g%/_", "\\%", "float"])
FIELDS = st.sampled_from(
    [*KEYS, *KEYS, *KEYS, "never", "t.x", "name.x", "date.y", *(f"group.{key}" for key in KEYS[:3])]
    + [f"@{name}" for name in ("name", "path", "group", "dtype", "shape", "owner", "scope")]
    + [f"@{name}" for name in ("ndim", "size", "nbytes", "created", "modified")]
)


def _with_instants(asked: Condition) -> Condition:
    """Give the test with instants alone where another literal is refused."""
    if isinstance(asked, Test) and asked.field in {"@created", "@modified"}:
        dates = (*DATES[:3], "1000", "2500-09")
        found = [
            value if value in dates else dates[n % 5] for n, value in enumerate(asked.literals)
        ]
        word = "<" if asked.operator in {"startswith", "endswith", "like"} else asked.operator
        return Test(asked.field, word, tuple(found))
    return asked


def _denied(asked: Condition) -> Condition:
    """Give the test with "not" within, where the language has that."""
    if isinstance(asked, Test) and asked.operator in _DENIABLE:
        return Denied(asked)
    return asked


TESTS: SearchStrategy[Condition] = st.one_of(
    st.builds(
        lambda field, op, literal: Test(field, op, (literal,)),
        FIELDS,
        st.sampled_from(["=", "!=", "<", "<=", ">", ">=", "contains"]),
        LITERALS | STRINGS,
    ),
    st.builds(
        lambda field, op, literal: Test(field, op, (literal,)),
        FIELDS,
        st.sampled_from(["contains", "startswith", "endswith", "like"]),
        STRINGS,
    ),
    st.builds(lambda field, *two: Test(field, "between", two), FIELDS, LITERALS, LITERALS),
    st.builds(
        lambda field, some: Test(field, "in", tuple(some)),
        FIELDS,
        st.lists(LITERALS, min_size=1, max_size=4),
    ),
    FIELDS.map(lambda field: Test(field, "exists")),
    st.builds(Null, FIELDS, st.booleans()),
    st.sampled_from(["g", "h", "/g", "g/h", "/k", "nowhere", "g 2"]).map(Under),
).map(_with_instants)
_DENIABLE = {"in", "between", "like", "contains", "startswith", "endswith"}
CONDITIONS: SearchStrategy[Condition] = st.just(Every()) | st.recursive(
    TESTS | TESTS.map(_denied),
    lambda inner: st.one_of(
        inner.map(Not),
        st.builds(
            lambda word, parts: Both(word, tuple(parts)),
            st.sampled_from(["and", "or"]),
            st.lists(inner, min_size=2, max_size=3),
        ),
    ),
    max_leaves=6,
)
ORDERS = st.lists(st.tuples(FIELDS, st.booleans()), max_size=2).map(tuple)
QUESTION = st.tuples(
    CONDITIONS, st.sampled_from(["", "", "g"]), ORDERS, st.none() | st.integers(0, 4)
)
QUESTIONS = st.lists(QUESTION, min_size=1, max_size=8)
POLICIES = st.sampled_from(["fixed", "dynamic"])

_numbers = itertools.count()


class _Other:
    """Another process, which does what it is told; what it verifies has to be without problems."""

    def __init__(self) -> None:
        script = Path(__file__).with_name("query_work.py")
        self._words = [sys.executable, str(script), "serve"]
        self._child = self._begin()

    def _begin(self) -> subprocess.Popen[bytes]:
        return subprocess.Popen(self._words, stdin=subprocess.PIPE, stdout=subprocess.PIPE)

    def __call__(self, path: str, step: Work | None) -> None:
        if self._child.poll() is not None:  # the example before this has killed it
            self._child = self._begin()
        assert self._child.stdin is not None
        assert self._child.stdout is not None
        pickle.dump((path, step), self._child.stdin)
        self._child.stdin.flush()
        assert self._child.stdout.readline() == b"[]\n"

    def end(self) -> None:
        self._child.communicate()
        assert self._child.returncode == 0


@pytest.fixture(scope="module")
def other() -> Iterator[_Other]:
    """Give another process, for all tests of this module."""
    made = _Other()
    yield made
    made.end()


def check(pool: engram.Pool, questions: list[Any], *, drained: bool = False) -> None:
    """Compare the engine's answers to brute force's."""
    things = oracle.things(pool)
    for condition, root, order, limit in questions:
        group = pool.get(root) if root else pool
        if not isinstance(group, engram.Group):
            continue
        expected = oracle.answer(things, condition, root, order)
        order_by = ", ".join(
            oracle.written(field) + (" desc" if descending else "") for field, descending in order
        )
        text = str(condition)
        asked: dict[str, Any] = {"order_by": order_by or None}
        result = group.query(text, **asked)
        told = f"{text!r} below {root!r} by {order_by!r}"
        assert result.oids().tolist() == expected, told
        assert group.query(text, threads=3, **asked).oids().tolist() == expected, told
        assert group.query(text).count() == len(expected), told
        keys = oracle.attribute_counts(things, expected)
        assert group.query(text).attribute_keys() == keys, told
        assert result.attribute_keys() == keys, told
        assert group.query(text).count_attributes() == sum(keys.values()), told
        paths = {thing.oid: oracle.text_of(thing, "@path") for thing in things}
        assert result.paths() == [paths[oid] for oid in expected], told
        assert [member.path for member in result] == result.paths(), told
        some = group.query(text, limit=limit, **asked).oids().tolist()
        if limit is not None:
            assert len(some) == min(limit, len(expected)), told
        if order:
            assert some == expected[:limit], told
            later = group.query(text, limit=limit, offset=2, **asked).oids().tolist()
            assert later == expected[2:][:limit], told
        else:
            assert set(some) <= set(expected), told
        _check_figures(group, things, condition, root, order)
        _check_columns(result, [field for field, _ in order], things, expected)
        if drained:
            assert group.query(text, consistency="eventual").oids().tolist() == sorted(expected)


def _check_figures(
    group: engram.Group,
    things: list[oracle.Thing],
    condition: Condition,
    root: str,
    order: tuple[tuple[str, bool], ...],
) -> None:
    """Compare figures, grouped by what an order is by."""
    by = tuple(dict.fromkeys(field for field, _ in order))
    if "@owner" in by:
        return
    expected = oracle.figures(things, condition, root, by, "t")
    grouped = f"group by {', '.join(map(oracle.written, by))}" if by else ""
    where = f"where {condition}" if str(condition) else ""
    text = f"count(), count(t), mean(t) {where} {grouped}"
    if expected is None:
        with pytest.raises(engram.QueryError):
            group.aggregate(text)
        return
    found = group.aggregate(text)
    assert len(found) == len(expected), text
    rows = sorted((count, there) for count, there, _ in expected.values())
    assert sorted(row[len(by) : len(by) + 2] for row in found) == rows, text
    assert list(group.aggregate(text, threads=3)) == list(found) or "nan" in repr(list(found))
    means = [mean for _, _, mean in expected.values()]
    told = [row[-1] for row in found]
    key = lambda mean: (mean is None, str(mean) == "nan", mean or 0.0)  # noqa: E731
    for mine, theirs in zip(sorted(told, key=key), sorted(means, key=key), strict=True):
        assert mine == theirs or mine == pytest.approx(theirs, rel=1e-12, nan_ok=True), text


def _check_columns(
    result: engram.QueryResult, fields: list[str], things: list[oracle.Thing], expected: list[int]
) -> None:
    """Compare columns of a result to what its objects say."""
    by_oid = {thing.oid: thing for thing in things}
    names = [*dict.fromkeys(["t", "@path", "@nbytes", *fields])]
    names = [name for name in names if "." not in name and name not in {"@modified", "@created"}]
    columns = result.to_numpy([oracle.written(name) for name in names])
    members = list(result)
    for name in names:
        column = columns[oracle.written(name)]
        missing = np.ma.getmaskarray(column).tolist()
        values = np.ma.getdata(column)
        for place, oid in enumerate(expected):
            if name.startswith("@"):
                (item, *_) = by_oid[oid].fields[name]
                assert isinstance(item, oracle.Item)
                assert values[place] == item.value, name
                continue
            stored = members[place].attrs.get(name)
            assert missing[place] == (stored is None), name
            if stored is not None:
                assert _is_same(values[place], stored), (name, values[place], stored)


def _is_same(one: Any, other: Any) -> bool:
    one, other = np.asarray(one), np.asarray(other)
    if one.dtype.names or other.dtype.names:
        return bool(one.shape == other.shape and one.tolist() == other.tolist())
    same = one == other
    if one.dtype.kind == other.dtype.kind and one.dtype.kind in "fcmM":
        unset = np.isnat if one.dtype.kind in "mM" else np.isnan
        same = same | (unset(one) & unset(other))
    return bool(np.all(same))


def _pool(home: Path, policy: str) -> engram.Pool:
    path = home / f"any-{next(_numbers)}"
    settings: Any = {"index_policy": policy, "segment_rows": 8, "tail_rows": 3}
    return engram.create(path, size="64 MiB", force=True, **settings)


@settings(max_examples=120)
@given(history=HISTORY, questions=QUESTIONS, policy=POLICIES)
def test_what_is_found_is_what_brute_force_finds(
    home: Path, other: _Other, history: list[Work], questions: list[Any], policy: str
) -> None:
    with _pool(home, policy) as pool:
        for step in history:
            work(pool, step)
        check(pool, questions)
        pool.drain_index()
        check(pool, questions, drained=True)
    other(pool.path, VERIFY)
    engram.destroy(pool.path)


@settings(max_examples=60)
@given(before=HISTORY, inside=HISTORY, questions=QUESTIONS)
def test_a_batch_finds_what_it_has_changed(
    home: Path, before: list[Work], inside: list[Work], questions: list[Any]
) -> None:
    with _pool(home, "dynamic") as pool:
        for step in before:
            work(pool, step)
        with pool.batch():
            for step in inside:
                if step[0] not in {"drain", "settings", "reindex"}:
                    work(pool, step)
            check(pool, questions)
        check(pool, questions)
    engram.destroy(pool.path)


@settings(max_examples=60)
@given(
    history=st.lists(st.tuples(st.booleans(), STEP), min_size=1, max_size=25), questions=QUESTIONS
)
def test_what_another_process_did_is_found_too(
    home: Path, other: _Other, history: list[tuple[bool, Work]], questions: list[Any]
) -> None:
    with _pool(home, "dynamic") as pool:
        for is_theirs, step in history:
            if is_theirs:
                other(pool.path, step)
            else:
                work(pool, step)
        check(pool, questions)
        other(pool.path, None)
    other(pool.path, VERIFY)
    engram.destroy(pool.path)


def test_a_process_killed_at_any_moment_leaves_an_index_that_finds_everything(home: Path) -> None:
    questions = [
        (Test("t", "<", (0,)), "", (), None),
        (Test("seq", ">=", (10,)), "g", (("seq", True),), 3),
        (Both("and", (Test("name", "contains", ("x",)), Test("rare", "exists"))), "", (), None),
        (Not(Test("place", "in", (1, 2, 3))), "", (("@path", False),), None),
        (Both("or", (Under("g/h"), Test("@path", "like", ("k/%",)))), "", (), 2),
    ]
    with _pool(home, "dynamic") as pool, _pool(home, "fixed") as shadow:
        for seed in range(12):
            acknowledged = _killed(pool.path, seed)
            chance = random.Random(seed)  # noqa: S311 - the steps that the child has done
            for number in range(acknowledged):
                work(shadow, random_step(chance, number))
            if _state(shadow) != _state(pool):  # killed between a commit and saying so
                work(shadow, random_step(chance, acknowledged))
            assert _state(shadow) == _state(pool)
            check(pool, questions)
            report = engram.verify(pool.path)
            assert report, report


def _state(pool: engram.Pool) -> dict[str, dict[str, str]]:
    return {
        oracle.text_of(thing, "@path"): {
            key: repr(value) for key, value in thing.fields.items() if not key.startswith("@")
        }
        for thing in oracle.things(pool)
    }


def _killed(path: str, seed: int) -> int:
    """Let a process change a pool until it is killed; give how many steps it acknowledged."""
    script = Path(__file__).with_name("query_work.py")
    least = 20 + 37 * seed
    with subprocess.Popen(
        [sys.executable, str(script), "loop", path, str(seed)], stdout=subprocess.PIPE
    ) as child:
        assert child.stdout is not None
        for _ in range(least):
            assert child.stdout.readline()
        child.kill()
        return least + len(child.stdout.read().splitlines())
