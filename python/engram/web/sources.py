"""Arrays as sources of numbers: read a tile at a time, where they lie.

An array in one piece is viewed on the pool's own memory, so a tile of it is no copy. One in chunks
is read by whole chunks, each once; what lies between places of a wide step is read with them, some
megabytes at a time. One on another node is asked for, box by box. What is read
becomes numbers as the reader of a picture means them: packed values unpacked, missing ones NaN,
dates as days, magnitudes of complex values. Floats that are meant as they are stored stay as they
are.
"""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Any

import numpy as np

from engram.array import Array
from engram.conventions.reading import Reading, can_be_drawn
from engram.decoded import Encoding, encoding_for_show
from engram.errors import ArgumentError
from engram.web.refusal import too_large
from engram.web.wire import dtype_text

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from engram.web.working import Work

TILE = 1 << 19
"""So many values are numbers at once."""
READ_MOST = 1 << 30
"""So many bytes of an array are looked at for one request; of more, values at equal distances."""
FAR_MOST = 64 << 20
"""So many, if they come over the network."""
CHUNK_MOST = 256 << 20
"""A compressed chunk has so many bytes at most, for it is decoded as a whole."""
SPAN = 16 << 20
"""So many bytes of an array in chunks are read at once, with what lies between its places."""
_FLOATS = (4, 8)
_WIDE = 8
_DAY = np.timedelta64(1, "D")
_DAY_NS = 86_400 * 10**9
_EXACT_BYTES = 2
"""Whole numbers of so many bytes are exact in single precision."""


class Source:
    """An array, as what is drawn of it needs it.

    Parameters
    ----------
    array
        Of a pool, or of a cluster.
    is_decoded
        Whether its values are meant as its attributes say; else as they are stored.
    work
        What says between pieces whether to go on; None: always.

    """

    def __init__(self, array: Any, work: Work | None = None, *, is_decoded: bool = True) -> None:
        self.array = array
        self._work = work
        self.shape: tuple[int, ...] = tuple(array.shape)
        self.dtype: np.dtype[Any] = array.dtype
        self.is_far = not isinstance(array, Array)
        self.encoding = encoding_of(array)
        self._is_decoded = is_decoded
        self.chunks: tuple[int, ...] | None = None if self.is_far else array.chunks
        self.is_mapped = not self.is_far and self.chunks is None
        self.is_packed = self.chunks is not None and array.codec != "none"
        """Whether its chunks are decoded as wholes."""
        self._view: NDArray[Any] | None = None
        self._reading: Reading | None = None

    @property
    def most(self) -> int:
        """How many bytes of it are looked at for one request."""
        return FAR_MOST if self.is_far else READ_MOST

    def check_numbers(self) -> None:
        """Refuse what cannot be drawn.

        Raises
        ------
        ArgumentError
            If its values are neither numbers nor times.

        """
        if not can_be_drawn(self.dtype):
            raise ArgumentError(
                f"{self.array.path!r} has values of dtype {dtype_text(self.dtype)}: only numbers "
                "and times can be drawn; look at them as a table"
            )

    def raw(self, key: tuple[Any, ...]) -> NDArray[Any]:
        """Read what a basic index selects, as it is stored; of an array in one piece no copy."""
        if self.is_mapped and self.dtype.kind != "T":
            if self._view is None:
                self._view = self.array.view()
            return np.asarray(self._view[key])
        if self.chunks is None:
            return np.asarray(self.array[key])
        self._check_chunk()
        if not any(isinstance(part, slice) and (part.step or 1) > 1 for part in key):
            return np.asarray(self.array[key])
        parts = [
            range(*part.indices(size)) if isinstance(part, slice) else range(part, part + 1)
            for part, size in zip(key, self.shape, strict=True)
        ]
        found = np.empty([len(part) for part in parts], self.dtype)
        self._gather(parts, found)
        return np.asarray(found[tuple(slice(None) if isinstance(p, slice) else 0 for p in key)])

    @property
    def chunk_bytes(self) -> int:
        """How many bytes a chunk has."""
        return math.prod(self.chunks or ()) * self.dtype.itemsize

    def _check_chunk(self) -> None:
        """Refuse chunks that are too large to be decoded."""
        if self.is_packed and self.chunk_bytes > CHUNK_MOST:
            raise too_large(
                f"a chunk of {self.array.path!r} has {self.chunk_bytes:,} bytes, and one of "
                f"{CHUNK_MOST:,} at most is decoded",
                "look at it from Python, or store it in smaller chunks",
            )

    def _gather(self, parts: list[range], into: NDArray[Any]) -> None:
        """Read places of chunks, in halves while too much lies between them."""
        if not into.size:
            return
        spans = [part[-1] - part[0] + 1 for part in parts]
        within = [
            span if part.step <= chunk else len(part)  # else they are read place by place
            for part, span, chunk in zip(parts, spans, self.chunks or (), strict=True)
        ]
        wide = [dim for dim, part in enumerate(parts) if self._may_halve(dim, part)]
        if not wide or math.prod(within) * self.dtype.itemsize <= SPAN:
            into[...] = self.array[tuple(slice(p.start, p.stop, p.step) for p in parts)]
            return
        if self._work is not None:
            self._work.go_on()
        dim = max(wide, key=spans.__getitem__)
        at = self._middle(dim, parts[dim])
        for half in (slice(0, at), slice(at, None)):
            place = (*(slice(None),) * dim, half)
            self._gather([*parts[:dim], parts[dim][half], *parts[dim + 1 :]], into[place])

    def _may_halve(self, dim: int, part: range) -> bool:
        """Whether a range is halved, without a chunk that is decoded twice."""
        chunk = self.chunks[dim] if self.chunks else 1
        apart = part[0] // chunk != part[-1] // chunk
        return len(part) > 1 and part.step > 1 and (apart or not self.is_packed)

    def _middle(self, dim: int, part: range) -> int:
        """Return how many places of a range its first half has; it ends with a chunk's end."""
        chunk = self.chunks[dim] if self.chunks else 1
        middle = (part[0] + part[-1] + 1) // 2
        if part[0] // chunk != part[-1] // chunk:
            middle = max(middle // chunk, part[0] // chunk + 1) * chunk
        return min(max(-(-(middle - part.start) // part.step), 1), len(part) - 1)

    @np.errstate(over="ignore", invalid="ignore")  # a large longdouble is infinite
    def numbers(self, key: tuple[Any, ...]) -> NDArray[Any]:
        """Read what a basic index selects, as numbers: float32 or float64, missing ones NaN."""
        raw, kind = self.raw(key), self.dtype.kind
        if not self._is_decoded or self.encoding.is_plain:
            if kind == "f" and raw.dtype.itemsize in _FLOATS and raw.dtype.isnative:
                return raw
            if kind in "biu" or (kind == "f" and raw.dtype.itemsize <= max(_FLOATS)):
                few = raw.dtype.itemsize <= (max(_FLOATS) if kind == "f" else _EXACT_BYTES)
                whole = kind == "f" and raw.dtype.itemsize == max(_FLOATS)
                return raw.astype("f8" if whole or not few else "f4")
        if kind in "iuf" and self.encoding.times is None and self._is_decoded:
            return self.encoding.numbers(raw, np.dtype("f8"))
        if not self._is_decoded:
            return _stored(raw)
        if self._reading is None:
            self._reading = Reading(self.array)
        return _double(self._reading.numbers(raw))

    def exact(self, key: tuple[Any, ...]) -> NDArray[Any]:
        """Read numbers as `numbers` does, but as precise as they are stored: for comparisons.

        Whole numbers of 64 bits and times are told from their neighbours by a `longdouble` alone.
        """
        kind, encoding = self.dtype.kind, self.encoding
        is_scaled = encoding._scale is not None or encoding._offset is not None
        is_long = self.dtype.itemsize > _WIDE
        is_wide = (kind in "iumM" and self.dtype.itemsize == _WIDE) or (kind == "f" and is_long)
        if not is_wide or (self._is_decoded and is_scaled):
            return self.numbers(key).astype("f8")
        raw = self.raw(key)
        if kind in "mM":
            return _precise(raw)
        if not self._is_decoded:
            return raw.astype("g")
        values = encoding.numbers(raw, np.dtype("g"))
        if encoding.times is not None and encoding.times.days is not None:
            epoch, length = encoding.times.scale
            values = (values * length + epoch) / _DAY_NS
        return values

    @property
    def meaning(self) -> str:
        """What its numbers are; ones of two meanings are not compared."""
        times = self.encoding.times if self._is_decoded else None
        if self.dtype.kind == "M" or (times is not None and times.days is not None):
            return "times"
        if times is not None:
            return f"times in {times.units!r} of the calendar {times.calendar!r}"
        if self.dtype.kind == "m":
            return f"durations in {'{1} {0}'.format(*np.datetime_data(self.dtype))}"
        return "numbers"

    def decode(self, raw: NDArray[Any]) -> NDArray[Any]:
        """Return stored values as they are meant, for people: times as times."""
        return self.encoding.decode(raw) if self._is_decoded else raw

    @property
    def is_days(self) -> bool:
        """Whether the numbers are days since 1970, because the values are times."""
        return self._is_decoded and (
            self.dtype.kind == "M"
            or (self.encoding.times is not None and self.encoding.times.days is not None)
        )


def _double(values: NDArray[Any]) -> NDArray[Any]:
    """Return numbers in double precision at most."""
    return values.astype("f8") if values.dtype.itemsize > _WIDE else values


def _precise(raw: NDArray[Any]) -> NDArray[Any]:
    """Return times as days since 1970, and durations as multiples of their unit."""
    none = np.isnat(raw)
    unit, count = np.datetime_data(raw.dtype)
    if raw.dtype.kind == "M" and unit in {"Y", "M"}:
        raw, unit, count = raw.astype("M8[D]"), "D", 1
    values: NDArray[Any] = raw.astype("i8").astype("g")
    if raw.dtype.kind == "M" and unit != "generic":
        values /= np.longdouble(_DAY / np.ones((), f"m8[{count}{unit}]"))
    values[none] = np.nan
    return values


def _stored(raw: NDArray[Any]) -> NDArray[Any]:
    """Return stored values of any kind as numbers."""
    if raw.dtype.kind == "c":
        return _double(np.abs(raw))
    if raw.dtype.kind in "mM":
        values: NDArray[Any] = raw.astype("i8").astype("f8")
        values[np.isnat(raw)] = np.nan
        return values
    return raw.astype("f8")


def encoding_of(array: Any) -> Encoding:
    """Return how an array's values are stored."""
    if isinstance(array, Array):
        return encoding_for_show(array)
    attrs = dict(array.attrs.items())  # what is beside an array of a cluster is not looked for
    try:
        return Encoding(array.dtype, attrs)
    except ArgumentError:
        return Encoding(array.dtype, {**attrs, "units": ""})
