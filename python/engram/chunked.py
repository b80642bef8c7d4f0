"""Chunked arrays: kept in boxes of one shape, each encoded for itself; they can grow and shrink."""

import math
import time
from collections.abc import Callable, Iterator, Sequence
from itertools import product
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, DTypeLike, NDArray

from engram import _engram, times
from engram.arguments import several, whole_number
from engram.array import Array
from engram.errors import ArgumentError, BusyError, EngramError, NotFoundError
from engram.handle import makers
from engram.selection import Block, Selection, field_names, is_basic, shape_of

# How often what met another shape than it began with is tried again.
TRIES = 1000


class _ReshapedError(ArgumentError):
    """A box does not lie in the array, which has got another shape meanwhile."""


class ChunkedArray(Array):
    """An array in chunks, each encoded for itself; a chunk that was never written is zeros.

    `a[...]`, `a[2:5, ::2]` read the chunks that they touch, and `a[2:5] = y` encodes those anew.
    The result is of one moment, but for strides that leave chunks out, which are read box by box.
    Processes that write at the same time, even to one chunk, lose nothing; each chunk is written at
    once, or not at all. `a.resize(shape)` and `a.append(x)` give it another shape; `a.shape` is
    what it is now, whoever has changed it.

    It lies in no one piece, so it has no `view()`, and `numpy.asarray(a)` is a copy.
    """

    __slots__ = ()

    _kind = 3

    @property
    def shape(self) -> tuple[int, ...]:
        """The shape, as it is now."""
        return _engram.object_info(self._namespace, self._id).shape

    @property
    def ndim(self) -> int:
        """The number of dimensions."""
        return len(self._shape)

    @property
    def size(self) -> int:
        """The number of items."""
        return math.prod(self.shape)

    @property
    def chunks(self) -> tuple[int, ...]:
        """The shape of a chunk."""
        chunks = _engram.object_info(self._namespace, self._id).chunks
        return () if chunks is None else chunks

    @property
    def codec(self) -> str:
        """How each chunk is encoded, such as "none", "lz4", "zstd:9" or "shuffle+lz4"."""
        return _engram.object_info(self._namespace, self._id).codec or "none"

    @property
    def __array_interface__(self) -> dict[str, Any]:
        """There is none: chunks lie in no one piece of memory."""
        raise AttributeError("an array in chunks has no __array_interface__")

    def resize(self, shape: int | Sequence[int]) -> None:
        """Give the array another shape of as many dimensions, at once for all.

        What it grows by is zeros. What is cut off is gone: zeros, if it grows again.

        Raises
        ------
        ArgumentError
            If `shape` has another number of dimensions.
        BusyError
            If the array was deleted or replaced meanwhile.

        """
        one = isinstance(shape, int | np.integer)
        lengths = [shape] if one else several("shape", shape)
        shape = tuple(whole_number("shape", length) for length in lengths)
        _engram.reshape(self._namespace, self._id, shape)

    def append(self, data: ArrayLike, axis: int = 0) -> tuple[int, ...]:
        """Append `data` along a dimension, at once for all; give the shape that the array has then.

        All other dimensions of `data` are as long as the array's. An append at the same time, in
        any process, comes before or after; nothing is lost.

        Raises
        ------
        ArgumentError
            If `data` does not fit.
        BusyError
            If the array was deleted or replaced meanwhile.

        """
        ndim = self.ndim
        if not -ndim <= axis < ndim:
            raise ArgumentError(f"axis {axis!r} is none of an array of {ndim} dimensions")
        try:
            array = _kept_as(data, self._dtype)
        except (ValueError, TypeError, OverflowError) as error:
            raise ArgumentError(
                f"data cannot be appended to an array of dtype {self._dtype}: {error}"
            ) from error
        return _engram.append(self._namespace, self._id, axis % ndim, array)

    def __getitem__(self, key: Any) -> Any:
        """Copy out what `key` selects: any index that numpy takes.

        All read the chunks that they touch; names of fields read all of the array first. What lists
        and masks select is read chunk by chunk.

        Raises
        ------
        NotFoundError
            If the array was deleted or replaced.
        IndexError
            If the index is out of bounds.

        """
        return self._of_its_shape(lambda shape, chunks: self._selected(key, shape, chunks))

    def _of_its_shape(self, work: Callable[[tuple[int, ...], tuple[int, ...]], Any]) -> Any:
        """Do something with the shape that the array has; again, if it gets another meanwhile."""
        for _ in range(TRIES):
            try:
                return work(*self._sizes())
            except _ReshapedError:
                time.sleep(0)  # it may be a thread of this process that resizes it
        return work(*self._sizes())

    def _selected(self, key: Any, shape: tuple[int, ...], chunks: tuple[int, ...]) -> Any:
        if key is Ellipsis:
            return self._load((0,) * len(shape), shape)
        box = _boxed(key, shape)
        if box is None and field_names(key):
            part = self._load((0,) * len(shape), shape)[key]
            return part.copy() if isinstance(part, np.void | np.ndarray) else part
        if box is None:
            return self._read(Selection(key, shape), chunks)
        pieces = list(_pieces(box.ranges, chunks))
        if len(pieces) == 1:
            part = self._load(*_span(pieces[0]))
            part = part[tuple(slice(None, None, abs(r.step)) for r in box.ranges)]
        else:
            part = np.empty([len(r) for r in box.ranges], self._dtype)
            for piece in pieces:
                place = tuple(slice(at, at + len(r)) for at, r in piece)
                steps = tuple(slice(None, None, r.step) for _, r in piece)
                part[place] = self._load(*_span(piece))[steps]
        found = part[box.rest]
        if isinstance(found, np.void) or (isinstance(found, np.ndarray) and found.base is not None):
            found = found.copy()
        return found

    def _read(self, selection: Selection, chunks: tuple[int, ...]) -> Any:
        """Read what lists and masks select."""
        excerpt, wanted = np.zeros(selection.shape, self._dtype), selection.wanted()
        for block in selection.blocks(chunks):
            if wanted is None or wanted[block.place].any():
                found = self._load(block.offsets, block.counts)
                excerpt[block.place] = found if block.is_dense else found[np.ix_(*block.within)]
        part = excerpt[selection.key]
        return part.copy() if isinstance(part, np.void) else part

    def __setitem__(self, key: Any, value: Any) -> None:
        """Write what `key` selects: any index that numpy takes, names of fields as well.

        The rules are numpy's: `value` is broadcast, and of a place that a list names twice the last
        value stays. Chunks of which nothing is selected are left alone.

        Raises
        ------
        BusyError
            If the array was deleted or replaced meanwhile.
        ArgumentError
            If `value` does not fit.
        IndexError
            If the index is out of bounds.
        ReadOnlyError
            If the pool was opened with mode "r".

        """
        try:
            self._of_its_shape(lambda shape, chunks: self._set(key, value, shape, chunks))
        except NotFoundError as error:  # as in-place writes have it
            raise BusyError(f"{error}; nothing was written: look the name up again") from None

    def _set(self, key: Any, value: Any, shape: tuple[int, ...], chunks: tuple[int, ...]) -> None:
        try:
            value = self._converted(key, value, len(shape))
        except (ValueError, TypeError, OverflowError) as error:
            raise self._unfit(key, error) from error
        names = field_names(key)
        if names:
            self._store_fields(key, names, value, shape)
            return
        box = _boxed(key, shape)
        if box is None:
            self._write(Selection(key, shape), key, value, chunks)
            return
        lengths = [len(r) for r in box.ranges]
        try:
            whole = np.zeros(lengths, self._dtype)
            whole[box.rest] = value
        except (ValueError, TypeError) as error:
            raise self._unfit(key, error) from error
        for piece in _pieces(box.ranges, chunks):
            place = tuple(slice(at, at + len(r)) for at, r in piece)
            self._store_piece([r for _, r in piece], _span(piece), whole[place])

    def _store_piece(
        self,
        ranges: list[range],
        span: tuple[tuple[int, ...], tuple[int, ...]],
        values: NDArray[Any],
    ) -> None:
        offsets, counts = span
        if all(r.step == 1 for r in ranges):
            self._store(offsets, counts, np.ascontiguousarray(values))
            return
        steps = tuple(slice(None, None, r.step) for r in ranges)
        data, chosen = np.zeros(counts, self._dtype), np.zeros(counts, np.bool_)
        data[steps], chosen[steps] = values, True
        self._store(offsets, counts, data, np.repeat(chosen.reshape(-1), self._dtype.itemsize))

    def _write(
        self, selection: Selection, key: Any, value: NDArray[Any], chunks: tuple[int, ...]
    ) -> None:
        """Write what lists and masks select."""
        excerpt = np.zeros(selection.shape, self._dtype)
        chosen = np.zeros(selection.shape, np.bool_)
        try:
            excerpt[selection.key] = value
        except (ValueError, TypeError) as error:
            raise self._unfit(key, error) from error
        chosen[selection.key] = True
        for block in selection.blocks(chunks):
            if chosen[block.place].any():
                self._store_block(block, excerpt[block.place], chosen[block.place])

    def _store_block(self, block: Block, values: NDArray[Any], chosen: NDArray[np.bool_]) -> None:
        """Write those items of a box that are chosen."""
        if block.is_dense and chosen.all():
            self._store(block.offsets, block.counts, np.ascontiguousarray(values))
            return
        data, mask = np.zeros(block.counts, self._dtype), np.zeros(block.counts, np.bool_)
        data[np.ix_(*block.within)], mask[np.ix_(*block.within)] = values, chosen
        each = np.repeat(mask.reshape(-1), self._dtype.itemsize)
        self._store(block.offsets, block.counts, data, each)

    def _store_fields(
        self, key: Any, names: list[str], value: NDArray[Any], shape: tuple[int, ...]
    ) -> None:
        """Write fields of each item."""
        data = np.zeros(shape, self._dtype)
        try:
            data[key] = value
        except (ValueError, TypeError) as error:
            raise self._unfit(key, error) from error
        fields: Any = self._dtype.fields
        mask = np.zeros((data.size, self._dtype.itemsize), np.uint8)
        for name in names:
            kept, offset = fields[name][:2]
            mask[:, offset : offset + kept.itemsize] = 1
        self._store((0,) * len(shape), shape, data, mask.reshape(-1))

    def _sizes(self) -> tuple[tuple[int, ...], tuple[int, ...]]:
        about = _engram.object_info(self._namespace, self._id)
        return about.shape, about.chunks or about.shape

    def _load(self, offsets: tuple[int, ...], counts: tuple[int, ...]) -> NDArray[Any]:
        try:
            return _engram.load_box(self._namespace, self._id, self._dtype, offsets, counts)
        except ArgumentError as error:  # the box was within the shape that the array had
            raise _ReshapedError(str(error)) from error

    def _store(
        self,
        offsets: tuple[int, ...],
        counts: tuple[int, ...],
        data: NDArray[Any],
        mask: NDArray[Any] | None = None,
    ) -> None:
        try:
            _engram.store_box(self._namespace, self._id, offsets, counts, data, mask)
        except ArgumentError as error:  # as above
            raise _ReshapedError(str(error)) from error

    def view(self, mode: str = "r") -> NDArray[Any]:
        """Refuse: a chunked array lies in no one piece of memory.

        Raises
        ------
        ArgumentError
            Always.

        """
        raise ArgumentError(
            f'{self.path!r} is chunked, so there is no memory to view (mode "{mode}"): read parts '
            "of it with [...], write them with [...] = x, or store it without chunks="
        )

    def __array__(self, dtype: DTypeLike | None = None, copy: bool | None = None) -> NDArray[Any]:
        """Give a copy: a chunked array cannot be had without one."""
        if copy is False:
            raise ArgumentError(
                "a chunked array cannot be had without a copy: leave copy=False out"
            )
        array: NDArray[Any] = self._of_its_shape(
            lambda shape, _: self._load((0,) * len(shape), shape)
        )
        return array if dtype is None else array.astype(dtype, copy=False)

    def __len__(self) -> int:
        return self.shape[0]

    def __repr__(self) -> str:
        try:
            shape = self.shape
        except EngramError:  # `_shown` tells what has become of it
            shape = self._shape
        return self._shown(f"{shape} {self._dtype}")


def read_of_shape(array: ChunkedArray, key: Any, shape: tuple[int, ...]) -> Any:
    """Read what `key` selects of an array that had this shape when it was looked at.

    Raises
    ------
    NotFoundError
        If it has lost some of that meanwhile.

    """
    try:
        part = array[key]
    except IndexError:
        part = None
    if part is None or np.shape(part) != shape_of(key, shape):
        raise NotFoundError(
            f"{array.path!r} had the shape {shape}, and has {array.shape} now: look it up again"
        )
    return part


def _make(
    namespace: _engram.Namespace, oid: int, dtype: np.dtype[Any], shape: tuple[int, ...]
) -> ChunkedArray:
    return ChunkedArray(namespace, oid, dtype, shape)


makers[3] = _make


class _Box:
    """What a basic index selects: in each dimension a range, ascending; then what is done to it."""

    __slots__ = ("ranges", "rest")

    def __init__(self, ranges: list[range], rest: tuple[Any, ...]) -> None:
        self.ranges = ranges
        self.rest = rest


def _boxed(key: Any, shape: tuple[int, ...]) -> _Box | None:
    """Make a box of a basic index; None for any other."""
    parts = key if isinstance(key, tuple) else (key,)
    if not is_basic(key):
        return None
    np.broadcast_to(np.False_, shape)[key]  # numpy's own words for what is out of bounds
    taken = sum(part is not None and part is not Ellipsis for part in parts)
    ranges: list[range] = []
    rest: list[Any] = []
    for part in (*parts, *(() if Ellipsis in _kinds(parts) else (Ellipsis,))):
        if part is None:
            rest.append(None)
        elif part is Ellipsis:
            more = shape[len(ranges) : len(ranges) + len(shape) - taken]
            ranges += [range(length) for length in more]
            rest += [Ellipsis] if Ellipsis in _kinds(parts) else [slice(None)] * len(more)
        elif isinstance(part, slice):
            found = range(*part.indices(shape[len(ranges)]))
            ranges.append(found if found.step > 0 else found[::-1])
            rest.append(slice(None, None, 1 if found.step > 0 else -1))
        else:
            at = int(part) % shape[len(ranges)]
            ranges.append(range(at, at + 1))
            rest.append(0)
    return _Box(ranges, tuple(rest))


def _kept_as(data: ArrayLike, dtype: np.dtype[Any]) -> NDArray[Any]:
    """Convert numbers, but not complex ones to real ones, nor real ones to whole ones."""
    times.check("the value", data, dtype)
    given = np.asarray(data)
    rank = {"b": 0, "u": 0, "i": 0, "f": 1, "c": 2}
    if rank.get(given.dtype.kind, 0) > rank.get(dtype.kind, 2):
        message = f"{given.dtype} would lose what it says: convert it yourself, if that is meant"
        raise TypeError(message)
    return np.ascontiguousarray(given, dtype)


def refuse_other_layout(there: Array, name: str, chunks: Any, codec: str | None) -> None:
    """Refuse an array that does not lie as `chunks` and `codec` of `create_array` say."""
    fits = True
    if isinstance(chunks, bool):
        fits = chunks == (there.chunks is not None)
    elif chunks is not None:
        is_one = isinstance(chunks, int | np.integer)
        fits = there.chunks == ((chunks,) if is_one else tuple(several("chunks", chunks)))
    if codec is not None:
        fits = fits and _engram.codec_name(codec) == (there.codec or "none")
    if not fits:
        lies = "lies in one piece" if there.chunks is None else f"has chunks {there.chunks}"
        message = (
            f"{name!r} {lies} and codec {there.codec or 'none'!r}, not chunks {chunks} and codec "
            f"{codec!r}: replace it with create_array(..., overwrite=True), or leave these out"
        )
        raise ArgumentError(message)


def _kinds(parts: tuple[Any, ...]) -> list[Any]:
    """Give those parts that can be compared without a look at their items."""
    return [part for part in parts if part is Ellipsis]


def _pieces(
    ranges: list[range], chunks: tuple[int, ...]
) -> Iterator[tuple[tuple[int, range], ...]]:
    """Cut ranges of wide steps, so that no chunk is touched that has nothing of them.

    Each piece is, in each dimension, where it begins in what is selected, and its range.
    """
    cuts = []
    for selected, chunk in zip(ranges, chunks, strict=True):
        if selected.step > chunk and len(selected) > 1:
            cuts.append([(at, range(n, n + 1)) for at, n in enumerate(selected)])
        else:
            cuts.append([(0, selected)])
    return product(*cuts)


def _span(piece: tuple[tuple[int, range], ...]) -> tuple[tuple[int, ...], tuple[int, ...]]:
    """Give the offsets and counts of the box around a piece."""
    offsets = tuple(r.start if len(r) else 0 for _, r in piece)
    counts = tuple(r[-1] - r.start + 1 if len(r) else 0 for _, r in piece)
    return offsets, counts
