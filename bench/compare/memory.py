"""The limits: plain memcpy into a mapping of a tmpfs file, and private numpy arrays."""

from __future__ import annotations

import ctypes
import mmap
from typing import TYPE_CHECKING

import numpy as np

if TYPE_CHECKING:
    from pathlib import Path

    from bench.peer import Values


class Mapping:
    """A shared mapping of a file in `folder`; its pages are fresh until it is warmed."""

    def __init__(self, folder: Path, nbytes: int, name: str = "plain") -> None:
        self.path = folder / name
        self.nbytes = nbytes
        with self.path.open("w+b") as file:
            file.truncate(nbytes)
            self.map = mmap.mmap(file.fileno(), nbytes)
        self.address = ctypes.addressof(ctypes.c_char.from_buffer(self.map))

    def warm(self) -> Mapping:
        """Touch every page; itself."""
        ctypes.memset(self.address, 1, self.nbytes)
        return self

    def copy(self, values: Values) -> None:
        """Copy `values` into the mapping, with the C library's memcpy."""
        ctypes.memmove(self.address, values.ctypes.data, self.nbytes)

    def remove(self) -> None:
        """Delete the file; the mapping goes with the process."""
        self.path.unlink()


def have_memory(path: Path, nbytes: int) -> None:
    """Write a file and remove it: what comes next finds memory that the machine has.

    A virtual machine's host takes back what has lain free for some seconds, and gives it back page
    by page. Without this the side that comes after those that need no new memory would pay for all.
    """
    piece = bytes(4 << 20)
    with path.open("wb", buffering=0) as file:
        for _ in range(nbytes // len(piece)):
            file.write(piece)
    path.unlink()


_HUGE = 2 << 20
_COLLAPSE = 25
"""What `madvise` calls making huge pages, since Linux 6.1."""


class Pages:
    """Memory of a tmpfs file on small pages, which can be made huge; a whole number of these."""

    def __init__(self, folder: Path, values: Values) -> None:
        self.path = folder / "pages"
        self._libc = ctypes.CDLL(None, use_errno=True)
        self._libc.mmap.restype = ctypes.c_void_p
        self._libc.mmap.argtypes = [
            *(ctypes.c_void_p, ctypes.c_size_t, ctypes.c_int, ctypes.c_int, ctypes.c_int),
            ctypes.c_long,
        ]
        nbytes = values.nbytes
        with self.path.open("w+b") as file:
            file.write(values.tobytes())
            file.flush()
            # Huge pages need addresses that are multiples of them.
            private = mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS
            start = self._libc.mmap(None, nbytes + _HUGE, 0, private, -1, 0)
            aligned = -(-start // _HUGE) * _HUGE
            fixed = mmap.MAP_SHARED | 0x10
            both = mmap.PROT_READ | mmap.PROT_WRITE
            self.address = self._libc.mmap(aligned, nbytes, both, fixed, file.fileno(), 0)
        shown = memoryview((ctypes.c_char * nbytes).from_address(self.address))
        self.values: Values = np.frombuffer(shown, values.dtype)

    def make_huge(self) -> bool:
        """Make huge pages of it; whether the kernel has done so."""
        advise = self._libc.madvise
        advise.argtypes = [ctypes.c_void_p, ctypes.c_size_t, ctypes.c_int]
        return bool(advise(self.address, self.values.nbytes, _COLLAPSE) == 0)

    def remove(self) -> None:
        """Delete the file; the mapping goes with the process."""
        self.path.unlink()


def private(values: Values) -> Values:
    """Return a private, warm copy of `values`."""
    return np.array(values)
