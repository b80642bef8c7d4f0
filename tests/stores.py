"""Zarr stores for the tests: made by zarr, in every way to store, and edited by hand."""

from __future__ import annotations

import json
import warnings
from typing import TYPE_CHECKING, Any

import numpy as np
import zarr
from zarr import codecs
from zarr.errors import UnstableSpecificationWarning

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

NUMBERS = np.arange(120, dtype="<i4").reshape(10, 12)
STORED: dict[str, dict[str, Any]] = {
    "plain": {"compressors": None},
    "zstd": {"compressors": codecs.ZstdCodec(level=7, checksum=True)},
    "gzip": {"compressors": codecs.GzipCodec(level=3)},
    "blosc": {"compressors": codecs.BloscCodec(cname="lz4", shuffle="bitshuffle", typesize=4)},
    "several": {"compressors": (codecs.GzipCodec(), codecs.Crc32cCodec())},
    "transposed": {"filters": codecs.TransposeCodec(order=(1, 0))},
    "big": {"serializer": codecs.BytesCodec(endian="big")},
    "sharded": {"shards": (8, 6), "chunks": (4, 3)},
    "sharded-big": {
        "shards": {"shape": (8, 6), "index_location": "start"},
        "chunks": (2, 6),
        "serializer": codecs.BytesCodec(endian="big"),
    },
    "named": {"dimension_names": ("y", "x")},
    "half-named": {"dimension_names": ("y", None)},
    "unnamed": {"dimension_names": (None, None)},
    "v2-keys": {"chunk_key_encoding": {"name": "v2", "separator": "."}},
    "dots": {"chunk_key_encoding": {"name": "default", "separator": "."}},
    "large-chunks": {"chunks": (64, 64)},
    "filled": {"fill_value": -5},
}


def made(store: Path, **members: Any) -> Path:
    """Make a store of arrays: each a value, or the arguments of `zarr.create_array`."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", UnstableSpecificationWarning)
        root = zarr.open_group(store, mode="w")
        for name, said in members.items():
            arguments = dict(said) if isinstance(said, dict) else {"data": np.asarray(said)}
            data = arguments.pop("data")
            array = root.create_array(name, shape=data.shape, **{"dtype": data.dtype, **arguments})
            array[...] = data
    return store


def edited(store: Path, path: str, change: Callable[[dict[str, Any]], object]) -> Path:
    """Change a document of a store by hand."""
    file = store / path / "zarr.json"
    document = json.loads(file.read_bytes())
    change(document)
    file.write_text(json.dumps(document), encoding="utf-8")
    return store
