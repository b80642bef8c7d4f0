"""A molecular dynamics run: frames are appended, then analysed."""

import sys

import h5py
import numpy as np

rng = np.random.default_rng(7)
n_atoms = 64
with h5py.File(sys.argv[1], "w", libver="latest") as f:
    particles = f.create_group("particles/all")
    position = particles.create_dataset(
        "position/value",
        shape=(0, n_atoms, 3),
        maxshape=(None, n_atoms, 3),
        dtype="f4",
        chunks=(4, n_atoms, 3),
        compression="gzip",
        compression_opts=4,
        shuffle=True,
    )
    step = particles.create_dataset(
        "position/step", (0,), maxshape=(None,), dtype="i8", chunks=(64,)
    )
    position.attrs["unit"] = "nm"
    particles["box/edges"] = np.array([3.0, 3.0, 3.0])
    particles["box"].attrs["boundary"] = ["periodic"] * 3
    f.attrs["author"] = "nobody"
    xyz = rng.random((n_atoms, 3)).astype("f4")
    for i in range(25):
        xyz += rng.normal(0, 0.01, xyz.shape).astype("f4")
        position.resize(position.shape[0] + 1, axis=0)
        step.resize((step.shape[0] + 1,))
        position[-1] = xyz
        step[-1] = i * 100

with h5py.File(sys.argv[1], "r") as f:
    position = f["particles/all/position/value"]
    print(position.shape, position.chunks, position.maxshape, position.compression)
    print(position.compression_opts, position.shuffle, f["particles/all/position/step"][::5])
    msd = ((position[:] - position[0]) ** 2).sum(-1).mean(-1)
    print(np.round(msd[[0, 5, 24]], 6), position.attrs["unit"])
    print(list(f["particles/all/box"].attrs["boundary"]), f["particles/all/box/edges"][()])
    print(np.round(position[10:12, :3, 0], 5))
