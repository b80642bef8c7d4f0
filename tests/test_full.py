"""No room: the pool's own bound, and a mount that is really full, in the middle of everything."""

from __future__ import annotations

import os
import subprocess
import sys
from functools import partial
from typing import TYPE_CHECKING, Any

import h5py
import netCDF4
import numpy as np
import pytest

import engram
from support import small_tmpfs

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from pathlib import Path

MIB = 1 << 20


@pytest.fixture
def mount() -> Iterator[Path]:
    """Mount a tmpfs of 64 MiB; gone after the test."""
    with small_tmpfs(64) as folder:
        yield folder


def fill(mount: Path, leave: int) -> Path:
    """Take all of a mount but `leave` bytes."""
    about = os.statvfs(mount)
    free = about.f_bavail * about.f_frsize
    path = mount / "filler"
    with path.open("wb") as file:
        os.posix_fallocate(file.fileno(), 0, max(free - leave, 4096))
    return path


def hdf5(folder: Path, nbytes: int) -> Path:
    """Write an HDF5 file of a few datasets, so many bytes in all."""
    path = folder / "some.h5"
    with h5py.File(path, "w") as file:
        for i in range(8):
            data = file.create_dataset(f"group{i}/data", data=np.full(nbytes // 64, i, "f8"))
            data.attrs["units"] = "K"
    return path


def netcdf(folder: Path, nbytes: int) -> Path:
    """Write a netCDF file of a few variables, so many bytes in all."""
    path = folder / "some.nc"
    with netCDF4.Dataset(path, "w") as file:
        file.createDimension("x", nbytes // 64)
        for i in range(8):
            inner = file.createGroup(f"group{i}")
            variable = inner.createVariable("data", "f8", ("x",))
            variable.units = "K"
            variable[:] = np.full(nbytes // 64, i, "f8")
    return path


def acts(pool: engram.Pool, files: list[Path]) -> dict[str, Callable[[], Any]]:
    """Everything that takes room: more of it than there is."""

    def batch() -> None:
        with pool.batch():
            for i in range(40):
                pool[f"batch/{i}"] = np.full(MIB // 8, i, "f8")

    def allocate() -> None:
        with pool.allocate("allocated", shape=40 * MIB // 8) as buf:
            buf[...] = 1

    def strings() -> None:
        pool["strings"] = np.array(["word" * 1000] * 20_000, np.dtypes.StringDType())

    return {
        "put": lambda: pool.__setitem__("put", np.ones(40 * MIB // 8)),
        "replace": lambda: pool.__setitem__("kept/0", np.ones(40 * MIB // 8)),
        "zeros": lambda: pool.create_array("zeros", shape=40 * MIB // 8),
        "allocate": allocate,
        "batch": batch,
        "strings": strings,
        "blob": lambda: pool.create_blob("blob", bytes(40 * MIB)),
        **{file.suffix: partial(bring_in, pool, file) for file in files},
    }


def bring_in(pool: engram.Pool, file: Path) -> None:
    """Import a file into a group of its own."""
    engram.import_file(file, pool.require_group("imported"))


def both(folder: Path, nbytes: int) -> list[Path]:
    """Write the same as HDF5 and as netCDF."""
    return [hdf5(folder, nbytes), netcdf(folder, nbytes)]


def check_all(pool: engram.Pool, kept: int) -> None:
    """Check that all earlier data is there with its contents."""
    assert len(pool["kept"]) == kept
    for i in range(kept):
        assert (pool[f"kept/{i}"][...] == i).all(), i


def refused_and_recovered(pool: engram.Pool, files: list[Path]) -> None:
    """Try everything in a full pool; delete; go on."""
    kept = len(pool["kept"])
    used = pool.used
    old = pool["kept/1"].view()
    for what, act in acts(pool, files).items():
        with pytest.raises(engram.PoolFullError) as caught:
            act()
        assert str(caught.value), what
        check_all(pool, kept)
        assert pool.used == used, f"{what} leaked"
        assert not len(pool.get("imported", {}))
    del pool[f"kept/{kept - 1}"]
    other = (
        "import sys, engram\n"
        "with engram.open(sys.argv[1], force=True) as pool:\n"
        "    del pool[sys.argv[2]]\n"
    )
    arguments = [sys.executable, "-c", other, pool.path, f"kept/{kept - 2}"]
    subprocess.run(arguments, check=True)
    check_all(pool, kept - 2)
    assert (old == 1).all()
    pool[f"kept/{kept - 2}"] = np.full(pool["kept/0"].size, kept - 2, "f8")
    check_all(pool, kept - 1)
    pool["again/small"] = 1
    del pool["again"]


@pytest.mark.parametrize("room", [0, 64 << 10, 1 * MIB, 3 * MIB])
def test_a_pool_at_its_bound_refuses_and_goes_on(home: Path, room: int) -> None:
    files = both(home, 40 * MIB)
    with engram.create(home / "p", size=32 * MIB) as pool:
        for i in range(14):
            pool[f"kept/{i}"] = np.full(2 * MIB // 8, i, "f8")
        left = pool.size - pool.used - room
        filler = pool.scratch(left, "u1")
        refused_and_recovered(pool, files)
        del filler
    assert engram.verify(home / "p")


@pytest.mark.parametrize("room", [0, 64 << 10, 1 * MIB, 5 * MIB])
def test_a_full_mount_refuses_and_goes_on(mount: Path, home: Path, room: int) -> None:
    files = both(home, 40 * MIB)
    with engram.create(mount / "p", size="1 GiB", force=True) as pool:
        for i in range(6):
            pool[f"kept/{i}"] = np.full(2 * MIB // 8, i, "f8")
        filler = fill(mount, room)
        scratch = []
        while pool.space.largest_free >= 4 * MIB:
            scratch.append(pool.scratch(2 * MIB, "u1"))
        refused_and_recovered(pool, files)
        del scratch
        filler.unlink()
        pool["after"] = np.ones(4 * MIB // 8)
    assert engram.verify(mount / "p")
