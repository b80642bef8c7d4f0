"""Jobs of a Slurm with two nodes, each with a host name, a memory and a network of its own."""

from __future__ import annotations

import contextlib
import os
import pwd
import shlex
import signal
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

import engram
import own_slurm
from own_slurm import Cluster, wait_for

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

ALICE = own_slurm.USERS[0]
BOTH = ("--nodes=2", "--ntasks-per-node=1")
NODES = ("n1", "n2")
MANY = "for n in $(seq 4000); do echo $n >/p/out/$n; done"
FEW = 40
STEPS = ("measure", "begin", "end", "drop")


@pytest.fixture(scope="module")
def slurm() -> Iterator[Cluster]:
    if why := own_slurm.why_not():
        pytest.skip(why)
    with Cluster(nodes=2) as made:
        yield made


@pytest.fixture(autouse=True)
def _nothing_is_left(slurm: Cluster) -> Iterator[None]:
    """No node is drained by any test, and no stage is held by the next."""
    yield
    for step in STEPS:
        slurm.release(step)
    slurm.run("scancel", "--state=PENDING,RUNNING")
    wait_for("nodes idle", lambda: slurm.states() == {"idle"})


def engram_line(*words: str) -> str:
    """Return a call of `engram`, for a job or for a node."""
    return shlex.join([own_slurm.python(), "-P", "-m", "engram", *words])


def on_each(script: str) -> str:
    """Return a line of a job that runs this on each of its nodes, where the pool is /p."""
    run = engram_line("run", "-p", "POOL=/p", "--", "sh", "-ec", script)
    return "srun " + run.replace("POOL", "$ENGRAM_POOL", 1)


def there(slurm: Cluster, node: str, path: Path) -> bool:
    """Whether a node has a file or folder."""
    return slurm.on(node, "sh", "-c", f"test -e {shlex.quote(str(path))} && echo there") != ""


def gone(slurm: Cluster, job: str) -> None:
    """Wait until no node has anything of a job's pool, and nothing is remembered of it."""
    folder = slurm.job_folder(job)
    wait_for("gone", lambda: not any(there(slurm, node, folder) for node in NODES))
    wait_for("forgotten", lambda: not slurm.state_of(job))


class Job:
    """A job of two nodes, whose tasks each write a line of their own."""

    def __init__(self, slurm: Cluster, name: str, *more: str, work: str = "true") -> None:
        self.slurm = slurm
        self.folder = slurm.tree(f"{name}-in", {"numbers": "3\n1\n2\n"})
        self.results = slurm.home(ALICE) / f"{name}-out"
        self.id = slurm.submit(
            [
                "pool=engram capacity=32M",
                f"stage_in source={self.folder} dest=in",
                f"stage_out source=out dest={self.results}",
            ],
            on_each(f"mkdir -p /p/out && hostname | cat - /p/in/numbers >/p/out/said && {work}"),
            *BOTH,
            *more,
        )
        self.pool = slurm.job_folder(self.id) / "pool"

    def brought(self) -> set[str]:
        """Return the nodes whose results are outside, as their manifests say."""
        found = set()
        for manifest in self.results.glob("*/MANIFEST.engram"):
            node = manifest.parent.name
            assert (manifest.parent / "said").read_text() == f"{node}\n3\n1\n2\n"
            assert engram.stage.verify(manifest.parent).troubles == ()
            found.add(node)
        return found

    def wait_until_brought(self) -> None:
        """Wait until all is outside, and nothing is left on a node."""
        self.slurm.wait(self.id, "COMPLETED", seconds=200)
        gone(self.slurm, self.id)
        assert self.brought() == set(NODES), self.slurm.output(self.id)


def words_on(slurm: Cluster, node: str) -> dict[int, list[str]]:
    """Return the command lines of this cluster's processes on a node."""
    pid = (slurm.folder / f"{node}.namespaces").read_text().strip()
    home = Path(f"/proc/{pid}/ns/uts").readlink()
    found = {}
    for one in own_slurm.processes_of(slurm.folder.name):
        try:
            words = Path(f"/proc/{one}/cmdline").read_bytes().decode().split("\0")
            is_there = Path(f"/proc/{one}/ns/uts").readlink() == home
        except OSError:
            continue
        if is_there:
            found[one] = words[:-1]
    return found


def steps_on(slurm: Cluster, node: str, step: str) -> list[int]:
    """Return the processes on a node that wait before a step of the helper."""
    held = f"{slurm.folder}/conf/held"
    there = words_on(slurm, node)
    return [pid for pid, words in there.items() if held in words and words[-1] == step]


def kill_work_on(slurm: Cluster, node: str) -> None:
    """Kill the helper of a node, and the stage that it has begun."""
    for pid, words in words_on(slurm, node).items():
        if {"engram", "engram.slurm"} & set(words):
            with contextlib.suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)


def kill_on(slurm: Cluster, node: str, step: str, others: Sequence[str] = NODES) -> None:
    """Kill the helper of one node, and let those of the others go on."""
    for each in others:
        wait_for(f"{step} at work on {each}", partial(steps_on, slurm, each, step))
    for pid in steps_on(slurm, node, step):
        os.kill(pid, signal.SIGKILL)
    slurm.release(step)


def test_each_node_is_a_machine_of_its_own(slurm: Cluster) -> None:
    says = "hostname; readlink /proc/self/ns/uts /proc/self/ns/mnt /proc/self/ns/net"
    told = {node: slurm.on(node, "sh", "-c", says).split() for node in NODES}
    assert {node: said[0] for node, said in told.items()} == {node: node for node in NODES}
    spaces = slice(1, None if slurm.has_networks else 3)
    assert not set(told["n1"][spaces]) & set(told["n2"][spaces])
    job = slurm.submit([], "srun hostname", *BOTH)
    slurm.wait(job, "COMPLETED")
    assert sorted(slurm.output(job).split()) == list(NODES)


def test_each_node_of_a_job_has_its_pool(slurm: Cluster) -> None:
    job = Job(slurm, "two")
    job.wait_until_brought()
    assert slurm.states() == {"idle"}


def test_a_node_whose_stage_in_fails_is_told(slurm: Cluster) -> None:
    slurm.hold("measure")
    job = Job(slurm, "hidden")
    slurm.on("n2", "mount", "-t", "tmpfs", "engram", str(job.folder.parent))
    slurm.release("measure")
    wait_for("said", lambda: "pre_run: " in str(slurm.facts(job.id)))
    said = str(slurm.facts(job.id))
    assert f"pre_run: on n2: {job.folder}: No such file or directory" in said
    assert "on n1" not in said
    slurm.on("n2", "umount", str(job.folder.parent))
    gone(slurm, job.id)


def test_all_nodes_whose_stage_in_fails_are_told(slurm: Cluster) -> None:
    slurm.hold("begin")
    job = Job(slurm, "both-hidden")
    slurm.wait_for_burst(job.id, "pre-run")
    job.folder.rename(job.folder.parent / "elsewhere")
    slurm.release("begin")
    wait_for("said", lambda: "pre_run: " in str(slurm.facts(job.id)))
    why = f"{job.folder}: No such file or directory"
    assert f"pre_run: on n1: {why}; on n2: {why}" in str(slurm.facts(job.id))
    gone(slurm, job.id)


def test_a_persistent_pool_lies_where_it_was_made(slurm: Cluster) -> None:
    folder = slurm.tree("mesh", {"mesh": "m" * 1000})
    place = slurm.base / f"engram-{pwd.getpwnam(ALICE).pw_uid}-mesh"
    made = slurm.submit(
        ["create_persistent pool=engram name=mesh capacity=32M", f"stage_in source={folder}"],
        on_each("test -s /p/mesh/mesh && hostname >>/p/log"),
        "--nodelist=n2",
    )
    slurm.wait(made, "COMPLETED")
    slurm.wait_until_torn_down(made)
    assert [there(slurm, node, place) for node in NODES] == [False, True]
    asks = f"{engram_line('stage', 'nodes', 'mesh')}; exit $?"
    assert slurm.run("sh", "-c", asks, user=ALICE) == "n2\n"
    used = slurm.submit(
        ["use_persistent name=mesh", f"stage_in source={folder}"],
        on_each("hostname >>/p/log") + f"\n{engram_line('job', '--drop', 'mesh', '--force')}",
    )
    slurm.wait(used, "FAILED")
    assert "is Slurm's: a job with the directive" in slurm.output(used)
    assert slurm.facts(used)["NodeList"] == "n2"
    assert there(slurm, "n2", place / "pool")
    results = slurm.home(ALICE) / "log"
    ends = [
        "use_persistent name=mesh",
        f"stage_out source=log dest={results}",
        "destroy_persistent name=mesh",
    ]
    last = slurm.submit(ends, on_each("hostname >>/p/log"))
    slurm.wait(last, "COMPLETED")
    wait_for("destroyed", lambda: not there(slurm, "n2", place))
    assert results.read_text() == "n2\n" * 3
    assert "no persistent pool is known" in slurm.run("sh", "-c", asks, user=ALICE)


def test_a_persistent_pool_may_lie_on_both_nodes(slurm: Cluster) -> None:
    made = slurm.submit(
        ["create_persistent pool=engram name=grid capacity=32M"],
        on_each("hostname >/p/log"),
        *BOTH,
    )
    slurm.wait(made, "COMPLETED")
    slurm.wait_until_torn_down(made)
    asks = f"{engram_line('stage', 'nodes', 'grid')}; exit $?"
    assert slurm.run("sh", "-c", asks, user=ALICE) == "n1,n2\n"
    assert " n1,n2 " in slurm.bbstat()
    results = slurm.home(ALICE) / "logs"
    ends = [
        "use_persistent name=grid",
        f"stage_out source=log dest={results}",
        "destroy_persistent name=grid",
    ]
    last = slurm.submit(ends, on_each("hostname >>/p/log"), *BOTH)
    slurm.wait(last, "COMPLETED")
    place = slurm.base / f"engram-{pwd.getpwnam(ALICE).pw_uid}-grid"
    wait_for("destroyed", lambda: not any(there(slurm, node, place) for node in NODES))
    assert {path.name: path.read_text() for path in results.iterdir()} == {
        node: f"{node}\n" * 2 for node in NODES
    }


def test_a_helper_that_is_killed_on_one_node_is_gone_on_with(slurm: Cluster) -> None:
    slurm.hold("begin")
    job = Job(slurm, "killed-in")
    kill_on(slurm, "n2", "begin")
    wait_for("said", lambda: "pre_run: on n2: Killed" in str(slurm.facts(job.id)))
    slurm.wait_until_torn_down(job.id)
    slurm.run("scontrol", "release", job.id, user=ALICE)
    job.wait_until_brought()


@pytest.mark.parametrize("when", ["before", "amid"])
def test_results_of_a_node_whose_helper_is_killed_are_left_there(slurm: Cluster, when: str) -> None:
    slurm.hold("end")
    job = Job(slurm, f"killed-{when}", work=MANY if when == "amid" else "true")
    if when == "before":
        kill_on(slurm, "n2", "end")
    else:
        slurm.release("end")
        wait_for("copies", lambda: len(list(job.results.glob("n2/*"))) > FEW)
        kill_work_on(slurm, "n2")
        assert not (job.results / "n2/MANIFEST.engram").exists(), "it was too late"
    wait_for("left", lambda: slurm.state_of(job.id).get("stage") == "left")
    text = slurm.state_of(job.id)["text"]
    assert "on n2: Killed" in text
    assert "on n1: " not in text
    assert " left " in slurm.bbstat()
    slurm.wait(job.id, "COMPLETED")
    assert job.brought() == {"n1"}
    assert all(there(slurm, node, job.pool) for node in NODES), "none of it is dropped"
    # As the guide says.
    out = engram_line("stage", "out", str(job.pool), "out", "--to", f"{job.results}/n2")
    said = slurm.run("srun", "--nodelist=n2", "sh", "-c", f"{out}; exit $?", user=ALICE)
    assert job.brought() == set(NODES), said
    folder = str(slurm.job_folder(job.id))
    slurm.run("srun", "--nodelist=n1,n2", "--ntasks-per-node=1", "rm", "-r", folder, user=ALICE)
    assert not any(there(slurm, node, slurm.job_folder(job.id)) for node in NODES)
