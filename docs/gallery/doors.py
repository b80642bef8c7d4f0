"""The same array by several doors, measured here.

Three ways of storing 64 MiB and reading it back: a pool, a file of numpy's and a file of HDF5.
All of them are in memory. The picture shows what the machine that built this site took, the
median of five times.

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
file, hdf5 = Path("/dev/shm/field.npy"), Path("/dev/shm/field.h5")
pool = engram.create("/dev/shm/speed", size="512 MiB")


def put():
    """Store the array in the pool, in place of the one before."""
    pool.create_array("T", data=field, overwrite=True)


def write_hdf5():
    """Write the array into a new file of HDF5."""
    with h5py.File(hdf5, "w") as opened:
        opened["T"] = field


def read_hdf5():
    """Read the array from the file, and add it up."""
    with h5py.File(hdf5) as opened:
        opened["T"][...].sum()


writers = {"pool": put, ".npy": lambda: np.save(file, field), "HDF5": write_hdf5}
readers = {
    "pool": lambda: pool["T"].view().sum(),
    ".npy": lambda: np.load(file).sum(),
    "HDF5": read_hdf5,
}


def seconds(work):
    """Return the median of five times."""
    taken = []
    for _ in range(5):
        start = time.perf_counter()
        work()
        taken.append(time.perf_counter() - start)
    return statistics.median(taken)


figure, axes = plt.subplots(1, 2, figsize=(8.5, 2.4), sharey=True)
for axis, title, ways in zip(axes, ("store", "open, and add up"), (writers, readers), strict=True):
    times = [1000 * seconds(work) for work in ways.values()]
    bars = axis.barh(list(ways), times, color=["#d97706", "#8094a8", "#8094a8"])
    axis.bar_label(bars, fmt="%.0f ms", padding=4)
    axis.set(title=f"64 MiB: {title}", xlabel="ms")
    axis.margins(x=0.2)
axes[0].invert_yaxis()
figure.tight_layout()
figure.savefig("doors.png")

pool.close()
engram.destroy("/dev/shm/speed")
file.unlink()
hdf5.unlink()
