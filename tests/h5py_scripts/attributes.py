"""Metadata of all kinds as attributes, and how they come back."""

import sys

import h5py
import numpy as np

with h5py.File(sys.argv[1], "w") as f:
    a = f.create_group("run").attrs
    a["int"], a["float"], a["bool"], a["text"] = 5, 2.5, True, "Größe"
    a["bytes"], a["array"], a["list"] = np.bytes_(b"raw"), np.arange(6).reshape(2, 3), [1.5, 2]
    a["texts"], a["tuple"], a["complex"] = ["a", "bb", "ccc"], (1, 2, 3), 1 + 2j
    a["empty"] = h5py.Empty("f8")
    a["record"] = np.array([(1, 2.5)], dtype=[("n", "i4"), ("x", "f8")])
    a.create("typed", 7, dtype="u2")
    a.create("shaped", np.arange(4), shape=(2, 2), dtype="f4")
    a.modify("typed", 9)

with h5py.File(sys.argv[1], "r+") as f:
    a = f["run"].attrs
    print(a["empty"] == h5py.Empty("f8"), a["empty"].shape)
    for name, value in a.items():
        if name != "empty":
            print(name, repr(value), getattr(value, "dtype", type(value).__name__))
    print(len(a), "int" in a, a.get("none", 0), a["typed"].dtype, a["shaped"].tolist())
    del a["list"]
    a["int"] = "now a text"
    print(sorted(a.keys()), a["int"])
    for bad in (None, {"a": 1}, np.array(["u"])):
        try:
            a["bad"] = bad
        except TypeError:
            print("refused", type(bad).__name__)
    try:
        a["missing"]
    except KeyError:
        print("KeyError")
