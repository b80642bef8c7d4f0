"""What the tests share: exact comparison, dtypes of every kind, children."""

import os
import subprocess
import sys
import tempfile
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray

TEXT = np.dtypes.StringDType()
PATIENCE = 60
"""Seconds after which what has not happened is not waited for any longer."""

SCALARS = [
    *("?", "i1", "u1", "<i2", ">i2", "<u2", ">u2", "<i4", ">i4", "<u4", ">u4"),
    *("<i8", ">i8", "<u8", ">u8", "<f2", ">f2", "<f4", ">f4", "<f8", ">f8"),
    *("<c8", ">c8", "<c16", ">c16", np.dtype("longdouble").str, np.dtype("clongdouble").str),
    *("S1", "S7", "<U1", ">U5", "V3", "V16", "<M8", "<m8", ">M8[D]", "<M8[ns]", "<M8[25us]"),
    *("<m8[ns]", ">m8[h]", "<m8[7D]", "<M8[as]", "<M8[Y]", "<m8[W]"),
]

_XY = [("x", "<f4"), ("y", ">f8")]

STRUCTURED = [
    np.dtype(_XY),
    np.dtype([("name", "S5"), ("title", "<U3"), ("when", "<M8[ms]"), ("on", "?")]),
    np.dtype([("inner", _XY), ("deeper", [("innermost", _XY), ("n", "u1")])]),
    np.dtype([("grid", "<i2", (2, 3)), ("cells", _XY, (2,)), ("none", "f8", (0,))]),
    np.dtype([("a", "u1"), ("b", "f8"), ("c", "i2")], align=True),
    np.dtype({"names": ["b", "a"], "formats": ["<i4", "u1"], "offsets": [5, 1], "itemsize": 16}),
    np.dtype({"names": ["all", "low"], "formats": ["<u4", "<u2"], "offsets": [0, 0]}),
    np.dtype([(("A title", "a"), "<f8"), ("b", "u1")]),
    np.dtype([("", "f8"), ("ünïcode name", ">c8")]),
    np.dtype([]),
]

DTYPES = [np.dtype(name) for name in SCALARS] + STRUCTURED

BIG = bytes(range(256)) * 1024
"""A blob that is not in the catalog."""


def filled(dtype: np.dtype[Any], shape: tuple[int, ...], seed: int = 0) -> NDArray[Any]:
    """Make an array of random values, the same for the same seed."""
    rng = np.random.default_rng(seed)
    if dtype.kind == "U":
        letters = rng.integers(0x21, 0x2FF, size=(*shape, dtype.itemsize // 4), dtype=np.uint32)
        return letters.astype(dtype.byteorder + "u4").view(dtype).reshape(shape)
    if dtype.kind == "b":
        return rng.integers(0, 2, size=shape).astype(bool)
    if dtype.names is not None:
        made = np.zeros(shape, dtype)
        for name in dtype.names:
            inner = made[name]
            inner[...] = filled(inner.dtype, inner.shape, seed + 1)
        return made
    nbytes = dtype.itemsize * int(np.prod(shape, dtype=int))
    return np.frombuffer(rng.bytes(nbytes), dtype).reshape(shape).copy()


def assert_exactly(found: Any, expected: NDArray[Any]) -> None:
    """Check that two arrays have the same dtype, to the last title and offset, shape and bytes."""
    found = np.asarray(found)
    assert found.shape == expected.shape
    assert_dtypes_alike(found.dtype, expected.dtype)
    if expected.dtype == TEXT:
        assert found.tolist() == expected.tolist()
    else:
        assert found.tobytes() == expected.tobytes()


def assert_dtypes_alike(found: np.dtype[Any], expected: np.dtype[Any]) -> None:
    """Check all that numpy tells of two dtypes."""
    assert found == expected
    assert found.str == expected.str
    assert found.itemsize == expected.itemsize
    assert found.isalignedstruct == expected.isalignedstruct
    assert found.fields == expected.fields
    assert found.names == expected.names
    assert found.shape == expected.shape


def names_below(fs: Any, path: str, top: str) -> list[str]:
    """Return all files below a path, by a file system of fsspec's, without the pool's path."""
    return [each.removeprefix(f"{top}/") for each in fs.find(path)]


def in_child(code: str, *arguments: object) -> str:
    """Run Python code in a process started apart; give what it printed."""
    child = subprocess.run(
        [sys.executable, "-c", code, *map(str, arguments)],
        capture_output=True,
        check=False,
        text=True,
    )
    assert child.returncode == 0, child.stderr
    return child.stdout.strip()


def moments(delays: Iterable[float], enough: Callable[[], bool]) -> Iterator[float]:
    """Give these delays to kill after, and longer ones until enough is done on a busy machine."""
    longer = 0.01
    for delay in delays:
        yield delay
        longer = max(longer, delay)
    while not enough():
        longer *= 1.5
        assert longer < PATIENCE, "nothing is ever done"
        yield longer


def said_without(module: str, home: Path, file: Path) -> str:
    """Import a file in a process that lacks a library; return the error, an `UnsupportedError`."""
    return in_child(
        "import sys\n"
        "sys.modules[sys.argv[1]] = None\n"
        "import engram\n"
        "with engram.create(sys.argv[2], size='16 MiB', force=True) as pool:\n"
        "    try:\n"
        "        engram.import_file(sys.argv[3], pool)\n"
        "    except engram.UnsupportedError as error:\n"
        "        print(error)\n",
        module,
        home / "p",
        file,
    )


@contextmanager
def small_tmpfs(mib: int) -> Iterator[Path]:
    """Mount a tmpfs of so many MiB; skip the test where that cannot be."""
    if os.geteuid() != 0:
        pytest.skip("mounting a small tmpfs takes root")
    with tempfile.TemporaryDirectory() as folder:
        options = ["-t", "tmpfs", "-o", f"size={mib}m", "tmpfs", folder]
        if subprocess.run(["mount", *options], check=False, capture_output=True).returncode:
            pytest.skip("this machine mounts no tmpfs here")
        try:
            yield Path(folder)
        finally:
            subprocess.run(["umount", "-l", folder], check=True)


def spoil(pool: Path, value: bytes) -> None:
    """Change a byte of a value of a closed pool, found by what it holds."""
    (span,) = (path for path in pool.rglob("span-0") if "default" in path.parts)
    at = span.read_bytes().index(value)
    with span.open("r+b") as file:
        file.seek(at)
        file.write(bytes([value[0] ^ 0xFF]))
