"""The same run in an HDF5 file, written after each step: `with_h5py.py STEPS FILE`."""

import sys
from pathlib import Path

import h5py
import numpy as np


class Run:
    """Temperatures of a plate, and how many steps they have seen."""

    def __init__(self, side: int) -> None:
        """Begin with one hot edge."""
        self.plate = np.zeros((side, side))
        self.plate[0] = 100.0
        self.steps = 0

    def step(self) -> None:
        """Let heat flow for one step."""
        plate = self.plate
        around = plate[:-2, 1:-1] + plate[2:, 1:-1] + plate[1:-1, :-2] + plate[1:-1, 2:]
        plate[1:-1, 1:-1] = around / 4
        self.steps += 1

    def save(self, file: h5py.File) -> None:
        """Write all of it over what was written before, or for the first time."""
        if "plate" not in file:
            file.create_dataset("plate", data=self.plate)
        file["plate"][...] = self.plate
        file.attrs["steps"] = self.steps
        file.flush()

    @classmethod
    def load(cls, file: h5py.File) -> "Run":
        """Read what was written."""
        run = cls(side=len(file["plate"]))
        run.plate = file["plate"][...]
        run.steps = int(file.attrs["steps"])
        return run

    def mean(self) -> float:
        """Tell how warm it is."""
        return float(self.plate.mean())


with h5py.File(Path(sys.argv[2]), "a") as file:
    run = Run.load(file) if "plate" in file else Run(side=64)
    for _ in range(int(sys.argv[1])):
        run.step()
        run.save(file)
    sys.stdout.write(f"{run.steps} {run.mean():.6f}\n")
