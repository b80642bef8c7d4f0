"""A small plot of an array: a line of one dimension, an image of two, with their axes.

What is read is bounded, whatever the array's size, and the caption tells what was looked at:

- An array of at most `_WHOLE` bytes is read as a whole. A line then keeps each stretch's least and
  largest value, so that no peak is lost.
- Of a larger one in one piece, values are taken at even steps: at most 512 of a line and 32 x 64 of
  a plane. Each touches a page of memory, and no more.
- Of a larger one in chunks, the first chunks are looked at: as many as `_CHUNKS` bytes hold.

More dimensions are drawn at index 0 of all but the last two that are longer than 1. Values are
drawn as they are meant; what is missing, or not finite, stays blank. The first row is at the top,
unless the dimension's coordinate grows upwards, as latitudes do.
"""

import base64
import math
import struct
import zlib
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from engram import conventions
from engram.array import Array
from engram.conventions import Role
from engram.conventions.reading import extremes
from engram.decoded import encoding_for_show
from engram.notebook.parts import note, text
from engram.size import human

_WHOLE = 2 << 20
_CHUNKS = 4 << 20
_LARGEST = 16 << 20
"""Of an array whose chunks are larger nothing is drawn."""

_POINTS, _STEPS = 480, 512
_FINE, _COARSE = (96, 192), (32, 64)
"""Rows and columns that are drawn of a plane that is read as a whole, and of another."""

_WIDTH, _HEIGHT = 480, 96
_TALLEST = 240
_FEWEST = 4
_PLANE = 2
_LABEL = 60
"""Characters of an axis's name, which may be anything."""

_STOPS = (0, 84, 169, 254)
_RED, _GREEN, _BLUE = (38, 32, 74, 250), (24, 104, 180, 232), (74, 142, 122, 90)
"""Colours from low to high: each lighter than the one before, so that grey print shows it too."""

_Sample = NDArray[np.float64]


class _Axis(NamedTuple):
    """A dimension of a plot: what it is called, and its ends, as text."""

    label: str
    first: str
    last: str
    grows_up: bool
    """Whether its end belongs at the top."""


def read(array: Array) -> Any:
    """Give what is sliced to look at values: the memory, or a chunked array itself."""
    return array.view() if array.chunks is None else array


def preview(array: Array) -> str:
    """Draw an array, if it is of numbers and there is something to see; else nothing."""
    if array.dtype.kind not in "biuf" or array.size < _FEWEST:
        return ""
    long = [axis for axis, length in enumerate(array.shape) if length > 1][-_PLANE:]
    stops = _stops(array, long)
    if stops is None:
        size = human(math.prod(array.chunks or ()) * array.dtype.itemsize)
        return note(f"no picture: each chunk is {size}, and would be read as a whole")
    line = len(long) == 1
    sample, places, steps = (_along if line else _across)(array, long, stops)
    there = sample[np.isfinite(sample)]
    if not there.size:
        return note("no picture: all that was looked at is missing")
    low, high = float(there.min()), float(there.max())
    if not math.isfinite(high - low):
        return ""
    if low == high:
        return note(f"no picture: all that was looked at is {low:.6g}")
    axes = [_axis(array, axis, stop) for axis, stop in zip(long, stops, strict=True)]
    scaled = (sample - low) / (high - low)
    ends = (f"{low:.6g}", f"{high:.6g}")
    alt = _alt(array, axes, ends)
    if line:
        plot = _with_axes(_line(scaled, places, alt), ends[::-1], "", axes[0], "")
    else:
        up = axes[0].grows_up
        heat = _heat(scaled[::-1] if up else scaled, [array.shape[a] for a in long], alt)
        rows = (axes[0].last, axes[0].first) if up else (axes[0].first, axes[0].last)
        plot = _with_axes(heat, rows, axes[0].label, axes[1], _scale(*ends))
    return plot + note(_caption(array, long, ends, _taken(array, long, stops, steps)))


def _stops(array: Array, long: list[int]) -> list[int] | None:
    """Return how far each dimension is looked at; None if a single chunk is too much."""
    stops = [array.shape[axis] for axis in long]
    if array.chunks is None or _nbytes(array, long, stops) <= _WHOLE:
        return stops
    nbytes = math.prod(array.chunks) * array.dtype.itemsize
    if nbytes > _LARGEST:
        return None
    counts = [math.ceil(array.shape[axis] / array.chunks[axis]) for axis in long]
    while math.prod(counts) * nbytes > max(_CHUNKS, nbytes):
        most = counts.index(max(counts))
        counts[most] = math.ceil(counts[most] / 2)
    chunked = zip(counts, long, strict=True)
    return [min(n * array.chunks[axis], array.shape[axis]) for n, axis in chunked]


def _nbytes(array: Array, long: list[int], stops: list[int]) -> int:
    """Return how many bytes lie up to these ends: whole chunks, if the array is in chunks."""
    extents = [*(array.chunks or (1,) * array.ndim)]
    for axis, stop in zip(long, stops, strict=True):
        extents[axis] *= math.ceil(stop / extents[axis])
    return math.prod(extents) * array.dtype.itemsize


def _along(
    array: Array, long: list[int], stops: list[int]
) -> tuple[_Sample, NDArray[Any], list[int]]:
    """Return values along a line, their indices, and the step between them."""
    (axis,), (stop,) = long, stops
    index: list[Any] = [0] * array.ndim
    encoding, values = encoding_for_show(array), read(array)

    def numbers(part: slice) -> _Sample:
        index[axis] = part
        return encoding.numbers(np.asarray(values[tuple(index)]), np.dtype("f8"))

    if _nbytes(array, long, stops) <= _WHOLE:
        found, indices = extremes(lambda a, b: numbers(slice(a, b)), stop, _POINTS)
        return found, indices, [1]
    step = math.ceil(stop / _STEPS)
    return numbers(slice(0, stop, step)), np.arange(0, stop, step), [step]


def _across(
    array: Array, long: list[int], stops: list[int]
) -> tuple[_Sample, NDArray[Any], list[int]]:
    """Return values of a plane at even steps, and the steps; an image needs no indices."""
    rooms = _FINE if _nbytes(array, long, stops) <= _WHOLE or array.chunks is not None else _COARSE
    steps = [math.ceil(stop / room) for stop, room in zip(stops, rooms, strict=True)]
    index: list[Any] = [0] * array.ndim
    for axis, stop, step in zip(long, stops, steps, strict=True):
        index[axis] = slice(0, stop, step)
    raw = np.asarray(read(array)[tuple(index)])
    return encoding_for_show(array).numbers(raw, np.dtype("f8")), np.arange(0), steps


def _axis(array: Array, axis: int, stop: int) -> _Axis:
    """Tell of a dimension: by its coordinate where it has one, else by indices."""
    name = array.dims[axis] if array.dims else ""
    plain = _Axis(name or f"dimension {axis}", "0", f"{stop - 1:,}", grows_up=False)
    found = conventions.coordinate(array, name) if name else None
    if found is None or (found.chunks is not None and found.nbytes > _WHOLE):
        return plain
    raw = np.asarray(read(found)[:: max(stop - 1, 1)])[:2]
    if conventions.role(found) is Role.time:
        times = conventions.times(found, raw)
        if times is None or None in times:
            return plain
        first, last = conventions.iso(times)
        return _Axis(conventions.title(found), first, last, grows_up=False)
    ends = conventions.decoded(found, raw)
    if not np.isfinite(ends).all() or np.iscomplexobj(ends):
        return plain
    up = bool(ends[1] > ends[0]) != conventions.points_down(found)
    return _Axis(conventions.label(found), f"{ends[0]:.6g}", f"{ends[1]:.6g}", grows_up=up)


def _alt(array: Array, axes: list[_Axis], ends: tuple[str, str]) -> str:
    """Tell what a plot shows, for those who do not see it."""
    what = " by ".join(f"{axis.label} from {axis.first} to {axis.last}" for axis in axes)
    kind = "Line" if len(axes) == 1 else "Image"
    return f"{kind} of {conventions.label(array)}, from {ends[0]} to {ends[1]}: {what}"


def _caption(array: Array, long: list[int], ends: tuple[str, str], taken: list[str]) -> str:
    """Tell the values' range, and which of them were looked at."""
    units = conventions.text(array, "units")[:_LABEL]
    span = f"{ends[0]} to {ends[1]}" + (f" {units}" if units not in {"", "1"} else "")
    which = f"at [{', '.join(':' if a in long else '0' for a in range(array.ndim))}]"
    return ", ".join([span, *taken, *([which] if array.ndim > len(long) else [])])


def _taken(array: Array, long: list[int], stops: list[int], steps: list[int]) -> list[str]:
    """Tell which values were looked at, where it is not all."""
    words = ("value",) if len(steps) == 1 else ("row", "column")
    looked = list(zip(words, long, stops, steps, strict=True))
    told = [
        f"the first {stop:,} of {array.shape[axis]:,} {word}s"
        for word, axis, stop, _ in looked
        if stop < array.shape[axis]
    ]
    return told + [f"every {_ordinal(step)} {word}" for word, _, _, step in looked if step > 1]


def _with_axes(picture: str, sides: tuple[str, str], side: str, below: _Axis, scale: str) -> str:
    """Put a picture between its axes: at the side from top to bottom, and below."""
    ends = [f"<span>{text(end, _LABEL)}</span>" for end in sides]
    across = [
        f"<span>{text(word, _LABEL)}</span>" for word in (below.first, below.label, below.last)
    ]
    return (
        "<div class='engram-plot'>"
        f"<div class='engram-side'>{ends[0]}<span>{text(side, _LABEL)}</span>{ends[1]}</div>"
        f"{picture}{scale}<div class='engram-below'>{''.join(across)}</div></div>"
    )


def _line(scaled: _Sample, places: NDArray[Any], alt: str) -> str:
    """Draw a line, broken where values are missing; a value between such is a dot."""
    path, pen = [], "M"
    for place, value in zip(places.tolist(), scaled.tolist(), strict=True):
        if math.isfinite(value):
            path.append(f"{pen}{place} {(1 - value) * 100:.1f}" + ("h0" if pen == "M" else ""))
            pen = "L"
        else:
            pen = "M"
    width = float(places[-1]) or 1.0
    return (
        f"<svg width='{_WIDTH}' height='{_HEIGHT}' "
        f"viewBox='{-width / 100:.6g} -6 {width * 1.02:.6g} 112' "
        f"preserveAspectRatio='none' role='img' aria-label='{text(alt)}'>"
        f"<path d='{''.join(path)}' fill='none' "
        "stroke='currentColor' stroke-width='1.5' stroke-linecap='round' "
        "vector-effect='non-scaling-stroke'/></svg>"
    )


def _heat(scaled: _Sample, shape: list[int], alt: str) -> str:
    """Draw a plane as a PNG of one pixel for each value, enlarged to the plane's proportions."""
    rows, columns = shape
    width = min(_WIDTH, max(columns * 10, 60))
    height = min(max(width * rows // columns, 24), _TALLEST)
    data = base64.b64encode(picture_of(scaled)).decode("ascii")
    return (
        f"<img alt='{text(alt)}' width='{width}' height='{height}' "
        f"src='data:image/png;base64,{data}'>"
    )


def _scale(low: str, high: str) -> str:
    """Draw what the colours mean."""
    colours = ", ".join(f"rgb{rgb}" for rgb in zip(_RED, _GREEN, _BLUE, strict=True))
    return (
        f"<div class='engram-scale'><div style='background:linear-gradient(to top, {colours})'>"
        f"</div><span>{text(high)}</span><span>{text(low)}</span></div>"
    )


def picture_of(scaled: _Sample) -> bytes:
    """Draw values of 0 to 1 as a PNG file, a pixel for each; what is not finite is transparent."""
    there = np.isfinite(scaled)
    places = np.where(there, np.rint(np.where(there, scaled, 0.0) * 254), 255).astype(np.uint8)
    return _png(places)


def _png(places: NDArray[np.uint8]) -> bytes:
    """Encode indices into the palette, of which 255 is transparent, as a PNG file."""
    bands = [np.interp(np.arange(255), _STOPS, band) for band in (_RED, _GREEN, _BLUE)]
    palette = np.rint(np.stack(bands, axis=1)).astype(np.uint8).tobytes() + b"\0\0\0"
    rows = b"".join(b"\0" + row.tobytes() for row in places)
    head = struct.pack(">IIBBBBB", places.shape[1], places.shape[0], 8, 3, 0, 0, 0)
    chunks = (
        (b"IHDR", head),
        (b"PLTE", palette),
        (b"tRNS", b"\xff" * 255 + b"\0"),
        (b"IDAT", zlib.compress(rows, 9)),
        (b"IEND", b""),
    )
    return b"\x89PNG\r\n\x1a\n" + b"".join(
        struct.pack(">I", len(data)) + kind + data + struct.pack(">I", zlib.crc32(kind + data))
        for kind, data in chunks
    )


def _ordinal(step: int) -> str:
    last = "th" if step % 100 in {11, 12, 13} else {1: "st", 2: "nd", 3: "rd"}.get(step % 10, "th")
    return f"{step:,}{last}"
