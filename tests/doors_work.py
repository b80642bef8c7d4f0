"""What the processes of `test_doors_together.py` do to one pool, by every door at once.

Each prints a line before a piece of work and another one when it is acknowledged, as JSON, and ends
by a signal alone. A process has a place among those that run; what is written in place belongs to
one place each, so that what was last written there is known.
"""

from __future__ import annotations

import json
import sys
from typing import TYPE_CHECKING, Any

import numpy as np
import pyarrow as pa
import xarray as xr
import zarr

import engram
from engram.zarr import Store

if TYPE_CHECKING:
    from collections.abc import Callable

PLACES = 3
LINES, LENGTH = 12, 3000
CHUNKS, CHUNK = 12, 500
CLAIMS = 10_000

_STREAM = dict[str, Any]


def prepare(pool: engram.Pool) -> None:
    """Make what the processes work on."""
    schema = {"who": "int64", "step": "int64", "n": "int64", "rows": "int64"}
    pool.create_table("table", schema=schema)
    lines = xr.DataArray(np.zeros((LINES, LENGTH)), dims=("y", "x"))
    whole = xr.Dataset({"piece": lines, "chunked": lines})
    whole.engram.to_pool(pool.create_group("field"), encoding={"chunked": {"chunks": (1, LENGTH)}})
    root = zarr.create_group(Store(pool.create_group("store")))
    for name in "ab":
        root.create_array(name, shape=(CHUNKS * CHUNK,), chunks=(CHUNK,), dtype="i8")
    pool.create_group("claims")
    for place in range(PLACES):
        pool.create_group(f"moving-{place}")[str(place)] = np.arange(9)


class Worker:
    """One process: what it can do, each by a door of its own."""

    def __init__(self, pool: engram.Pool, who: int, place: int) -> None:
        self.pool, self.who, self.place = pool, who, place
        self.random = np.random.default_rng(who)
        self.step = 0
        self.field = pool["field"]
        self.store = Store(pool["store"])
        self.root = zarr.open_group(self.store)
        self.claims = pool["claims"].watch("@nbytes > 0", timeout=0.005, existing=True)
        self.told_of: set[str] = set()

    @property
    def stamp(self) -> int:
        """A number that nobody else writes, and that is greater each time."""
        return self.who * 1_000_000 + self.step

    def own(self, of: int) -> int:
        """Choose one of those that belong to this place."""
        return int(self.random.choice(np.arange(self.place, of, PLACES)))

    def run(self) -> None:
        """Work until killed."""
        works: list[Callable[[], _STREAM]] = [
            self.append, self.append, self.region, self.chunks, self.claim, self.move, self.compact,
            self.look, self.watch,
        ]  # fmt: skip
        while True:
            self.step += 1
            works[self.random.integers(len(works))]()

    def told(self, kind: str, **what: object) -> _STREAM:
        """Tell of a piece of work that begins."""
        said = {"kind": kind, "stamp": self.stamp, **what}
        sys.stdout.write(json.dumps(said) + "\n")
        sys.stdout.flush()
        return said

    def done(self, said: _STREAM) -> _STREAM:
        """Tell that it is acknowledged."""
        sys.stdout.write(json.dumps(said | {"done": True}) + "\n")
        sys.stdout.flush()
        return said

    def append(self) -> _STREAM:
        """Append rows to the table that all append to."""
        rows = int(self.random.choice([1, 3, 40, 400]))
        said = self.told("append", rows=rows, who=self.who, step=self.step)
        columns = {"who": self.who, "step": self.step, "rows": rows}
        made = {name: np.full(rows, value) for name, value in columns.items()}
        self.pool["table"].append(pa.table(made | {"n": np.arange(rows)}))
        return self.done(said)

    def region(self) -> _STREAM:
        """Write a line of the field in place."""
        line = self.own(LINES)
        said = self.told("region", line=line)
        values = xr.DataArray(np.full((1, LENGTH), float(self.stamp)), dims=("y", "x"))
        part = xr.Dataset({"piece": values, "chunked": values})
        part.engram.to_pool(self.field, region={"y": slice(line, line + 1)})
        return self.done(said)

    def chunks(self) -> _STREAM:
        """Write a chunk of two Zarr arrays, in one commit."""
        chunk = self.own(CHUNKS)
        said = self.told("chunks", chunk=chunk)
        at = slice(chunk * CHUNK, (chunk + 1) * CHUNK)
        try:
            with self.store.batch():
                for name in "ab":
                    self.root[name][at] = self.stamp
        except engram.BusyError:  # somebody was faster, and nothing was done
            return said
        return self.done(said)

    def claim(self) -> _STREAM:
        """Take what only one can take."""
        number = int(self.random.integers(40)) + self.who * 20 % CLAIMS
        said = self.told("claim", number=number, who=self.who)
        try:
            self.pool["claims"].create_blob(str(number), str(self.who).encode())
        except engram.ExistsError:
            return said
        return self.done(said)

    def move(self) -> _STREAM:
        """Give a group another name, which others look into meanwhile."""
        said = self.told("move")
        names = [f"moving-{self.place}", f"moved-{self.place}"]
        now = next(name for name in names if name in self.pool)
        names.remove(now)
        self.pool.move(now, names[0])
        return self.done(said)

    def compact(self) -> _STREAM:
        """Unite the parts of the table."""
        said = self.told("compact")
        try:
            self.pool["table"].compact()
        except engram.BusyError:
            return said
        return self.done(said)

    def watch(self) -> _STREAM:
        """Hear of what others have taken: of all that was there when the sleep began."""
        said = self.told("watch")
        there = set(self.pool["claims"])
        self.told_of |= {blob.name for blob in self.claims}
        assert there <= self.told_of, "a watcher hears of every commit"
        return self.done(said)

    def look(self) -> _STREAM:
        """Look at everything as of one moment."""
        said = self.told("look")
        with self.pool.snapshot() as moment:
            check(moment)
        return self.done(said)


def check(moment: Any) -> None:
    """Check what must hold at every moment."""
    found = moment["table"].to_pandas()
    counts = found.groupby(["who", "step"]).agg({"n": ["count", "max"], "rows": ["min", "max"]})
    rows = counts["rows", "min"].to_numpy()
    assert (counts["n", "count"].to_numpy() == rows).all(), "an append is whole, and there once"
    assert (counts["n", "max"].to_numpy() == rows - 1).all()
    lines = moment["field"]["chunked"][...]
    assert (lines == lines[:, :1]).all(), "a chunk is written whole"
    root = zarr.open_group(Store(moment["store"], read_only=True), mode="r")
    first, second = root["a"][...], root["b"][...]
    assert np.array_equal(first, second), "a batch is of one moment"
    chunks = first.reshape(CHUNKS, CHUNK)
    assert (chunks == chunks[:, :1]).all()
    for place in range(PLACES):
        names = [name for name in (f"moving-{place}", f"moved-{place}") if name in moment]
        assert len(names) == 1, "a group has one name at a time"
        assert moment[names[0]][str(place)][...].tolist() == list(range(9))


if __name__ == "__main__":
    with engram.open(sys.argv[1]) as opened:
        Worker(opened, int(sys.argv[2]), int(sys.argv[3])).run()
