"""Blobs are bytes under a name."""

from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

import engram


@pytest.mark.parametrize("size", [0, 1, 100, 5000, 1_000_000])
def test_bytes_come_back_exactly(pool: engram.Pool, size: int, rng: np.random.Generator) -> None:
    data = rng.bytes(size)
    pool["b"] = data
    blob = pool["b"]
    assert isinstance(blob, engram.Blob)
    assert blob[...] == data
    assert bytes(blob) == data
    assert (len(blob), blob.nbytes, blob.size) == (size, size, size)
    assert blob.view().dtype == np.uint8
    assert blob.view().tobytes() == data
    assert np.asarray(blob).tobytes() == data


@pytest.mark.parametrize(
    "data",
    [bytearray(b"123"), memoryview(b"123"), np.frombuffer(b"123", "u1"), b"123"],
    ids=lambda data: type(data).__name__,
)
def test_anything_that_exports_bytes_makes_a_blob(pool: engram.Pool, data: Any) -> None:
    assert pool.create_blob("b", data, attrs={"a": 1})[...] == b"123"
    assert pool["b"].attrs["a"] == 1


@pytest.mark.parametrize("data", ["text", 5, None, [1, 2], np.zeros((4, 4)).T[::2]], ids=str)
def test_what_has_no_bytes_is_refused(pool: engram.Pool, data: Any) -> None:
    with pytest.raises(engram.ArgumentError):
        pool.create_blob("b", data)
    assert "b" not in pool


@given(index=st.one_of(st.slices(300), st.integers(-300, 299)))
@pytest.mark.parametrize("scale", [1, 20], ids=["inline", "extent"])
def test_indexing_is_that_of_bytes(pool: engram.Pool, index: Any, scale: int) -> None:
    data = bytes(range(150)) * 2 * scale
    if "b" not in pool:
        pool["b"] = data
    assert pool["b"][index] == data[index]


def test_an_index_that_bytes_have_not_is_refused(pool: engram.Pool) -> None:
    pool["b"] = b"123"
    with pytest.raises(IndexError):
        pool["b"][3]
    with pytest.raises(engram.ArgumentError):
        pool["b"]["x"]


@pytest.mark.parametrize("size", [10, 10_000])
def test_bytes_are_written_in_place(pool: engram.Pool, size: int) -> None:
    blob = pool.create_blob("b", bytes(size))
    blob[2:5] = b"abc"
    blob[-1] = 7
    expected = bytearray(size)
    expected[2:5] = b"abc"
    expected[-1] = 7
    assert blob[...] == bytes(expected)
    blob.flush()
    with pytest.raises(engram.ArgumentError, match="keeps its size"):
        blob[0:2] = b"abc"
    with pytest.raises(engram.ArgumentError, match="keeps its size"):
        blob[...] = b"abc"
    assert blob[...] == bytes(expected)


def test_a_view_for_writing_is_on_the_blobs_memory(pool: engram.Pool) -> None:
    pool["b"] = b"123"
    view = pool["b"].view("r+")
    view[0] = ord("x")
    assert pool["b"][...] == b"x23"


def test_a_blob_is_copied_by_its_handle(pool: engram.Pool) -> None:
    pool["a"] = b"123"
    pool["b"] = pool["a"]
    assert isinstance(pool["b"], engram.Blob)
    assert pool["b"][...] == b"123"


def test_a_replaced_blobs_handle_is_over(pool: engram.Pool) -> None:
    old = pool.create_blob("b", b"123")
    pool["b"] = b"4567"
    with pytest.raises(engram.NotFoundError):
        old[...]
    with pytest.raises(engram.BusyError):
        old[0] = 1
    assert "3 bytes" in repr(old)
    assert pool["b"][...] == b"4567"


def test_numpy_bytes_are_an_array_not_a_blob(pool: engram.Pool) -> None:
    pool["x"] = np.bytes_(b"abc")
    assert isinstance(pool["x"], engram.Array)
    assert pool["x"][()] == b"abc"


def test_a_bool_is_no_place_of_a_byte(pool: engram.Pool) -> None:
    blob = pool.create_blob("b", b"abc")
    for key in (True, False, np.True_):
        with pytest.raises(engram.ArgumentError, match=f"indexed by .*{bool(key)}"):
            blob[key]


def test_writes_bytes_that_lie_apart(pool: engram.Pool) -> None:
    blob = pool.create_blob("b", b"abcde")
    blob[:3] = memoryview(b"xaybzc")[::2]
    assert blob[...] == b"xyzde"
