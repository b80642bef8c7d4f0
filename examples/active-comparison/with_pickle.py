"""The same run in a pickle, whole again after each step: `with_pickle.py STEPS FILE`."""

import pickle
import sys
from pathlib import Path

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

    def save(self, place: Path) -> None:
        """Write all of it, in the place of what was written before."""
        draft = place.with_suffix(".draft")
        with draft.open("wb") as file:
            pickle.dump(self, file)
        draft.replace(place)

    @staticmethod
    def load(place: Path) -> "Run":
        """Read what was written."""
        with place.open("rb") as file:
            run: Run = pickle.load(file)  # noqa: S301 - this program's own
        return run

    def mean(self) -> float:
        """Tell how warm it is."""
        return float(self.plate.mean())


place = Path(sys.argv[2])
run = Run.load(place) if place.exists() else Run(side=64)
for _ in range(int(sys.argv[1])):
    run.step()
    run.save(place)
sys.stdout.write(f"{run.steps} {run.mean():.6f}\n")
