"""What is refused is refused whole: nothing is half written, half made or published late."""

import os
from datetime import date, datetime, timedelta
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import engram
from engram import _engram


class _Deleting:
    """Something that deletes an object while numpy asks it for its values."""

    def __init__(self, pool: engram.Pool, name: str) -> None:
        self._pool = pool
        self._name = name

    def __array__(self, dtype: Any = None, copy: bool | None = None) -> Any:
        del copy
        del self._pool[self._name]
        return np.ones(10_000, dtype)


@pytest.mark.parametrize("count", [16, 100_000])
@pytest.mark.parametrize(
    ("dtype", "bad"), [("i4", "q"), ("i1", 300), ("f8", "x"), ("M8[s]", "never"), ("S3", "\xfc")]
)
def test_a_refused_write_in_place_writes_nothing(
    pool: engram.Pool, dtype: str, bad: object, count: int
) -> None:
    old = np.zeros(count, dtype)
    pool["a"] = old
    value = ["1" if isinstance(bad, str) else 1] * count
    if dtype == "M8[s]":
        value = ["2024-02-29"] * count
    value[count // 2] = bad  # type: ignore[call-overload]  # that is the point
    for given in (value, np.array(value, object)):
        with pytest.raises(engram.ArgumentError, match="does not fit"):
            pool["a"][...] = given
        assert pool["a"][...].tobytes() == old.tobytes()
    if isinstance(bad, str):
        with pytest.raises(engram.ArgumentError, match="does not fit"):
            pool["a"][:] = np.array(value)
        assert pool["a"][...].tobytes() == old.tobytes()


def test_a_refused_record_writes_none_of_its_fields(pool: engram.Pool) -> None:
    pool["a"] = np.zeros(10_000, [("x", "i4"), ("y", "i4")])
    for key, value in ((3, (1, "q")), (slice(0, 2), [(1, 2), (3, "q")]), ("x", ["1", "q"] * 5000)):
        with pytest.raises(engram.ArgumentError, match="does not fit"):
            pool["a"][key] = value
        assert pool["a"][...].tobytes() == bytes(80_000)
    pool["a"][3] = (1, 2)
    pool["a"]["y"] = 7
    assert pool["a"][3].tolist() == (1, 7)


def test_writes_in_place_convert_as_numpy_does(pool: engram.Pool) -> None:
    for value in (1.75, [1.5, 2.5, 3.5], np.arange(3, dtype="f4"), np.float64(2.5), True, "7"):
        expected = np.zeros((2, 3), "i2")
        pool["a"] = expected
        expected[1:] = value
        pool["a"][1:] = value
        assert pool["a"][...].tolist() == expected.tolist()
    pool["a"] = np.zeros((2, 3), "i2")
    pool["a"][0, 1] = 5
    pool["b"] = np.arange(3)
    pool["a"][1] = pool["b"]
    assert pool["a"][...].tolist() == [[0, 5, 0], [0, 1, 2]]
    with pytest.raises(engram.ArgumentError):
        pool["a"][0, 1] = [5, 6]
    pool["n"] = np.array(["a", "b"], np.dtypes.StringDType())
    pool["n"][1] = "longer"
    pool["n"][:1] = np.array(["c"])
    assert pool["n"][...].tolist() == ["c", "longer"]


def test_an_object_deleted_by_the_value_is_not_written_to(pool: engram.Pool) -> None:
    pool["a"] = np.zeros(10_000)
    there = pool["a"].view()
    with pytest.raises(engram.BusyError, match="nothing was written"):
        pool["a"][...] = _Deleting(pool, "a")
    assert not there.any()


# Messages


def test_a_missing_name_is_told_without_looking_at_all_the_others(
    pool: engram.Pool, monkeypatch: pytest.MonkeyPatch
) -> None:
    with pytest.raises(engram.NotFoundError, match="it is empty"):
        pool["x"]
    for n in range(100):
        pool[f"x{n:03}"] = n
    pool["temperature"] = 0
    monkeypatch.setattr(_engram, "count", None)
    listed: list[int] = []
    names = _engram.names

    def few(*arguments: Any) -> list[str]:
        found = names(*arguments)
        listed.append(len(found))
        return found

    monkeypatch.setattr(_engram, "names", few)
    with pytest.raises(engram.NotFoundError, match=r"it has 'x051', .*, \.\.\.$"):
        pool["x051b"]
    with pytest.raises(engram.NotFoundError, match=r"it has 'temperature', \.\.\.$"):
        pool["tempersture"]
    assert sum(listed) < 100


def test_what_does_not_print_is_escaped(
    pool: engram.Pool, capsys: pytest.CaptureFixture[str]
) -> None:
    name = "a\x1b[31m\n\u202eé"
    pool.create_group(name).create_array("x", data=[1], dims=["\x1b"])
    pool.tree()
    shown = [capsys.readouterr().out.replace("\n", ""), repr(pool[name]), repr(pool[name]["x"])]
    shown += [pool[name]._repr_html_(), pool.tree()._repr_html_()]
    capsys.readouterr()
    for call in (
        lambda: pool[name + "no"],
        lambda: pool.__delitem__(name + "no"),
        lambda: pool.create_group(name),
        lambda: pool.create_array("y", data=[1], attrs={name: None}),
        lambda: pool[name]["x"].attrs[name],
        lambda: pool.namespaces[name],
    ):
        with pytest.raises(engram.EngramError) as caught:
            call()
        shown.append(str(caught.value))
    for text in shown:
        assert text.isprintable(), text
    assert "é" in shown[0]


# Too late


def test_an_allocation_of_a_closed_pool_is_not_published(pool: engram.Pool) -> None:
    path = pool.path
    block = pool.allocate("a", shape=10_000)
    with pytest.raises(engram.ArgumentError, match="closed"), block as buf:
        buf[...] = 1
        pool.close()
    assert not buf.flags.writeable
    with engram.open(path) as again:
        assert "a" not in again


@pytest.mark.parametrize("gone", ["removed", "closed"])
def test_a_repr_never_raises(pool: engram.Pool, gone: str) -> None:
    part = pool.create_namespace("n")
    part["g/x"] = np.zeros(3)
    part["g/b"] = b"123"
    handles = [part, part["g"], part["g/x"], part["g/b"], part["g"].attrs, part["g/x"].attrs]
    if gone == "removed":
        pool.remove_namespace("n")
    else:
        handles += [pool, pool.attrs, pool.namespaces]
        pool.close()
    for handle in handles:
        assert repr(handle)
        if hasattr(handle, "_repr_html_"):
            assert handle._repr_html_()


def test_what_tells_of_a_pool_is_readable(pool: engram.Pool) -> None:
    assert "used=0" in repr(pool.space)
    assert pool.path in repr(pool.devices)
    assert "'default'" in repr(pool.namespaces.info("default")).replace('"', "'")
    pool["<b>"] = 1
    assert "&lt;b&gt;" in pool["<b>"]._repr_html_()
    assert "&lt;b&gt;" in pool._repr_html_()


# What cannot be kept


@pytest.mark.parametrize("shape", [(0, 2**62), (2**62, 0), (2**61, 0, 4), (2, 2**62)], ids=str)
@pytest.mark.parametrize("dtype", ["f8", "S0", np.dtypes.StringDType(), [("a", "S0")]], ids=str)
def test_a_shape_that_numpy_has_not_is_refused(
    pool: engram.Pool, shape: tuple[int, ...], dtype: Any
) -> None:
    calls: list[Any] = [
        lambda: pool.create_array("e", shape=shape, dtype=dtype),
        lambda: pool.allocate("e", shape=shape, dtype=dtype).__enter__(),
        lambda: pool.scratch(shape, dtype),
    ]
    for call in calls:
        with pytest.raises(engram.ArgumentError):
            call()
    assert list(pool) == []


def test_strings_of_a_shape_that_numpy_has_not_are_refused(pool: engram.Pool) -> None:
    strings = np.empty((0, 2**59), object)
    with pytest.raises(engram.ArgumentError, match="more than an array can have"):
        pool["e"] = strings
    with pytest.raises(engram.ArgumentError, match="more than an array can have"):
        pool.attrs["e"] = strings
    assert list(pool) == []


def test_a_refusal_tells_the_reason(pool: engram.Pool) -> None:
    with pytest.raises(engram.ArgumentError, match="None cannot be stored"):
        pool["x"] = None
    for value in (2**70, -(2**70), [1, 2**70], [2**70]):
        with pytest.raises(engram.ArgumentError, match=r"1180591620717411303424.* 64-bit"):
            pool["x"] = value
    for value in (2**70, -(2**70)):
        with pytest.raises(engram.ArgumentError, match=r"1180591620717411303424.* 64-bit"):
            pool.attrs["x"] = value
    with pytest.raises(engram.ArgumentError, match="of type int"):
        pool["x"] = np.array([1, "a"], object)
    assert list(pool) == []


def test_dates_and_times_are_kept_as_numpy_has_them(pool: engram.Pool) -> None:
    day = date(2024, 2, 29)
    moment = datetime(2024, 2, 29, 12, 30, 15, 250)  # noqa: DTZ001 - numpy's have no zone
    span = timedelta(days=2, microseconds=7)
    for value, dtype in ((day, "M8[D]"), (moment, "M8[us]"), (span, "m8[us]")):
        pool["x"] = value
        assert pool["x"].dtype == dtype
        assert pool["x"][()].item() == value
        pool["x"] = [value, value]
        assert pool["x"].dtype == dtype
        assert pool["x"][...].tolist() == [value, value]
        pool.attrs["x"] = value
        assert pool.attrs["x"].item() == value
    pool["x"] = [day, moment]
    assert pool["x"].dtype == "M8[us]"
    for mixed in ([day, span], [day, "2024-01-01"], [span, 3]):
        with pytest.raises(engram.ArgumentError):
            pool["x"] = mixed


# Arguments


def test_what_is_no_argument_is_an_error_of_ours(pool: engram.Pool, home: Path) -> None:
    calls: list[Any] = [
        lambda: pool.create_namespace("\udc80"),
        lambda: pool.create_namespace(5),  # type: ignore[arg-type]
        lambda: pool.namespaces[5],  # type: ignore[index]
        lambda: pool.remove_namespace("\udc80"),
        lambda: pool.create_namespace("n", group=-1),
        lambda: pool.create_namespace("n", group=2**40),
        lambda: pool.create_namespace("n", group=1.5),  # type: ignore[arg-type]
        lambda: pool.create_namespace("n", group="a\0b"),
        lambda: pool.create_namespace("n", mode="0o770"),  # type: ignore[arg-type]
        lambda: pool.create_namespace("n", mode=-1),
        lambda: engram.create(home / "p", durability=None),  # type: ignore[arg-type]
        lambda: engram.create(b"/x"),  # type: ignore[arg-type]
        lambda: engram.create(3),  # type: ignore[arg-type]
        lambda: engram.create(str(home / "a\0b")),
        lambda: engram.create(home / "p", devices=[3]),  # type: ignore[list-item]
        lambda: engram.open(None),  # type: ignore[arg-type]
        lambda: engram.open(home, mode=["r"]),  # type: ignore[arg-type]
        lambda: pool.add_device(3),  # type: ignore[arg-type]
        lambda: engram.import_file(home / "f.nc", "x"),  # type: ignore[arg-type]
    ]
    for call in calls:
        with pytest.raises(engram.EngramError) as caught:
            call()
        assert not isinstance(caught.value, engram.PoolNotFoundError)
    assert list(pool.namespaces) == ["default"]


@pytest.mark.parametrize("call", [engram.create, engram.open, engram.destroy, engram.verify])
def test_no_path_is_not_the_working_directory(call: Any) -> None:
    with pytest.raises(engram.InvalidNameError):
        call("")


def test_a_path_may_be_any_bytes(home: Path) -> None:
    path = os.fsdecode(bytes(home) + b"/p\xff")
    with engram.create(path, size="1 MiB", force=True) as made:
        made["x"] = 1
        assert made.path == path
        assert repr(made).isprintable()
        assert repr(made.devices).isprintable()
        with pytest.raises(engram.EngramError) as caught:
            engram.create(path)
        assert str(caught.value).isprintable()
    assert engram.verify(path)
    engram.destroy(path)
