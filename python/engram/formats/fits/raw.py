"""Values as they lie in a file: regions of an array in C order, read straight into memory.

Read, not mapped: a file that shrinks meanwhile gives a short read, which can be told, where a
mapping would end the process.
"""

from __future__ import annotations

import itertools
import os
from typing import TYPE_CHECKING, Any

import numpy as np

from engram.errors import FormatError

if TYPE_CHECKING:
    from engram.formats.blocks import Region

Array = np.ndarray[Any, Any]


def read_region(fd: int, offset: int, out: Array, region: Region) -> None:
    """Read ``out[region]`` from a file that has an array like `out` at `offset`.

    Parameters
    ----------
    fd
        The open file.
    offset
        Where the array begins in it.
    out
        The whole array, of the file's shape and dtype, byte order included.
    region
        What of it to read; steps are 1.

    Raises
    ------
    FormatError
        The file ends before it.

    """
    whole = [(part.start, part.stop) == (0, n) for part, n in zip(region, out.shape, strict=True)]
    split = len(whole)  # the axes from here on are taken whole: one run of bytes
    while split and whole[split - 1]:
        split -= 1
    outer, run = region[: max(0, split - 1)], region[max(0, split - 1) :]
    for place in itertools.product(*(range(part.start, part.stop) for part in outer)):
        chosen: Any = (*place, *run)
        target = out[chosen] if out.ndim else out
        first = (*place, *(part.start for part in run))
        start = sum(at * step for at, step in zip(first, _strides(out), strict=True))
        _read(fd, offset + start, target)


def _strides(out: Array) -> tuple[int, ...]:
    """Return how many bytes apart the file has neighbours along each axis."""
    steps = itertools.accumulate(out.shape[:0:-1], int.__mul__, initial=out.dtype.itemsize)
    return tuple(steps)[::-1][-out.ndim :] if out.ndim else ()


def _read(fd: int, offset: int, target: Array) -> None:
    """Read one run of bytes."""
    if target.nbytes == 0:
        return
    direct = target.flags.c_contiguous
    block = target if direct else np.empty(target.shape, target.dtype)
    content: Any = block.reshape(-1).view(np.uint8)
    waiting = memoryview(content)
    while waiting:
        count = os.preadv(fd, [waiting], offset)
        if not count:
            message = f"the file ends {len(waiting)} bytes before these values do"
            raise FormatError(message)
        waiting, offset = waiting[count:], offset + count
    if not direct:
        target[...] = block
