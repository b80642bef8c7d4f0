"""A listing of a file: every object with its properties, links and attributes."""

import sys

import h5py
import numpy as np

with h5py.File(sys.argv[1], "w") as f:
    f.create_dataset("a/x", data=np.arange(10.0), chunks=(5,), fletcher32=True)
    f.create_dataset("a/b/y", (3, 4), dtype="i2", fillvalue=7)
    f.create_dataset("a/b/z", data=np.eye(3, dtype="c8"), maxshape=(None, 3), chunks=(3, 3))
    f["scalar"] = 3.25
    f["a/link"] = h5py.SoftLink("/scalar")
    f["a/dangling"] = h5py.SoftLink("/nowhere")
    f["hard"] = f["a/x"]
    f["a"].attrs["n"] = 1


def describe(name, obj):
    kind = "group" if isinstance(obj, h5py.Group) else "dataset"
    print(f"{name:<8} {kind}", end="")
    if isinstance(obj, h5py.Dataset):
        print("", obj.shape, obj.dtype, obj.chunks, obj.maxshape, obj.fillvalue, obj.nbytes, end="")
        print("", obj.compression, obj.shuffle, obj.fletcher32, obj.scaleoffset, end="")
    print("", dict(obj.attrs))


with h5py.File(sys.argv[1], "r") as f:
    f.visititems(describe)
    for name in f["a"]:
        link = f["a"].get(name, getlink=True)
        print(name, type(link).__name__, getattr(link, "path", None))
    print(f["a/link"][()], "a/dangling" in f, f.get("a/dangling"), f["hard"] == f["a/x"])
    try:
        f["a/dangling"]
    except KeyError:
        print("dangling")
    print(f, f["a"], f["scalar"], f.keys(), list(f["a/b"].items()))
    print(f["a/b/y"].parent, f["a/b"].parent.name, f["a/b/y"].file.filename == sys.argv[1])
