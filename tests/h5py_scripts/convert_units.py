"""Reading as another dtype, in blocks; results beside the data, of the same layout."""

import sys

import h5py
import numpy as np

with h5py.File(sys.argv[1], "w") as f:
    raw = f.create_dataset(
        "raw", data=np.arange(600, dtype="i2").reshape(20, 30), chunks=(5, 10), compression="gzip"
    )
    raw.attrs["scale"], raw.attrs["offset"] = 0.5, -10.0
    like = f.create_dataset_like("double", raw, dtype="f8")
    for block in raw.iter_chunks():
        like[block] = raw.astype("f8")[block] * raw.attrs["scale"] + raw.attrs["offset"]
    print(like.chunks, like.compression, like.dtype, like[3, 4], like[:].sum())
    small = f.require_dataset("small", (10,), "u1")
    small[:] = np.linspace(-50, 400, 10)
    print(small[:], f.require_dataset("small", (10,), "u1") == small)
    small[2:4] = [7, 8]
    print(raw.astype("f4")[0, :3], np.asarray(raw, dtype="f4")[1, :2], small[:4])
    try:
        f.require_dataset("small", (11,), "u1")
    except TypeError:
        print("shapes differ")
    halves = f.create_dataset("half", data=np.array([0.1, 1e5]), dtype="f2")
    print(halves[:], halves.dtype, raw[...].dtype, raw[2].shape, raw[-1, -1], raw[..., 0][:3])
    total = np.zeros(30)
    for row in raw:
        total += row
    print(total[:4], len(raw), raw.size, raw.ndim, raw.nbytes)
