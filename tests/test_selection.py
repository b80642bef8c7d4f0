"""Lists, masks and arrays of numbers as indices of arrays: read and written as numpy does."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from hypothesis.extra import numpy as npst

import engram

if TYPE_CHECKING:
    from engram import Pool

SHAPE = (11, 7, 5)
LAYOUTS: dict[str, dict[str, Any]] = {
    "contiguous": {},
    "chunked": {"chunks": (4, 3, 2), "codec": "shuffle+lz4"},
    "one chunk": {"chunks": SHAPE},
}
MASK = np.zeros(SHAPE, bool)
MASK[2, 3, 1] = MASK[9, 6, 4] = MASK[2, 0, 0] = True
KEYS: dict[str, Any] = {
    "list": [1, 5, 7],
    "list of numbers in any order": [7, 1, 1, -1],
    "slice and list": (slice(2, 5), [0, 3]),
    "list and slice of steps back": ([0, 8], slice(None, None, -2)),
    "mask of all": MASK,
    "mask of nothing": np.zeros(SHAPE, bool),
    "mask of one axis": np.arange(11) % 3 == 0,
    "mask of two axes": MASK.any(axis=2),
    "mask and number": (MASK.any(axis=2), 3),
    "lists side by side": ([1, 9], [0, 6]),
    "lists across": ([[1], [9]], [0, 6]),
    "lists apart": ([1, 9], slice(1, 3), [0, 4]),
    "array of two axes": np.array([[1, 2], [10, 0]]),
    "behind dots": (Ellipsis, [0, 4]),
    "with a new axis": (None, [3, 1]),
    "an empty list": [],
    "an empty list behind": (slice(None), []),
    "unsigned": np.array([3, 0], "u1"),
}


@pytest.fixture(params=LAYOUTS)
def made(request: pytest.FixtureRequest, pool: Pool) -> tuple[engram.Array, np.ndarray[Any, Any]]:
    values = np.arange(np.prod(SHAPE)).reshape(SHAPE)
    return pool.create_array("a", data=values, **LAYOUTS[request.param]), values.copy()


@pytest.mark.parametrize("name", KEYS)
def test_reads_what_numpy_reads(made: tuple[Any, Any], name: str) -> None:
    array, values = made
    found = array[KEYS[name]]
    np.testing.assert_array_equal(found, values[KEYS[name]], strict=True)


@pytest.mark.parametrize("name", KEYS)
def test_writes_where_numpy_writes(made: tuple[Any, Any], name: str) -> None:
    array, values = made
    new = -np.arange(values[KEYS[name]].size).reshape(values[KEYS[name]].shape)
    array[KEYS[name]] = new
    values[KEYS[name]] = new
    np.testing.assert_array_equal(array[...], values)
    array[KEYS[name]] = -7
    values[KEYS[name]] = -7
    np.testing.assert_array_equal(array[...], values)


@pytest.mark.parametrize(
    ("key", "value", "error"),
    [
        ([11], 1, IndexError),
        (np.ones(3, bool), 1, IndexError),
        ([1.5], 1, IndexError),
        ([1, 2], np.zeros(3), engram.ArgumentError),
        (MASK, [1, 2], engram.ArgumentError),
        ([1, 2], "text", engram.ArgumentError),
    ],
)
def test_what_does_not_fit_writes_nothing(
    made: tuple[Any, Any], key: Any, value: Any, error: type[Exception]
) -> None:
    array, values = made
    with pytest.raises(error):
        array[key] = value
    np.testing.assert_array_equal(array[...], values)


def test_chunks_of_which_nothing_is_selected_are_left_alone(pool: Pool) -> None:
    array = pool.create_array("a", shape=(1000, 1000), dtype="f8", chunks=(10, 10))
    array[[5, 995], [5, 995]] = 1
    assert array.stored_nbytes < 10_000
    mask = np.zeros((1000, 1000), bool)
    mask[500, 500] = True
    array[mask] = 2
    assert array.stored_nbytes < 10_000
    assert array[mask] == [2]
    assert array[[5, 995, 5], [5, 995, 995]].tolist() == [1, 1, 0]


def test_small_arrays_are_written_where_they_lie(pool: Pool) -> None:
    array = pool.create_array("a", data=np.arange(6))
    array[np.arange(6) % 2 == 0] = -1
    array[[1, 5]] = [10, 50]
    assert array[...].tolist() == [-1, 10, -1, 3, -1, 50]


@pytest.mark.parametrize("layout", LAYOUTS)
def test_fields_are_written_by_their_names(pool: Pool, layout: str) -> None:
    dtype = np.dtype([("x", "f4"), ("n", "i4"), ("s", "S3")])
    chunks = 4 if layout == "chunked" else None
    array = pool.create_array("a", shape=10, dtype=dtype, chunks=chunks)
    array[["x", "s"]] = np.array([(1.5, 0, b"ab")] * 10, dtype)[["x", "s"]]
    array["n"] = np.arange(10)
    assert array[[2, 9]].tolist() == [(1.5, 2, b"ab"), (1.5, 9, b"ab")]
    array[[2, 9]] = np.array([(0, 7, b"z")] * 2, dtype)
    assert array["n"].tolist() == [0, 1, 7, 3, 4, 5, 6, 7, 8, 7]


def test_texts_are_written_by_masks(pool: Pool) -> None:
    array = pool.create_array("a", data=np.array(["a", "b", "c"], dtype=object))
    array[np.array([True, False, True])] = "long text"
    array[[1]] = ["β"]
    assert array[...].tolist() == ["long text", "β", "long text"]


def test_two_writers_of_one_chunk_lose_nothing(pool: Pool) -> None:
    array = pool.create_array("a", shape=100, dtype="i4", chunks=100)
    array[::2] = 1
    array[np.arange(1, 100, 2)] = 2
    assert array[...].tolist() == [1, 2] * 50


@settings(
    max_examples=60, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture]
)
@given(data=st.data())
def test_any_index_is_as_numpys(pool: Pool, data: st.DataObject) -> None:
    shape = data.draw(npst.array_shapes(min_dims=1, max_dims=3, max_side=9))
    chunks = tuple(data.draw(st.integers(1, n)) for n in shape)
    values = np.arange(np.prod(shape)).reshape(shape)
    array = pool.create_array("a", data=values, chunks=chunks, overwrite=True)
    key = data.draw(
        st.one_of(
            npst.basic_indices(shape, allow_newaxis=True),
            npst.integer_array_indices(shape),
            npst.arrays(bool, shape),
            npst.arrays(bool, shape[:1]),
        )
    )
    np.testing.assert_array_equal(array[key], values[key])
    array[key] = -1
    values[key] = -1
    np.testing.assert_array_equal(array[...], values)
