"""Many processes, by every door at once, are killed: what was acknowledged is there, and whole."""

from __future__ import annotations

import json
import signal
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import zarr

import doors_work
import engram
from doors_work import CHUNK, CHUNKS, PLACES
from engram.zarr import Store
from support import moments

_WORK = Path(doors_work.__file__)
_Said = dict[str, Any]


def started(pool: str, who: int, place: int) -> subprocess.Popen[str]:
    """Start a worker."""
    command = [sys.executable, str(_WORK), pool, str(who), str(place)]
    return subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)


def said_by(worker: subprocess.Popen[str]) -> list[_Said]:
    """Kill a worker; give what it said, whole lines alone."""
    worker.send_signal(signal.SIGKILL)
    out, err = worker.communicate()
    assert worker.returncode == -signal.SIGKILL, err
    return [json.loads(line) for line in out.splitlines(keepends=True) if line.endswith("\n")]


class Model:
    """What may be in the pool, by what the workers said."""

    def __init__(self) -> None:
        self.appended: dict[tuple[int, int], int] = {}
        self.claimed: dict[int, int] = {}
        self.tried: set[tuple[int, int]] = set()
        # Of each line and chunk, in the order of one place's work: what was last acknowledged, and
        # what was begun after it.
        self.lines: dict[int, tuple[int, set[int]]] = {}
        self.chunks: dict[int, tuple[int, set[int]]] = {}
        self.counts: dict[str, int] = {}

    def hear(self, said: list[_Said]) -> None:
        """Take in what a worker said."""
        for each in said:
            kind, done = each["kind"], "done" in each
            if done:
                self.counts[kind] = self.counts.get(kind, 0) + 1
            if kind in ("region", "chunks"):
                known = self.lines if kind == "region" else self.chunks
                at, stamp = each["line" if kind == "region" else "chunk"], each["stamp"]
                last, begun = known.get(at, (0, set()))
                known[at] = (stamp, set()) if done else (last, begun | {stamp})
            elif kind == "append" and done:
                self.appended[each["who"], each["step"]] = each["rows"]
            elif kind == "claim":
                self.tried.add((each["number"], each["who"]))
                if done:
                    assert each["number"] not in self.claimed, "only one takes it"
                    self.claimed[each["number"]] = each["who"]

    def check(self, pool: engram.Pool) -> None:
        """Check the pool while nobody works."""
        doors_work.check(pool)
        found = pool["table"].to_pandas().groupby(["who", "step"])["n"].count().to_dict()
        for key, rows in self.appended.items():
            assert found.get(key) == rows, f"the append {key} was acknowledged"
        for path, parts in (("field/piece", self.lines), ("field/chunked", self.lines)):
            for at, (last, begun) in parts.items():
                values = set(pool[path][at].astype("i8").tolist())
                assert values <= {last} | begun, f"line {at} of {path}"
        chunks = zarr.open_group(Store(pool["store"], read_only=True), mode="r")["a"][...].reshape(
            CHUNKS, CHUNK
        )
        for at, (last, begun) in self.chunks.items():
            assert set(chunks[at].tolist()) <= {last} | begun, f"chunk {at}"
        claims = {int(name): int(pool["claims"][name][...]) for name in pool["claims"]}
        assert self.claimed.items() <= claims.items()
        assert claims.items() <= self.tried


def test_killed_processes_lose_nothing_by_any_door(pool: engram.Pool) -> None:
    doors_work.prepare(pool)
    model = Model()
    kinds = {"append", "region", "chunks", "claim", "move", "compact", "look", "watch"}
    who = 0
    for delay in moments([0.2, 0.5, 0.9], lambda: model.counts.keys() >= kinds):
        workers = []
        for place in range(PLACES):
            who += 1
            workers.append(started(pool.path, who, place))
        begin = time.monotonic()
        while time.monotonic() < begin + 2 + delay:
            with pool.snapshot() as moment:
                doors_work.check(moment)
        for worker in workers:
            model.hear(said_by(worker))
        model.check(pool)
    path = pool.path
    pool.close()
    engram.verify(path).check()
    engram.compact(path)
    engram.verify(path).check()
    with engram.open(path, "r") as again:
        model.check(again)
