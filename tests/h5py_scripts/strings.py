"""Strings of variable and of fixed length, as data."""

import sys

import h5py
import numpy as np

with h5py.File(sys.argv[1], "w") as f:
    names = f.create_dataset("names", (4,), dtype=h5py.string_dtype())
    names[:] = ["alpha", "β", "", "long " * 20]
    names[1] = "beta"
    f["title"] = "a title"
    f["codes"] = np.array([b"AA", b"BBB"])
    f.create_dataset("fixed", data=["x", "yy"], dtype=h5py.string_dtype("utf-8", 5))
    log = f.create_dataset(
        "log", (0,), maxshape=(None,), dtype=h5py.string_dtype("utf-8"), chunks=(16,)
    )
    for i in range(5):
        log.resize((i + 1,))
        log[i] = f"message {i}"

with h5py.File(sys.argv[1], "r") as f:
    print(f["names"][0], f["names"].asstr()[1], f["names"].asstr()[...].tolist()[:3])
    print(f["title"][()], f["title"].asstr()[()], f["title"][()].decode())
    print(f["codes"][:], f["codes"].dtype, f["codes"].asstr()[1])
    print(f["fixed"].dtype, h5py.check_string_dtype(f["fixed"].dtype), f["fixed"].asstr()[:])
    print(h5py.check_string_dtype(f["names"].dtype), len(f["names"].asstr()[3]))
    print([s.decode() for s in f["log"]], f["log"].shape, f["log"].maxshape)
    print(f["names"].astype("T")[:2].tolist(), f["log"][1:3])
    print("alpha" == f["names"].asstr()[0], f["names"].size, f["names"].ndim)
