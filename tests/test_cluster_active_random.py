"""Several processes call, move and read objects of two nodes at once, while servers are killed."""

from __future__ import annotations

import json
import os
import random
import signal
import subprocess
import sys
import time
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import pytest

import engram
from cluster.rig import end, rigged
from engram import cluster as clusters
from engram.active.errors import WorkerDiedError
from engram.errors import BusyError, EngramError
from test_cluster_active import Block

if TYPE_CHECKING:
    from collections.abc import Iterator

    from cluster.rig import Rig

OBJECTS = 4
CLIENTS = 3
PATIENCE = 120  # seconds for what a killed server keeps from being done


@pytest.fixture
def rig(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Rig]:
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path / "state"))
    tests = str(Path(__file__).parent)
    monkeypatch.setenv("PYTHONPATH", os.pathsep.join([tests, os.environ.get("PYTHONPATH", "")]))
    with rigged(tmp_path, secure=True) as rig:
        rig.serve(0)
        rig.serve(1)
        yield rig


def chain_of(chance: random.Random) -> list[int]:
    """Choose objects of which each calls the next."""
    return [chance.randrange(OBJECTS) for _ in range(chance.randrange(5))]


def client(etcd: str, pool: str, tls: str, seed: str, seconds: str) -> None:
    """Do what comes for so many seconds; say what was surely done, and what perhaps.

    A client whose moves met killed servers only goes on until one got through, so a machine
    that starts servers slowly does not leave moves out.
    """
    chance = random.Random(int(seed))  # noqa: S311 - a seed decides
    c = clusters.open("job", etcd=etcd.split(","), pool=pool, tls=tls)
    done: list[int] = [0] * OBJECTS
    perhaps: list[int] = [0] * OBJECTS
    moves, odd = 0, []
    until = time.monotonic() + float(seconds)
    while (now := time.monotonic()) < until or (moves == 0 and now < until + PATIENCE):
        n = chance.randrange(OBJECTS)
        step = chance.choice(["add", "add", "add", "read", "move", "look", "chain"])
        try:
            block = Block.get_by_alias(f"b{n}", pool=c)
            if step == "add":
                block.add(0)
                done[n] += 1
            elif step == "read":
                assert block.count >= 0
                assert block.mean() == float(n)
            elif step == "chain":
                others = [Block.get_by_alias(f"b{each}", pool=c) for each in chain_of(chance)]
                assert len(block.through(others)) == 1 + len(others)
            elif step == "move":
                block.move(chance.choice(c.members))
                moves += 1
            else:
                assert block.get_properties()["label"] == f"b{n}"
                assert block.get_aliases() == {f"b{n}"}
        except (BusyError, WorkerDiedError):  # away, about to move, changed meanwhile, killed
            if step == "add":
                perhaps[n] += 1
        except EngramError as error:
            odd.append(f"{step} of b{n}: {type(error).__name__}: {error}")
    print(json.dumps([done, perhaps, moves, odd]))  # noqa: T201 - the test reads it
    c.close()


def begun(rig: Rig, number: int, seed: int, seconds: float) -> subprocess.Popen[str]:
    pool = rig.folder / f"node{number}"
    words = [",".join(rig.etcd), str(pool), rig.tls, str(seed), str(seconds)]
    return subprocess.Popen(
        [sys.executable, __file__, *words],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )


def ended(process: subprocess.Popen[str]) -> Any:
    out, err = process.communicate(timeout=240)
    assert process.returncode == 0, err
    return json.loads(out.splitlines()[-1])


@pytest.mark.parametrize("kills", [0, 3])
def test_each_call_runs_once_at_most_and_each_object_has_one_home(rig: Rig, kills: int) -> None:
    seed = int(os.environ.get("SEED", random.SystemRandom().randrange(1 << 30)))
    seconds = float(os.environ.get("ENGRAM_RANDOM_SECONDS", "6"))
    chance = random.Random(seed)  # noqa: S311 - a seed decides
    c = rig.open(0)
    for n in range(OBJECTS):
        member = chance.choice(c.members)
        Block(np.full(16, float(n)), label=f"b{n}").make_persistent(f"b{n}", backend_id=member)
    clients = [begun(rig, n % 2, seed + n, seconds) for n in range(CLIENTS)]
    for _ in range(kills):
        time.sleep(seconds / (kills + 1))
        victim = chance.choice(rig.processes)
        number = rig.processes.index(victim) % 2
        victim.send_signal(signal.SIGKILL)
        end(victim)
        rig.processes[rig.processes.index(victim)] = rig.serve(number)
        rig.processes.pop()
    said = [ended(each) for each in clients]
    assert [odd for *_, odd in said if odd] == [], f"SEED={seed}"
    assert all(moves > 0 for _, _, moves, _ in said), f"SEED={seed}: {said}"
    for n in range(OBJECTS):
        sure = sum(each[0][n] for each in said)
        perhaps = sum(each[1][n] for each in said)
        block = Block.get_by_alias(f"b{n}", pool=c)
        assert sure <= block.count <= sure + perhaps, f"SEED={seed}: b{n}"
        assert block.mean() == float(n)
        # There is one: on each node the alias leads to the same object.
        places = set()
        for member in c.members:
            home = c.backend(member.node).home
            try:
                found = Block._handle(home, home.by_alias(f"b{n}"))
            except engram.NotFoundError:
                continue
            places.add((found._home.key, found._gid))
        assert len(places) == 1, f"SEED={seed}: b{n} is at {places}"


if __name__ == "__main__":
    client(*sys.argv[1:])
