"""Zarr's second version, seen as the third: `.zgroup`, `.zarray` and `.zattrs` as one document.

Its arrays of Python objects may be pickles, which run what they say when they are read. They are
refused before a chunk is looked at.
"""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

import zarr

from engram.errors import FormatError
from engram.formats.zarr import documents
from engram.formats.zarr.guard import guarded_second

if TYPE_CHECKING:
    import zipfile
    from pathlib import Path

    from zarr.storage import StorePath

_PICKLE = "pickle"

_DIMS = "_ARRAY_DIMENSIONS"
"""The attribute in which stores of the second version have the names of dimensions."""


def as_third(folder: Path | zipfile.Path) -> dict[str, Any] | None:
    """Return a node's document, with what the third version calls it; None if there is none.

    Of an array it has the shape, attributes and dimension names; how it is stored is read by zarr.

    Raises
    ------
    FormatError
        It is a pickle.
    ValueError, LookupError, TypeError, AttributeError
        It is damaged.

    """
    array = _json(folder / ".zarray")
    if array is None and _json(folder / ".zgroup") is None:
        return None
    attrs = _json(folder / ".zattrs") or {}
    if array is None:
        return {"zarr_format": 3, "node_type": "group", "attributes": attrs}
    codecs = [*(array.get("filters") or ()), array.get("compressor") or {}]
    if any(codec.get("id") == _PICKLE for codec in codecs):
        message = "it is a pickle, which is not loaded: it could run anything"
        raise FormatError(message)
    dims = attrs.get(_DIMS)
    if not (isinstance(dims, list) and all(isinstance(name, str) for name in dims)) or len(
        dims
    ) != len(array["shape"]):
        dims = None
    return {
        "zarr_format": 3,
        "node_type": "array",
        "shape": array["shape"],
        "dimension_names": dims,
        "attributes": {n: v for n, v in attrs.items() if n != _DIMS or dims is None},
    }


def opened(store: StorePath) -> zarr.Array[Any]:
    """Open an array, which `as_third` has looked at."""
    with documents.quiet():
        found = zarr.open_array(store, mode="r", zarr_format=2).metadata
    return zarr.Array(zarr.AsyncArray(guarded_second(found), store))


def _json(file: Path | zipfile.Path) -> dict[str, Any] | None:
    """Read a file of JSON; None if it is not there."""
    if not file.is_file():
        return None
    found = json.loads(file.read_bytes())
    if not isinstance(found, dict):
        message = f"{file.name} is no object"
        raise TypeError(message)
    return found
