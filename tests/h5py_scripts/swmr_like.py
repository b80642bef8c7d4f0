"""A writer in single-writer mode, and a reader beside it that follows."""

import sys

import h5py
import numpy as np

writer = h5py.File(sys.argv[1], "w", libver="latest")
data = writer.create_dataset("data", (0, 4), maxshape=(None, 4), dtype="f8", chunks=(8, 4))
writer.attrs["run"] = 12
writer.swmr_mode = True
reader = h5py.File(sys.argv[1], "r", libver="latest", swmr=True)
seen = reader["data"]
for step in range(4):
    data.resize((data.shape[0] + 2, 4))
    data[-2:] = step
    data.flush()
    seen.refresh()
    print(step, seen.shape, seen[-1], np.array_equal(seen[:], data[:]))
print(writer.swmr_mode, reader.swmr_mode, reader.attrs["run"])
reader.close()
writer.close()
print(bool(writer), bool(data), writer)
