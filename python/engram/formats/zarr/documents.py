"""`zarr.json`: what of it a dtype, dims and attributes say, and what is kept beside them.

The document of each node is kept whole in `origin`, less its attributes and the copies of others
that consolidated metadata is. An export writes it again, as long as it says what is written: so
codecs, shards, chunk keys, fill values and what this library does not know come back as they were.
"""

from __future__ import annotations

import contextlib
import warnings
from typing import TYPE_CHECKING, Any

import numpy as np
from zarr.core.metadata.v3 import ArrayV3Metadata
from zarr.dtype import parse_dtype
from zarr.errors import UnstableSpecificationWarning

from engram.errors import FormatError

if TYPE_CHECKING:
    from collections.abc import Iterator

    from engram.formats.source import Origin

Document = dict[str, Any]

FORMAT = "ZARR3"
WORD = "zarr"
"""The word in `origin` under which a node's document is kept."""

ERRORS = (ValueError, TypeError, LookupError, RuntimeError, OverflowError, AttributeError)
"""What zarr raises where a document is none."""


@contextlib.contextmanager
def quiet() -> Iterator[None]:
    """Do without zarr's warnings of dtypes that Zarr does not specify; reports tell of them."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", UnstableSpecificationWarning)
        yield


def kept(document: Document) -> Document:
    """Return what of a document an origin keeps; attributes, if there are any, as an empty place."""
    found = {name: value for name, value in document.items() if name != "consolidated_metadata"}
    if "attributes" in found:
        found["attributes"] = {}
    return found


def with_attributes(document: Document, attrs: Document) -> Document:
    """Return a document with its attributes; without the word for them if it never had any."""
    return {**document, "attributes": attrs} if attrs or "attributes" in document else document


def known(origin: Origin, node_type: str) -> Document | None:
    """Return the document that an origin keeps of a group or array."""
    found = origin.get(WORD) if origin.get("format") == FORMAT else None
    is_one = isinstance(found, dict) and found.get("node_type") == node_type
    return dict(found) if is_one and isinstance(found, dict) else None


def dtype_of(document: Document) -> np.dtype[Any]:
    """Return the dtype here of an array's document: that of its values, in their byte order.

    Raises
    ------
    FormatError
        The document is none that zarr reads.

    """
    try:
        with quiet():
            native = ArrayV3Metadata.from_dict(dict(document)).data_type.to_native_dtype()
    except ERRORS as error:
        message = f"its zarr.json cannot be read: {error}"
        raise FormatError(message) from error
    if native.names is None and is_big_endian(document):
        return native.newbyteorder(">")
    return native


def is_big_endian(document: Document) -> bool:
    """Whether the codecs store values with their first byte first."""
    for codec in document.get("codecs", ()):
        if not isinstance(codec, dict):
            continue
        facts = codec.get("configuration") or {}
        if codec.get("name") == "bytes":
            return bool(facts.get("endian") == "big")
        if codec.get("name") == "sharding_indexed":
            return is_big_endian(facts)
    return False


def stored(dtype: np.dtype[Any]) -> np.dtype[Any]:
    """Return the dtype as which zarr has values of a dtype.

    Raises
    ------
    FormatError
        Zarr has none that gives back each value, and each field under its name.

    """
    if dtype.kind == "T":
        return dtype
    try:
        with quiet():
            made = parse_dtype(_plain(dtype), zarr_format=3)
            again = parse_dtype(made.to_json(zarr_format=3), zarr_format=3)
            made.from_json_scalar(
                made.to_json_scalar(made.default_scalar(), zarr_format=3), zarr_format=3
            )
            native = again.to_native_dtype()
    except ERRORS as error:
        message = f"Zarr has no like of it: {error}"
        raise FormatError(message) from None
    if native != _plain(dtype):
        message = f"Zarr has no like of it: it would be read as {native}"
        raise FormatError(message)
    return native


def is_specified(dtype: np.dtype[Any]) -> bool:
    """Whether other libraries than zarr-python can be expected to know the data type."""
    return dtype.kind in "biufcTMm"


def _plain(dtype: np.dtype[Any]) -> np.dtype[Any]:
    """Return a dtype in this machine's byte order, without padding, offsets and titles."""
    if dtype.names is not None:
        return np.dtype([(name, _plain(dtype[name])) for name in dtype.names])
    if dtype.subdtype is not None:
        return np.dtype((_plain(dtype.subdtype[0]), dtype.subdtype[1]))
    return dtype.newbyteorder("=")
