"""Who runs the kernels: each a store of one process, behind the same methods.

HDF5 is called through h5py's low-level modules, which add the least to the C library's own time
(half of what `h5py.Dataset.attrs` takes), with types and spaces made once: what is compared is
the library and not the package around it. As in the paper, each process has a file of its own and
an index of its own in its memory.
"""

from __future__ import annotations

import mmap
import os
from typing import TYPE_CHECKING, Any, Protocol

import h5py
import numpy as np
from h5py import h5a, h5d, h5g, h5s, h5t

from bench.kernels.index import Index
from bench.kernels.particles import VARIABLES

if TYPE_CHECKING:
    from collections.abc import Sequence
    from pathlib import Path

    import engram
    from bench.kernels.particles import Attributes, Values
    from engram.index import IndexMode

    Named = Sequence[tuple[str, Attributes]]


PIECE, PIECES = 512 << 10, 64


class Store(Protocol):
    """What a kernel does to a store. `begin` is not part of any time."""

    def begin(self, turn: int, *, again: bool) -> None:
        """Make ready for a round; `again`: in the space that the last round took."""

    def write(self, objects: Named, values: Values) -> None:
        """Store an object of `values` for each name, with its attributes."""

    def read(self, objects: Named, out: Values) -> None:
        """Find each by its name, and read its values: to `out`, or to memory of their own."""

    def close(self) -> None:
        """Close it."""


class Own:
    """Engram: a group of a pool that all processes have open; an object is a commit of its own."""

    def __init__(self, pool: engram.Pool, rank: int, index: IndexMode | None = None) -> None:
        self.pool = pool
        self.index = index
        self.place = f"{index}-{rank}"

    def begin(self, turn: int, *, again: bool) -> None:
        if again and turn:
            del self.pool[f"{self.place}/{turn - 1}"]
        self.group = self.pool.create_group(f"{self.place}/{turn}")

    def write(self, objects: Named, values: Values) -> None:
        create = self.group.create_array
        for name, attributes in objects:
            create(name, data=values, attrs=attributes, index=self.index)

    def read(self, objects: Named, out: Values) -> None:
        del out
        group = self.group
        for name, _ in objects:
            group[name][...]

    def close(self) -> None:
        """Nothing: the pool is another's."""


class OwnBatched(Own):
    """The same, one commit for each block of eight variables."""

    def __init__(self, pool: engram.Pool, rank: int) -> None:
        super().__init__(pool, rank)
        self.place = f"batched-{rank}"

    def write(self, objects: Named, values: Values) -> None:
        create = self.group.create_array
        for start in range(0, len(objects), len(VARIABLES)):
            with self.pool.batch():
                for name, attributes in objects[start : start + len(VARIABLES)]:
                    create(name, data=values, attrs=attributes)


class Hdf5:
    """MIQS+ on HDF5: a file, and an index in memory that each object's attributes go into."""

    def __init__(self, folder: Path, rank: int) -> None:
        self.path = folder / f"peer-{rank}.h5"
        self.file = h5py.File(self.path, "w")
        self.scalar = h5s.create(h5s.SCALAR)
        self.text: dict[int, h5t.TypeID] = {}
        self.index = Index()

    def begin(self, turn: int, *, again: bool) -> None:
        if again and turn:
            del self.file[f"{turn - 1}"]
            self.index = Index()
        self.place = f"{turn}"
        self.group = h5g.create(self.file.id, self.place.encode())

    def write(self, objects: Named, values: Values) -> None:
        space, kind = h5s.create_simple(values.shape), h5t.NATIVE_FLOAT
        for name, attributes in objects:
            made = h5d.create(self.group, name.encode(), kind, space)
            made.write(h5s.ALL, h5s.ALL, values)
            for key, value in attributes.items():
                self.annotate(made, key.encode(), value)
            self.index.insert(f"{self.place}/{name}", attributes)

    def annotate(self, made: h5d.DatasetID, key: bytes, value: float | str) -> None:
        """Give a dataset an attribute."""
        kind: h5t.TypeID
        if isinstance(value, str):
            item = np.array(value.encode())
            kind = self.text.get(item.itemsize)
            if kind is None:
                kind = self.text[item.itemsize] = h5t.C_S1.copy()
                kind.set_size(item.itemsize)
        else:
            item = np.array(value)
            kind = h5t.NATIVE_INT64 if isinstance(value, int) else h5t.NATIVE_DOUBLE
        h5a.create(made, key, kind, self.scalar).write(item)

    def read(self, objects: Named, out: Values) -> None:
        for name, _ in objects:
            h5d.open(self.group, name.encode()).read(h5s.ALL, h5s.ALL, out)

    def close(self) -> None:
        self.file.close()


class Peak:
    """The mount's peak: bytes alone, copied to and from a warm mapping of a file, in pieces."""

    def __init__(self, folder: Path, rank: int) -> None:
        self.path = folder / f"plain-{rank}"
        self.file = os.open(self.path, os.O_RDWR | os.O_CREAT)
        os.ftruncate(self.file, PIECE * PIECES)
        self.map: Any = np.frombuffer(mmap.mmap(self.file, PIECE * PIECES), np.uint8)
        self.pieces = self.map.reshape(PIECES, PIECE)
        self.memory = np.ones(PIECE, np.uint8)
        self.map[:] = 1

    def write(self) -> None:
        """Write all pieces."""
        for piece in self.pieces:
            piece[:] = self.memory

    def read(self) -> None:
        """Read all pieces."""
        for piece in self.pieces:
            self.memory[:] = piece

    def close(self) -> None:
        """Close the file and remove it."""
        os.close(self.file)
        self.path.unlink()


class PeakOfCalls(Peak):
    """The same with the system's calls, as files are written and read."""

    def write(self) -> None:
        for i in range(PIECES):
            os.pwrite(self.file, self.memory.data, i * PIECE)

    def read(self) -> None:
        for i in range(PIECES):
            os.preadv(self.file, [self.memory.data], i * PIECE)
