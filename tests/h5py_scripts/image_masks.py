"""Images with masks: boolean selections read and write."""

import sys

import h5py
import numpy as np

rng = np.random.default_rng(3)
with h5py.File(sys.argv[1], "w") as f:
    image = f.create_dataset("image", data=rng.integers(0, 100, (16, 16)), chunks=(4, 4))
    mask = f.create_dataset("mask", data=image[:] > 80)
    print(mask.dtype, mask[:].sum(), image[image[:] > 95])
    image[mask[:]] = 0
    print(image[:].max(), image[mask[:]].sum())
    image[np.array([True, False] * 8)] = np.full((8, 16), -1)
    image[[1, 3, 5], 2:4] = [[7, 8]] * 3
    print(image[:4, :6])
    roi = image[[1, 5, 9], :][:, [0, 3]]
    print(roi, image[2:4, [0, 15]])
    mask[0, :5] = [True, False, True, False, True]
    print(mask[0, :6], mask[()].dtype)
    out = np.zeros((2, 16), image.dtype)
    image.read_direct(out, np.s_[0:2, :], np.s_[:, :])
    print(out.sum(axis=1))
    image.write_direct(np.full((1, 16), 5), np.s_[:, :], np.s_[15:16, :])
    print(image[15, 0], image[-1].tolist() == [5] * 16)
    try:
        image[[3, 1]]
    except TypeError as error:
        print(type(error).__name__)
