"""A cluster as its operator has it: started, looked at, stopped, and a node retired."""

from __future__ import annotations

import contextlib
import json
import os
import re
import shutil
import signal
import socket
import ssl
import sys
import threading
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any
from urllib.parse import urlsplit

import numpy as np
import pytest

import engram
from cluster.etcd import Etcd, why_not
from cluster.operator import PATIENCE_S, Operator, is_gone, told, wait_for
from documents import blocks
from documents import run as run_blocks
from engram import cluster as clusters
from engram.cluster import certificates, etcds
from engram.cluster.memory import own_bytes
from engram.cluster.natives import native
from engram.cluster.nodes import check_pool
from engram.errors import (
    ArgumentError,
    BusyError,
    CoordinatorError,
    EngramError,
    FormatError,
    NodeAwayError,
    NotFoundError,
    PartsLostError,
    UnsupportedError,
)
from shell import run

if TYPE_CHECKING:
    from collections.abc import Iterator

ROOT = Path(__file__).resolve().parents[1]
VALUES = np.arange(300 * 4, dtype="f8").reshape(300, 4)


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


@pytest.fixture
def store() -> Iterator[Etcd]:
    if why := why_not():
        pytest.skip(why)
    with Etcd.alone() as made:
        yield made


def fake_etcd(folder: Path, said: str) -> Path:
    """Make a program `etcd` that says its version, and does nothing else."""
    folder.mkdir()
    program = folder / "etcd"
    program.write_text(f'#!/bin/sh\n[ "$*" = --version ] && echo "{said}"\n')
    program.chmod(0o755)
    return program


# Which etcd


def test_the_first_etcd_in_path_that_may_decide_is_taken(tmp_path: Path) -> None:
    said = ["etcd Version: 3.5.1", "?", "etcd Version: 3.4.21", "etcd Version: 3.4.23"]
    programs = [fake_etcd(tmp_path / str(place), each) for place, each in enumerate(said)]
    last = fake_etcd(tmp_path / "last", "etcd Version: 3.6.0")
    (tmp_path / "none").mkdir()
    (tmp_path / "folder" / "etcd").mkdir(parents=True)
    folders = [tmp_path / "none", tmp_path / "folder", *(each.parent for each in programs)]
    assert etcds.find(":".join(map(str, [*folders, last.parent]))) == programs[3]
    with pytest.raises(UnsupportedError, match=r"3\.5\.1 may lose what it has ack.*3\.5\.6") as why:
        etcds.find(":".join(map(str, folders[:-1])))
    assert all(str(each) in str(why.value) for each in programs[:3])
    assert "etcd-server" in str(why.value)
    with pytest.raises(UnsupportedError, match="no program etcd in PATH: install"):
        etcds.find(str(tmp_path / "none"))


@pytest.mark.parametrize("good", ["h1:2379", "http://h1:2379,https://[::1]:1/", "127.0.0.1:65535"])
def test_endpoints_of_etcd_are_read(good: str) -> None:
    assert etcds.parse(good) == [each.rstrip("/") for each in good.split(",")]
    assert etcds.parse(good.split(",")) == etcds.parse(good)
    assert etcds.parse("auto") is None


@pytest.mark.parametrize(
    "bad", ["", "2", "3", "h1", "h1:0", "h1:65536", "h1:2379,", "ftp://h1:2379", []]
)
def test_what_names_no_etcd_is_refused(bad: str | list[str]) -> None:
    with pytest.raises(ArgumentError, match="give auto, 3, or endpoints such as h1:2379") as why:
        etcds.parse(bad)
    assert repr(bad) in str(why.value)


# Start and stop


def test_a_cluster_that_was_stopped_starts_again_with_all_its_names(operator: Operator) -> None:
    begun = [operator.begin(number, "--detach") for number in range(2)]
    pids = [operator.left_by(each) for each in begun]
    own = etcds.read("job")
    assert own is not None
    assert told()["troubles"] == []
    with clusters.open("job") as cluster:
        assert [each.state for each in cluster.members] == ["serving", "serving"]
        cluster.put("run/T", VALUES)
    # Another process of a host waits to take over; it ends, too.
    pids.append(operator.leave(0))
    assert len(told()["nodes"]) == 2
    ended = run("cluster", "stop", "job")
    assert ended == (0, "2 nodes of job left; its etcd has ended; the pools stay\n", "")
    wait_for("all processes end", lambda: all(map(is_gone, [*pids, own.pid])))
    ended = run("cluster", "status", "job")
    assert ended.code == CoordinatorError.exit_code
    assert "the cluster and its etcd at" in ended.out
    assert run("cluster", "stop", "job").out == "0 nodes of job left; the pools stay\n"
    for number in range(2):
        operator.leave(number)
    with clusters.open("job") as cluster:
        np.testing.assert_array_equal(cluster["run/T"][:], VALUES)
        assert [each.state for each in cluster.members] == ["serving", "serving"]
    assert run("cluster", "stop", "job").code == 0
    for number in range(2):
        engram.destroy(operator.pool(number))
        assert not operator.pool(number).exists()  # what the node kept there is gone, too


def test_an_etcd_ends_with_the_foreground_that_started_it(operator: Operator) -> None:
    serves = operator.serve(0)
    own = etcds.read("job")
    assert own is not None
    assert etcds.is_running("job")
    serves.send_signal(signal.SIGTERM)
    assert serves.wait(PATIENCE_S) == 0
    assert is_gone(own.pid)
    # Its data are there, and its port is the same, so others find it.
    left = operator.leave(0)
    again = etcds.read("job")
    assert again is not None
    assert (again.endpoint, again.pid != own.pid) == (own.endpoint, True)
    assert [each["state"] for each in told()["nodes"]] == ["serving"]
    # What is left behind outlives who left it.
    os.kill(left, signal.SIGTERM)
    wait_for("the node ends", lambda: is_gone(left))
    assert etcds.is_running("job")
    assert [each["state"] for each in told()["nodes"]] == ["away"]


def test_an_etcd_is_where_its_file_says(operator: Operator, state: Path) -> None:
    assert operator.left == []
    file = state / "engram/clusters/job.d/etcd.json"

    def ensured() -> etcds.Endpoints:
        return etcds.ensure("job", "auto", lambda: "127.0.0.1")

    begun = ensured()
    assert begun.started
    assert ensured() == (begun.endpoints, False)
    assert etcds.ensure("job", "h1:2379", str) == (["h1:2379"], False)
    assert etcds.end("job")
    assert not etcds.end("job")
    # It runs on another host: nobody can say here whether it does.
    elsewhere = {"host": "h9", "endpoint": begun.endpoints[0], "pid": 7}
    file.write_text(json.dumps(elsewhere))
    assert ensured() == (begun.endpoints, False)
    assert not etcds.end("job")
    # It was ended there, and the home is one for both.
    file.write_text(json.dumps({**elsewhere, "pid": 0}))
    assert ensured().started
    assert etcds.end("job")


def test_an_etcd_of_one_shows_its_certificate_at_each_of_its_ports(operator: Operator) -> None:
    assert operator.left == []
    try:
        begun = etcds.ensure("job", "auto", lambda: "127.0.0.1", tls="own")
        assert begun.endpoints[0].startswith("https://")
        own = etcds.read("job")
        assert own is not None
        words = Path(f"/proc/{own.pid}/cmdline").read_text().split("\0")
        heard = [word.partition("=")[2] for word in words if word.startswith("--listen-")]
        assert len(heard) == 2
        context = ssl.create_default_context(cafile=certificates.own_folder("job") / "ca.pem")
        context.check_hostname = False
        for each in map(urlsplit, heard):
            # Whoever has no certificate of the cluster's gets no answer.
            with (
                socket.create_connection((each.hostname, each.port)) as raw,
                pytest.raises(ssl.SSLError, match="certificate"),
                context.wrap_socket(raw) as asked,
            ):
                asked.sendall(b"GET /version HTTP/1.0\r\n\r\n")
                asked.recv(100)
    finally:
        etcds.end("job")


def test_nodes_of_other_hosts_stop_too(
    operator: Operator, store: Etcd, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    url = ",".join(store.endpoints)
    serves = [operator.serve(number, "--etcd", url) for number in range(2)]
    # Nothing is known where it is stopped.
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path / "elsewhere"))
    assert run("cluster", "stop", "job").code == NotFoundError.exit_code
    ended = run("cluster", "stop", "job", "--etcd", url)
    assert (ended.code, ended.out) == (0, "2 nodes of job left; the pools stay\n")
    assert [each.wait(PATIENCE_S) for each in serves] == [0, 0]
    assert store.members[0].is_running
    states = [each["state"] for each in told("--etcd", url)["nodes"]]
    assert states == ["away", "away"]


# Status


def test_status_says_what_is_wrong_and_what_to_do(operator: Operator, store: Etcd) -> None:
    (url,) = store.endpoints
    serves = operator.serve(0, "--etcd", url)
    said = told()
    assert (said["name"], said["etcd"][0]["endpoint"], said["troubles"]) == ("job", url, [])
    (node,) = said["nodes"]
    assert (node["state"], node["answers"], node["path"]) == (
        "serving",
        True,
        str(operator.pool(0)),
    )
    serves.kill()
    serves.wait()
    (node,) = told()["nodes"]
    (trouble,) = told()["troubles"]
    assert (node["state"], node["answers"]) == ("serving", False)
    assert f"engram cluster start job --pool {operator.pool(0)}" in trouble
    # Its lease has ended, and whoever stops the cluster finds out.
    assert run("cluster", "stop", "job").code == 0
    said = told()
    assert [each["state"] for each in said["nodes"]] == ["away"]
    assert f"retire job {node['node']} --lost" in said["troubles"][0]
    shown = run("cluster", "status", "job").out
    assert re.search(rf"{node['node']} .* away .* no\n", shown)
    assert f"epoch {said['epoch']}\netcd {url}: version 3." in shown
    store.kill(0)
    ended = run("cluster", "status", "job")
    assert ended.code == CoordinatorError.exit_code
    assert f"etcd {url}: does not answer\netcd at {url} is of no use: " in ended.out


def test_a_node_whose_pool_is_removed_ends_and_is_told_of(operator: Operator, store: Etcd) -> None:
    etcd = ",".join(store.endpoints)
    words = ("--etcd", etcd)
    serving = operator.serve(0, *words)
    with clusters.open("job") as cluster:
        cluster.put("T", VALUES)
        (node,) = [each.node for each in cluster.members]
    shutil.rmtree(operator.pool(0))
    said, _ = serving.communicate(timeout=PATIENCE_S)
    assert serving.returncode == engram.PoolGoneError.exit_code
    assert f"the files of the pool {operator.pool(0)} were removed while it was served" in said
    (trouble,) = told(*words)["troubles"]
    assert f"{operator.pool(0)} was removed, or is another's" in trouble
    assert f"`engram cluster retire job {node} --lost`" in trouble
    operator.serve(0, *words)  # a new pool, and another node
    assert [each for each in told(*words)["troubles"] if node in each]
    wait_for("its lease ends", lambda: run("cluster", "retire", "job", node, "--lost").code == 0)
    assert told(*words)["troubles"] == []


def test_a_pool_that_is_removed_under_serve_is_away_at_once(home: Path, store: Etcd) -> None:
    nodes = []
    with contextlib.ExitStack() as last:
        for number in range(2):
            pool = home / f"node{number}"
            node = clusters.serve(
                "job", etcd=store.endpoints, pool=pool, size="64 MiB", host="127.0.0.1"
            )
            nodes.append(last.enter_context(node).wait())
        cluster = last.enter_context(clusters.open("job", pool=home / "none"))
        (there,) = [each.node for each in cluster.members if each.path == str(home / "node1")]
        group = cluster.create_group("g", node=there)
        group["a"] = VALUES
        shutil.rmtree(home / "node1")
        wait_for("it ends", lambda: nodes[1].standing == "ended")
        assert f"{home / 'node1'} were removed while it was served" in (nodes[1].failure or "")
        with pytest.raises(BusyError, match=r"ended: the files of the pool .*retire job NODE --l"):
            nodes[1].wait()
        wait_for("it is away", lambda: {e.state for e in cluster.members} == {"serving", "away"})
        with pytest.raises(NodeAwayError, match="is away"):
            cluster["g/a"]
        assert nodes[0].standing == "serves"


def test_a_cluster_without_nodes_says_how_to_start_one(store: Etcd) -> None:
    said = told("--etcd", ",".join(store.endpoints))
    assert said["nodes"] == []
    assert "`engram cluster start job --pool PATH`" in said["troubles"][0]


# Retire


def test_a_node_goes_for_good_that_holds_nothing_alone(operator: Operator, store: Etcd) -> None:
    url = ",".join(store.endpoints)
    serves = [operator.serve(number, "--etcd", url) for number in range(2)]
    with clusters.open("job") as cluster:
        cluster.put("run/T", VALUES)
        group = cluster.create_group("mine", node=cluster.members[0].node)
        group["a"] = VALUES
        first, second = (each.node for each in cluster.members)
        place = [str(operator.pool(number)) for number in range(2)].index(cluster.members[0].path)
        ended = run("cluster", "retire", "job", first)
        assert ended.code == ArgumentError.exit_code
        assert f"node {first} on " in ended.err
        assert "'mine', 'run/T'" in ended.err
        assert "--lost" in ended.err
        with pytest.raises(ArgumentError, match="serves, so nothing of it is lost"):
            cluster.retire(first, lost=True)
        with pytest.raises(NotFoundError, match=r"'h9' is no node of 'job': there are .*\("):
            cluster.retire("h9")
        cluster.remove("mine")
        cluster.remove("run/T")
        cluster.retire(first)
        assert [each.state for each in cluster.members] == ["lost", "serving"]
        assert serves[place].wait(PATIENCE_S) == 0
        cluster.put("run/T", VALUES)
        assert list(cluster["run/T"].holders()) == [second]
        np.testing.assert_array_equal(cluster["run/T"][:], VALUES)


def test_the_last_node_is_not_retired_where_its_etcd_would_end(operator: Operator) -> None:
    pids = [operator.leave(number) for number in range(2)]
    first, second = (each["node"] for each in told()["nodes"])
    assert run("cluster", "retire", "job", first).code == 0
    ended = run("cluster", "retire", "job", second)
    assert (ended.code, ended.out) == (ArgumentError.exit_code, "")
    assert f"node {second} on " in ended.err
    assert "is the last that serves 'job', whose etcd would end with it" in ended.err
    assert "`engram cluster stop job` ends both" in ended.err
    assert [each["state"] for each in told()["nodes"]] == ["lost", "serving"]
    assert run("cluster", "stop", "job").code == 0
    wait_for("all processes end", lambda: all(map(is_gone, pids)))


@pytest.mark.skipif(os.geteuid() != 0, reason="hosts of other names are made by root alone")
def test_a_node_goes_whose_parts_another_has_too(operator: Operator, store: Etcd) -> None:
    url = ",".join(store.endpoints)
    hosts = ["h1", "h2"]
    serves = [operator.serve(at, "--etcd", url, host=host) for at, host in enumerate(hosts)]
    with clusters.open("job") as cluster:
        array = cluster.put("run/T", VALUES, replicas=2)
        ended = run("cluster", "retire", "job", "h1")
        assert ended.code == 0, ended.err
        assert ended.out.endswith(f"on h1 is gone for good; its pool was {operator.pool(0)}\n")
        assert serves[0].wait(PATIENCE_S) == 0
        assert {each.host: each.state for each in cluster.members} == {
            "h1": "lost",
            "h2": "serving",
        }
        np.testing.assert_array_equal(array[:], VALUES)
        # Now the other is alone with it.
        assert "'run/T'" in run("cluster", "retire", "job", "h2").err


def test_a_node_that_is_given_up_is_not_waited_for(operator: Operator, store: Etcd) -> None:
    url = ",".join(store.endpoints)
    serves = operator.serve(0, "--etcd", url)
    with clusters.open("job") as cluster:
        cluster.put("run/T", VALUES)
        (member,) = cluster.members
    serves.kill()
    serves.wait()
    # Its lease has to end first.
    wait_for(
        "it is given up", lambda: run("cluster", "retire", "job", member.node, "--lost").code == 0
    )
    with clusters.open("job", pool=operator.home / "none") as cluster:
        with pytest.raises(PartsLostError, match="are lost"):
            cluster["run/T"][:]
        assert [each.state for each in cluster.members] == ["lost"]
    assert told()["troubles"] == []
    # It comes back after all, with all it had.
    operator.serve(0, "--etcd", url)
    with clusters.open("job") as cluster:
        np.testing.assert_array_equal(cluster["run/T"][:], VALUES)


# Dask


def test_workers_of_dask_serve_and_are_stopped(operator: Operator) -> None:
    distributed = pytest.importorskip("distributed", reason="distributed is not installed")
    with (
        distributed.LocalCluster(
            n_workers=2, threads_per_worker=1, dashboard_address=":0"
        ) as local,
        distributed.Client(local) as client,
    ):
        options = ("--pool", str(operator.pool(0)), "--size", "64MiB", "--ttl", "3")
        words = ("--scheduler", local.scheduler_address, "--host", "127.0.0.1")
        ended = run("cluster", "start", "job", *options, *words)
        assert (ended.code, ended.out) == (0, "1 node of job now\n"), ended.err
        with clusters.open("job") as cluster:
            cluster.put("run/T", VALUES)
            np.testing.assert_array_equal(cluster["run/T"].dask().compute(), VALUES)
        ended = run("cluster", "stop", "job")
        assert ended.out == "1 node of job left; its etcd has ended; the pools stay\n", ended.err
        standings = client.run(_standing)
        wait_for("all end", lambda: set(client.run(_standing).values()) == {"ended"})
        assert len(standings) == 2


def test_a_cluster_starts_on_the_workers_of_a_client(operator: Operator, store: Etcd) -> None:
    distributed = pytest.importorskip("distributed", reason="distributed is not installed")
    from engram.cluster.plugin import NodePlugin  # noqa: PLC0415 - which needs distributed

    assert issubclass(NodePlugin, distributed.WorkerPlugin)
    options = {"threads_per_worker": 1, "dashboard_address": ":0"}
    with (
        distributed.LocalCluster(n_workers=1, **options) as local,
        distributed.Client(local) as client,
    ):
        with clusters.start(
            client, pool=operator.pool(0), name="job", etcd=store.endpoints, size="64 MiB", ttl=3
        ) as cluster:
            assert [each.state for each in cluster.members] == ["serving"]
            cluster.put("run/T", VALUES)
            # A worker that joins later takes part, too: it waits.
            local.scale(2)
            client.wait_for_workers(2, timeout=PATIENCE_S)
            wait_for(
                "both take part",
                lambda: sorted(client.run(_standing).values()) == ["serves", "waits"],
            )
            np.testing.assert_array_equal(cluster["run/T"].dask().compute(), VALUES)
        # Pages of the pool weigh no worker.
        assert set(client.run(_weighs_its_own).values()) == {True}
        assert clusters.stop("job").etcd_ended is False
        wait_for("all end", lambda: set(client.run(_standing).values()) == {"ended"})


def _weighs_its_own(dask_worker: Any) -> bool:
    return bool(dask_worker.monitor.get_process_memory.func is own_bytes)


def _standing(dask_worker: Any) -> str:
    return str(dask_worker.plugins["engram-cluster-job"]._node.standing)


# The guide


def test_what_the_guide_shows_runs(home: Path, state: Path) -> None:
    if why := why_not():
        pytest.skip(why)
    if shutil.which("curl") is None:
        pytest.skip("curl is not installed")
    text = (ROOT / "docs/guide/cluster.md").read_text(encoding="utf-8")
    shown = [each for each in blocks(text) if "tests/test_cluster_start.py" in each.reason]
    start, use, stop, curl = shown
    assert "curl" in curl.code
    env = {**os.environ, "PATH": f"{Path(sys.executable).parent}:{os.environ['PATH']}"}
    words = [replace(each, code=each.code.replace("/dev/shm/", f"{home}/")) for each in shown]
    words[0] = replace(
        words[0], code=start.code.replace("/dev/shm/job", f"{home}/job --host 127.0.0.1")
    )
    try:
        said = run_blocks([words[0], words[1], words[3], words[2]], "cluster.md", home, env)
    finally:
        with contextlib.suppress(NotFoundError):
            clusters.stop("job")
    assert "is served as a node of job by process" in said[0]
    assert said[1] == "3004.0 ['serving']\n"
    assert said[2] == "3004.0\n"
    assert said[3] == "1 node of job left; its etcd has ended; the pools stay\n"
    assert (use.language, stop.language) == ("python", "sh")
    assert (state / "engram/clusters/job.json").exists()


@pytest.mark.parametrize(
    ("heading", "kind"),
    [
        ("Functions of `engram.cluster`", None),
        ("Of the cluster", clusters.Cluster),
        ("Of an array", clusters.ClusterArray),
        ("Of a group", clusters.ClusterGroup),
    ],
)
def test_the_guide_has_each_public_name_once(heading: str, kind: type | None) -> None:
    guide = (ROOT / "docs/guide/cluster.md").read_text()
    section = re.split(r"^#+ ", guide.partition(f"### {heading}\n")[2], flags=re.MULTILINE)[0]
    named = re.findall(r"^\| `(\w+)` \| \S", section, flags=re.MULTILINE)
    if kind is None:
        found = [n for n in clusters.__all__ if not isinstance(getattr(clusters, n), type)]
    else:
        found = [name for name in vars(kind) if not name.startswith("_")]
    assert sorted(named) == sorted(found)


def test_the_manifest_for_kubernetes_fits_together() -> None:
    yaml = pytest.importorskip("yaml", reason="pyyaml is not installed")
    path = ROOT / "examples/cluster/kubernetes.yaml"
    assert "Untried" in path.read_text(encoding="utf-8")
    all_of_it = list(yaml.safe_load_all(path.read_text(encoding="utf-8")))
    services = {
        each["metadata"]["name"]: each["spec"] for each in all_of_it if each["kind"] == "Service"
    }
    sets = [each for each in all_of_it if each["kind"] == "StatefulSet"]
    assert len(services) + len(sets) == len(all_of_it) == 4
    assert {each["apiVersion"] for each in sets} == {"apps/v1"}
    for each in sets:
        spec = each["spec"]
        labels = spec["template"]["metadata"]["labels"]
        assert spec["selector"]["matchLabels"] == labels
        assert services[spec["serviceName"]]["selector"] == labels
        assert services[spec["serviceName"]]["clusterIP"] == "None"
        (container,) = spec["template"]["spec"]["containers"]
        volumes = {own["name"] for own in spec["template"]["spec"].get("volumes", [])}
        volumes |= {own["metadata"]["name"] for own in spec.get("volumeClaimTemplates", [])}
        assert {own["name"] for own in container["volumeMounts"]} == volumes
        if container["command"][0] == "engram":
            nodes = container
        else:
            version = container["image"].rpartition(":v")[2]
            native.check_etcd_version(version)
    ports = {own["port"] for own in services["engram-etcd"]["ports"]}
    words = nodes["command"]
    (etcd,) = [word.removeprefix("--etcd=") for word in words if word.startswith("--etcd=")]
    assert etcds.parse(etcd) == [f"http://engram-etcd:{port}" for port in ports]
    assert "--host=$(POD_IP)" in words
    assert [own["name"] for own in nodes["env"]] == ["POD_IP"]
    # The command line takes these words, up to the first that is meant for a pod alone.
    ended = run(
        *words[1:4], *(word for word in words[4:] if "=" in word), "--scheduler=x", "--detach"
    )
    assert "leave --detach away" in ended.err


# Errors


def test_what_cannot_be_started_is_refused_and_leaves_nothing(
    operator: Operator, state: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    pool = operator.pool(0)
    words = ("cluster", "start", "job", "--pool", pool, "--size", "64MiB", "--host", "127.0.0.1")
    kept = operator.pool(1)
    engram.create(kept, "64 MiB").close()
    for more, kind, says in [
        (("--etcd", "4"), ArgumentError, "'4' names no etcd: give auto, 3, or endpoints"),
        (("--etcd", "127.0.0.1:1"), CoordinatorError, "no etcd answers at 127.0.0.1:1"),
        (("--host", "no.such.host.invalid"), UnsupportedError, "give --host an address"),
        (("--scheduler", "tcp://h1:1", "--detach"), ArgumentError, "leave --detach away"),
        (("--scheduler", "nothing://"), ArgumentError, "such as tcp://h1:8786"),
    ]:
        ended = run(*words, *more)
        assert (ended.code, ended.out) == (kind.exit_code, ""), ended
        assert says in ended.err
        assert not pool.exists()
    ended = run(*words[:4], kept, *words[5:], "--etcd", "127.0.0.1:1")
    assert ended.code == CoordinatorError.exit_code
    engram.open(kept).close()  # it was there before
    monkeypatch.setenv("PATH", "/nowhere")
    for more in ((), ("--detach",)):
        ended = run(*words, *more)
        assert ended.code == UnsupportedError.exit_code, ended
        assert "there is no program etcd in PATH: install" in ended.err
        assert "give --etcd URL" in ended.err
    assert run("cluster", "start", "a/b", "--pool", pool).code == ArgumentError.exit_code
    for verb in (("status", "job"), ("stop", "job"), ("retire", "job", "h1")):
        ended = run("cluster", *verb)
        assert ended.code == NotFoundError.exit_code
        assert "nothing is known here of the cluster 'job'" in ended.err
        ended = run("cluster", *verb, "--etcd", "h1")
        assert ended.code == ArgumentError.exit_code
    assert not list(state.rglob("*.json"))


def test_what_can_be_no_node_pool_is_refused_before_an_etcd_is_started(
    operator: Operator, state: Path, tmp_path: Path
) -> None:
    (tmp_path / "folder/inner").mkdir(parents=True)
    (tmp_path / "file").write_text("no pool")
    pool = str(operator.pool(0))
    for where, more, kind, says in [
        (str(tmp_path / "folder"), (), FormatError, "a folder, but not a pool (it has no pool.tom"),
        (str(tmp_path / "file"), (), FormatError, "is a file, and no pool: name a pool, or a path"),
        (str(tmp_path / "file/p"), (), NotFoundError, "does not exist: make it first"),
        (str(tmp_path / "none/p"), (), NotFoundError, "does not exist: make it first"),
        (pool, ("--size", "0"), ArgumentError, "size '0' leaves no room for data"),
        (pool, ("--size", "much"), ArgumentError, "size 'much' cannot be read: give bytes"),
        (pool, ("--ttl", "1e30"), ArgumentError, "ttl 1e+30 cannot be how long a lease runs"),
        (pool, ("--ttl", "inf"), ArgumentError, "give seconds, from 1 to 86400"),
    ]:
        for end in ((), ("--detach",)):
            ended = run("cluster", "start", "job", "--pool", where, *more, *end)
            assert (ended.code, ended.out) == (kind.exit_code, ""), ended
            assert says in ended.err
    assert not list(state.rglob("*.json"))


def test_a_pool_that_another_process_is_making_is_waited_for(home: Path) -> None:
    path = home / "pool"
    engram.create(path, "64 MiB").close()
    (path / "pool.toml").rename(path / "creating.toml")
    # The other process goes on only once this one has looked.
    looked = threading.Event()

    def make() -> None:
        looked.wait(PATIENCE_S)
        (path / "creating.toml").rename(path / "pool.toml")

    def look(_: float) -> None:
        looked.set()

    maker = threading.Thread(target=make)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("engram.cluster.nodes.time.sleep", look)
        maker.start()
        check_pool(path, None)
    maker.join()
    assert looked.is_set()


@pytest.mark.parametrize("left", ["creating.toml", "destroying.toml", ""])
def test_what_is_left_of_a_pool_is_told_of_with_what_to_do(home: Path, left: str) -> None:
    path = home / "pool"
    engram.create(path, "64 MiB").close()
    if left:
        (path / "pool.toml").rename(path / left)
    else:
        (path / "pool.toml").unlink()
    with pytest.raises(EngramError) as of_engine:
        engram.open(path)
    with pytest.raises(type(of_engine.value)) as why:
        clusters.serve("job", pool=path, etcd=["127.0.0.1:1"])
    assert str(why.value).startswith(f"{of_engine.value}; or name a path where nothing is")


@pytest.mark.parametrize("bad", [0, 0.5, float("nan"), float("inf"), "15", None, True])
def test_a_lease_that_cannot_be_is_refused(bad: Any, tmp_path: Path) -> None:
    with pytest.raises(ArgumentError, match="give seconds, from 1 to 86400") as why:
        clusters.serve("job", pool=tmp_path / "pool", etcd=["127.0.0.1:1"], ttl=bad)
    assert repr(bad) in str(why.value)


@pytest.mark.parametrize("bad", [0, -1, float("nan"), float("inf"), "30", None, True])
def test_a_deadline_that_cannot_be_is_refused(bad: Any) -> None:
    with pytest.raises(ArgumentError, match="give seconds, above 0 and up to 86400") as why:
        clusters.open("job", etcd=["127.0.0.1:1"], deadline=bad)
    assert repr(bad) in str(why.value)


def test_a_second_start_says_who_serves_and_what_size_the_pool_keeps(operator: Operator) -> None:
    operator.leave(0)
    keeps = "is there already, and keeps its 64 MiB: "
    # A size is rounded up to whole extents: 67 MB would be 64 MiB, too.
    for size, says in (("64MiB", ""), ("67MB", ""), ("65MB", keeps), ("128MiB", keeps)):
        begun = operator.begin(0, "--detach", "--size", size)
        said = begun.communicate(timeout=PATIENCE_S)[0]
        found = re.search(r"served by another process of this host; process (\d+) waits; s", said)
        assert found, said
        operator.left.append(int(found[1]))
        assert said.count("\n") == 1 + bool(says)
        assert says in said


@pytest.mark.parametrize("bad", ["auto", "3", "h1,", "", "h1 h2"])
def test_verbs_that_need_an_etcd_ask_for_its_endpoints_alone(bad: str) -> None:
    for verb in (("status", "job"), ("stop", "job"), ("retire", "job", "h1")):
        ended = run("cluster", *verb, "--etcd", bad)
        assert ended.code == ArgumentError.exit_code, ended
        assert f"{bad!r} names no etcd: give its endpoints, such as h1:2379" in ended.err


def test_a_pool_of_another_cluster_is_refused(operator: Operator, state: Path) -> None:
    engram.create(operator.pool(0), size="64 MiB").close()
    (operator.pool(0) / "cluster.toml").write_text('cluster = "other"\nnode = "n1"\nport = 0\n')
    ended = run("cluster", "start", "job", "--pool", operator.pool(0))
    assert ended.code == ArgumentError.exit_code
    assert f'{operator.pool(0)} is of cluster "other", not of "job": name another pool' in ended.err
    assert not list(state.rglob("*.json"))
