"""Active objects: fields in the pool, life from make_persistent to delete, names, ids, identity."""

from __future__ import annotations

import asyncio
import gc
import os
import pickle
import subprocess
import sys
import threading
from pathlib import Path
from typing import TYPE_CHECKING, ClassVar

import numpy as np
import pytest

import engram
from active_models import Account, Block, Tally
from engram import active

if TYPE_CHECKING:
    from collections.abc import Callable

TESTS = Path(__file__).parent


def python(code: str, *words: object) -> str:
    """Run a program beside this one, with the models; give what it prints."""
    environment = {
        **os.environ,
        "PYTHONPATH": f"{TESTS}{os.pathsep}{os.environ.get('PYTHONPATH', '')}",
    }
    done = subprocess.run(
        [sys.executable, "-c", code, *map(str, words)],
        check=True,
        capture_output=True,
        text=True,
        env=environment,
        timeout=120,
    )
    return done.stdout.strip()


def child(code: object) -> int:
    """Run a function in a fork of this process; give how that ended."""
    pid = os.fork()
    if pid == 0:
        try:
            code()  # type: ignore[operator]
        except BaseException:  # noqa: BLE001 - the parent asks how it ended
            os._exit(1)
        os._exit(0)
    return os.waitpid(pid, 0)[1]


# Fields


def test_a_volatile_object_is_an_ordinary_one() -> None:
    block = Block(np.arange(4.0), label="a")
    assert block.label == "a"
    assert block.tags == []
    assert block.mean() == 1.5
    assert not block.is_persistent
    assert block.get_id() is None
    assert repr(block) == "<Block (volatile)>"
    assert Block().tags is not Block().tags


def test_what_is_stored_is_found_by_its_alias_in_another_process(pool: engram.Pool) -> None:
    Block(np.arange(5.0), label="ramp").make_persistent("a/ramp of five")
    code = (
        "import sys, engram, active_models\n"
        "with engram.open(sys.argv[1]):\n"
        "    block = active_models.Block.get_by_alias('a/ramp of five')\n"
        "    block.scale(10)\n"
        "    print(block.mean(), block.label)\n"
    )
    assert python(code, pool.path) == "20.0 ramp"
    assert Block.get_by_alias("a/ramp of five").data.tolist() == [0, 10, 20, 30, 40]


def test_an_array_field_is_the_pool_s_own_memory(pool: engram.Pool) -> None:
    block = Block(np.zeros(100_000))
    block.make_persistent("b")
    block.data[7] = 3
    view = block.data
    view[8] = 4
    code = (
        "import sys, engram, active_models\n"
        "with engram.open(sys.argv[1]):\n"
        "    print(active_models.Block.get_by_alias('b').data[7:9].tolist())\n"
    )
    assert python(code, pool.path) == "[3.0, 4.0]"


def test_adding_to_an_array_field_writes_in_place(pool: engram.Pool) -> None:
    block = Block(np.ones(1000))
    block.make_persistent()
    used, view = pool.used, block.data
    block.data += 1
    block.scale(3)
    assert view[0] == 6
    assert pool.used == used


def test_assigning_an_array_replaces_it_and_views_of_the_old_one_live_on(
    pool: engram.Pool,
) -> None:
    block = Block(np.ones(1000))
    block.make_persistent()
    old = block.data
    block.data = np.zeros((2, 2), "i4")
    assert block.data.dtype == np.int32
    assert old.sum() == 1000
    assert len(pool) == 1


def test_unannotated_attributes_are_this_process_s_own(pool: engram.Pool) -> None:
    block = Block(np.ones(3))
    block.note = "mine"  # type: ignore[attr-defined]
    block.make_persistent("b")
    assert block.note == "mine"  # type: ignore[attr-defined]
    code = (
        "import sys, engram, active_models\n"
        "with engram.open(sys.argv[1]):\n"
        "    print(hasattr(active_models.Block.get_by_alias('b'), 'note'))\n"
    )
    assert python(code, pool.path) == "False"


def test_a_field_without_a_value_is_an_attribute_error_that_names_it(pool: engram.Pool) -> None:
    block = Block()
    with pytest.raises(AttributeError, match=r"Block\.data has no value yet"):
        block.data  # noqa: B018
    block.make_persistent()
    with pytest.raises(AttributeError, match=r"Block\.data has no value yet"):
        block.data  # noqa: B018
    assert "data" not in block.get_properties()
    block.data = np.ones(2)
    del block.data
    with pytest.raises(AttributeError):
        block.data  # noqa: B018
    assert len(pool) == 1


def test_a_field_changes_its_form_with_its_value(pool: engram.Pool) -> None:
    class Anything(engram.ActiveObject):
        value: object = None

    thing = Anything()
    thing.make_persistent()
    forms = [
        1,
        "a",
        "x" * 10_000,
        np.arange(3),
        {"k": [1, 2.5]},
        None,
        np.ones(3),
        list(range(9999)),
    ]
    for before in forms:
        for after in forms:
            thing.value = before
            thing.value = after
            np.testing.assert_equal(thing.value, after)
            assert type(thing.value) is type(after)
    assert pool.uuid


def test_scalars_are_attributes_that_queries_see(pool: engram.Pool) -> None:
    Block(np.ones(2), label="warm").make_persistent()
    Block(np.ones(2), label="cold").make_persistent()
    found = pool.query('group.label = "warm" and @name = "data"')
    assert len(found) == 1


def test_undeclared_fields_are_told(pool: engram.Pool) -> None:
    with pytest.raises(active.UndeclaredFieldError, match=r"no field 'lable'.*data, label"):
        Block(lable="a")
    with pytest.raises(engram.ArgumentError, match="takes 4 fields, not 5"):
        Block(1, 2, 3, 4, 5)
    with pytest.raises(engram.ArgumentError, match="twice"):
        Block(np.ones(1), data=np.ones(1))
    assert not len(pool)


def test_a_field_cannot_have_a_name_that_the_object_needs() -> None:
    with pytest.raises(engram.ArgumentError, match="'delete'"):
        type("Bad", (engram.ActiveObject,), {"__annotations__": {"delete": int}})
    with pytest.raises(engram.ArgumentError, match="make a class of it"):
        engram.ActiveObject()


def test_class_variables_are_no_fields(pool: engram.Pool) -> None:
    class Thing(engram.ActiveObject):
        shared: ClassVar[list[int]] = [1]
        own: int = 2

    thing = Thing()
    thing.make_persistent()
    assert thing.get_properties() == {"own": 2}
    assert thing.shared is Thing.shared
    assert pool


@pytest.mark.parametrize(
    "value",
    [
        np.array([object()]),
        np.ma.masked_array([1.0, 2.0], [True, False]),
        lambda: None,
        {"deep": [open]},
        iter(()),
    ],
    ids=["objects", "masked", "function", "in a container", "iterator"],
)
def test_values_that_cannot_be_stored_are_refused_and_nothing_changes(
    pool: engram.Pool, value: object
) -> None:
    block = Block(np.ones(3), label="a")
    block.next = Block(value)
    with pytest.raises(active.UnsupportedFieldError, match=r"Block\.data"):
        block.make_persistent("b")
    assert not block.is_persistent
    assert not block.next.is_persistent
    with pytest.raises(active.AliasNotFoundError):
        Block.get_by_alias("b")
    block.next = None
    block.make_persistent("b")
    with pytest.raises(active.UnsupportedFieldError):
        block.label = value  # type: ignore[assignment]
    assert block.label == "a"
    assert pool


# Life


def test_objects_that_are_referred_to_come_along_and_cycles_are_allowed(pool: engram.Pool) -> None:
    first, second = Block(np.ones(1), "first"), Block(np.ones(2), "second")
    first.next, second.next = second, first
    first.make_persistent("first")
    assert second.is_persistent
    assert first.next is second
    assert second.next is first
    third = Block(np.ones(3), "third")
    second.next = third
    assert third.is_persistent
    del first, second, third
    gc.collect()
    again = Block.get_by_alias("first")
    assert again.next.next.label == "third"  # type: ignore[union-attr]
    assert pool


def test_a_long_chain_comes_along(pool: engram.Pool) -> None:
    head = None
    for number in range(3000):
        head = Block(label=str(number), next=head)
    head.make_persistent("head")  # type: ignore[union-attr]
    count, block = 0, head
    while block is not None:
        count, block = count + 1, block.next
    assert count == 3000
    assert pool


def test_references_in_containers_are_references(pool: engram.Pool) -> None:
    class Many(engram.ActiveObject):
        blocks: list[Block] = []
        named: dict[str, tuple[Block, int]] = {}

    blocks = [Block(np.full(2, n)) for n in range(3)]
    many = Many(blocks=blocks, named={"last": (blocks[2], 5)})
    many.make_persistent()
    assert all(block.is_persistent for block in blocks)
    assert [block.mean() for block in many.blocks] == [0, 1, 2]
    assert many.named["last"][0] is blocks[2]
    assert pool


def test_without_recursion_what_is_referred_to_must_be_persistent(pool: engram.Pool) -> None:
    inner = Block(np.ones(1))
    outer = Block(np.ones(1), next=inner)
    with pytest.raises(active.UnsupportedFieldError, match="not persistent"):
        outer.make_persistent(recursive=False)
    assert not outer.is_persistent
    inner.make_persistent()
    outer.make_persistent(recursive=False)
    assert outer.next is inner
    assert pool


def test_one_stored_object_is_one_python_object(pool: engram.Pool) -> None:
    block = Block(np.ones(1))
    block.make_persistent("b")
    identity = block.get_id()
    assert Block.get_by_alias("b") is block
    assert Block.get_by_id(identity) is block  # type: ignore[arg-type]
    del block
    gc.collect()
    found: list[Block] = []
    threads = [
        threading.Thread(target=lambda: found.append(Block.get_by_alias("b"))) for _ in range(8)
    ]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert len({id(each) for each in found}) == 1
    assert pool


def test_objects_pickle_as_what_they_are(pool: engram.Pool) -> None:
    block = Block(np.ones(3), "a")
    again = pickle.loads(pickle.dumps(block))
    assert again.label == "a"
    assert not again.is_persistent
    block.make_persistent()
    assert pickle.loads(pickle.dumps(block)) is block
    assert pickle.loads(pickle.dumps(block.mean))() == 1
    assert pool


def test_aliases_are_given_taken_and_listed(pool: engram.Pool) -> None:
    block, other = Block(np.ones(1)), Block(np.zeros(1))
    block.make_persistent("one")
    block.add_alias("zwei / %2F.ü")
    assert block.get_aliases() == {"one", "zwei / %2F.ü"}
    assert Block.get_by_alias("zwei / %2F.ü") is block
    with pytest.raises(active.AliasTakenError, match="'one' is taken"):
        other.make_persistent("one")
    assert not other.is_persistent
    Block.delete_alias("one")
    other.make_persistent("one")
    assert Block.get_by_alias("one") is other
    assert block.get_aliases() == {"zwei / %2F.ü"}
    with pytest.raises(active.AliasNotFoundError, match="'two'"):
        Block.delete_alias("two")
    with pytest.raises(active.AliasTakenError):
        other.add_alias("one")
    for wrong in ("", 5, None, "x" * 300):
        with pytest.raises(engram.InvalidNameError):
            other.add_alias(wrong)  # type: ignore[arg-type]
    assert pool


def test_making_an_object_persistent_again_gives_it_the_alias(pool: engram.Pool) -> None:
    block = Block(np.ones(1))
    block.make_persistent()
    block.make_persistent()
    block.make_persistent("late")
    assert Block.get_by_alias("late") is block
    assert pool


def test_a_deleted_object_is_told_wherever_it_is_used(pool: engram.Pool) -> None:
    block, holder = Block(np.ones(2000), "a"), Block(np.ones(1))
    holder.next = block
    holder.make_persistent()
    block.add_alias("b")
    used = pool.used
    view = block.data
    identity = block.get_id()
    block.delete()
    with pytest.raises(active.ObjectDeletedError):
        holder.next  # noqa: B018
    uses: list[Callable[[], object]] = [
        lambda: block.label,
        lambda: block.data,
        lambda: setattr(block, "label", "x"),
        block.nothing,
        lambda: block.add_tag("t"),
        block.delete,
        block.get_aliases,
        lambda: block.add_alias("c"),
        lambda: Block.get_by_id(identity),  # type: ignore[arg-type]
        lambda: setattr(holder, "next", block),
    ]
    holder.next = None
    for use in uses:
        with pytest.raises(active.ObjectDeletedError, match="was deleted"):
            use()
    with pytest.raises(active.AliasNotFoundError):
        Block.get_by_alias("b")
    assert view.sum() == 2000
    assert pool.used < used


def test_an_object_of_another_class_is_told(pool: engram.Pool) -> None:
    Tally().make_persistent("n")
    with pytest.raises(engram.ArgumentError, match=r"class active_models\.Tally, not"):
        Block.get_by_alias("n")
    assert isinstance(engram.ActiveObject.get_by_alias("n"), Tally)
    assert pool


def test_objects_end_with_their_pool(home: Path) -> None:
    with engram.create(home / "p", size="64 MiB", force=True):
        block = Block(np.ones(1), "a")
        block.make_persistent("b")
    with pytest.raises(engram.ArgumentError, match="closed"):
        block.label  # noqa: B018
    with engram.open(home / "p"):
        again = Block.get_by_alias("b")
        assert again is not block
        assert again.label == "a"
    with engram.open(home / "p", mode="r"):
        again = Block.get_by_alias("b")
        assert again.mean() == 1
        assert not again.data.flags.writeable
        with pytest.raises(engram.ReadOnlyError):
            again.label = "b"
        with pytest.raises(engram.ReadOnlyError):
            again.add_tag("t")


def test_which_pool_is_meant_is_said_or_clear(home: Path) -> None:
    with pytest.raises(engram.NotFoundError, match="no pool is open here"):
        Tally().make_persistent()
    with (
        engram.create(home / "p", size="64 MiB", force=True) as first,
        engram.create(home / "q", size="64 MiB", force=True) as second,
    ):
        with pytest.raises(engram.NotFoundError, match="2 pools are open here"):
            Tally().make_persistent()
        with active.use(second):
            Tally().make_persistent("n")
        assert Tally.get_by_alias("n", pool=second).n == 0
        with pytest.raises(active.AliasNotFoundError):
            Tally.get_by_alias("n", pool=first)
        Tally().make_persistent("m", backend_id=first)
        assert Tally.get_by_alias("m", pool=first).get_location() == first.path


def test_a_batch_takes_active_objects_with_it(pool: engram.Pool) -> None:
    block = Block(np.ones(1), "a")
    block.make_persistent("b")
    with pytest.raises(RuntimeError, match="no"), pool.batch():
        block.label = "c"
        raise RuntimeError("no")
    assert block.label == "a"
    with pool.batch():
        block.label = "d"
        pool["other"] = np.ones(3)
    assert block.label == "d"


def test_an_object_that_refers_to_another_is_made_in_a_batch(pool: engram.Pool) -> None:
    with pool.batch():
        block = Block(np.ones(2), "a", next=Block(np.ones(3), "b"))
        block.make_persistent()
        pool["other"] = np.ones(3)
    assert block.next is not None
    assert block.next.label == "b"
    assert "other" in pool


def test_what_asyncio_awaits_is_done(pool: engram.Pool) -> None:
    async def work() -> float:
        block = Block(np.arange(3.0))
        await block.a_make_persistent("b")
        again = await Block.a_get_by_alias("b")
        await again.a_scale(2)
        await again.a_add_alias("c")
        assert await again.a_get_aliases() == {"b", "c"}
        mean = await again.a_mean()
        await again.a_delete()
        return float(mean)

    assert asyncio.run(work()) == 2
    assert pool


def test_a_fork_works_on_the_same_objects(pool: engram.Pool) -> None:
    tally = Tally()
    tally.make_persistent("n")

    def work() -> None:
        for _ in range(10):
            tally.increment()
        Tally().make_persistent("of the child")

    assert child(work) == 0
    assert tally.increment() == 11
    assert Tally.get_by_alias("of the child").n == 0
    assert pool


def test_private_objects_are_their_user_s(pool: engram.Pool) -> None:
    block = Block(np.ones(1), "a")
    block.make_persistent("mine", scope="private")
    assert Block.get_by_alias("mine").mean() == 1
    assert pool[".active/objects"][next(iter(pool[".active/objects"]))].scope == "private"


def test_verify_finds_nothing_amiss(pool: engram.Pool) -> None:
    account = Account()
    account.make_persistent("a")
    for amount in range(5):
        account.transfer(amount)
    Block(np.ones(10), next=Block(np.ones(3))).make_persistent("b")
    path = pool.path
    pool.close()
    engram.verify(path).check()
