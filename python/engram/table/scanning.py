"""polars: DataFrames of a table, and LazyFrames that read what their query needs."""

from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING

from engram.extras import library

if TYPE_CHECKING:
    import polars as pl

    from engram.table.handle import Table

_PURPOSE = "a DataFrame of polars"


def eagerly(table: "Table", columns: Sequence[str] | None, rows: slice | None) -> "pl.DataFrame":
    """Return columns and rows as a DataFrame."""
    polars = library("polars", "polars", _PURPOSE)
    frame: pl.DataFrame = polars.DataFrame(table.read(columns, rows))
    return frame


def lazily(table: "Table", columns: Sequence[str] | None, rows: slice | None) -> "pl.LazyFrame":
    """Return a LazyFrame of columns and rows, which reads the table when it is collected."""
    polars = library("polars", "polars", _PURPOSE)
    plugins = library("polars.io.plugins", "polars", _PURPOSE)

    def read(
        wanted: list[str] | None,
        predicate: "pl.Expr | None",
        count: int | None,
        batch_rows: int | None,
    ) -> Iterator["pl.DataFrame"]:
        names = columns if wanted is None else wanted
        found = table.read(names, rows)
        if count is not None:
            found = found.slice(0, count)
        for batch in found.to_reader(batch_rows):
            frame = polars.DataFrame(batch)
            yield frame if predicate is None else frame.filter(predicate)

    schema = eagerly(table, columns, slice(0, 0)).schema
    lazy: pl.LazyFrame = plugins.register_io_source(read, schema=schema)
    return lazy
