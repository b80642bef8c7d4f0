"""Ranks that make one array together, store their parts of it, and read each other's.

`mpirun -n RANKS python mpi_program.py POOL`: ends with 0 on every rank if each saw what it should.
"""

from __future__ import annotations

import sys

import numpy as np
from mpi4py import MPI

import engram

ROWS = 100


def main() -> None:
    """Run one rank."""
    world = MPI.COMM_WORLD
    rank, ranks = world.Get_rank(), world.Get_size()
    if rank == 0:
        engram.create(sys.argv[1], size="64 MiB", force=True).close()
    world.Barrier()
    with engram.open(sys.argv[1], force=True) as pool:
        # All of them ask at once; one of them makes it.
        array = pool.require_array("run/A", shape=(ranks * ROWS, 8), dtype="f8")
        small = pool.require_array("run/small", shape=(ranks,), dtype="i4")
        array[rank * ROWS : (rank + 1) * ROWS] = rank + np.arange(8) / 10
        small[rank] = rank + 1
        oids = world.allgather(array.oid)
        if len(set(oids)) != 1:
            raise SystemExit(f"ranks have different arrays: {oids}")
        try:
            pool.require_array("run/A", shape=(1, 8), dtype="f8")
        except engram.ArgumentError as refused:
            if "(1, 8)" not in str(refused):
                raise
        else:
            raise SystemExit("another shape was accepted")
        world.Barrier()
        wanted = np.repeat(np.arange(ranks), ROWS)[:, None] + np.arange(8) / 10
        np.testing.assert_array_equal(array[...], wanted)
        np.testing.assert_array_equal(small[...], np.arange(1, ranks + 1))


if __name__ == "__main__":
    main()
