"""MIQS+ as the kernels' writers need it: a process's own index, which takes each object in.

The papers keep a search tree for each key, from values to objects, and names in a radix tree. To
take an object in, a dictionary for each key and a list of names are cheaper than that, and cheaper
than a call from Python into another language for each object. So what is added to HDF5's own time
here is less than MIQS+ would add.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from bench.kernels.particles import Attributes


class Index:
    """For each key a table from value to the objects that have it."""

    def __init__(self) -> None:
        self.paths: list[str] = []
        self.keys: dict[str, dict[float | str, list[int]]] = {}

    def insert(self, path: str, attributes: Attributes) -> None:
        """Take in an object."""
        number = len(self.paths)
        self.paths.append(path)
        for key, value in attributes.items():
            self.keys.setdefault(key, {}).setdefault(value, []).append(number)
