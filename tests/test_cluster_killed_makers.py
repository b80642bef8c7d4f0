"""Makers that are killed at every step: what they publish is there as a whole, or not at all."""

from __future__ import annotations

import base64
import json
import os
import queue
import signal
import subprocess
import sys
import threading
import urllib.request
from contextlib import ExitStack, contextmanager, suppress
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import pytest

import engram
from cluster import doomed
from cluster.gateway import Gateway
from cluster.rig import rigged, wait_for
from engram.cluster import Cluster, ClusterArray, homes
from engram.cluster.natives import native

if TYPE_CHECKING:
    from collections.abc import Iterator

    from cluster.rig import Rig

HOSTS = ("h0", "h1", "h2") if os.geteuid() == 0 else ("", "", "")
"""The nodes are on hosts of these names, which root alone can make."""
REPLICAS = 2 if HOSTS[0] else 1
TTL_S = 2.0
"""Of makers; etcd has no shorter leases."""
PATIENCE_S = 60.0
TESTS = Path(__file__).parent
MAIN = "from cluster.doomed import main; main()"


class Makers:
    """What forks makers, on the first node's host; one works at a time."""

    def __init__(self, rig: Rig, last: ExitStack) -> None:
        self.rig, self._last = rig, last
        given = {
            "cluster": "job",
            "etcd": rig.etcd,
            "pool": str(rig.folder / "node0"),
            "host": HOSTS[0],
            "deadline": PATIENCE_S,
            "ttl": TTL_S,
            "tls": None if rig.tls == "none" else rig.tls,
            "replicas": REPLICAS,
        }
        self._process = subprocess.Popen(
            [sys.executable, "-c", MAIN, json.dumps(given)],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
            start_new_session=True,
        )
        self._lines: queue.Queue[str] = queue.Queue()
        self._reader = threading.Thread(target=self._read)
        self._reader.start()
        last.callback(self._end)

    def _read(self) -> None:
        assert self._process.stdout is not None
        for line in self._process.stdout:
            self._lines.put(line)

    def _end(self) -> None:
        os.killpg(self._process.pid, signal.SIGKILL)
        self._process.wait()
        self._reader.join()
        for stream in (self._process.stdin, self._process.stdout):
            if stream is not None:
                stream.close()

    def user(self) -> Cluster:
        """Open the cluster as one who waits for an answer of etcd as long as it takes."""
        tls = None if self.rig.tls == "none" else Path(self.rig.tls)
        user = Cluster(
            "job", self.rig.etcd, pool=None, deadline=PATIENCE_S, ttl=PATIENCE_S, tls=tls
        )
        self._last.callback(user.close)
        return user

    def begin(
        self, work: str, name: str, number: int, step: int | None, how: str, **more: Any
    ) -> Maker:
        """Have a maker do something, and die at a step; without one it dies at none."""
        task = {"work": work, "name": name, "number": number, "step": step, "how": how, **more}
        assert self._process.stdin is not None
        self._process.stdin.write(f"{json.dumps(task)}\n")
        self._process.stdin.flush()
        return Maker(self._lines)


class Maker:
    """A maker at work."""

    def __init__(self, lines: queue.Queue[str]) -> None:
        self._lines = lines
        self.pid = 0
        self.code: int | None = None
        self.steps: list[str] = []
        """The steps that it took, or was about to take when it died."""

    def has_ended(self, timeout: float | None = None) -> bool:
        """Whether it has ended; so long something of it is waited for."""
        while self.code is None:
            try:
                line = self._lines.get(block=timeout is not None, timeout=timeout)
            except queue.Empty:
                return False
            self._take(*line.split())
        return True

    def _take(self, what: str, value: str) -> None:
        if what == "step":
            self.steps.append(value)
        elif what == "begun":
            self.pid = int(value)
        else:
            self.code = int(value)

    def wait(self) -> None:
        """Wait for its end."""
        assert self.has_ended(PATIENCE_S), f"it does not end; it took the steps {self.steps}"

    def kill(self) -> None:
        """End it now."""
        while not self.pid:
            self._take(*self._lines.get(timeout=PATIENCE_S).split())
        os.kill(self.pid, signal.SIGKILL)
        self.wait()

    @property
    def was_killed(self) -> bool:
        """Whether it died; it has failed in no other way."""
        whole = {0, doomed.GAVE_UP, -signal.SIGKILL}
        assert self.code in whole, f"it failed, after the steps {self.steps}"
        return self.code == -signal.SIGKILL


@contextmanager
def beside_nodes(folder: Path, *, secure: bool = False) -> Iterator[Makers]:
    """Give makers beside three nodes."""
    package = str(Path(engram.__file__).parents[1])
    with pytest.MonkeyPatch.context() as patch, ExitStack() as last:
        patch.setenv("XDG_STATE_HOME", str(folder / "state"))
        paths = [str(TESTS), package, os.environ.get("PYTHONPATH", "")]
        patch.setenv("PYTHONPATH", os.pathsep.join(paths))
        patch.setenv("OMP_NUM_THREADS", "1")  # so that what forks has one thread
        rig = last.enter_context(rigged(folder, secure=secure))
        for number, host in enumerate(HOSTS):
            rig.serve(number, kept=1.0, host=host)
        yield Makers(rig, last)


@pytest.fixture(scope="module")
def makers(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Makers]:
    """Give makers that whoever is on the network could be."""
    with beside_nodes(tmp_path_factory.mktemp("nodes")) as made:
        yield made


@pytest.fixture(scope="module")
def members(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Makers]:
    """Give makers with certificates, which alone may call methods."""
    with beside_nodes(tmp_path_factory.mktemp("secure"), secure=True) as made:
        yield made


# What is there


def of_one(values: Any) -> int:
    """Give the number that all items are."""
    found = np.unique(values)
    assert found.size == 1, f"a mix of {found}"
    return int(found[0])


def seen(user: Cluster, name: str) -> dict[str, int]:
    """Give what has a name below this one, as at one moment, by the number that it is.

    What is read of it has one number: that, or if it is replaced meanwhile the next.
    """
    found = {}
    for path, handle in user._handles(name):
        member = path.removeprefix(f"{name}/")
        found[member] = int(handle.attrs["v"])
        if isinstance(handle, ClusterArray):
            try:
                assert of_one(handle[...]) >= found[member]
            except engram.NotFoundError:
                assert path not in user
            except engram.ConflictError:
                # What a batch puts in its place is of another dtype.
                assert user[path].dtype != handle.dtype
        else:
            values = {of_one(one[...]) for one in handle.values()}
            assert values <= {found[member], found[member] + 1}
    return found


def unnamed(makers: Makers, user: Cluster) -> list[str]:
    """Give what lies in the nodes' pools that no manifest names."""
    held = {}
    for number in range(len(HOSTS)):
        path = makers.rig.folder / f"node{number}"
        told = native.node_of(path)
        assert told is not None
        with engram.open(path, "r") as pool:
            held[told[1]] = set(held_in(pool))
    for _, text in user._native.names(""):
        manifest = json.loads(text)
        uuid = manifest.get("made", manifest["uuid"])
        parts = manifest.get("parts", [{"h": range(len(manifest["holders"]))}])
        for number, part in enumerate(parts):
            for at in part["h"]:
                held[manifest["holders"][at]["node"]] -= {f"{uuid}/{number}", uuid}
    return [f"{name} at {node}" for node, names in held.items() for name in sorted(names)]


def held_in(pool: engram.Pool) -> Iterator[str]:
    """Give the parts of a pool, and the groups that have not come to their names."""
    for uuid, parts in pool.get(".cluster/parts", {}).items():
        with suppress(engram.NotFoundError):  # what is in it was freed just now
            yield from [f"{uuid}/{number}" for number in parts]
    yield from pool.get(".cluster/trees", {})


def leases(makers: Makers) -> set[str]:
    """Give the makers whose leases run."""
    ends = [base64.b64encode(f"/engram/job/makers{end}".encode()).decode() for end in "/0"]
    body = json.dumps({"key": ends[0], "range_end": ends[1], "keys_only": True})
    opener = urllib.request.build_opener(urllib.request.ProxyHandler({}))
    with opener.open(f"http://{makers.rig.etcd[0]}/v3/kv/range", body.encode()) as answer:
        return {row["key"] for row in json.load(answer).get("kvs", ())}


def check_all_is_whole(makers: Makers, user: Cluster) -> None:
    """Wait until nothing is left of those who died; then nothing is wrong."""
    wait_for(lambda: unnamed(makers, user) == [])
    assert user.verify().problems == []
    for number in range(len(HOSTS)):
        assert engram.verify(makers.rig.folder / f"node{number}").problems == []


# Killed at a step

BEFORE = {"put": ("a",), "batch": ("b", "old")}
"""What there is at every other step before a work is begun."""
AFTER = {"batch": ("a", "b"), "group": ("g",)}
"""Of works after which there is something else than "a"."""
LEAST = {"put": 8, "seal": 15, "batch": 12, "group": 13}
"""How many steps there are at least."""


@pytest.mark.parametrize("how", ["before", "amid"])
@pytest.mark.parametrize("work", list(LEAST))
def test_what_a_maker_publishes_that_dies_is_there_as_a_whole_or_not_at_all(
    makers: Makers, work: str, how: str
) -> None:
    user = makers.user()
    last: dict[str, dict[str, int]] = {}
    step = 0
    for tried in range(100):
        name = f"{work}-{how}/{tried}"
        before = dict.fromkeys(BEFORE.get(work, ()) if tried % 2 else (), 0)
        for member in before:
            user.put(f"{name}/{member}", doomed.full(0), attrs={"v": 0})
        maker = makers.begin(work, name, 1, step, how)
        may_be = [before, dict.fromkeys(AFTER.get(work, "a"), 1)]
        while not maker.has_ended():
            assert seen(user, name) in may_be
        assert seen(user, name) in may_be
        at_once(user, work, name, 2)
        last[name] = seen(user, name)
        assert set(last[name]) == set(may_be[1])
        if work in {"put", "batch"}:
            assert set(last[name].values()) == {2}
        if maker.was_killed:
            assert len(maker.steps) == step + 1 or work == "seal"  # whose steps are of threads
            step += 1
        elif maker.code == 0:
            break
    assert maker.code == 0
    assert step >= LEAST[work]
    assert "publish" in maker.steps
    check_all_is_whole(makers, user)
    assert {name: seen(user, name) for name in last} == last


def at_once(user: Cluster, work: str, name: str, number: int) -> None:
    """Do the same as another maker, right after the first has died."""
    do = doomed.WORKS[work]
    try:
        do(user, name, number, REPLICAS)
    except engram.ConflictError:
        do(user, name, number, REPLICAS)  # the dead one's transaction came in between


@pytest.mark.parametrize("how", ["before", "amid"])
def test_an_object_whose_mover_dies_is_at_one_place(members: Makers, how: str) -> None:
    user = members.user()
    told = native.node_of(members.rig.folder / "node0")
    assert told is not None
    home = next(each for each in user.members if each.node == told[1])
    step = 0
    for tried in range(100):
        name = f"move-{how}-{tried}"
        doomed.Thing(tried, doomed.full(tried)).make_persistent(name, backend_id=home)
        maker = members.begin("move", name, tried, step, how)
        while not maker.has_ended():
            thing = doomed.Thing.get_by_alias(name, pool=user)
            assert (of_one(thing.data), thing.number) == (tried, tried)
        at_once(user, "move", name, tried)
        thing = doomed.Thing.get_by_alias(name, pool=user)
        assert (of_one(thing.data), thing.number) == (tried, tried)
        if maker.was_killed:
            step += 1
        elif maker.code == 0:
            break
    assert maker.code == 0
    assert "call" in maker.steps
    check_all_is_whole(members, user)


def test_an_object_that_moves_while_its_alias_is_looked_up_is_one_object(
    members: Makers, monkeypatch: pytest.MonkeyPatch
) -> None:
    user = members.user()
    nodes = [native.node_of(members.rig.folder / f"node{number}") for number in range(3)]
    places = [each for told in nodes for each in user.members if told and each.node == told[1]]
    thing = doomed.Thing(1, doomed.full(1))
    thing.make_persistent("meanwhile", backend_id=places[0])
    thing.move(places[1])
    look, looked = homes._object_at, []

    def look_and_move(home: Any, gid: int) -> Any:
        found = look(home, gid)
        looked.append(found)
        if len(looked) == 1:
            thing.move(places[2])
        return found

    monkeypatch.setattr(homes, "_object_at", look_and_move)
    assert doomed.Thing.get_by_alias("meanwhile", pool=user).number == 1
    assert len(set(looked)) == 2  # it was seen at both places


# Killed while the transaction is on its way


def test_a_transaction_that_outlives_its_maker_takes_effect_as_a_whole(makers: Makers) -> None:
    user = makers.user()
    others = leases(makers)
    with Gateway(makers.rig.etcd[0], "job", "way/a/a") as gateway:
        maker = makers.begin("put", "way/a", 1, None, "", etcd=[gateway.address])
        gateway.wait_until_it_came()
        own = leases(makers) - others
        maker.kill()
        assert seen(user, "way/a") == {}
        assert b'"succeeded":true' in gateway.let_it_go_on()
    assert seen(user, "way/a") == {"a": 1}
    wait_for(lambda: own.isdisjoint(leases(makers)))
    check_all_is_whole(makers, user)
    assert seen(user, "way/a") == {"a": 1}


def test_a_transaction_that_is_late_changes_nothing_of_the_next_makers(makers: Makers) -> None:
    user = makers.user()
    with Gateway(makers.rig.etcd[0], "job", "way/b/a") as gateway:
        maker = makers.begin("put", "way/b", 1, None, "", etcd=[gateway.address])
        gateway.wait_until_it_came()
        maker.kill()
        at_once(user, "put", "way/b", 2)
        assert b'"succeeded":true' not in gateway.let_it_go_on()
    assert seen(user, "way/b") == {"a": 2}
    check_all_is_whole(makers, user)
    assert seen(user, "way/b") == {"a": 2}


def test_a_transaction_whose_parts_are_free_by_then_takes_no_effect(makers: Makers) -> None:
    user = makers.user()
    with Gateway(makers.rig.etcd[0], "job", "way/c/a") as gateway:
        maker = makers.begin("put", "way/c", 1, None, "", etcd=[gateway.address])
        gateway.wait_until_it_came()
        assert len(unnamed(makers, user)) == 2 * REPLICAS
        maker.kill()
        wait_for(lambda: unnamed(makers, user) == [])
        assert b'"succeeded":true' not in gateway.let_it_go_on()
    assert seen(user, "way/c") == {}
    check_all_is_whole(makers, user)
