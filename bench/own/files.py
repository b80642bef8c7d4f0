"""Importing files: many small ones, and one of 2 GiB, beside reading them with their own library.

    python -m bench.own.files FILE POOL

imports one file into a pool and prints the seconds that it took, and the most anonymous memory that
the process has had meanwhile, in bytes.
"""

from __future__ import annotations

import os
import subprocess
import sys
import threading
from pathlib import Path
from typing import TYPE_CHECKING, Any

import h5py
import netCDF4
import numpy as np

import engram
from bench.compare.memory import have_memory
from bench.harness import Bound, Contestant, Line, measure, timed

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from bench.setting import Setting

MANY = 1_000
VARIABLES = 6
ATTRIBUTES = 10
VALUES = np.linspace(200.0, 300.0, 800, dtype="f4").reshape(4, 10, 20)
DIMS = {"time": 4, "lat": 10, "lon": 20}
SPEED = 0.7  # beside the library's own reading
COPY = 0.9  # beside `cp`

LARGE = (512, 1024, 1024)  # 2 GiB of float32
SMALLER = 8
STEPS = 4  # read at once: 16 MiB
LIMIT_BYTES = 300 << 20
WATCH_S = 0.002


def lines(setting: Setting) -> Iterator[Line]:
    """Import many small files of each format, then large ones."""
    for name, (make, read) in SMALL.items():
        yield small(setting, name, make, read)
    for name in LARGE_FILES:
        yield from large(setting, name)


def small(
    setting: Setting, name: str, make: Callable[[Path], None], read: Callable[[Path], None]
) -> Line:
    """Import a folder of small files, in one process and with a worker for each core."""
    folder = setting.folder / f"files-{name}"
    folder.mkdir()
    files = [folder / f"{number:04d}" for number in range(setting.scaled(MANY))]
    for file in files:
        make(file)
    cores = len(os.sched_getaffinity(0))
    ours, all_cores, own = "engram", f"engram -j {cores}", f"{name} alone"

    def read_all() -> None:
        for file in files:
            read(file)

    contestants = [
        Contestant(own, lambda: timed(read_all, len(files))),
        Contestant(ours, lambda: imported(setting, files, 1)),
        Contestant(all_cores, lambda: imported(setting, files, cores)),
    ]
    line = Line(
        f"import {len(files):,} small {name} files, each",
        "us",
        [Bound(all_cores, own, "speed", SPEED), Bound(ours, own, "speed", SPEED)],
    )
    return measure(line, contestants, max(setting.rounds // 3, 1))


def imported(setting: Setting, files: list[Path], workers: int) -> float:
    """Import files into a new pool; give the seconds for each."""
    at = setting.folder / "files-pool"
    with engram.create(at, size="1 GiB") as pool:
        found: list[Any] = []

        def work() -> None:
            found.extend(engram.import_files(files, pool, workers=workers))

        taken_s = timed(work, len(files))
        assert len(pool) == len(found) == len(files)  # noqa: S101 - else nothing is compared
    engram.destroy(at)
    return taken_s


def large(setting: Setting, name: str) -> Iterator[Line]:
    """Import one large file in a new process, beside reading it piece by piece with h5py.

    One that is not compressed is also copied by `cp`.
    """
    make, rounds = LARGE_FILES[name]
    shape = (LARGE[0] // SMALLER if setting.quick else LARGE[0], *LARGE[1:])
    nbytes = 4 * int(np.prod(shape))
    path, at = setting.folder / "files-large", setting.folder / "files-pool"
    make(path, shape)
    memory: list[float] = []

    def run() -> float:
        have_memory(setting.folder / "memory", nbytes)
        engram.create(at, size=nbytes + (1 << 28)).close()
        command = [sys.executable, "-m", "bench.own.files", str(path), str(at)]
        done = subprocess.run(command, check=True, capture_output=True, text=True)  # noqa: S603
        engram.destroy(at)
        taken_s, peak = done.stdout.split()
        memory.append(float(peak))
        return float(taken_s)

    size = f"{nbytes >> 20} MiB, {name}"
    contestants = [
        Contestant("h5py alone", lambda: timed(lambda: read_pieces(path))),
        Contestant("engram", run),
    ]
    line = Line(f"import {size}", "ms", [Bound("engram", "h5py alone", "show")])
    if make is contiguous:
        contestants.append(Contestant("cp", lambda: copied(path, nbytes)))
        line.bounds.append(Bound("engram", "cp", "speed", COPY))
    yield measure(line, contestants, 1 if setting.quick else rounds)
    held = Line(f"anonymous memory, {size}", "B", [Bound("engram", "", "value", LIMIT_BYTES)])
    held.samples["engram"] = memory
    yield held
    path.unlink()


def copied(path: Path, nbytes: int) -> float:
    """Copy a file to a new one beside it; give the seconds."""
    copy = path.with_name("files-copy")
    have_memory(copy, nbytes)
    command = ["cp", str(path), str(copy)]
    taken_s = timed(lambda: subprocess.run(command, check=True))  # noqa: S603
    copy.unlink()
    return taken_s


def read_pieces(path: Path) -> None:
    """Read a dataset of three dimensions 16 MiB at a time into the same memory, as one does."""
    with h5py.File(path) as file:
        dataset = file["v"]
        out = np.empty((STEPS, *dataset.shape[1:]), dataset.dtype)
        for start in range(0, dataset.shape[0], STEPS):
            dataset.read_direct(out, np.s_[start : start + STEPS])


def attributes(number: int) -> dict[str, Any]:
    """Return the attributes of a variable."""
    some: dict[str, Any] = {"units": "K", "long_name": f"variable {number}", "scale": 1.5}
    return {**some, **{f"note_{n}": f"text {n}" for n in range(ATTRIBUTES - len(some))}}


def make_hdf5(path: Path) -> None:
    """Make a small HDF5 file."""
    with h5py.File(path, "w") as file:
        for number in range(VARIABLES):
            dataset = file.create_dataset(f"v{number}", data=VALUES)
            dataset.attrs.update(attributes(number))


def make_netcdf(path: Path, model: Any = "NETCDF4") -> None:
    """Make a small netCDF file: three coordinates and three fields."""
    with netCDF4.Dataset(path, "w", format=model) as file:
        for name, length in DIMS.items():
            file.createDimension(name, None if name == "time" else length)
        shapes = [*((name,) for name in DIMS), *[tuple(DIMS)] * (VARIABLES - len(DIMS))]
        for number, dims in enumerate(shapes):
            name = dims[0] if len(dims) == 1 else f"v{number}"
            variable = file.createVariable(name, "f4", dims)
            variable.setncatts(attributes(number))
            variable[:] = VALUES if len(dims) > 1 else np.arange(DIMS[dims[0]])


def make_classic(path: Path) -> None:
    """Make a small classic netCDF file."""
    make_netcdf(path, "NETCDF3_CLASSIC")


def read_hdf5(path: Path) -> None:
    """Read every dataset and attribute with h5py."""
    with h5py.File(path) as file:
        for dataset in file.values():
            dict(dataset.attrs.items())
            dataset[...]


def read_netcdf(path: Path) -> None:
    """Read every variable and attribute with netCDF4, raw."""
    with netCDF4.Dataset(path) as file:
        file.set_auto_maskandscale(False)
        for variable in file.variables.values():
            for name in variable.ncattrs():
                variable.getncattr(name)
            variable[...]


def fill(dataset: Any, shape: tuple[int, int, int]) -> None:
    """Write all of a large dataset, some of it at a time."""
    some = np.random.default_rng(0).integers(0, 99, (8, *shape[1:])).astype("f4")
    for start in range(0, shape[0], len(some)):
        dataset[start : start + len(some)] = some


def contiguous(path: Path, shape: tuple[int, int, int]) -> None:
    """Make a large file in one piece."""
    with h5py.File(path, "w") as file:
        fill(file.create_dataset("v", shape, "f4"), shape)


def compressed(path: Path, shape: tuple[int, int, int]) -> None:
    """Make a large file of compressed chunks of 1 MiB."""
    with h5py.File(path, "w") as file:
        options: dict[str, Any] = {"chunks": (1, 256, 1024), "compression": "lzf"}
        fill(file.create_dataset("v", shape, "f4", **options), shape)


SMALL = {
    "HDF5": (make_hdf5, read_hdf5),
    "netCDF-4": (make_netcdf, read_netcdf),
    "classic": (make_classic, read_netcdf),
}
LARGE_FILES = {"contiguous": (contiguous, 5), "compressed": (compressed, 2)}
"""What makes each, and how many rounds there are."""


def main() -> None:
    """Import one file, and watch this process's memory meanwhile."""
    peak, done = 0, threading.Event()

    def watch() -> None:
        nonlocal peak
        while not done.wait(WATCH_S):
            peak = max(peak, anonymous())

    with engram.open(sys.argv[2]) as pool:
        watcher = threading.Thread(target=watch)
        watcher.start()
        taken_s = timed(lambda: engram.import_file(sys.argv[1], pool))
        done.set()
        watcher.join()
    print(taken_s, max(peak, anonymous()))  # noqa: T201 - the answer


def anonymous() -> int:
    """Return the bytes of anonymous memory that this process has."""
    status = Path("/proc/self/status").read_text(encoding="ascii").splitlines()
    return next(int(line.split()[1]) << 10 for line in status if line.startswith("RssAnon"))


if __name__ == "__main__":
    main()
