"""A program as users write it: particles are pushed, every step is stored, all is read again.

A step moves the particles in a wave's field and stores their eight variables, each an array with
eight attributes. Then the file, or the pool, is opened again, each step is read, and the energies
are binned. What the program asks of a library is behind three methods, and the time in them is the
library's time.
"""

from __future__ import annotations

import os
import time
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Literal, Protocol

import h5py
import netCDF4
import numpy as np

import engram
from bench.compare.memory import Mapping
from bench.kernels.particles import ITEM_BYTES, UNITS, VARIABLES

if TYPE_CHECKING:
    from pathlib import Path

    from bench.kernels.particles import Attributes, Values

    Fields = dict[str, Values]

TIME_STEP = 0.01
BINS = 64


class Library(Protocol):
    """What a program asks of a library."""

    def begin(self, mode: Literal["r", "w"]) -> None:
        """Open what is stored, to write it anew ("w") or to read it ("r")."""

    def save(self, step: int, fields: Fields, attributes: dict[str, Attributes]) -> None:
        """Store the variables of a step with their attributes."""

    def load(self, step: int) -> Fields:
        """Read the variables of a step."""

    def end(self) -> None:
        """Close it."""


class WithH5py:
    """`h5py` with its defaults: a group for each step, attributes one by one."""

    def __init__(self, folder: Path) -> None:
        self.path = folder / "program.h5"

    def begin(self, mode: Literal["r", "w"]) -> None:
        self.file = h5py.File(self.path, mode)

    def save(self, step: int, fields: Fields, attributes: dict[str, Attributes]) -> None:
        group = self.file.create_group(str(step))
        for name, values in fields.items():
            made = group.create_dataset(name, data=values)
            for key, value in attributes[name].items():
                made.attrs[key] = value

    def load(self, step: int) -> Fields:
        group = self.file[str(step)]
        return {name: group[name][...] for name in VARIABLES}

    def end(self) -> None:
        self.file.close()


class WithNetCdf:
    """`netCDF4` with a dimension for the particles, nothing filled first, a group for each step."""

    def __init__(self, folder: Path) -> None:
        self.path = folder / "program.nc"

    def begin(self, mode: Literal["r", "w"]) -> None:
        self.file = netCDF4.Dataset(self.path, mode)
        self.file.set_auto_maskandscale(False)
        if mode == "w":
            self.file.set_fill_off()

    def save(self, step: int, fields: Fields, attributes: dict[str, Attributes]) -> None:
        if "particle" not in self.file.dimensions:
            self.file.createDimension("particle", fields["x"].size)
        group = self.file.createGroup(str(step))
        for name, values in fields.items():
            made = group.createVariable(name, "f4", ("particle",), contiguous=True)
            made.setncatts(attributes[name])
            made[:] = values

    def load(self, step: int) -> Fields:
        group = self.file[str(step)]
        return {name: group[name][:] for name in VARIABLES}

    def end(self) -> None:
        self.file.close()


class WithEngram:
    """Engram with its defaults: an object is a commit of its own, and indexed in it.

    The pool is there before the program runs, and was written to; a file is made by it.
    """

    def __init__(self, folder: Path) -> None:
        self.path = folder / "program.pool"
        engram.create(self.path, size=1 << 30).close()

    def begin(self, mode: Literal["r", "w"]) -> None:
        self.pool = engram.open(self.path, mode="r" if mode == "r" else "r+")
        self.group = self.pool["run"] if mode == "r" else self.pool.create_group("run")

    def save(self, step: int, fields: Fields, attributes: dict[str, Attributes]) -> None:
        group = self.group.create_group(str(step))
        for name, values in fields.items():
            group.create_array(name, data=values, attrs=attributes[name])

    def load(self, step: int) -> Fields:
        group = self.group[str(step)]
        return {name: group[name][...] for name in VARIABLES}

    def end(self) -> None:
        self.pool.close()

    def clear(self) -> None:
        """Delete what the last run stored."""
        with engram.open(self.path) as pool:
            if "run" in pool:
                del pool["run"]

    def destroy(self) -> None:
        """Destroy the pool."""
        engram.destroy(self.path)


class Timed:
    """A library and the time that was spent in it."""

    def __init__(self, library: Library) -> None:
        self.library = library
        self.taken_s = 0.0

    def __getattr__(self, name: str) -> Any:
        """Give the library's method, timed."""
        method = getattr(self.library, name)

        def call(*arguments: Any) -> Any:
            start = time.perf_counter()
            try:
                return method(*arguments)
            finally:
                self.taken_s += time.perf_counter() - start

        return call


@dataclass(frozen=True)
class Ran:
    """How long a run took in all, and in the library."""

    whole_s: float
    library_s: float


@dataclass(frozen=True)
class Program:
    """So many steps of particles whose variables have `nbytes` each."""

    nbytes: int
    steps: int

    def run(self, library: Library) -> Ran:
        """Simulate and store, then read and analyse."""
        start = time.perf_counter()
        store = Timed(library)
        fields, stored = self.first(), 0.0
        store.begin("w")
        for step in range(self.steps):
            push(fields)
            store.save(step, fields, self.attributes(step, fields))
            stored += float(fields["energy"].sum())
        store.end()
        store.begin("r")
        found = 0.0
        for step in range(self.steps):
            there = store.load(step)
            np.histogram(there["energy"], BINS, weights=there["weight"])
            found += float(there["energy"].sum())
        store.end()
        ran = Ran(time.perf_counter() - start, store.taken_s)
        if found != stored:
            message = f"{type(library).__name__} gives other values back than were stored"
            raise RuntimeError(message)
        return ran

    def first(self) -> Fields:
        """Particles at the start."""
        numbers = np.random.default_rng(3)
        size = self.nbytes // ITEM_BYTES
        return {name: numbers.random(size, np.float32) for name in VARIABLES}

    def attributes(self, step: int, fields: Fields) -> dict[str, Attributes]:
        """Attributes of each variable."""
        return {
            name: {
                "variable": name,
                "units": UNITS[place],
                "species": "electron",
                "rank": 0,
                "particles": values.size,
                "step": step,
                "time": step * TIME_STEP,
                "largest": float(values.max()),
            }
            for place, (name, values) in enumerate(fields.items())
        }

    def moved_by_calls(self, folder: Path) -> float:
        """Seconds that the same bytes take to a new file and back, in the same pieces."""
        values = self.first()["x"]
        path = folder / "program.bytes"
        start = time.perf_counter()
        file = os.open(path, os.O_RDWR | os.O_CREAT)
        for i in range(self.pieces):
            os.pwrite(file, values.data, i * self.nbytes)
        for i in range(self.pieces):
            os.preadv(file, [np.empty_like(values).data], i * self.nbytes)
        os.close(file)
        taken_s = time.perf_counter() - start
        path.unlink()
        return taken_s

    def moved_by_copies(self, folder: Path) -> float:
        """Seconds that they take to warm pages of a mapping of a file and back."""
        values = self.first()["x"]
        mapping = Mapping(folder, self.nbytes * self.pieces).warm()
        pages = np.frombuffer(mapping.map, np.float32).reshape(self.pieces, -1)
        start = time.perf_counter()
        for page in pages:
            page[:] = values
        for page in pages:
            page.copy()
        taken_s = time.perf_counter() - start
        mapping.remove()
        return taken_s

    @property
    def pieces(self) -> int:
        """How many arrays it stores."""
        return self.steps * len(VARIABLES)


def push(fields: Fields) -> None:
    """Move the particles by a step, in the field of a wave."""
    for axis in "xyz":
        place, speed = fields[axis], fields[f"u{axis}"]
        speed += np.float32(TIME_STEP) * np.sin(np.float32(2 * np.pi) * place)
        place += np.float32(TIME_STEP) * speed
        place %= np.float32(1)
    fields["energy"][:] = 0.5 * sum(fields[f"u{axis}"] ** 2 for axis in "xyz")
