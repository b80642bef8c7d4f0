"""A run of a simulation in memory alone: nothing is left of it when the program ends."""

import sys

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

    def mean(self) -> float:
        """Tell how warm it is."""
        return float(self.plate.mean())


run = Run(side=64)
for _ in range(int(sys.argv[1])):
    run.step()
sys.stdout.write(f"{run.steps} {run.mean():.6f}\n")
