"""Active methods: each one transaction, alone or called by another, here and in other processes."""

from __future__ import annotations

import collections
import dataclasses
import os
import signal
import threading
from collections import Counter, OrderedDict
from typing import TYPE_CHECKING, NamedTuple

import numpy as np
import pytest

import engram
from active_models import Account, Block, Tally
from engram import active
from engram.active.analysis import traits_of
from engram.active.memento import Memento
from support import moments
from test_active import child, python

if TYPE_CHECKING:
    from collections.abc import Callable


def stored(pool: engram.Pool) -> Block:
    assert pool
    block = Block(np.arange(4.0), "a", ["t"])
    block.make_persistent("b")
    return block


def test_changes_of_a_method_are_one_commit(pool: engram.Pool) -> None:
    account = Account()
    account.make_persistent("a")
    seen = []

    class Watch(engram.ActiveObject):
        @engram.activemethod
        def during(self) -> None:
            account.left -= 1
            code = (
                "import sys, engram, active_models\n"
                "with engram.open(sys.argv[1]):\n"
                "    account = active_models.Account.get_by_alias('a')\n"
                "    print(account.left, account.right)\n"
            )
            seen.append(python(code, pool.path))
            account.right += 1

    watch = Watch.__new__(Watch)
    watch.make_persistent()
    watch.during()
    assert seen == ["1000 0"]
    assert (account.left, account.right) == (999, 1)


def test_a_method_that_raises_leaves_the_object_as_it_was(pool: engram.Pool) -> None:
    block = stored(pool)
    with pytest.raises(RuntimeError, match="new"):
        block.rename_and_fail("new")
    assert (block.label, block.tags) == ("a", ["t"])
    assert block.data[0] == -1  # written in place: said so


def test_an_inner_method_that_raises_takes_back_its_own_changes_alone(pool: engram.Pool) -> None:
    block = stored(pool)
    assert block.rename_in_spite("new") == ["t", "mine"]
    assert (block.label, block.tags) == ("a", ["t", "mine"])


def test_containers_changed_in_a_method_are_stored(pool: engram.Pool) -> None:
    block = stored(pool)
    assert block.add_tag("u") == 2
    block.tags.append("lost")  # outside of a method it is a copy
    assert block.tags == ["t", "u"]


def test_a_field_is_one_object_throughout_a_method(pool: engram.Pool) -> None:
    class Same(engram.ActiveObject):
        value: list[int] = [1]
        other: object = None
        data: np.ndarray = np.ones(3)

        @engram.activemethod
        def check(self) -> bool:
            given = {"a": 1}
            self.other = given
            given["b"] = 2
            return self.value is self.value and self.other is given and self.data is self.data

    same = Same()
    same.make_persistent()
    assert same.check()
    assert same.other == {"a": 1, "b": 2}
    assert pool


def test_an_array_assigned_in_a_method_is_stored_as_it_is_at_the_end(pool: engram.Pool) -> None:
    class Late(engram.ActiveObject):
        data: np.ndarray

        @engram.activemethod
        def make(self) -> None:
            self.data = np.zeros(5)
            self.data[1] = 7

    late = Late()
    late.make_persistent()
    late.make()
    assert late.data.tolist() == [0, 7, 0, 0, 0]
    assert pool


def test_an_array_that_cannot_be_stored_undoes_the_whole_method(pool: engram.Pool) -> None:
    class Bad(engram.ActiveObject):
        data: np.ndarray = np.ones(2)
        n: int = 0

        @engram.activemethod
        def spoil(self) -> None:
            self.n = 1
            self.data = np.array([object()])

        @engram.activemethod
        def too_much(self) -> None:
            self.n = 2
            self.data = np.zeros(2**26)

    bad = Bad()
    bad.make_persistent()
    with pytest.raises(active.UnsupportedFieldError, match=r"Bad\.data"):
        bad.spoil()
    with pytest.raises(engram.PoolFullError):
        bad.too_much()
    assert bad.n == 0
    assert bad.data.tolist() == [1, 1]
    assert pool


def test_increments_of_many_processes_all_count(pool: engram.Pool) -> None:
    tally = Tally()
    tally.make_persistent("n")

    def work() -> None:
        for _ in range(200):
            tally.increment()

    pids = []
    for _ in range(4):
        pid = os.fork()
        if pid == 0:
            try:
                work()
                os._exit(0)
            finally:
                os._exit(1)
        pids.append(pid)
    assert [os.waitpid(pid, 0)[1] for pid in pids] == [0] * 4
    assert tally.n == 800
    assert pool


def test_increments_of_many_threads_all_count(pool: engram.Pool) -> None:
    tally = Tally()
    tally.make_persistent("n")
    threads = [
        threading.Thread(target=lambda: [tally.increment() for _ in range(100)]) for _ in range(4)
    ]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert tally.n == 400
    assert pool


def test_what_another_process_changed_meanwhile_is_a_conflict_and_not_lost(
    pool: engram.Pool,
) -> None:
    tally = Tally()
    tally.make_persistent("n")

    def meanwhile() -> None:
        assert child(tally.increment) == 0

    with pytest.raises(active.ConflictError, match=r"Tally\.n .* was changed by another process"):
        tally.increment_after(meanwhile)
    assert tally.n == 1
    assert pool


def test_a_process_killed_in_a_method_has_changed_nothing(pool: engram.Pool) -> None:
    account = Account()
    account.make_persistent("a")
    status = child(lambda: account.transfer_and_die(10))
    assert os.WTERMSIG(status) == signal.SIGKILL
    assert (account.left, account.right, account.moves) == (1000, 0, [])
    account.transfer(1)  # and its lock went with it
    assert (account.left, account.right, account.moves) == (999, 1, [1])
    assert pool


def test_processes_killed_at_any_moment_leave_whole_transactions(
    pool: engram.Pool, rng: np.random.Generator
) -> None:
    account = Account()
    account.make_persistent("a")
    for delay in moments(rng.uniform(0, 0.01, 40), lambda: account.right > 0):
        pid = os.fork()
        if pid == 0:
            try:
                while True:
                    account.transfer(1)
            finally:
                os._exit(1)
        threading.Event().wait(delay)
        os.kill(pid, signal.SIGKILL)
        os.waitpid(pid, 0)
        assert account.left + account.right == 1000
        assert sum(account.moves) == account.right
    assert account.right > 0
    assert pool


def test_a_method_waits_for_one_that_changes_the_object_and_no_longer_than_asked(
    pool: engram.Pool,
) -> None:
    class Slow(engram.ActiveObject):
        n: int = 0

        @engram.activemethod(timeout=0.05)
        def change(self, during: object) -> None:
            self.n += 1
            during()  # type: ignore[operator]

        @engram.activemethod
        def look(self) -> int:
            return self.n

    slow = Slow()
    slow.make_persistent()
    told: list[object] = []

    def others() -> None:
        def change() -> None:
            try:
                slow.change(lambda: None)
            except engram.BusyError as error:
                told.append(error)

        thread = threading.Thread(target=change)
        thread.start()
        thread.join()
        looker = threading.Thread(target=lambda: told.append(slow.look()))
        looker.start()
        looker.join()

    slow.change(others)
    assert isinstance(told[0], engram.BusyError)
    assert told[1] == 0  # who only looks does not wait
    assert slow.n == 1
    assert pool


def test_read_only_methods_change_nothing(pool: engram.Pool) -> None:
    class Careful(engram.ActiveObject):
        n: int = 0
        data: np.ndarray = np.ones(3)

        @engram.activemethod(read_only=True)
        def assign(self) -> None:
            self.n = 1

        @engram.activemethod(read_only=True)
        def fill(self) -> None:
            self.data[...] = 2

        @engram.activemethod(read_only=True)
        def total(self) -> float:
            return float(self.data.sum())

        @engram.activemethod
        def both(self) -> float:
            self.data[0] = 5
            return self.total()

    careful = Careful()
    careful.make_persistent()
    with pytest.raises(engram.ReadOnlyError, match=r"Careful\.n"):
        careful.assign()
    with pytest.raises(ValueError, match="read-only"):
        careful.fill()
    assert careful.total() == 3
    assert careful.both() == 7
    assert careful.n == 0
    assert pool


def test_pre_copied_inputs_are_private(pool: engram.Pool) -> None:
    class Input(engram.ActiveObject):
        data: np.ndarray = np.ones(3)

        @engram.activemethod(pre_copy=True)
        def work(self, other: Input, given: np.ndarray, out: np.ndarray) -> list[bool]:
            self.data[0] = 9
            other.data[0] = 9
            given[0] = 9
            np.add(self.data, other.data, out=out)
            return [self.data.flags.owndata, other.data.flags.owndata]

    first, second = Input(), Input()
    first.make_persistent()
    second.make_persistent()
    given, out = np.ones(3), np.zeros(3)
    assert first.work(second, given, out=out) == [True, True]
    assert out.tolist() == [18, 2, 2]
    assert given[0] == 1
    assert first.data[0] == second.data[0] == 1
    assert pool


def test_results_are_volatile_stored_or_written_in_place(pool: engram.Pool) -> None:
    class Matrix(engram.ActiveObject):
        block: np.ndarray

        @engram.activemethod
        def plus(self, other: Matrix) -> np.ndarray:
            made: np.ndarray = self.block + other.block
            return made

        @engram.activemethod
        def plus_stored(self, other: Matrix) -> Matrix:
            made = Matrix(block=self.block + other.block)
            made.make_persistent()
            return made

        @engram.activemethod
        def plus_into(self, other: Matrix, out: Matrix) -> None:
            np.add(self.block, other.block, out=out.block)

    a, b, c = (Matrix(block=np.full((3, 3), n)) for n in (1.0, 2.0, 0.0))
    for each in (a, b, c):
        each.make_persistent()
    assert a.plus(b).flags.owndata
    assert a.plus_stored(b).block[0, 0] == 3
    a.plus_into(b, out=c)
    assert c.block[0, 0] == 3
    assert pool


def test_a_method_that_writes_into_an_array_replaced_meanwhile_is_told(pool: engram.Pool) -> None:
    class Racing(engram.ActiveObject):
        data: np.ndarray = np.ones(2000)

        @engram.activemethod
        def fill(self, meanwhile: object) -> None:
            view = self.data
            meanwhile()  # type: ignore[operator]
            view[...] = 2

        @engram.activemethod
        def total(self, meanwhile: object) -> float:
            view = self.data
            meanwhile()  # type: ignore[operator]
            return float(view.sum())

    racing = Racing()
    racing.make_persistent()

    def replace() -> None:
        def work() -> None:
            racing.data = np.zeros(5)

        assert child(work) == 0

    assert racing.total(replace) == 2000  # it only looked, at what was
    assert racing.data.tolist() == [0] * 5
    racing.data = np.ones(2000)
    with pytest.raises(active.ConflictError, match="replaced or deleted while"):
        racing.fill(replace)
    assert pool


def test_what_a_method_returns_and_its_signature_are_the_function_s(pool: engram.Pool) -> None:
    block = stored(pool)
    assert block.mean.__name__ == "mean"
    assert block.mean == block.mean
    assert repr(block.mean).startswith("<active method Block.mean of <Block 0x")
    assert Block.mean(block) == 1.5
    with pytest.raises(TypeError, match="scale"):
        block.scale()  # type: ignore[call-arg]


def test_generators_and_coroutines_are_refused() -> None:
    def generator(self: object) -> object:
        yield self

    async def coroutine(self: object) -> object:
        return self

    for wrong in (generator, coroutine):
        with pytest.raises(engram.ArgumentError, match="transaction has ended"):
            engram.activemethod(wrong)
    with pytest.raises(engram.ArgumentError, match="no method"):
        engram.activemethod(5)  # type: ignore[call-overload]


def test_the_analysis_sees_what_methods_do() -> None:
    fields, containers = Block._fields, Block._containers()
    assert containers == {"tags", "next"}

    def of(name: str) -> tuple[bool, bool]:
        found = traits_of(Block, getattr(Block, name).function, fields, containers)
        return found.changes, found.fills

    assert of("mean") == (False, False)
    assert of("nothing") == (False, False)
    assert of("fill") == (False, True)
    assert of("add_tag") == (True, False)
    assert of("rename_in_spite")[0]  # by the method that it calls


class Slotted(NamedTuple):
    """What cannot be assigned to, and holds what can be changed."""

    inner: list[int]


@dataclasses.dataclass(slots=True)
class Slots:
    """A dataclass without a dict."""

    a: int
    more: list[int]

    def change(self) -> None:
        self.a = 5
        self.more.append(6)


CHANGES: dict[str, tuple[Callable[[], object], Callable[..., object]]] = {
    "list": (lambda: [1], lambda v: v.append(2)),
    "dict of lists": (lambda: {"a": [0]}, lambda v: v["a"].append(1)),
    "deque": (lambda: collections.deque([1], 3), lambda v: v.append(2)),
    "Counter": (lambda: Counter("aab"), lambda v: v.update("b")),
    "OrderedDict": (lambda: OrderedDict(b=1, a=2), lambda v: v.move_to_end("b")),
    "set": (lambda: {1}, lambda v: v.add(2)),
    "bytearray": (lambda: bytearray(b"a"), lambda v: v.extend(b"b")),
    "tuple": (lambda: ([1],), lambda v: v[0].append(2)),
    "named tuple": (lambda: Slotted([1]), lambda v: v.inner.clear()),
    "slots": (lambda: Slots(1, [2]), lambda v: v.change()),
    "array within": (lambda: [np.zeros(3)], lambda v: v[0].fill(7)),
}


class Outer(engram.ActiveObject):
    """An object whose methods call each other."""

    value: object = None
    n: int = 0

    @engram.activemethod
    def change_and_raise(self, change: Callable[..., object], new: object) -> None:
        change(self.value)
        self.n += 1
        if new is not None:
            self.value = new
        raise RuntimeError

    @engram.activemethod
    def around(self, change: Callable[..., object], new: object) -> object:
        with pytest.raises(RuntimeError):
            self.change_and_raise(change, new)
        return self.value

    @engram.activemethod
    def hold(self, made: object, change: Callable[..., object], new: object) -> bool:
        if made is not None:
            self.value = made
        held = self.value
        with pytest.raises(RuntimeError):
            self.change_and_raise(change, new)
        return held is self.value

    @engram.activemethod
    def hold_inner(self) -> None:
        inner = self.value[0]  # type: ignore[index]
        with pytest.raises(RuntimeError):
            self.change_and_raise(lambda value: value[0].append(9), None)
        inner.append(5)

    @engram.activemethod
    def twice(self, change: Callable[..., object]) -> None:
        self.around(change, None)
        raise RuntimeError

    @engram.activemethod
    def succeed_then_raise(self, change: Callable[..., object]) -> None:
        self.succeed(change)
        raise RuntimeError

    @engram.activemethod
    def succeed(self, change: Callable[..., object]) -> None:
        change(self.value)
        self.n += 1

    @engram.activemethod
    def catch(self, change: Callable[..., object]) -> None:
        with pytest.raises(RuntimeError):
            self.succeed_then_raise(change)


@pytest.mark.parametrize("new", [None, "other"])
@pytest.mark.parametrize("kind", CHANGES)
def test_an_inner_method_that_raises_leaves_every_value_as_it_was(
    pool: engram.Pool, kind: str, new: object
) -> None:
    make, change = CHANGES[kind]
    outer = Outer(make())
    outer.make_persistent()
    np.testing.assert_equal(outer.around(change, new), make())
    assert outer.hold(None, change, new)
    assert outer.hold(make(), change, new)
    outer.catch(change)
    np.testing.assert_equal(outer.value, make())
    assert outer.n == 0
    outer.succeed(change)
    changed = make()
    change(changed)
    np.testing.assert_equal(outer.value, changed)
    assert pool


def test_what_an_outer_method_has_in_hand_is_still_the_object_s(pool: engram.Pool) -> None:
    outer = Outer([[0]])
    outer.make_persistent()
    outer.hold_inner()
    assert outer.value == [[0, 5]]
    assert pool


def test_a_call_within_a_call_copies_nothing_that_it_does_not_read(
    pool: engram.Pool, monkeypatch: pytest.MonkeyPatch
) -> None:
    noted = []

    class Spy(Memento):
        def __init__(self, value: object) -> None:
            noted.append(value)
            super().__init__(value)

    class Parent(engram.ActiveObject):
        numbers: list[int] = list(range(100))
        child: Tally | None = None

        @engram.activemethod
        def work(self) -> int:
            return sum(self.numbers) + self.child.increment()  # type: ignore[union-attr]

    parent = Parent(child=Tally())
    parent.make_persistent()
    monkeypatch.setattr("engram.active.transaction.Memento", Spy)
    assert parent.work() == 4951
    assert noted == []
    assert pool


def test_an_output_array_given_by_its_place_is_not_copied(pool: engram.Pool) -> None:
    class Adding(engram.ActiveObject):
        data: np.ndarray = np.ones(3)

        @engram.activemethod(pre_copy=True)
        def add(self, other: np.ndarray, out: np.ndarray) -> None:
            np.add(self.data, other, out=out)

    adding = Adding()
    adding.make_persistent()
    out = np.zeros(3)
    adding.add(np.ones(3), out)
    assert out.tolist() == [2, 2, 2]
    assert pool
