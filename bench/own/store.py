"""Engram behind the methods that every peer has."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import engram

if TYPE_CHECKING:
    from collections.abc import Sequence
    from pathlib import Path

    from bench.peer import Values

POOL_BYTES = 1 << 30


class Engram:
    """One pool with its defaults; names are paths from its root."""

    name = "engram"
    replaces = True

    def __init__(self, folder: Path) -> None:
        self.path = folder / "own.pool"
        self.pool = engram.create(self.path, size=POOL_BYTES)

    def reset(self) -> None:
        self.close()
        self.pool = engram.create(self.path, size=POOL_BYTES)

    def put(self, name: str, values: Values) -> None:
        self.pool.create_array(name, data=values, overwrite=True)

    def total(self, name: str) -> float:
        found: Any = self.pool[name]
        return float(found.view().sum())

    def fill(self, name: str, values: Values, number: float) -> None:
        """Allocate space for an array like `values` and fill it in place."""
        with self.pool.allocate(
            name, shape=values.shape, dtype=values.dtype, overwrite=True
        ) as space:
            space.fill(number)

    def create(self, name: str, values: Values) -> None:
        self.pool.create_array(name, data=values)

    def create_many(self, names: Sequence[str], values: Values) -> None:
        with self.pool.batch():
            for name in names:
                self.pool.create_array(name, data=values)

    def read(self, name: str) -> Values:
        found: Any = self.pool[name]
        values: Values = found[...]
        return values

    def close(self) -> None:
        self.pool.close()
        engram.destroy(self.path)
