"""An allocation that is filled with a variable's values, a piece at a time.

There are three ways, of which each piece takes the first that serves:

- *By the kernel*: where the file has the values as they lie in memory, and those that are wanted
  one after another, they are copied from the file into the pool once, and Python never sees them.
- *By way of a buffer*: where the pages are new to this process, so that each would cost a fault. A
  piece stays in a cache until it is stored.
- *Straight*: the format reads into the pool's memory.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

from engram.errors import FormatError
from engram.formats.blocks import start_of
from engram.formats.source import reading

if TYPE_CHECKING:
    from engram.array import Allocation
    from engram.formats.blocks import Region
    from engram.formats.source import ArrayNode, Plain

_BUFFERED_BYTES = 4 << 20
"""Bytes of a piece that is read into a buffer first: it stays in a cache."""

_COPIED_BYTES = 64 << 20
"""Bytes of a piece that the kernel copies: enough for several threads to share."""


class Filling:
    """How an allocation is filled with what is wanted of a variable."""

    def __init__(self, node: ArrayNode, wanted: Region, allocation: Allocation) -> None:
        """Look how the file has it."""
        self._node = node
        self._allocation = allocation
        self._buffer = np.empty(0, np.uint8)
        self._plain: Plain | None = None
        self._first = 0
        is_dense = all((part.step or 1) == 1 for part in wanted)
        if is_dense and (first := start_of(wanted, node.shape)) is not None:
            self._plain, self._first = reading(node.plain), first

    @property
    def piece_bytes(self) -> int:
        """Bytes of a piece, at most."""
        return _BUFFERED_BYTES if self._plain is None else _COPIED_BYTES

    def read(self, region: Region, out: np.ndarray[Any, Any], start: int) -> None:
        """Read a region of the file, which is part of what is wanted.

        Parameters
        ----------
        region
            The region, as `ArrayNode.read` has it.
        out
            Where it is wanted: contiguous memory of the allocation, of the region's shape.
        start
            The element of the allocation at which that begins.

        """
        offset = start * out.itemsize
        if self._plain is not None:
            at = self._plain.start + (self._first + start) * out.itemsize
            self._copy(self._plain.file, at, offset, out.nbytes)
        elif self._allocation._is_new(offset, out.nbytes):
            if self._buffer.size < out.nbytes:
                self._buffer = np.empty(out.nbytes, np.uint8)
            piece = self._buffer[: out.nbytes].view(out.dtype).reshape(out.shape)
            reading(self._node.read, piece, region)
            self._allocation._store(offset, piece)
        else:
            reading(self._node.read, out, region)

    def _copy(self, file: int, at: int, offset: int, nbytes: int) -> None:
        """Let the kernel copy bytes of the file, from `at` on.

        Raises
        ------
        FormatError
            The file ends before them. HDF5 would give zeros.

        """
        copied: int = reading(self._allocation._read, offset, file, at, nbytes)
        if copied < nbytes:
            message = (
                f"the file ends at {at + copied}, {nbytes - copied} bytes before the end of its "
                "values: it is truncated; nothing was imported. Get it again"
            )
            raise FormatError(message)
