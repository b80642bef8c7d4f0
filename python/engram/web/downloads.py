"""What a browser downloads: a part of an array as netCDF, CSV, PNG or numpy's file.

A download is bounded: what is larger belongs into a file by `engram export`, which needs no
browser. It is made as a whole before its first byte goes out, so that one that fails is an error
and no short file.

**Invariant.** It is made in a folder of its own, which is gone before the first byte goes out: what
is sent is an open file without a name. A server that ends stops what is being made, and so leaves
no folder behind, unless it is killed (SIGKILL). At most `DOWNLOADS_MOST` are made or sent at once.
Where there is no room for a file, that is an error of this request alone.
"""

from __future__ import annotations

import csv
import errno
import math
import os
import re
import tempfile
import threading
import weakref
from itertools import product
from pathlib import Path
from typing import IO, TYPE_CHECKING, Any, ClassVar

import numpy as np
from starlette.concurrency import run_in_threadpool
from starlette.responses import StreamingResponse

import engram
from engram import conventions
from engram.errors import ArgumentError, PoolFullError
from engram.notebook.preview import picture_of
from engram.web import levels, picks, tables
from engram.web.objects import array_at
from engram.web.refusal import RefusedError, too_large
from engram.web.served import pool_of
from engram.web.sources import Source

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Callable, Iterable, Iterator

    from numpy.typing import NDArray
    from starlette.responses import Response
    from starlette.types import Receive, Scope, Send

    from engram.web.answers import Ask
    from engram.web.picks import Pick
    from engram.web.served import Served
    from engram.web.working import Work

BYTES_MOST = 256 << 20
CELLS_MOST = 1_000_000
DOWNLOADS_MOST = 8
_PIECE = 1 << 18
_CELLS = 4096
"""So many cells are text at once."""
_NO_ROOM = {errno.ENOSPC, errno.EDQUOT}
_RANK_MOST = 32
"""Arrays of netCDF files have so many dimensions at most, for they are HDF5's."""
_PLANE = 2
_KINDS = {
    "netcdf": ("nc", "application/x-netcdf"),
    "csv": ("csv", "text/csv; charset=utf-8"),
    "png": ("png", "image/png"),
    "npy": ("npy", "application/octet-stream"),
}


def download(served: Served, ask: Ask, work: Work) -> Response:
    """Make a file of what is selected of an array.

    Raises
    ------
    ArgumentError
        If the format is none, or does not fit what is selected.
    RefusedError
        If it would be larger than a download may be.

    """
    form, path = ask.needed("as"), ask.needed("path")
    if form not in _KINDS:
        raise ArgumentError(f"as={form[:40]!r} is no format: use {', '.join(_KINDS)}")
    array = array_at(served, path)
    source = Source(array, work, is_decoded=ask.truth("decoded", True))
    pick = picks.read(ask.text("index"), source.shape)
    ending, kind = _KINDS[form]
    name = re.sub(r"[^\w.-]+", "_", path.rpartition("/")[2], flags=re.ASCII) or "array"
    headers = {"content-disposition": f'attachment; filename="{name}.{ending}"'}

    def write(file: Path) -> None:
        if form == "netcdf":
            _netcdf(served, source, pick, file, work)
        elif form == "csv":
            _csv(source, pick, file, work)
        elif form == "npy":
            _npy(source, pick, file, work)
        else:
            file.write_bytes(_png(source, pick, ask, work))

    return _Sent(Download(write), kind, headers)


class Download:
    """A file that is made at once, and open until it is closed or nobody has it any more.

    Raises
    ------
    RefusedError
        If there are too many, or there is no room for its file.

    """

    _all: ClassVar[weakref.WeakSet[Download]] = weakref.WeakSet()
    """Those of all servers of this process, which share TMPDIR."""
    _lock = threading.Lock()

    def __init__(self, write: Callable[[Path], None]) -> None:
        with self._lock:
            if len(self._all) >= DOWNLOADS_MOST:
                raise RefusedError(
                    *(503, "TooMany", f"{DOWNLOADS_MOST} downloads are under way already"),
                    "wait until one has ended",
                )
            self._all.add(self)
        try:
            with tempfile.TemporaryDirectory(prefix="engram-web-") as folder:
                write(Path(folder) / "made")
                self.file: IO[bytes] = (Path(folder) / "made").open("rb")
        except BaseException as error:
            self._end()
            is_full = isinstance(error, OSError) and error.errno in _NO_ROOM
            if is_full or isinstance(error, PoolFullError):  # by which an export says the same
                raise RefusedError(
                    *(507, "NoRoom", f"{tempfile.gettempdir()} has no room for the download"),
                    "make room there, or start the server with TMPDIR set to another folder",
                ) from None
            raise
        self.size = self.file.seek(0, 2)
        self.file.seek(0)

    def close(self) -> None:
        """Let its file go."""
        self.file.close()
        self._end()

    def _end(self) -> None:
        with self._lock:
            self._all.discard(self)


class _Sent(StreamingResponse):
    """A download on its way: it is closed once it was sent, or cannot be."""

    def __init__(self, download: Download, kind: str, headers: dict[str, str]) -> None:
        self._download = download
        headers = headers | {"content-length": str(download.size)}
        super().__init__(_pieces(download.file), media_type=kind, headers=headers)

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Send it."""
        try:
            await super().__call__(scope, receive, send)
        finally:
            self._download.close()


async def _pieces(file: IO[bytes]) -> AsyncIterator[bytes]:
    while piece := await run_in_threadpool(file.read, _PIECE):
        yield piece


def _check_bytes(source: Source, pick: Pick, more: int = 0) -> None:
    """Refuse what is too large; `more` bytes are beside it."""
    if source.dtype.kind == "T":
        nbytes = source.array.nbytes
    else:
        nbytes = math.prod(pick.shape) * source.dtype.itemsize
    if nbytes + more > BYTES_MOST:
        raise too_large(
            f"it would have {nbytes + more:,} bytes, and a download has {BYTES_MOST:,} at most",
            "narrow the index, or use `engram export`, which writes files of any size",
        )


def _npy(source: Source, pick: Pick, path: Path, work: Work) -> None:
    """Write the stored values as numpy's file, a tile at a time."""
    if source.dtype.kind == "T":
        raise ArgumentError("texts of variable length are no .npy: take csv")
    _check_bytes(source, pick)
    version = None if str(source.dtype).isascii() else (3, 0)  # which numpy warns of, if it chooses
    into = np.lib.format.open_memmap(path, "w+", source.dtype, pick.shape, version=version)
    with path.open("rb+") as file:  # a page that finds no room when it is written is a SIGBUS
        os.posix_fallocate(file.fileno(), 0, os.fstat(file.fileno()).st_size)
    for ranges in product(*levels.tiled(source, pick, pick.ranges)):
        work.go_on()
        place = tuple(
            slice(start := (part.start - along.start) // along.step, start + len(part))
            for part, along in zip(ranges, pick.ranges, strict=True)
        )
        into[place] = source.raw(pick.key(*ranges))
    into.flush()


def _csv(source: Source, pick: Pick, path: Path, work: Work) -> None:
    """Write values as text: two dimensions as rows and columns, more as a line for each value."""
    count = tables.cells_of(pick.shape) * _leaves(source.dtype)
    if count > CELLS_MOST:
        raise too_large(
            f"it would have {count:,} values, and a table has {CELLS_MOST:,} at most",
            "narrow the index, or take netcdf or npy",
        )
    _check_bytes(source, pick)
    raw = source.raw(pick.key(*pick.ranges))
    with path.open("w", encoding="utf-8", errors="replace", newline="") as file:
        csv.writer(file, lineterminator="\n").writerows(_rows(source, pick, raw, work))


def _rows(
    source: Source, pick: Pick, raw: NDArray[Any], work: Work
) -> Iterator[Iterable[int | str]]:
    """Yield the rows of a table."""
    flat, names = raw.reshape(-1), source.dtype.names
    if names:
        yield map(safe, names)
        for record in flat:
            work.go_on()
            yield map(safe, tables.fields(record))
        return
    if raw.ndim < _PLANE:
        yield from ([cell] for cell in _cells(source, flat, work))
    elif raw.ndim == _PLANE:
        cells, (high, wide) = _cells(source, flat, work), raw.shape
        yield from ([next(cells) for _ in range(wide)] for _ in range(high))
    else:
        dims = list(source.array.dims or (f"dim {n}" for n in range(len(source.shape))))
        yield [*(safe(str(dims[dim])) for dim in pick.dims), "value"]
        for place, cell in zip(np.ndindex(*raw.shape), _cells(source, flat, work), strict=True):
            at = [each[n] for each, n in zip(pick.ranges, place, strict=True)]
            yield [*at, cell]


def _cells(source: Source, flat: NDArray[Any], work: Work) -> Iterator[str]:
    """Yield values as text, some at a time."""
    for start in range(0, flat.size, _CELLS):
        work.go_on()
        yield from map(safe, tables.texts(source, flat[start : start + _CELLS]))


def _leaves(dtype: np.dtype[Any]) -> int:
    """Count the values in an item: those of all fields, and of arrays in them."""
    if dtype.subdtype is not None:
        base, shape = dtype.subdtype
        return _leaves(base) * math.prod(shape)
    return max(sum(_leaves(dtype[name]) for name in dtype.names or ()), 1)


def safe(cell: str) -> str:
    """Return a cell that no spreadsheet takes for a formula, as it does behind a mark of order."""
    begun = cell.lstrip("\ufeff")[:1]
    if begun in {"=", "@", "\t", "\r"} or (begun in {"+", "-"} and not _NUMBER.fullmatch(cell)):
        return f"'{cell}"
    return cell


_NUMBER = re.compile(r"[-+]?(\d+\.?\d*([eE][-+]?\d+)?|inf|nan)")


def _png(source: Source, pick: Pick, ask: Ask, work: Work) -> bytes:
    """Draw two dimensions."""
    if len(pick.ranges) != _PLANE:
        raise ArgumentError("a picture has two ranges: write numbers for the other dimensions")
    size = ask.whole("height", 1024), ask.whole("width", 1024)
    level = levels.image(source, pick, size, ask.text("reduce", "mean"), work)
    values = level.values.astype("f8")
    bounds = []
    for name, usual in zip(("min", "max"), level.range, strict=True):
        try:
            bounds.append(float(ask.text(name) or usual))
        except ValueError:
            raise ArgumentError(f"{name}={ask.text(name)[:40]!r} is no number") from None
    low, high = bounds
    with np.errstate(all="ignore"):
        scaled = (
            (values - low) / (high - low)
            if high > low
            else np.where(np.isfinite(values), 0.5, np.nan)
        )
    return picture_of(np.clip(scaled, 0, 1))


def _netcdf(served: Served, source: Source, pick: Pick, path: Path, work: Work) -> None:
    """Export an array with its coordinates."""
    pool_of(served, "a netCDF file")
    array = source.array
    if len(source.shape) > _RANK_MOST:
        raise ArgumentError(
            f"{array.path!r} has {len(source.shape)} dimensions, and an array of a netCDF file "
            f"{_RANK_MOST} at most: take csv or npy"
        )
    dims = array.dims or ()
    slices = _slices(source, pick)
    if slices and not dims:
        raise ArgumentError(
            "the dimensions have no names, by which a netCDF file is cut: take csv or npy, or all "
            "of it"
        )
    found = [conventions.coordinate(array, dim) for dim in dims]
    beside = {dim: each for dim, each in enumerate(found) if each is not None}
    lengths = [len(part) if isinstance(part, range) else 1 for part in pick.parts]
    more = sum(lengths[dim] * each.dtype.itemsize for dim, each in beside.items())
    _check_bytes(source, pick, more)
    engram.export_file(
        [array, *beside.values()],
        path,
        format="netcdf4",
        overwrite=True,
        lossy=True,
        slices=slices or None,
        progress=lambda _: work.go_on(),
    )


def _slices(source: Source, pick: Pick) -> dict[str, slice[Any, Any, Any]]:
    """Return what is cut of dimensions, by their names."""
    found = {}
    for dim, part in enumerate(pick.parts):
        whole = range(source.shape[dim])
        along = part if isinstance(part, range) else range(part, part + 1)
        if along != whole:
            name = source.array.dims[dim] if source.array.dims else str(dim)
            found[name] = slice(along.start, along.stop, along.step)
    return found
