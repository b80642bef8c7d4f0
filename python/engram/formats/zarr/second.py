"""Zarr's second version, seen as the third: `.zgroup`, `.zarray` and `.zattrs` as one document.

Its arrays of Python objects may be pickles, which run what they say when they are read. They are
refused before a chunk is looked at.
"""

from __future__ import annotations

import base64
import json
from typing import TYPE_CHECKING, Any

import numpy as np
import zarr
from zarr.core.metadata.v2 import ArrayV2Metadata

from engram.errors import FormatError
from engram.formats.origin import raw
from engram.formats.zarr import documents
from engram.formats.zarr.guard import guarded_second

if TYPE_CHECKING:
    import zipfile
    from pathlib import Path

    from zarr.storage import StorePath

    from engram.formats.source import Origin

_PICKLE = "pickle"

WORD = "zarr2"
"""The word under which a document has what `.zarray` says."""

_OBJECTS = {"vlen-utf8", "vlen-bytes", "vlen-array"}
"""Codecs of Python objects whose values have a like here: text, bytes, sequences of numbers."""

FILL = "fill_value"
"""The word in `origin` under which an array's fill value is kept: as text, or as its bytes."""

_SEQUENCES = "vlen-array"
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
        WORD: array,
    }


def problem(document: dict[str, Any]) -> str | None:
    """Say why an array that is whole cannot be read here; None if it can."""
    array = document[WORD]
    filters = [codec.get("id") for codec in array.get("filters") or ()]
    for name in (*filters, (array.get("compressor") or {}).get("id")):
        if name is not None and not documents.is_known(name):
            return documents.without(name)
    if array.get("dtype") == "|O" and _OBJECTS.isdisjoint(filters):
        return f"its values are Python objects, as {', '.join(map(str, filters)) or 'nothing'} has"
    return None


def kept_fill(value: Any, dtype: np.dtype[Any]) -> str | None:
    """Return what an origin keeps of a fill value; None where there is none."""
    if value is None:
        return None
    return str(value) if dtype.kind in "TO" else raw(np.asarray(value, dtype))


def fill_of(origin: Origin, dtype: np.dtype[Any]) -> Any:
    """Return the fill value that an origin has kept, if it is one of the dtype; else None."""
    kept = origin.get(FILL)
    if not isinstance(kept, str) or dtype.kind in "TO":
        return kept if isinstance(kept, str) else None
    try:
        found = base64.b64decode(kept, validate=True)
    except ValueError:
        return None
    return np.frombuffer(found, dtype)[0] if len(found) == dtype.itemsize else None


def sequences(document: dict[str, Any]) -> np.dtype[Any] | None:
    """Return the dtype of an array's sequences; None if it has none."""
    filters = document[WORD].get("filters") or ()
    found = [codec for codec in filters if codec.get("id") == _SEQUENCES]
    return np.dtype(found[0]["dtype"]) if found else None


def opened(store: StorePath, document: dict[str, Any]) -> zarr.Array[Any]:
    """Open an array, which `as_third` has looked at.

    Sequences of numbers are read as the bytes that they are stored as, which zarr has a dtype for.
    """
    array = document[WORD]
    if sequences(document) is not None:
        filters = [
            {"id": "vlen-bytes"} if codec.get("id") == _SEQUENCES else codec
            for codec in array["filters"]
        ]
        array = {**array, "filters": filters, "fill_value": ""}
    with documents.quiet():
        found = ArrayV2Metadata.from_dict({**array, "attributes": {}})
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
