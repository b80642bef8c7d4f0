"""A small picture of an array: a line of one dimension, a heat map of two.

Values are taken at even steps, at most 96 of a line and 32 x 64 of a plane, so a picture of a large
array touches that many pages of memory and no more; its caption tells the step. More dimensions are
drawn at index 0 of all but the last two that are longer than 1. Values are drawn as they are meant;
what is missing, or not finite, stays blank. The first row is at the top, as stored.
"""

import base64
import math
import struct
import zlib
from typing import Any

import numpy as np
from numpy.typing import NDArray

from engram.array import Array
from engram.decoded import encoding_for_show
from engram.notebook.parts import note

_LINE = 96
_ROWS, _COLUMNS = 32, 64
_WIDTH, _HEIGHT = 320, 48
_TALLEST = 240
_FEWEST = 4
_PLANE = 2
_STOPS = (0, 84, 169, 254)
_RED, _GREEN, _BLUE = (38, 32, 74, 250), (24, 104, 180, 232), (74, 142, 122, 90)
"""Colours from low to high: each lighter than the one before, so that grey print shows it too."""

_Sample = NDArray[np.float64]


def read(array: Array) -> Any:
    """Give what is sliced to look at values: the memory, or a chunked array itself."""
    return array.view() if array.chunks is None else array


def preview(array: Array) -> str:
    """Draw an array, if it is of numbers and there is something to see; else nothing."""
    if array.dtype.kind not in "biuf" or array.size < _FEWEST:
        return ""
    long = [axis for axis, length in enumerate(array.shape) if length > 1][-_PLANE:]
    most = (_LINE,) if len(long) == 1 else (_ROWS, _COLUMNS)
    steps = [math.ceil(array.shape[axis] / room) for axis, room in zip(long, most, strict=True)]
    index: list[Any] = [0] * array.ndim
    for axis, step in zip(long, steps, strict=True):
        index[axis] = slice(None, None, step)
    raw = np.asarray(read(array)[tuple(index)])
    sample: _Sample = encoding_for_show(array).numbers(raw, np.dtype("f8"))
    there = sample[np.isfinite(sample)]
    if not there.size:
        return note("no picture: all that was looked at is missing")
    low, high = float(there.min()), float(there.max())
    if not math.isfinite(high - low):
        return ""
    if low == high:
        return note(f"no picture: all that was looked at is {low:.6g}")
    scaled = (sample - low) / (high - low)
    picture = _line(scaled) if len(long) == 1 else _heat(scaled, [array.shape[a] for a in long])
    words = ("value",) if len(steps) == 1 else ("row", "column")
    taken = ", ".join(
        f"every {_ordinal(n)} {w}" for n, w in zip(steps, words, strict=True) if n > 1
    )
    which = f", at [{', '.join(':' if a in long else '0' for a in range(array.ndim))}]"
    caption = f"{low:.6g} to {high:.6g}" + (f", {taken}" if taken else "")
    caption += which if array.ndim > len(long) else ""
    return picture + note(caption)


def _line(scaled: _Sample) -> str:
    """Draw a line, broken where values are missing."""
    path, pen = [], "M"
    for place, value in enumerate(scaled.tolist()):
        if math.isfinite(value):
            path.append(f"{pen}{place} {(1 - value) * 100:.1f}")
            pen = "L"
        else:
            pen = "M"
    return (
        f"<svg width='{_WIDTH}' height='{_HEIGHT}' viewBox='0 -6 {len(scaled) - 1} 112' "
        f"preserveAspectRatio='none' role='img'><path d='{''.join(path)}' fill='none' "
        "stroke='currentColor' stroke-width='1.5' stroke-linecap='round' "
        "vector-effect='non-scaling-stroke'/></svg>"
    )


def _heat(scaled: _Sample, shape: list[int]) -> str:
    """Draw a plane as a PNG of one pixel for each value, enlarged to the plane's proportions."""
    rows, columns = shape
    width = min(_WIDTH, max(columns * 10, 60))
    height = min(max(width * rows // columns, 12), _TALLEST)
    data = base64.b64encode(picture_of(scaled)).decode("ascii")
    return (
        f"<img alt='heat map' width='{width}' height='{height}' src='data:image/png;base64,{data}'>"
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
