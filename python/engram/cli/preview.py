"""An array drawn in a terminal: a curve of blocks, or a small map in colours.

It draws what `engram plot` would, chosen by the same rules. Without colours, which is so in a pipe
and where NO_COLOR is set, a map is made of characters instead. A value that is missing is blank.
"""

from __future__ import annotations

import shutil
import sys
import warnings
from itertools import pairwise
from typing import TYPE_CHECKING, Any

import numpy as np
from rich.color import Color
from rich.style import Style
from rich.text import Text

from engram import conventions
from engram.cli import terminal
from engram.cli.plot.choose import Choice, choose
from engram.cli.summary import number

if TYPE_CHECKING:
    from numpy.typing import NDArray

    import engram
    from engram.cli.plot.choose import Axis

_WIDTH = 72
_CURVE_ROWS = 4
_LINES = 24
_BLOCKS = " ▁▂▃▄▅▆▇█"
_CHARACTERS = ".:-=+*#%@"
_RAMP = ((68, 1, 84), (59, 82, 139), (33, 145, 140), (94, 201, 98), (253, 231, 37))
_DENSE = 4
"""So many values across are read for each column, and averaged."""
_ZOOM = 6
"""A value of a small array takes up to so many columns."""
_RICH_ENOUGH = {"256", "truecolor", "windows"}


def preview(array: engram.Array) -> list[Text] | None:
    """Return the lines of a drawing; None if there is nothing to draw."""
    if not conventions.is_number(array.dtype) or array.size <= 1:
        return None
    columns = max(min(terminal.out().width - 2, terminal.text_width() - 2, _WIDTH), 8)
    choice = choose(array, most=_DENSE * columns)
    if not np.isfinite(choice.values).any():
        return None
    drawn = _map(choice, columns) if choice.values.ndim > 1 else _curve(choice, columns)
    return [*drawn, *_caption(choice)]


def _curve(choice: Choice, columns: int) -> list[Text]:
    """Draw values of one dimension as columns of blocks."""
    values = _zoomed(_farthest(choice, columns)[np.newaxis], columns)[0]
    low, high = _range(values)
    height = len(_BLOCKS[1:]) * _CURVE_ROWS
    with np.errstate(invalid="ignore"):
        levels = np.nan_to_num(1 + (values - low) / (high - low) * (height - 1), nan=0)
    rows = []
    for row in reversed(range(_CURVE_ROWS)):
        filled = np.clip(np.round(levels).astype(int) - 8 * row, 0, 8)
        rows.append(Text("".join(_BLOCKS[level] for level in filled), style=terminal.KIND))
    return rows


def _map(choice: Choice, columns: int) -> list[Text]:
    """Draw values of two dimensions, the way up that their coordinates say."""
    assert choice.y is not None, "only a line has no second axis"  # noqa: S101 - as `choose` makes it
    values = choice.values
    if _ascends(choice.y, 0) and not choice.y.down:
        values = values[::-1]
    if not _ascends(choice.x, -1):
        values = values[:, ::-1]
    colours = _has_colours()
    lines = shutil.get_terminal_size().lines if sys.stdout.isatty() else 2 * _LINES
    most = max(min(lines * 2 // 3, _LINES), 6) * (2 if colours else 1)
    ratio = choice.whole[0] / choice.whole[1]
    if choice.kind == "image":
        ratio = float(np.clip(ratio, 0.2, 1.0))
    width = columns
    height = max(round(width * ratio * (1 if colours else 0.5)), 2)
    if height > most:
        width, height = max(round(width * most / height), 2), most
    small = _zoomed(_averaged(values, height, width), width)
    low, high = _range(small)
    with np.errstate(invalid="ignore"):
        small = (small - low) / (high - low)
    return _coloured(small) if colours else _lettered(small)


def _coloured(values: NDArray[Any]) -> list[Text]:
    """Draw values of 0 to 1, two rows to a line: the upper one in front, the lower one behind."""
    if len(values) % 2:
        values = np.vstack([values, np.full((1, values.shape[1]), np.nan)])
    lines = []
    for above, below in zip(values[::2], values[1::2], strict=True):
        line = Text()
        for upper, lower in zip(above, below, strict=True):
            front, back = _colour(upper), _colour(lower)
            if front is None:
                line.append(" " if back is None else "▄", Style(color=back))
            else:
                line.append("▀", Style(color=front, bgcolor=back))
        lines.append(line)
    return lines


def _lettered(values: NDArray[Any]) -> list[Text]:
    """Draw values of 0 to 1 as characters, one to a value."""
    last = len(_CHARACTERS) - 1
    return [
        Text("".join(" " if v != v else _CHARACTERS[round(v * last)] for v in row))  # noqa: PLR0124 - NaN
        for row in np.clip(values, 0, 1).tolist()
    ]


def _colour(value: float) -> Color | None:
    """Return the colour of a value of 0 to 1; None if it is missing."""
    if not np.isfinite(value):
        return None
    place = min(max(float(value), 0.0), 1.0) * (len(_RAMP) - 1)
    lower = min(int(place), len(_RAMP) - 2)
    part = place - lower
    mixed = (a + (b - a) * part for a, b in zip(_RAMP[lower], _RAMP[lower + 1], strict=True))
    red, green, blue = (round(each) for each in mixed)
    return Color.from_rgb(red, green, blue)


def _caption(choice: Choice) -> list[Text]:
    """Say what lies where."""
    if choice.y is None or choice.values.ndim == 1:
        words = [_extent(choice.x)] if choice.kind == "line" else ["in the order of the points"]
    else:
        up = "down" if choice.y.down else "up"
        words = [f"{_extent(choice.y)} {up}", f"{_extent(choice.x)} across"]
    if choice.label.startswith("|"):
        words.append(f"drawn is {choice.label}")
    words += choice.fixed
    return [Text(terminal.plain("; ".join(words)), style=terminal.FAINT)]


def _extent(axis: Axis) -> str:
    """Return an axis with its first and last place."""
    values = axis.values
    ends = axis.ends or (values.min(), values.max())
    words = conventions.iso(list(ends)) if axis.times else list(map(number, sorted(ends)))
    return f"{axis.label} {' to '.join(words)}"


def _ascends(axis: Axis, along: int) -> bool:
    """Whether the places of an axis grow with the index."""
    values = axis.values
    if values.ndim > 1:
        values = values.mean(axis=1 if along == 0 else 0)
    return bool(values[-1] >= values[0])


def _farthest(choice: Choice, columns: int) -> NDArray[Any]:
    """Return a line as at most so many values: of each part that which is farthest from usual."""
    values = np.where(np.isfinite(choice.values), choice.values, np.nan)
    if len(values) <= columns:
        return values
    indices = np.arange(len(values)) * choice.step if choice.indices is None else choice.indices
    starts = np.searchsorted(indices, np.linspace(0, choice.whole[0], columns + 1)[1:-1])
    with np.errstate(over="ignore"):
        distance = np.nan_to_num(np.abs(values - np.nanmedian(values)), nan=-1, posinf=np.inf)
    parts = zip(np.split(values, starts), np.split(distance, starts), strict=True)
    return np.array([part[far.argmax()] for part, far in parts])


def _averaged(values: NDArray[Any], rows: int, columns: int) -> NDArray[Any]:
    """Return values as at most so many rows and columns, each the mean of those known in it."""
    finite = np.where(np.isfinite(values), values, np.nan)
    for axis, most in enumerate((rows, columns)):
        size = finite.shape[axis]
        if size > most:
            edges = np.linspace(0, size, most + 1).round().astype(int)
            parts = [finite.take(range(start, end), axis) for start, end in pairwise(edges)]
            with warnings.catch_warnings(), np.errstate(over="ignore", invalid="ignore"):
                warnings.simplefilter("ignore", RuntimeWarning)  # a part may have none
                finite = np.stack([np.nanmean(part, axis) for part in parts], axis)
    return finite


def _zoomed(values: NDArray[Any], columns: int) -> NDArray[Any]:
    """Return values of a small array, each repeated."""
    zoom = max(min(columns // values.shape[1] // 2, _ZOOM), 1)
    zoomed = np.repeat(values, zoom, axis=1)
    upright = max(min(zoom, 20 // len(values)), 1) if len(values) > 1 else 1
    return np.repeat(zoomed, upright, axis=0)


def _range(values: NDArray[Any]) -> tuple[float, float]:
    """Return the least and the largest value; two that differ, with a constant in the middle."""
    low, high = float(np.nanmin(values)), float(np.nanmax(values))
    if not np.isfinite(high - low):  # they lie too far apart to be subtracted
        return low / 4, high / 4
    if low == high:
        slack = abs(low) / 2 or 1.0
        return low - slack, high + slack
    return low, high


def _has_colours() -> bool:
    """Whether what is printed may be in colours."""
    console = terminal.out()
    return console.is_terminal and not console.no_color and console.color_system in _RICH_ENOUGH
