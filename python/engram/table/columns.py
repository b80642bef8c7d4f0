"""A dict of columns as a table: of the schema that is asked for, and otherwise as it is.

pyarrow takes some values for others, if a schema has another type: 2.5 for the integer 2, a time
for its day, a number of double precision for one of single. None of this is done here.
"""

import datetime as dt
from collections.abc import Iterator, Mapping
from typing import Any

import numpy as np

from engram.errors import ArgumentError
from engram.kept import check_given, kind_of
from engram.later import is_of
from engram.table.arrow import pa


def of_mapping(data: Mapping[Any, Any], kept: Any) -> Any:
    """Return columns as a table, of a schema if `kept` is one.

    Raises
    ------
    ArgumentError
        If they are no table, or not of that schema, or one has an index.

    """
    for name, values in data.items():
        if is_of(values, "pandas") and _has_index(values):
            raise ArgumentError(
                f"column {name!r} is a {kind_of(values)} with an index, which a dict of columns "
                "would drop: give pandas.DataFrame(data), or its to_numpy()"
            )
    data = {name: list(x) if isinstance(x, Iterator) else x for name, x in data.items()}
    for name, values in data.items():
        if isinstance(values, list | tuple):  # of a masked array itself Arrow makes nulls
            check_given(f"column {name!r}", values)
    try:
        made = pa.table(data, schema=kept)
    except (pa.ArrowException, TypeError, ValueError, KeyError, OverflowError) as error:
        raise ArgumentError(f"this dict is no table: {error}") from error
    for field in () if kept is None else kept:
        _check(field, data[field.name], made.column(field.name))
    return made


def _has_index(values: Any) -> bool:
    """Whether a column of pandas' has an index that says more than the places."""
    index: Any = getattr(values, "index", None)
    return hasattr(values, "iloc") and not (
        getattr(index, "start", None) == 0 and index.step == 1 and index.name is None
    )


def other_type(field: Any, given: Any) -> ArgumentError:
    """Return why values of a type are not put into a column of another."""
    return ArgumentError(
        f"column {field.name!r} is {given}, and {field.type} in the table: convert it first"
    )


def _check(field: Any, values: Any, column: Any) -> None:
    """Refuse what a schema has changed of the values that are given for a column."""
    dtype = getattr(values, "dtype", getattr(values, "type", None))
    if dtype is None or dtype == np.dtype(object):
        _check_items(field, values, column)
        return
    try:
        found = pa.table({field.name: values}).column(0).type
    except pa.ArrowException:  # what is of no type without a schema's
        return
    floats = pa.types.is_floating(found) and pa.types.is_floating(field.type)
    is_cut = floats and found.bit_width > field.type.bit_width
    is_day = pa.types.is_date(field.type) and not pa.types.is_date(found)
    if is_cut or (is_day and not pa.types.is_null(found)):
        raise other_type(field, found)


def _check_items(field: Any, values: Any, column: Any) -> None:
    """Refuse Python's objects that have become others."""
    is_float = pa.types.is_floating(field.type)
    for given, back in zip(values, column.to_pylist(), strict=True):
        if is_float and isinstance(given, float):  # which is of no precision
            continue
        if not _is_kept(given, back):
            raise ArgumentError(
                f"column {field.name!r} is {field.type} in the table, where {given!r} would be "
                f"{back!r}: convert it first"
            )


def _is_kept(given: Any, back: Any) -> bool:
    """Whether a value is what Arrow has made of it."""
    if back is None:
        return given is None or type(given).__name__ in {"NAType", "NaTType"} or given != given  # noqa: PLR0124
    if isinstance(given, list | tuple | np.ndarray) and isinstance(back, list):
        return len(given) == len(back) and all(map(_is_kept, given, back))
    if isinstance(given, Mapping) and isinstance(back, dict):
        return all(_is_kept(given.get(name), back.get(name)) for name in {**given, **back})
    if isinstance(given, Mapping) and isinstance(back, list):  # a map
        return [*given.items()] == back
    if isinstance(given, dt.date | np.datetime64 | np.timedelta64):
        return _is_kept_time(given, back)
    return bool(given == back) and isinstance(given, bool | np.bool_) == isinstance(back, bool)


def _is_kept_time(given: Any, back: Any) -> bool:
    """Whether a time is what Arrow has made of it; a day is its midnight."""
    if isinstance(given, np.generic):
        exact = hasattr(back, "to_numpy")  # pandas', which has nanoseconds
        return bool(given == (back.to_numpy() if exact else np.array(back, given.dtype)))
    if type(given) is dt.date and isinstance(back, dt.datetime):
        given = dt.datetime.combine(given, dt.time(), back.tzinfo)
    return bool(given == back)
