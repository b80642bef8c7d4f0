"""Arrays keep every dtype and value exactly, and index as numpy does."""

import copy
import pickle
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

import numpy as np
import pandas as pd
import pytest
import xarray as xr
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra import numpy as hnp

import engram
from support import DTYPES, TEXT, assert_dtypes_alike, assert_exactly, filled

if TYPE_CHECKING:
    from numpy.typing import NDArray

SHAPES = [(), (0,), (1,), (7,), (2, 0, 3), (2, 3, 4)]
LARGE = (3000,)


@pytest.mark.parametrize("shape", [*SHAPES, LARGE], ids=str)
@pytest.mark.parametrize("dtype", DTYPES, ids=str)
def test_every_dtype_and_shape_comes_back_exactly(
    pool: engram.Pool, dtype: np.dtype[Any], shape: tuple[int, ...]
) -> None:
    data = filled(dtype, shape)
    made = pool.create_array("a", data=data)
    found = pool["a"]
    assert isinstance(found, engram.Array)
    for array in (made, found):
        assert_dtypes_alike(array.dtype, data.dtype)
        assert array.shape == shape
        assert array.nbytes == data.nbytes
        assert_exactly(array[...], data)
        assert_exactly(np.asarray(array), data)
        assert_exactly(array.view(), data)


@pytest.mark.parametrize("dtype", DTYPES, ids=str)
def test_every_dtype_survives_closing_the_pool(pool: engram.Pool, dtype: np.dtype[Any]) -> None:
    data = filled(dtype, (5,))
    pool["a"] = data
    path = pool.path
    pool.close()
    with engram.open(path, "r") as again:
        assert_exactly(again["a"][...], data)


@pytest.mark.parametrize("shape", SHAPES, ids=str)
def test_strings_of_variable_length_come_back_exactly(
    pool: engram.Pool, shape: tuple[int, ...]
) -> None:
    words = ["", "a", "ünï", "x" * 5000, "\U0001f30d", "nul\0inside"]
    flat = [words[i % len(words)] for i in range(int(np.prod(shape, dtype=int)))]
    data = np.array(flat, dtype=TEXT).reshape(shape)
    pool["text"] = data
    pool["objects"] = data.astype(object)
    for name in ("text", "objects"):
        assert pool[name].dtype == TEXT
        assert_exactly(pool[name][...], data)


def test_a_str_is_one_string_of_variable_length(pool: engram.Pool) -> None:
    pool["s"] = "héllo"
    assert pool["s"].shape == ()
    assert pool["s"].dtype == TEXT
    assert pool["s"][()] == "héllo"


def test_zeros_are_zeros_of_the_dtype_asked_for(pool: engram.Pool) -> None:
    assert_exactly(pool.create_array("f", shape=(3, 2))[...], np.zeros((3, 2)))
    assert_exactly(pool.create_array("i", shape=4, dtype=">i2")[...], np.zeros(4, ">i2"))
    assert_exactly(pool.create_array("t", shape=(2, 2), dtype=TEXT)[...], np.zeros((2, 2), TEXT))
    assert_exactly(pool.create_array("0", shape=(), dtype=TEXT)[...], np.zeros((), TEXT))
    nested = np.dtype(("<f4", (2, 3)))
    assert_exactly(pool.create_array("sub", shape=(4,), dtype=nested)[...], np.zeros((4,), nested))
    large = pool.create_array("large", shape=(1000, 1000), dtype="f8")
    assert not large[...].any()


def test_zeros_are_zeros_where_other_bytes_were(pool: engram.Pool) -> None:
    pool["old"] = np.full(100_000, 7.0)
    del pool["old"]
    assert not pool.create_array("new", shape=100_000)[...].any()


def test_scalars_and_sequences_are_what_numpy_makes_of_them(pool: engram.Pool) -> None:
    values = [5, 2.5, True, 1 + 2j, np.float32(3), np.datetime64("2024-02-29", "D")]
    for value in [*values, [1, 2, 3], [[1.5], [2.5]], range(4), (True, False), ["a", "bcd"]]:
        pool["x"] = value
        assert_exactly(pool["x"][...], np.asarray(value))


def test_data_is_converted_to_the_dtype_asked_for(pool: engram.Pool) -> None:
    array = pool.create_array("x", data=[1, 2, 3], dtype=">f4", shape=(3,))
    assert_exactly(array[...], np.array([1, 2, 3], ">f4"))
    words = pool.create_array("w", data=["a", "bc"], dtype=TEXT)
    assert_exactly(words[...], np.array(["a", "bc"], TEXT))


STRIDED: dict[str, Callable[[Any], Any]] = {
    "fortran": np.asfortranarray,
    "transposed": lambda x: x.T,
    "reversed": lambda x: x[::-1, ::-1],
    "stepped": lambda x: x[::2, 1::3],
    "broadcast": lambda x: np.broadcast_to(x[0], x.shape),
    "read-only": lambda x: np.broadcast_to(x, x.shape),
}


@pytest.mark.parametrize("side", [6, 300])
@pytest.mark.parametrize("how", STRIDED)
def test_any_strides_are_kept_in_order_of_their_items(
    pool: engram.Pool, how: str, side: int
) -> None:
    data = STRIDED[how](np.arange(side * side, dtype="<f8").reshape(side, side))
    pool["x"] = data
    assert_exactly(pool["x"][...], np.ascontiguousarray(data))


def test_a_failed_copy_of_strided_data_leaves_nothing(pool: engram.Pool) -> None:
    pool["taken"] = 1
    used = pool.used
    with pytest.raises(engram.ExistsError):
        pool.create_array("taken", data=np.zeros((500, 500)).T[::2])
    assert pool.used == used


def test_subclasses_of_ndarray_are_arrays(pool: engram.Pool, rng: np.random.Generator) -> None:
    records = np.rec.array([(1, 2.5)], dtype=[("a", "i4"), ("b", "f8")])
    pool["rec"] = records
    assert pool["rec"][...].tolist() == [(1, 2.5)]
    pool["masked"] = np.ma.masked_array(rng.random(3), mask=False)
    assert pool["masked"].shape == (3,)


def test_an_array_of_the_pool_is_copied_by_its_handle(pool: engram.Pool) -> None:
    pool["a"] = np.arange(1000)
    pool["b"] = pool["a"]
    pool["a"][...] = 0
    assert_exactly(pool["b"][...], np.arange(1000))
    assert pool["a"] != pool["b"]


def test_dims_are_names_or_none(pool: engram.Pool) -> None:
    x = np.zeros((2, 3))
    assert pool.create_array("none", data=x).dims is None
    assert pool.create_array("two", data=x, dims=("y", "x")).dims == ("y", "x")
    assert pool.create_array("one", data=x[0], dims="x").dims == ("x",)
    assert pool.create_array("same", data=x, dims=["n", "n"]).dims == ("n", "n")
    assert pool.create_array("0-d", data=1, dims=()).dims in (None, ())


def test_a_handle_knows_its_place_and_time(pool: engram.Pool) -> None:
    array = pool.create_array("run/step/T", data=np.zeros((2, 3), "i2"))
    assert (array.path, array.name, array.parent.path) == ("run/step/T", "T", "run/step")
    assert (array.ndim, array.size, array.nbytes, len(array)) == (2, 6, 12, 2)
    assert array.created == array.modified
    assert array.created.utcoffset() is not None
    assert array.owner
    assert "run/step/T" in repr(array)
    assert "(2, 3) int16" in repr(array)


# Identity


def test_replacing_makes_a_new_object(pool: engram.Pool) -> None:
    old = pool.create_array("x", data=[1, 2], attrs={"a": 1})
    new = pool.create_array("x", data=[3], overwrite=True)
    assert old.oid != new.oid
    assert old != new
    assert dict(new.attrs) == {}
    with pytest.raises(engram.NotFoundError):
        old[...]
    with pytest.raises(engram.NotFoundError):
        old.attrs["a"]
    with pytest.raises(engram.BusyError):
        old[0] = 5
    with pytest.raises(engram.BusyError):
        old.view("r+")
    with pytest.raises(engram.BusyError):
        old.flush()
    assert_exactly(new[...], np.array([3]))


def test_a_handle_follows_its_object_when_it_moves(pool: engram.Pool) -> None:
    array = pool.create_array("a/x", data=[1, 2])
    pool.move("a/x", "b/y")
    assert array.path == "b/y"
    assert pool["b/y"] == array
    assert hash(pool["b/y"]) == hash(array)
    assert_exactly(array[...], np.array([1, 2]))


@pytest.mark.parametrize("dumped", [pickle.dumps, lambda x: pickle.dumps(x, protocol=2)])
def test_handles_pickle_as_what_they_stand_for(pool: engram.Pool, dumped: Any) -> None:
    pool.create_group("g").create_array("x", data=[1, 2])
    pool["g/blob"] = b"123"
    for handle in (pool["g"], pool["g/x"], pool["g/blob"], pool):
        again = pickle.loads(dumped(handle))
        assert type(again) is type(handle)
        assert again == handle
    assert copy.deepcopy(pool["g/x"]) == pool["g/x"]


def test_a_pickled_handle_of_what_is_gone_says_so(pool: engram.Pool) -> None:
    dumped = pickle.dumps(pool.create_array("x", data=1))
    del pool["x"]
    with pytest.raises(engram.NotFoundError):
        pickle.loads(dumped)


# Reading by index

_VALUES = np.arange(6 * 5 * 4, dtype="<i4").reshape(6, 5, 4)


@given(index=hnp.basic_indices((6, 5, 4), allow_newaxis=True, allow_ellipsis=True))
@pytest.mark.parametrize("scale", [1, 50], ids=["inline", "extent"])
def test_basic_indexing_reads_what_numpy_reads(pool: engram.Pool, index: Any, scale: int) -> None:
    values = np.tile(_VALUES, (1, 1, scale))
    pool["x"] = values
    expected = values[index]
    found = pool["x"][index]
    assert type(found) is type(expected)
    assert np.array_equal(found, expected)


@given(
    index=st.one_of(
        hnp.integer_array_indices((6, 5, 4)),
        hnp.arrays(bool, (6, 5, 4)),
        st.tuples(st.lists(st.integers(-6, 5), max_size=4), st.just(slice(None, None, 2))),
    )
)
def test_fancy_indexing_reads_what_numpy_reads(pool: engram.Pool, index: Any) -> None:
    if "x" not in pool:
        pool["x"] = _VALUES
    assert np.array_equal(pool["x"][index], _VALUES[index])


@pytest.mark.parametrize("n", [3, 3000])
def test_what_is_read_is_a_copy(pool: engram.Pool, n: int) -> None:
    array = pool.create_array("x", data=np.zeros(n, [("a", "f8"), ("b", "i4")]))
    for part in (array[...], array[1:], array[[0, 1]], array["a"], array[0]):
        part["a" if part.dtype.names else ...] = 1
    assert not array[...].view("V1").tobytes().strip(b"\0")


def test_a_single_value_is_read_as_numpy_reads_it(pool: engram.Pool) -> None:
    array = pool.create_array("x", data=2.5)
    assert isinstance(array[()], np.float64)
    assert array[()] == 2.5
    assert isinstance(array[...], np.ndarray)
    for wrong in (lambda: len(array), lambda: iter(array)):
        with pytest.raises(engram.ArgumentError):
            wrong()


def test_iterating_gives_rows(pool: engram.Pool) -> None:
    array = pool.create_array("x", data=[[1, 2], [3, 4]])
    assert [row.tolist() for row in array] == [[1, 2], [3, 4]]


@pytest.mark.parametrize("n", [3, 3000])
def test_an_index_out_of_bounds_is_numpys_error(pool: engram.Pool, n: int) -> None:
    array = pool.create_array("x", data=np.zeros(n))
    with pytest.raises(IndexError):
        array[n]
    with pytest.raises(IndexError):
        array[n] = 1


# Writing by index


@given(index=hnp.basic_indices((6, 5, 4), allow_newaxis=True, allow_ellipsis=True), data=st.data())
@pytest.mark.parametrize("scale", [1, 50], ids=["inline", "extent"])
def test_slice_writes_write_what_numpy_writes(
    pool: engram.Pool, index: Any, data: st.DataObject, scale: int
) -> None:
    expected = np.tile(_VALUES, (1, 1, scale))
    pool["x"] = expected
    shape = expected[index].shape
    value = data.draw(st.one_of(st.integers(-9, 9), st.just(np.full(shape, -7, "<f8"))))
    expected[index] = value
    pool["x"][index] = value
    assert_exactly(pool["x"][...], expected)


def test_strings_are_written_by_index(pool: engram.Pool) -> None:
    array = pool.create_array("s", data=np.array(["a", "b", "c"], TEXT))
    array[1] = "a much longer string than before"
    array[::2] = ["x", ""]
    assert array[...].tolist() == ["x", "a much longer string than before", ""]
    array[...] = "y" * 3000
    assert array[...].tolist() == ["y" * 3000] * 3


def test_a_field_is_written_by_its_name(pool: engram.Pool) -> None:
    array = pool.create_array("x", data=np.zeros(3, [("a", "f8"), ("b", "i4")]))
    array["a"] = [1, 2, 3]
    assert array["a"].tolist() == [1, 2, 3]
    assert array["b"].tolist() == [0, 0, 0]


@pytest.mark.parametrize("index", [["a"], [0.5], "a", [2], [True] * 3])
def test_an_index_that_is_none_writes_nothing(pool: engram.Pool, index: Any) -> None:
    array = pool.create_array("x", data=[1, 2])
    with pytest.raises(IndexError):
        array[index] = 0
    assert array[...].tolist() == [1, 2]


@pytest.mark.parametrize("value", [[1, 2, 3], "text", object(), [[1], [2]]])
def test_a_value_that_does_not_fit_changes_nothing(pool: engram.Pool, value: Any) -> None:
    for n in (2, 2000):
        array = pool.create_array("x", data=np.zeros(n), overwrite=True)
        with pytest.raises(engram.ArgumentError, match="does not fit"):
            array[0:2] = value
        assert not array[...].any()


# Creating, and failing to


def test_require_array_gives_what_is_there(pool: engram.Pool) -> None:
    made = pool.require_array("g/x", (2, 3), "f8", attrs={"a": 1})
    assert made.attrs["a"] == 1
    assert pool.require_array("g/x", (2, 3), "f4", exact=False) == made
    for other in ("f4", ">f8", "i8"):
        with pytest.raises(engram.ArgumentError, match="float64"):
            pool.require_array("g/x", (2, 3), other)
    with pytest.raises(engram.ArgumentError, match=r"\(2, 3\)"):
        pool.require_array("g/x", 6, "f8")
    with pytest.raises(engram.ArgumentError):
        pool.require_array("g", 6, "f8")


WRONG: dict[str, tuple[dict[str, Any], str]] = {
    "neither data nor shape": ({}, "shape="),
    "object": ({"data": object()}, "type object"),
    "object array": ({"data": np.array([1, "a"], object)}, "item 0 of it is of type int"),
    "object dtype": ({"shape": 3, "dtype": object}, "dtype object"),
    "object field": ({"shape": 3, "dtype": [("f", object)]}, "field 'f'"),
    "text field": ({"shape": 3, "dtype": [("f", TEXT)]}, "StringDType"),
    "none": ({"data": [None]}, "NoneType"),
    "dict": ({"data": {}}, "type dict"),
    "ragged": ({"data": [[1], [1, 2]]}, "cannot be an array"),
    "huge int": ({"data": 2**70}, "64-bit integer"),
    "unknown dtype": ({"shape": 3, "dtype": "f9"}, "f9"),
    "str without width": ({"shape": 3, "dtype": "U"}, "no width"),
    "negative": ({"shape": (2, -1)}, "-1"),
    "beyond int64": ({"shape": 2**64}, str(2**64)),
    "overflowing": ({"shape": (2**31, 2**31, 2**31)}, "more than an array can have"),
    "overflowing beside 0": ({"shape": (0, 2**62, 2**62)}, "more than an array can have"),
    "65 dimensions": ({"shape": (1,) * 65}, "64 dimensions"),
    "no shape": ({"shape": "abc"}, "no shape"),
    "fraction": ({"shape": 2.5}, "2.5"),
    "data and shape": ({"data": [1, 2], "shape": (3,)}, r"\(2,\).*\(3,\)"),
    "data and dtype": ({"data": ["a"], "dtype": "f8"}, "data"),
    "masked": ({"data": np.ma.masked_array([1, 2], [True, False])}, "filled"),
    "masked fields": (
        {"data": np.ma.array([(1, 2)], mask=[(False, True)], dtype=[("a", int), ("b", int)])},
        "filled",
    ),
    "masked in a list": ({"data": [[np.ma.masked_array([1, 2], [True, False])]]}, "filled"),
    "masked, cast": ({"data": [np.ma.masked], "dtype": "f4"}, "filled"),
    "masked attribute": ({"data": 1, "attrs": {"a": [np.ma.masked]}}, "attribute 'a.*filled"),
    "frames": ({"data": [pd.DataFrame({"x": [1]}, index=[9])]}, "pandas DataFrame.*to_numpy"),
    "no frames": ({"data": [pd.DataFrame()]}, "pandas DataFrame"),
    "labels": ({"data": ([xr.DataArray([1.0], dims="x")],)}, "xarray DataArray.*to_numpy"),
    "labelled attribute": ({"data": 1, "attrs": {"a": [pd.Series([1])]}}, "'a.0'.*type Series"),
    "dims": ({"data": [1, 2], "dims": ("x", "y")}, "name 2 dimensions"),
    "dims of int": ({"data": [1, 2], "dims": (1,)}, "dims"),
    "attrs": ({"data": 1, "attrs": [1]}, "attrs"),
    "attribute": ({"data": 1, "attrs": {"a": {1: 2}}}, "attribute 'a'"),
    "device": ({"data": 1, "device": 5}, "device 5"),
    "device path": ({"data": 1, "device": "/nowhere"}, "/nowhere"),
    "surrogates": ({"data": "\ud800"}, "UTF-8"),
    "string surrogates": ({"data": np.array(["\ud800"], object)}, "UTF-8"),
}


@pytest.mark.parametrize("chunks", [None, (2,)])
def test_masked_values_are_not_written_in_place(pool: engram.Pool, chunks: Any) -> None:
    array = pool.create_array("x", data=[1.0, 2.0], chunks=chunks)
    masked = np.ma.masked_array([7.0, -9999.0], [False, True])
    for key, value in [(..., masked), (..., [7.0, np.ma.masked]), (0, np.ma.masked), (0, [masked])]:
        with pytest.raises(engram.ArgumentError, match="filled"):
            array[key] = value
    array[...] = np.ma.masked_array([3.0, 4.0], False)
    np.testing.assert_array_equal(array, [3.0, 4.0])


@pytest.mark.parametrize("case", WRONG)
def test_what_cannot_be_kept_is_refused_and_changes_nothing(pool: engram.Pool, case: str) -> None:
    arguments, said = WRONG[case]
    with pytest.raises(engram.ArgumentError, match=said):
        pool.create_array("x", **arguments)
    assert list(pool) == []
    assert pool.used == 0


def test_nested_too_deep_is_refused(pool: engram.Pool) -> None:
    dtype: Any = np.dtype("f8")
    for _ in range(20):
        dtype = np.dtype([("f", dtype)])
    with pytest.raises(engram.ArgumentError, match="16"):
        pool.create_array("x", shape=1, dtype=dtype)


def test_renaming_fields_of_the_users_dtype_changes_no_handle(pool: engram.Pool) -> None:
    data = np.zeros(2, [("a", "f8"), ("b", "i4")])
    array = pool.create_array("x", data=data)
    data.dtype.names = ("c", "d")
    assert array.dtype.names == ("a", "b")
    read = array[...]
    read.dtype.names = ("e", "f")
    assert pool["x"].dtype.names == ("a", "b")
    pool["y"] = data
    assert pool["y"].dtype.names == ("c", "d")


# Filling in place


def test_allocate_publishes_when_the_block_ends(pool: engram.Pool) -> None:
    with pool.allocate(
        "g/T", shape=(100, 200), dtype=">f4", attrs={"unit": "K"}, dims=("y", "x")
    ) as buf:
        assert "g/T" not in pool
        assert (buf.shape, buf.dtype) == ((100, 200), np.dtype(">f4"))
        buf[...] = 3
    array = pool["g/T"]
    assert array.dims == ("y", "x")
    assert array.attrs["unit"] == "K"
    assert_exactly(array[...], np.full((100, 200), 3, ">f4"))


@pytest.mark.parametrize("shape", [(), (0,), (3,), (2, 0), (500, 500)], ids=str)
@pytest.mark.parametrize("dtype", ["f8", "S3", [("a", "i2"), ("b", "f8", 3)]], ids=str)
def test_allocate_takes_any_shape_and_dtype(
    pool: engram.Pool, dtype: Any, shape: tuple[int, ...]
) -> None:
    data = filled(np.dtype(dtype), shape)
    with pool.allocate("x", shape=shape, dtype=dtype) as buf:
        buf[...] = data
    assert_exactly(pool["x"][...], data)


def test_allocate_leaves_nothing_if_the_block_raises(pool: engram.Pool) -> None:
    with pytest.raises(ZeroDivisionError), pool.allocate("x", shape=(1 << 20,)) as buf:
        buf[...] = 1 / 0
    assert "x" not in pool
    assert pool.used == 0


def test_the_target_of_allocate_turns_read_only(pool: engram.Pool) -> None:
    for fails in (False, True):
        try:
            with pool.allocate(f"x{fails}", shape=(1000,)) as buf:
                buf[...] = 1
                assert not fails, "on purpose"
        except AssertionError:
            assert fails
        with pytest.raises(ValueError, match="read-only"):
            buf[0] = 2
        with pytest.raises(ValueError, match="WRITEABLE"):
            buf.flags.writeable = True


def test_allocate_tells_of_a_taken_name_before_any_work(pool: engram.Pool) -> None:
    pool["x"] = 1
    with pytest.raises(engram.ExistsError), pool.allocate("x", shape=3):
        pytest.fail("the block ran")
    with pool.allocate("x", shape=3, overwrite=True) as buf:
        buf[...] = 2
    assert pool["x"][...].tolist() == [2, 2, 2]


def test_a_name_taken_meanwhile_undoes_an_allocation(pool: engram.Pool) -> None:
    with pytest.raises(engram.ExistsError), pool.allocate("x", shape=(1 << 18,)) as buf:
        buf[...] = 1
        pool["x"] = "faster"
    assert pool["x"][()] == "faster"
    assert pool.used == 0


def test_an_allocation_serves_one_block(pool: engram.Pool) -> None:
    allocation = pool.allocate("x", shape=3)
    with allocation as buf:
        buf[...] = 1
        with pytest.raises(engram.ArgumentError), allocation:
            pass
    assert pool["x"][...].tolist() == [1, 1, 1]


def test_strings_cannot_be_filled_in_place(pool: engram.Pool) -> None:
    with (
        pytest.raises(engram.ArgumentError, match="data="),
        pool.allocate("x", shape=3, dtype=TEXT),
    ):
        pass


def test_scratch_is_memory_without_a_name(pool: engram.Pool) -> None:
    pending = pool.space.pending
    scratch: NDArray[Any] = pool.scratch((1000, 1000), "f4")
    scratch[...] = 2
    assert scratch.sum() == 2e6
    assert pool.space.pending >= pending + scratch.nbytes
    assert list(pool) == []
    part = scratch[10:]
    del scratch
    assert part.sum() == 990 * 1000 * 2
    del part
    pool["x"] = np.zeros(10_000)  # whoever reserves takes back what is over
    assert pool.space.pending == pending
