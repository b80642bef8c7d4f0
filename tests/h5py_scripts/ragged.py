"""Sequences of any length: hits of events, bonds of molecules, and an enumeration."""

import sys

import h5py
import numpy as np

with h5py.File(sys.argv[1], "w") as f:
    hits = f.create_dataset("hits", (4,), dtype=h5py.vlen_dtype(np.dtype("i4")))
    for i in range(4):
        hits[i] = np.arange(i)
    hits[2] = [10, 20, 30, 40]
    colour = h5py.enum_dtype({"RED": 0, "GREEN": 1, "BLUE": 2}, basetype="i1")
    f.create_dataset("colours", data=np.array([2, 0, 1]), dtype=colour)
    old = h5py.special_dtype(vlen=np.dtype("f8"))
    more = f.create_dataset("more", (2,), dtype=old)
    more[0] = [1.5, 2.5]
    person = np.dtype([("name", h5py.string_dtype()), ("age", "i4")])
    f.create_dataset("people", data=np.array([("Ada", 36), ("Grace", 85)], dtype=person))

with h5py.File(sys.argv[1], "r") as f:
    for i, row in enumerate(f["hits"]):
        print(i, row, row.dtype, len(row))
    print(f["hits"].shape, h5py.check_vlen_dtype(f["hits"].dtype), f["more"][0], f["more"][1].size)
    names = {v: k for k, v in h5py.check_enum_dtype(f["colours"].dtype).items()}
    print([names[int(c)] for c in f["colours"][:]], f["colours"].dtype.itemsize)
    print(sum(len(r) for r in f["hits"][1:3]), f["people"].dtype.names)
    print(f["people"][0]["name"], f["people"]["age"], [p["name"].decode() for p in f["people"][:]])
