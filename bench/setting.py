"""What every line is measured with: a folder, a number of rounds, the peers that are there."""

from __future__ import annotations

import importlib
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, cast

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from bench.peer import Peer

PEERS = {
    "h5py": "bench.compare.hdf5:Hdf5",
    "netCDF4": "bench.compare.netcdf:NetCdf",
    "zarr": "bench.compare.zarr_folder:Zarr",
    "LMDB": "bench.compare.lmdb_rows:Lmdb",
    "vineyard": "bench.compare.vineyard_daemon:Vineyard",
}


@dataclass
class Setting:
    """Where, how often and against whom.

    `folder` is new and empty. `absent` names the peers that could not be opened, with the reason.
    `files` is a folder of HDF5 granules that the evaluation asks of, in place of made ones.
    """

    folder: Path
    quick: bool
    tell: Callable[[str], None]
    absent: dict[str, str] = field(default_factory=dict)
    files: Path | None = None

    @property
    def rounds(self) -> int:
        """How many rounds count."""
        return 3 if self.quick else 9

    def scaled(self, count: int) -> int:
        """Return a tenth of `count` in a quick run."""
        return max(count // 10, 1) if self.quick else count

    def peers(self) -> list[Peer]:
        """Every peer that can be opened, empty."""
        opened = []
        for name, place in PEERS.items():
            if name in self.absent:
                continue
            module, attribute = place.split(":")
            try:
                kind = cast("type[Peer]", getattr(importlib.import_module(module), attribute))
                opened.append(kind(self.folder))
            except (ImportError, OSError) as refusal:
                self.absent[name] = str(refusal)
                self.tell(f"{name} is left out: {refusal}")
        return opened
