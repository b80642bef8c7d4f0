"""What a view tells of an array: its `zarr.json`, and the bytes of each of its chunks.

An array in one piece is shown in virtual chunks (`runs.py`) of the codec `bytes`, in its own byte
order: their bytes are its memory. A chunked one keeps its chunks: without a codec they are the
pool's own memory, and what `zstd` encoded is given as it is. Zarr has neither `lz4` by itself nor
`shuffle`, so such chunks are decoded when they are asked for. Strings of variable length are one
chunk, which is encoded as Zarr has strings. Records with gaps between their fields, or fields of
the other byte order, are copied as Zarr has them.
"""

from __future__ import annotations

import json
import math
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numcodecs
import numpy as np
from zarr.core.dtype.common import HasEndianness
from zarr.dtype import parse_dtype

from engram import _engram
from engram.blob import Blob
from engram.formats import origin
from engram.formats.zarr import attributes, documents, write
from engram.group import Group
from engram.handle import Handle
from engram.zarr import runs

if TYPE_CHECKING:
    from engram.array import Array

DOCUMENT = "zarr.json"
BYTE = np.dtype(np.uint8)
_HEAD = {"zarr_format": 3}
_KEYS = {"name": "default", "configuration": {"separator": "/"}}
_STRINGS = {"name": "vlen-utf8"}
_ZSTD_LEVEL = 3
"""The level of a codec that names none."""


@dataclass(frozen=True, slots=True)
class Shown:
    """An array as a view shows it.

    Attributes
    ----------
    oid
        The object.
    dtype
        Its dtype in the pool; `stored` is that of its values in Zarr's chunks.
    shape, chunks
        The shape of the array and of its chunks.
    is_chunked
        Whether these are chunks in the pool, too.
    zstd_level
        The level of Zarr's codec `zstd`, which chunks are then encoded by; None if by none.

    """

    oid: int
    dtype: np.dtype[Any]
    stored: np.dtype[Any]
    shape: tuple[int, ...]
    chunks: tuple[int, ...]
    is_chunked: bool
    zstd_level: int | None = None

    @property
    def grid(self) -> tuple[int, ...]:
        """How many chunks there are along each dimension."""
        return tuple(
            -(-length // part) for length, part in zip(self.shape, self.chunks, strict=True)
        )

    @property
    def nbytes(self) -> int:
        """Bytes of a chunk before it is encoded; not of strings."""
        return self.stored.itemsize * math.prod(self.chunks)

    @property
    def is_encoded(self) -> bool:
        """Whether Zarr has a chunk in other bytes than those of its items."""
        return self.dtype.kind == "T" or self.zstd_level is not None

    def has(self, place: tuple[int, ...]) -> bool:
        """Whether there is a chunk at a place."""
        grid = self.grid
        return len(place) == len(grid) and all(
            0 <= at < n for at, n in zip(place, grid, strict=True)
        )

    def load(self, namespace: _engram.Namespace, place: tuple[int, ...]) -> np.ndarray[Any, Any]:
        """Return the bytes of a chunk: the pool's own memory where Zarr has them so.

        Raises
        ------
        NotFoundError
            If the array was deleted or replaced.

        """
        if self.dtype.kind == "T":
            return encoded_texts(_engram.read(namespace, self.oid, self.dtype, self.shape))
        if self.is_chunked:
            return self._chunk(namespace, place)
        itemsize = self.dtype.itemsize
        first = runs.begin(place, self.chunks, self.shape) * itemsize
        whole = _engram.view(namespace, self.oid, BYTE, (itemsize * math.prod(self.shape),), False)
        run = whole[first : first + itemsize * math.prod(self.chunks)]
        return run if self.dtype == self.stored else self._converted(run)

    def _chunk(self, namespace: _engram.Namespace, place: tuple[int, ...]) -> np.ndarray[Any, Any]:
        found = _engram.stored_chunk(namespace, self.oid, place)
        if found is None:
            values = np.zeros(self.nbytes, BYTE)
        elif not found[1]:
            values = found[0] if self.dtype == self.stored else self._converted(found[0])
        elif self.zstd_level is not None:
            return found[0]
        else:
            values = self._decoded(namespace, place)
        if self.zstd_level is None:
            return values
        # Nothing has been written there, or zstd would have made it longer.
        return np.frombuffer(numcodecs.Zstd(self.zstd_level).encode(values), BYTE)

    def _decoded(
        self, namespace: _engram.Namespace, place: tuple[int, ...]
    ) -> np.ndarray[Any, Any]:
        offsets = tuple(at * part for at, part in zip(place, self.chunks, strict=True))
        ends = zip(offsets, self.chunks, self.shape, strict=True)
        counts = tuple(min(part, length - at) for at, part, length in ends)
        found = _engram.load_box(namespace, self.oid, self.dtype, offsets, counts)
        if counts != self.chunks:
            whole = np.zeros(self.chunks, self.dtype)
            whole[tuple(map(slice, counts))] = found
            found = whole
        return self._converted(found)

    def _converted(self, values: np.ndarray[Any, Any]) -> np.ndarray[Any, Any]:
        if self.dtype != self.stored:
            values = values.view(self.dtype).astype(self.stored)
        return values.reshape(-1).view(BYTE)


def of_array(
    member: Array | Blob, path: str, limit: int | None
) -> tuple[Shown, bytes, dict[str, str]]:
    """Return how an array is shown, its document, and which attributes are left out and why.

    Parameters
    ----------
    member
        The array or blob.
    path
        Its path.
    limit
        Bytes of a virtual chunk, more or less.

    Raises
    ------
    FormatError
        If Zarr has no like of its dtype.
    NotFoundError
        If it is gone.

    """
    info = _engram.object_info(member._namespace, member._id)
    is_blob = isinstance(member, Blob)
    dtype, shape = (BYTE, (member.nbytes,)) if is_blob else (info.dtype, tuple(info.shape))
    stored = stored_as(dtype)
    if dtype.kind == "T":
        chunks = tuple(max(1, length) for length in shape)
    else:
        chunks = info.chunks or runs.chunk_shape(shape, dtype.itemsize, limit)
    level = None if dtype != stored else _zstd_level(info.codec)
    shown = Shown(member.oid, dtype, stored, shape, chunks, info.chunks is not None, level)
    said, left_out = _attributes(member, dtype)
    facts = origin.decode(info.origin)
    with documents.quiet():
        kind = parse_dtype(stored if dtype.kind != "T" else dtype, zarr_format=3)
        fill = write.fill_of(dict(member.attrs), facts, dtype, stored)
        fill = kind.default_scalar() if fill is None else fill
        told = _HEAD | {
            "node_type": "array",
            "shape": shape,
            "data_type": kind.to_json(zarr_format=3),
            "chunk_grid": {"name": "regular", "configuration": {"chunk_shape": chunks}},
            "chunk_key_encoding": _KEYS,
            "fill_value": kind.to_json_scalar(fill, zarr_format=3),
            "codecs": codecs_of(kind, dtype, level),
            "attributes": said,
            "dimension_names": dimension_names_of(info.dims, path, len(shape)),
            "storage_transformers": [],
        }
    return shown, _spelled(told), left_out


def of_group(group: Group) -> tuple[bytes, dict[str, str]]:
    """Return the document of a group, and which attributes are left out and why."""
    said, left_out = _attributes(group, None)
    return _spelled(_HEAD | {"node_type": "group", "attributes": said}), left_out


def stored_as(dtype: np.dtype[Any]) -> np.dtype[Any]:
    """Return the dtype of values in Zarr's chunks: the same, wherever Zarr can have it so."""
    stored = documents.stored(dtype)
    if dtype.kind == "T" or dtype.names is not None:
        return stored
    return dtype if dtype.newbyteorder("=") == stored else stored


def _zstd_level(codec: str | None) -> int | None:
    """Return the level of Zarr's own `zstd`, if that is what encodes an array's chunks."""
    name, _, level = (codec or "").partition(":")
    return int(level or _ZSTD_LEVEL) if name == "zstd" else None


def codecs_of(kind: Any, dtype: np.dtype[Any], level: int | None) -> list[dict[str, Any]]:
    """Return the codecs of chunks: of strings, or of the items' bytes and what encodes these."""
    if dtype.kind == "T":
        return [_STRINGS]
    codecs = [_bytes_codec(kind, dtype)]
    if level is not None:
        said = {"level": level, "checksum": False}
        codecs.append({"name": "zstd", "configuration": said})
    return codecs


def _bytes_codec(kind: Any, dtype: np.dtype[Any]) -> dict[str, Any]:
    if not isinstance(kind, HasEndianness):
        return {"name": "bytes"}
    is_big = dtype.names is None and dtype.newbyteorder("=") != dtype
    return {"name": "bytes", "configuration": {"endian": "big" if is_big else "little"}}


def dimension_names_of(dims: list[str] | None, path: str, ndim: int) -> list[str]:
    """Return the names of dimensions: invented ones, as xarray needs some, if there are none."""
    name = path.rpartition("/")[2]
    return [f"{name}_dim_{axis}" for axis in range(ndim)] if dims is None else list(dims)


def _attributes(member: Any, dtype: np.dtype[Any] | None) -> tuple[dict[str, Any], dict[str, str]]:
    """Return attributes as JSON, and why others have none."""
    kept = origin.decode(member._origin).get("attributes")
    said: dict[str, Any] = {}
    left_out: dict[str, str] = {}
    for name, value in member.attrs.items():
        if name == attributes.FILL and dtype is not None and not attributes.is_read(value, dtype):
            left_out[name] = f"xarray opens no array of {dtype} with the fill value {value!r}"
            continue
        try:
            said |= attributes.write({name: value}, kept, dtype)[0]
        except ValueError as error:
            left_out[name] = str(error)
    return said, left_out


def encoded_texts(values: Any) -> np.ndarray[Any, Any]:
    """Return strings as one chunk of Zarr's."""
    texts = np.asarray(values).astype(object).reshape(-1)
    return np.frombuffer(numcodecs.VLenUTF8().encode(texts), BYTE)


def _spelled(document: dict[str, Any]) -> bytes:
    return json.dumps(document).encode("ascii")


def refusal(name: str, member: Any) -> str | None:
    """Say why a member can be no node of Zarr's; None if it can."""
    if name == DOCUMENT or "\\" in name:
        return f"Zarr has no nodes named {name!r}"
    if isinstance(member, Handle) and member._is_group and not isinstance(member, Group):
        return "it is a table: read it from the pool itself"
    if member._is_group and _engram.contains(member._namespace, member._id, DOCUMENT):
        return "it is a store of Zarr's itself: open it with engram.zarr.Store(group)"
    return None
