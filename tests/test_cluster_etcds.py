"""An etcd of three members, which the starts of three hosts bring along."""

from __future__ import annotations

import json
import os
import shutil
import socket
import sys
from typing import TYPE_CHECKING, Any

import numpy as np
import pytest

from cluster import hosts
from cluster.etcd import why_not
from cluster.operator import PATIENCE_S, Operator, told, wait_for
from engram import cluster as clusters
from engram.cluster import etcds, members
from engram.errors import ArgumentError, CoordinatorError, NodeAwayError
from shell import COMMAND, run

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from pathlib import Path

VALUES = np.arange(300 * 4, dtype="f8").reshape(300, 4)
HOSTS = ["h1", "h2", "h3"]
PATIENT = ("--ttl", "9")
"""A lease outlives the choice of another leader of etcd."""
takes_root = pytest.mark.skipif(
    os.geteuid() != 0, reason="hosts of other names are made by root alone"
)


@pytest.fixture(autouse=True)
def state(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Give what processes of these tests know of clusters, and nobody else does."""
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path / "state"))
    return tmp_path / "state"


@pytest.fixture
def operator(home: Path) -> Iterator[Operator]:
    if why := why_not():
        pytest.skip(why)
    made = Operator(home)
    yield made
    made.end()


def test_an_etcd_of_three_is_asked_for() -> None:
    assert members.wanted("auto") == (False, None)
    assert members.wanted(3) == members.wanted("3") == members.wanted(["3"]) == (True, None)
    assert members.wanted("3,h1:1,http://h2:2") == (True, ["h1:1", "http://h2:2"])
    assert members.wanted(["h1:1", "h2:2"]) == members.wanted("h1:1,h2:2")
    for bad in (5, "5", "3,", "3,h1", ["3", "h1:1"], True):
        with pytest.raises(ArgumentError, match="names no etcd: give auto, 3, or"):
            members.wanted(bad)


def done(what: str, work: Callable[[], Any]) -> None:
    """Do something, once the members of etcd have chosen who leads, and the nodes found it."""

    def goes() -> bool:
        try:
            work()
        except (CoordinatorError, NodeAwayError):
            return False
        return True

    wait_for(what, goes)


def published(cluster: clusters.Cluster, name: str) -> None:
    """Publish an array, and read it."""
    done("it is published", lambda: cluster.put(name, VALUES))
    done("it is read", lambda: np.testing.assert_array_equal(cluster[name][:], VALUES))


def wait_until(members_: dict[str, tuple[bool, bool]]) -> dict[str, Any]:
    """Wait until the members of etcd stand so; give the status."""
    found: dict[str, Any] = {}

    def holds() -> bool:
        found.update(told())
        return stand(found) == members_

    wait_for(f"members stand as {members_}", holds)
    return found


def wait_until_sound() -> None:
    """Wait until all members of etcd have a voice, and no node is troubled any more."""

    def holds() -> bool:
        said = told()
        # A node that was cut off from etcd takes a while to be a member again.
        return stand(said) == dict.fromkeys(HOSTS, (True, True)) and said["troubles"] == []

    wait_for("members and nodes are sound", holds)


def stand(said: dict[str, Any]) -> dict[str, tuple[bool, bool]]:
    """Give of each member of etcd, by its host, whether it answers, and has a voice."""
    return {each["host"]: (each["version"] is not None, each["has_voice"]) for each in said["etcd"]}


@takes_root
@pytest.mark.parametrize("tls", ["none", "own"])
def test_an_etcd_of_three_outlives_the_loss_of_any_one(operator: Operator, tls: str) -> None:
    words = ("--etcd", "3", "--tls", tls, *PATIENT)
    begun = [operator.serve(0, *words, host="h1")]
    said = wait_until({"h1": (True, True)})
    assert "etcd has 1 of 3 members" in said["troubles"][0]
    # Who has it open from the first is told of the others, too.
    with clusters.open("job") as early:
        begun.append(operator.serve(1, *words, host="h2"))
        wait_until({"h1": (True, True), "h2": (True, False)})
        published(early, "run/T")
        begun.append(operator.serve(2, *words, host="h3"))
        wait_until_sound()
        wait_for("it has all", lambda: early.members and len(early._native.endpoints()) == 3)
        for host in HOSTS:
            operator.kill_etcd(host)
            published(early, f"run/{host}")
            with clusters.open("job") as late:
                published(late, "run/T")
            said = wait_until({**dict.fromkeys(HOSTS, (True, True)), host: (False, True)})
            assert f"the member of etcd on {host} does not answer" in said["troubles"][0]
            # The start of that host brings it back, with all that there is.
            operator.left_by(operator.begin(HOSTS.index(host), "--detach", *words, host=host))
            wait_until_sound()
        assert [each.state for each in early.members] == ["serving"] * 3
    assert "3 nodes of job left" in run("cluster", "stop", "job").out
    assert [each.wait(PATIENCE_S) for each in begun] == [0, 0, 0]
    wait_for("all end", lambda: not any(operator.etcds().values()))
    # All names are there again; "auto" is enough where a host has a member.
    again = [operator.begin(n, "--detach", host=host) for n, host in enumerate(HOSTS)]
    for each in again:
        operator.left_by(each)
    with clusters.open("job") as cluster:
        np.testing.assert_array_equal(cluster["run/h3"][:], VALUES)


@takes_root
def test_hosts_that_share_no_home_join_where_the_first_is(
    operator: Operator, state: Path, tmp_path: Path
) -> None:
    operator.serve(0, "--etcd", "3", *PATIENT, host="h1")
    (url,) = (each["endpoint"] for each in told()["etcd"])
    others = [tmp_path / f"state{n}" for n in (1, 2)]
    # Both at once: one joins after the other.
    begun = [
        operator.begin(n, "--etcd", f"3,{url}", *PATIENT, host=HOSTS[n], state=others[n - 1])
        for n in (1, 2)
    ]
    wait_for("all have a voice", lambda: stand(told()) == dict.fromkeys(HOSTS, (True, True)))
    # A fourth host has none.
    operator.serve(3, "--etcd", f"3,{url}", *PATIENT, host="h4", state=tmp_path / "state3")
    assert set(stand(told())) == set(HOSTS)
    # The first host knows of the others by now, also when its own is gone.
    file = state / "engram/clusters/job.json"
    wait_for("it is known", lambda: len(json.loads(file.read_text())["etcd"]) == 3)
    with clusters.open("job") as cluster:
        operator.kill_etcd("h1")
        published(cluster, "run/T")
    operator.left_by(operator.begin(0, "--detach", *PATIENT, host="h1"))
    # A host whose state is lost joins anew.
    operator.kill_etcd("h2")
    begun[0].kill()
    begun[0].wait()
    shutil.rmtree(others[0])
    operator.serve(1, "--etcd", f"3,{url}", *PATIENT, host="h2", state=others[0])
    wait_for("all have a voice", lambda: stand(told()) == dict.fromkeys(HOSTS, (True, True)))


def test_a_host_that_is_lost_with_its_member_stops_nothing(tmp_path: Path) -> None:
    if why := hosts.why_not("etcd"):
        pytest.skip(why)
    # They share a home, and have addresses and certificates of their own.
    env = {"XDG_STATE_HOME": str(tmp_path / "shared")}
    words = ["cluster", "start", "job", "--pool", "/dev/shm/job", "--size", "64MiB", "--detach"]
    with hosts.Hosts(3) as three:

        def start(host: hosts.Host) -> None:
            address = ("--etcd", "3", "--host", host.address)
            host.run([*COMMAND, *words, *PATIENT, *address], env=env, patience=PATIENCE_S)

        def standing() -> dict[str, tuple[bool, bool]]:
            said = three[1].run([*COMMAND, "cluster", "status", "job", "--json"], env=env)
            return stand(json.loads(said))

        for host in three:
            start(host)
        names = [host.name for host in three]
        assert standing() == dict.fromkeys(names, (True, True))
        put = "import engram.cluster, sys; engram.cluster.open('job').put(sys.argv[1], range(9))"
        get = "import engram.cluster; print(engram.cluster.open('job').names())"
        three[1].python(put, "before", env=env)
        three[0].kill()
        # Parts are sent to it as long as its lease runs.
        program = [sys.executable, "-c", put, "after"]
        wait_for("it is away", lambda: "Error" not in three[2].run(program, code=None, env=env))
        assert standing()[names[0]] == (False, True)
        three[0].boot()
        start(three[0])
        assert standing() == dict.fromkeys(names, (True, True))
        assert three[0].python(get, env=env) == "['after', 'before']\n"


def test_workers_of_dask_bring_members_along(operator: Operator) -> None:
    distributed = pytest.importorskip("distributed", reason="distributed is not installed")
    options = {"threads_per_worker": 1, "dashboard_address": ":0"}
    with (
        distributed.LocalCluster(n_workers=2, **options) as local,
        distributed.Client(local) as client,
        clusters.start(
            client, pool=operator.pool(0), name="job", etcd=3, size="64 MiB", host="127.0.0.1"
        ) as cluster,
    ):
        # Both are on this host, which has one member alone.
        published(cluster, "run/T")
        said = told()
        (only,) = said["etcd"]
        assert (only["host"], only["has_voice"]) == (socket.gethostname(), True)
        assert "etcd has 1 of 3 members" in said["troubles"][0]
        assert clusters.stop("job").etcd_ended
    assert not etcds.is_running("job")


def test_an_etcd_of_one_member_does_not_become_one_of_three(operator: Operator) -> None:
    operator.serve(0)
    own = etcds.read("job")
    assert own is not None
    begun = operator.begin(1, "--etcd", "3")
    said = begun.communicate(timeout=PATIENCE_S)[0]
    assert begun.returncode == ArgumentError.exit_code
    assert f"the etcd of 'job' has one member, at {own.endpoint}: leave --etcd 3 away" in said
