"""Imports killed at any instant: each file is there as a whole, or not at all.

`ENGRAM_CRASH_ROUNDS` says how often (`make crash` asks for many); `SEED` makes the same plan again.
"""

from __future__ import annotations

import os
import random
import signal
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import h5py
import netCDF4
import numpy as np

import engram

ROUNDS = int(os.environ.get("ENGRAM_CRASH_ROUNDS", "6"))
FILES = 6
NAMES = ["small", "inner/large", "inner/text"]


def values(number: int) -> dict[str, np.ndarray[Any, Any]]:
    """Give what file `number` holds: something small, and something large."""
    return {
        "small": np.arange(12.0) * number,
        "inner/large": np.arange(200_000.0) + number,
        "inner/text": np.frombuffer(bytes([65 + number]) * 500, dtype="S1"),
    }


def make_hdf5(path: Path, number: int) -> None:
    """Make an HDF5 file."""
    with h5py.File(path, "w") as file:
        file.attrs["number"] = number
        for name, value in values(number).items():
            file[name] = value


def make_netcdf(path: Path, number: int) -> None:
    """Make a netCDF file."""
    with netCDF4.Dataset(path, "w") as file:
        file.number = number
        for name, value in values(number).items():
            group = file.createGroup(name.rpartition("/")[0]) if "/" in name else file
            leaf = name.rpartition("/")[2]
            group.createDimension(f"n_{leaf}", len(value))
            group.createVariable(leaf, value.dtype, (f"n_{leaf}",))[:] = value


def command(pool: Path, files: list[Path], workers: int) -> subprocess.Popen[bytes]:
    """Begin an import of all files, in processes that are killed as one."""
    words = ["import", str(pool), "in", *map(str, files), "-j", str(workers)]
    return subprocess.Popen(
        [sys.executable, "-m", "engram.cli", *words],
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
        start_new_session=True,
    )


def whole(group: Any, number: int) -> bool:
    """Whether a group holds all that its file holds; what is there by halves fails."""
    assert group.attrs["number"] == number
    for name, value in values(number).items():
        assert np.array_equal(group[name][...], value), name
    assert sorted(group.keys()) == sorted({name.split("/")[0] for name in NAMES})
    return True


def test_a_killed_import_leaves_each_file_whole_or_absent(home: Path, tmp_path: Path) -> None:
    seed = int(os.environ.get("SEED", random.SystemRandom().randrange(1 << 32)))
    print(f"SEED={seed}")
    plan = random.Random(seed)
    files = []
    for number in range(FILES):
        files.append(tmp_path / (f"f{number}.nc" if number % 2 else f"f{number}.h5"))
        (make_netcdf if number % 2 else make_hdf5)(files[-1], number)
    path = home / "pool"
    engram.create(path, size="256 MiB", force=True).close()
    before = time.monotonic()
    assert command(path, files, 1).wait() == 0
    takes = time.monotonic() - before
    there_at = []
    for turn in range(ROUNDS):
        with engram.open(path) as pool:
            del pool["in"]
            pool.create_group("in")
        killed = command(path, files, 1 + turn % 2)
        # Most of a run is Python's own beginning: half of the kills come near its end.
        time.sleep(takes * plan.uniform(0.5 if plan.random() < 0.3 else 0.8, 1.1))
        os.killpg(killed.pid, signal.SIGKILL)
        killed.wait()
        with engram.open(path) as pool:
            imported = pool["in"]
            there_at.append(sum(whole(imported[name], int(name[1:])) for name in imported))
            assert pool.used == sum(
                -(-size // 4096) * 4096 if size >= 1 << 16 else -(-size // 64) * 64
                for size in (
                    imported[f"{name}/{leaf}"].nbytes for name in imported for leaf in NAMES
                )
                if size > 1024
            )
        assert engram.verify(path).problems == []
    print(f"{ROUNDS} imports killed; files there afterwards: {there_at}")
