"""Chunked arrays: whatever is done to them, they are what a numpy array would be."""

import copy
import pickle
import time
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra import numpy as hnp

import engram
from support import DTYPES, TEXT, assert_dtypes_alike, assert_exactly, filled

CODECS = ["none", "lz4", "zstd:1", "shuffle+lz4", "shuffle+zstd"]


@pytest.mark.parametrize("dtype", [d for d in DTYPES if d.itemsize], ids=str)
def test_every_dtype_comes_back_exactly(pool: engram.Pool, dtype: np.dtype[Any]) -> None:
    data = filled(dtype, (7, 5))
    for codec in CODECS:
        made = pool.create_array("a", data=data, chunks=(3, 2), codec=codec, overwrite=True)
        for array in (made, pool["a"], pickle.loads(pickle.dumps(made)), copy.copy(made)):
            assert isinstance(array, engram.ChunkedArray)
            assert_dtypes_alike(array.dtype, data.dtype)
            assert (array.shape, array.chunks, array.codec) == ((7, 5), (3, 2), codec)
            assert array.nbytes == data.nbytes
            assert_exactly(array[...], data)
            assert_exactly(np.asarray(array), data)
        made[1:6:2, ::-1] = data[:3]
        expected = data.copy()
        expected[1:6:2, ::-1] = data[:3]
        if not dtype.names:  # what lies between fields is nobody's
            assert_exactly(made[...], expected)


@given(st.data())
def test_what_is_read_is_what_numpy_gives(pool: engram.Pool, data: st.DataObject) -> None:
    shape = data.draw(hnp.array_shapes(min_dims=1, max_dims=3, min_side=0, max_side=9))
    chunks = tuple(data.draw(st.integers(1, 5)) for _ in shape)
    codec = data.draw(st.sampled_from(CODECS))
    expected = np.arange(np.prod(shape, dtype=int), dtype="i4").reshape(shape)
    array = pool.create_array("a", data=expected, chunks=chunks, codec=codec, overwrite=True)
    for _ in range(4):
        key = data.draw(hnp.basic_indices(shape, allow_newaxis=True, allow_ellipsis=True))
        assert_exactly(array[key], np.asarray(expected[key]))
        assert type(array[key]) is type(expected[key])
    mask = data.draw(hnp.arrays(bool, shape))
    assert_exactly(array[mask], expected[mask])
    if shape[0]:
        places = data.draw(st.lists(st.integers(-shape[0], shape[0] - 1), min_size=1))
        assert_exactly(array[places], expected[places])


@given(st.data())
def test_what_is_written_resized_and_appended_is_what_numpy_makes(
    pool: engram.Pool, data: st.DataObject
) -> None:
    shape = data.draw(hnp.array_shapes(min_dims=1, max_dims=3, min_side=1, max_side=8))
    chunks = tuple(data.draw(st.integers(1, 5)) for _ in shape)
    codec = data.draw(st.sampled_from(CODECS))
    array = pool.create_array(
        "a", shape=shape, dtype="i8", chunks=chunks, codec=codec, overwrite=True
    )
    expected = np.zeros(shape, "i8")
    for step in range(1, 6):
        what = data.draw(st.sampled_from(["write", "write", "resize", "append"]))
        if what == "write":
            key = data.draw(hnp.basic_indices(expected.shape, allow_newaxis=False))
            one = data.draw(st.booleans())
            values = step if one else np.arange(expected[key].size).reshape(expected[key].shape)
            array[key] = values
            expected[key] = values
        elif what == "resize":
            shape = tuple(data.draw(st.integers(0, 8)) for _ in shape)
            array.resize(shape)
            both = tuple(slice(0, min(a, b)) for a, b in zip(shape, expected.shape, strict=True))
            before, expected = expected, np.zeros(shape, "i8")
            expected[both] = before[both]
        else:
            axis = data.draw(st.integers(-len(shape), len(shape) - 1))
            more = list(expected.shape)
            more[axis] = data.draw(st.integers(0, 4))
            values = np.full(more, step)
            expected = np.append(expected, values, axis)
            assert array.append(values, axis) == expected.shape
        assert array.shape == expected.shape
        assert_exactly(array[...], expected)


def test_a_field_is_written_alone(pool: engram.Pool) -> None:
    kind = np.dtype([("x", "f8"), ("y", "i2", (3,))])
    array = pool.create_array("a", shape=(9, 4), dtype=kind, chunks=(2, 3), codec="lz4")
    array["x"] = np.arange(36.0).reshape(9, 4)
    array["y"] = 7
    array[3, 1] = (0.5, [1, 2, 3])
    expected = np.zeros((9, 4), kind)
    expected["x"] = np.arange(36.0).reshape(9, 4)
    expected["y"] = 7
    expected[3, 1] = (0.5, [1, 2, 3])
    assert_exactly(array[...], expected)
    assert_exactly(array["x"], expected["x"])


def test_threads_that_write_between_each_other_lose_nothing(pool: engram.Pool) -> None:
    array = pool.create_array("a", shape=(64, 30), dtype="i4", chunks=(16, 16), codec="lz4")

    def write(worker: int) -> None:
        for row in range(0, 64, 8):
            array[row : row + 8, worker::3] = worker + 1

    with ThreadPoolExecutor(3) as threads:
        list(threads.map(write, range(3)))
    assert_exactly(array[...], np.tile(np.array([1, 2, 3], "i4"), (64, 10)))


def test_wide_steps_touch_only_the_chunks_that_they_meet(pool: engram.Pool) -> None:
    array = pool.create_array("a", shape=(1 << 14, 1 << 14), dtype="f8", chunks=(16, 16))
    array[::4096, ::4096] = np.arange(1.0, 17.0).reshape(4, 4)
    assert array.stored_nbytes == 16 * 16 * 16 * 8
    assert_exactly(array[::4096, ::4096], np.arange(1.0, 17.0).reshape(4, 4))
    assert_exactly(array[:1:-4095, 4096], np.array([0.0, 14.0, 0.0, 0.0, 0.0]))


def test_what_it_takes_is_told(pool: engram.Pool) -> None:
    data = np.zeros((1000, 1000))
    data[:500] = np.arange(500)[:, None]
    plain = pool.create_array("plain", data=data)
    assert (plain.chunks, plain.codec) == (None, None)
    assert plain.stored_nbytes >= plain.nbytes
    packed = pool.create_array("packed", data=data, chunks=True, codec="shuffle+zstd")
    assert 0 < packed.stored_nbytes < packed.nbytes // 20
    assert pool.create_array("none", shape=(4000, 4000), chunks=True).stored_nbytes == 0
    assert packed.chunks is not None
    assert np.prod(packed.chunks) * 8 <= 512 << 10
    assert "ChunkedArray 'packed' (1000, 1000) float64" in repr(packed)
    assert "in chunks" in str(pool.tree())
    assert "shuffle+zstd" in packed._repr_html_()


def test_require_array_makes_a_chunked_one(pool: engram.Pool) -> None:
    made = pool.require_array("a", (10, 10), "f4", chunks=(5, 5), codec="lz4")
    assert isinstance(made, engram.ChunkedArray)
    there = pool.require_array("a", (10, 10), "f4", chunks=(5, 5), codec="lz4")
    assert there == made
    assert pool.require_array("a", (10, 10), "f4", chunks=[5, np.int64(5)]) == made
    assert pool.require_array("a", (10, 10), "f4", chunks=True, codec="lz4") == made
    assert pool.require_array("a", (10, 10), "f4") == made


@pytest.mark.parametrize(
    "other", [{"chunks": (5, 2)}, {"chunks": 5}, {"codec": "zstd"}, {"chunks": False}]
)
def test_require_array_refuses_another_layout(pool: engram.Pool, other: dict[str, Any]) -> None:
    pool.create_array("a", shape=(10, 10), dtype="f4", chunks=(5, 5), codec="lz4")
    with pytest.raises(engram.ArgumentError, match=r"has chunks \(5, 5\) and codec 'lz4', not"):
        pool.require_array("a", (10, 10), "f4", **other)


def test_require_array_refuses_one_in_one_piece(pool: engram.Pool) -> None:
    made = pool.create_array("a", shape=(10, 10), dtype="f4")
    assert pool.require_array("a", (10, 10), "f4", chunks=False, codec="none") == made
    with pytest.raises(engram.ArgumentError, match="lies in one piece"):
        pool.require_array("a", (10, 10), "f4", chunks=True)


def test_another_handle_sees_the_new_shape(pool: engram.Pool) -> None:
    one = pool.create_array("a", data=np.arange(10), chunks=4)
    other = pool["a"]
    assert one.append(np.arange(3)) == (13,)
    assert other.shape == (13,)
    assert (other.size, other.nbytes, len(other)) == (13, 104, 13)
    assert list(other)[-1] == 2
    other.resize(2)
    assert_exactly(one[...], np.arange(2))
    other.flush()


def test_what_is_appended_keeps_what_it_says(pool: engram.Pool) -> None:
    real = pool.create_array("real", shape=(0,), dtype="f4", chunks=8)
    whole = pool.create_array("whole", shape=(0,), dtype="u1", chunks=8)
    assert (real.append([1, 2]), whole.append([1, 255])) == ((2,), (2,))
    with pytest.raises(engram.ArgumentError, match="complex128 would lose"):
        real.append([1j])
    with pytest.raises(engram.ArgumentError, match="float64 would lose"):
        whole.append([1.5])


def test_a_batch_makes_and_fills_one(pool: engram.Pool) -> None:
    with pool.batch():
        array = pool.create_array("a", data=np.arange(10), chunks=4, codec="zstd")
        array[2:5] = -1
        array.append([7, 8])
        assert array.shape == (12,)
    assert_exactly(pool["a"][...], np.array([0, 1, -1, -1, -1, 5, 6, 7, 8, 9, 7, 8]))
    with pytest.raises(engram.BusyError, match="before this batch"), pool.batch():
        pool["a"][0] = 1


def test_a_snapshot_keeps_it_as_it_was(pool: engram.Pool) -> None:
    array = pool.create_array("a", data=np.arange(10), chunks=4, codec="lz4")
    with pool.snapshot() as then:
        array.resize(3)
        array[0] = 9
        assert_exactly(then["a"][...], np.arange(10))
        assert then["a"].shape == (10,)


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        ({"codec": "lz4"}, "chunks="),
        ({"chunks": 4, "codec": "gzip"}, 'no codec "gzip"'),
        ({"chunks": 4, "codec": "zstd:99"}, "-7 to 22"),
        ({"chunks": (2, 2)}, "chunks .2, 2."),
        ({"chunks": 0}, "at least 1"),
        ({"chunks": "4"}, "4"),
        ({"chunks": -1}, "-1"),
    ],
)
def test_what_cannot_be_made_is_refused(
    pool: engram.Pool, arguments: dict[str, Any], words: str
) -> None:
    with pytest.raises(engram.ArgumentError, match=words):
        pool.create_array("a", data=np.arange(9), **arguments)
    assert "a" not in pool


def test_what_has_no_chunks_is_refused(pool: engram.Pool) -> None:
    for data in ("text", np.array(["a", "b"], TEXT), 7):
        with pytest.raises(engram.ArgumentError, match="chunk"):
            pool.create_array("a", data=data, chunks=True)
    plain = pool.create_array("plain", data=np.arange(9))
    with pytest.raises(engram.ArgumentError, match="chunks=True"):
        plain.resize(12)
    with pytest.raises(engram.ArgumentError, match="chunks=True"):
        plain.append([1])


def test_what_does_not_fit_is_refused_and_nothing_is_written(pool: engram.Pool) -> None:
    array = pool.create_array("a", data=np.arange(20).reshape(4, 5), chunks=(2, 2), codec="lz4")
    with pytest.raises(engram.ArgumentError, match="no memory to view"):
        array.view()
    with pytest.raises(engram.ArgumentError, match="without a copy"):
        np.asarray(array, copy=False)
    with pytest.raises(engram.ArgumentError, match="2 dimensions"):
        array.append([1], axis=2)
    with pytest.raises(engram.ArgumentError, match="as long"):
        array.append([[1, 2]])
    with pytest.raises(engram.ArgumentError, match="cannot be appended"):
        array.append([["x"] * 5])
    with pytest.raises(engram.ArgumentError, match="dimensions"):
        array.resize((1, 2, 3))
    with pytest.raises(engram.ArgumentError, match="-1"):
        array.resize((-1, 2))
    with pytest.raises(engram.ArgumentError, match="does not fit"):
        array[:2] = np.arange(3)
    with pytest.raises(IndexError):
        array[9]
    with pytest.raises(IndexError):
        array[9] = 1
    array.read_only = True
    for change in (lambda: array.resize((1, 1)), lambda: array.append([[1] * 5])):
        with pytest.raises(engram.ReadOnlyError):
            change()
    assert_exactly(array[...], np.arange(20).reshape(4, 5))
    array.read_only = False
    del pool["a"]
    with pytest.raises(engram.BusyError):
        array[0] = 1
    with pytest.raises(engram.NotFoundError):
        array[0]
    assert "gone" in repr(array)


def test_who_reads_and_writes_while_it_is_resized_gets_one_shape_or_the_other(
    pool: engram.Pool,
) -> None:
    array = pool.create_array("a", data=np.ones((40, 50)), chunks=(8, 50))

    def resize() -> None:
        for rows in [10, 40] * 150:
            array.resize((rows, 50))
            time.sleep(0.001)

    with ThreadPoolExecutor(1) as other:
        resizing = other.submit(resize)
        while not resizing.done():
            assert array[...].shape[0] in {10, 40}
            assert array[:20].shape[0] in {10, 20}
            assert np.asarray(array).shape[0] in {10, 40}
            assert array[-1].shape == (50,)
            array[...] = 1
        resizing.result()
    with pytest.raises(IndexError):
        array[40]
