"""LMDB through py-lmdb: rows of bytes, with neither shapes nor dtypes nor attributes."""

from __future__ import annotations

from typing import TYPE_CHECKING

import lmdb
import numpy as np

if TYPE_CHECKING:
    from collections.abc import Sequence
    from pathlib import Path

    from bench.peer import Values

MAP_BYTES = 8 << 30


class Lmdb:
    """One environment, `writemap` and no sync: as durable as a `process` pool."""

    name = "LMDB"
    replaces = True

    def __init__(self, folder: Path) -> None:
        self.folder = folder / "peer.lmdb"
        self.environment = self.begin()

    def begin(self) -> lmdb.Environment:
        """Return the environment, made if missing."""
        return lmdb.open(
            str(self.folder), map_size=MAP_BYTES, writemap=True, sync=False, metasync=False
        )

    def reset(self) -> None:
        with self.environment.begin(write=True) as transaction:
            transaction.drop(self.environment.open_db(txn=transaction), delete=False)

    def put(self, name: str, values: Values) -> None:
        self.create(name, values)

    def total(self, name: str) -> float:
        with self.environment.begin(buffers=True) as transaction:
            return float(np.frombuffer(transaction.get(name.encode())).sum())

    def create(self, name: str, values: Values) -> None:
        with self.environment.begin(write=True) as transaction:
            transaction.put(name.encode(), values.data)

    def create_many(self, names: Sequence[str], values: Values) -> None:
        with self.environment.begin(write=True) as transaction:
            for name in names:
                transaction.put(name.encode(), values.data)

    def read(self, name: str) -> Values:
        with self.environment.begin() as transaction:
            return np.frombuffer(transaction.get(name.encode()))

    def close(self) -> None:
        self.environment.close()
