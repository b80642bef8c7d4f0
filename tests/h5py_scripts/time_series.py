"""Sensors append to series of their own; a reader takes windows of them."""

import sys

import h5py
import numpy as np

with h5py.File(sys.argv[1], "w") as f:
    for sensor in ("pressure", "temperature"):
        g = f.create_group(f"sensors/{sensor}")
        g.create_dataset("time", (0,), maxshape=(None,), dtype="f8", chunks=True)
        g.create_dataset("value", (0,), maxshape=(None,), dtype="f4", chunks=True, fillvalue=np.nan)
        g.attrs.update({"unit": "hPa" if sensor == "pressure" else "K", "rate": 10})


def append(dataset, values):
    n = dataset.shape[0]
    dataset.resize((n + len(values),))
    dataset[n:] = values


with h5py.File(sys.argv[1], "r+") as f:
    for block in range(5):
        for k, g in enumerate(f["sensors"].values()):
            t = block * 10 + np.arange(10) / 10
            append(g["time"], t)
            append(g["value"], np.sin(t + k) * 10)
    f["sensors/pressure/value"].resize((60,))

with h5py.File(sys.argv[1], "r") as f:
    for name, g in f["sensors"].items():
        t, v = g["time"][:], g["value"]
        inside = (t >= 20) & (t < 21)
        print(name, dict(g.attrs), v.shape, np.isnan(v[:]).sum(), v.fillvalue)
        print(np.round(v[: len(t)][inside], 4), float(np.round(np.nanmean(v[:]), 5)))
    print(f["sensors/pressure/time"].maxshape, f["sensors/pressure/value"].maxshape)
