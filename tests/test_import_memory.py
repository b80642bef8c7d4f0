"""Files larger than the memory that an import may take: what it holds is bounded."""

from __future__ import annotations

import subprocess
import sys
from typing import TYPE_CHECKING, Any

import h5py
import netCDF4
import numpy as np
import pytest

import engram
from engram.formats import stream

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

MIB = 1 << 20
SHAPE = (24, 1024, 1024)
BOUND = 90 * MIB

CHILD = """
import sys, threading
import engram
from engram import formats
from engram.formats.hdf5 import read
from engram.formats.netcdf import read3, read4

def anonymous():
    with open("/proc/self/status") as status:
        return next(int(line.split()[1]) << 10 for line in status if line.startswith("RssAnon"))

peak = before = anonymous()

def look():
    global peak
    while not done.wait(0.001):
        peak = max(peak, anonymous())

done = threading.Event()
watcher = threading.Thread(target=look, daemon=True)
watcher.start()
with engram.open(sys.argv[2]) as pool:
    engram.import_file(sys.argv[1], pool)
done.set()
watcher.join()
print(peak - before)
"""


def contiguous(path: Path) -> None:
    with h5py.File(path, "w") as file:
        file.create_dataset("v", SHAPE, "f4")[...] = 1


def compressed(path: Path) -> None:
    with h5py.File(path, "w") as file:
        file.create_dataset("v", SHAPE, "f4", chunks=(1, 256, 1024), compression="lzf")[...] = 1


def in_one_chunk(path: Path) -> None:
    with h5py.File(path, "w") as file:
        file.create_dataset("v", SHAPE, "f4", chunks=SHAPE)[...] = 1


def unlimited(path: Path, model: Any = "NETCDF4") -> None:
    with netCDF4.Dataset(path, "w", format=model) as file:
        for name, length in zip("tyx", (None, *SHAPE[1:]), strict=True):
            file.createDimension(name, length)
        variable = file.createVariable("v", "f4", ("t", "y", "x"))
        file.createVariable("w", "f4", ("t",))
        for step in range(SHAPE[0]):
            variable[step] = 1


def classic(path: Path) -> None:
    unlimited(path, "NETCDF3_64BIT_OFFSET")


def strings(path: Path) -> None:
    words = np.array([f"{n:->100}" for n in range(50_000)], object)
    with h5py.File(path, "w") as file:
        dataset = file.create_dataset("v", (900_000,), h5py.string_dtype(), chunks=(50_000,))
        for start in range(0, 900_000, 50_000):
            dataset[start : start + 50_000] = words


@pytest.mark.parametrize(
    "make", [contiguous, compressed, in_one_chunk, unlimited, classic, strings]
)
def test_a_file_larger_than_the_bound_is_imported_within_it(
    home: Path, tmp_path: Path, make: Callable[[Path], None]
) -> None:
    make(tmp_path / "x")
    assert (tmp_path / "x").stat().st_size > BOUND or make is compressed
    with engram.create(home / "pool", size="256 MiB", force=True) as pool:
        command = [sys.executable, "-c", CHILD, str(tmp_path / "x"), str(home / "pool")]
        done = subprocess.run(command, capture_output=True, text=True, check=False)
        assert done.returncode == 0, done.stderr
        assert 0 < int(done.stdout) < BOUND
        if make is strings:
            assert pool["v"].shape == (900_000,)
            assert str(pool["v"][-1]) == f"{49_999:->100}"
        else:
            assert pool["v"].view().min() == pool["v"].view().max() == 1


@pytest.mark.parametrize("shape", [(1000,), (40, 25), (10, 10, 10)])
def test_streamed_strings_arrive_as_they_are(
    pool: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, shape: tuple[int, ...]
) -> None:
    monkeypatch.setattr(stream, "STREAM_FROM", 10)
    monkeypatch.setattr(stream, "BLOCK_BYTES", 1 << 14)
    words = np.array([f"{n}é" * (n % 7) for n in range(1000)], object).reshape(shape)
    with h5py.File(tmp_path / "x.h5", "w") as file:
        chunks = tuple(max(1, n // 3) for n in shape)
        file.create_dataset("v", data=words, dtype=h5py.string_dtype(), chunks=chunks)
    report = engram.import_file(tmp_path / "x.h5", pool.create_group("a"))
    assert pool["a/v"][...].tolist() == words.tolist()
    assert report.nbytes == sum(len(w.encode()) for w in words.flat)
    with h5py.File(tmp_path / "x.h5", "a") as file:
        for axis in range(len(shape)):
            file["v"].dims[axis].label = f"d{axis}"
    engram.import_file(tmp_path / "x.h5", pool.create_group("b"), slices="d0=1:9:3")
    assert pool["b/v"][...].tolist() == words[1:9:3].tolist()


def test_streamed_strings_of_which_one_is_no_utf8_are_kept_as_bytes_and_noted(
    pool: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(stream, "STREAM_FROM", 10)
    words = [b"w"] * 50 + [b"\xb0C"]
    with h5py.File(tmp_path / "x.h5", "w") as file:
        file.create_dataset("v", data=words, dtype=h5py.string_dtype("ascii"))
    report = engram.import_file(tmp_path / "x.h5", pool)
    assert pool["v"][...].tolist() == words
    assert [(e.path, e.what) for e in report.noted] == [("/v", "dataset")]


def test_strings_that_change_while_they_are_streamed_leave_nothing(
    pool: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(stream, "STREAM_FROM", 10)
    with h5py.File(tmp_path / "x.h5", "w") as file:
        file["v"] = ["one"] * 20
    real, calls = stream._blocks, iter([False, True])

    def blocks(*arguments: Any) -> Any:
        changed = next(calls)
        for block in real(*arguments):
            yield [*block[:-1], b"longer"] if changed else block

    monkeypatch.setattr(stream, "_blocks", blocks)
    used = pool.used
    with pytest.raises(engram.BusyError, match="changed while they were read"):
        engram.import_file(tmp_path / "x.h5", pool)
    assert list(pool) == []
    assert pool.used == used
