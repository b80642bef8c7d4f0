"""Groups and attributes in the order in which they were made."""

import sys

import h5py

with h5py.File(sys.argv[1], "w", track_order=True) as f:
    for name in ("zebra", "apple", "mango"):
        g = f.create_group(name, track_order=True)
        for k in (3, 1, 2):
            g.create_dataset(f"d{k}", data=k)
        g.attrs["z"], g.attrs["a"], g.attrs["m"] = 1, 2, 3
    f.attrs["second"], f.attrs["first"] = 1, 2
    plain = f.create_group("plain")
    plain["b"], plain["a"] = 1, 2

with h5py.File(sys.argv[1], "a") as f:
    f.create_dataset("banana", data=0)
    print(list(f), list(f.attrs), list(f["plain"]))
    for name, g in f.items():
        if isinstance(g, h5py.Group):
            print(name, list(g), list(g.attrs), [g[k][()] for k in g])
    print(list(reversed(f)), list(f.keys())[:2])
    del f["zebra"]
    f["zebra"] = 5
    print(list(f), f["zebra"][()])
