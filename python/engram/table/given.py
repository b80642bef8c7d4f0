"""What is given as the content of a table: a schema, and tables of Arrow's one after the other.

Whatever tells its columns as a stream of Arrow's (`__arrow_c_stream__`) is taken: tables, record
batches and readers of pyarrow, DataFrames of pandas and polars, relations of DuckDB, results of
queries, tables of a pool. A stream is read as it is needed, so it may be longer than memory.
"""

from collections.abc import Iterable, Iterator, Mapping
from typing import Any, NamedTuple

from engram.errors import ArgumentError
from engram.kept import instead_of, kind_of
from engram.table import frames
from engram.table.arrow import pa

_TEXTS = ("string", "large_string", "string_view")
_BYTES = ("binary", "large_binary", "binary_view")


class Given(NamedTuple):
    """A schema, and tables that have it."""

    schema: Any
    tables: Iterable[Any]


def given(data: Any, kept: Any = None) -> Given:
    """Return what `data` is; `kept` is the schema of the table that it is appended to.

    Raises
    ------
    ArgumentError
        If it is no table.

    """
    top = type(data).__module__.partition(".")[0]
    if is_column(data):
        raise refusal("a table", data)
    if top == "pandas":
        return _whole(frames.arrow_of(data, kept))
    if isinstance(data, Mapping):
        return _whole(_of_mapping(data, kept))
    if isinstance(data, pa.Table):
        return _whole(data)
    if isinstance(data, pa.RecordBatch):
        return _whole(pa.Table.from_batches([data]))
    if top == "polars" and type(data).__name__ == "LazyFrame":
        raise ArgumentError("a LazyFrame has no rows yet: put lazy.collect()")
    if top == "pyarrow" and hasattr(data, "scanner"):  # a dataset
        data = data.scanner()
    if top == "pyarrow" and hasattr(data, "to_reader"):
        data = data.to_reader()
    if hasattr(data, "__arrow_c_stream__"):
        reader = _reader(data)
        return Given(reader.schema, (pa.Table.from_batches([batch]) for batch in _read(reader)))
    raise ArgumentError(
        f"{_shown(data)} is no table: give a DataFrame, a table of Arrow's, or a dict of columns"
    )


def refusal(path: str, value: Any) -> ArgumentError:
    """Return why a column that has no name is not put into a group, and what to do instead."""
    return ArgumentError(
        f"{path!r} cannot be a {kind_of(value)}, of which an array would keep the values alone: "
        f"{instead_of(value)}"
    )


def is_column(value: Any) -> bool:
    """Whether something of another library is one column, and no table."""
    top, name = type(value).__module__.partition(".")[0], type(value).__name__
    if top == "pandas":
        return getattr(value, "ndim", 2) == 1
    if top == "polars":
        return name == "Series"
    return (
        top == "pyarrow"
        and (name == "ChunkedArray" or hasattr(value, "__arrow_c_array__"))
        and (not hasattr(value, "schema"))
    )


def _whole(table: Any) -> Given:
    return Given(table.schema, [table])


def _of_mapping(data: Mapping[Any, Any], kept: Any) -> Any:
    try:
        return pa.table(dict(data), schema=kept)
    except (pa.ArrowException, TypeError, ValueError, KeyError, OverflowError) as error:
        raise ArgumentError(f"this dict is no table: {error}") from error


def _reader(data: Any) -> Any:
    try:
        return pa.RecordBatchReader.from_stream(data)
    except (pa.ArrowException, TypeError, ValueError) as error:
        raise ArgumentError(
            f"{_shown(data)} is no table ({error}): give a DataFrame or a table of Arrow's"
        ) from error


def _read(reader: Any) -> Iterator[Any]:
    """Read the batches of a stream, whose errors are its own."""
    yield from reader


def _shown(data: Any) -> str:
    return f"a {type(data).__module__}.{type(data).__name__}"


def fitted(table: Any, schema: Any) -> Any:
    """Return a table with the columns of a schema, in its order and types.

    Columns may come in another order. Texts may be of another width, as may what tells categories;
    a column without any value may have any type. Nothing else is converted.

    Raises
    ------
    ArgumentError
        If a column is missing, has another type, or lacks a value that it must have.

    """
    if table.schema.equals(schema, check_metadata=False):
        return table.replace_schema_metadata(schema.metadata)
    if table.schema.names != schema.names:
        table = _ordered(table, schema)
    columns = []
    for place, field in enumerate(schema):
        columns.append(_cast(table.column(place), field))
    return pa.Table.from_arrays(columns, schema=schema)


def _ordered(table: Any, schema: Any) -> Any:
    """Return the columns of a table in the order of a schema."""
    names, wanted = table.schema.names, schema.names
    lacks = [name for name in wanted if name not in names]
    if lacks:
        raise ArgumentError(
            f"column {lacks[0]!r} is missing, which is {schema.field(lacks[0]).type} in the table"
        )
    more = [name for name in names if name not in wanted]
    if more:
        hint = "reset_index(drop=True), or " if more[0].startswith("__index_level_") else ""
        raise ArgumentError(
            f"column {more[0]!r} ({table.schema.field(more[0]).type}) is none of the table's: "
            f"{hint}leave it out, or make a new table"
        )
    if len(names) != len(wanted):
        raise ArgumentError(f"there are {len(names)} columns, and the table has {len(wanted)}")
    return table.select(wanted)


def _cast(column: Any, field: Any) -> Any:
    """Return a column in the type of a field, where nothing of it changes by that."""
    if not field.nullable and column.null_count:
        raise ArgumentError(
            f"column {field.name!r} has {column.null_count} missing values, and the table lets "
            "none be missing there"
        )
    if column.type == field.type:
        return column
    if not _alike(column.type, field.type) and not pa.types.is_null(column.type):
        raise ArgumentError(
            f"column {field.name!r} is {column.type}, and {field.type} in the table: convert it "
            "first"
        )
    try:
        return column.cast(field.type)
    except pa.ArrowException as error:
        raise ArgumentError(
            f"column {field.name!r} is {column.type}, and cannot be had as {field.type}, which it "
            f"is in the table: {error}"
        ) from error


def _alike(one: Any, other: Any) -> bool:
    """Whether two types tell the same values."""
    if one == other:
        return True
    if pa.types.is_dictionary(one) and pa.types.is_dictionary(other):
        return one.ordered == other.ordered and _alike(one.value_type, other.value_type)
    return any(str(one) in kinds and str(other) in kinds for kinds in (_TEXTS, _BYTES))
