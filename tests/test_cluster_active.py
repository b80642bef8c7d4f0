"""Active objects over nodes: methods run where the object lies, called from anywhere."""

from __future__ import annotations

import contextlib
import os
import pickle
import signal
import subprocess
import sys
import threading
from collections import Counter
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import pytest

import engram
from cluster.etcd import Etcd, why_not
from cluster.rig import Rig, rigged, wait_for
from engram import cluster as clusters
from engram.active.errors import AliasNotFoundError, AliasTakenError, WorkerDiedError
from engram.cluster import calling
from engram.cluster.calling import Ask
from engram.errors import (
    ArgumentError,
    CoordinatorError,
    NodeAwayError,
    NotFoundError,
    ReadOnlyError,
)

if TYPE_CHECKING:
    from collections.abc import Iterator


class Block(engram.ActiveObject):
    """An array, and what is done with it."""

    data: np.ndarray
    label: str = ""
    tags: list[str] = []
    other: Block | None = None
    count: int = 0

    @engram.activemethod(read_only=True)
    def mean(self) -> float:
        """Give the mean."""
        return float(self.data.mean())

    @engram.activemethod
    def add(self, what: float = 1.0) -> int:
        """Add to all, and count."""
        self.data += what
        self.count += 1
        return self.count

    @engram.activemethod(read_only=True)
    def pid(self) -> int:
        """Give the process that runs it."""
        return os.getpid()

    @engram.activemethod(read_only=True)
    def dot(self, other: Block) -> float:
        """Multiply by another one, wherever that is."""
        return float(self.data @ other.data)

    @engram.activemethod(read_only=True)
    def through(self, others: list[Block]) -> list[int]:
        """Have others do the same, the first with the rest; give all processes, each inside."""
        return [os.getpid(), *(others[0].through(others[1:]) if others else [])]

    @engram.activemethod(read_only=True)
    def all_through(self, others: list[Block], times: int) -> list[list[int]]:
        """Do as `through`, so many times at once."""
        futures = [others[0].through.submit(others[1:]) for _ in range(times)]
        return [each.result() for each in futures]

    @engram.activemethod
    def stored(self, factor: float) -> Block:
        """Give a new object, stored beside this one."""
        made = Block(self.data * factor)
        made.make_persistent()
        return made

    @engram.activemethod
    def into(self, out: Block) -> None:
        """Write into another object's field."""
        out.label = f"from {self.label}"

    @engram.activemethod
    def fail(self) -> None:
        """Change something, and fail."""
        self.count = 1000
        raise KeyError("as it was asked to")

    @engram.activemethod
    def die(self) -> None:
        """Change something, and kill the process that runs it."""
        self.count = 1000
        os.kill(os.getpid(), signal.SIGKILL)

    @engram.activemethod
    def wait_until(self, path: str, begun: str = "") -> int:
        """Wait for a file; make another one before."""
        if begun:
            Path(begun).touch()
        wait_for(lambda: os.path.exists(path))  # noqa: PTH110 - a text that came from elsewhere
        self.count += 1
        return self.count


@pytest.fixture(scope="module")
def secure(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Rig]:
    """Two nodes that speak by TLS, for tests that leave them as they are."""
    folder = tmp_path_factory.mktemp("secure")
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("XDG_STATE_HOME", str(folder / "state"))
        tests = os.path.dirname(__file__)  # noqa: PTH120 - as text, for a variable
        patch.setenv("PYTHONPATH", os.pathsep.join([tests, os.environ.get("PYTHONPATH", "")]))
        with rigged(folder, secure=True) as rig:
            rig.serve(0)
            rig.serve(1)
            yield rig


def far(c: clusters.Cluster) -> clusters.Member:
    """Give a member that is not this process's own."""
    return next(each for each in c.members if each.node != c.node)


def near(c: clusters.Cluster) -> clusters.Member:
    """Give this process's own member."""
    return next(each for each in c.members if each.node == c.node)


def test_an_object_is_made_on_a_node_and_called_from_elsewhere(secure: Rig) -> None:
    c = secure.open(0)
    member = far(c)
    block = Block(np.arange(6.0), label="ramp", tags=["a"])
    block.make_persistent("T", backend_id=member)
    assert block.is_persistent
    assert isinstance(block, Block)
    assert block.mean() == 2.5
    assert block.pid() != os.getpid()
    assert block.add(10) == 1
    assert block.add() == 2
    assert block.label == "ramp"
    assert block.tags == ["a"]
    assert block.count == 2
    assert np.array_equal(block.data, np.arange(6.0) + 11)
    block.label = "new"
    assert Block.get_by_alias("T", pool=c) is block
    assert block.get_properties()["label"] == "new"
    assert block.get_location() == f"engram://job/{member.node}"
    assert pickle.loads(pickle.dumps(block)) is block
    block.add_alias("U")
    assert block.get_aliases() == {"T", "U"}
    for backend in (member, near(c)):
        with pytest.raises(AliasTakenError, match="'T' is taken"):
            Block(np.zeros(1)).make_persistent("T", backend_id=backend)
    other = Block(np.zeros(1))
    other.make_persistent(backend_id=near(c))
    with pytest.raises(AliasTakenError, match=member.node):
        other.add_alias("T")
    other.add_alias("V")
    with pytest.raises(AliasTakenError, match=str(c.node)):
        block.add_alias("V")
    other.delete()
    Block.delete_alias("U", pool=c)
    assert block.get_aliases() == {"T"}
    block.delete()
    with pytest.raises(AliasNotFoundError):
        Block.get_by_alias("T", pool=c)
    with pytest.raises(NotFoundError):
        block.mean()


def test_results_are_volatile_or_stored_there_and_errors_come_as_they_are(secure: Rig) -> None:
    c = secure.open(0)
    block = Block(np.arange(4.0), label="r")
    block.make_persistent(backend_id=far(c))
    made = block.stored(3)
    assert made.get_location() == block.get_location()
    assert np.array_equal(made.data, np.arange(4.0) * 3)
    here = Block(np.ones(4))
    here.make_persistent(backend_id=c)
    assert here.pid() == os.getpid()
    # The method runs there and reads the caller's object from here.
    assert block.dot(here) == 6.0
    assert here.dot(block) == 6.0
    block.into(made)
    assert made.label == "from r"
    block.into(out=here)
    assert here.label == "from r"
    with pytest.raises(KeyError, match="as it was asked to") as caught:
        block.fail()
    assert "in fail" in str(caught.value.__cause__)
    assert block.count == 0
    with pytest.raises(ArgumentError, match="cannot write into out="):
        block.into(out=np.zeros(3))  # type: ignore[arg-type]
    with pytest.raises(ArgumentError, match="cannot be sent"):
        block.add(threading.Lock())  # type: ignore[arg-type]


def test_references_lead_over_nodes_and_come_with_what_is_made(secure: Rig) -> None:
    c = secure.open(0)
    inner = Block(np.full(3, 2.0), label="inner")
    outer = Block(np.ones(3), label="outer", other=inner)
    inner.other = outer
    outer.make_persistent("outer", backend_id=far(c))
    assert inner.is_persistent
    assert inner.get_location() == outer.get_location()
    assert outer.other is inner
    assert inner.other is outer
    here = Block(np.arange(3.0), label="here", other=outer)
    here.make_persistent("here", backend_id=c)
    assert here.other is outer
    outer.other = here
    assert outer.other is here
    # Found by a process that has neither: by the alias, over all nodes.
    code = (
        "import sys, engram.cluster as clusters\n"
        "from test_cluster_active import Block\n"
        "c = clusters.open('job', etcd=sys.argv[1].split(','), pool=sys.argv[2], tls=sys.argv[3])\n"
        "print(*(Block.get_by_alias(name, pool=c).label for name in ('here', 'outer')))\n"
    )
    assert run(secure, code, str(secure.folder / "node1")) == "here outer\n"
    for name in ("outer", "here"):
        Block.delete_alias(name, pool=c)


def test_a_move_keeps_aliases_references_and_what_others_hold(secure: Rig) -> None:
    c = secure.open(0)
    there, own = far(c), near(c)
    block = Block(np.arange(5.0), label="m", tags=["x"])
    friend = Block(np.zeros(1), other=block)
    block.make_persistent("moved", backend_id=there)
    friend.make_persistent(backend_id=c)
    held = pickle.dumps(block)
    block.move(own)
    assert block.pid() == os.getpid()
    assert (block.label, block.tags, block.get_aliases()) == ("m", ["x"], {"moved"})
    assert Block.get_by_alias("moved", pool=c) is block
    assert friend.other is block
    assert pickle.loads(held) is block
    block.add()
    block.move(there)
    assert block.get_location() == f"engram://job/{there.node}"
    assert block.count == 1
    assert np.array_equal(block.data, np.arange(5.0) + 1)
    assert friend.other is block
    # Again and again, it leaves one note at each place.
    for _ in range(3):
        block.move(own)
        block.move(there)
    assert block.add() == 2
    assert Block.get_by_alias("moved", pool=c) is block
    Block.delete_alias("moved", pool=c)


def test_a_held_handle_follows_a_move_of_another_process(secure: Rig) -> None:
    c = secure.open(0)
    block = Block(np.arange(5.0), label="h")
    block.make_persistent("held", backend_id=far(c))
    block.mean()
    # A third process's handle has the object moved; this one asks at its old home.
    code = (
        "import sys, engram.cluster as clusters\n"
        "from test_cluster_active import Block, far, near\n"
        "c = clusters.open('job', etcd=sys.argv[1].split(','), pool=sys.argv[2], tls=sys.argv[3])\n"
        "Block.get_by_alias('held', pool=c).move(near(c) if sys.argv[4] == 'here' else far(c))\n"
    )
    run(secure, code, str(secure.folder / "node0"), "here")
    assert block.label == "h"
    assert block.get_location() == str(secure.folder / "node0")
    run(secure, code, str(secure.folder / "node0"), "there")
    assert block.add() == 1
    assert block.get_location() == f"engram://job/{far(c).node}"
    Block.delete_alias("held", pool=c)


def run(rig: Rig, code: str, pool: str, *more: str) -> str:
    """Run a program that is given the cluster's etcd, a pool and the certificates."""
    command = [sys.executable, "-c", code, ",".join(rig.etcd), pool, rig.tls, *more]
    done = subprocess.run(command, capture_output=True, text=True, check=False, timeout=120)
    assert done.returncode == 0, done.stderr
    return done.stdout


def test_replicas_are_read_there_and_brought_up_to_date(secure: Rig) -> None:
    c = secure.open(0)
    block = Block(np.arange(4.0), label="first", other=Block(np.ones(2), label="with it"))
    block.make_persistent("replicated", backend_id=c)
    replica = block.new_replica(far(c))
    assert replica.get_location() == f"engram://job/{far(c).node}"
    assert (replica.label, replica.mean(), replica.other.label) == ("first", 1.5, "with it")
    assert replica.other.get_location() == replica.get_location()
    with pytest.raises(ReadOnlyError):
        replica.label = "changed"
    block.label = "second"
    block.add()
    assert replica.label == "first"
    block.sync()
    assert (replica.label, replica.mean(), replica.count) == ("second", 2.5, 1)
    assert replica.other.get_location() == replica.get_location()
    with pytest.raises(ArgumentError, match="already"):
        block.new_replica(far(c))
    # From the other side: an object there, whose replica is here.
    there = Block(np.arange(3.0), label="there")
    there.make_persistent(backend_id=far(c))
    here = there.new_replica(near(c))
    assert here.label == "there"
    assert here.pid() == os.getpid()
    there.label = "new"
    there.sync()
    assert here.label == "new"
    Block.delete_alias("replicated", pool=c)


def test_calls_at_once_and_futures(secure: Rig) -> None:
    c = secure.open(0)
    blocks = [Block(np.full(100, float(n)), label=str(n)) for n in range(6)]
    for n, block in enumerate(blocks):
        block.make_persistent(backend_id=far(c) if n % 2 else c)
    far_ones = blocks[1::2]
    futures = [block.mean.submit() for block in far_ones]
    assert [each.result(60) for each in futures] == [1.0, 3.0, 5.0]
    counts: Counter[int] = Counter()

    def adds() -> None:
        for _ in range(20):
            counts[blocks[1].add()] += 1

    threads = [threading.Thread(target=adds) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert counts == Counter(range(1, 81))
    assert list(c.map(Block.mean, blocks)) == [1.0 * n for n in [0, 81, 2, 3, 4, 5]]


def test_a_call_whose_worker_dies_is_told_and_the_next_one_runs(secure: Rig) -> None:
    c = secure.open(0)
    block = Block(np.arange(4.0))
    block.make_persistent(backend_id=far(c))
    with pytest.raises(WorkerDiedError, match="SIGKILL"):
        block.die()
    assert block.count == 0
    assert block.add() == 1


def test_calls_of_threads_count_while_the_object_moves_to_and_fro(secure: Rig) -> None:
    """One that waited for the lock of an object that has gone does not run on what it was."""
    c = secure.open(0)
    block = Block(np.arange(4.0))
    block.make_persistent(backend_id=c)
    done: list[int] = []
    is_over = threading.Event()

    def adds() -> None:
        while not is_over.is_set():
            try:
                block.add(0)
            except engram.BusyError:
                continue
            done.append(1)

    threads = [threading.Thread(target=adds) for _ in range(2)]
    for thread in threads:
        thread.start()
    for _ in range(10):
        for member in (far(c), near(c)):
            with contextlib.suppress(engram.BusyError):
                block.move(member)
    is_over.set()
    for thread in threads:
        thread.join()
    assert block.count == len(done) > 0


def test_an_object_is_found_by_its_id_on_any_node(secure: Rig) -> None:
    c = secure.open(0)
    for backend in (c, far(c)):
        block = Block(np.arange(3.0), label="by id")
        block.make_persistent(backend_id=backend)
        name = block.get_id()
        assert name
        assert Block.get_by_id(name, pool=c) is block
        assert Block.get_by_id(name, pool=far(c)) is block
        with engram.active.use(c):
            assert Block.get_by_id(name) is block
        with pytest.raises(ArgumentError, match=r"does not say on which node of .*engram://job"):
            Block.get_by_id(block._gid, pool=c)
        with pytest.raises(NotFoundError):
            Block.get_by_id(f"{name.rpartition(':')[0]}:7fffffff", pool=c)
    assert Block.get_by_id(block._gid, pool=far(c)) is block


def test_two_nodes_that_gave_one_alias_at_one_moment_are_told_apart(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path / "state"))
    tests = os.path.dirname(__file__)  # noqa: PTH120 - as text, for a variable
    monkeypatch.setenv("PYTHONPATH", os.pathsep.join([tests, os.environ.get("PYTHONPATH", "")]))
    with rigged(tmp_path, secure=True) as rig:
        for number in range(3):
            rig.serve(number)
        c = rig.open(0)
        others = [each for each in c.members if each.node != c.node]
        with monkeypatch.context() as patch:
            patch.setattr("engram.active.places.far.alias_checks", [])  # nobody has it yet
            for member in others:
                Block(np.zeros(1), label=member.node).make_persistent("twice", backend_id=member)
            Block(np.ones(4), label="kept").make_persistent("copied", backend_id=others[0])
        named = f"'twice' on .*{min(each.node for each in others)} and "
        with pytest.raises(ArgumentError, match=named):
            Block.get_by_alias("twice", pool=c)
        for member in others:
            assert Block.get_by_alias("twice", pool=member).label == member.node
        # A replica, and what a moved object left, are the same object.
        copied = Block.get_by_alias("copied", pool=c)
        copied.new_replica(others[1])
        assert Block.get_by_alias("copied", pool=c).mean() == 1.0
        moved = Block(np.ones(2))
        moved.make_persistent("moved on", backend_id=others[0])
        moved.move(others[1])
        assert Block.get_by_alias("moved on", pool=c) is moved
        moved.add_alias("moved again")


def test_an_alias_is_given_on_this_host_where_nobody_else_can_be_asked(tmp_path: Path) -> None:
    with rigged(tmp_path) as rig:  # plain: no call goes to another node
        rig.serve(0)
        rig.serve(1)
        c = rig.open(0)
        block = Block(np.ones(2))
        block.make_persistent("own", backend_id=near(c))
        block.add_alias("own, too")
        assert block.get_aliases() == {"own", "own, too"}


def test_an_alias_is_given_on_this_host_where_etcd_is_away(tmp_path: Path) -> None:
    if why := why_not():
        pytest.skip(why)
    with contextlib.ExitStack() as last:
        store = last.enter_context(Etcd.alone())
        endpoints = [each.removeprefix("http://") for each in store.endpoints]
        rig = Rig(endpoints, tmp_path, last)
        rig.serve(0)
        c = rig.open(0)
        own = c.pool
        store.kill(0)
        with pytest.raises(CoordinatorError):
            c.members  # noqa: B018 - which asks it
        block = Block(np.ones(2))
        block.make_persistent("own", backend_id=own)
        block.add_alias("own, too")
        assert block.get_aliases() == {"own", "own, too"}


def test_a_cluster_or_a_node_is_used_as_a_pool_is(secure: Rig) -> None:
    c = secure.open(0)
    with engram.active.use(c):
        here = Block(np.zeros(1), label="own")
        here.make_persistent("used")
        assert here.pid() == os.getpid()
        Block(np.zeros(1), label="elsewhere").make_persistent("used there", backend_id=far(c))
        assert Block.get_by_alias("used") is here
        # Aliases are looked for on all nodes.
        assert Block.get_by_alias("used there").label == "elsewhere"
        with engram.active.use(far(c)):
            there = Block(np.zeros(1), label="there")
            there.make_persistent("used, too")
            assert there.get_location() == f"engram://job/{far(c).node}"
            assert Block.get_by_alias("used there").label == "elsewhere"
            with pytest.raises(AliasNotFoundError):
                Block.get_by_alias("used")
        for alias in ("used", "used there", "used, too"):
            Block.delete_alias(alias)
    for what in ("engram", 3, Block):
        with pytest.raises(ArgumentError, match="is no place of active objects: give a pool, a"):
            engram.active.use(what)
    other = clusters.open("job", etcd=secure.etcd, pool=secure.folder / "node0", tls=secure.tls)
    with engram.active.use(other):
        other.close()
        with pytest.raises(ArgumentError, match=r"engram://job.* and is closed: open it again"):
            Block(np.zeros(1)).make_persistent()


def test_unreachable_objects_are_collected_where_they_lie(secure: Rig) -> None:
    c = secure.open(0)
    for place in (far(c), c.backend(far(c).node), near(c), c):
        engram.active.gc(place)
        before = engram.active.gc(place, dry_run=True)
        kept = Block(np.arange(3.0))
        kept.make_persistent("kept", backend_id=place)
        left = Block(np.arange(3.0))
        left.make_persistent(backend_id=place)
        found = engram.active.unreachable(place)
        assert [each.id for each in found if each.kind.startswith("test_cluster_active.Block")] == [
            left._gid
        ]
        assert engram.active.gc(place, dry_run=True).objects == before.objects + 1
        assert engram.active.gc(place, older_than=3600).kept == 1
        done = engram.active.gc(place)
        assert (done.objects, done.reachable) == (1, before.reachable + 1)
        assert kept.mean() == 1.0
        with pytest.raises(NotFoundError):
            left.mean()
        Block.delete_alias("kept", pool=c)
    with pytest.raises(ArgumentError, match="is no place of active objects"):
        engram.active.gc("nothing")


def test_who_waits_for_a_call_is_told_when_its_node_is_stopped(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path / "state"))
    with rigged(tmp_path, secure=True) as rig:
        rig.serve(0)
        other = rig.serve(1)
        # Whoever waited for the deadline would wait for longer than this test does.
        c = clusters.open("job", etcd=rig.etcd, pool=tmp_path / "node0", tls=rig.tls, deadline=3600)
        block = Block(np.arange(4.0))
        block.make_persistent(backend_id=far(c))
        begun, go_on = tmp_path / "begun", tmp_path / "go on"
        waits = block.wait_until.submit(str(go_on), str(begun))
        wait_for(begun.exists)
        assert other.stdin is not None
        other.stdin.close()
        with pytest.raises(NodeAwayError, match=r"away for .* the call may have run"):
            waits.result(120)
        with pytest.raises(NodeAwayError, match="the call has not run"):
            block.mean()
        go_on.touch()
        other.wait()
        c.close()


def test_an_alias_that_a_node_may_have_that_is_away_is_not_said_to_be_missing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path / "state"))
    with rigged(tmp_path, secure=True) as rig:
        rig.serve(0)
        other = rig.serve(1)
        c = clusters.open("job", etcd=rig.etcd, pool=tmp_path / "node0", tls=rig.tls)
        Block(np.arange(4.0)).make_persistent("there", backend_id=far(c))
        other.kill()
        other.wait()

        def told() -> str:
            with pytest.raises(NodeAwayError) as away:
                Block.get_by_alias("there", pool=c)
            return str(away.value)

        wait_for(lambda: "is away: try again later" in told())
        with pytest.raises(NodeAwayError):
            Block.get_by_alias("nowhere", pool=c)
        rig.serve(1)
        wait_for(lambda: all(each.state == "serving" for each in c.members))
        assert Block.get_by_alias("there", pool=c).get_id()
        with pytest.raises(engram.active.AliasNotFoundError):
            Block.get_by_alias("nowhere", pool=c)
        c.close()


def test_calls_that_come_from_calls_need_no_worker_that_waits_for_them(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path / "state"))
    with rigged(tmp_path, secure=True) as rig:
        for number in range(2):
            rig.serve(number, workers=1)
        c = clusters.open("job", etcd=rig.etcd, pool=tmp_path / "none", tls=rig.tls)
        blocks = [Block(np.zeros(1), label=str(number)) for number in range(2)]
        for block, member in zip(blocks, c.members, strict=True):
            block.make_persistent(backend_id=member)
        first, second = blocks
        # There and back, with one worker for each node: who waits is in none that is waited for.
        processes = first.through([second, first, second, first])
        assert len(processes) == len(set(processes)) == 5
        # Many at once, from both sides; the workers are the same.
        futures = [first.through.submit([second, first, second]) for _ in range(6)]
        futures += [second.through.submit([first, second, first]) for _ in range(6)]
        assert {len(set(each.result(120))) for each in futures} == {4}
        assert first.through([second, first, second, first]) == processes
        # A call that comes from threads of a method comes from the method, too.
        assert {len(each) for each in first.all_through([second, first, second], 4)} == {3}
        c.close()


def test_a_chain_of_calls_that_is_too_long_is_refused(secure: Rig) -> None:
    c = secure.open(0)
    block = Block(np.arange(4.0))
    block.make_persistent("deep", backend_id=far(c))
    with calling.running(Ask("call", "default", 0, "", b"", depth=calling.DEEPEST)):
        assert block.is_persistent
        with pytest.raises(RecursionError, match=r"mean of .* comes from 33 calls of nodes"):
            block.mean()
        with pytest.raises(RecursionError, match="32 is the most: have methods give what"):
            block.mean.submit().result(60)
        # What needs no worker goes on.
        assert Block.get_by_alias("deep", pool=c)._gid == block._gid
    assert block.mean() == 1.5
    Block.delete_alias("deep", pool=c)


def test_a_node_that_was_started_again_is_called_as_the_member_it_is(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path / "state"))
    with rigged(tmp_path, secure=True) as rig:
        rig.serve(0)
        other = rig.serve(1)
        c = rig.open(0)
        before = far(c)
        block = Block(np.arange(4.0))
        block.make_persistent("again", backend_id=before)
        assert block.add() == 1
        assert other.stdin is not None
        other.stdin.close()
        other.wait()
        rig.serve(1)
        assert block.add() == 2
        assert far(c).id != before.id


def test_a_script_whose_module_no_node_has_is_run_by_its_stored_source(
    secure: Rig, tmp_path: Path
) -> None:
    script = tmp_path / "station.py"
    script.write_text(
        "import sys\n"
        "import numpy as np\n"
        "import engram, engram.cluster as clusters\n"
        "ZERO = 273.15\n"
        "class Station(engram.ActiveObject):\n"
        "    kelvin: np.ndarray\n"
        "    @engram.activemethod\n"
        "    def celsius(self) -> float:\n"
        "        return float(np.mean(self.kelvin) - ZERO)\n"
        "if __name__ == '__main__':\n"
        "    c = clusters.open('job', etcd=sys.argv[1].split(','), pool=sys.argv[2],\n"
        "                      tls=sys.argv[3])\n"
        "    there = next(each for each in c.members if each.node != c.node)\n"
        "    s = Station(np.full(10, 283.15))\n"
        "    s.make_persistent('Zugspitze', backend_id=there)\n"
        "    print(round(s.celsius(), 2))\n"
    )
    command = [sys.executable, str(script), ",".join(secure.etcd)]
    command += [str(secure.folder / "node0"), secure.tls]
    done = subprocess.run(command, capture_output=True, text=True, check=False, timeout=120)
    assert done.stdout == "10.0\n", done.stderr
    # A third program, without the module, has the class of the pool it lies in.
    c = secure.open(0)
    loaded: Any = engram.active.load_class("station.Station", far(c))
    assert loaded.get_by_alias("Zugspitze", pool=c).celsius() == pytest.approx(10.0)
