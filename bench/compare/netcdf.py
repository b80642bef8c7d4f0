"""netCDF4: netCDF-4 files through the C library."""

from __future__ import annotations

from typing import TYPE_CHECKING

import netCDF4

if TYPE_CHECKING:
    from collections.abc import Sequence
    from pathlib import Path

    from bench.peer import Values


class NetCdf:
    """One file; contiguous variables, not filled first, flushed after a large one."""

    name = "netCDF4"
    replaces = False

    def __init__(self, folder: Path) -> None:
        self.path = folder / "peer.nc"
        self.file = self.begin()

    def begin(self) -> netCDF4.Dataset:
        """Return an empty file."""
        file = netCDF4.Dataset(self.path, "w", clobber=True)
        file.set_fill_off()
        return file

    def reset(self) -> None:
        self.file.close()
        self.path.unlink()
        self.file = self.begin()

    def put(self, name: str, values: Values) -> None:
        self.create(name, values)
        self.file.sync()

    def total(self, name: str) -> float:
        return float(self.read(name).sum())

    def create(self, name: str, values: Values) -> None:
        dimension = f"n{values.size}"
        if dimension not in self.file.dimensions:
            self.file.createDimension(dimension, values.size)
        variable = self.file.createVariable(name, "f8", (dimension,), contiguous=True)
        variable[:] = values

    def create_many(self, names: Sequence[str], values: Values) -> None:
        for name in names:
            self.create(name, values)

    def read(self, name: str) -> Values:
        variable = self.file[name]
        variable.set_auto_maskandscale(False)
        values: Values = variable[...]
        return values

    def close(self) -> None:
        self.file.close()
