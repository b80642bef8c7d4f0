"""Writing Zarr's third version: documents as JSON, values through zarr-python, by chunks or shards.

An array that came from Zarr gets its own document again, with the shape and dimension names of
now. Any other gets chunks of a few MiB, or those of the file that it came from, and the codecs that
zarr-python gives by default. Byte order is how Zarr stores values, not what they are: it is kept
where a dtype is one number, and is this machine's inside records.

Chunks whose values all are the fill value need not be written. zarr-python asks whether they are
equal, which zeros of either sign are and NaNs of any bits: where that would change a bit, all are.

What did not come from Zarr follows xarray's conventions, so that `xarray.open_zarr` finds it: dims
are dimension names, and the root has consolidated metadata.
"""

from __future__ import annotations

import json
import math
from functools import partial
from typing import TYPE_CHECKING, Any

import numpy as np
import zarr
from zarr.codecs import BytesCodec
from zarr.core.buffer import default_buffer_prototype
from zarr.storage import StorePath

from engram.errors import FormatError
from engram.formats.blocks import block_shape, index, regions
from engram.formats.origin import SPLIT
from engram.formats.source import READ_ERRORS
from engram.formats.target import ArrayItem, GroupItem, Problem
from engram.formats.trees import TAKEN, is_beside_trees
from engram.formats.zarr import attributes, documents, second
from engram.formats.zarr.folder import Folder
from engram.plain import printable

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from engram.formats.blocks import Region
    from engram.formats.source import Attributes, Origin
    from engram.formats.target import Item, Tell, Tree
    from engram.formats.zarr.documents import Document

CHUNK_BYTES = 4 << 20
"""Bytes of a chunk, at most, where the array does not say."""

_SMALL_CHUNK_BYTES = 64 << 10  # chunks of other files that are smaller would be too many files
_GROUP: Document = {"zarr_format": 3, "node_type": "group", "attributes": {}}
_DOCUMENT = "zarr.json"
_CONSOLIDATED = "consolidated_metadata"


def problems(tree: Tree) -> list[Problem]:
    """Return the names, dtypes and attributes of a tree that Zarr has no way to write."""
    return [problem for item in tree.items for problem in _problems(item)]


def _problems(item: Item) -> Iterator[Problem]:
    """Yield what is wrong with one group or array."""
    name = item.path.rpartition("/")[2]
    what = "group" if isinstance(item, GroupItem) else "array"
    if name == _DOCUMENT or "\\" in name:
        yield Problem(item.path, what, f"Zarr has no nodes named {printable(name)}")
        return
    dtype = item.dtype if isinstance(item, ArrayItem) else None
    if dtype is not None:
        try:
            documents.stored(dtype)
        except FormatError as error:
            yield Problem(item.path, f"dtype {dtype}", str(error))
            return
    for attribute, value in item.attrs.items():
        if is_beside_trees(attribute, item.attrs):
            yield Problem(item.path, f"attribute {attribute}", TAKEN, attribute)
            continue
        try:
            attributes.write({attribute: value}, item.origin.get("attributes"), dtype)
        except ValueError as error:
            yield Problem(item.path, f"attribute {attribute}", str(error), attribute)


def write_tree(tree: Tree, path: Path, tell: Tell) -> str:
    """Write a tree as a folder, and return what it is."""
    arrays = tree.arrays
    if len(tree.items) == 2 and arrays and arrays[0].origin.get("at_root") is True:  # noqa: PLR2004 - the root group and it
        path.mkdir()
        _write_array(tree, arrays[0], path, tell)
        return documents.FORMAT
    written: dict[str, Document] = {}
    for item in tree.items:
        place = path / item.path if item.path else path
        place.mkdir()
        if isinstance(item, GroupItem):
            written[item.path] = _write_group(tree, item, place)
        else:
            written[item.path] = _write_array(tree, item, place, tell)
    for group in tree.groups:
        is_new = not group.path and documents.known(group.origin, "group") is None
        if is_new or group.origin.get("consolidated") is True:
            whole = {**written[group.path], _CONSOLIDATED: _consolidated(written, group.path)}
            _put(path / group.path if group.path else path, whole)
    return documents.FORMAT


def _consolidated(written: dict[str, Document], above: str) -> Document:
    """Return the documents below a group, as zarr-python puts copies of them into its own."""
    start = f"{above}/" if above else ""
    below = {
        path[len(start) :]: {**document, _CONSOLIDATED: _inline({})}
        if document["node_type"] == "group"
        else document
        for path, document in written.items()
        if path.startswith(start) and path != above
    }
    return _inline(below)


def _inline(copies: Document) -> Document:
    """Return consolidated metadata of these documents."""
    return {"kind": "inline", "must_understand": False, "metadata": copies}


def _write_group(tree: Tree, item: GroupItem, place: Path) -> Document:
    """Write a group's document, and return it."""
    document = documents.known(item.origin, "group") or dict(_GROUP)
    document = documents.with_attributes(document, _attributes(tree, item, None))
    _put(place, document)
    if SPLIT in item.origin:
        why = "written as the parts that it is here: Zarr v3 has no like of what it was in its file"
        tree.note(item.path, "group", why)
    said = item.origin.get("dimensions")
    for name, facts in said.items() if isinstance(said, dict) else ():
        if isinstance(facts, dict) and facts.get("unlimited"):
            tree.note(item.path, f"dimension {name}", "unlimited, which Zarr has no word for")
    return document


def _attributes(tree: Tree, item: Item, dtype: np.dtype[Any] | None) -> Document:
    """Return an item's attributes as JSON, and note what that changes."""
    document, changed = attributes.write(item.attrs, item.origin.get("attributes"), dtype)
    if changed:
        tree.note(item.path, f"attributes {', '.join(changed)}", "in JSON they have no dtype")
    return document | attributes.marks(item.attrs)


def _put(place: Path, document: Document) -> None:
    """Write a node's document."""
    text = json.dumps(document, indent=2)  # ASCII, which halves of surrogate pairs need
    (place / _DOCUMENT).write_text(text, encoding="ascii")


def _write_array(tree: Tree, item: ArrayItem, place: Path, tell: Tell) -> Document:
    """Write an array's document and chunks, and return the document."""
    tell(item.path, 0)
    document = _kept_document(item)
    if document is None:
        document = _new_document(tree, item)
        _leave_fill_out(tree, item)
    document = documents.with_attributes(document, _attributes(tree, item, item.dtype))
    _put(place, document)
    _write_values(item, document, Folder(place), tell)
    return document


def _leave_fill_out(tree: Tree, item: ArrayItem) -> None:
    """Leave the fill value out of the attributes where xarray would open no array that has it."""
    name = attributes.FILL
    if name not in item.attrs or attributes.is_read(item.attrs[name], item.dtype):
        return
    value = item.attrs.pop(name)
    why = f"left out: {value} is no value of {item.dtype}, and xarray opens no array that has it"
    if item.dtype.kind not in attributes.FILLED:
        why = "written as the array's fill_value: xarray opens no such array that has it"
    tree.note(item.path, f"attribute {name}", why)


def _write_values(item: ArrayItem, document: Document, folder: Folder, tell: Tell) -> None:
    """Write an array's chunks."""
    store = StorePath(folder)
    array = documents.handle(document, store)
    every = documents.handle(document, store, write_empty=True)
    values = item.load()
    fill = np.asarray(array.fill_value, array.dtype)
    names = _codecs(document)
    for region in regions(item.shape, array.shards or array.chunks, item.dtype.itemsize):
        piece = values[index(region)]
        if array.dtype.kind == "O":
            piece = piece.astype(object)
        elif piece.dtype != array.dtype:
            piece = piece.astype(array.dtype)
        target = every if _is_lost(piece, fill) else array
        folder.write(partial(_write_piece, target, region, piece, names))
        tell(item.path, piece.size * item.dtype.itemsize)


def _write_piece(
    array: zarr.Array[Any], region: Region, piece: np.ndarray[Any, Any], codecs: str
) -> None:
    """Write the chunks of a piece.

    Raises
    ------
    ValueError
        A codec fails of them.

    """
    try:
        with documents.quiet():
            array[region] = piece
    except OSError:
        raise
    except READ_ERRORS as error:
        said = str(error) or type(error).__name__
        message = f"its codecs ({codecs}) cannot encode its values: {said}"
        raise ValueError(message) from error


def _codecs(document: Document) -> str:
    """Return the names of a document's codecs."""
    return ", ".join(str(codec.get("name")) for codec in document.get("codecs", ()))


def _is_lost(piece: np.ndarray[Any, Any], fill: np.ndarray[Any, Any]) -> bool:
    """Whether a chunk could be left out, as equal to the fill value, with bits that differ."""
    if piece.dtype.kind in "fc":
        with np.errstate(invalid="ignore"):  # a signalling NaN is no reason to speak
            nan = (piece != piece) & (fill != fill)  # noqa: PLR0124 - NaNs are not equal
            alike = (piece == fill) | nan
    elif piece.dtype.names is not None:
        alike = piece == fill
    else:
        return False
    if not alike.any():
        return False
    raw = np.ascontiguousarray(piece).view(f"V{piece.dtype.itemsize}").reshape(piece.shape)
    return bool((alike & (raw != fill.view(raw.dtype))).any())


def _kept_document(item: ArrayItem) -> Document | None:
    """Return the document that an array came with, for its shape of now, if it still fits."""
    document = documents.known(item.origin, "array")
    if document is None:
        return None
    document["shape"] = list(item.shape)
    try:
        if len(documents.handle(document, _nowhere()).chunks) != len(item.shape):
            return None
        dtype = documents.dtype_of(document)
    except FormatError:
        return None
    if dtype != item.dtype and not (dtype.kind == "O" and item.dtype.kind == "S"):
        return None
    # Names that cannot be dims, such as of some axes alone, are the document's still.
    if item.dims is not None and tuple(document.get("dimension_names") or ()) != item.dims:
        document["dimension_names"] = list(item.dims)
    return document


def _nowhere() -> StorePath:
    """Return a place where nothing is, for looking at documents."""
    return StorePath(zarr.storage.MemoryStore())


def _new_document(tree: Tree, item: ArrayItem) -> Document:
    """Make a document for an array that has none, and note what Zarr has in another way."""
    dtype = documents.stored(item.dtype)
    _note(tree, item, dtype)
    is_number = item.dtype.names is None and dtype.kind not in "ST"
    is_big = is_number and item.dtype.newbyteorder("=") != item.dtype
    with documents.quiet():
        made = zarr.create_array(
            zarr.storage.MemoryStore(),
            shape=item.shape,
            dtype=dtype if dtype.kind != "T" else "string",
            chunks=_chunks(item),
            dimension_names=item.dims,
            fill_value=fill_of(item.attrs, item.origin, item.dtype, dtype),
            serializer=BytesCodec(endian="big") if is_big else "auto",
        )
        document = made.metadata.to_buffer_dict(default_buffer_prototype())
    found: Document = json.loads(document[_DOCUMENT].to_bytes())
    return found


def _note(tree: Tree, item: ArrayItem, dtype: np.dtype[Any]) -> None:
    """Note what a new document does not say."""
    if item.is_blob:
        tree.note(item.path, "blob", "written as an array of its bytes")
    if not documents.is_specified(dtype):
        why = "Zarr v3 does not specify it: zarr-python reads it, other libraries may not"
        tree.note(item.path, f"dtype {dtype}", why)
    if dtype.names is not None and dtype != item.dtype:
        tree.note(item.path, f"dtype {item.dtype}", f"written as {dtype}")
    has_fill = fill_of(item.attrs, item.origin, item.dtype, dtype) is not None
    if second.FILL in item.origin and not has_fill:
        why = "none, where Zarr v3 has to have one: the dtype's zero"
        tree.note(item.path, "fill value", why)
    kind = item.origin.get("type")
    if item.origin.get("dataspace") == "null":
        tree.note(item.path, "dataset", "of no dataspace, written as an empty array")
    if isinstance(kind, dict) and "enum" in kind and dtype.kind != "b":
        tree.note(item.path, "enumeration", "written as its numbers: Zarr has no enumerations")


def fill_of(attrs: Attributes, origin: Origin, kept_as: np.dtype[Any], dtype: np.dtype[Any]) -> Any:
    """Return the fill value that the attribute says, if it is one of the dtype; else None.

    Parameters
    ----------
    attrs, origin
        The array's attributes, and what its import kept.
    kept_as
        The array's dtype.
    dtype
        The dtype as which Zarr has its values.

    """
    said = np.asarray(attrs.get(attributes.FILL, []))
    if said.size != 1:
        kept = second.fill_of(origin, kept_as)
        if kept is None or dtype.kind == "T":
            return kept
        return np.asarray(kept, kept_as).astype(dtype)[()]
    if dtype.kind in "SUT" and said.dtype.kind in "SUT":
        text = said.item()
        raw = text if isinstance(text, bytes) else text.encode()
        return np.bytes_(raw) if dtype.kind == "S" else raw.decode("utf-8", "replace")
    if dtype.kind not in "iuf" or said.dtype.kind not in "iuf":
        return None
    with np.errstate(all="ignore"):
        fill = said.reshape(()).astype(dtype)
        return fill[()] if fill == said or np.isnan(fill) else None


def _chunks(item: ArrayItem) -> tuple[int, ...]:
    """Return the shape of an array's chunks: those of its file, unless they are too many."""
    shape = tuple(max(1, length) for length in item.shape)
    itemsize = item.dtype.itemsize
    said = item.origin.get("chunks")
    if not isinstance(said, list) or len(said) != len(shape):
        return block_shape(shape, None, itemsize, CHUNK_BYTES)
    if not all(type(n) is int and n > 0 for n in said):
        return block_shape(shape, None, itemsize, CHUNK_BYTES)
    was_zarr = str(item.origin.get("format", "")).startswith("ZARR")
    if was_zarr or itemsize * math.prod(said) >= _SMALL_CHUNK_BYTES:
        return tuple(said)
    return block_shape(shape, tuple(said), itemsize, CHUNK_BYTES)
