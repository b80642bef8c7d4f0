"""Blosc, with a look at a chunk's length first: its library reads past the end of a short one.

A chunk of Blosc's says in its header how many bytes it has. numcodecs hands it over without
comparing, so that a truncated chunk would be decoded from whatever lies behind it in memory.
"""

from __future__ import annotations

import dataclasses
from typing import TYPE_CHECKING, Any

import numcodecs
import numpy as np
from zarr.codecs import BloscCodec, ShardingCodec

if TYPE_CHECKING:
    from zarr.abc.codec import Codec

_HEADER_BYTES = 16
_LENGTH = slice(12, 16)


def check(chunk: Any) -> None:
    """Refuse a chunk that is shorter than it says.

    Raises
    ------
    ValueError
        It is truncated.

    """
    raw = np.frombuffer(chunk, np.uint8)
    said = int.from_bytes(raw[_LENGTH].tobytes(), "little")
    if raw.nbytes < max(_HEADER_BYTES, said):
        message = f"it has {raw.nbytes} bytes of {max(_HEADER_BYTES, said)}: it is truncated"
        raise ValueError(message)


class GuardedBlosc(BloscCodec):  # type: ignore[misc] # mypy does not read zarr
    """Zarr's Blosc codec, of its third version."""

    async def _decode_single(self, chunk_bytes: Any, chunk_spec: Any) -> Any:
        check(chunk_bytes.as_numpy_array())
        return await super()._decode_single(chunk_bytes, chunk_spec)


class GuardedSecond(numcodecs.Blosc):  # type: ignore[misc] # it has no types
    """numcodecs' Blosc, which Zarr's second version uses."""

    def decode(self, buf: Any, out: Any = None) -> Any:
        """Decode a chunk."""
        check(buf)
        return super().decode(buf, out)


def guarded(codec: Codec) -> Codec:
    """Return a codec that checks the chunks of Blosc, also in shards."""
    if isinstance(codec, BloscCodec):
        facts = codec.to_dict()["configuration"]
        return GuardedBlosc(**facts)
    if isinstance(codec, ShardingCodec):
        return dataclasses.replace(codec, codecs=[guarded(inner) for inner in codec.codecs])
    return codec


def guarded_second(metadata: Any) -> Any:
    """Return metadata of the second version whose compressor checks the chunks of Blosc."""
    compressor = metadata.compressor
    if not isinstance(compressor, numcodecs.Blosc):
        return metadata
    facts = {name: value for name, value in compressor.get_config().items() if name != "id"}
    return dataclasses.replace(metadata, compressor=GuardedSecond(**facts))
