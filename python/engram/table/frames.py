"""DataFrames of pandas: into Arrow, and out of it as they were.

Arrow's schema keeps what pandas says of its index and its columns. Two things it does not do by
itself, and they are done here. A column of Python objects comes back from Arrow as whatever pandas
would make of its values; here it comes back as objects. And an index of consecutive numbers is kept
as its bounds, which are those of the first rows alone; here it goes on with the rows.
"""

import json
from collections.abc import Sequence
from typing import Any

import numpy as np

from engram.errors import ArgumentError
from engram.extras import library
from engram.table.arrow import pa

_PANDAS = b"pandas"

_ARROW_TEXT = "string[pyarrow]"
"""What pandas calls texts of Arrow's type; it takes that for another dtype of its own."""

_ONE_KIND = {
    *("string", "bytes", "integer", "floating", "decimal", "boolean", "datetime", "date"),
    *("timedelta", "time", "empty"),
}
"""What pandas calls objects of one type, each of which Arrow gives back as it was."""


def arrow_of(frame: Any, kept: Any) -> Any:
    """Return a DataFrame as a table of Arrow's; `kept` is the schema that it is appended to.

    Raises
    ------
    ArgumentError
        If a column cannot be kept, which is named.

    """
    names = [str(name) for name in frame.columns]
    twice = sorted({name for name in names if names.count(name) > 1})
    if twice:
        raise ArgumentError(f"the DataFrame has two columns {twice[0]!r}: give each its own name")
    preserve = None if kept is None or not _index_columns(kept) else True
    try:
        made = pa.Table.from_pandas(frame, preserve_index=preserve)
    except (pa.ArrowException, TypeError, ValueError) as error:
        why = "; ".join(map(str, reversed(error.args)))
        raise ArgumentError(
            f"the DataFrame cannot be a table: {why}. Convert that column, or leave it out"
        ) from error
    for place, dtype in enumerate(frame.dtypes):
        if dtype == np.dtype(object):
            _check_objects(frame.iloc[:, place], names[place], made.column(place))
    return made if kept is not None else _widened(made)


def _check_objects(series: Any, name: str, column: Any) -> None:
    """Refuse objects that Arrow would give back as others."""
    pd = library("pandas", "pandas", "a DataFrame")
    if pd.api.types.infer_dtype(series, skipna=True) in _ONE_KIND:
        return
    for given, back in zip(series, column.to_pylist(), strict=True):
        if not _same(pd, given, back):
            raise ArgumentError(
                f"column {name!r} has {given!r}, which would come back as {back!r}: make the "
                "column of one type, or leave it out"
            )


def _same(pd: Any, given: Any, back: Any) -> bool:
    if back is None:
        return given is None or (pd.api.types.is_scalar(given) and bool(pd.isna(given)))
    if isinstance(given, list | tuple | np.ndarray):
        return (
            isinstance(back, list)
            and len(given) == len(back)
            and all(_same(pd, g, b) for g, b in zip(given, back, strict=True))
        )
    if isinstance(given, dict):
        return (
            isinstance(back, dict)
            and given.keys() == back.keys()
            and all(_same(pd, given[key], back[key]) for key in given)
        )
    number = isinstance(given, int | float) and not isinstance(given, bool)
    alike = type(given) is type(back) or isinstance(given, np.generic)
    return bool(given == back) and (alike or (number and type(given) is type(back)))


def _widened(made: Any) -> Any:
    """Return a table whose categories are told by numbers that later parts' do not outgrow."""
    for place, field in enumerate(made.schema):
        kind = field.type
        if pa.types.is_dictionary(kind) and kind.index_type.bit_width < pa.int32().bit_width:
            wide = pa.dictionary(pa.int32(), kind.value_type, kind.ordered)
            column = made.column(place).cast(wide)
            made = made.set_column(place, field.with_type(wide), column)
    return made


def index_of(schema: Any) -> list[str]:
    """Return the columns that are a DataFrame's index."""
    return [name for name in _index_columns(schema) if name in schema.names]


def _index_columns(schema: Any) -> list[str]:
    told = _told(schema)
    return [name for name in told.get("index_columns", ()) if isinstance(name, str)]


def _told(schema: Any) -> dict[str, Any]:
    """Return what pandas says in a schema; nothing, if it says nothing or is not understood."""
    if schema.metadata is None or _PANDAS not in schema.metadata:
        return {}
    try:
        told = json.loads(schema.metadata[_PANDAS])
    except ValueError:
        return {}
    return told if isinstance(told, dict) else {}


def renumbered(table: Any, first: int, step: int = 1) -> Any:
    """Return a table whose index of consecutive numbers is that of its rows.

    They are every `step`-th of what is kept, from `first` on.
    """
    told = _told(table.schema)
    ranges = [x for x in told.get("index_columns", ()) if isinstance(x, dict)]
    if len(ranges) != 1 or not {"start", "step"} <= ranges[0].keys():
        return table
    (kept,) = ranges
    start = kept["start"] + first * kept["step"]
    count = -(-table.num_rows // step)
    kept.update(start=start, stop=start + count * step * kept["step"], step=step * kept["step"])
    return table.replace_schema_metadata({**table.schema.metadata, _PANDAS: json.dumps(told)})


def pandas_of(table: Any, options: dict[str, Any]) -> Any:
    """Return a table as a DataFrame; `options` are those of `pyarrow.Table.to_pandas`."""
    pd = library("pandas", "pandas", "a DataFrame")
    frame = table.to_pandas(**options)
    if options.get("types_mapper") or options.get("ignore_metadata"):
        return frame
    dtypes = {
        column.get("field_name"): column.get("numpy_type")
        for column in _told(table.schema).get("columns", ())
    }
    for place, name in enumerate(_columns(table.schema)):
        if dtypes.get(name) == "object":
            values = np.empty(len(frame), object)
            values[:] = table.column(name).to_pylist()
            frame.isetitem(place, pd.Series(values, frame.index, object))
        elif dtypes.get(name) == _ARROW_TEXT:
            array = pd.arrays.ArrowExtensionArray(table.column(name))
            frame.isetitem(place, pd.Series(array, frame.index))
    return frame


def _columns(schema: Any) -> Sequence[str]:
    """Return the columns of a schema that are a DataFrame's columns, in their order."""
    index = set(_index_columns(schema))
    return [name for name in schema.names if name not in index]
