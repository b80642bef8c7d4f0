"""Exports to HDF5 that fail: said by file and array, nothing left, and HDF5's library unharmed."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import tracemalloc
from typing import TYPE_CHECKING, Any

import h5py
import numpy as np
import pytest

import engram
from engram.formats.blocks import BLOCK_BYTES
from support import TEXT, in_child

if TYPE_CHECKING:
    from pathlib import Path

    from engram.formats import Progress

# A pool of groups with arrays, strings and attributes: about 5 MB of a file.
FILL = """
import sys, os, resource, numpy as np, engram
def fill(pool):
    rng = np.random.default_rng(1)
    for n in range(20):
        group = pool.create_group(f"g{n}")
        group["big"] = rng.random(30_000)
        group["words"] = np.array([f"w{k}" for k in range(500)], np.dtypes.StringDType())
        for k in range(20):
            group.attrs[f"a{k}"] = np.arange(50)
def tried(pool, target):
    try:
        engram.export_file(pool, target)
    except engram.EngramError as error:
        return str(error)
    return "written"
"""

LIMITED = (
    FILL
    + """
with engram.create(sys.argv[1], size="64 MiB", force=True) as pool:
    fill(pool)
    limit = int(sys.argv[3])
    soft, hard = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (limit, hard))
    said = tried(pool, sys.argv[2])
    resource.setrlimit(resource.RLIMIT_FSIZE, (soft, hard))
    print(said)
    print(os.listdir(os.path.dirname(sys.argv[2])))
    print(tried(pool, sys.argv[2]))
    pool.close()
with __import__("h5py").File(sys.argv[2]) as file:
    print(len(file))
"""
)


@pytest.mark.parametrize("limit", [0, 1, 100, 2000, 100_000, 1_000_000, 5_000_000])
def test_a_medium_that_is_full_leaves_nothing_and_the_library_whole(
    home: Path, tmp_path: Path, limit: int
) -> None:
    # A child, so that what HDF5 does when its process ends is seen too.
    said = in_child(LIMITED, home / "pool", tmp_path / "x.h5", limit).splitlines()
    assert "x.h5: /g" in said[0]
    assert "cannot be written: File too large. Nothing is left of it" in said[0]
    assert said[1:] == ["[]", "written", "20"]


def test_what_fails_on_a_full_filesystem_says_so(
    pool: engram.Pool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    pool["v"] = np.arange(100_000)
    real, written = os.pwrite, [0]

    def full(file: int, data: Any, at: int) -> int:
        written[0] += len(data)
        if written[0] > 500_000:
            raise OSError(28, "No space left on device")
        return real(file, data, at)

    monkeypatch.setattr(os, "pwrite", full)
    with pytest.raises(engram.PoolFullError, match=r"x\.h5: /v: .*No space left on device"):
        engram.export_file(pool, tmp_path / "x.h5")
    monkeypatch.undo()
    assert not list(tmp_path.iterdir())
    assert not h5py.h5f.get_obj_count(h5py.h5f.OBJ_ALL, h5py.h5f.OBJ_FILE)


def test_a_full_filesystem_leaves_the_file_that_was_there(
    pool: engram.Pool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    pool["v"] = np.arange(10)
    engram.export_file(pool, tmp_path / "x.h5")
    before = (tmp_path / "x.h5").read_bytes()

    def full(*_: object) -> int:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(os, "pwrite", full)
    with pytest.raises(engram.EngramError, match="No space"):
        engram.export_file(pool, tmp_path / "x.h5", overwrite=True)
    assert [p.name for p in tmp_path.iterdir()] == ["x.h5"]
    assert (tmp_path / "x.h5").read_bytes() == before


def test_ctrl_c_while_a_piece_is_written_is_raised_after_the_file_is_closed(
    pool: engram.Pool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    pool["v"] = np.arange(100_000)
    real = os.pwrite

    def interrupted(file: int, data: Any, at: int) -> int:
        if len(data) > 500_000:
            raise KeyboardInterrupt
        return real(file, data, at)

    monkeypatch.setattr(os, "pwrite", interrupted)
    with pytest.raises(KeyboardInterrupt):
        engram.export_file(pool, tmp_path / "x.h5")
    assert not list(tmp_path.iterdir())
    assert not h5py.h5f.get_obj_count(h5py.h5f.OBJ_ALL, h5py.h5f.OBJ_FILE)


def test_an_error_of_the_callers_progress_leaves_nothing(pool: engram.Pool, tmp_path: Path) -> None:
    pool["v"] = np.arange(100)

    def fail(progress: Progress) -> None:
        raise ZeroDivisionError(progress.path)

    with pytest.raises((ZeroDivisionError, engram.EngramError), match="/v"):
        engram.export_file(pool, tmp_path / "x.h5", progress=fail)
    assert not list(tmp_path.iterdir())
    assert not h5py.h5f.get_obj_count(h5py.h5f.OBJ_ALL, h5py.h5f.OBJ_FILE)


KILLED = (
    FILL
    + """
with engram.create(sys.argv[1], size="64 MiB", force=True) as pool:
    fill(pool)
    def stop(progress):
        if progress.path == "/g9/big":
            print("writing", flush=True)
            sys.stdin.read()
    engram.export_file(pool, sys.argv[2], progress=stop)
"""
)


def test_a_process_killed_while_writing_leaves_a_hidden_file_at_most(
    home: Path, tmp_path: Path
) -> None:
    child = subprocess.Popen(
        [sys.executable, "-c", KILLED, home / "pool", tmp_path / "x.h5"],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
    )
    assert child.stdout is not None
    assert child.stdin is not None
    assert child.stdout.readline() == "writing\n"
    child.send_signal(signal.SIGKILL)
    assert child.wait() == -signal.SIGKILL
    child.stdout.close()
    child.stdin.close()
    left = [p.name for p in tmp_path.iterdir()]
    assert len(left) == 1
    assert left[0].startswith(".engram-")
    assert left[0].endswith(".h5")


def test_a_large_array_is_written_from_the_pool_in_bounded_pieces(
    pool: engram.Pool, tmp_path: Path
) -> None:
    count = 6 << 20
    data = np.arange(count, dtype="f8")
    for name in ("contiguous", "chunked"):
        with h5py.File(tmp_path / "o.h5", "w") as file:
            chunks = (1 << 18,) if name == "chunked" else None
            file.create_dataset("v", data=data, chunks=chunks)
        group = pool.create_group(name)
        engram.import_file(tmp_path / "o.h5", group)
        seen: list[Progress] = []
        tracemalloc.start()
        try:
            engram.export_file(group, tmp_path / f"{name}.h5", progress=seen.append)
            peak = tracemalloc.get_traced_memory()[1]
        finally:
            tracemalloc.stop()
        assert peak < BLOCK_BYTES // 4
        assert sorted({p.done for p in seen} - {0}) == [16 << 20, 32 << 20, 48 << 20]
        assert {p.total for p in seen} == {count * 8}
        with h5py.File(tmp_path / f"{name}.h5") as file:
            assert np.array_equal(file["v"][...], data)


RESIDENT = """
import sys, threading, numpy as np, engram
def anonymous():
    with open("/proc/self/status") as status:
        return next(int(line.split()[1]) for line in status if line.startswith("RssAnon")) >> 10
with engram.create(sys.argv[1], size="200 MiB", force=True) as pool:
    with pool.allocate("v", shape=(128, 1 << 17), dtype="f8") as memory:
        memory[...] = np.arange(1 << 17)
    small = pool.create_group("small")
    small["v"] = 1
    engram.export_file(small, sys.argv[2] + ".small.h5")
    before, most = anonymous(), []
    engram.export_file(pool, sys.argv[2], progress=lambda _: most.append(anonymous()))
    print(max(most) - before)
"""


def test_an_export_takes_no_memory_for_the_values(home: Path, tmp_path: Path) -> None:
    assert int(in_child(RESIDENT, home / "pool", tmp_path / "x.h5")) < 16


def test_text_is_written_in_pieces(pool: engram.Pool, tmp_path: Path) -> None:
    words = np.array([f"w{n}" for n in range(200_000)], TEXT)
    pool["v"] = words
    seen: list[Progress] = []
    engram.export_file(pool, tmp_path / "x.h5", progress=seen.append)
    assert len({p.done for p in seen} - {0}) == 4
    with h5py.File(tmp_path / "x.h5") as file:
        assert file["v"].asstr()[...].tolist() == words.tolist()
