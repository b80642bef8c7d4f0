"""Imports killed at any instant: each file is there as a whole, or not at all.

`ENGRAM_CRASH_ROUNDS` says how often (`make crash` asks for many); `SEED` makes the same plan again.
"""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from typing import TYPE_CHECKING, Any

import h5py
import netCDF4
import numpy as np

import engram

if TYPE_CHECKING:
    from pathlib import Path

ROUNDS = int(os.environ.get("ENGRAM_CRASH_ROUNDS", "4"))
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


def kill_when(killed: subprocess.Popen[bytes], path: Path, many: int, rest: float) -> None:
    """Kill an import a moment after so many files are there; each of its processes."""
    with engram.open(path, "r") as pool:
        while killed.poll() is None and len(pool["in"]) < many:
            time.sleep(0.0005)
    time.sleep(rest)
    os.killpg(killed.pid, signal.SIGKILL)
    killed.wait()


def space_of(group: Any) -> int:
    """Work out what the arrays of imported files take in the arena."""
    sizes = [group[f"{name}/{leaf}"].nbytes for name in group for leaf in NAMES]
    steps = [(size, 4096 if size >= 1 << 16 else 64) for size in sizes if size > 1024]
    return sum(-(-size // step) * step for size, step in steps)


def test_a_killed_import_leaves_each_file_whole_or_absent(home: Path, tmp_path: Path) -> None:
    seed = int(os.environ.get("SEED", time.time_ns() % (1 << 32)))
    plan = np.random.default_rng(seed)
    files = []
    for number in range(FILES):
        files.append(tmp_path / (f"f{number}.nc" if number % 2 else f"f{number}.h5"))
        (make_netcdf if number % 2 else make_hdf5)(files[-1], number)
    path = home / "pool"
    there_at = []
    with engram.create(path, size="256 MiB", force=True) as pool:
        pool.create_group("in")
    for round_ in range(ROUNDS):
        killed = command(path, files, 1 + round_ % 2)
        kill_when(killed, path, int(plan.integers(FILES)), float(plan.uniform(0, 0.01)))
        with engram.open(path) as pool:
            imported = pool["in"]
            there_at.append(sum(whole(imported[name], int(name[1:])) for name in imported))
            assert pool.used == space_of(imported), f"SEED={seed}"
            del pool["in"]
            pool.create_group("in")
        assert engram.verify(path).problems == [], f"SEED={seed}"
    sys.stdout.write(f"SEED={seed}: {ROUNDS} imports killed, files there: {there_at}\n")
