"""Nested dictionaries of parameters, saved and loaded by recursion."""

import sys

import h5py
import numpy as np


def save(group, tree):
    for key, value in tree.items():
        if isinstance(value, dict):
            save(group.require_group(key), value)
        elif value is None:
            group[key] = h5py.Empty("f")
        else:
            group[key] = value


def load(group):
    found = {}
    for key, item in group.items():
        if isinstance(item, h5py.Group):
            found[key] = load(item)
        elif item.shape is None:
            found[key] = None
        elif h5py.check_string_dtype(item.dtype) and item.shape == ():
            found[key] = item.asstr()[()]
        else:
            found[key] = item[()]
    return found


tree = {
    "solver": {"name": "cg", "tolerance": 1e-8, "steps": 100, "history": np.array([1.0, 0.1])},
    "grid": {"shape": (64, 64), "origin": np.zeros(2), "periodic": True},
    "note": None,
    "nested": {"a": {"b": {"c": 3}}},
    "z": 2 + 3j,
    "ints": np.arange(3, dtype=">i2"),
}
with h5py.File(sys.argv[1], "w") as f:
    save(f, tree)
with h5py.File(sys.argv[1], "r") as f:
    again = load(f)
    print(again)
    print(f["nested/a/b/c"][()], f["nested"]["a"]["b"]["c"].name, f["ints"].dtype)
    print([type(f[k]).__name__ for k in f], f["note"].shape, f["grid/periodic"][()])
