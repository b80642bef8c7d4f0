"""Zarr: a group of a pool as a store of Zarr's, and a pool's own arrays as Zarr arrays.

There are two doors, one for each direction. `Store(group)` is where zarr keeps what it writes: each
key is a blob, found at that path below the group, and what zarr reads are views of the pool's
memory (`store.py`). `view(group)` shows what is in a pool already as Zarr arrays, for reading: a
chunk of an array that lies in one piece is a part of its memory (`view.py`).

Both are asked by zarr in its own thread, one call after the other, and answer there: a look-up and
a copy of some KiB take less time than handing them to another thread would.
"""

from engram.extras import library

library("zarr", "zarr", "engram.zarr")

from engram.zarr.store import Store  # noqa: E402 - what is missing is told first
from engram.zarr.view import View, view  # noqa: E402

__all__ = ["Store", "View", "view"]
