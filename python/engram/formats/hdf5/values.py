"""Values into HDF5: attributes and datasets, each in the type that `build` makes, in pieces.

A dataset is not told from its values' types alone. Where a filter or a type of odd precision might
not give back every bit, what was written is read again; if it differs, the dataset is written once
more without these, and a note says so.
"""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Any

import numpy as np
from h5py import h5a, h5d, h5p, h5s, h5t

from engram.formats import text
from engram.formats.blocks import index, regions
from engram.formats.hdf5.alike import same_bytes
from engram.formats.hdf5.build import in_memory
from engram.formats.hdf5.plugins import LAST_OWN, shown
from engram.formats.hdf5.storage import Storage

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from h5py import h5f, h5g

    from engram.formats.blocks import Region
    from engram.formats.target import ArrayItem

    Note = Callable[[str, str], None]
    Typed = Callable[[np.dtype[Any], dict[str, Any]], h5t.TypeID]

Array = np.ndarray[Any, Any]

_TEXT_BYTES = 256
"""What a string is taken to need while it is written, to bound the pieces."""

_FAILURES = (ValueError, RuntimeError, OSError)
"""What h5py raises where a filter fails."""

_OPAQUE = "as opaque values that h5py reads as {}: HDF5 has no such type"
_UTF8 = "as UTF-8, which it is: the file that it came from called it ASCII"
_STRINGS = "as strings of variable length: HDF5 has no text of a fixed width in characters"


def write_attribute(
    owner: h5g.GroupID | h5d.DatasetID, name: str, value: Any, words: dict[str, Any], typed: Typed
) -> str | None:
    """Write an attribute.

    Parameters
    ----------
    owner
        Whose attribute it is.
    name
        Its name.
    value
        Its value, as the pool gives it.
    words
        What its origin says of its type.
    typed
        Makes the type of a dtype and words.

    Returns
    -------
    In which other way it stands there than in the pool, or None.

    """
    values = np.asarray(text.scalar(value) if isinstance(value, str) else value, order="C")
    values = _as_stored(values, words)
    words, recoded = _recoded(values, words)
    if words.get("dataspace") == "null" and values.shape == (0,):
        shape = _inner(words)
        dtype = np.dtype((values.dtype, shape)) if shape else values.dtype
        h5a.create(owner, name.encode(), typed(dtype, words), h5s.create(h5s.NULL))
        return None
    tid, shape = _of_elements(values.dtype, values.shape, words, typed)
    space = h5s.create_simple(shape) if shape else h5s.create(h5s.SCALAR)
    attribute = h5a.create(owner, name.encode(), tid, space)
    if values.size:
        attribute.write(*_encoded(values, tid))
    return recoded or changed(
        np.asarray(value).dtype if isinstance(value, np.str_) else values.dtype
    )


def changed(dtype: np.dtype[Any]) -> str | None:
    """Say in which other way HDF5 has values of a dtype; None if it has them as they are."""
    if dtype.kind == "U":
        return _STRINGS
    if dtype.kind in "Mm":
        return _OPAQUE.format(dtype)
    inner = [dtype[name].base for name in dtype.names or ()]
    opaque = sorted({str(d) for d in inner if d.kind in "MmU"})
    if opaque:
        return _OPAQUE.format(", ".join(opaque))
    if any(len(field) > 2 for field in (dtype.fields or {}).values()):  # noqa: PLR2004 - a title
        return "without the titles of its fields"
    return next((why for d in inner if (why := changed(d))), None)


def _as_stored(values: Array, words: dict[str, Any]) -> Array:
    """Return an attribute as its file had it, if its value is what netCDF shows of that."""
    dtype = np.dtype(words["dtype"]) if "dtype" in words else values.dtype
    if words.get("dataspace") == "null" and values.dtype.kind == "T" and not "".join(values.flat):
        return np.empty((0,), dtype)
    if dtype.kind == "S" and values.dtype.kind == "T":
        encoded = np.array([value.encode() for value in values.flat], object)
        if any(len(value) > dtype.itemsize for value in encoded):
            return values
        values = encoded.astype(dtype).reshape(values.shape)
    elif values.dtype.kind != "T" and dtype.newbyteorder("=") == values.dtype:
        native, values = values, np.zeros(values.shape, dtype)  # zeros between a record's fields
        values[...] = native
    shape: tuple[int, ...] = tuple(words.get("shape") or values.shape)
    is_same = dtype == values.dtype and math.prod(shape) == values.size
    return values.reshape(shape) if is_same else values


def _recoded(values: Array, words: dict[str, Any]) -> tuple[dict[str, Any], str | None]:
    """Return words that call no text ASCII that is none, and what is to be noted of that."""
    if values.dtype.kind not in "TU" or words.get("charset") != "ascii":
        return words, None
    if all(value.isascii() for value in values.flat):
        return words, None
    return {"string": "variable"}, _UTF8


def _of_elements(
    dtype: np.dtype[Any], shape: tuple[int, ...], words: dict[str, Any], typed: Typed
) -> tuple[h5t.TypeID, tuple[int, ...]]:
    """Return the type and the shape of a dataset: an array type takes the last axes."""
    inner = _inner(words)
    if dtype.kind == "U":
        dtype = text.string_dtype()
    if inner and shape[len(shape) - len(inner) :] == inner:
        if dtype.kind == "T":  # of which numpy has no array types
            one = typed(dtype, _of_one(words))
            return h5t.array_create(one, inner), shape[: len(shape) - len(inner)]
        return typed(np.dtype((dtype, inner)), words), shape[: len(shape) - len(inner)]
    return typed(dtype, {} if inner else words), shape


def _inner(words: dict[str, Any]) -> tuple[int, ...]:
    """Return the shape of an array type, as words tell of it."""
    inner: tuple[int, ...] = ()
    level: Any = words
    while isinstance(level, dict) and "array" in level:
        inner += tuple(level["array"])
        level = level.get("base")
    return inner


def _of_one(words: dict[str, Any]) -> dict[str, Any]:
    """Return the words for one element of an array type."""
    while "array" in words:
        base = words.get("base")
        words = base if isinstance(base, dict) else {}
    return words


def _encoded(values: Array, tid: h5t.TypeID) -> tuple[Array, h5t.TypeID]:
    """Return values as HDF5 takes them, and their type in memory."""
    if tid.get_class() == h5t.ARRAY and values.dtype.kind == "T":
        return np.asarray(values, order="C").astype(object), in_memory(tid)
    if tid.get_class() == h5t.STRING and tid.is_variable_str():
        kind = tid.dtype  # h5py's own, which makes it convert Python's strings
        return np.asarray(values, order="C").astype(object).astype(kind), h5t.py_create(kind)
    if text.of_objects(values.dtype):
        return values, in_memory(tid)
    if values.dtype.kind in "Mm":
        values = values.view(f"V{values.dtype.itemsize}")
    return np.asarray(values, order="C"), in_memory(tid)


class DatasetWriter:
    """Writes one array as a dataset that has no name yet."""

    def __init__(
        self,
        file: h5f.FileID,
        item: ArrayItem,
        typed: Typed,
        unlimited: tuple[bool, ...],
        tell: Callable[[str, int], None],
    ) -> None:
        """Prepare to write `item`; `typed` makes types, `tell` is called after each piece."""
        self._file = file
        self._item = item
        self._typed = typed
        self._unlimited = unlimited
        self._tell = tell
        self._chunks: tuple[int, ...] | None = None
        self._used: list[int] = []
        self._told = False
        self._width = item.dtype.itemsize
        if text.of_objects(item.dtype) and item.text_nbytes is not None:
            # What is in the objects, too.
            self._width += item.text_nbytes // max(1, math.prod(item.shape))
        self.notes: list[str] = []

    def write(self) -> h5d.DatasetID:
        """Write it, and return the dataset."""
        item = self._item
        words = item.origin.get("type")
        words = words if isinstance(words, dict) else {}
        if item.dtype.kind == "T" and words:
            words, recoded = _recoded(item.load(), words)
            self.notes += [recoded] if recoded else []
        try:
            found, is_exact = self._attempt(words, exact_only=False)
            is_same = is_exact or self._is_same(found)
        except _FAILURES as error:
            # A filter that tells its own values from those that it was given, and refuses them.
            if not item.origin.get("filters") or _is_of_medium(error):
                raise
            is_same = False
        if not is_same:
            why = "its type and filters in the file it came from do not hold its values; plain ones"
            self.notes = [why]
            found = self._plainly()
        other = changed(item.dtype)
        if item.is_blob:
            other = "a blob, as its bytes"
        self.notes += [other] if other else []
        return found

    def _plainly(self) -> h5d.DatasetID:
        """Write it with filters that are exact; without those that fail, which a note names."""
        words = self._item.origin.get("type", {}) if text.of_objects(self._item.dtype) else {}
        try:
            return self._attempt(words, exact_only=True)[0]
        except _FAILURES as error:
            plugins = [code for code in self._used if code > LAST_OWN]
            failing = frozenset(plugins or self._used)
            if not failing or _is_of_medium(error):
                raise
            names = ", ".join(shown(code) for code in sorted(failing))
            self.notes = [f"written without the filter {names}, which fails of its values: {error}"]
        return self._attempt(words, exact_only=True, failing=failing)[0]

    def _attempt(
        self, words: dict[str, Any], *, exact_only: bool, failing: frozenset[int] = frozenset()
    ) -> tuple[h5d.DatasetID, bool]:
        """Write it in one way; tell whether that way gives back every bit for sure."""
        item = self._item
        tid, shape = _of_elements(item.dtype, item.shape, words, self._typed)
        unlimited = self._unlimited[: len(shape)]
        storage = Storage(item, tid, shape, unlimited, exact_only=exact_only, failing=failing)
        self.notes += storage.notes
        self._chunks = storage.chunks
        self._used = storage.filters
        access = h5p.create(h5p.DATASET_ACCESS)
        if storage.filters:
            # So that a filter fails while it is written, and not when the dataset is closed, which
            # nobody is told of; and what is read again comes through the filters.
            access.set_chunk_cache(1, 0, 1.0)
        made = h5d.create(self._file, None, tid, storage.space, storage.plist, dapl=access)
        if storage.space.get_simple_extent_type() != h5s.NULL:
            self._fill(made, tid)
        is_exact = storage.is_exact and "hdf5" not in words and words.get("padding") != "spacepad"
        return made, is_exact or text.of_objects(item.dtype)  # of which filters see no value

    def _regions(self, rank: int) -> Iterator[Region]:
        """Yield the pieces: whole chunks, and whole elements of an array type."""
        item, chunks = self._item, self._chunks
        inner = item.shape[rank:]
        unit = (*(chunks or (1,) * rank), *inner) if chunks or inner else None
        size = _TEXT_BYTES if item.dtype.kind in "TU" else self._width
        return regions(item.shape, unit, size)

    def _fill(self, made: h5d.DatasetID, tid: h5t.TypeID) -> None:
        """Write the values."""
        item, rank = self._item, made.rank
        if not math.prod(item.shape):
            return
        values = item.load()
        for region in self._regions(rank):
            piece, kind = _encoded(values[index(region)], tid)
            made.write(*_spaces(made, region[:rank]), piece, kind)
            if not self._told:
                self._tell(item.path, self._width * piece.size)
        self._told = True

    def _is_same(self, made: h5d.DatasetID) -> bool:
        """Whether the dataset gives back what was written."""
        item, rank = self._item, made.rank
        if not math.prod(item.shape):
            return True
        values, tid = item.load(), made.get_type()
        for region in self._regions(rank):
            wanted, kind = _encoded(values[index(region)], tid)
            found = np.zeros_like(wanted)
            made.read(*_spaces(made, region[:rank]), found, kind)
            if wanted.dtype.kind == "O":
                same = [_as_bytes(v) for v in wanted.flat] == [_as_bytes(v) for v in found.flat]
            else:
                same = same_bytes(wanted, found)
            if not same:
                return False
        return True


def _is_of_medium(error: Exception) -> bool:
    """Whether it is the medium that failed (`outfile`): HDF5's own errors have no number."""
    return isinstance(error, OSError) and error.errno is not None


def _spaces(made: h5d.DatasetID, region: Region) -> tuple[h5s.SpaceID, h5s.SpaceID]:
    """Return the dataspaces of a piece in memory and in the file."""
    if not region:
        return h5s.ALL, h5s.ALL
    starts = tuple(part.start for part in region)
    counts = tuple(part.stop - part.start for part in region)
    space = made.get_space()
    space.select_hyperslab(starts, counts)
    return h5s.create_simple(counts), space


def _as_bytes(value: str | bytes) -> bytes:
    """Return text as its UTF-8."""
    return value.encode() if isinstance(value, str) else bytes(value)
