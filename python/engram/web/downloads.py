"""What a browser downloads: a part of an array as netCDF, CSV, PNG or numpy's file.

A download is bounded: what is larger belongs into a file by `engram export`, which needs no
browser. It is made as a whole before its first byte goes out, so that one that fails is an error
and no short file.
"""

from __future__ import annotations

import csv
import io
import math
import os
import re
import tempfile
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
from starlette.background import BackgroundTask
from starlette.responses import FileResponse, Response

import engram
from engram import conventions
from engram.errors import ArgumentError, UnsupportedError
from engram.notebook.preview import picture_of
from engram.web import levels, picks, tables
from engram.web.objects import array_at
from engram.web.refusal import too_large
from engram.web.served import pool_of
from engram.web.sources import Source

if TYPE_CHECKING:
    from engram.web.answers import Ask
    from engram.web.picks import Pick
    from engram.web.served import Served
    from engram.web.working import Work

BYTES_MOST = 256 << 20
CELLS_MOST = 1_000_000
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
    index = ask.text("index") or ",".join(":" * len(source.shape))
    pick = picks.read(index, source.shape) if source.shape else picks.Pick(())
    ending, kind = _KINDS[form]
    name = re.sub(r"[^\w.-]+", "_", path.rpartition("/")[2], flags=re.ASCII) or "array"
    headers = {"content-disposition": f'attachment; filename="{name}.{ending}"'}
    if form == "netcdf":
        return _netcdf(served, source, pick, headers)
    if form == "csv":
        content = _csv(source, pick, work)
    elif form == "npy":
        content = _npy(source, pick)
    else:
        content = _png(source, pick, ask, work)
    return Response(content, media_type=kind, headers=headers)


def _check_bytes(source: Source, pick: Pick) -> None:
    """Refuse what is too large."""
    if source.dtype.kind == "T":
        nbytes = source.array.nbytes
    else:
        nbytes = int(np.prod(pick.shape, dtype=object)) * source.dtype.itemsize
    if nbytes > BYTES_MOST:
        raise too_large(
            f"it would have {nbytes:,} bytes, and a download has {BYTES_MOST:,} at most",
            "narrow the index, or use `engram export`, which writes files of any size",
        )


def _npy(source: Source, pick: Pick) -> bytes:
    """Write the stored values as numpy's file."""
    if source.dtype.kind == "T":
        raise ArgumentError("texts of variable length are no .npy: take csv")
    _check_bytes(source, pick)
    file = io.BytesIO()
    np.lib.format.write_array(file, source.raw(pick.key(*pick.ranges)), allow_pickle=False)
    return file.getvalue()


def _csv(source: Source, pick: Pick, work: Work) -> bytes:
    """Write values as text: two dimensions as rows and columns, more as a line for each value."""
    count = tables.cells_of(pick.shape) * _leaves(source.dtype)
    if count > CELLS_MOST:
        raise too_large(
            f"it would have {count:,} values, and a table has {CELLS_MOST:,} at most",
            "narrow the index, or take netcdf or npy",
        )
    _check_bytes(source, pick)
    raw = source.raw(pick.key(*pick.ranges))
    work.go_on()
    file = io.StringIO(newline="")
    writer = csv.writer(file, lineterminator="\n")
    names = source.dtype.names
    if names:
        writer.writerow(map(safe, names))
        for record in raw.reshape(-1):
            writer.writerow(map(safe, tables.fields(record)))
        return file.getvalue().encode("utf-8", "replace")
    cells = map(safe, tables.texts(source, raw))
    work.go_on()
    if raw.ndim <= _PLANE:
        high, wide = (*raw.shape, 1, 1)[:_PLANE]
        writer.writerows([next(cells) for _ in range(wide)] for _ in range(high))
    else:
        dims = list(source.array.dims or (f"dim {n}" for n in range(len(source.shape))))
        writer.writerow([*(safe(str(dims[dim])) for dim in pick.dims), "value"])
        for place, cell in zip(np.ndindex(*raw.shape), cells, strict=True):
            at = [each[n] for each, n in zip(pick.ranges, place, strict=True)]
            writer.writerow([*at, cell])
    return file.getvalue().encode("utf-8", "replace")


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


def _netcdf(served: Served, source: Source, pick: Pick, headers: dict[str, str]) -> Response:
    """Export an array with its coordinates."""
    pool_of(served, "a netCDF file")
    _check_bytes(source, pick)
    array = source.array
    dims = array.dims or ()
    slices = _slices(source, pick)
    if slices and not dims:
        raise ArgumentError(
            "the dimensions have no names, by which a netCDF file is cut: take csv or npy, or all "
            "of it"
        )
    beside = [conventions.coordinate(array, dim) for dim in dims]
    objects = [array, *(each for each in beside if each is not None)]
    handle, name = tempfile.mkstemp(suffix=".nc", prefix="engram-web-")
    os.close(handle)
    file = Path(name)
    try:
        engram.export_file(
            objects, file, format="netcdf4", overwrite=True, lossy=True, slices=slices or None
        )
    except UnsupportedError:
        file.unlink(missing_ok=True)
        raise
    except BaseException:
        file.unlink(missing_ok=True)
        raise
    gone = BackgroundTask(lambda: file.unlink(missing_ok=True))
    return FileResponse(file, media_type=_KINDS["netcdf"][1], headers=headers, background=gone)


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
