"""DataFrames of pandas: into Arrow, and out of it as they were.

Arrow's schema keeps what pandas says of its index and its columns. Two things it does not do by
itself, and they are done here. A column of Python objects comes back from Arrow as whatever pandas
would make of its values; here it comes back as objects. And an index of consecutive numbers is kept
as its bounds, which are those of the first rows alone; here it goes on with the rows.
"""

import json
import warnings
from collections.abc import Collection, Sequence
from typing import Any

import numpy as np

from engram.errors import ArgumentError
from engram.extras import library
from engram.table import losses
from engram.table.arrow import pa

_PANDAS = b"pandas"

_NULLABLE = {
    *("Int8", "Int16", "Int32", "Int64", "UInt8", "UInt16", "UInt32", "UInt64"),
    *("Float32", "Float64", "boolean", "string"),
}
"""Dtypes of pandas' own in which a value may be missing. Of an index, pyarrow forgets them."""


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
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # what it warns of is refused below
            made = pa.Table.from_pandas(frame, preserve_index=preserve)
    except (pa.ArrowException, TypeError, ValueError, OverflowError) as error:
        why = "; ".join(map(str, reversed(error.args)))
        raise ArgumentError(
            f"the DataFrame cannot be a table: {why}. Convert that column, or leave it out"
        ) from error
    _check_objects(frame, names, made)
    if kept is not None:
        return made
    if len(frame) and not made.num_columns:
        raise ArgumentError(
            f"the DataFrame has {len(frame)} rows and no column: add one, such as its index, with "
            "reset_index()"
        )
    made = _widened(made)
    losses.check_frame(frame, lambda: pandas_of(renumbered(made.slice(0, 0), 0), {}))
    return made


def _check_objects(frame: Any, names: list[str], made: Any) -> None:
    """Refuse objects that Arrow would give back as others, in columns and in the index."""
    for place, dtype in enumerate(frame.dtypes):
        if dtype == np.dtype(object):
            what = f"column {names[place]!r}"
            losses.check_objects(frame.iloc[:, place], what, made.column(place))
    levels = range(len(names), made.num_columns)
    for level, place in enumerate(levels):
        values = frame.index.get_level_values(level)
        if values.dtype == np.dtype(object):
            losses.check_objects(values, "the index", made.column(place))


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
    if options.get("types_mapper") or options.get("ignore_metadata"):
        return table.to_pandas(**options)
    told = {
        column.get("field_name"): column.get("numpy_type")
        for column in _told(table.schema).get("columns", ())
    }
    ours = {n: kind for n, kind in told.items() if _is_ours(kind) and n in table.schema.names}
    frame = _without(table, ours).to_pandas(**options)
    columns, index = _columns(table.schema), index_of(table.schema)
    for place, name in enumerate(columns):
        if name in ours:
            values = _values(pd, ours[name], table.column(name))
            frame.isetitem(place, pd.Series(values, frame.index, values.dtype))
    if set(index) & set(told) and any(_is_extension(told.get(name)) for name in index):
        frame.index = _index_as_kept(pd, frame.index, {n: told.get(n) for n in index}, table)
    return frame


def _is_ours(numpy_type: Any) -> bool:
    """Whether pyarrow makes of a column what it was not, or nothing."""
    return numpy_type == "object" or str(numpy_type).endswith("[pyarrow]")


def _is_extension(numpy_type: Any) -> bool:
    """Whether an index of this is made of what pyarrow has not, by itself, of an index."""
    return _is_ours(numpy_type) or numpy_type in _NULLABLE


def _without(table: Any, names: Collection[str]) -> Any:
    """Return a table with nothing in some columns, which pyarrow need not convert."""
    if not names:
        return table
    told = _told(table.schema)
    for column in told.get("columns", ()):
        if column.get("field_name") in names:
            column["numpy_type"] = "object"
    for place, field in enumerate(table.schema):
        if field.name in names:
            table = table.set_column(
                place, pa.field(field.name, pa.null()), pa.nulls(table.num_rows)
            )
    return table.replace_schema_metadata({**table.schema.metadata, _PANDAS: json.dumps(told)})


def _values(pd: Any, numpy_type: str, column: Any) -> Any:
    """Return the values of a column as pandas had them."""
    if numpy_type == "object":
        values = np.empty(len(column), object)
        values[:] = column.to_pylist()
        return values
    if numpy_type in _NULLABLE:
        return pd.api.types.pandas_dtype(numpy_type).__from_arrow__(column)
    return pd.arrays.ArrowExtensionArray(column)


def _index_as_kept(pd: Any, index: Any, kinds: dict[str, Any], table: Any) -> Any:
    """Return an index whose levels are of the dtypes that they had."""
    levels: list[Any] = [
        _values(pd, kind, table.column(name)) if _is_extension(kind) else None
        for name, kind in kinds.items()
    ]
    if index.nlevels == 1:
        return pd.Index(levels[0], dtype=levels[0].dtype, name=index.name)
    arrays = [
        index.get_level_values(n) if level is None else pd.Index(level, dtype=level.dtype)
        for n, level in enumerate(levels)
    ]
    return pd.MultiIndex.from_arrays(arrays, names=index.names)


def _columns(schema: Any) -> Sequence[str]:
    """Return the columns of a schema that are a DataFrame's columns, in their order."""
    index = set(_index_columns(schema))
    return [name for name in schema.names if name not in index]
