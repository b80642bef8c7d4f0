"""What is in a cluster as Zarr has it: a `zarr.json` for each thing, and the bytes of its chunks.

An array in parts has chunks as large as its largest box. Where its boxes are a grid of Zarr's, each
chunk is a part, and is fetched from where that lies; else a chunk is put together from the parts
that it meets. What lies below a group is cut as arrays of a pool are (`runs.py`).
"""

from __future__ import annotations

import json
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np
from zarr.dtype import parse_dtype

from engram.cluster import ClusterArray
from engram.cluster.boxes import Box
from engram.cluster.far import FarBlob
from engram.cluster.listing import is_group
from engram.errors import NotFoundError
from engram.formats.zarr import attributes, documents, write
from engram.zarr import runs, shown
from engram.zarr.keys import BYTE

if TYPE_CHECKING:
    from numpy.typing import NDArray

_HEAD = {"zarr_format": 3}


@dataclass(frozen=True, slots=True)
class Known:
    """An array as a store has told of it.

    Attributes
    ----------
    thing
        The handle: of an array in parts, or of what lies below a group.
    shape, chunks
        The shape of the array and of its chunks.
    dtype, stored
        Its dtype, and that of its values in Zarr's chunks.

    """

    thing: Any
    shape: tuple[int, ...]
    chunks: tuple[int, ...]
    dtype: np.dtype[Any]
    stored: np.dtype[Any]

    @property
    def grid(self) -> tuple[int, ...]:
        """How many chunks there are along each dimension."""
        pairs = zip(self.shape, self.chunks, strict=True)
        return tuple(-(-length // part) for length, part in pairs)

    def has(self, place: tuple[int, ...]) -> bool:
        """Whether there is a chunk at a place."""
        grid = self.grid
        pairs = zip(place, grid, strict=len(place) == len(grid))
        return len(place) == len(grid) and all(0 <= at < n for at, n in pairs)

    def load(self, place: tuple[int, ...]) -> NDArray[np.uint8]:
        """Return the bytes of a chunk, read-only.

        Raises
        ------
        NotFoundError
            If the array was replaced since it was told of.

        """
        if self.dtype.kind == "T":
            return shown.encoded_texts(self.thing[...])
        offsets = tuple(at * part for at, part in zip(place, self.chunks, strict=True))
        ends = zip(offsets, self.chunks, self.shape, strict=True)
        counts = tuple(min(part, length - at) for at, part, length in ends)
        values = self._box(Box(offsets, counts))
        if counts != self.chunks:
            whole = np.zeros(self.chunks, self.dtype)
            whole[tuple(map(slice, counts))] = values
            values = whole
        raw: NDArray[np.uint8] = np.ascontiguousarray(values, self.stored).reshape(-1).view(BYTE)
        raw.flags.writeable = False
        return raw

    def _box(self, box: Box) -> np.ndarray[Any, Any]:
        thing = self.thing
        if not isinstance(thing, ClusterArray):
            return np.asarray(thing[box.slices]) if not _is_blob(thing) else _bytes(thing, box)
        if thing.cluster.node is not None:
            for part in thing.local_parts():
                if part.box == box:
                    return part.view()
        found, uuid = thing.read(box)
        if uuid != thing._manifest.get("made", thing._manifest["uuid"]):
            raise NotFoundError(
                f"{thing.path!r} was replaced since it was opened as a Zarr array: open it again"
            )
        return found


def _is_blob(thing: Any) -> bool:
    return isinstance(thing, FarBlob) or not hasattr(thing, "dims")


def _bytes(blob: Any, box: Box) -> np.ndarray[Any, Any]:
    return np.frombuffer(bytes(blob[box.slices[0]]), BYTE)


def of_array(thing: Any, path: str) -> tuple[Known, bytes, dict[str, str]]:
    """Return how an array is shown, its document, and which attributes are left out and why.

    Raises
    ------
    FormatError
        If Zarr has no like of its dtype.

    """
    is_blob = _is_blob(thing)
    dtype, shape = (BYTE, (thing.nbytes,)) if is_blob else (thing.dtype, tuple(thing.shape))
    stored = shown.stored_as(dtype)
    known = Known(thing, shape, _chunks(thing, dtype, shape), dtype, stored)
    said, left_out = _attributes(thing, dtype)
    dims = None if is_blob else thing.dims
    with documents.quiet():
        kind = parse_dtype(dtype if dtype.kind == "T" else stored, zarr_format=3)
        fill = write.fill_of(dict(thing.attrs), {}, dtype, stored)
        fill = kind.default_scalar() if fill is None else fill
        told = _HEAD | {
            "node_type": "array",
            "shape": shape,
            "data_type": kind.to_json(zarr_format=3),
            "chunk_grid": {"name": "regular", "configuration": {"chunk_shape": known.chunks}},
            "chunk_key_encoding": {"name": "default", "configuration": {"separator": "/"}},
            "fill_value": kind.to_json_scalar(fill, zarr_format=3),
            "codecs": shown.codecs_of(kind, dtype, None),
            "attributes": said,
            "dimension_names": shown.dimension_names_of(
                None if dims is None else list(dims), path, len(shape)
            ),
            "storage_transformers": [],
        }
    return known, json.dumps(told).encode("ascii"), left_out


def _chunks(thing: Any, dtype: np.dtype[Any], shape: tuple[int, ...]) -> tuple[int, ...]:
    """Return the shape of an array's chunks."""
    if dtype.kind == "T":
        return tuple(max(1, length) for length in shape)
    if not isinstance(thing, ClusterArray) or not thing.parts:
        return runs.chunk_shape(shape, dtype.itemsize, runs.CHUNK_BYTES)
    lengths = [part.box.counts for part in thing.parts]
    return tuple(max(each) for each in zip(*lengths, strict=True)) if shape else ()


def of_group(group: Any) -> tuple[bytes, dict[str, str]]:
    """Return the document of a group, and which attributes are left out and why."""
    said, left_out = _attributes(group, None)
    told = _HEAD | {"node_type": "group", "attributes": said}
    return json.dumps(told).encode("ascii"), left_out


def _attributes(thing: Any, dtype: np.dtype[Any] | None) -> tuple[dict[str, Any], dict[str, str]]:
    """Return attributes as JSON, and why others have none."""
    said: dict[str, Any] = {}
    left_out: dict[str, str] = {}
    for name, value in thing.attrs.items():
        if name == attributes.FILL and dtype is not None and not attributes.is_read(value, dtype):
            left_out[name] = f"xarray opens no array of {dtype} with the fill value {value!r}"
            continue
        try:
            said |= attributes.write({name: value}, None, dtype)[0]
        except ValueError as error:
            left_out[name] = str(error)
    return said, left_out


def refusal(name: str, thing: Any) -> str | None:
    """Say why something can be no node of Zarr's; None if it can."""
    if name == shown.DOCUMENT or "\\" in name:
        return f"Zarr has no nodes named {name!r}"
    if hasattr(thing, "schema"):
        return "it is a table: read it from its node's pool"
    if is_group(thing) and shown.DOCUMENT in thing:
        return (
            "it is a store of Zarr's itself, of files: open it by its URL, "
            f"zarr.open_group({thing.cluster.url(thing.path)!r})"
        )
    return None
