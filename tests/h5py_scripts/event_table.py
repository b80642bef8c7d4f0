"""A table of events as records: appended, selected by fields, changed in place."""

import sys

import h5py
import numpy as np

event = np.dtype([("id", "u8"), ("energy", "f8"), ("hits", "i2", (4,)), ("tag", "S6")])
rng = np.random.default_rng(5)
with h5py.File(sys.argv[1], "w") as f:
    table = f.create_dataset(
        "events", (0,), event, maxshape=(None,), chunks=(128,), compression="gzip"
    )
    for block in range(3):
        rows = np.zeros(100, event)
        rows["id"] = np.arange(100) + block * 100
        rows["energy"] = rng.exponential(10, 100)
        rows["hits"] = rng.integers(0, 50, (100, 4))
        rows["tag"] = [b"muon", b"pion"] * 50
        table.resize((len(table) + 100,))
        table[-100:] = rows
    print(table.dtype, table.shape, table[5]["id"], table[5]["tag"])
    energy = table["energy"]
    high = np.flatnonzero(energy > 30)
    print(len(high), table[high[:3]]["id"], table["id", 10:13], table[10:13]["hits"].shape)
    table["energy"] = energy * 2
    table[0] = (999, 1.0, (1, 2, 3, 4), b"none")
    print(table[0], np.round(table["energy"][1:].sum(), 6))
    print(table.fields(["id", "tag"])[:3], table.fields("energy")[0])
    total = 0
    for chunk in table.iter_chunks():
        total += len(table[chunk])
    print(total, table.dtype.names, table.dtype["hits"])
