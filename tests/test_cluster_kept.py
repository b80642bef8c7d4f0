"""What is put into a cluster comes back equal, or is refused: masks, labels, widths, dtypes."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import dask.array as da
import numpy as np
import pandas as pd
import pytest
import xarray as xr

import engram
from cluster.rig import Rig, rigged

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

MASKED = np.ma.masked_array([1, 2], mask=[False, True])
LABELLED = xr.DataArray([1.0, 2.0], dims=["x"], coords={"x": [3, 4]}, attrs={"unit": "K"})
REFUSED: dict[str, tuple[Any, str]] = {
    "a masked array": (MASKED, r"masked values.*filled"),
    "masked arrays in a list": ([MASKED, MASKED], r"masked values.*filled"),
    "a data array": (LABELLED, r"xarray DataArray.*dims=.*attrs="),
    "data arrays in a list": ([LABELLED, LABELLED], "xarray DataArray"),
    "a variable": (LABELLED.variable, r"xarray Variable.*dims="),
    "a dataset": (LABELLED.to_dataset(name="T"), r"xarray Dataset"),
    "a data frame": (pd.DataFrame({"a": [1]}), r"pandas DataFrame.*to_numpy"),
    "a series": (pd.Series([1], index=["a"]), r"pandas Series.*to_numpy"),
    "text beside numbers": ([1, "a"], "strings beside 1"),
    "a number that no float is": ([0.5, 2**53 + 1], "9007199254740993"),
    "zeros at the end of text": (["a\0"], "drops zeros"),
    "a text with zeros at its end": ("a\0", "drops zeros"),
}
FILLS: list[tuple[Any, Any]] = [
    ("abcd", "S3"),
    ("größe", "U4"),
    (b"abcd", "V3"),
    (1234, "S3"),
    (np.int64(300), "i1"),
    (-1, "u1"),
    (2.5, "i4"),
    (float("nan"), "i4"),
    (2, "?"),
    (1e300, "f4"),
    (1j, "f8"),
    (np.datetime64("2026-01-01T12"), "M8[D]"),
    (np.datetime64("3000-01-01"), "M8[ns]"),
    (("abcd", 1), [("a", "S3"), ("b", "i4")]),
    (MASKED[1], "i4"),
    (bytearray(b"abcd"), "V3"),
    (1.5, [("a", "i4")]),
    (2, [("a", "i4"), ("b", "?")]),
    (1.5, [("a", [("b", "i4")])]),
    (1e300, [("a", "f4", (2,))]),
    (([1, 2.5],), [("a", "i4", (2,))]),
    ((np.array([[[1.0, 2.5]]]),), [("a", "i4", (2,))]),
    ((["abc", "abcd"],), [("a", "S3", (2,))]),
    ((["2026-01-01", "2026-01-01T12"],), [("a", "M8[D]", (2,))]),
    (([(1, 2), (3, 4.5)],), [("a", [("x", "f8"), ("y", "i4")], (2,))]),
    (((1, 2.5),), [("a", [("x", "f8"), ("y", "i4")], (2,))]),
    (np.array([(1.5,)], [("b", "f8")])[0], [("a", "i4")]),
    (np.array([(1.5,)], [("b", "f8")]), [("a", "i4")]),
    (np.array([(1, b"abcd")], [("a", "i4"), ("b", "S4")])[0], [("a", "i4"), ("b", "S3")]),
]
FILLED: list[tuple[Any, Any]] = [
    ("abc", "S3"),
    ("größe", "U5"),
    (b"ab", "V3"),
    (0.1, "f4"),
    (float("inf"), "f4"),
    (float("nan"), "f8"),
    (3.0, "i4"),
    (True, "?"),
    (np.datetime64("NaT"), "M8[s]"),
    ("2026-01-01", "M8[D]"),
    (("abc", 1), [("a", "S3"), ("b", "i4")]),
    (1.0, [("a", "i4"), ("b", "?")]),
    (([1, 2.0],), [("a", "i4", (2,))]),
    ((np.array([[[1.0, 2.0]]]),), [("a", "i4", (2,))]),
    ((range(2),), [("a", "i4", (3, 2))]),
    (([(1, 2), (3, 4)],), [("a", [("x", "f8"), ("y", "i4")], (2,))]),
    (((1.5, 2),), [("a", [("x", "f8"), ("y", "i4")], (2,))]),
    (np.array([(1.0, b"abc")], [("b", "f8"), ("c", "S4")])[0], [("a", "i4"), ("b", "S3")]),
]


@pytest.fixture(scope="module")
def rig(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Rig]:
    folder: Path = tmp_path_factory.mktemp("kept")
    with pytest.MonkeyPatch.context() as patch, rigged(folder) as rig:
        patch.setenv("XDG_STATE_HOME", str(folder / "state"))
        rig.serve(0)
        yield rig


@pytest.mark.parametrize("kind", REFUSED)
def test_what_would_lose_something_is_refused(rig: Rig, kind: str) -> None:
    value, why = REFUSED[kind]
    here, beside = rig.open(0), rig.open()
    with pytest.raises(engram.ArgumentError, match=rf"(?s)'T'.*{why}"):
        here["T"] = value
    with pytest.raises(engram.ArgumentError, match=why):
        here.put("T", value, parts=(1,))
    with pytest.raises(engram.ArgumentError, match=why), here.batch() as batch:
        batch.put("T", value)
    if kind != "a text with zeros at its end":  # as an attribute it is text of variable length
        with pytest.raises(engram.ArgumentError, match=why.split(".*")[0]):
            here.put("T", [1.0], attrs={"a": value})
        with pytest.raises(engram.ArgumentError, match=why.split(".*")[0]):
            here.create_array("T", 3, attrs={"a": value})
        for cluster in (here, beside):
            group = cluster.create_group("mine", exist_ok=True)
            with pytest.raises(engram.ArgumentError, match=why):
                group["T"] = value
            assert list(group) == []
    assert "T" not in here


def test_an_array_whose_mask_hides_nothing_is_put(rig: Rig) -> None:
    cluster = rig.open()
    cluster["nothing"] = np.ma.masked_array([1, 2])
    assert cluster["nothing"][...].tolist() == [1, 2]


@pytest.mark.parametrize(("fill", "dtype"), FILLS, ids=str)
def test_a_fill_that_the_dtype_cannot_hold_is_refused(rig: Rig, fill: Any, dtype: Any) -> None:
    cluster = rig.open()
    with pytest.raises(engram.ArgumentError, match="fill"):
        cluster.create_array("F", 3, dtype, fill=fill)
    assert "F" not in cluster


@pytest.mark.parametrize(("fill", "dtype"), FILLED, ids=str)
def test_a_fill_that_the_dtype_holds_is_what_numpy_makes_of_it(
    rig: Rig, fill: Any, dtype: Any
) -> None:
    expected = np.zeros(3, dtype)
    expected[...] = fill
    found = rig.open().create_array("filled", 3, dtype, fill=fill)[...]
    assert (found.dtype, found.tobytes()) == (expected.dtype, expected.tobytes())


def odd(block: Any, block_info: Any = None) -> Any:
    """Make the block (1, 0) what the array does not say that it is."""
    if block_info and block_info[0]["chunk-location"] == (1, 0):
        return (block + 0.5).astype("f8")
    return block


def masked(block: Any, block_info: Any = None) -> Any:
    where = block_info and block_info[0]["chunk-location"] == (1, 0)
    return np.ma.masked_equal(block, block.flat[0]) if where else block


def longer(block: Any, block_info: Any = None) -> Any:
    where = block_info and block_info[0]["chunk-location"] == (1, 0)
    return np.concatenate([block, block]) if where else block


def test_a_block_that_is_not_what_its_array_says_is_refused(rig: Rig) -> None:
    cluster = rig.open()
    whole = da.from_array(np.arange(24, dtype="i4").reshape(6, 4), chunks=(3, 4))
    for made, why in (
        (odd, r"block \(1, 0\) of 'D' has dtype float64.*int32"),
        (masked, r"block \(1, 0\) of 'D' has masked values"),
        (longer, r"block \(1, 0\) of 'D' has shape \(6, 4\).*\(3, 4\)"),
    ):
        lazy = whole.map_blocks(made, dtype="i4", meta=np.empty((0, 0), "i4"))
        with pytest.raises(engram.ArgumentError, match=why):
            cluster.from_dask("D", lazy)
    assert "D" not in cluster
    words = da.from_array(np.array(["abc", "d"]), chunks=1)
    narrow = words.map_blocks(lambda block: np.array(block.tolist()), dtype="<U3")
    assert cluster.from_dask("words", narrow)[...].tolist() == ["abc", "d"]
    with pytest.raises(engram.ArgumentError, match=r"block \(.,\) of 'D' has dtype <U3.*<U2"):
        cluster.from_dask("D", words.map_blocks(lambda block: block, dtype="<U2"))


def test_attributes_are_in_the_order_of_a_pool_and_dims_what_a_pool_lets_them_be(rig: Rig) -> None:
    cluster = rig.open()
    attrs = {"zeta": 1, "alpha": [1.5], "mid": "text", "none": np.array([], "U3"), "b": b"ab"}
    cluster.put("A", np.zeros((2, 2)), dims=("x", "x"), attrs=attrs)
    found = rig.open()["A"]
    assert list(found.attrs) == sorted(attrs)  # as in a pool
    assert found.attrs["none"].dtype.kind == "U"
    assert found.dims == ("x", "x")
    made = cluster.create_array("U", 3, attrs=attrs)
    assert list(made.attrs) == list(made.publish().attrs) == sorted(attrs)
