"""MIQS+ as the kernels use it: what a process's own index takes in for each object."""

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
