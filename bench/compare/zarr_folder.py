"""zarr 3: a folder with a file for each chunk."""

from __future__ import annotations

import shutil
from typing import TYPE_CHECKING, cast

import numpy as np
import zarr

if TYPE_CHECKING:
    from collections.abc import Sequence
    from pathlib import Path

    from bench.peer import Values


class Zarr:
    """A group in a local folder; one chunk an array, no compression."""

    name = "zarr"
    replaces = True

    def __init__(self, folder: Path) -> None:
        self.path = folder / "peer.zarr"
        self.group = zarr.open_group(self.path, mode="w")

    def reset(self) -> None:
        shutil.rmtree(self.path)
        self.group = zarr.open_group(self.path, mode="w")

    def put(self, name: str, values: Values) -> None:
        self.create(name, values)

    def total(self, name: str) -> float:
        return float(self.read(name).sum())

    def create(self, name: str, values: Values) -> None:
        self.group.create_array(
            name, data=values, chunks=values.shape, compressors=None, overwrite=True
        )

    def create_many(self, names: Sequence[str], values: Values) -> None:
        for name in names:
            self.create(name, values)

    def read(self, name: str) -> Values:
        array = cast("zarr.Array", self.group[name])
        return cast("Values", np.asarray(array[...]))

    def close(self) -> None:
        shutil.rmtree(self.path)
