"""Dask computes anew what may have changed, and once what cannot: tokens of what a pool has."""

from __future__ import annotations

import pickle
from typing import TYPE_CHECKING, Any

import numpy as np
import pytest

import engram
from active_models import Block
from support import TEXT, in_child

if TYPE_CHECKING:
    from collections.abc import Iterator

COUNT = 4096
CHANGEABLE = {
    "small": np.arange(4.0),
    "large": np.zeros(COUNT),
    "chunked": {"data": np.zeros((64, 64)), "chunks": (16, 64)},
    "text": np.array(["a", "bc"], TEXT),
    "long text": np.array([f"text {n}" for n in range(COUNT)], TEXT),
    "blob": b"bytes",
    "long blob": b"bytes" * COUNT,
}


def token(thing: Any) -> Any:
    """Return a token, as dask asks for it."""
    return thing.__dask_tokenize__()


def fill(pool: engram.Pool) -> None:
    """Put one of each kind into a pool."""
    for name, value in CHANGEABLE.items():
        if isinstance(value, dict):
            pool.create_array(name, **value)
        elif isinstance(value, bytes):
            pool.create_blob(name, value)
        else:
            pool[name] = value


@pytest.fixture
def filled(pool: engram.Pool) -> Iterator[engram.Pool]:
    fill(pool)
    return pool  # type: ignore[return-value]


@pytest.mark.parametrize("chunks", [None, (16, 64)])
def test_dask_sees_a_change_in_place(pool: engram.Pool, chunks: Any) -> None:
    da = pytest.importorskip("dask.array")
    pool.create_array("T", data=np.zeros((64, 64)), chunks=chunks)
    found: Any = pool["T"]
    before = da.from_array(found, chunks=(32, 64)).persist()
    found[...] = 1
    after = da.from_array(found, chunks=(32, 64)).persist()
    assert before.name != after.name
    assert float((after - before).sum().compute()) == COUNT  # what was persisted first is as it was
    assert float(after.sum().compute()) == COUNT


def test_dask_knows_what_is_published_again(pool: engram.Pool) -> None:
    da = pytest.importorskip("dask.array")
    tokenize = pytest.importorskip("dask.base").tokenize
    pool["T"] = np.ones((64, 64))
    pool.publish("T", closed=True)
    found: Any = pool["T"]
    assert da.from_array(found).name == da.from_array(found).name
    assert float(da.from_array(found).sum().compute()) == COUNT
    assert tokenize(found) == tokenize(pickle.loads(pickle.dumps(found)))
    assert tokenize(pool) != tokenize(pool)


@pytest.mark.parametrize("name", CHANGEABLE)
def test_what_may_change_has_a_token_of_its_own_each_time(filled: engram.Pool, name: str) -> None:
    found = filled[name]
    tokens = [token(found) for _ in range(3)]
    tokens += [token(filled[name]), token(pickle.loads(pickle.dumps(found)))]
    assert len(set(tokens)) == len(tokens)


def test_groups_results_and_objects_have_tokens_of_their_own_each_time(
    filled: engram.Pool,
) -> None:
    group = filled.create_group("g", attrs={"a": 1})
    filled.publish("g", closed=True)
    engram.active.use(filled)
    block = Block(data=np.arange(3))
    things: list[Any] = [filled, group, filled["g"], filled.query("a = 1"), block]
    with filled.snapshot() as then:
        things += [then, then["g"]]
        for thing in things:
            assert token(thing) != token(thing)
    block.make_persistent()
    assert token(block) != token(block)


OTHER = """
import sys, pickle, engram
for one in sys.argv[1:]:
    print(pickle.loads(bytes.fromhex(one)).__dask_tokenize__())
"""


def test_what_is_published_has_one_token_in_every_process(filled: engram.Pool) -> None:
    for name in CHANGEABLE:
        filled.publish(name, closed=True)
    found = [filled[name] for name in CHANGEABLE]
    tokens = [token(thing) for thing in found]
    assert tokens == [token(filled[name]) for name in CHANGEABLE]
    assert len(set(tokens)) == len(tokens)
    with filled.snapshot() as then:
        assert tokens == [token(then[name]) for name in CHANGEABLE]
    sent = [pickle.dumps(thing).hex() for thing in found]
    assert in_child(OTHER, *sent).splitlines() == [str(one) for one in tokens]


@pytest.mark.parametrize("name", CHANGEABLE)
def test_what_was_withdrawn_and_changed_is_another_once_it_is_published(
    filled: engram.Pool, name: str
) -> None:
    filled.publish(name, closed=True)
    before, found = token(filled[name]), filled[name]
    filled.unpublish(name)
    assert token(found) not in {before, token(found)}
    filled.publish(name, closed=True)
    assert token(filled[name]) == token(found) != before


KEPT = ("small", "chunked", "text", "long text", "blob")
"""What nobody changes for one who looks at a snapshot."""


@pytest.mark.parametrize("name", CHANGEABLE)
def test_a_snapshots_tokens_tell_whether_its_values_can_change(
    filled: engram.Pool, name: str
) -> None:
    found: Any = filled[name]
    with filled.snapshot() as then, filled.snapshot() as also:
        seen: Any = then[name]
        before, values = token(seen), seen[...]
        values = values if isinstance(values, bytes) else values.tolist()
        if "text" in name:
            found[...] = np.full(found.shape, "new", TEXT)
        elif "blob" in name:
            found[:1] = b"B"
        else:
            found[...] = 7
        now = seen[...]
        is_kept = (now if isinstance(now, bytes) else now.tolist()) == values
        assert is_kept == (name in KEPT)
        assert (token(then[name]) == before) == is_kept
        assert token(also[name]) != before
        assert token(filled[name]) != before


def test_a_view_to_write_into_does_not_reach_into_a_snapshot(filled: engram.Pool) -> None:
    found: Any = filled["small"]
    with filled.snapshot() as then:
        seen: Any = then["small"]
        before = token(seen)
        found.view("r+")[...] = 9
        assert seen[...].tolist() == [0, 1, 2, 3]
        assert token(seen) == before


def test_what_is_gone_or_closed_has_a_token_of_its_own_too(filled: engram.Pool) -> None:
    found = filled["small"]
    del filled["small"]
    assert token(found) != token(found)
    filled.close()
    assert token(found) != token(found)
