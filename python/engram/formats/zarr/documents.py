"""`zarr.json`: what of it a dtype, dims and attributes say, and what is kept beside them.

The document of each node is kept whole in `origin`, less its attributes and the copies of others
that consolidated metadata is. An export writes it again, as long as it says what is written: so
codecs, shards, chunk keys, fill values and what this library does not know come back as they were.
"""

from __future__ import annotations

import base64
import contextlib
import dataclasses
import json
import re
import warnings
from typing import TYPE_CHECKING, Any

import numcodecs
import numpy as np
import zarr
from numcodecs.errors import UnknownCodecError
from zarr.core.metadata.v3 import ArrayV3Metadata
from zarr.dtype import parse_dtype
from zarr.errors import UnstableSpecificationWarning
from zarr.registry import get_codec_class
from zarr.storage import MemoryStore, StorePath

from engram.errors import FormatError
from engram.formats.zarr.guard import guarded

if TYPE_CHECKING:
    from collections.abc import Iterator

    from engram.formats.source import Origin

Document = dict[str, Any]

FORMAT = "ZARR3"
SECOND = "ZARR2"
FILES = {"zarr.json", ".zgroup", ".zarray", ".zattrs", ".zmetadata"}
"""The files that a node has beside its chunks."""

WORD = "zarr"
"""The word in `origin` under which a node's document is kept."""

_NUMCODECS = "numcodecs."
"""So begin the names of numcodecs' codecs in Zarr's third version."""

_RAW_BITS = re.compile(r"r(\d+)")

ERRORS = (ValueError, TypeError, LookupError, RuntimeError, ArithmeticError, AttributeError)
"""What zarr raises where a document is none."""


@contextlib.contextmanager
def quiet() -> Iterator[None]:
    """Do without the warnings of dtypes that Zarr does not specify: reports tell of them.

    Nor is it of interest that a value compared with the fill value is a signalling NaN.
    """
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", UnstableSpecificationWarning)
        warnings.filterwarnings("ignore", "invalid value encountered", RuntimeWarning)
        yield


def kept(document: Document) -> Document:
    """Return what of a document an origin keeps; of attributes, whether it has any."""
    found = dict(document)
    if found.get("consolidated_metadata") is not None:
        del found["consolidated_metadata"]
    if "attributes" in found:
        found["attributes"] = {}
    return found


def alike(one: object, other: object) -> bool:
    """Whether two documents say the same, the copies of others in them apart."""
    spelled = [
        json.dumps({n: v for n, v in found.items() if n != "consolidated_metadata"}, sort_keys=True)
        if isinstance(found, dict)
        else None
        for found in (one, other)
    ]
    return spelled[0] == spelled[1]


def with_attributes(document: Document, attrs: Document) -> Document:
    """Return a document with its attributes; without the word for them if it never had any."""
    return {**document, "attributes": attrs} if attrs or "attributes" in document else document


def known(origin: Origin, node_type: str) -> Document | None:
    """Return the document that an origin keeps of a group or array."""
    found = origin.get(WORD) if origin.get("format") == FORMAT else None
    is_one = isinstance(found, dict) and found.get("node_type") == node_type
    return dict(found) if is_one and isinstance(found, dict) else None


def handle(document: Document, store: StorePath, *, write_empty: bool = False) -> zarr.Array[Any]:
    """Return zarr's array of a document, in a store.

    Parameters
    ----------
    document
        The document, of which the attributes are not looked at.
    store
        Where the array's chunks are.
    write_empty
        Whether chunks of fill values alone are written.

    Raises
    ------
    FormatError
        The document is none that zarr reads.

    """
    try:
        with quiet():
            metadata = ArrayV3Metadata.from_dict(_readable(document))
            if metadata.storage_transformers:
                raise ValueError(f"unknown storage transformers {metadata.storage_transformers!r}")
            codecs = [guarded(codec) for codec in metadata.codecs]
            metadata = dataclasses.replace(metadata, codecs=codecs)
            config = {"write_empty_chunks": write_empty}
            array = zarr.Array(zarr.AsyncArray(metadata, store, config))
            if 0 in array.chunks:
                raise ValueError(f"it has chunks of the shape {array.chunks}")
            return array
    except ERRORS as error:
        message = f"its zarr.json cannot be read: {str(error) or type(error).__name__}"
        raise FormatError(message) from error


def unavailable(document: Document) -> str | None:
    """Return the name of a codec of an array that is not there to be used; None if all are."""
    found = document.get("codecs")
    for codec in found if isinstance(found, list) else ():
        name = codec.get("name") if isinstance(codec, dict) else codec
        facts = codec.get("configuration") if isinstance(codec, dict) else None
        if not isinstance(name, str):
            continue  # damage, of which zarr tells
        try:
            get_codec_class(name)
        except KeyError:
            return name
        if name.startswith(_NUMCODECS) and not is_known(name.removeprefix(_NUMCODECS)):
            return name
        for inner in ("codecs", "index_codecs"):
            missing = unavailable({"codecs": facts.get(inner)}) if isinstance(facts, dict) else None
            if missing is not None:
                return missing
    return None


def is_known(name: str) -> bool:
    """Whether numcodecs has a codec, and the library that it calls."""
    try:
        numcodecs.get_codec({"id": name})
    except UnknownCodecError:
        return False
    except ERRORS:  # it lacks its settings
        pass
    return True


def without(codec: str) -> str:
    """Say why an array with a codec that is not there is left out."""
    return f"its codec {codec!r} is not available here: install what has it, and import it again"


def dtype_of(document: Document) -> np.dtype[Any]:
    """Return the dtype here of an array's document: that of its values, in their byte order.

    Raises
    ------
    FormatError
        The document is none that zarr reads.

    """
    native: np.dtype[Any] = handle(document, StorePath(MemoryStore())).dtype
    is_big = native.names is None and is_big_endian(document)
    found: np.dtype[Any] = native.newbyteorder(">") if is_big else native
    return found


def _readable(document: Document) -> Document:
    """Return a copy of a document with raw bits (``r16``) under the name that zarr has for them."""
    copy: Document = json.loads(json.dumps({**document, "attributes": {}}))
    bits = _RAW_BITS.fullmatch(str(copy.get("data_type")))
    if bits is not None:
        nbytes = int(bits[1]) // 8
        copy["data_type"] = {"name": "raw_bytes", "configuration": {"length_bytes": nbytes}}
        fill = copy.get("fill_value")
        if isinstance(fill, list):
            copy["fill_value"] = base64.b64encode(bytes(fill)).decode("ascii")
    return copy


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
    if any(dtype[name].subdtype is not None for name in dtype.names or ()):
        message = "Zarr has no like of it: no fields that are arrays"
        raise FormatError(message)
    try:
        with quiet():
            made = parse_dtype(_plain(dtype), zarr_format=3)
            again = parse_dtype(made.to_json(zarr_format=3), zarr_format=3)
            made.from_json_scalar(
                made.to_json_scalar(made.default_scalar(), zarr_format=3), zarr_format=3
            )
            native: np.dtype[Any] = again.to_native_dtype()
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
