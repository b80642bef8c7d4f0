"""Handles of a pool, of this host's node, of another node and of arrays in parts behave alike."""

from __future__ import annotations

import operator
import tracemalloc
from typing import TYPE_CHECKING, Any

import dask.array as da
import numpy as np
import pytest

import engram
from cluster.rig import Rig, rigged

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from pathlib import Path

WIDE = np.arange(24.0).reshape(6, 4)
SMALL = np.arange(5, dtype="i1")
RECORDS = np.array([(1, 2.5), (3, 4.5), (5, 6.5)], [("a", "i4"), ("b", "f8")])
ARRAYS: dict[str, Any] = {
    "wide": WIDE,
    "large": np.arange(40_000, dtype="f8").reshape(200, 200),
    "small": SMALL,
    "single": np.array(7.5),
    "none": np.zeros((0, 3), "f4"),
    "records": RECORDS,
    "words": np.array([b"abc", b"d"], "S3"),
}
BLOB = bytes(range(200))
ATTRS = {"unit": "K", "n": 3, "a": [1.5, 2.5]}
MASKED = np.ma.masked_array([1, 2, 3, 4, 5], mask=[False, True, False, False, False])

Handles = dict[str, dict[str, Any]]


@pytest.fixture(scope="module")
def rig(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Rig]:
    folder: Path = tmp_path_factory.mktemp("alike")
    with pytest.MonkeyPatch.context() as patch, rigged(folder) as rig:
        patch.setenv("XDG_STATE_HOME", str(folder / "state"))
        for number in range(2):  # what a test replaces makes room for the next ones
            rig.serve(number, kept=1.0)
        yield rig


@pytest.fixture
def handles(rig: Rig) -> Handles:
    """Give the same arrays and blob by where they lie, as they are before anything is written."""
    here, there = rig.open(0), rig.open(1)
    mine = here.create_group("mine", exist_ok=True)
    path = rig.folder / "alone"
    alone = engram.open(path) if path.exists() else engram.create(path, "64 MiB", force=True)
    found: Handles = {"pool": {}, "own": {}, "far": {}, "parts": {}}
    for name, value in ARRAYS.items():
        dims = None if value.ndim != 2 else ["y", "x"]
        alone.create_array(name, data=value, dims=dims, attrs=ATTRS, overwrite=True)
        mine.put(name, value, dims=dims, attrs=ATTRS)
        found["pool"][name], found["own"][name] = alone[name], mine[name]
        found["far"][name] = there[f"mine/{name}"]
        found["parts"][name] = here.put(f"parts/{name}", value, dims=dims, attrs=ATTRS)
    alone.create_blob("blob", BLOB, attrs=ATTRS, overwrite=True)
    mine.put("blob", BLOB, attrs=ATTRS)
    found["pool"]["blob"], found["own"]["blob"] = alone["blob"], mine["blob"]
    found["far"]["blob"] = there["mine/blob"]
    return found


def outcome(do: Callable[[Any], Any], thing: Any) -> Any:
    """Give what comes of something, or the class of what it raises."""
    try:
        return do(thing)
    except Exception as error:  # noqa: BLE001 - it is compared
        raised = error
    assert "http" not in str(raised)
    assert not isinstance(raised, engram.EngramError) or str(raised)
    return type(raised)


def same(found: Any, expected: Any) -> None:
    """Compare results; a class of the other's kind is as good: who catches one has the other."""
    if isinstance(expected, type) and issubclass(expected, Exception):
        assert isinstance(found, type), found
        assert issubclass(found, expected), (found, expected)
        return
    assert type(found) is type(expected), (found, expected)
    if isinstance(expected, np.ndarray):
        assert (found.dtype, found.shape) == (expected.dtype, expected.shape)
        np.testing.assert_array_equal(found, expected)
    elif isinstance(expected, list) and any(isinstance(one, np.ndarray) for one in expected):
        assert len(found) == len(expected)
        for one, other in zip(found, expected, strict=True):
            same(one, other)
    else:
        assert found == expected


def at(key: Any) -> Callable[[Any], Any]:
    return lambda a: a[key]


def put_at(key: Any, value: Any) -> Callable[[Any], Any]:
    def put(a: Any) -> Any:
        a[key] = value
        return a[...]

    return put


def added_at(a: Any) -> Any:
    """Add at one place."""
    np.add.at(a, 1, 2.0)
    return a[...]


def added(a: Any) -> Any:
    before = a
    a += 1
    assert a is before
    return a[...]


READS: dict[str, Callable[[Any], Any]] = {
    "shape": lambda a: a.shape,
    "dtype": lambda a: a.dtype,
    "ndim": lambda a: a.ndim,
    "size": lambda a: a.size,
    "nbytes": lambda a: a.nbytes,
    "itemsize": lambda a: a.itemsize,
    "chunks": lambda a: a.chunks,
    "dims": lambda a: a.dims,
    "name": lambda a: a.name,
    "len": len,
    "list": list,
    "bool": bool,
    "asarray": np.asarray,
    "as another dtype": lambda a: np.asarray(a, dtype="f4"),
    "plus": lambda a: a + 1,
    "plus from the left": lambda a: 1 + a,
    "less": lambda a: a < 3,
    "sine": np.sin,
    "to a text": lambda a: f"{type(a[...]).__name__}",
    "equal": lambda a: a == a,  # noqa: PLR0124 - it is what is asked
    "not equal": lambda a: a != 3,
    "all": at(...),
    "an empty tuple": at(()),
    "a number": at(1),
    "a negative number": at(-1),
    "beyond": at(9000),
    "too many": at((0, 0, 0)),
    "a list": at([1, 3]),
    "a list in one dimension": at((slice(None), [1, 1, 0])),
    "a mask": lambda a: a[np.arange(a.shape[0]) % 2 == 0],
    "a step": at(slice(None, None, 2)),
    "backwards": at((Ellipsis, slice(None, None, -1))),
    "a new axis": at(None),
    "a name": at("a"),
    "names": at(["a", "b"]),
    "a fraction": at(1.5),
    "a missing attribute": lambda a: a.attrs["no"],
    "an attribute": lambda a: a.attrs["unit"],
    "a list of an attribute": lambda a: a.attrs["a"],
    "attributes": lambda a: sorted(a.attrs),
    "whether there is an attribute": lambda a: ("unit" in a.attrs, "no" in a.attrs, 3 in a.attrs),
    "an attribute or another thing": lambda a: a.attrs.get("no", 3),
    "what is not there": lambda a: a.no_such_thing,
}
WRITES: dict[str, tuple[str, Callable[[Any], Any]]] = {
    "all": ("wide", put_at(..., 3.0)),
    "an item": ("wide", put_at((1, 2), 3)),
    "a row": ("wide", put_at(1, [1, 2, 3, 4])),
    "rows": ("wide", put_at([1, 3], 5.0)),
    "rows with a repeat": ("wide", put_at([1, 3, 1], np.arange(12.0).reshape(3, 4))),
    "columns": ("wide", put_at((slice(None), [3, 0]), np.arange(2.0))),
    "points": ("wide", put_at(([1, 3], [0, 2]), [8.0, 9.0])),
    "a mask": ("wide", put_at(WIDE % 3 == 0, -1.0)),
    "a mask of rows": ("wide", put_at(np.arange(6) > 3, -1.0)),
    "steps": ("wide", put_at((slice(None, None, 2), slice(None, None, -3)), 6.0)),
    "nothing": ("wide", put_at(slice(3, 3), 6.0)),
    "nothing by False": ("wide", put_at(False, 6.0)),
    "nothing of a row by False": ("wide", put_at((False, 1), 6.0)),
    "all by True": ("wide", put_at(True, 6.0)),
    "two ellipses": ("wide", put_at((..., ...), 6.0)),
    "a new axis": ("wide", put_at((None, 1), 6.0)),
    "points side by side": ("wide", put_at(([1, 1, 1, 2], [0, 3, 1, 0]), [5.0, 6.0, 7.0, 8.0])),
    "points that occur twice": ("wide", put_at(([1, 1], [2, 2]), [5.0, 6.0])),
    "many rows": ("large", put_at(slice(0, 200, 7), 6.0)),
    "one's own values": ("wide", lambda a: put_at(slice(0, 2), a[4:6])(a)),
    "a value that does not fit": ("wide", put_at(1, [1.0, 2.0])),
    "text": ("wide", put_at(1, "x")),
    "beyond": ("wide", put_at(9, 1.0)),
    "too large a number": ("small", put_at(..., 300)),
    "an array of too large a number": ("small", put_at(..., np.array([300]))),
    "masked values": ("small", put_at(..., MASKED)),
    "no masked values": ("small", put_at(..., np.ma.masked_array(SMALL + 1))),
    "a time": ("small", put_at(0, np.datetime64("2026-01-01"))),
    "a single value": ("single", put_at((), 1.0)),
    "records": ("records", put_at(slice(0, 2), (7, 8.5))),
    "words": ("words", put_at(0, b"xy")),
    "in place": ("wide", added),
    "in place of another kind": ("small", lambda a: a.__imul__(1.5)),
    "at": ("wide", added_at),
    "in place of one's own": ("wide", lambda a: np.multiply(a, a, out=a)[...]),
    "where something is": ("wide", lambda a: np.add(a, 1, out=a, where=WIDE > 5)[...]),
    "a sum": ("single", lambda a: np.add.reduce(SMALL, out=a)[...]),
    "an attribute": ("wide", lambda a: a.attrs.update(late="b", early=2) or list(a.attrs)),
    "no attribute": ("wide", lambda a: operator.delitem(a.attrs, "no")),
    "masked values as an attribute": ("wide", lambda a: operator.setitem(a.attrs, "m", MASKED)),
}
BLOBS: dict[str, Callable[[Any], Any]] = {
    **{f"at {key!r}": at(key) for key in (..., (), 3, -1, np.int64(3), 900)},
    **{f"at {key!r}": at(key) for key in (slice(3, 9), slice(None, None, -5), slice(5, 2))},
    **{f"at {key!r}": at(key) for key in ([1, 2], "a", None, 1.5)},
    "len": len,
    "size": lambda b: b.size,
    "nbytes": lambda b: b.nbytes,
    "name": lambda b: b.name,
    "bytes": bytes,
    "list": list,
    "bool": bool,
    "asarray": np.asarray,
    "a missing attribute": lambda b: b.attrs["no"],
    "dtype": lambda b: b.dtype,
    "write some": lambda b: operator.setitem(b, slice(2, 4), b"ZZ") or b[...],
    "write one": lambda b: operator.setitem(b, 0, 7) or b[...],
    "write all": lambda b: operator.setitem(b, Ellipsis, b"y" * 200) or b[...],
    "write too much": lambda b: operator.setitem(b, slice(2, 4), b"ZZZ"),
    "write too little": lambda b: operator.setitem(b, Ellipsis, b"ZZZ"),
    **{f"at {key!r}": at(key) for key in (True, np.False_, (1,), (slice(2),))},
    **{f"write {key!r}": put_at(key, 7) for key in ((), (3,), True, False, None, [1, 3], 900, "a")},
    **{f"write {key!r}": put_at(key, 7) for key in (slice(None, None, 2), slice(9, 5))},
    **{f"write {value!r} as one": put_at(0, value) for value in (300, -1, 7.5, "x", b"z", b"")},
    **{
        f"write {value!r}": put_at(slice(3), value) for value in (300, -1, [1, 2], "abc", [1, 2, 3])
    },
    "write one beyond": put_at(-201, b"z"),
    "write too large numbers": put_at(slice(3), np.array([1, 2, 300])),
    "write all by an empty tuple": put_at((), b"y" * 200),
    "write steps": put_at(slice(None, None, 2), b"y" * 100),
    "write too few steps": put_at(slice(None, None, 2), b"y" * 99),
    "write backwards": put_at(slice(3, 0, -1), b"xyz"),
    "write where a mask is": put_at(np.arange(200) % 3 == 0, 7),
    "write bytes with gaps": put_at(slice(3), memoryview(b"xaybzc")[::2]),
    "write wide items": put_at(slice(4), memoryview(np.array([1, 2], "i2").data)),
}


@pytest.mark.parametrize("place", ["own", "far", "parts"])
def test_what_is_read_of_an_array_is_what_a_pool_gives(handles: Handles, place: str) -> None:
    for name in ARRAYS:
        for what, do in READS.items():
            expected = outcome(do, handles["pool"][name])
            try:
                same(outcome(do, handles[place][name]), expected)
            except AssertionError as error:
                raise AssertionError(f"{what} of {name!r}") from error


@pytest.mark.parametrize("place", ["own", "far"])
@pytest.mark.parametrize("what", WRITES)
def test_what_is_written_into_an_array_is_what_a_pool_keeps(
    handles: Handles, place: str, what: str
) -> None:
    name, do = WRITES[what]
    handles["far"][name][...]  # the first read of a small one gives what came with the look-up
    expected = outcome(do, handles["pool"][name])
    same(outcome(do, handles[place][name]), expected)
    same(handles["own"][name][...], handles["pool"][name][...])
    same(handles["far"][name][...], handles["pool"][name][...])


@pytest.mark.parametrize("place", ["own", "far"])
@pytest.mark.parametrize("what", BLOBS)
def test_a_blob_is_the_same_wherever_it_lies(handles: Handles, place: str, what: str) -> None:
    expected = outcome(BLOBS[what], handles["pool"]["blob"])
    same(outcome(BLOBS[what], handles[place]["blob"]), expected)
    same(bytes(handles["own"]["blob"]), bytes(handles["pool"]["blob"]))


def test_handles_of_one_thing_are_equal_and_others_are_not(rig: Rig, handles: Handles) -> None:
    there = rig.open(1)
    for place, above in (("far", "mine"), ("parts", "parts")):
        found = {name: there[f"{above}/{name}"] for name in handles[place]}
        assert len({*found.values(), *handles[place].values()}) == len(found)
        for name, handle in found.items():
            assert handle == handles[place][name]
            assert handle not in {handles["pool"][name], 3, handles[place]["none"] is handle}
    assert there["mine/wide"] != there["mine/small"]
    gone = there["mine/wide"]
    there["mine/wide"] = WIDE
    assert there["mine/wide"] != gone


def test_what_a_handle_cannot_do_it_says(rig: Rig, handles: Handles) -> None:
    far, parts = handles["far"], handles["parts"]
    with pytest.raises(engram.ArgumentError, match="'mine/wide' lies on another node, on the host"):
        far["wide"].view()
    with pytest.raises(engram.ArgumentError, match="'mine/blob' lies on another node"):
        far["blob"].view("r+")
    with pytest.raises(engram.ArgumentError, match=r"\[1\] of 'parts/wide'.*put\('parts/wide'"):
        parts["wide"][1] = 3
    with pytest.raises(engram.ArgumentError, match=r"'parts/wide'.*put"):
        parts["wide"] += 1
    with pytest.raises(engram.ArgumentError, match=r"'parts/wide'.*put the array anew"):
        parts["wide"].attrs["unit"] = "m"
    with pytest.raises(engram.ArgumentError, match=r"'mine/records'.*items"):
        far["records"]["a"] = 3
    with pytest.raises(engram.ArgumentError, match=r"'mine/large' selects 10,000 boxes.*1,000"):
        far["large"][::2, ::2] = 3
    with pytest.raises(engram.ArgumentError, match="copy=False"):
        np.asarray(far["wide"], copy=False)
    with pytest.raises(AttributeError, match=r"a\.codec"):
        far["wide"].compression  # noqa: B018 - that there is none is the test
    with pytest.raises(engram.NotFoundError, match=r"no attribute 'no'.*'a', 'n', 'unit'"):
        far["wide"].attrs["no"]
    for place in ("own", "far"):
        with pytest.raises(engram.NotFoundError, match=r"'no'.*'mine'"):
            rig.open(int(place == "far"))["mine"]["no"]
    assert bool(rig.open()["mine"])


def test_dask_reads_an_array_on_another_node_as_it_is_then(handles: Handles) -> None:
    far = handles["far"]["wide"]
    for step in (1.0, 2.0):
        far[...] = step
        lazy = da.from_array(far, chunks=2)
        np.testing.assert_array_equal(lazy.compute(), np.full_like(WIDE, step))
        assert lazy.name != da.from_array(far, chunks=2).name
    parts = handles["parts"]["wide"]
    assert da.from_array(parts, chunks=2).name == da.from_array(parts, chunks=2).name
    np.testing.assert_array_equal((da.ones((6, 4)) + parts).compute(), WIDE + 1)


def test_a_write_that_selects_nothing_of_a_single_value_leaves_it(handles: Handles) -> None:
    single = handles["far"]["single"]
    before = single[()]
    single[False] = 9
    assert single[()] == before
    single[True] = 9
    assert single[()] == 9


def test_a_write_that_failed_midway_leaves_a_handle_that_tells_the_truth(
    handles: Handles, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name, value in (("small", SMALL + 1), ("blob", b"abcde")):
        far, own = handles["far"][name], handles["own"][name]
        store, begun = far._store, list[Any]()

        def fail_later(*given: Any, store: Any = store, begun: list[Any] = begun) -> None:
            begun.append(given)
            if len(begun) > 1:
                raise engram.BusyError("the second box is not written")
            store(*given)

        monkeypatch.setattr(far, "_store", fail_later)
        with pytest.raises(engram.BusyError, match="the second box"):
            far[:10:2] = value[:5:1] if name == "blob" else value[::2]
        assert len(begun) == 2
        written = 97 if name == "blob" else 1
        assert (own[0], far[0]) == (written, written)
        same(far[...], own[...])


def test_too_many_boxes_are_refused_before_there_is_memory_for_them(
    rig: Rig, handles: Handles
) -> None:
    side = 20_000
    group = engram.open(rig.folder / "node0")["mine"]
    del handles
    group.create_array("vast", shape=(side, side), dtype="f8", chunks=(1000, 1000), overwrite=True)
    vast = rig.open(1)["mine/vast"]
    diagonal = np.arange(side)
    keys: list[Any] = [(diagonal, diagonal[::-1]), (slice(None, None, 2), slice(None, None, 2))]
    for key in keys:
        tracemalloc.start()
        try:
            with pytest.raises(engram.ArgumentError, match=r"'mine/vast' selects .*000 boxes"):
                vast[key] = 3
            _, most = tracemalloc.get_traced_memory()
        finally:
            tracemalloc.stop()
        assert most < 64 << 20
    vast[diagonal[:3], diagonal[3:6]] = 3
    np.testing.assert_array_equal(vast[:3, 3:6], np.eye(3) * 3)


def test_what_a_property_says_of_itself_is_told(rig: Rig, handles: Handles) -> None:
    del handles
    group = engram.open(rig.folder / "node0")["mine"]
    group.create_array("chunked", data=WIDE, chunks=(2, 2), overwrite=True)
    far = rig.open(1)["mine/chunked"]
    with pytest.raises(AttributeError, match=r"'mine/chunked' is chunked.*chunks=\.\.\."):
        far.chunks  # noqa: B018 - that there is none is the test
    np.testing.assert_array_equal(far[...], WIDE)


def test_values_are_fetched_once_and_not_before_a_write_is_refused(
    rig: Rig, handles: Handles, monkeypatch: pytest.MonkeyPatch
) -> None:
    words = np.array(["a", "b"], np.dtypes.StringDType())
    engram.open(rig.folder / "node0")["mine"].create_array("texts", data=words, overwrite=True)
    far, parts, texts = handles["far"]["wide"], handles["parts"]["wide"], rig.open(1)["mine/texts"]
    fetched: list[Any] = []
    for kind in {type(far), type(parts)}:

        def counted(array: Any, key: Any, kept: Any = kind.__getitem__) -> Any:
            fetched.append(array)
            return kept(array, key)

        monkeypatch.setattr(kind, "__getitem__", counted)
    far += 1
    np.multiply(far, far, out=far, where=far > 3)
    assert len(fetched) == 3  # one is the comparison's
    np.multiply(WIDE, 2, out=far)
    assert len(fetched) == 3
    refused: list[Callable[[], Any]] = [
        lambda: parts.__iadd__(1),
        lambda: np.add(far, far, out=parts),
        lambda: np.add.at(parts, 0, far),
        lambda: np.add(texts, texts, out=texts),
    ]
    for do in refused:
        with pytest.raises(engram.ArgumentError):
            do()
    assert len(fetched) == 3


def test_a_group_with_a_table_shows_itself(rig: Rig, handles: Handles) -> None:
    del handles
    engram.open(rig.folder / "node0")["mine"].create_table("rows", {"a": [1, 2]}, overwrite=True)
    for number in (0, 1):
        card = rig.open(number)["mine"]._repr_html_()
        assert "blob" in card
        assert "float64" in card
        assert ("rows" in card) or number
