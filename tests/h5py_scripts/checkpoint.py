"""A simulation that writes checkpoints and restarts from the last one."""

import sys

import h5py
import numpy as np


def save(path, state, step):
    with h5py.File(path, "a") as f:
        name = f"checkpoints/{step:06d}"
        if name in f:
            del f[name]
        g = f.create_group(name)
        for key, value in state.items():
            g.create_dataset(key, data=value)
        g.attrs["step"], g.attrs["time"] = step, step * 0.5
        f.attrs["last"] = name
        if "latest" in f:
            del f["latest"]
        f["latest"] = h5py.SoftLink("/" + name)


def load(path):
    with h5py.File(path, "r") as f:
        g = f[f.attrs["last"]]
        return {key: g[key][()] for key in g}, int(g.attrs["step"])


path = sys.argv[1]
state = {"u": np.zeros(32), "v": np.ones(32), "seed": 42}
for step in range(0, 40, 10):
    state["u"] = state["u"] + 0.1 * state["v"]
    save(path, state, step)
again, step = load(path)
print(step, again["seed"], np.allclose(again["u"], state["u"]), again["u"].dtype)
save(path, {**again, "u": again["u"] * 2}, step)
with h5py.File(path, "r") as f:
    print(list(f["checkpoints"]), f["latest"].attrs["step"], np.round(f["latest/u"][0], 6))
    print(f.get("latest", getlink=True).path, f.get("latest", getclass=True).__name__)
    print({k: type(v).__name__ for k, v in f["latest"].items()})
