"""Reading Zarr: documents by their JSON, values through zarr-python, by whole chunks.

A store is a folder, or a zip archive of one. Its nodes are found by their documents, and not by
consolidated metadata, which are copies; but what they name must be there. A folder in a group that
has no document, and looks as if it had lost one, is damage. A chunk that is not there is none: in
Zarr it says that each of its values is the fill value.
"""

from __future__ import annotations

import contextlib
import functools
import hashlib
import json
import os
import zipfile
import zlib
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
from zarr.core.sync import sync
from zarr.storage import LocalStore, StorePath, ZipStore

from engram.errors import FormatError
from engram.formats.blocks import BLOCK_BYTES
from engram.formats.names import name_problem
from engram.formats.origin import SPLIT
from engram.formats.source import (
    READ_ERRORS,
    ArrayNode,
    GroupNode,
    RaggedNode,
    Source,
    TextNode,
)
from engram.formats.text import string_dtype
from engram.formats.zarr import attributes, documents, second

if TYPE_CHECKING:
    from collections.abc import Callable

    import zarr

    from engram.formats.blocks import Region
    from engram.formats.source import Attributes, Node, Origin
    from engram.formats.zarr.documents import Document

    Folder = Path | zipfile.Path

CODEC_ERRORS = (*READ_ERRORS, EOFError, zlib.error, zipfile.BadZipFile, AssertionError)
"""What zarr's codecs raise where a chunk is damaged."""


class ZarrSource(Source):
    """A store, for reading."""

    def __init__(self, path: Path) -> None:
        """Read every document of the store."""
        super().__init__(path, documents.FORMAT)
        self._archive = None if path.is_dir() else zipfile.ZipFile(path)
        self._store = None if self._archive is None else sync(ZipStore.open(path, mode="r"))
        self._found: dict[str, Document] = {}
        self._copies: dict[str, tuple[str, object]] = {}
        try:
            folder = path if self._archive is None else zipfile.Path(self._archive)
            self._visit(folder, "")
            self._check_consolidated()
        except BaseException:
            self.close()
            raise

    def close(self) -> None:
        """Close the archive, if it is one."""
        if self._archive is not None:
            self._archive.close()
        if self._store is not None:
            self._store.close()

    def state(self) -> object:
        """Return what tells the store from a later version of it: its files, and when they were."""
        if self._archive is not None:
            return super().state()
        seen = hashlib.sha256()
        for folder, folders, names in os.walk(self.path):
            folders.sort()
            for name in sorted(names):
                file = os.path.join(folder, name)  # noqa: PTH118 - of many thousands, fast
                said = f"{file}\0"
                with contextlib.suppress(FileNotFoundError):  # a link to nowhere
                    found = os.stat(file)  # noqa: PTH116 - as above
                    said += f"{found.st_ino} {found.st_size} {found.st_mtime_ns}\0"
                seen.update(said.encode("utf-8", "surrogateescape"))
        return seen.hexdigest()

    def _visit(self, folder: Folder, path: str) -> None:
        """Add a node and what is in it."""
        document = self._document(folder, path)
        if document is None:
            message = f"{self.path}: /{path}: its zarr.json is missing. Get the store again"
            raise FormatError(message)
        self._found[path] = document
        if document.get("node_type") == "array":
            node = self._array(folder, path, document)
            if node is not None:
                self.nodes.append(node)
            return
        if document.get("node_type") != "group":
            message = f"{self.path}: /{path}: its zarr.json is neither a group's nor an array's"
            raise FormatError(message)
        self.nodes.append(GroupNode(path, functools.partial(self._describe_group, path, document)))
        self._consolidated(path, document)
        for inner in sorted(_members(folder), key=lambda found: found.name):
            self._member(inner, f"{path}/{inner.name}" if path else inner.name)

    def _member(self, inner: Folder, path: str) -> None:
        """Visit what is in a group, unless it is none of Zarr's."""
        if not inner.exists() or (isinstance(inner, Path) and _leads_up(inner)):
            self.leave_out(path, "symbolic link", "dangling, or leads to a folder that contains it")
            return
        if inner.is_file():
            if inner.name not in documents.FILES:
                self.leave_out(path, "file", "no part of Zarr")
            return
        if self._document(inner, path) is None and not _has_lost_document(inner):
            self.leave_out(path, "folder", "no part of Zarr: it has no zarr.json")
            return
        why = name_problem(inner.name)
        if why is not None:
            self.leave_out(path, "member", why)
            return
        self._visit(inner, path)

    def _document(self, folder: Folder, path: str) -> Document | None:
        """Read a node's document; None if there is none."""
        try:
            if (folder / "zarr.json").is_file():
                found = json.loads((folder / "zarr.json").read_bytes())
            else:
                found = second.as_third(folder)
                if found is not None and self.format == documents.FORMAT:
                    self.format = documents.SECOND
                    why = "exported as v3: with its chunks, and compressed as zarr does by itself"
                    self.note(path, "Zarr v2", why)
        except documents.ERRORS as error:
            message = f"{self.path}: /{path}: its metadata cannot be read: {error}"
            raise FormatError(message) from error
        if found is not None and (not isinstance(found, dict) or found.get("zarr_format") != 3):  # noqa: PLR2004 - Zarr's version
            message = f"{self.path}: /{path}: its zarr.json is not of Zarr's third version"
            raise FormatError(message)
        if found is not None and not isinstance(found.get("attributes") or {}, dict):
            message = f"{self.path}: /{path}: its attributes are no JSON object"
            raise FormatError(message)
        return found

    def _consolidated(self, path: str, document: Document) -> None:
        """Keep the copies that a group's consolidated metadata have."""
        said = document.get("consolidated_metadata")
        copies = said.get("metadata") if isinstance(said, dict) else None
        for name, copy in copies.items() if isinstance(copies, dict) else ():
            self._copies[f"{path}/{name}" if path else name] = (path, copy)

    def _check_consolidated(self) -> None:
        """Refuse a store that lacks what consolidated metadata name; tell where they differ."""
        for path, (above, copy) in sorted(self._copies.items()):
            if path not in self._found:
                message = (
                    f"{self.path}: /{path}: its zarr.json is missing, which the consolidated "
                    f"metadata of /{above} has. Get the store again"
                )
                raise FormatError(message)
            if not documents.alike(copy, self._found[path]):
                why = f"its copy in /{above} is another; its own is read, and copied at export"
                self.note(path, "consolidated metadata", why)

    def _describe_group(self, path: str, document: Document) -> tuple[Attributes, Origin]:
        """Read a group's attributes and origin."""
        origin: Origin = {"format": self.format}
        if not path:
            origin["source"] = self.path.name
        if self.format == documents.FORMAT:
            origin[documents.WORD] = documents.kept(document)
        if document.get("consolidated_metadata") is not None:
            origin["consolidated"] = True
        return self._attributes(path, document, None, origin), origin

    def _attributes(
        self, path: str, document: Document, dtype: np.dtype[Any] | None, origin: Origin
    ) -> Attributes:
        """Read a node's attributes, and keep in its origin what they do not say."""
        found = document.get("attributes") or {}
        values, kept, as_text = attributes.read(found, dtype)
        if kept:
            origin["attributes"] = kept
        for name in as_text:
            self.note(path, f"attribute {name}", "kept as its JSON text: it has no like here")
        return values

    def _array(self, folder: Folder, path: str, document: Document) -> Node | None:
        """Return an array's node; None, and told, if its values have no like here."""
        place = path or self.path.name.removesuffix(".zip").removesuffix(".zarr")
        is_second = self.format == documents.SECOND
        missing = None if is_second else documents.unavailable(document)
        why = second.problem(document) if is_second else missing and documents.without(missing)
        if why is not None:
            self.leave_out(place, "array", why)
            return None
        handle, dtype = self._opened(folder, path, document)
        dims = document.get("dimension_names")
        names = tuple(dims) if dims and all(isinstance(n, str) for n in dims) else None
        if dims and names is None and any(n is not None for n in dims):
            shown = json.dumps(dims, ensure_ascii=False)
            self.note(place, "dimension names", f"not all have one, and {shown} is kept for export")

        def describe() -> tuple[Attributes, Origin]:
            origin: Origin = {"format": self.format, "chunks": list(handle.chunks)}
            if self.format == documents.FORMAT:
                origin[documents.WORD] = documents.kept(document)
            if not path:
                origin["at_root"] = True
            values = self._attributes(place, document, dtype, origin)
            if is_second and dtype.kind != "O":
                origin[second.FILL] = second.kept_fill(handle.fill_value, dtype)
            if is_second and names is not None:
                values = {**values, **self._fill(place, handle, values)}
            return values, origin

        shape = handle.shape
        element = second.sequences(document) if is_second else None
        if element is not None:
            return self._ragged(handle, element, names, place, describe)
        if dtype.kind in "TO":
            is_text = dtype.kind == "T"
            load = functools.partial(_load_text if is_text else _load_bytes, handle)
            return TextNode(place, shape, names, describe, load)
        read = functools.partial(_read, handle)
        return ArrayNode(place, shape, dtype, names, _unit(handle, dtype), describe, read)

    @staticmethod
    def _ragged(
        handle: zarr.Array[Any],
        element: np.dtype[Any],
        dims: tuple[str, ...] | None,
        path: str,
        describe: Callable[[], tuple[Attributes, Origin]],
    ) -> RaggedNode:
        """Return the node of an array of sequences."""
        shape = handle.shape

        def described() -> tuple[Attributes, Origin]:
            values, origin = describe()
            told = {"shape": list(shape), "dims": list(dims or ()), "type": element.str}
            return values, {"format": origin["format"], SPLIT: {**origin, **told}}

        return RaggedNode(
            path, shape, element, dims, described, functools.partial(_sequences, handle, element)
        )

    def _fill(self, path: str, handle: zarr.Array[Any], values: Attributes) -> Attributes:
        """Return the attribute that xarray sees in the fill value of the second version."""
        fill = handle.fill_value
        if fill is None or attributes.FILL in values or handle.dtype.kind not in "iufc":
            return {}
        why = "the array's fill_value, which xarray takes for missing data in Zarr v2"
        self.note(path, f"attribute {attributes.FILL}", why)
        return {attributes.FILL: handle.dtype.type(fill)}

    def _opened(
        self, folder: Folder, path: str, document: Document
    ) -> tuple[zarr.Array[Any], np.dtype[Any]]:
        """Return zarr's array, and the dtype here of its values."""
        try:
            if self._store is None:
                store = StorePath(LocalStore(folder, read_only=True))
            else:
                store = StorePath(self._store, path)
            if self.format == documents.SECOND:
                array = second.opened(store, document)
                return array, array.dtype
            return documents.handle(document, store), documents.dtype_of(document)
        except FormatError as error:
            message = f"{self.path}: /{path}: {error}"
            raise FormatError(message) from error
        except (*documents.ERRORS, *CODEC_ERRORS) as error:
            message = f"{self.path}: /{path}: cannot be read: {error}"
            raise FormatError(message) from error


def _leads_up(inner: Path) -> bool:
    """Whether a folder is a symbolic link to one that it is in."""
    above = inner.absolute().parent.resolve()
    return inner.is_symlink() and inner.resolve() in {above, *above.parents}


def _members(folder: Folder) -> list[Folder]:
    """Return what is in a folder, of a filesystem or of an archive."""
    return [*folder.iterdir()]


def _has_lost_document(folder: Folder) -> bool:
    """Whether a folder without a document looks like an array's or a group's."""
    for inner in _members(folder):
        if inner.is_dir() and (inner.name == "c" or _has_document(inner)):
            return True
    return (folder / "c").exists()


def _has_document(folder: Folder) -> bool:
    """Whether a folder, or any in it, has a document."""
    return any(
        inner.name in documents.FILES if inner.is_file() else _has_document(inner)
        for inner in _members(folder)
    )


def _unit(array: zarr.Array[Any], dtype: np.dtype[Any]) -> tuple[int, ...]:
    """Return the shape in whose multiples an array is read: chunks, or shards if they are small."""
    chunks: tuple[int, ...] = array.chunks
    shards: tuple[int, ...] | None = array.shards
    if shards is None:
        return chunks
    small = dtype.itemsize * int(np.prod(shards, dtype=object)) <= BLOCK_BYTES
    alone = len(array.metadata.codecs) == 1  # a codec around shards must undo all of one at a time
    return shards if small or not alone else chunks


def _values(array: zarr.Array[Any], region: Region) -> np.ndarray[Any, Any]:
    """Read a region, or say that a chunk is damaged."""
    try:
        return np.asarray(array[region])
    except CODEC_ERRORS as error:
        said = str(error) or type(error).__name__
        message = f"a chunk cannot be decoded: {said}. The store may be damaged; get it again"
        raise FormatError(message) from error


def _read(array: zarr.Array[Any], out: np.ndarray[Any, Any], region: Region) -> None:
    """Read a region into memory."""
    out[...] = _values(array, region)


def _load_text(array: zarr.Array[Any], region: Region) -> np.ndarray[Any, Any]:
    """Read strings."""
    return _values(array, region).astype(string_dtype())


def _sequences(
    array: zarr.Array[Any], element: np.dtype[Any], region: Region
) -> np.ndarray[Any, Any]:
    """Read sequences of numbers, which zarr gives as their bytes."""
    found = _values(array, region)
    made = np.empty(found.shape, object)
    for place, raw in np.ndenumerate(found):
        if len(raw) % element.itemsize:
            message = f"a sequence has {len(raw)} bytes, which are no values of {element}"
            raise FormatError(message)
        made[place] = np.frombuffer(raw, element)
    return made


def _load_bytes(array: zarr.Array[Any], region: Region) -> np.ndarray[Any, Any]:
    """Read bytes of variable length, as bytes of one."""
    found = _values(array, region)
    values = list(found.flat)
    if any(type(value) is not bytes for value in values):
        message = "it has Python objects, not bytes or strings"
        raise FormatError(message)
    if any(value.endswith(b"\0") for value in values):
        message = "it has bytes of variable length that end with NUL, which have no like here"
        raise FormatError(message)
    width = max((len(value) for value in values), default=1) or 1
    return np.array(values, dtype=f"S{width}").reshape(found.shape)


def open_zarr(path: Path) -> Source:
    """Open and walk a store."""
    try:
        return ZarrSource(path)
    except zipfile.BadZipFile as error:
        message = f"{path}: is no whole zip archive: {error}. Get it again"
        raise FormatError(message) from None
