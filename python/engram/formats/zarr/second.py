"""Zarr's second version, seen as the third: `.zgroup`, `.zarray` and `.zattrs` as one document."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    import zipfile
    from pathlib import Path

_DIMS = "_ARRAY_DIMENSIONS"
"""The attribute in which stores of the second version have the names of dimensions."""


def as_third(folder: Path | zipfile.Path) -> dict[str, Any] | None:
    """Return a node's document, with what the third version calls it; None if there is none.

    Of an array it has the shape, attributes and dimension names; how it is stored is read by zarr.
    """
    array = _json(folder / ".zarray")
    if array is None and _json(folder / ".zgroup") is None:
        return None
    attrs = _json(folder / ".zattrs") or {}
    if array is None:
        return {"zarr_format": 3, "node_type": "group", "attributes": attrs}
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


def _json(file: Path | zipfile.Path) -> dict[str, Any] | None:
    """Read a file of JSON; None if it is not there."""
    if not file.is_file():
        return None
    found = json.loads(file.read_bytes())
    if not isinstance(found, dict):
        message = f"{file.name} is no object"
        raise TypeError(message)
    return found
