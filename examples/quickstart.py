"""Ten lines: put, allocate, compute in place, and find it all again in another process."""

import tempfile
from pathlib import Path

import numpy as np

import engram

with tempfile.TemporaryDirectory(dir="/dev/shm") as folder:
    path = Path(folder) / "example"
    with engram.create(path, size="1 GiB") as pool:
        run = pool.create_group("run-17", attrs={"orbit": 4})
        run["T"] = np.random.default_rng(0).normal(-15.0, 3.0, (500, 1000))
        with run.allocate("anomaly", shape=(500, 1000), dtype="f8", dims=("y", "x")) as anomaly:
            np.subtract(run["T"], np.mean(run["T"]), out=anomaly)
        warmest = run["T"].view().max()

    with engram.open(path, "r") as pool:  # in any other process just the same
        pool.tree()
        print(pool["run-17"].attrs["orbit"], warmest, np.std(pool["run-17/anomaly"]))  # noqa: T201
