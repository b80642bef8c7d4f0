"""What is given as the content of a table: a schema, and tables of Arrow's one after the other.

Whatever tells its columns as a stream of Arrow's (`__arrow_c_stream__`) is taken: tables, record
batches and readers of pyarrow, DataFrames of pandas and polars, relations of DuckDB, results of
queries, tables of a pool. A stream is read as it is needed, so it may be longer than memory.
"""

from collections.abc import Iterable, Iterator, Mapping
from typing import Any, NamedTuple

from engram.errors import ArgumentError
from engram.kept import instead_of, kind_of
from engram.later import is_of
from engram.table import columns, frames
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
    if is_column(data):
        raise refusal("a table", data)
    if is_of(data, "pandas"):
        return _whole(frames.arrow_of(data, kept))
    if isinstance(data, Mapping):
        if kept is not None:
            _check_names([*data], kept)
        return _whole(columns.of_mapping(data, kept))
    if isinstance(data, pa.Table):
        return _whole(data)
    if isinstance(data, pa.RecordBatch):
        return _whole(pa.Table.from_batches([data]))
    return _streamed(data)


def _streamed(data: Any) -> Given:
    """Return what tells its columns as a stream, or can be asked for one."""
    if is_of(data, "polars"):
        if type(data).__name__ == "LazyFrame":
            raise ArgumentError("a LazyFrame has no rows yet: put lazy.collect()")
        _check_polars(data)
    if is_of(data, "pyarrow"):
        if hasattr(data, "scanner"):  # a dataset
            data = data.scanner()
        if hasattr(data, "to_reader"):
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
    if is_of(value, "pandas"):
        return getattr(value, "ndim", 2) == 1
    if is_of(value, "polars"):
        return not hasattr(type(value), "columns")
    return (
        top == "pyarrow"
        and (name == "ChunkedArray" or hasattr(value, "__arrow_c_array__"))
        and (not hasattr(value, "schema"))
    )


def _check_polars(frame: Any) -> None:
    """Refuse columns of objects, of which polars tells Arrow the addresses."""
    for name, kind in getattr(frame, "schema", {}).items():
        if "Object" in str(kind):
            raise ArgumentError(
                f"column {name!r} is of polars' dtype {kind}, which has objects of this process: "
                "convert it, or leave it out"
            )


def _whole(table: Any) -> Given:
    return Given(table.schema, [table])


def _reader(data: Any) -> Any:
    try:
        return pa.RecordBatchReader.from_stream(data)
    except (pa.ArrowException, TypeError, ValueError) as error:
        raise ArgumentError(
            f"{_shown(data)} is no stream of Arrow's ({error}): convert that column, or leave it "
            "out"
        ) from error


def _read(reader: Any) -> Iterator[Any]:
    """Read the batches of a stream, whose errors are its own."""
    yield from reader


def _shown(data: Any) -> str:
    return f"a {type(data).__module__}.{type(data).__name__}"


def fitted(table: Any, schema: Any, orders: dict[int, Any] | None = None) -> Any:
    """Return a table with the columns of a schema, in its order and types.

    Columns may come in another order. Texts may be of another width, as may what tells categories;
    a column without any value may have any type. Nothing else is converted.

    Parameters
    ----------
    table
        What is to be fitted.
    schema
        The schema.
    orders
        The categories of columns whose categories have an order, by the columns' places: those that
        are kept already. What a table brings is noted there.

    Raises
    ------
    ArgumentError
        If a column is missing, has another type or other ordered categories, or lacks a value that
        it must have; or if there are rows without columns.

    """
    if table.num_rows and not table.num_columns:
        raise ArgumentError(f"there are {table.num_rows} rows, and no column: add one")
    if table.schema.names != schema.names:
        table = _ordered(table, schema)
    made = []
    for place, field in enumerate(schema):
        _check_enum(table.schema.field(place), field)
        column = _cast(table.column(place), field)
        if orders is not None and has_order(field.type):
            _check_order(column, field, place, orders)
        made.append(column)
    return pa.Table.from_arrays(made, schema=schema) if made else schema.empty_table()


def has_order(kind: Any) -> bool:
    """Whether a type is one of categories that have an order."""
    return bool(pa.types.is_dictionary(kind) and kind.ordered)


def _check_order(column: Any, field: Any, place: int, orders: dict[int, Any]) -> None:
    """Refuse other categories than those before, as nothing would tell where they belong."""
    for chunk in column.chunks:
        if chunk.null_count == len(chunk):
            continue
        kept = orders.setdefault(place, chunk.dictionary)
        if not chunk.dictionary.equals(kept):
            raise ArgumentError(
                f"column {field.name!r} has the ordered categories "
                f"{chunk.dictionary.to_pylist()}, and the table {kept.to_pylist()}: give it those, "
                "or make a new table"
            )


def _check_enum(given: Any, kept: Any) -> None:
    """Refuse other categories of polars' than the schema tells: polars would read nulls."""
    for key, said in (kept.metadata or {}).items():
        if key.startswith(b"_PL_ENUM") and (given.metadata or {}).get(key, said) != said:
            raise ArgumentError(
                f"column {kept.name!r} has other categories than polars' Enum in the table: cast it"
                " to that dtype first"
            )


def _ordered(table: Any, schema: Any) -> Any:
    """Return the columns of a table in the order of a schema."""
    names, wanted = table.schema.names, schema.names
    _check_names(names, schema, table.schema)
    if len(names) != len(wanted):
        raise ArgumentError(f"there are {len(names)} columns, and the table has {len(wanted)}")
    if len(set(wanted)) != len(wanted):
        raise ArgumentError(
            f"several columns of the table are of one name: give them in its order, {wanted}"
        )
    return table.select(wanted)


def _check_names(names: list[Any], schema: Any, given: Any = None) -> None:
    """Refuse names of which one is missing in a schema, or in what is given for it."""
    lacks = [name for name in schema.names if name not in names]
    if lacks:
        raise ArgumentError(
            f"column {lacks[0]!r} is missing, which is {schema.field(lacks[0]).type} in the table"
        )
    more = [name for name in names if name not in schema.names]
    if more:
        kind = "" if given is None else f" ({given.field(more[0]).type})"
        is_index = str(more[0]).startswith("__index_level_")
        hint = "reset_index(drop=True), or " if is_index else ""
        raise ArgumentError(
            f"column {more[0]!r}{kind} is none of the table's: {hint}leave it out, or make a new "
            "table"
        )


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
        raise columns.other_type(field, column.type)
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
