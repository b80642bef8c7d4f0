"""Ranks write blocks by turns and read those of their neighbours, as IOR does.

    mpirun -n 4 python blocks.py posix|mpi shared|each PATH

All write to one file, a block of each rank after the other, or each to a file of its own: with the
system calls of POSIX, or with MPI-IO, where all ranks write together.
"""

import os
import sys

from mpi4py import MPI

TRANSFER, SEGMENTS = 128 << 10, 8
by, which, path = sys.argv[1:]
world = MPI.COMM_WORLD
rank, count = world.rank, world.size


def block(of: int, segment: int) -> bytes:
    """Give what a rank writes in a segment."""
    return bytes([1 + of, segment]) * (TRANSFER // 2)


def place(of: int, segment: int) -> int:
    """Say where that is in its file."""
    return (segment if which == "each" else segment * count + of) * TRANSFER


def file_of(of: int) -> str:
    return f"{path}.{of}" if which == "each" else path


def by_posix() -> None:
    fd = os.open(file_of(rank), os.O_CREAT | os.O_RDWR, 0o644)
    for segment in range(SEGMENTS):
        assert os.pwrite(fd, block(rank, segment), place(rank, segment)) == TRANSFER
    os.fsync(fd)
    os.close(fd)
    world.Barrier()
    other = (rank + 1) % count
    fd = os.open(file_of(other), os.O_RDONLY)
    for segment in range(SEGMENTS):
        assert os.pread(fd, TRANSFER, place(other, segment)) == block(other, segment)
    os.close(fd)


def by_mpi() -> None:
    group = MPI.COMM_SELF if which == "each" else world
    file = MPI.File.Open(group, file_of(rank), MPI.MODE_CREATE | MPI.MODE_RDWR)
    for segment in range(SEGMENTS):
        file.Write_at_all(place(rank, segment), block(rank, segment))
    file.Sync()
    file.Close()
    world.Barrier()
    other = (rank + 1) % count
    file = MPI.File.Open(group, file_of(other), MPI.MODE_RDONLY)
    found = bytearray(TRANSFER)
    for segment in range(SEGMENTS):
        file.Read_at_all(place(other, segment), found)
        assert found == block(other, segment), (rank, segment)
    file.Close()


by_mpi() if by == "mpi" else by_posix()
