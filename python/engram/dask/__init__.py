"""Dask: arrays of a pool as dask's, and dask's arrays written to a pool by all workers at once.

    x = engram.dask.from_pool(pool["run-17/T"])           lazily, on the pool's own memory
    engram.dask.to_pool(x.mean(0), pool, "climate/T")     in place, seen whole or not at all
    engram.dask.install(client, pool="/dev/shm/pool")     results go between workers by reference

Reading is `source.py`, writing `target.py` with `staging.py`. What a worker sends to another on the
same node is told of in `plugin.py`: a reference to pool memory (`reference.py`) in place of bytes,
and results that are left in the pool so that there is one (`scratch.py`).
"""

from engram.extras import library

library("dask.array", "dask", "engram.dask")

from engram.dask.installing import empty, install, uninstall  # noqa: E402 - what is missing first
from engram.dask.source import from_pool  # noqa: E402
from engram.dask.target import to_pool  # noqa: E402

__all__ = ["empty", "from_pool", "install", "to_pool", "uninstall"]
