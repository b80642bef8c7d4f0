"""The same run in a pool, where the next program finds it: `with_engram.py STEPS POOL`."""

import sys
from pathlib import Path

import numpy as np

import engram


class Run(engram.ActiveObject):
    """Temperatures of a plate, and how many steps they have seen."""

    plate: np.ndarray
    steps: int

    def __init__(self, side: int) -> None:
        """Begin with one hot edge."""
        self.plate = np.zeros((side, side))
        self.plate[0] = 100.0
        self.steps = 0

    @engram.activemethod
    def step(self) -> None:
        """Let heat flow for one step."""
        plate = self.plate
        around = plate[:-2, 1:-1] + plate[2:, 1:-1] + plate[1:-1, :-2] + plate[1:-1, 2:]
        plate[1:-1, 1:-1] = around / 4
        self.steps += 1

    def mean(self) -> float:
        """Tell how warm it is."""
        return float(self.plate.mean())


place = Path(sys.argv[2])
if place.exists():
    pool = engram.open(place)
    run = Run.get_by_alias("run")
else:
    pool = engram.create(place)
    run = Run(side=64)
    run.make_persistent("run")
for _ in range(int(sys.argv[1])):
    run.step()
sys.stdout.write(f"{run.steps} {run.mean():.6f}\n")
pool.close()
