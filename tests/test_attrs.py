"""Attributes keep any value exactly, on groups, arrays and blobs."""

from collections.abc import MutableMapping
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from numpy.typing import NDArray

import engram
from support import DTYPES, TEXT, assert_dtypes_alike, assert_exactly, filled


@pytest.fixture(params=["group", "array", "blob", "pool"])
def owner(request: pytest.FixtureRequest, pool: engram.Pool) -> Any:
    """Give each thing that has attributes."""
    pool["array"] = np.zeros(1000)
    pool["blob"] = b"123"
    pool.create_group("group")
    return pool if request.param == "pool" else pool[request.param]


@pytest.mark.parametrize("shape", [(1,), (0,), (2, 3), (2, 0)], ids=str)
@pytest.mark.parametrize("dtype", DTYPES, ids=str)
def test_arrays_of_every_dtype_come_back_exactly(
    pool: engram.Pool, dtype: np.dtype[Any], shape: tuple[int, ...]
) -> None:
    value = filled(dtype, shape)
    pool.attrs["a"] = value
    found = pool.attrs["a"]
    assert isinstance(found, np.ndarray)
    assert_exactly(found, value)
    assert found.flags.writeable


@pytest.mark.parametrize("dtype", DTYPES, ids=str)
def test_single_values_of_every_dtype_come_back_exactly(
    pool: engram.Pool, dtype: np.dtype[Any]
) -> None:
    value = filled(dtype, ())
    pool.attrs["a"] = value
    assert_alike(pool.attrs["a"], value)
    pool.attrs["a"] = value[()]
    assert_alike(pool.attrs["a"], np.asarray(value[()]))


def assert_alike(found: Any, expected: NDArray[Any]) -> None:
    """Check dtype, shape and value; numpy's scalars do not keep the padding between fields."""
    found = np.asarray(found)
    assert_dtypes_alike(found.dtype, expected.dtype)
    assert found.shape == expected.shape
    assert found.tobytes() == expected.tobytes() or repr(found) == repr(expected)


CASES: list[tuple[Any, type]] = [
    ("text", str),
    ("", str),
    ("nul\0 and ünï \U0001f30d\0", str),
    (b"bytes", np.bytes_),
    (b"", np.bytes_),
    (b"zeros\0\0", np.bytes_),
    (np.bytes_(b"n\0"), np.bytes_),
    (np.str_("ünï\0"), np.str_),
    (np.str_(""), np.str_),
    (5, np.int64),
    (2.5, np.float64),
    (True, np.bool_),
    (1 + 2j, np.complex128),
    (np.float16(1.5), np.float16),
    (np.uint8(7), np.uint8),
    (np.longdouble("1.1"), np.longdouble),
    (np.datetime64("2024-02-29T12", "h"), np.datetime64),
    (np.timedelta64(5, "ms"), np.timedelta64),
    (np.datetime64("NaT"), np.datetime64),
]


@pytest.mark.parametrize(("value", "kind"), CASES, ids=repr)
def test_scalars_come_back_as_their_kind(owner: Any, value: Any, kind: type) -> None:
    owner.attrs["a"] = value
    found = owner.attrs["a"]
    assert type(found) is kind
    assert found == value or np.isnat(value)
    if isinstance(value, np.generic):
        assert np.asarray(found).dtype == np.asarray(value).dtype or value.dtype.kind in "SU"


def test_sequences_come_back_as_arrays(owner: Any) -> None:
    for value in ([1, 2], [[1.5], [2]], ["a", "bcd"], (True, False), [b"x", b"yz"]):
        owner.attrs["a"] = value
        assert_exactly(owner.attrs["a"], np.asarray(value))
    owner.attrs["a"] = np.array(["a", "variable ünï", ""], TEXT)
    assert_exactly(owner.attrs["a"], np.array(["a", "variable ünï", ""], TEXT))
    owner.attrs["a"] = np.array([["a"], ["b"]], object)
    assert_exactly(owner.attrs["a"], np.array([["a"], ["b"]], TEXT))


@pytest.mark.parametrize("shape", [(2, 3), (50, 60)])
def test_strided_values_are_kept_in_order(owner: Any, shape: tuple[int, int]) -> None:
    value = np.arange(shape[0] * shape[1]).reshape(shape).T[::-1]
    owner.attrs["a"] = value
    assert_exactly(owner.attrs["a"], np.ascontiguousarray(value))


def test_large_attributes_are_kept(owner: Any) -> None:
    value = np.arange(100_000)
    owner.attrs["a"] = value
    owner.attrs["b"] = 1
    assert_exactly(owner.attrs["a"], value)


def test_attributes_are_a_mutable_mapping(owner: Any) -> None:
    attrs = owner.attrs
    assert isinstance(attrs, MutableMapping)
    attrs.update({"b": 2, "a": 1}, c="three")
    assert list(attrs) == ["a", "b", "c"]
    assert len(attrs) == 3
    assert "a" in attrs
    assert 5 not in attrs
    assert dict(attrs) == {"a": 1, "b": 2, "c": "three"}
    assert dict(attrs.items()) == dict(attrs)
    assert list(attrs.values()) == [1, 2, "three"]
    assert attrs == {"a": 1, "b": 2, "c": "three"}
    assert attrs.get("x", 9) == 9
    assert attrs.pop("a") == 1
    assert attrs.setdefault("d", 4) == 4
    del attrs["b"]
    assert repr(attrs) == "{'c': 'three', 'd': np.int64(4)}"
    attrs.clear()
    assert dict(owner.attrs) == {}


def test_names_iterate_in_byte_order(owner: Any) -> None:
    names = ["b", "B", "é", "a b", "10", "9", "￿", "\U0001f30d"]
    owner.attrs.update(dict.fromkeys(names, 1))
    assert list(owner.attrs) == sorted(names, key=str.encode)


def test_setting_again_replaces_value_and_kind(owner: Any) -> None:
    for value in (1, "text", [1.5, 2.5], b"x"):
        owner.attrs["a"] = value
    assert owner.attrs["a"] == b"x"
    assert len(owner.attrs) == 1


def test_a_missing_attribute_is_a_named_error(owner: Any) -> None:
    owner.attrs["there"] = 1
    with pytest.raises(engram.NotFoundError, match=r"'missing'.*'there'"):
        owner.attrs["missing"]
    with pytest.raises(engram.NotFoundError):
        del owner.attrs["missing"]
    with pytest.raises(KeyError):
        owner.attrs["missing"]
    assert "missing" not in owner.attrs


@pytest.mark.parametrize(
    "value",
    [None, {1: 2}, object(), [object()], {1}, lambda: 0, 2**70, "\ud800"],
    ids=lambda value: repr(value).partition(" at 0x")[0],
)
def test_a_value_that_no_array_can_have_is_refused(owner: Any, value: Any) -> None:
    with pytest.raises(engram.ArgumentError, match=r"attribute 'a(\.0)?'"):
        owner.attrs["a"] = value
    with pytest.raises(engram.ArgumentError):
        owner.attrs.update({"b": 1, "a": value})
    assert dict(owner.attrs) == {}


@pytest.mark.parametrize("name", ["", "x" * 256, "nul\0"], ids=ascii)
def test_bad_names_are_refused(owner: Any, name: str) -> None:
    with pytest.raises(engram.InvalidNameError):
        owner.attrs[name] = 1
    assert dict(owner.attrs) == {}


def test_a_name_is_a_str(owner: Any) -> None:
    with pytest.raises(engram.ArgumentError):
        owner.attrs[5] = 1
    with pytest.raises(engram.ArgumentError):
        owner.attrs[5]


def test_slashes_and_dots_are_no_paths_here(owner: Any) -> None:
    owner.attrs["a/b"] = 1
    owner.attrs["."] = 2
    assert dict(owner.attrs) == {"a/b": 1, ".": 2}


def test_attributes_are_given_on_creation(pool: engram.Pool) -> None:
    attrs = {"unit": "K", "range": [1, 2], "n": np.int8(3)}
    group = pool.create_group("g", attrs=attrs)
    array = group.create_array("x", data=1, attrs=attrs)
    blob = group.create_blob("b", b"", attrs=attrs)
    copied = group.create_array("y", data=1, attrs=array.attrs)
    for made in (group, array, blob, copied):
        assert made.attrs["unit"] == "K"
        assert made.attrs["range"].tolist() == [1, 2]
        assert made.attrs["n"].dtype == np.int8
        assert len(made.attrs) == 3


def test_attributes_of_what_is_gone_are_not_found(pool: engram.Pool) -> None:
    array = pool.create_array("x", data=1, attrs={"a": 1})
    attrs = array.attrs
    del pool["x"]
    for call in (lambda: attrs["a"], lambda: list(attrs), lambda: attrs.update(a=1)):
        with pytest.raises(engram.NotFoundError):
            call()
    assert "gone" in repr(attrs)


def test_attributes_do_not_touch_values_or_views(pool: engram.Pool) -> None:
    array = pool.create_array("x", data=np.arange(1000))
    view = array.view()
    array.attrs["a"] = "b" * 10_000
    assert np.shares_memory(view, array.view())
    assert_exactly(array[...], np.arange(1000))


_VALUES = st.one_of(
    st.text(max_size=20),
    st.binary(max_size=20),
    st.integers(-(2**63), 2**63 - 1),
    st.floats(allow_nan=False),
    st.booleans(),
)


@given(
    attrs=st.dictionaries(
        st.text(st.characters(exclude_characters="\0", codec="utf-8"), min_size=1, max_size=60),
        _VALUES,
        max_size=6,
    )
)
def test_any_attributes_come_back(pool: engram.Pool, attrs: dict[str, Any]) -> None:
    group = pool.require_group("g")
    group.attrs.clear()
    group.attrs.update(attrs)
    assert dict(group.attrs) == attrs
