"""What is put comes back equal, or is refused with what to do: values, and attributes."""

from __future__ import annotations

import datetime as dt
import decimal
from typing import TYPE_CHECKING, Any

import numpy as np
import pandas as pd
import pytest
import xarray as xr

import engram
from support import TEXT

if TYPE_CHECKING:
    from collections.abc import Callable

ZONED = dt.datetime(2020, 1, 1, tzinfo=dt.UTC)
REFUSED: dict[str, tuple[Any, str]] = {
    "a number among strings": ([1, "a"], r"strings beside 1, of type int"),
    "a string among truths": ([True, "a"], r"strings beside True"),
    "a number among bytes": ([b"a", 1], r"strings beside 1"),
    "bytes among strings": (["a", b"b"], r"strings beside b'b'"),
    "a number in a nested list": ([["a"], [2.5]], r"strings beside 2\.5"),
    "a number of an array among strings": ([np.array(["a"]), np.array([1])], "strings beside"),
    "zeros at a string's end": (["a\0"], "drops zeros"),
    "zeros at the end of bytes": ([b"ab", b"a\0"], "drops zeros"),
    "a whole number that no float is": ([0.5, 2**53 + 1], r"9007199254740993 among numbers"),
    "whole numbers of both signs": ([-1, 2**63 + 1], "among numbers"),
    "a dict": ({"a": 1}, r"type dict.*json\.dumps"),
    "dicts": ([{"a": 1}], "item 0 of it is of type dict"),
    "a set": ({1, 2}, r"sorted\(\.\.\.\)"),
    "a decimal": (decimal.Decimal("0.1"), r"float\(\.\.\.\) or str"),
    "a time of a zone": (ZONED, "have no zone"),
    "times of a zone": ([ZONED], "have no zone"),
    "masked values": (np.ma.masked_array([1, 2], mask=[False, True]), "filled"),
    "a series": (pd.Series([1, 2]), "pandas Series.*to_frame.*with its index"),
    "a series of one's own class": (
        type("Column", (pd.Series,), {})([1, 2], index=["a", "b"]),
        "Column.*to_frame.*with its index",
    ),
    "an index": (pd.Index([1, 2]), "pandas Index.*to_frame"),
    "a categorical": (pd.Categorical(["a"]), "pandas Categorical.*to_numpy"),
    "an extension array": (pd.array([1, None]), "pandas IntegerArray.*to_numpy"),
    "a timestamp": (pd.Timestamp(2020, 1, 1), "pandas Timestamp.*to_numpy"),
}
TREES = [
    "a number among strings",
    "a string among truths",
    "a number among bytes",
    "bytes among strings",
    "a number in a nested list",
    "zeros at the end of bytes",
    "a whole number that no float is",
    "whole numbers of both signs",
    "a dict",
    "dicts",
]
"""What no array can hold, and an attribute keeps as a tree."""
MIXED = [*TREES, "a number of an array among strings"]
KEPT: dict[str, Any] = {
    "truths and numbers": [True, 2],
    "numbers": [1, 2.5, 2**53],
    "a large number among floats": [0.5, 2**60],
    "unsigned": [2**64 - 1],
    "strings": ["a", "bc", ""],
    "nested strings": [["a", "b"], ("c", "d")],
    "bytes": [b"a", b"bc"],
    "complex": [1, 2j],
    "nothing": [],
    "a range": range(3),
    "no mask": np.ma.masked_array([1, 2]),
    "zeros within": ["a\0b"],
    "variable strings with zeros": np.array(["a\0"], TEXT),
    "times": [dt.datetime.fromisoformat("2020-01-01"), dt.datetime.fromisoformat("2021-01-01")],
    "scalars of numpy": [np.float32(1), np.int8(2)],
}


def ways(pool: engram.Pool) -> dict[str, Callable[[Any], Any]]:
    """Return each way in: it puts a value, and gives what comes back."""

    def attribute(value: Any) -> Any:
        pool.attrs["x"] = value
        return pool.attrs["x"]

    def created(value: Any) -> Any:
        return pool.create_array("x", data=value, overwrite=True)[...]

    def among(value: Any) -> Any:
        pool.create_array("x", data=[1], attrs={"y": value}, overwrite=True)
        return pool["x"].attrs["y"]

    def put(value: Any) -> Any:
        pool["x"] = value
        return pool["x"][...]

    def batched(value: Any) -> Any:
        with pool.batch():
            pool["x"] = value
        return pool["x"][...]

    return {"attribute": attribute, "put": put, "created": created, "among": among, "b": batched}


@pytest.mark.parametrize(
    ("name", "way"),
    [
        (name, way)
        for name in REFUSED
        for way in ("attribute", "put", "created", "among", "b")
        if name not in MIXED or way not in {"attribute", "among"}
    ],
)
def test_what_would_change_is_refused(pool: engram.Pool, name: str, way: str) -> None:
    value, said = REFUSED[name]
    with pytest.raises(engram.ArgumentError, match=said):
        ways(pool)[way](value)
    assert "x" not in pool
    assert not pool.attrs


@pytest.mark.parametrize("way", ["attribute", "among"])
@pytest.mark.parametrize("name", TREES)
def test_what_no_array_can_hold_is_a_tree_in_attributes(
    pool: engram.Pool, name: str, way: str
) -> None:
    value, _ = REFUSED[name]
    back = ways(pool)[way](value)
    assert back == value
    assert repr(back) == repr(value)  # True is no 1, and 1 no 1.0


@pytest.mark.parametrize("way", ["attribute", "among"])
def test_a_tree_keeps_arrays_of_different_kinds(pool: engram.Pool, way: str) -> None:
    text, number = ways(pool)[way]([np.array(["a"]), np.array([1])])
    assert (text.dtype, text.tolist()) == (np.dtype("U1"), ["a"])
    assert (number.dtype, number.tolist()) == (np.dtype(int), [1])


@pytest.mark.parametrize("way", ["attribute", "put", "created", "among", "b"])
@pytest.mark.parametrize("name", KEPT)
def test_all_else_comes_back_equal(pool: engram.Pool, name: str, way: str) -> None:
    value = KEPT[name]
    np.testing.assert_array_equal(ways(pool)[way](value), np.asarray(value))


def test_a_dtype_that_is_asked_for_is_what_comes(pool: engram.Pool) -> None:
    mixed: Any = [1, "a"]
    assert pool.create_array("x", data=mixed, dtype="U2")[...].tolist() == ["1", "a"]
    assert pool.create_array("y", data=pd.Series([1, 2]), dtype="f4")[...].tolist() == [1, 2]


def test_labelled_arrays_are_no_attributes(pool: engram.Pool) -> None:
    with pytest.raises(engram.ArgumentError, match="xarray DataArray"):
        pool.attrs["x"] = xr.DataArray([1, 2], dims="x")
    with pytest.raises(engram.ArgumentError, match=r"group\[name\] = data"):
        pool.create_array("x", data=xr.DataArray([1, 2], dims="x"))


def test_bytes_keep_their_zeros(pool: engram.Pool) -> None:
    pool.attrs["x"] = b"a\0\0"
    assert bytes(pool.attrs["x"]) == b"a\0\0"
