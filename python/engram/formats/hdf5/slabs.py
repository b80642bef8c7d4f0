"""A dataset's values: regions of it, straight into memory where that can be.

A step over an axis is left to HDF5 where it skips whole chunks. Where it does not, or skips less
than a page of a dataset without chunks, the run is read whole and the elements are taken from it
here: HDF5 picks single elements many times more slowly than it copies runs.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Protocol

import numpy as np
from h5py import h5s

from engram.formats import text
from engram.formats.blocks import index, pieces, region_shape, whole
from engram.formats.hdf5 import plugins
from engram.formats.source import READ_ERRORS

if TYPE_CHECKING:
    from h5py import h5t

    from engram.formats.blocks import Region
    from engram.formats.hdf5.low import Dataset
    from engram.formats.source import Source

Array = np.ndarray[Any, Any]

TEXT_BYTES = 64
"""What a string is taken to need while it is read, to bound the pieces of a text variable."""

_PAGE_BYTES = 4096


class Seen(Protocol):
    """As what a dataset's values are read: as its `Kind`, or as one of its `parts`."""

    @property
    def plain(self) -> np.dtype[Any]:
        """Their dtype here; object for text and sequences."""

    @property
    def inner(self) -> tuple[int, ...]:
        """The axes that array types add to the dataset's."""

    @property
    def memory(self) -> h5t.TypeID:
        """Their type in memory."""


def read(dataset: Dataset, out: Array, region: Region, kind: Seen | None = None) -> None:
    """Read a region of a dataset of fixed-size values into `out`, which has the region's shape.

    `kind` is its type, if it is to be seen as another than its own.
    """
    kind = kind or dataset.kind
    rank = len(dataset.shape or ())
    outer, inner = region[:rank], region[rank:]
    dense, wanted = _runs(dataset, outer)
    kept = (*wanted, *inner)
    # As numpy has them, unless all of the run is wanted: then `out` itself is read into.
    whole = all(t.step is None for t in wanted) and region_shape(inner) == kind.inner
    direct = whole and out.flags.c_contiguous
    target = out if direct else np.empty((*region_shape(dense), *kind.inner), kind.plain)
    if region_shape(dense) == dataset.shape:
        memory = file = h5s.ALL
    else:
        memory, file = _spaces(dataset, dense)
    _fetch(dataset, memory, file, target, kind)
    if not direct:
        out[...] = target[kept]


def load_text(
    source: Source,
    dataset: Dataset,
    path: str,
    region: Region,
    *,
    what: str,
    kind: Seen | None = None,
) -> np.ndarray[Any, Any]:
    """Read a region of a dataset of variable-length strings.

    Where any is not UTF-8, all are given as bytes, and the report is told, of `what`. `kind` is as
    `read` has it.
    """
    kind = kind or dataset.kind
    if dataset.shape is None:
        return np.empty(region_shape(region), text.string_dtype())
    value, exact = np.empty(region_shape(region), text.string_dtype()), True
    chunks = dataset.chunks
    for part, place in pieces(region, (*chunks, *kind.inner) if chunks else None, TEXT_BYTES):
        block = object_block(dataset, part, kind)
        piece, exact = text.text_array(list(block.flat), block.shape)
        if not exact:
            block = object_block(dataset, region, kind)
            value = text.bytes_array(list(block.flat), block.shape)
            break
        value[place] = piece
    if not exact:
        source.note(path, what, text.NOT_UTF8)
    return value


def text_bytes(dataset: Dataset, region: Region) -> list[bytes]:
    """Read a region of a dataset of variable-length strings, in C order."""
    found: list[bytes] = object_block(dataset, region, dataset.kind).reshape(-1).tolist()
    return found


def object_block(dataset: Dataset, region: Region, kind: Seen) -> Array:
    """Read a region of strings or sequences, as an array of objects: bytes, or arrays."""
    rank = len(dataset.shape or ())
    outer, inner = region[:rank], region[rank:]
    out: Array = np.empty((*region_shape(outer), *kind.inner), object)
    memory, file = _spaces(dataset, outer)
    _fetch(dataset, memory, file, out, kind)
    found: Array = out[index((*whole(region_shape(outer)), *inner))]
    return found


def _fetch(dataset: Dataset, memory: Any, file: Any, out: Array, kind: Seen) -> None:
    """Let HDF5 read, and say which filter is missing if that is why it cannot."""
    try:
        dataset.id.read(memory, file, out, kind.memory)
    except READ_ERRORS:
        plugins.check(dataset)
        raise


def _spaces(dataset: Dataset, region: Region) -> tuple[Any, Any]:
    """Return the dataspaces of a region in memory and in the file."""
    if not region:
        return h5s.ALL, h5s.ALL
    file = dataset.id.get_space()
    start = tuple(part.start for part in region)
    step = tuple(part.step or 1 for part in region)
    count = region_shape(region)
    file.select_hyperslab(start, count, step)
    return h5s.create_simple(count), file


def _runs(dataset: Dataset, region: Region) -> tuple[Region, Region]:
    """Return the region that HDF5 is asked for, and what of that is wanted."""
    if all((part.step or 1) == 1 for part in region):
        return region, (slice(None),) * len(region)
    chunks = dataset.chunks
    asked, wanted = [], []
    for axis, part in enumerate(region):
        step = part.step or 1
        if chunks is not None:
            dense = step < chunks[axis]
        else:
            dense = axis == len(region) - 1 and step * dataset.kind.plain.itemsize <= _PAGE_BYTES
        if step > 1 and dense:
            asked.append(slice(part.start, part.stop, 1))
            wanted.append(slice(None, None, step))
        else:
            asked.append(part)
            wanted.append(slice(None))
    return tuple(asked), tuple(wanted)
