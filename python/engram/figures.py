"""Figures of objects: what `Group.aggregate` gives, a row for each group."""

from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING, Any, overload

import numpy as np

from engram import _engram
from engram.errors import ArgumentError, QueryError, UnsupportedError
from engram.expression import Field, Measure
from engram.extras import library
from engram.plain import printable
from engram.query import Asked, check_names, native_query, text_of

if TYPE_CHECKING:
    import pandas as pd
    import pyarrow as pa

_SHOWN = 20
"""So many rows are shown."""

_DAY = 86_400 * 10**9
_COUNTS = range(-(2**63) + 1, 2**63)
"""So many units of time, from 1970 on, a `datetime64` can be; one less is NaT."""
_UNITS = {"ns": 1, "us": 10**3, "ms": 10**6, "s": 10**9}
"""The units that figures of time are told in, in ns: the finest that holds it; beyond, days."""


class Figures(Sequence[tuple[Any, ...]]):
    """Figures of objects: a row for each group of those that have the same, or one of all.

    `len(f)`, `f[0]` and `for row in f` are of rows, each a tuple: first what the group has the
    same, then its figures. A number is an `int` or a `float`, a time a `datetime64`; None is what
    no object of the group has. `columns` says what each place of a row is.
    """

    __slots__ = ("_rows", "columns", "query")

    def __init__(self, query: str, columns: tuple[str, ...], rows: list[tuple[Any, ...]]) -> None:
        self.query = query
        """The query in its own language."""
        self.columns = columns
        """What each column is, as the query says it."""
        self._rows = rows

    def __len__(self) -> int:
        return len(self._rows)

    @overload
    def __getitem__(self, key: int) -> tuple[Any, ...]: ...
    @overload
    def __getitem__(self, key: slice) -> "Figures": ...
    def __getitem__(self, key: Any) -> Any:
        if isinstance(key, slice):
            return Figures(self.query, self.columns, self._rows[key])
        return self._rows[key]

    def __iter__(self) -> Iterator[tuple[Any, ...]]:
        return iter(self._rows)

    def __eq__(self, other: object) -> bool:
        if not isinstance(other, Figures):
            return NotImplemented
        return (self.columns, self._rows) == (other.columns, other._rows)

    __hash__ = None  # type: ignore[assignment]  # as that of a list

    def item(self) -> Any:
        """Give the only figure of the only row.

        Raises
        ------
        ArgumentError
            If there are several, or none.

        """
        if len(self._rows) != 1 or len(self.columns) != 1:
            raise ArgumentError(
                f"{self!r} is no single figure: take a row, as figures[0], or to_dict()"
            )
        return self._rows[0][0]

    def to_dict(self) -> dict[str, list[Any]]:
        """Give each column as a list, by its name."""
        return {name: [row[place] for row in self._rows] for place, name in enumerate(self.columns)}

    def to_pandas(self) -> "pd.DataFrame":
        """Make a table of pandas'.

        Raises
        ------
        UnsupportedError
            If pandas is not installed.

        """
        pd: Any = library("pandas", "pandas", "figures as a data frame")
        return pd.DataFrame(self.to_dict())

    def to_arrow(self) -> "pa.Table":
        """Make a table of Arrow's.

        Raises
        ------
        UnsupportedError
            If pyarrow is not installed, or has no type for a column: times of which some are
            millions of years away, and others are fractions of a second.

        """
        pa: Any = library("pyarrow", "pyarrow", "figures as a table of Arrow's")
        columns = {}
        for name, values in self.to_dict().items():
            try:
                columns[name] = pa.array(_of_one_unit(values))
            except (pa.ArrowInvalid, pa.ArrowTypeError, OverflowError, ValueError) as error:
                raise UnsupportedError(
                    f"Arrow has no type for all values of the column {name}: take to_dict() or "
                    f"to_pandas() ({error})"
                ) from error
        return pa.table(columns)

    def __repr__(self) -> str:
        shown = printable(self.query)
        return f"<engram.Figures of {shown!r}: {len(self):,} row{'' if len(self) == 1 else 's'}>"

    def __str__(self) -> str:
        """Write the first rows as a table."""
        rows = [tuple("" if v is None else str(v) for v in row) for row in self._rows[:_SHOWN]]
        widths = [max(map(len, column)) for column in zip(self.columns, *rows, strict=True)]
        lines = [
            "  ".join(text.ljust(width) for text, width in zip(row, widths, strict=True)).rstrip()
            for row in (self.columns, *rows)
        ]
        more = len(self._rows) - len(rows)
        return "\n".join(lines) + (f"\n… {more:,} more" if more else "")


def _of_one_unit(values: list[Any]) -> list[Any]:
    """Give a column's times in the coarsest of their units.

    Raises
    ------
    ValueError
        If that would round one.

    """
    times = {np.datetime_data(v.dtype)[0] for v in values if isinstance(v, np.datetime64)}
    if len(times) < 2:  # noqa: PLR2004 - they have one unit
        return values
    unit = next(unit for unit in ("D", *reversed(_UNITS)) if unit in times)
    told: list[Any] = []
    for given in values:
        told.append(None if given is None else given.astype(f"M8[{unit}]"))
        if given is not None and told[-1].astype(given.dtype) != given:
            raise ValueError(f"{given} is no whole number of {unit}")
    return told


def text_of_figures(figures: Any, where: Any, group_by: Any) -> str:
    """Write a query that gives figures in the language."""
    parts = [_listed("figures", figures, (str, Measure))]
    if where is not None and text_of(where):
        parts.append(f"where {text_of(where)}")
    if group_by is not None:
        parts.append(f"group by {_listed('group_by', group_by, (str, Field))}")
    return " ".join(parts)


def _listed(what: str, given: Any, kinds: tuple[type, ...]) -> str:
    if isinstance(given, kinds):
        return str(given)
    if isinstance(given, Sequence) and given and all(isinstance(each, kinds) for each in given):
        return ", ".join(map(str, given))
    example = 'engram.attr("level")' if what == "group_by" else 'engram.attr("t").mean()'
    raise ArgumentError(
        f"{what} {given!r} is none: give text of the query language, or a list such as [{example}]"
    )


def ask(namespace: _engram.Namespace, group: int, text: str, asked: Asked) -> Figures:
    """Work out the figures of what lies below a group."""
    query = native_query(text, asked)
    if not query.is_of_totals:
        raise QueryError(
            f"{query.text!r} finds objects, and gives no figures: begin it with some, as in "
            "count(), mean(temperature) where orbit = 4; or ask it by query()"
        )
    check_names(namespace, query, text, asked)
    columns, rows = query.totals(namespace, group)
    return Figures(query.text, tuple(columns), told_rows(rows))


def told_rows(rows: list[tuple[Any, ...]]) -> list[tuple[Any, ...]]:
    """Give rows of the natives as Python has them."""
    return [tuple(map(_told, row)) for row in rows]


def _told(value: Any) -> Any:
    """Give a value as Python has it; an instant comes as its days and the ns of its day."""
    if not isinstance(value, tuple):
        return value
    days, ns = value
    whole = days * _DAY + ns
    for unit, length in _UNITS.items():
        if whole // length in _COUNTS:
            return np.datetime64(whole // length, unit)  # type: ignore[call-overload]  # a unit
    return np.datetime64(days, "D")
