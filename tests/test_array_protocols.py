"""Arrays take part in what numpy and others agree on: memory is shared, pinned, and read-only."""

from __future__ import annotations

import gc
from typing import Any

import numpy as np
import pyarrow as pa
import pytest

import engram

VALUES = [
    np.arange(20_000, dtype=">i4"),
    np.arange(20_000).astype("M8[s]"),
    np.array(["abc"] * 9_000),
    np.array([b"ab"] * 9_000),
    np.ones((30, 40, 50), "f4"),
    np.arange(9_000).astype("c16"),
    np.zeros(90_000, bool),
    np.zeros(9_000, [("a", "f4"), ("b", "i2")]),
    np.zeros((0, 9)),
    np.float64(3),
    np.arange(3),
]


@pytest.mark.parametrize("value", VALUES, ids=lambda v: f"{v.dtype}-{np.shape(v)}")
def test_numpy_takes_each_array_as_it_is(pool: engram.Pool, value: Any) -> None:
    pool["a"] = value
    found = np.asarray(pool["a"])
    assert found.dtype == np.asarray(value).dtype
    assert found.shape == np.shape(value)
    assert np.array_equal(found, value)
    assert not found.flags.writeable or found.nbytes == 0
    if found.nbytes > 8192:
        assert np.shares_memory(found, pool["a"].view())


def test_who_uses_the_interface_holds_the_memory(pool: engram.Pool) -> None:
    class Wrapped:
        def __init__(self, interface: dict[str, Any]) -> None:
            self.__array_interface__ = interface

    pool["a"] = np.arange(50_000.0)
    found = np.asarray(Wrapped(pool["a"].__array_interface__))
    assert np.shares_memory(found, pool["a"].view())
    gc.collect()
    assert pool.space.views == 1
    del pool["a"]
    pool["b"] = np.full(50_000, -1.0)
    assert (found == np.arange(50_000.0)).all()
    del found
    gc.collect()
    assert pool.space.views == 0


def test_what_has_no_memory_to_share_has_no_interface(pool: engram.Pool) -> None:
    pool["small"] = np.arange(3)
    pool["text"] = np.array(["a", "b"], np.dtypes.StringDType())
    pool["record"] = np.zeros(9_000, [("a", "f4")])
    pool["empty"] = np.zeros(0)
    pool.create_array("chunked", data=np.arange(9.0), chunks=3)
    for name in pool:
        assert not hasattr(pool[name], "__array_interface__"), name
        assert np.array_equal(np.asarray(pool[name]), pool[name][...])


def test_dlpack_shares_memory_and_pins_it(pool: engram.Pool) -> None:
    pool["a"] = np.arange(50_000.0)
    assert pool["a"].__dlpack_device__() == (1, 0)
    found = np.from_dlpack(pool["a"])
    assert not found.flags.writeable
    assert np.shares_memory(found, pool["a"].view())
    del pool["a"]
    pool["b"] = np.full(50_000, -1.0)
    assert (found == np.arange(50_000.0)).all()
    del found
    gc.collect()
    assert pool.space.views == 0
    copied = np.from_dlpack(pool["b"], copy=True)
    copied[0] = 7
    assert pool["b"][0] == -1
    with pytest.raises(BufferError, match="readonly"):  # one who cannot be told so
        pool["b"].__dlpack__()
    pool["t"] = np.arange(9_000).astype("M8[s]")
    with pytest.raises(BufferError):
        np.from_dlpack(pool["t"])
    chunked = pool.create_array("c", data=np.arange(9.0), chunks=4)
    assert np.from_dlpack(chunked).tolist() == list(range(9))
    assert pa.array(np.from_dlpack(pool["b"])).to_numpy()[0] == -1


@pytest.mark.parametrize("chunks", [None, 2])
def test_operators_compute_as_numpys_do(pool: engram.Pool, chunks: int | None) -> None:
    a = pool.create_array("a", data=np.arange(5.0), chunks=chunks)
    n = np.arange(5.0)
    w = pool.create_array("w", data=n > 2)
    for found, expected in [
        (a + 1, n + 1),
        (2 - a, 2 - n),
        (a * a, n * n),
        (-a, -n),
        (a @ a, n @ n),
        (a < 3, n < 3),
        (n + a, n + n),
        (np.float64(2) * a, 2 * n),
        (np.sqrt(a), np.sqrt(n)),
        (np.add.reduce(a), n.sum()),
        (np.add(n, a, where=w, out=np.zeros(5)), 2 * n * (n > 2)),
        (divmod(a, 2)[1], n % 2),
    ]:
        assert not isinstance(found, engram.Array)
        assert np.array_equal(found, expected)
    assert np.equal(a, n).all()


def test_two_handles_are_equal_if_they_are_of_one_array(pool: engram.Pool) -> None:
    pool["a"], pool["b"] = np.arange(3), np.arange(3)
    assert pool["a"] == pool["a"]
    assert pool["a"] != pool["b"]
    assert (pool["a"] == 3) is False
    assert (pool["a"] != 3) is True
    assert len({pool["a"], pool["a"], pool["b"]}) == 2


@pytest.mark.parametrize("chunks", [None, 2])
def test_operators_in_place_write_in_place(pool: engram.Pool, chunks: int | None) -> None:
    a = pool.create_array("a", data=np.arange(5.0), chunks=chunks)
    oid = a.oid
    a += 1
    a *= 2
    assert isinstance(a, engram.Array)
    assert (a.oid, a[...].tolist()) == (oid, [2, 4, 6, 8, 10])
    target: Any = a  # numpy's types know no outputs but its own
    assert np.subtract(a, 2, out=target) == a
    assert pool["a"][...].tolist() == [0, 2, 4, 6, 8]
    pool["a"] -= 1
    assert pool["a"][...].tolist() == [-1, 1, 3, 5, 7]
    whole: Any = pool.create_array("i", data=np.arange(3), chunks=chunks)
    with pytest.raises(TypeError, match="Cannot cast"):
        whole += 0.5
    assert whole[...].tolist() == [0, 1, 2]
    with pytest.raises(engram.ArgumentError, match=r"view\('r\+'\)"):
        np.divmod(whole, 2, out=(whole, whole))
    pool["i"].read_only = True
    with pytest.raises(engram.ReadOnlyError):
        np.add(pool["i"], 1, out=pool["i"])


def test_other_libraries_rules_hold_for_theirs(pool: engram.Pool) -> None:
    import pandas as pd  # noqa: PLC0415 - of this test alone
    import xarray as xr  # noqa: PLC0415

    pool["a"] = np.arange(3.0)
    labelled = xr.DataArray([1.0, 2, 3], dims="x")
    assert isinstance(pool["a"] + labelled, xr.DataArray)
    assert isinstance(pool["a"] * pd.Series([1.0, 2, 3]), pd.Series)
    assert isinstance(labelled + pool["a"], xr.DataArray)


def test_what_is_computed_at_places_is_written_there(pool: engram.Pool) -> None:
    for count in (3, 30_000):  # in the catalog, and in memory of its own
        a = pool.create_array("a", data=np.arange(float(count)), overwrite=True)
        np.add.at(a, [0, 0, 2], 10)  # a place twice counts twice
        assert pool["a"][:3].tolist() == [20, 1, 12]
    chunked = pool.create_array("c", data=np.arange(30), chunks=(5,))
    for target in (chunked, a.decoded()):
        with pytest.raises(engram.ArgumentError, match="write"):
            np.add.at(target, [0], 1)
    assert (chunked[0], a[0]) == (0, 20)


def test_dlpack_is_no_copy_where_none_is_wanted(pool: engram.Pool) -> None:
    for chunks in (None, (2,)):
        a = pool.create_array("a", data=np.arange(3), overwrite=True, chunks=chunks)
        with pytest.raises(BufferError, match="without a copy"):
            np.from_dlpack(a, copy=False)
        assert np.from_dlpack(a).tolist() == [0, 1, 2]
