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


def private(values: Values) -> Values:
    """Return a private, warm copy of `values`."""
    return np.array(values)
