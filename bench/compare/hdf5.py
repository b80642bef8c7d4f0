"""h5py: files, one writing process."""

from __future__ import annotations

from typing import TYPE_CHECKING

import h5py

if TYPE_CHECKING:
    from collections.abc import Sequence
    from pathlib import Path

    from bench.peer import Values


class Hdf5:
    """One file, `h5py`'s defaults; contiguous datasets, no flush after a small one."""

    name = "h5py"
    replaces = False

    def __init__(self, folder: Path) -> None:
        self.path = folder / "peer.h5"
        self.file = h5py.File(self.path, "w")

    def reset(self) -> None:
        self.file.close()
        self.path.unlink()
        self.file = h5py.File(self.path, "w")

    def put(self, name: str, values: Values) -> None:
        self.file.create_dataset(name, data=values)
        self.file.flush()

    def rewrite(self, name: str, values: Values) -> None:
        """Write a dataset that is there already, so into warm pages."""
        self.file[name][...] = values
        self.file.flush()

    def total(self, name: str) -> float:
        return float(self.file[name][...].sum())

    def create(self, name: str, values: Values) -> None:
        self.file.create_dataset(name, data=values)

    def create_many(self, names: Sequence[str], values: Values) -> None:
        for name in names:
            self.file.create_dataset(name, data=values)

    def read(self, name: str) -> Values:
        values: Values = self.file[name][...]
        return values

    def close(self) -> None:
        self.file.close()
