"""What is left of clusters that are closed, of calls that failed, and of manifests that lie."""

from __future__ import annotations

import contextlib
import json
import os
import pickle
import signal
import subprocess
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import pytest

import engram
from cluster.etcd import Etcd, why_not
from cluster.rig import Rig, rigged, wait_for
from engram import cluster as clusters
from engram.cluster.calling import FAILED, Ask
from engram.cluster.running import Runner
from engram.cluster.scratch import Scratch

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

pytestmark = pytest.mark.usefixtures("own_state")


@pytest.fixture
def own_state(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path / "state"))


@pytest.fixture
def rig(home: Path) -> Iterator[Rig]:
    with rigged(home) as rig:
        yield rig


def sockets() -> int:
    """Count the sockets that this process has open."""

    def is_socket(number: str) -> bool:
        try:
            return os.readlink(f"/proc/self/fd/{number}").startswith("socket:")  # noqa: PTH115
        except OSError:
            return False

    return sum(map(is_socket, os.listdir("/proc/self/fd")))  # noqa: PTH208 - as text


def threads() -> list[str]:
    """Give the names of the threads of this process that are the engine's."""
    names = []
    for task in Path("/proc/self/task").iterdir():
        try:
            names.append((task / "comm").read_text().strip())
        except OSError:
            continue
    caretaker = "engram-caretaker"[:15]  # it is the process's
    return sorted(name for name in names if name.startswith("engram") and name != caretaker)


def indexes() -> set[Path]:
    """Give the folders of queries' indexes."""
    return set(Path("/dev/shm").glob("engram-scratch-*"))


def test_a_cluster_that_is_closed_leaves_no_connection_thread_or_folder(rig: Rig) -> None:
    rig.serve(0)
    rig.serve(1)
    before = sockets(), threads(), indexes()
    cluster = engram.cluster.open("job", etcd=rig.etcd, pool=rig.folder / "node0")
    kept = cluster.put("T", np.arange(10.0), parts=(2,), attrs={"n": 1})
    group = cluster.create_group("g", spread="hash")
    for n in range(8):
        group[f"x{n}"] = np.arange(n)
    assert cluster.query("n == 1").paths() == ["T"]
    assert kept[...].sum() == 45
    assert sockets() > before[0]
    assert indexes() > before[2]
    cluster.close()
    # Clusters of other tests may be open, and change what they have.
    wait_for(lambda: sockets() <= before[0] and len(threads()) <= len(before[1]))
    wait_for(lambda: indexes() <= before[2])
    with pytest.raises(engram.ArgumentError, match="closed"):
        kept[...]


def test_what_a_killed_process_left_goes_with_the_next() -> None:
    make = "from engram.cluster.scratch import Scratch; s = Scratch('16 MiB'); print(s.pool.path)"
    wait = "import signal; print(flush=True); signal.pause()"
    command = [sys.executable, "-c", f"{make}; {wait}"]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as killed:
        assert killed.stdout is not None
        left = Path(killed.stdout.readline().strip()).parent
        with Scratch("16 MiB"):
            assert left.is_dir()  # its process lives
        killed.kill()
    with Scratch("16 MiB") as own:
        assert not left.exists()
        folder = Path(own.pool.path).parent
        child = os.fork()
        if child == 0:
            own._remove()
            os._exit(0)
        os.waitpid(child, 0)
        assert folder.is_dir()
    assert not folder.exists()


def test_a_scratch_folder_without_descriptors_is_an_error_and_leaves_nothing(
    tmp_path: Path,
) -> None:
    code = (
        "import os, resource, sys\n"
        "from pathlib import Path\n"
        "from engram.cluster import scratch\n"
        "soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)\n"
        "last = os.open(os.devnull, os.O_RDONLY)  # all numbers below are taken\n"
        "resource.setrlimit(resource.RLIMIT_NOFILE, (last + 1, hard))\n"
        "try:\n"
        "    scratch._locked(Path(sys.argv[1]))\n"
        "except OSError as error:\n"
        "    print(error.strerror)\n"
    )
    command = [sys.executable, "-c", code, str(tmp_path)]
    patience_s = 60  # it made folders without an end
    said = subprocess.run(
        command, stdout=subprocess.PIPE, text=True, check=True, timeout=patience_s
    ).stdout
    assert said == "Too many open files\n"
    assert list(tmp_path.glob("engram-scratch-*")) == []


def test_a_call_that_fails_at_once_is_kept_until_its_caller_has_heard(home: Path) -> None:
    engram.create(home / "pool", "16 MiB").close()
    runner = Runner(lambda *_: None, (), home / "pool", 1)

    def asks(verb: str, content: Any, ended: list[str]) -> bytes:
        ask = Ask(verb, "default", 0, "", pickle.dumps(content))._replace(ended=ended)
        return pickle.dumps(tuple(ask))

    try:
        for number in ("one", "one", "two"):  # what is asked again runs once
            answer = runner("POST", number, asks("delete_alias", ("none",), []))
            assert isinstance(answer, bytes)
            how, (text, _) = pickle.loads(answer)
            assert how == FAILED
            assert "AliasNotFoundError" in text
        assert set(runner._calls) == set(runner._ended) == {"one", "two"}
        runner("POST", "three", asks("by_alias", ("none",), ["one"]))
        assert set(runner._calls) == set(runner._ended) == {"two"}
    finally:
        runner.end()


@pytest.mark.parametrize("here", [True, False])
def test_a_part_that_is_shorter_than_its_manifest_says_is_corrupt(rig: Rig, *, here: bool) -> None:
    rig.serve(0)
    cluster = rig.open(0 if here else None)
    cluster.put("T", np.arange(10.0))
    text, _ = cluster._native.look_up("T") or ("", 0)
    manifest = json.loads(text)
    manifest["shape"] = [20]
    manifest["parts"][0]["n"] = [20]
    draft = cluster._native.draft(["T"])
    cluster._native.publish(draft, [json.dumps(manifest)])
    for box in (np.s_[...], np.s_[15:], np.s_[12]):
        with pytest.raises(engram.EngramError, match="T"):
            cluster["T"][box]
    problems = "\n".join(map(str, cluster.verify().problems))
    assert "T" in problems


class Alone:
    """A communicator of one rank, which does something before a collective operation."""

    def __init__(self) -> None:
        self.before: dict[int, Callable[[], None]] = {}
        self.asked = 0

    def _next(self, given: Any) -> Any:
        self.before.get(self.asked, lambda: None)()
        self.asked += 1
        return given

    def Get_rank(self) -> int:  # noqa: N802 - MPI's own name
        return 0

    def bcast(self, obj: Any, root: int = 0) -> Any:  # noqa: ARG002
        return self._next(obj)

    def scatter(self, sendobj: Any, root: int = 0) -> Any:  # noqa: ARG002
        return self._next(sendobj[0])

    def gather(self, sendobj: Any, root: int = 0) -> list[Any]:  # noqa: ARG002
        return [self._next(sendobj)]

    def allgather(self, sendobj: Any) -> list[Any]:
        return [self._next(sendobj)]


@pytest.mark.parametrize("step", range(2, 9))
def test_ranks_whose_etcd_stops_while_they_publish_publish_all_or_nothing(
    home: Path, step: int
) -> None:
    if why := why_not():
        pytest.skip(why)
    with contextlib.ExitStack() as last:
        etcd = last.enter_context(Etcd.alone())
        endpoints = [each.removeprefix("http://") for each in etcd.endpoints]
        rig = Rig(endpoints, home, last)
        rig.serve(0, kept=0.1)
        pool = home / "node0"
        cluster = last.enter_context(clusters.open("job", etcd=endpoints, pool=pool, deadline=1))
        reader = rig.open()
        comm = Alone()
        decides = etcd.running()[0].process
        assert decides is not None
        met: list[type] = []
        last.callback(decides.signal, signal.SIGCONT)
        try:
            with cluster.together(comm) as ranks:
                for name in "AB":
                    ranks.put(name, np.arange(5.0))
                comm.before[comm.asked + step] = lambda: decides.signal(signal.SIGSTOP)
        except engram.CoordinatorError:
            met.append(engram.CoordinatorError)
        decides.signal(signal.SIGCONT)
        assert comm.asked > step
        # Once nothing of it is on its way, it is there whole, or its parts are given back.
        wait_for(lambda: cluster.verify().problems == [])
        names = reader.names()
        assert names in ([], ["A", "B"])
        if not met:
            assert names
        for name in names:
            np.testing.assert_array_equal(reader[name][...], np.arange(5.0))
        with cluster.together(Alone()) as ranks:
            ranks.put("A", np.ones(5))
        assert reader["A"][...].sum() == 5
