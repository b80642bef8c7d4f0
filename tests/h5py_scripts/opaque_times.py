"""Times as opaque values and as numbers; half floats, booleans, other byte orders."""

import sys

import h5py
import numpy as np

times = np.array(["2019-09-22T17:38:30", "2019-09-22T17:38:31"], "M8[us]")
with h5py.File(sys.argv[1], "w") as f:
    f["t"] = times.astype(h5py.opaque_dtype(times.dtype))
    f.create_dataset("ns", data=times.astype("M8[ns]").astype("i8")).attrs["units"] = (
        "ns since 1970"
    )
    f["big"] = np.arange(4, dtype=">f4")
    f["flags"] = np.array([True, False, True])
    f["void"] = np.void(b"\x00\x01\x02")
    f.create_dataset("matrix", data=np.zeros((2, 3), "f4"))
    f.create_dataset("vectors", (4,), dtype="(3,)f4")[1] = [1, 2, 3]

with h5py.File(sys.argv[1], "r") as f:
    print(f["t"][:], f["t"].dtype, h5py.check_opaque_dtype(f["t"].dtype))
    print(f["ns"][:].view("M8[ns]"), f["ns"].attrs["units"])
    print(f["big"].dtype, f["big"][1:3], f["flags"][:], f["flags"].dtype)
    print(f["void"][()].tobytes(), f["vectors"].shape, f["vectors"].dtype, f["vectors"][:2])
    print(np.count_nonzero(f["flags"]), np.sum(f["big"]), (f["big"][()] == [0, 1, 2, 3]).all())
