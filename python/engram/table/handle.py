"""The handle of a table."""

from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING, Any

from engram import _engram
from engram.errors import ArgumentError, EngramError, NotFoundError, ReadOnlyError
from engram.extras import library
from engram.group import Group
from engram.handle import Handle
from engram.table import compacting, frames, reading, writing
from engram.table.arrow import pa
from engram.table.given import fitted, given, has_order
from engram.table.writing import Place

if TYPE_CHECKING:
    import pandas as pd
    import polars as pl

    from engram.table.layout import Part

_BATCH_ROWS = 1 << 17
"""So many rows at most are a batch of a stream, so that several threads may scan them."""


class Table(Handle):
    """A table in a pool: columns of one length, of any type that Arrow has.

    `t["x"]` is a column, `t[["x", "y"]]` are columns, `t[10:20]` are rows, all of them Arrow's, on
    the pool's own memory. `t.append(rows)` adds rows, in any number of processes at once: all of
    an append is seen, or nothing. Whatever takes a stream of Arrow's takes a table: DuckDB in a
    query, `polars.DataFrame(t)`, `pyarrow.table(t)`.

    What is read is of one moment, and stays as it is, whatever becomes of the table.

    Raises
    ------
    NotFoundError
        If the table was deleted or replaced.
    UnsupportedError
        If pyarrow is not installed, where content is read or written.

    """

    __slots__ = ()

    _kind = 0
    _is_group = True

    def __init__(
        self, namespace: _engram.Namespace, gid: int, dtype: object = None, shape: object = None
    ) -> None:
        del dtype, shape  # of arrays only
        self._namespace = namespace
        self._id = gid

    # What it is

    @property
    def schema(self) -> Any:
        """The schema, as `pyarrow.Schema`: names, types, and what pandas said of them."""
        return reading.schema_of(reading.schema_bytes(self._namespace, self._id))

    @property
    def column_names(self) -> list[str]:
        """The names of the columns."""
        names: list[str] = self.schema.names
        return names

    @property
    def num_rows(self) -> int:
        """The number of rows, as it is now."""
        return sum(part.rows for part in self._listed())

    @property
    def num_columns(self) -> int:
        """The number of columns."""
        return len(self.schema)

    @property
    def shape(self) -> tuple[int, int]:
        """The number of rows and of columns."""
        return self.num_rows, self.num_columns

    @property
    def num_parts(self) -> int:
        """How many parts the rows lie in: as many as there were appends, until `compact`."""
        return len(self._listed())

    @property
    def nbytes(self) -> int:
        """Bytes of all columns."""
        return int(self._at_one_moment(self._nbytes_of))

    def __len__(self) -> int:
        return self.num_rows

    # Reading

    def read(self, columns: Sequence[str] | None = None, rows: slice | None = None) -> Any:
        """Give columns and rows as a `pyarrow.Table` on the pool's own memory.

        Parameters
        ----------
        columns
            Their names, in the order that is wanted; all, if not given.
        rows
            A slice of the rows; all, if not given.

        Raises
        ------
        NotFoundError
            If there is no such column.

        """
        schema = self.schema
        wanted = self._places(schema, columns)
        asked = slice(None) if rows is None else rows

        def read(parts: "list[Part]") -> Any:
            start, stop, step = _bounds(asked, sum(part.rows for part in parts))
            found = self._rows(parts, schema, wanted, (start, stop))
            found = frames.renumbered(found.replace_schema_metadata(schema.metadata), start, step)
            return found if step == 1 else reading.every(found, step)

        return self._at_one_moment(read)

    def to_arrow(self) -> Any:
        """Give all of it as a `pyarrow.Table` on the pool's own memory."""
        return self.read()

    def to_pandas(
        self,
        columns: Sequence[str] | None = None,
        rows: slice | None = None,
        **options: Any,
    ) -> "pd.DataFrame":
        """Give a DataFrame of pandas: index and dtypes are those of the DataFrame that was put.

        An index comes along with any `columns`. `options` are those of `pyarrow.Table.to_pandas`:
        with `split_blocks=True`, columns of numbers that lie in one part, and of which none is
        missing, are not copied.

        Raises
        ------
        NotFoundError
            If there is no such column.
        UnsupportedError
            If pandas is not installed.

        """
        library("pandas", "pandas", "a DataFrame")
        if columns is not None:
            index = frames.index_of(self.schema)
            columns = [*columns, *(name for name in index if name not in columns)]
        return frames.pandas_of(self.read(columns, rows), options)

    def to_polars(
        self,
        columns: Sequence[str] | None = None,
        rows: slice | None = None,
        *,
        lazy: bool = False,
    ) -> "pl.DataFrame | pl.LazyFrame":
        """Give a DataFrame of polars; with `lazy`, a LazyFrame that reads when it is collected.

        A LazyFrame reads the columns and rows that the query needs, and looks at the table anew
        each time.

        Raises
        ------
        NotFoundError
            If there is no such column.
        UnsupportedError
            If polars is not installed.

        """
        from engram.table import scanning  # noqa: PLC0415 - only those who have polars need it

        return (
            scanning.lazily(self, columns, rows) if lazy else scanning.eagerly(self, columns, rows)
        )

    def __arrow_c_schema__(self) -> object:
        """Give the schema to any library that knows Arrow's interface."""
        return self.schema.__arrow_c_schema__()

    def __arrow_c_stream__(self, requested_schema: object | None = None) -> object:
        """Give all rows to any library that knows Arrow's interface; nothing is copied.

        Columns that `requested_schema` leaves out are not read.
        """
        if requested_schema is None:
            found = self.read()
        else:
            asked = pa.Schema._import_from_c_capsule(requested_schema)
            names = asked.names
            known = set(names) <= set(self.column_names) and len(set(names)) == len(names)
            found = self.read(names if known else None)
            requested_schema = asked.__arrow_c_schema__()
        return found.to_reader(_BATCH_ROWS).__arrow_c_stream__(requested_schema)

    def __getitem__(self, key: Any) -> Any:
        """Give a column (`t["x"]`), columns (`t[["x", "y"]]`), or rows (`t[10:20]`).

        Raises
        ------
        NotFoundError
            If there is no such column.
        ArgumentError
            If `key` is something else.

        """
        if isinstance(key, str):
            return self.read([key]).column(0)
        if isinstance(key, slice):
            return self.read(rows=key)
        if isinstance(key, list):
            return self.read(key)
        raise ArgumentError(
            f"a table cannot be indexed by {key!r}: use the name of a column, a list of names, or "
            "a slice of rows"
        )

    def __iter__(self) -> Iterator[str]:
        return iter(self.column_names)

    def __contains__(self, name: object) -> bool:
        return name in self.column_names

    def __array__(self, dtype: Any = None, copy: Any = None) -> Any:
        """Refuse: columns have dtypes of their own."""
        del dtype, copy
        raise ArgumentError(
            "a table is no array: take a column, numpy.asarray(t['x']), or to_pandas().to_numpy()"
        )

    # Changing

    def append(self, data: Any) -> int:
        """Append rows, at once for all; give how many.

        Any number of processes append at once. The rows of one append stay together, behind all
        that were there when it ended.

        Parameters
        ----------
        data
            What `Group.create_table` takes. Its columns are called as the table's, in any order,
            and have their types.

        Raises
        ------
        ArgumentError
            If a column is missing, is one too many, has another type, or categories in another
            order: which, and both.
        PoolFullError
            If there is no room; nothing is appended.
        ReadOnlyError
            If the pool was opened with mode "r", or the table is read-only or published.

        """
        schema = self.schema
        place = self._place()
        found = given(data, schema)
        fitted(found.schema.empty_table(), schema)
        orders = self._orders(schema)
        counts: list[int] = []

        def fit(table: Any) -> Any:
            counts.append(table.num_rows)
            return fitted(table, schema, orders)

        made = writing.drafts(place, map(fit, found.tables))
        if made:
            writing.publish(place, made)
        return sum(counts)

    def compact(self) -> int:
        """Make one part of many small ones, where they follow each other; give how many went.

        Rows, their order and what was read before stay as they are. Others may read and append
        meanwhile.

        Raises
        ------
        PoolFullError
            If there is no room for a copy of the small parts.
        BusyError
            If another process compacts the table at the same time.

        """
        return compacting.compact(self._place(), self.schema)

    def clear(self) -> None:
        """Delete all rows, at once for all; the schema stays.

        Raises
        ------
        ReadOnlyError
            As `append`.

        """
        compacting.swap(self._place(), self._listed(), [])

    # What helps them

    def as_group(self) -> Group:
        """Give the group in which the table's parts lie, each a group of arrays.

        It is for looking at. What is changed there is changed in the table.
        """
        return Group(self._namespace, self._id)

    def _place(self) -> Place:
        """Return where it is, for changes of it."""
        if not self._namespace.writable:
            where = f"a snapshot of {self._namespace.pool_path}"
            if not self._namespace.is_snapshot:
                where = f'the pool {self._namespace.pool_path}, open with mode "r"'
            raise ReadOnlyError(f"the table {self.path!r} is of {where}: open it for writing")
        if _engram.is_read_only(self._namespace, True, self._id):
            raise ReadOnlyError(
                f"the table {self.path!r} is read-only: whoever means to change it sets "
                "read_only = False where that was set"
            )
        return Place(self._namespace, self._id)

    def _orders(self, schema: Any) -> dict[int, Any]:
        """Return the categories of columns in which these have an order, by the columns' places."""
        places = [n for n, field in enumerate(schema) if has_order(field.type)]
        found: dict[int, Any] = {}

        def look(parts: "list[Part]") -> None:
            for part in parts:
                missing = [place for place in places if place not in found]
                if not missing:
                    return
                for batch in reading.batches(self._namespace, part, schema, missing):
                    told = zip(missing, batch.columns, strict=True)
                    found.update({n: c.dictionary for n, c in told if len(c.dictionary)})

        if places:
            self._at_one_moment(look)
        return found

    def _listed(self) -> "list[Part]":
        return reading.parts(self._namespace, self._id)

    def _at_one_moment(self, read: Any) -> Any:
        return reading.at_one_moment(self._namespace, self._id, read)

    def _nbytes_of(self, parts: "list[Part]") -> int:
        return sum(reading.nbytes(self._namespace, part) for part in parts)

    def _places(self, schema: Any, columns: Sequence[str] | None) -> list[int]:
        """Return the places of columns in a schema."""
        if columns is None:
            return list(range(len(schema)))
        if isinstance(columns, str):
            raise ArgumentError(f"columns {columns!r} is one name: give a list, [{columns!r}]")
        places = []
        for name in columns:
            found = schema.get_all_field_indices(name) if isinstance(name, str) else []
            if len(found) > 1:
                raise ArgumentError(f"there are {len(found)} columns {name!r}: take t.read() first")
            if not found:
                there = ", ".join(map(repr, schema.names[:8]))
                raise NotFoundError(f"there is no column {name!r} in this table: it has {there}")
            places += found
        return places

    def _rows(
        self, parts: "list[Part]", schema: Any, wanted: list[int], box: tuple[int, int]
    ) -> Any:
        """Read columns, from one row to another."""
        start, stop = box
        found = []
        first = 0
        for part in parts:
            if first < stop and first + part.rows > start:
                for batch in reading.batches(self._namespace, part, schema, wanted):
                    low, high = max(start - first, 0), min(stop - first, batch.num_rows)
                    if low < high:
                        found.append(batch.slice(low, high - low))
                    first += batch.num_rows
            else:
                first += part.rows
        return pa.Table.from_batches(found, pa.schema([schema.field(place) for place in wanted]))

    def _ipython_key_completions_(self) -> list[str]:
        return self.column_names

    def __repr__(self) -> str:
        try:
            rows = self.num_rows
        except EngramError:
            return self._shown("")
        facts = f"({rows:,} row{'' if rows == 1 else 's'}"
        try:
            columns = self.num_columns
        except EngramError:  # without pyarrow
            return self._shown(f"{facts})")
        return self._shown(f"{facts}, {columns} column{'' if columns == 1 else 's'})")


def _bounds(rows: slice, count: int) -> tuple[int, int, int]:
    """Return the first row, that behind the last, and the step of a slice."""
    if not isinstance(rows, slice):
        raise ArgumentError(f"rows {rows!r} are no slice: give slice(10, 20)")
    try:
        start, stop, step = rows.indices(count)
    except TypeError as error:
        raise ArgumentError(f"rows {rows!r}: {error}") from error
    if step < 1:
        raise ArgumentError(f"rows {rows!r} go backwards: read them, and turn them round")
    return start, max(start, stop), step
