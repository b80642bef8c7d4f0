"""Parts of several files are copied into one."""

import os
import sys

import h5py
import numpy as np

parts = []
for k in range(3):
    path = f"{sys.argv[1]}.part{k}"
    with h5py.File(path, "w") as f:
        f.attrs["rank"] = k
        d = f.create_dataset(
            "result/field", data=np.full((2, 3), k), chunks=(1, 3), compression="gzip"
        )
        d.attrs["unit"] = "m"
        f["result"].attrs["rank"] = k
        f["result/extra/deep"] = np.arange(k + 1)
    parts.append(path)

with h5py.File(sys.argv[1], "w") as out:
    for k, path in enumerate(parts):
        with h5py.File(path, "r") as f:
            f.copy("result", out, name=f"rank{k}")
            if k == 2:
                out.copy(f["result/field"], "last")
    rows = sum(out[f"rank{k}/field"].shape[0] for k in range(3))
    merged = out.create_dataset("merged", (rows, 3), "i8")
    for k in range(3):
        merged[2 * k : 2 * k + 2] = out[f"rank{k}/field"]
    print(merged[:].tolist(), list(out), out["rank1"].attrs["rank"])
    print(out["rank2/field"].attrs["unit"], out["rank2/field"].chunks, out["rank2/extra/deep"][:])
    out.copy("rank0", "again", without_attrs=True)
    out.copy(out["rank1"], out["again"], name="inner")
    print(dict(out["again"].attrs), out["again/inner/field"][0], out["last"][1])
print([os.path.exists(p) for p in parts])
