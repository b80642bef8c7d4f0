"""Arrays as sources of numbers: read a tile at a time, where they lie.

An array in one piece is viewed on the pool's own memory, so a tile of it is no copy. One in chunks
is read by whole chunks, each once. One on another node is asked for, box by box. What is read
becomes numbers as the reader of a picture means them: packed values unpacked, missing ones NaN,
dates as days, magnitudes of complex values. Floats that are meant as they are stored stay as they
are.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

from engram.array import Array
from engram.conventions.reading import Reading, can_be_drawn
from engram.decoded import Encoding, encoding_for_show
from engram.errors import ArgumentError
from engram.web.wire import dtype_text

if TYPE_CHECKING:
    from numpy.typing import NDArray

TILE = 1 << 19
"""So many values are numbers at once."""
READ_MOST = 1 << 30
"""So many bytes of an array are looked at for one request; of more, values at equal distances."""
FAR_MOST = 64 << 20
"""So many, if they come over the network."""
_FLOATS = (4, 8)
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

    """

    def __init__(self, array: Any, *, is_decoded: bool = True) -> None:
        self.array = array
        self.shape: tuple[int, ...] = tuple(array.shape)
        self.dtype: np.dtype[Any] = array.dtype
        self.is_far = not isinstance(array, Array)
        self.encoding = encoding_of(array)
        self._is_decoded = is_decoded
        self.chunks: tuple[int, ...] | None = None if self.is_far else array.chunks
        self.is_mapped = not self.is_far and self.chunks is None
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
        return np.asarray(self.array[key])

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
        return self._reading.numbers(raw)

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


def _stored(raw: NDArray[Any]) -> NDArray[Any]:
    """Return stored values of any kind as numbers."""
    if raw.dtype.kind == "c":
        size: NDArray[Any] = np.abs(raw)
        return size
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
