"""Values as text, cell by cell: what a table on the page shows."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Any

import numpy as np

import engram
from engram import conventions
from engram.errors import ArgumentError
from engram.web import picks
from engram.web.objects import array_at
from engram.web.refusal import too_large
from engram.web.sources import Source

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from engram.web.picks import Pick
    from engram.web.served import Served

CELLS_MOST = 10_000
_CHARACTERS = 200
_TEXT_MOST = 64 << 20
_PLANE = 2
_ROWS = 100


def table(served: Served, path: str, index: str | None, *, is_decoded: bool) -> dict[str, Any]:
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
    source = Source(array, is_decoded=is_decoded)
    pick = _default(source) if not index else picks.read(index, source.shape)
    if len(pick.ranges) > _PLANE:
        raise ArgumentError(f"index {index!r} has {len(pick.ranges)} ranges, and a table two")
    names = source.dtype.names or ()
    _check_cells(math.prod(pick.shape) * max(len(names), 1))
    if source.dtype.kind == "T" and array.nbytes > _TEXT_MOST:
        raise too_large(
            f"texts are read as a whole, and {path!r} has {array.nbytes:,} bytes of them",
            "look at it from Python, or with `engram get`",
        )
    raw = source.raw(pick.key(*pick.ranges))
    told: dict[str, Any] = {"shape": list(source.shape), "index": _text_of(pick)}
    if names and len(pick.ranges) <= 1:
        rows = [list(map(_cell, record.tolist())) for record in np.atleast_1d(raw)]
        return told | {"rows": rows, "columns": list(names)}
    cells = texts(source, raw)
    if raw.ndim == _PLANE:
        return told | {"rows": cells}
    return told | {"rows": [[each] for each in cells] if raw.ndim else [[cells]]}


def _default(source: Source) -> Pick:
    """Take the first rows and columns of the last dimensions."""
    pick = picks.read(None, source.shape, min(len(source.shape), _PLANE))
    left = CELLS_MOST // max(len(source.dtype.names or ()), 1)
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
    columns = [[_cell(each) for each in column.to_pylist()] for column in found.columns]
    told = {"shape": [rows, len(names)], "index": _text_of(pick), "columns": list(names)}
    return told | {"rows": [list(row) for row in zip(*columns, strict=True)]}


def texts(source: Source, raw: NDArray[Any]) -> Any:
    """Return stored values as text, nested as they lie: times as ISO 8601, missing ones ""."""
    if source.dtype.kind == "M" or (source.encoding.times is not None and source.is_days):
        times = (
            conventions.times(source.array, raw) if isinstance(source.array, engram.Array) else None
        )
        if times is not None:
            words = ["" if when is None else when.isoformat() for when in times]
            return _shaped(words, raw.shape)
    values = source.decode(raw)
    if values.dtype.kind == "f" and not source.encoding.is_plain:
        flat = values.reshape(-1)
        return _shaped(["" if math.isnan(one) else _float(one) for one in flat], raw.shape)
    if values.dtype.kind == "f":
        return _shaped([_float(one) for one in values.reshape(-1)], raw.shape)
    return _shaped([_cell(one) for one in values.reshape(-1).tolist()], raw.shape)


def _shaped(words: list[str], shape: tuple[int, ...]) -> Any:
    if not shape:
        return words[0]
    if len(shape) == 1:
        return words
    wide = shape[1]
    return [words[at * wide : (at + 1) * wide] for at in range(shape[0])]


def _float(value: Any) -> str:
    """Write a float as short as tells it from its neighbours in its own precision."""
    return str(value.item() if value.dtype.itemsize == np.dtype("f8").itemsize else value)


def _characters(value: bytes) -> str:
    """Return bytes as the text that they are, or else in hexadecimal."""
    try:
        text = value.decode("utf-8")
    except UnicodeDecodeError:
        return value.hex()
    return text if text.isprintable() else value.hex()


def _cell(value: Any) -> str:
    if isinstance(value, bytes):
        value = _characters(value)
    text = "" if value is None else str(value)
    return text if len(text) <= _CHARACTERS else f"{text[:_CHARACTERS]}…"
