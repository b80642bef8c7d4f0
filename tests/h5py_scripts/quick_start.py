"""The first steps of a tutorial: a file, groups, a dataset, attributes, a walk."""

import sys

import h5py
import numpy as np

with h5py.File(sys.argv[1], "w") as f:
    dset = f.create_dataset("mydataset", (100,), dtype="i")
    dset[...] = np.arange(100)
    print(dset[0], dset[10], dset[0:100:10], dset.shape, dset.dtype, dset.name)
    grp = f.create_group("subgroup")
    dset2 = grp.create_dataset("another_dataset", (50,), dtype="f")
    dset3 = f.create_dataset("subgroup2/dataset_three", (10,), dtype="i")
    print(dset2.name, dset3.name, f["subgroup2/dataset_three"])
    dset.attrs["temperature"] = 99.5
    print(dset.attrs["temperature"], "temperature" in dset.attrs, list(f))

with h5py.File(sys.argv[1], "a") as f:
    f.visit(print)
    f.visititems(lambda name, obj: print(name, type(obj).__name__))
    print("mydataset" in f, "nothing" in f, f.get("nothing", "default"), f["subgroup"].parent.name)
    del f["subgroup"]
    f.move("subgroup2", "renamed")
    print(list(f.keys()), [v.name for v in f.values()], f.mode, len(f))
