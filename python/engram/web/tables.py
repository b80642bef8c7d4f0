"""Values as text, cell by cell: what a table on the page shows."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Any

import numpy as np

import engram
from engram.errors import ArgumentError
from engram.web import picks
from engram.web.objects import array_at
from engram.web.refusal import too_large
from engram.web.sources import Source

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from engram.web.picks import Pick
    from engram.web.served import Served
    from engram.web.working import Work

CELLS_MOST = 10_000
_CHARACTERS = 200
_TEXT_MOST = 64 << 20
_BYTES_MOST = 16 << 20
"""Cells may be records, or have records of arrays in them: so many bytes become text at once."""
_LEAST_TIME = ("Y", "M", "W", "D", "h", "m", "s")
"""Units of times that are told in seconds."""
_PLANE = 2
_ROWS = 100


def table(
    served: Served, path: str, index: str | None, work: Work, *, is_decoded: bool
) -> dict[str, Any]:
    """Return values of an array, or rows of a table, as text.

    Returns
    -------
    dict
        shape, of all there is; index, that was taken; rows, of one cell for each column; columns,
        the names of fields, where there are such.

    Raises
    ------
    ArgumentError
        If the index has more than two ranges.
    RefusedError
        If more cells are asked for than are told at once.

    """
    thing = served.found(path)
    if isinstance(thing, engram.Table):
        return _of_table(thing, index)
    array = array_at(served, path)
    source = Source(array, work, is_decoded=is_decoded)
    pick = _default(source) if not index else picks.read(index, source.shape)
    if len(pick.ranges) > _PLANE:
        raise ArgumentError(f"index {index!r} has {len(pick.ranges)} ranges, and a table two")
    names = source.dtype.names or ()
    _check_cells(cells_of(pick.shape) * max(len(names), 1))
    nbytes = math.prod(pick.shape) * source.dtype.itemsize
    if source.dtype.kind != "T" and nbytes > _BYTES_MOST:
        raise too_large(
            f"{nbytes:,} bytes are asked for, and a table shows {_BYTES_MOST:,} at most",
            "narrow the index, such as 0:1",
        )
    if source.dtype.kind == "T" and array.nbytes > _TEXT_MOST:
        raise too_large(
            f"texts are read as a whole, and {path!r} has {array.nbytes:,} bytes of them",
            "look at it from Python, or with `engram get`",
        )
    raw = source.raw(pick.key(*pick.ranges))
    work.go_on()
    told: dict[str, Any] = {"shape": list(source.shape), "index": _text_of(pick)}
    if names and len(pick.ranges) <= 1:
        rows = [list(map(_cut, fields(record))) for record in np.atleast_1d(raw)]
        return told | {"rows": rows, "columns": list(names)}
    words = iter(map(_cut, texts(source, raw)))
    high, wide = (*raw.shape, 1, 1)[:_PLANE]
    return told | {"rows": [[next(words) for _ in range(wide)] for _ in range(high)]}


def cells_of(shape: tuple[int, ...]) -> int:
    """Count the cells of rows and columns; a row without any is as much as one."""
    return max(math.prod(shape), *shape[:1], 0)


def _default(source: Source) -> Pick:
    """Take the first rows and columns of the last dimensions."""
    pick = picks.read(None, source.shape, min(len(source.shape), _PLANE))
    left = CELLS_MOST // max(len(source.dtype.names or ()), 1)
    left = min(left, _BYTES_MOST // max(source.dtype.itemsize, 1))
    parts = list(pick.parts)
    for dim in reversed(pick.dims):
        parts[dim] = range(min(source.shape[dim], _ROWS, max(left, 1)))
        left //= max(len(range(source.shape[dim])), 1)
    return picks.Pick(tuple(parts))


def _check_cells(count: int) -> None:
    if count > CELLS_MOST:
        raise too_large(
            f"{count:,} cells are asked for, and a table has {CELLS_MOST:,} at most",
            "narrow the index, such as 0:100,0:100",
        )


def _text_of(pick: Pick) -> str:
    """Write an index as it is read."""
    return ",".join(
        f"{part.start}:{part.stop}" + (f":{part.step}" if part.step != 1 else "")
        if isinstance(part, range)
        else str(part)
        for part in pick.parts
    )


def _of_table(table_: engram.Table, index: str | None) -> dict[str, Any]:
    rows, names = len(table_), table_.column_names
    pick = picks.read(index or f"0:{_ROWS}", (rows,))
    part = pick.parts[0]
    along = part if isinstance(part, range) else range(part, part + 1)
    _check_cells(len(along) * len(names))
    found = table_.read(None, slice(along.start, along.stop, along.step))
    columns = [[_cut(cell(each)) for each in column.to_pylist()] for column in found.columns]
    told = {"shape": [rows, len(names)], "index": _text_of(pick), "columns": list(names)}
    return told | {"rows": [list(row) for row in zip(*columns, strict=True)]}


def texts(source: Source, raw: NDArray[Any]) -> list[str]:
    """Return stored values as text, one after the other: times as ISO 8601, missing ones ""."""
    values = source.decode(raw).reshape(-1)
    if values.dtype.kind == "M":
        return _times(values)
    if values.dtype.kind == "f" and not source.encoding.is_plain:
        return ["" if math.isnan(one) else _float(one) for one in values]
    return [cell(one) for one in (values.tolist() if values.dtype.kind in "biu" else values)]


def fields(record: Any) -> list[str]:
    """Return the fields of a record as text."""
    return [cell(record[name]) for name in record.dtype.names]


def _times(values: NDArray[Any]) -> list[str]:
    """Write times in full: to the second, and what there is of it."""
    unit = np.datetime_data(values.dtype)[0]
    if unit == "generic":  # which has no times but NaT
        return [""] * len(values)
    told: Any = "s" if unit in _LEAST_TIME else unit
    words = np.datetime_as_string(values, told).tolist()
    return [
        "" if word == "NaT" else word.rstrip("0").rstrip(".") if "." in word else word
        for word in words
    ]


def _float(value: Any) -> str:
    """Write a float as short as tells it from its neighbours in its own precision."""
    return str(value.item() if value.dtype.itemsize == np.dtype("f8").itemsize else value)


def _characters(value: bytes) -> str:
    """Return bytes as the text that they are, or else in hexadecimal: 0x, which no text begins."""
    try:
        text = value.decode("utf-8")
    except UnicodeDecodeError:
        text = ""
    if text.isprintable() and not text.startswith("0x") and (text or not value):
        return text
    return f"0x{value.hex()}"


def cell(value: Any) -> str:
    """Write a value in full, whatever it is: arrays as [1, 2], records as (1, 2)."""
    if value is None:
        return ""
    if isinstance(value, np.ndarray):
        return f"[{', '.join(map(cell, value))}]" if value.ndim else cell(value[()])
    if isinstance(value, np.void):
        return (
            f"({', '.join(fields(value))})" if value.dtype.names else f"0x{value.tobytes().hex()}"
        )
    if isinstance(value, bytes):
        return _characters(value)
    if isinstance(value, np.datetime64):
        return _times(np.asarray([value]))[0]
    return _float(value) if isinstance(value, np.floating) else str(value)


def _cut(text: str) -> str:
    return text if len(text) <= _CHARACTERS else f"{text[:_CHARACTERS]}…"
