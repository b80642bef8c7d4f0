"""The limit where data do not fit in memory: numpy on mapped files, which the kernel reads."""

from __future__ import annotations

import os
from itertools import count
from typing import TYPE_CHECKING, Any

import numpy as np

from bench.active.ways.limit import Limit

if TYPE_CHECKING:
    from collections.abc import Sequence
    from pathlib import Path

    from bench.active.kernels import Values


class Files(Limit):
    """A handle is an array on a file that is mapped; files are durable when they are written."""

    name = "limit-files"

    def __init__(self, folder: Path) -> None:
        super().__init__(folder)
        self.folder = folder
        self.numbers = count()
        self.places: dict[int, Path] = {}

    def put(self, values: Values) -> Values:
        place = self.folder / f"{next(self.numbers)}.npy"
        with place.open("wb") as file:
            np.save(file, values)
            file.flush()
            os.fsync(file.fileno())
        handle = np.asarray(np.load(place, mmap_mode="r+"))
        self.places[id(handle)] = place
        return handle

    def change(self, method: str, own: Values, *others: Any) -> None:
        super().change(method, own, *others)
        with self.places[id(own)].open("rb") as file:
            os.fsync(file.fileno())

    def drop(self, handles: Sequence[Values]) -> None:
        for handle in handles:
            self.places.pop(id(handle)).unlink()

    def keep(self, method: str, own: Values, *others: Any) -> Values:
        return self.put(self.ask(method, own, *others))
