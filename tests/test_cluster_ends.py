"""What is left of clusters that are closed, of calls that failed, and of manifests that lie."""

from __future__ import annotations

import json
import os
import pickle
import subprocess
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import pytest

import engram
from cluster.rig import Rig, rigged, wait_for
from engram.cluster.calling import FAILED, Ask
from engram.cluster.running import Runner
from engram.cluster.scratch import Scratch

if TYPE_CHECKING:
    from collections.abc import Iterator

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
    wait_for(lambda: (sockets(), threads(), indexes()) == before)
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
