"""What else writes where active objects lie: readers are told, and collecting goes on."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np
import pydantic
import pytest

import engram
from engram import active
from engram.active.stored.home import home_of
from shell import run

if TYPE_CHECKING:
    from collections.abc import Iterator


class Plain(engram.ActiveObject):
    """An object."""

    data: np.ndarray = np.zeros(3)
    other: Any = None


class Numbers(pydantic.RootModel[list[int]]):
    """A model of one value alone, which is walked through as that is."""

    def __iter__(self) -> Iterator[int]:  # type: ignore[override]
        return iter(self.root)


NOTES: dict[str, list[Any]] = {
    "__class__": ["bad", 5, -1, 1.5, True, "x@y", "@1", np.arange(3)],
    "__sharing__": ["bad", 5, True, 1.5, np.arange(3, dtype=np.uint8)],
    "__aliases__": ["bad", 5, -1, True, np.arange(3)],
    "__links__": ["bad", np.arange(3)],
    "__outside__": ["bad", np.arange(3)],
    "__moved__": ["bad", -1, 1.5, np.arange(3)],
    "__replicas__": ["bad", -1, np.arange(3)],
    "__version_of__": ["bad", -1, np.arange(3)],
    "__replica_of__": ["bad", -1, np.arange(3)],
    "__versions__": ["bad", -1, np.arange(3)],
    "__device__": ["bad", 1.5, np.arange(3)],
}


def made(alias: str | None = None, **fields: Any) -> Plain:
    one = Plain(**fields)
    one.make_persistent(alias)
    return one


def group(pool: engram.Pool, obj: Plain) -> engram.Group:
    for name in pool[".active/objects"]:
        found = pool[f".active/objects/{name}"]
        if found._id == obj._gid:
            assert isinstance(found, engram.Group)
            return found
    raise AssertionError


ROWS = [np.arange(3), np.array(-1), np.array(1.5), "text", np.zeros((0,), np.uint64)]


@pytest.mark.parametrize("row", ROWS, ids=str)
def test_an_alias_that_is_no_id_is_told_and_goes(pool: engram.Pool, row: Any) -> None:
    made("good")
    made()
    pool[".active/aliases"]["evil"] = row
    with pytest.raises(engram.CorruptError, match="'evil'"):
        Plain.get_by_alias("evil")
    assert active.gc(pool).objects == 1
    assert Plain.get_by_alias("good").is_persistent
    Plain.delete_alias("evil")
    with pytest.raises(active.AliasNotFoundError):
        Plain.get_by_alias("evil")


def test_ls_lists_the_rest_of_a_pool_that_has_what_is_unreadable(pool: engram.Pool) -> None:
    made("good")
    group(pool, made("odd")).attrs["__class__"] = 5
    pool[".active/aliases"]["evil"] = np.arange(3)
    pool.close()
    ended = run("active", "ls", pool.path)
    assert ended.code == 0
    assert [line.split()[:2] for line in ended.out.splitlines()[1:]] == [
        ["evil", "unreadable"],
        ["good", f"{__name__}.Plain@1"],
        ["odd", "unreadable"],
    ]
    assert run("active", "gc", pool.path).code == 0
    for alias in ("odd", "evil"):
        ended = run("active", "call", pool.path, alias, "mean")
        assert ended.code == engram.CorruptError.exit_code
        assert "Traceback" not in ended.err


def test_a_note_that_leads_round_in_a_ring_ends(pool: engram.Pool) -> None:
    one = made("one")
    group(pool, one).attrs.update({"__class__": "", "__moved__": one._gid})
    pool.close()
    ended = run("active", "call", pool.path, "one", "mean")
    assert ended.code == engram.CorruptError.exit_code
    assert "lead in a circle" in ended.err


@pytest.mark.parametrize(("name", "value"), [(n, v) for n, all_ in NOTES.items() for v in all_])
def test_a_note_of_another_type_is_told(pool: engram.Pool, name: str, value: Any) -> None:
    one = made("one")
    group(pool, one).attrs[name] = value
    with pytest.raises(engram.CorruptError, match=rf"{name}|class of active objects"):
        if name == "__class__":
            home_of(pool).live.clear()
            Plain.get_by_alias("one")
        home_of(pool).notes(one._gid, name)


@pytest.mark.parametrize(("name", "value"), [(n, v) for n, all_ in NOTES.items() for v in all_])
def test_what_cannot_be_read_stays_and_the_rest_is_collected(
    pool: engram.Pool, name: str, value: Any
) -> None:
    needed, rest = made(), made()
    odd = made(other=needed)
    gid = rest._gid
    group(pool, odd).attrs[name] = value
    fits = isinstance(value, str) and name == "__class__"
    if fits or name == "__device__":  # read by nobody who collects
        assert active.gc(pool).objects == 3
        return
    assert active.gc(pool).objects == 1
    assert needed.data.sum() == 0
    assert odd._gid in pool_ids(pool)
    assert gid not in pool_ids(pool)


def pool_ids(pool: engram.Pool) -> set[int]:
    return {pool[f".active/objects/{name}"]._id for name in pool[".active/objects"]}


def test_a_field_that_does_not_decode_keeps_its_object(pool: engram.Pool) -> None:
    needed = made()
    odd, _ = made(other=needed), made()
    group(pool, odd).attrs["wrong"] = np.array([0xC1], np.uint8)
    assert active.gc(pool).objects == 1
    assert {needed._gid, odd._gid} == pool_ids(pool)


# What callers give


@pytest.mark.parametrize("scope", ["Private", "zz", "published", 5, ""])
def test_a_scope_that_there_is_not_is_refused(pool: engram.Pool, scope: Any) -> None:
    one = Plain()
    with pytest.raises(engram.ArgumentError, match=r"scope .* is unknown"):
        one.make_persistent("one", scope=scope)
    assert not one.is_persistent
    one.make_persistent("one", scope="private")
    assert home_of(pool).scope_of(one._gid) == "private"


@pytest.mark.parametrize("number", [None, -1, 2**64, 1.5, [], b"1", "a:b:-1", "a:b:g"])
def test_what_is_no_id_is_refused(pool: engram.Pool, number: Any) -> None:
    with pytest.raises(engram.ArgumentError, match="is no id of an active object"):
        Plain.get_by_id(number)
    one = made()
    assert Plain.get_by_id(np.uint64(one._gid)) is one  # type: ignore[arg-type]
    assert pool.path


def test_an_alias_that_is_no_unicode_is_no_name(pool: engram.Pool) -> None:
    one = Plain()
    for use in (one.make_persistent, Plain.get_by_alias, Plain.delete_alias):
        with pytest.raises(engram.InvalidNameError, match="no text in Unicode"):
            use("\ud800")
    assert not one.is_persistent
    assert home_of(pool).aliases() == {}


# Values


def test_a_model_of_one_value_comes_back(pool: engram.Pool) -> None:
    one = made("one", other=[Numbers([1, 2])])
    assert one.other == [Numbers([1, 2])]
    assert one.other[0].root == [1, 2]
    assert pool.path


def test_an_empty_array_may_be_written_into(pool: engram.Pool) -> None:
    one = made(data=np.zeros((0, 3)))
    one.data += 1
    one.data[...] = 2
    assert one.data.shape == (0, 3)
    one.data = np.zeros(2)
    one.data += 1
    assert one.data.sum() == 2
    with engram.open(pool.path, "r") as reader:
        made(data=np.zeros(0)).add_alias("empty")
        found = Plain.get_by_alias("empty", pool=reader)
        assert found.data.size == 0
