"""Zarr: a group of a pool as a store of Zarr's, and a pool's own arrays as Zarr arrays.

There are two doors, one for each direction. `Store(group)` is where zarr keeps what it writes: each
key is a blob, found at that path below the group, and what zarr reads are views of the pool's
memory (`store.py`). `view(group)` shows what is in a pool already as Zarr arrays, for reading: a
chunk of an array that lies in one piece is a part of its memory (`view.py`).

`ClusterStore("engram://NAME/run")` is both of a cluster: it shows arrays over nodes, each chunk
from where its part lies, and publishes what is written within a batch (`clusters.py`, `nodes.py`).

The first two are asked by zarr in its own thread, one call after the other, and answer there: a
look-up and a copy of some KiB take less time than handing them to another thread would.
"""

from typing import Any

from engram.extras import library

library("zarr", "zarr", "engram.zarr")

from engram.zarr.store import Store  # noqa: E402 - what is missing is told first
from engram.zarr.view import View, view  # noqa: E402

__all__ = ["ClusterStore", "Store", "View", "view"]


def __getattr__(name: str) -> Any:
    """Give the door to clusters, which one node needs nothing of."""
    if name != "ClusterStore":
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    from engram.zarr.clusters import ClusterStore  # noqa: PLC0415

    return ClusterStore
