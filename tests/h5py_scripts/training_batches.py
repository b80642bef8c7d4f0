"""A training loop that reads shuffled batches of images and labels."""

import sys

import h5py
import numpy as np

rng = np.random.default_rng(0)
with h5py.File(sys.argv[1], "w") as f:
    images = f.create_dataset(
        "train/images", (200, 8, 8, 3), dtype="u1", chunks=(16, 8, 8, 3), compression="lzf"
    )
    labels = f.create_dataset("train/labels", (200,), dtype="i8")
    for start in range(0, 200, 50):
        images[start : start + 50] = rng.integers(0, 256, (50, 8, 8, 3), dtype="u1")
        labels[start : start + 50] = rng.integers(0, 10, 50)
    f["train"].attrs["classes"] = [f"class{i}" for i in range(10)]
    f["train"].attrs["mean"] = images[:].mean(axis=(0, 1, 2))


class Batches:
    def __init__(self, path, size):
        self.file = h5py.File(path, "r")
        self.images, self.labels = self.file["train/images"], self.file["train/labels"]
        self.size = size

    def __len__(self):
        return len(self.images) // self.size

    def __iter__(self):
        order = np.random.default_rng(1).permutation(len(self.images))
        for i in range(len(self)):
            chosen = np.sort(order[i * self.size : (i + 1) * self.size])
            yield self.images[chosen].astype("f4") / 255, self.labels[list(chosen)]


batches = Batches(sys.argv[1], 32)
weights = np.zeros((8 * 8 * 3, 10))
for epoch in range(2):
    for x, y in batches:
        x = x.reshape(len(x), -1)
        scores = np.exp(x @ weights)
        scores /= scores.sum(1, keepdims=True)
        scores[np.arange(len(y)), y] -= 1
        weights -= 0.1 * x.T @ scores / len(y)
    print(epoch, round(float(np.abs(weights).sum()), 6), x.dtype, x.shape, y.dtype)
print(
    list(batches.file["train"].attrs["classes"])[:3],
    np.round(batches.file["train"].attrs["mean"], 4),
)
print(batches.images.compression, batches.images.chunks)
batches.file.close()
