"""Levels of arrays: images, lines and histograms of a bounded size, computed where values lie.

**Protocol.** What is asked for are `height` x `width` cells over the rows and columns that are
selected. Each cell is the mean, the least or the largest of the values in it that are known. The
rows and columns are cut into tiles, which are read one after the other: of an array in one piece,
bands of rows; of one in chunks, whole chunks, so that each is decoded once. Each tile is reduced to
its cells, along its rows at first, and added to what these have so far. So memory is bounded by a
tile and the cells, whatever the size of the array.

If more bytes are selected than a request may look at, every s-th row and column is, and the answer
says so. If these lie in too many chunks, whole chunks at equal distances are: see `blocks`. Then
there are as many cells as chunks at most.
"""

from __future__ import annotations

import math
from itertools import accumulate, pairwise, product
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from engram.errors import ArgumentError
from engram.web.blocks import blocks_of, cut, fewer, shared, spanned
from engram.web.refusal import too_large
from engram.web.sources import SPAN, TILE

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable

    from numpy.typing import NDArray

    from engram.web.picks import Pick
    from engram.web.sources import Source
    from engram.web.working import Work

REDUCES = ("mean", "min", "max", "nearest")
SIDE_MOST = 2048
BINS_MOST = 8192
EDGES_MOST = 1000
_SAMPLE = 1 << 22
"""A histogram is of so many values, which it holds; of more, of values at equal distances."""
_SURE = 64
"""So many single precision values are summed up in single precision."""
_FAR_TILE = 1 << 21


class Level(NamedTuple):
    """Cells over what is selected."""

    values: NDArray[np.float32]
    """The cells: (height, width) of an image; (3, bins) of a line: least, mean and largest."""
    box: tuple[int, ...]
    """The first row and the one after the last, and the same of columns, in the array."""
    sampled: tuple[int, int]
    """Every so many rows and columns were looked at."""

    @property
    def range(self) -> tuple[float, float]:
        """The least and the largest of the finite cells; NaN, NaN if there are none."""
        finite = self.values[np.isfinite(self.values)]
        if not finite.size:
            return math.nan, math.nan
        return float(finite.min()), float(finite.max())


class _Grid(NamedTuple):
    """The rows and columns that are looked at, and into how many cells they go."""

    rows: range
    columns: range
    size: tuple[int, int]


class _Plan(NamedTuple):
    """What is looked at: a grid, its tiles, and where in the array these lie."""

    grid: _Grid
    tiles: Iterable[tuple[range, ...]]
    places: tuple[dict[int, range], dict[int, range]] | None
    """Where blocks that begin at these rows and columns of the grid lie; None: where they say."""
    sampled: tuple[int, int]

    def real(self, row: range, column: range) -> tuple[range, range]:
        """Return where a tile lies."""
        if self.places is None:
            return row, column
        return self.places[0][row.start], self.places[1][column.start]


def image(source: Source, pick: Pick, most: tuple[int, int], reduce: str, work: Work) -> Level:
    """Compute an image of two dimensions.

    Parameters
    ----------
    source, pick
        What is drawn: exactly two ranges.
    most
        The most rows and columns of cells; fewer where there are fewer values.
    reduce
        "mean", "min", "max"; or "nearest", the value in the middle of each cell.
    work
        What says whether to go on.

    Raises
    ------
    ArgumentError
        If a size or `reduce` is none, or the values are no numbers.
    RefusedError
        If it takes too long.

    """
    height, width = most
    _check("width", width, SIDE_MOST)
    _check("height", height, SIDE_MOST)
    if reduce not in REDUCES:
        raise ArgumentError(f"reduce {reduce!r} is unknown: use {', '.join(REDUCES)}")
    source.check_numbers()
    rows, columns = pick.ranges
    size = min(height, len(rows)), min(width, len(columns))
    if not all(size):
        return Level(np.empty(size, np.float32), _box(rows, columns), (1, 1))
    if reduce == "nearest":
        size = _few(source, pick, size)
    is_whole = size == pick.shape and blocks_of(source, pick, pick.ranges) is None
    if reduce == "nearest" or is_whole:
        return Level(_nearest(source, pick, size, work), _box(rows, columns), (1, 1))
    plan = _planned(source, pick, (rows, columns), size)

    def numbers(row: range, column: range) -> NDArray[Any]:
        return source.numbers(pick.key(*plan.real(row, column)))

    (cells,) = _reduce(numbers, plan, (reduce,), work)
    return Level(cells, _box(*pick.ranges), plan.sampled)


def line(source: Source, pick: Pick, bins: int, work: Work) -> Level:
    """Compute a line of one dimension: the least, the mean and the largest value of each bin.

    Raises
    ------
    ArgumentError
        If `bins` is no such number, or the values are no numbers.
    RefusedError
        If it takes too long.

    """
    _check("bins", bins, BINS_MOST)
    source.check_numbers()
    (along,) = pick.ranges
    count = min(bins, len(along))
    if not count:
        return Level(np.empty((3, 0), np.float32), _box(along), (1, 1))
    plan = _planned(source, pick, (range(1), along), (1, count))

    def numbers(row: range, column: range) -> NDArray[Any]:
        return source.numbers(pick.key(plan.real(row, column)[1]))[np.newaxis]

    cells = _reduce(numbers, plan, ("min", "mean", "max"), work)
    return Level(np.concatenate(cells), _box(along), plan.sampled)


def difference(
    one: Source, other: Source, pick: Pick, size: tuple[int, int], work: Work
) -> tuple[Level, dict[str, Any]]:
    """Compute an image, or of one range a line of means, of what `other` has more than `one`.

    Returns
    -------
    level, stats
        The cells; and of all values that were looked at: how many, how many are equal (both
        missing counts), the largest absolute difference, and the root of their mean square.

    """
    one.check_numbers()
    other.check_numbers()
    ranges = pick.ranges if len(pick.ranges) > 1 else [range(1), *pick.ranges]
    rows, columns = ranges
    cells = min(size[0], len(rows)), min(size[1], len(columns))
    stats: dict[str, Any] = {"equal": 0, "count": 0, "max_abs": 0.0, "rms": 0.0}
    if not all(cells):
        return Level(np.empty(cells, np.float32), _box(*pick.ranges), (1, 1)), stats
    lead = max(one, other, key=lambda source: (source.is_far, source.chunk_bytes))
    item = max(one.dtype.itemsize, other.dtype.itemsize)
    plan = _planned(lead, pick, (rows, columns), cells, item)
    squares = [0.0, 0]

    def numbers(row: range, column: range) -> NDArray[Any]:
        key = pick.key(*plan.real(row, column)[-len(pick.ranges) :])
        shape = (len(row), len(column))
        first, second = one.exact(key).reshape(shape), other.exact(key).reshape(shape)
        with np.errstate(invalid="ignore", over="ignore"):
            found: NDArray[Any] = (second - first).astype("f8")
        same = (first == second) | (np.isnan(first) & np.isnan(second))
        known = np.abs(found[np.isfinite(found)])
        stats["equal"] += int(same.sum())
        stats["count"] += found.size
        if known.size:
            stats["max_abs"] = max(stats["max_abs"], float(known.max()))
            squares[0] += float(np.square(known).sum())
            squares[1] += known.size
        return found

    (made,) = _reduce(numbers, plan, ("mean",), work)
    stats["rms"] = math.sqrt(squares[0] / squares[1]) if squares[1] else 0.0
    return Level(made, _box(*pick.ranges), plan.sampled), stats


def histogram(source: Source, pick: Pick, bins: int, work: Work) -> dict[str, Any]:
    """Count the values that are selected, of any number of dimensions, in bins of one width.

    Returns
    -------
    dict
        edges (bins + 1) and counts (bins) of finite values; nan, those that are missing or not
        finite; count, of all that were looked at; mean, std, min and max of the finite ones, None
        if there are none; sampled, whether values at equal distances were looked at.

    """
    _check("bins", bins, EDGES_MOST)
    source.check_numbers()
    pieces, is_sampled = _pieces(source, pick)
    found: list[NDArray[Any]] = []
    nan = count = 0
    mean = square = 0.0
    for tile_ranges in product(*pieces):
        work.go_on()
        tile = source.numbers(pick.key(*tile_ranges)).reshape(-1)
        known = tile[np.isfinite(tile)]  # a copy
        nan += tile.size - known.size
        if known.size:
            found.append(known)
            here, spread = _moments(known)
            total = count + known.size
            apart = here - mean
            square += spread + apart * apart * count * known.size / total
            mean += (here - mean) * known.size / total
            count = total
    told: dict[str, Any] = {"nan": nan, "count": nan + count, "sampled": is_sampled}
    if not found:
        return told | dict.fromkeys(("mean", "std", "min", "max")) | {"edges": [], "counts": []}
    low = float(min(each.min() for each in found))
    high = float(max(each.max() for each in found))
    edges = _edges(low, high, bins)
    counts = sum(np.histogram(each, edges)[0] for each in found)
    told |= {"mean": mean, "std": math.sqrt(square / count), "min": low, "max": high}
    return told | {"edges": edges.tolist(), "counts": np.asarray(counts).tolist()}


def _moments(values: NDArray[Any]) -> tuple[float, float]:
    """Return the mean of values, and the sum of the squares of what they differ from it."""
    with np.errstate(over="ignore", invalid="ignore"):
        mean = float(values.mean(dtype="f8"))
        return mean, float(np.square(values - mean, dtype="f8").sum())


def _edges(low: float, high: float, bins: int) -> NDArray[Any]:
    """Return the edges of bins: of a single value, one that has it in the middle."""
    if low == high:
        slack = abs(low) / 2 or 0.5
        low, high = low - slack, high + slack
    with np.errstate(over="ignore", invalid="ignore"):
        edges = np.linspace(low, high, bins + 1)
    if np.isfinite(edges).all():
        return edges
    wide: NDArray[Any] = np.linspace(low / 4, high / 4, bins + 1) * 4
    return wide  # they lie too far apart to be subtracted


def _thinned(source: Source, pick: Pick) -> tuple[list[range], bool]:
    """Return ranges of which a histogram is made: every s-th place of the first that are long."""
    ranges, most = pick.ranges, _SAMPLE
    if source.is_far:
        most = min(most, max(source.most // source.dtype.itemsize, 1))
    is_sampled = False
    for place, each in enumerate(ranges):
        items = math.prod(len(one) for one in ranges)
        if items <= most:
            break
        step = min(-(-items // most), len(each))
        ranges[place], is_sampled = each[::step], True
    return ranges, is_sampled


def _pieces(source: Source, pick: Pick) -> tuple[list[list[range]], bool]:
    """Return of each range the pieces whose tiles a histogram is made of, and whether of a part."""
    ranges = pick.ranges
    blocks = blocks_of(source, pick, ranges)
    if blocks is None:
        ranges, is_sampled = _thinned(source, pick)
        return tiled(source, pick, ranges), is_sampled
    taken = fewer(list(map(spanned, ranges, blocks.lengths)), blocks.most)
    pieces = list(map(cut, ranges, blocks.lengths, taken))
    for place, each in enumerate(pieces):
        items = math.prod(sum(map(len, one)) for one in pieces)
        step = min(-(-items // _SAMPLE), max(map(len, each)))
        pieces[place] = [piece[::step] for piece in each]
    return pieces, True


def tiled(source: Source, pick: Pick, ranges: list[range]) -> list[list[range]]:
    """Cut ranges into pieces that make tiles: as many of the last ones as a tile has room for."""
    if not all(ranges):
        return [[]]
    units = [_unit(source, pick, place, along) for place, along in enumerate(ranges)]
    left = (_FAR_TILE if source.is_far else TILE) // math.prod(length for length, _ in units)
    found: list[list[range]] = []
    for along, unit in zip(reversed(ranges), reversed(units), strict=True):
        few = source.is_far and along.step > 1 and len(found) > 0  # else what is between comes, too
        most = unit[0] * max(1 if few else left, 1)
        found.insert(0, list(_cut(along, most, unit)))
        left //= max(-(-min(most, len(along)) // unit[0]), 1)
    return found


def _check(name: str, value: int, most: int) -> None:
    if not 1 <= value <= most:
        raise ArgumentError(f"{name} {value} is none: give one of 1 to {most}")


def _box(*ranges: range) -> tuple[int, ...]:
    """Return where ranges begin, and end."""
    ends = []
    for each in ranges:
        ends += [each.start, each[-1] + 1 if len(each) else each.start]
    return tuple(ends)


def _planned(
    source: Source,
    pick: Pick,
    sides: tuple[range, range],
    size: tuple[int, int],
    item: int | None = None,
) -> _Plan:
    """Plan what is looked at of rows and columns, for so many cells."""
    ranges = sides[-len(pick.dims) :]
    blocks = blocks_of(source, pick, ranges)
    if blocks is None:
        rows, columns, sampled = _sampled(source, *sides, size, item or source.dtype.itemsize)
        tiles = _tiles_of(source, pick, rows, columns)
        return _Plan(_Grid(rows, columns, size), tiles, None, sampled)
    lengths = [1, *blocks.lengths][-2:]
    counts = spanned(sides[0], lengths[0]), spanned(sides[1], lengths[1])
    taken = shared(counts, size, blocks.most)
    virtual: list[list[range]] = []
    places: list[dict[int, range]] = []
    for along, length, most in zip(sides, lengths, taken, strict=True):
        pieces = cut(along, length, most)
        starts = accumulate(map(len, pieces), initial=0)
        virtual.append([range(*pair) for pair in pairwise(starts)])
        places.append(dict(zip((each.start for each in virtual[-1]), pieces, strict=True)))
    rows, columns = (range(each[-1].stop) for each in virtual)
    high, wide = (
        side if few == count else min(side, few)
        for side, few, count in zip(size, taken, counts, strict=True)
    )
    cells = min(high, len(rows)), min(wide, len(columns))
    steps = -(-counts[0] // taken[0]), -(-counts[1] // taken[1])
    return _Plan(_Grid(rows, columns, cells), product(*virtual), (places[0], places[1]), steps)


def _sampled(
    source: Source, rows: range, columns: range, size: tuple[int, int], item: int
) -> tuple[range, range, tuple[int, int]]:
    """Return the rows and columns that are looked at, so many that a request may."""

    def nbytes() -> int:
        return len(rows) * len(columns) * item

    steps = [1, 1]
    if nbytes() > source.most:
        steps[0] = min(-(-nbytes() // source.most), max(len(rows) // size[0], 1))
        rows = rows[:: steps[0]]
    if nbytes() > source.most and not source.is_far:  # which would fetch what is between
        steps[1] = min(-(-nbytes() // source.most), max(len(columns) // size[1], 1))
        columns = columns[:: steps[1]]
    if nbytes() > source.most:
        raise too_large(
            f"{nbytes():,} bytes of {source.array.path!r} would be read, and a request may read "
            f"{source.most:,}",
            "narrow the index",
        )
    return rows, columns, (steps[0], steps[1])


def _unit(source: Source, pick: Pick, place: int, along: range) -> tuple[int, int]:
    """Return the length of a chunk along a range, in its steps, and how far the first one goes."""
    if source.chunks is None or (not source.is_packed and math.prod(source.chunks) > TILE):
        return 1, 0
    chunk = source.chunks[pick.dims[place]]
    return max(chunk // along.step, 1), -(-(chunk - along.start % chunk) // along.step)


def _tiles_of(
    source: Source, pick: Pick, rows: range, columns: range
) -> Iterable[tuple[range, range]]:
    """Yield tiles of rows and columns: bands where that can be, chunks where there are such."""
    if len(pick.dims) == 1:
        for column in _cut(columns, TILE, _unit(source, pick, 0, columns)):
            yield rows, column
        return
    last = len(pick.dims) - 1
    units = _unit(source, pick, last - 1, rows), _unit(source, pick, last, columns)
    gaps = 1 if source.is_mapped else rows.step * columns.step  # which are read, too
    most = max((_FAR_TILE if source.is_far else TILE) // gaps, 1)
    if source.is_far and rows.step > 1:  # one request a row, and none for what is between
        most = 1
    high = max(units[0][0], most // max(len(columns), 1))
    wide = max(most // high, units[1][0])
    for row in _cut(rows, high, units[0]):
        for column in _cut(columns, wide, units[1]):
            yield row, column


def _cut(along: range, most: int, unit: tuple[int, int]) -> Iterable[range]:
    """Cut a range into pieces of at most so many places, at the ends of chunks."""
    chunk, first = unit
    step = max(most // chunk, 1) * chunk
    start = 0
    while start < len(along):
        end = start + step if start or not first else first + max(step - chunk, 0)
        yield along[start:end]
        start = end


class _Cells:
    """Cells that are filled tile by tile: one kind of figure."""

    def __init__(self, want: str, size: tuple[int, int]) -> None:
        self.want = want
        start = {"min": np.inf, "max": -np.inf}.get(want, 0.0)
        kind = np.float64 if want == "mean" else np.float32
        self.values: NDArray[Any] = np.full(size, start, kind)
        self.missing: NDArray[np.int64] | None = None

    def add(self, tile: NDArray[Any], place: tuple[slice, slice], cuts: list[list[int]]) -> None:
        """Add a tile, whose cells begin at these of its rows and columns."""
        into = self.values[place]
        if self.want == "mean":
            sums = _reduced(tile, cuts, np.add)
            if not np.isfinite(sums).all():
                known = np.isfinite(tile)
                sums = _reduced(np.where(known, tile, 0.0).astype("f8"), cuts, np.add)
                if self.missing is None:
                    self.missing = np.zeros(self.values.shape, "i8")
                self.missing[place] += _reduced((~known).astype("f4"), cuts, np.add).astype("i8")
            into += sums
        else:
            ufunc = np.fmin if self.want == "min" else np.fmax
            ufunc(into, _reduced(tile, cuts, ufunc), out=into)

    def result(self, counts: NDArray[Any]) -> NDArray[np.float32]:
        """Return the cells, in which so many values were looked at."""
        with np.errstate(invalid="ignore", divide="ignore", over="ignore"):
            if self.want == "mean":
                known = counts if self.missing is None else counts - self.missing
                np.divide(self.values, known, out=self.values)
            elif self.want in {"min", "max"}:
                none = self.values == (np.inf if self.want == "min" else -np.inf)
                self.values[none] = np.nan
            return self.values.astype(np.float32)


def _reduce(
    numbers: Callable[[range, range], NDArray[Any]],
    plan: _Plan,
    wants: tuple[str, ...],
    work: Work,
) -> list[NDArray[np.float32]]:
    """Reduce tiles to cells; `numbers` reads those of a tile's rows and columns."""
    rows, columns, size = plan.grid
    edges = [
        np.arange(count + 1) * len(along) // count
        for count, along in zip(size, (rows, columns), strict=True)
    ]
    counts = np.outer(np.diff(edges[0]), np.diff(edges[1]))
    cells = [_Cells(want, size) for want in wants]
    with np.errstate(all="ignore"):
        for row, column in plan.tiles:
            work.go_on()
            place, cuts = [], []
            for along, part, edge in ((rows, row, edges[0]), (columns, column, edges[1])):
                start = (part.start - along.start) // along.step
                first = int(np.searchsorted(edge, start, "right")) - 1
                last = int(np.searchsorted(edge, start + len(part), "left"))
                place.append(slice(first, last))
                cuts.append([0, *(int(at) - start for at in edge[first + 1 : last])])
            tile = numbers(row, column)
            for each in cells:
                each.add(tile, (place[0], place[1]), cuts)
    return [each.result(counts) for each in cells]


def _reduced(tile: NDArray[Any], cuts: list[list[int]], ufunc: Any) -> NDArray[Any]:
    """Reduce a tile to its cells, whose first rows and columns `cuts` has."""
    tall, wide = tile.shape
    starts, columns = cuts
    part = tile
    if len(starts) < tall:
        exact = ufunc is np.add and tile.dtype == np.float32 and tall > _SURE * len(starts)
        part = np.empty((len(starts), wide), "f8" if exact else tile.dtype)
        for at, (begin, end) in enumerate(pairwise([*starts, tall])):
            if exact:
                np.add.reduce(tile[begin:end], axis=0, out=part[at], dtype="f8")
            else:
                ufunc.reduce(tile[begin:end], axis=0, out=part[at])
    if len(columns) < wide:
        if ufunc is np.add and part.dtype == np.float32 and wide > _SURE * len(columns):
            part = part.astype("f8")
        part = ufunc.reduceat(part, columns, axis=1)
    return part


@np.errstate(over="ignore", invalid="ignore")
def _nearest(source: Source, pick: Pick, size: tuple[int, int], work: Work) -> NDArray[np.float32]:
    """Read the value in the middle of each cell."""
    if size == pick.shape:
        return source.numbers(pick.key(*pick.ranges)).astype(np.float32)
    rows, columns = (
        np.asarray([along[(2 * at + 1) * len(along) // (2 * count)] for at in range(count)])
        for count, along in zip(size, pick.ranges, strict=True)
    )
    first, last = pick.dims
    cells = np.empty(size, np.float32)
    with np.errstate(all="ignore"):
        if source.is_far:
            _check_far(source, size[0], len(pick.ranges[1]))
            for at, row in enumerate(rows.tolist()):
                work.go_on()
                found = source.numbers(pick.key(range(row, row + 1), pick.ranges[1]))[0]
                cells[at] = found[(columns - pick.ranges[1].start) // pick.ranges[1].step]
            return cells
        for band in np.split(np.arange(size[0]), _bands(source, rows, size[1], first)):
            work.go_on()
            key: list[Any] = list(pick.parts)
            key[first], key[last] = rows[band, np.newaxis], columns
            cells[band] = source.numbers(tuple(key))
    return cells


def _few(source: Source, pick: Pick, size: tuple[int, int]) -> tuple[int, int]:
    """Return for how many cells one value each is read, if each lies in a chunk of its own."""
    blocks = blocks_of(source, pick, pick.ranges)
    if blocks is None:
        return size
    high, wide = map(min, size, map(spanned, pick.ranges, blocks.lengths))
    return size if high * wide <= blocks.most else shared((high, wide), size, blocks.most)


def _bands(source: Source, rows: NDArray[Any], width: int, dim: int) -> NDArray[Any]:
    """Return where bands of rows begin that are read at once: those that share chunks."""
    if source.is_mapped:
        band = max(TILE // width, 1)
    elif not source.is_packed and source.chunk_bytes > SPAN:
        band = 1
    else:
        chunk = source.chunks[dim] if source.chunks else 1
        return np.flatnonzero(np.diff(rows // chunk)) + 1
    return np.arange(band, len(rows), band)


def _check_far(source: Source, rows: int, columns: int) -> None:
    """Refuse to fetch too many rows."""
    nbytes = rows * columns * source.dtype.itemsize
    if nbytes > source.most:
        raise too_large(
            f"{nbytes:,} bytes of {source.array.path!r} would be fetched, and a request may fetch "
            f"{source.most:,}",
            "narrow the index",
        )
