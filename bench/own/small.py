"""Small arrays of 256 bytes: created one by one and in batches, and read, from Python."""

from __future__ import annotations

import random
from itertools import count
from typing import TYPE_CHECKING

import numpy as np

from bench.harness import Bound, Contestant, Line, measure, timed
from bench.own.store import Engram

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from bench.peer import Peer
    from bench.setting import Setting

VALUES = np.arange(32.0)
BATCH = 1000
READ_FROM = 1000
OPERATIONS = {"engram": 4000, "LMDB": 4000, "h5py": 1000, "netCDF4": 400, "vineyard": 200}
FEW = 60


def operations(setting: Setting, store: Peer) -> int:
    """How many operations make a round, so that rounds are neither too short nor too long."""
    return max(setting.scaled(OPERATIONS.get(store.name, FEW)), 10)


def create(setting: Setting) -> Iterator[Line]:
    """Create arrays by name, one commit each; then in batches of 1000."""
    for title, batched, limit in (
        ("create a 256 B array, one commit each", False, 8.0),
        ("create a 256 B array, batches of 1000", True, 20.0),
    ):
        stores: list[Peer] = [Engram(setting.folder), *setting.peers()]
        bounds = [Bound("engram", "h5py", "speed", limit)]
        bounds += [Bound("engram", store.name, "show") for store in stores[2:]]
        contestants = [Contestant(s.name, creating(setting, s, batched)) for s in stores]
        yield measure(Line(title, "us", bounds), contestants, 2 * setting.rounds)
        for store in stores:
            store.close()


def creating(setting: Setting, store: Peer, batched: bool) -> Callable[[], float]:
    """One round of creating, in a group that is new in each round."""
    rounds = count()

    def run() -> float:
        folder = f"r{next(rounds)}"
        number = BATCH if batched and store.name != "zarr" else operations(setting, store)
        names = [f"{folder}/x{i:06d}" for i in range(number)]
        store.create(f"{folder}/first", VALUES)
        if batched:
            return timed(lambda: store.create_many(names, VALUES), number)
        return timed(lambda: one_by_one(store, names), number)

    return run


def one_by_one(store: Peer, names: list[str]) -> None:
    """Create each on its own."""
    for name in names:
        store.create(name, VALUES)


def read(setting: Setting) -> Iterator[Line]:
    """Read arrays by path, in random order."""
    stores: list[Peer] = [Engram(setting.folder), *setting.peers()]
    for store in stores:
        number = READ_FROM if store.name != "zarr" else FEW
        store.create_many([f"g/x{i}" for i in range(number)], VALUES)
        assert (store.read("g/x7") == VALUES).all()  # noqa: S101 - else nothing is compared
    contestants = [Contestant(store.name, reading(setting, store)) for store in stores]
    bounds = [Bound("engram", "h5py", "speed", 15.0)]
    bounds += [Bound("engram", store.name, "show") for store in stores[2:]]
    line = Line("read a 256 B array by path", "us", bounds)
    yield measure(line, contestants, 2 * setting.rounds)
    for store in stores:
        store.close()


def reading(setting: Setting, store: Peer) -> Callable[[], float]:
    """One round of reading."""
    number = operations(setting, store)
    there = READ_FROM if store.name != "zarr" else FEW
    chosen = random.Random(7).choices(range(there), k=number)  # noqa: S311 - not a secret
    names = [f"g/x{i}" for i in chosen]

    def each() -> None:
        for name in names:
            store.read(name)

    return lambda: timed(each, number)
