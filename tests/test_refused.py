"""What is refused is refused whole: nothing is half written, half made or published late."""

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
    with pytest.raises(engram.NotFoundError, match="it has 'x051', .*, ...$"):
        pool["x051b"]
    with pytest.raises(engram.NotFoundError, match="it has 'temperature', ...$"):
        pool["tempersture"]
    assert sum(listed) < 100
