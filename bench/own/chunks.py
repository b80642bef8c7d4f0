"""Chunked arrays with a codec: a smooth field written and read, beside zarr with the same codec."""

from __future__ import annotations

import importlib
from functools import partial
from typing import TYPE_CHECKING, Any

import numpy as np

import engram
from bench.harness import Bound, Contestant, Line, measure, timed

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from numpy.typing import NDArray

    from bench.setting import Setting

SIDE = 256
CHUNKS = (64, 64, 64)
SPEED = 1.5
ARRAYS = {"to 300 chunks": 300, "to 30 000": 30_000}
APPENDS = 20
CODECS = {"lz4": "lz4", "shuffle+lz4": "shuffle and lz4"}


def smooth() -> NDArray[np.float32]:
    """64 MiB of a field that changes smoothly along each dimension."""
    at = np.linspace(0, 6, SIDE, dtype="f4")
    waves = np.sin(at)[:, None, None] + np.cos(1.7 * at)[None, :, None] + 0.3 * at[None, None, :]
    return np.ascontiguousarray(waves, "f4")


def lines(setting: Setting) -> Iterator[Line]:
    """Write and read the field with each codec."""
    field = smooth()
    pool = engram.create(setting.folder / "chunks", size=1 << 30, force=True)
    for codec, title in CODECS.items():
        ours = {"engram": Ours(pool, codec)}
        peers: dict[str, Any] = {}
        try:
            peers = importlib.import_module("bench.compare.zarr_chunks").peers(
                setting.folder, codec, CHUNKS
            )
        except ImportError as refusal:
            setting.absent["zarr"] = str(refusal)
        stores = ours | peers
        bounds = [Bound("engram", "zarr", "speed", SPEED)]
        bounds += [Bound("engram", name, "show") for name in peers if name != "zarr"]
        for what in ("write", "read"):
            contestants = [
                Contestant(name, work(store, what, field)) for name, store in stores.items()
            ]
            line = Line(f"{what} 64 MiB in chunks of 1 MiB, {title}", "ms", bounds)
            yield measure(line, contestants, setting.rounds)
        for name, store in stores.items():
            assert np.array_equal(store.read(), field), name  # noqa: S101 - else it means nothing
            store.close()
    yield appended(pool, setting)
    pool.close()
    engram.destroy(setting.folder / "chunks")


def appended(pool: engram.Pool, setting: Setting) -> Line:
    """Append to an array that has few chunks, and to one that has many."""
    row = np.ones((1, 8))
    contestants = []
    for name, rows in ARRAYS.items():
        array = pool.create_array(name, data=np.ones((rows, 8)), chunks=(1, 8))
        contestants.append(Contestant(name, partial(timed, partial(many, array, row), APPENDS)))
    few, many_chunks = ARRAYS
    line = Line("append one chunk", "us", [Bound(many_chunks, few, "time", 2.0)])
    return measure(line, contestants, setting.rounds)


def many(array: engram.Array, row: NDArray[np.float64]) -> None:
    """Append a row many times."""
    for _ in range(APPENDS):
        array.append(row)


def work(store: Any, what: str, field: NDArray[np.float32]) -> Callable[[], float]:
    """Return a round of one write or one read."""
    if what == "write":
        return lambda: timed(lambda: store.write(field))
    return lambda: timed(store.read)


class Ours:
    """An array of a pool, replaced by each write."""

    def __init__(self, pool: engram.Pool, codec: str) -> None:
        self.pool = pool
        self.codec = codec

    def write(self, values: NDArray[np.float32]) -> None:
        """Replace the array."""
        self.pool.create_array("f", data=values, chunks=CHUNKS, codec=self.codec, overwrite=True)

    def read(self) -> NDArray[np.float32]:
        """Read all of it."""
        found: NDArray[np.float32] = self.pool["f"][...]
        return found

    def close(self) -> None:
        """Delete it."""
        del self.pool["f"]
