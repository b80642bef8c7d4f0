"""A pool, a .npy file and an HDF5 file, measured here.

64 MiB in each of them, all in memory. The picture shows what the machine that built this site took,
the median of seven times.

- **Store in a new one**: each is created, written and closed. All memory is new, and a pool's
  is also mapped into the program, so a pool is slowest.
- **Store again, kept open**: each stays open, and the array of the last time is there already. The
  pool puts a new array in its place, for all readers at once; the files are written over.
- **Open, and add up**: each is opened by its path and closed again. The pool's array is viewed
  where it lies. The files' arrays are read into new memory first.

[Speed](../speed.md) has the figures of the project's own benchmarks, with what they were measured
on.
"""

import statistics
import time
from pathlib import Path

import h5py
import matplotlib.pyplot as plt
import numpy as np

import engram

field = np.random.default_rng(0).normal(size=(2048, 4096))  # 64 MiB
pool, npy, hdf5 = "/dev/shm/speed", Path("/dev/shm/field.npy"), Path("/dev/shm/field.h5")


def new_pool():
    """Store the array in a new pool."""
    with engram.create(pool, size="512 MiB") as opened:
        opened["T"] = field


def new_hdf5():
    """Store the array in a new HDF5 file."""
    with h5py.File(hdf5, "w") as opened:
        opened["T"] = field


def add_up_pool():
    """Add the array up in the pool's memory."""
    with engram.open(pool, "r") as opened:
        return opened["T"].view().sum()


def add_up_hdf5():
    """Read the array from the HDF5 file, and add it up."""
    with h5py.File(hdf5, "r") as opened:
        return opened["T"][...].sum()


def remove():
    """Remove the pool and the files."""
    if Path(pool).exists():
        engram.destroy(pool)
    npy.unlink(missing_ok=True)
    hdf5.unlink(missing_ok=True)


def seconds(ways, before=None):
    """Return the median time of each way, measured seven times by turns."""
    taken = [[] for _ in ways]
    for _ in range(7):
        for times, work in zip(taken, ways, strict=True):
            if before:
                before()
            start = time.perf_counter()
            work()
            times.append(time.perf_counter() - start)
    return [statistics.median(times) for times in taken]


def store_again():
    """Store the array a few times in each, kept open."""
    new_pool()
    np.save(npy, field)
    new_hdf5()
    array = np.load(npy, mmap_mode="r+")
    with engram.open(pool) as opened, h5py.File(hdf5, "r+") as file:
        ways = (
            lambda: opened.create_array("T", data=field, overwrite=True),
            lambda: np.copyto(array, field),
            lambda: file["T"].write_direct(field),
        )
        return seconds(ways)


new = (new_pool, lambda: np.save(npy, field), new_hdf5)
added = (add_up_pool, lambda: np.load(npy).sum(), add_up_hdf5)

measured = {"store in a new one": seconds(new, before=remove)}
remove()
measured["store again, kept open"] = store_again()
measured["open, and add up"] = seconds(added)
remove()

figure, axes = plt.subplots(1, 3, figsize=(9, 2.4), sharey=True)
for axis, (title, taken) in zip(axes, measured.items(), strict=True):
    times = [1000 * each for each in taken]
    bars = axis.barh(["pool", ".npy", "HDF5"], times, color=["#d97706", "#8094a8", "#8094a8"])
    axis.bar_label(bars, fmt="%.0f ms", padding=4)
    axis.set(title=title, xlabel="ms")
    axis.margins(x=0.25)
axes[0].invert_yaxis()
figure.tight_layout()
figure.savefig("doors.png")
