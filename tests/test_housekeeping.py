"""Housekeeping: who holds what, backup and compaction, from Python and the command line."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import threading
from typing import TYPE_CHECKING

import numpy as np
import pytest

import engram
from shell import in_terminal, run

if TYPE_CHECKING:
    from pathlib import Path

_VIEWER = """
import sys, engram
pool = engram.open(sys.argv[1], mode="r")
view = pool["x"].view()
print("ready", flush=True)
sys.stdin.readline()
"""


def viewer(path: Path) -> subprocess.Popen[str]:
    """Start a process that views `x` until it hears a line."""
    child = subprocess.Popen(
        [sys.executable, "-c", _VIEWER, str(path)],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
    )
    assert child.stdout is not None
    assert child.stdout.readline() == "ready\n"
    return child


def test_stats_name_each_holder(home: Path) -> None:
    with engram.create(home / "p", size="16 MiB") as pool:
        pool["x"] = np.zeros(100_000)
        child = viewer(home / "p")
        scratch = pool.scratch(1000)
        del pool["x"]
        stats = pool.stats()
        by_pid = {lease["pid"]: lease for lease in stats["leases"]}
        assert by_pid[child.pid]["views"] == 1
        assert by_pid[child.pid]["held"] == stats["held"] == 802_816
        assert by_pid[os.getpid()]["own"]
        assert by_pid[os.getpid()]["reserved"] == stats["reserved"] == 8000
        assert {reader["pid"] for reader in stats["readers"]} >= {os.getpid()}
        assert stats["maintenance"] is None
        assert stats["catalog"]["allocated"] >= stats["catalog"]["used"] > 0
        with pytest.raises(engram.PoolFullError, match=f"pid {child.pid}"):
            pool.scratch(16 << 20, "u1")
        told = json.loads(run("stats", home / "p", "--json").out)["held"]
        pids = [lease["pid"] for lease in told["leases"]]
        assert {child.pid, os.getpid()} <= set(pids)
        seen = in_terminal("stats", home / "p")[1]
        assert "held by" in seen
        assert str(child.pid) in seen
        child.communicate("\n")
        assert pool.stats()["held"] == 0
        del scratch


def test_a_backup_is_restored_by_opening_it(home: Path) -> None:
    stop = threading.Event()
    with engram.create(home / "p", size="64 MiB") as pool:
        pool["run/T"] = np.arange(50_000.0)
        pool["run"].attrs["orbit"] = 4
        pool.create_namespace("other")["x"] = 7

        def write() -> None:
            n = 0
            while not stop.is_set():
                with pool.batch():
                    pool["pair/a"] = np.full(5000, n)
                    pool["pair/b"] = np.full(5000, n)
                n += 1

        writer = threading.Thread(target=write)
        writer.start()
        try:
            done = pool.backup(home / "copy")
        finally:
            stop.set()
            writer.join()
        assert done.skipped == ()
        assert done.realms == 2
        oid = pool["run/T"].oid
    assert engram.verify(home / "copy").counts["used"] == done.nbytes
    with engram.open(home / "copy") as copy:
        assert np.array_equal(copy["run/T"], np.arange(50_000.0))
        assert copy["run/T"].oid == oid
        assert copy["run"].attrs["orbit"] == 4
        assert copy.namespaces["other"]["x"][...] == 7
        if "pair" in copy:
            assert np.array_equal(copy["pair/a"], copy["pair/b"])
        copy["run/U"] = 1
        with pytest.raises(engram.ExistsError):
            copy.backup(home / "p")


def test_compaction_gives_back_what_was_deleted(home: Path) -> None:
    with engram.create(home / "p", size="256 MiB") as pool:
        for i in range(8):
            pool[f"large/{i}"] = np.full(2 << 20, i, "u8")
        pool["kept"] = np.arange(1000)
        del pool["large"]
        with pytest.raises(engram.BusyError, match=str(os.getpid())):
            engram.compact(home / "p")
    done = engram.compact(home / "p")
    assert done.arena[1] < done.arena[0]
    with engram.open(home / "p") as pool:
        assert np.array_equal(pool["kept"], np.arange(1000))
        assert pool.space.arena == done.arena[1]
        pool["more"] = np.zeros(4 << 20)
    assert engram.verify(home / "p")


def test_backup_and_compact_on_the_command_line(home: Path) -> None:
    with engram.create(home / "p", size="64 MiB") as pool:
        pool["x"] = np.arange(5000)
    out = run("backup", home / "p", home / "copy").out
    assert "copied 1 object" in out
    assert run("ls", home / "copy").out.split() == ["x"]
    assert run("backup", home / "p", home / "copy").code == engram.ExistsError.exit_code
    told = json.loads(run("backup", home / "p", home / "again", "--json").out)
    assert (told["objects"], told["skipped"]) == (1, [])
    with engram.open(home / "p") as pool:
        pool["y"] = np.zeros(4 << 20)
        del pool["y"]
    out = run("compact", home / "p").out
    assert "catalog: " in out
    assert "values: 34 MiB before, 16 MiB after" in out
    out = run("compact", home / "p").out
    assert out == "nothing to give back: catalog 2 MiB, values 16 MiB\n"
    ended = run("compact", home / "nope")
    assert (ended.code, "there is no pool at" in ended.err) == (10, True)
    told = json.loads(run("compact", home / "p", "--json").out)
    assert told["values"]["before"] == told["values"]["after"]
    with engram.open(home / "p", mode="r"):
        assert run("compact", home / "p").code == engram.BusyError.exit_code
