"""Out of core statistics: means and histograms of a dataset larger than a block."""

import sys

import h5py
import numpy as np

rng = np.random.default_rng(11)
with h5py.File(sys.argv[1], "w") as f:
    d = f.create_dataset(
        "samples", (100_000, 3), "f4", chunks=(10_000, 3), shuffle=True, compression="gzip"
    )
    for start in range(0, len(d), 10_000):
        d[start : start + 10_000] = rng.normal([0, 1, 2], 1, (10_000, 3))
    edges = np.linspace(-4, 6, 21)
    counts = f.create_dataset("histogram/counts", (3, 20), "i8")
    f["histogram/edges"] = edges
    total = np.zeros(3)
    for start in range(0, len(d), 25_000):
        block = d[start : start + 25_000]
        total += block.sum(0, dtype="f8")
        for k in range(3):
            counts[k] += np.histogram(block[:, k], edges)[0]
    f["mean"] = total / len(d)
with h5py.File(sys.argv[1]) as f:
    print(f.mode, np.round(f["mean"][:], 5), f["histogram/counts"][:].sum(1))
    print(f["histogram/counts"][0], np.argmax(f["histogram/counts"], axis=1))
    print(f["samples"][12345], f["samples"][::50_000, 1], f["samples"][[5, 99_999], 0])
    print(np.round(np.std(f["samples"][:1000], axis=0), 4))
