"""Times of any year: they come back equal, or are refused by name, wherever they are stored."""

from __future__ import annotations

import datetime as dt
from typing import TYPE_CHECKING, Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

import engram
from engram import times

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

UNITS = ("Y", "M", "W", "D", "h", "m", "s", "ms", "us", "ns", "ps", "fs", "as")
KEPT = [
    dt.datetime(1969, 7, 20, 20, 17, 40, 123456),  # noqa: DTZ001 - as numpy's
    dt.datetime(1, 1, 1),  # noqa: DTZ001
    dt.datetime(9999, 12, 31, 23, 59, 59, 999999),  # noqa: DTZ001
    dt.date(2500, 2, 28),
    dt.date(1, 1, 1),
    dt.timedelta(days=-200_000),
    np.array(["1500-01-01", "1969-12-31T23:59:59", "2600-01-01", "NaT"], "M8[s]"),
    np.array([-5, 5], ">M8[ns]"),
    [dt.date(2500, 1, 1), dt.date(1960, 1, 1)],
    [np.datetime64("1960-01-01", "D"), np.datetime64(-1, "ns")],
    *(
        np.array(count, "i8").view(f"{kind}8[{unit}]")[()]
        for kind in "Mm"
        for unit in UNITS
        for count in (-5, 2**63 - 1, 1 - 2**63)
    ),
]
FAR = [
    np.datetime64("2262-04-12"),
    np.datetime64("1677-09-21"),
    np.datetime64("2500-01", "M"),
    np.datetime64(2**62, "Y"),
    np.datetime64("2262-04-11T23:47:16.854776", "us"),
    dt.datetime(2500, 1, 1),  # noqa: DTZ001
    dt.date(1500, 1, 1),
    "2500-01-01",
    [dt.date(1999, 1, 1), dt.date(1500, 1, 1)],
    np.array(["1999-01-01", "1500-01-01"], "M8[s]"),
]
"""What datetime64[ns] cannot hold."""


@pytest.fixture
def pool(home: Path) -> Iterator[engram.Pool]:
    """Make a pool with an array of times in one piece, and one in chunks."""
    with engram.create(home / "p", size="16 MiB") as made:
        made["ns"] = np.zeros(2, "M8[ns]")
        made.create_array("chunked", shape=(2,), dtype="M8[ns]", chunks=(1,))
        yield made


def same(one: Any, other: Any) -> bool:
    """Whether two hold the same times, NaT where the other has it."""
    one, other = np.asarray(one), np.asarray(other)
    return bool(((one == other) | (np.isnat(one) & np.isnat(other))).all())


@pytest.mark.parametrize("value", KEPT, ids=repr)
def test_times_of_any_year_come_back_equal(pool: engram.Pool, value: Any) -> None:
    pool.create_array("x", data=value, attrs={"when": value})
    plain = np.asarray(value)
    if plain.dtype.kind == "O":
        plain = plain.astype("m8" if isinstance(plain.flat[0], dt.timedelta) else "M8")
    assert same(pool["x"][...], plain)
    assert same(pool["x"].attrs["when"], plain)


@pytest.mark.parametrize("far", FAR, ids=repr)
def test_what_a_dtype_cannot_hold_is_refused_by_its_value(pool: engram.Pool, far: Any) -> None:
    many = np.ndim(far) > 0
    shown = "1500-01-01" if many else str(np.asarray(far, "M8"))
    for name in ("ns", "chunked"):
        array = pool[name]
        with pytest.raises(engram.ArgumentError, match="cannot hold") as refused:
            array[:] = far
        assert shown[:4] in str(refused.value)
        if not many:
            with pytest.raises(engram.ArgumentError, match=r"2262-04-11T23:47:16\.854775807"):
                array[0] = far
        assert (array[...] == np.datetime64(0, "ns")).all(), "nothing was written"
    with pytest.raises(engram.ArgumentError, match="cannot hold"):
        pool["chunked"].append(far if many else [far])
    with pytest.raises(engram.ArgumentError, match="coarser unit"):
        pool.create_array("new", data=far, dtype="M8[ns]")
    assert "new" not in pool


def test_what_numpy_would_unite_by_wrapping_is_refused(pool: engram.Pool) -> None:
    mixed = [np.datetime64("2500-01-01"), np.datetime64(1, "ns")]
    for value in (mixed, dt.timedelta.max, [dt.timedelta.min]):
        with pytest.raises(engram.ArgumentError, match="cannot hold"):
            pool["new"] = value
    with pytest.raises(engram.ArgumentError, match="cannot hold"):
        pool.attrs["when"] = dt.timedelta.max
    with pytest.raises(engram.ArgumentError, match=r"'when\.0'.*timedelta"):
        pool.attrs["when"] = [dt.timedelta.min]
    pool.attrs["when"] = mixed  # a tree, whose items have units of their own
    assert pool.attrs["when"] == mixed
    assert [item.dtype for item in pool.attrs["when"]] == ["M8[D]", "M8[ns]"]
    fields = np.zeros(2, [("t", "M8[ns]"), ("x", "f8")])
    pool["table"] = fields
    coarse = np.zeros(2, [("t", "M8[D]"), ("x", "f8")])
    coarse["t"] = "2500-01-01"
    with pytest.raises(engram.ArgumentError, match=r"field 't'.*2500-01-01"):
        pool["table"][:] = coarse
    with pytest.raises(engram.ArgumentError, match="2500-01-01"):
        pool["table"]["t"] = coarse["t"]
    # numpy goes by place: names, tuples and single records make no difference.
    renamed = coarse.view([("when", "M8[D]"), ("y", "f8")])
    far = np.datetime64("2500-01-01", "D")
    for record in (renamed, [(far, 1.0), (far, 2.0)], coarse[0], (far, 1.0)):
        with pytest.raises(engram.ArgumentError, match=r"field 't'.*2500-01-01"):
            pool["table"][0:1] = record
    pool["table"][0] = (np.datetime64("2000-01-01", "D"), 3.0)
    assert pool["table"][0]["t"] == np.datetime64("2000-01-01")


def test_what_fits_after_conversion_is_stored(pool: engram.Pool) -> None:
    for value in ("2262-04-11", np.datetime64("1678", "Y"), dt.date(1960, 5, 17), "NaT"):
        for name in ("ns", "chunked"):
            pool[name][0] = value
            assert same(pool[name][0], np.datetime64(value).astype("M8[ns]"))
    assert str(pool.create_array("d", data="2500-01-01T11:12", dtype="M8[D]")[...]) == "2500-01-01"


@given(st.sampled_from(UNITS), st.sampled_from(UNITS), st.integers(1, 9), st.data())
def test_exactly_what_numpy_wraps_is_refused(
    unit: str, to: str, count: int, data: st.DataObject
) -> None:
    size = data.draw(st.integers(0, 63))
    number = data.draw(st.integers(-(2**size) + 1, 2**size - 1))
    value = np.array(number, "i8").view(f"M8[{count}{unit}]")
    target = np.dtype(f"M8[{to}]")
    try:
        times.check("it", value, target)
        refused = False
    except engram.ArgumentError:
        refused = True
    if np.can_cast(value.dtype, target, "safe"):
        # Into finer steps: what has wrapped does not come back.
        try:
            back = value.astype(target).astype(value.dtype)
        except OverflowError:  # numpy itself refuses: it finds no factor between the units
            return
        # (Years and months begin within weeks: numpy calls that safe, and rounds.)
        rounded = to == "W" and unit in "YM"
        assert refused == (np.isnat(back) or back != value) or (rounded and not refused)
    elif to not in "YM":
        # A step of several units may be longer than the one that it is converted to.
        length = times._LENGTHS
        assert not refused or unit in "YM" or count * length[unit] > length[to]


@pytest.mark.parametrize(
    "when",
    [
        dt.datetime(2500, 1, 1),  # noqa: DTZ001
        dt.datetime(1, 1, 1),  # noqa: DTZ001
        dt.date(1969, 12, 31),
        np.datetime64("-0044-03-15"),
        np.datetime64("12000-01-01"),
        np.datetime64(2**62, "s"),
        np.datetime64(-1, "ns"),
    ],
    ids=repr,
)
def test_queries_find_times_of_any_year(pool: engram.Pool, when: Any) -> None:
    pool.create_array("x", data=1.0, attrs={"when": when})
    key = engram.attr("when")
    found = [len(pool.query(each)) for each in (key == when, key >= when, key < when, key > when)]
    assert found == [1, 1, 0, 0]
    assert len(pool.query((key < dt.date(1970, 1, 1)) | (key > dt.date(1970, 1, 1)))) == 1
