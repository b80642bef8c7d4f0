"""What a DataFrame of pandas would lose as a table: it is found before anything is written.

Arrow has no word for some of what pandas keeps: names that are no texts, intervals as categories, a
tuple in `attrs`. So a DataFrame without rows is read back from what would be kept, and compared.
Values are compared where they are objects, which Arrow takes for what it makes of them.
"""

import datetime as dt
import json
import warnings
from collections.abc import Callable, Iterator
from typing import Any

import numpy as np

from engram.errors import ArgumentError
from engram.extras import library
from engram.table.arrow import pa

_ONE_KIND = {"string", "bytes", "integer", "floating", "boolean", "empty"}
"""What pandas calls objects of one type, each of which Arrow gives back as it was."""

_TIMES = (dt.date, dt.time, dt.timedelta)


def check_objects(values: Any, what: str, column: Any) -> None:
    """Refuse objects that Arrow would give back as others; `what` names them.

    Raises
    ------
    ArgumentError
        If there are any.

    """
    pd = library("pandas", "pandas", "a DataFrame")
    if pd.api.types.infer_dtype(values, skipna=True) in _ONE_KIND:
        return
    for given, back in zip(values, column.to_pylist(), strict=True):
        if not _same(pd, given, back):
            raise ArgumentError(
                f"{what} has {given!r}, which would come back as {back!r}: make the column of one "
                "type, or leave it out"
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
    if isinstance(back, _TIMES):
        return _same_time(given, back)
    number = isinstance(given, int | float) and not isinstance(given, bool)
    alike = type(given) is type(back) or isinstance(given, np.generic)
    return bool(given == back) and (alike or (number and type(given) is type(back)))


def _same_time(given: Any, back: Any) -> bool:
    """Whether a time is the same; pandas' own classes are those of `datetime` with more digits."""
    if not isinstance(given, type(back)) or isinstance(given, dt.datetime) != isinstance(
        back, dt.datetime
    ):
        return False
    zoned = isinstance(given, dt.datetime | dt.time)
    return bool(given == back) and (not zoned or given.utcoffset() == back.utcoffset())


def check_frame(frame: Any, read_back: Callable[[], Any]) -> None:
    """Refuse a DataFrame that would come back as another; `read_back` gives it without its rows.

    Raises
    ------
    ArgumentError
        If it would, with what is lost.

    """
    _check_attrs(frame.attrs)
    if not frame.flags.allows_duplicate_labels:
        raise ArgumentError(
            "the DataFrame's flag allows_duplicate_labels=False would be lost: put "
            "frame.set_flags(allows_duplicate_labels=True)"
        )
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        try:
            shown = read_back()
        except (pa.ArrowException, TypeError, ValueError) as error:
            raise ArgumentError(
                f"the DataFrame cannot be a table, as pandas could not read it again ({error}): "
                f"{_suspects(frame)}"
            ) from error
    found = next(_lost(frame, shown), None)
    if found is not None:
        what, given, back, instead = found
        raise ArgumentError(f"{what} {given!r} would come back as {back!r}: {instead}")


def _suspects(frame: Any) -> str:
    """Say which columns are of types that nothing but pandas has."""
    pd = library("pandas", "pandas", "a DataFrame")
    odd = [
        repr(name)
        for name, dtype in frame.dtypes.items()
        if isinstance(dtype, pd.CategoricalDtype)
        and _family(dtype.categories.dtype) != "text"
        and dtype.categories.dtype.kind not in "iufb"
    ]
    which = f"column {odd[0]}" if odd else "a column, its index or its names"
    return f"convert {which} to plain values, as with .astype(str)"


def _check_attrs(attrs: dict[Any, Any]) -> None:
    for name, value in attrs.items():
        try:
            back = json.loads(json.dumps({name: value}))
        except (TypeError, ValueError):
            back = None
        if not _same_json({name: value}, back):
            raise ArgumentError(
                f"attrs[{name!r}] of the DataFrame is {value!r}, which would not come back as it "
                "is: give text, numbers, truth values, lists or dicts of them by text, or put it "
                "as an attribute of the table, with create_table(..., attrs=...)"
            )


def _same_json(given: Any, back: Any) -> bool:
    if type(given) is not type(back):
        return False
    if isinstance(given, dict):
        return given.keys() == back.keys() and all(_same_json(given[k], back[k]) for k in given)
    if isinstance(given, list):
        return len(given) == len(back) and all(map(_same_json, given, back))
    return bool(given == back) or given != given  # noqa: PLR0124 - NaN


def _lost(frame: Any, shown: Any) -> Iterator[tuple[str, Any, Any, str]]:
    """Yield what is lost: what it is, as it is, as it would be, and what to do instead."""
    rename = "give other names, such as texts, with frame.set_axis(...) or rename_axis(...)"
    yield from _lost_labels("the names", frame.columns, shown.columns, rename)
    for axis, one, other in (
        ("the names' own name", frame.columns, shown.columns),
        ("the index's name", frame.index, shown.index),
    ):
        for given, back in zip(one.names, other.names, strict=True):
            if not _same_label(given, back):
                yield axis, given, back, rename
    for name, given, back in zip(frame.columns, frame.dtypes, shown.dtypes, strict=True):
        if not _same_dtype(given, back, with_categories=bool(len(frame))):
            yield f"column {name!r} of dtype", given, back, "convert it with .astype(...)"
    for given, back in zip(_levels(frame.index), _levels(shown.index), strict=True):
        if not _same_dtype(given, back, with_categories=False):
            yield "the index of dtype", given, back, "make a column of it, with reset_index()"


def _lost_labels(
    what: str, given: Any, back: Any, instead: str
) -> Iterator[tuple[str, Any, Any, str]]:
    if len(given) != len(back) or not all(map(_same_label, given, back)):
        yield what, [*given[:8]], [*back[:8]], instead
    elif [*map(_family, _levels(given))] != [*map(_family, _levels(back))]:
        yield what, _levels(given), _levels(back), instead


def _same_label(given: Any, back: Any) -> bool:
    if isinstance(given, tuple):
        return isinstance(back, tuple) and all(map(_same_label, given, back))
    return type(given) is type(back) and bool(given == back or given != given)  # noqa: PLR0124


def _levels(index: Any) -> list[Any]:
    """Return the dtype of each level of an index."""
    if index.nlevels == 1:
        return [index.dtype]
    return [*index.dtypes]


def _family(dtype: Any) -> str:
    """Return what names of a dtype look like; texts look like objects."""
    return "text" if dtype == np.dtype(object) or str(dtype).startswith("str") else str(dtype)


def _same_dtype(given: Any, back: Any, *, with_categories: bool = True) -> bool:
    """Whether two dtypes tell the same values, wherever pandas keeps them.

    Categories are kept with rows; where there are none, only their order is looked at.
    """
    if given == back:
        return True
    pd = library("pandas", "pandas", "a DataFrame")
    if type(given) is not type(back):
        return False
    if isinstance(given, pd.StringDtype):
        return (given.na_value is pd.NA) == (back.na_value is pd.NA)
    if isinstance(given, pd.DatetimeTZDtype):  # zones of other libraries have other names
        return bool(given.unit == back.unit)
    if not isinstance(given, pd.CategoricalDtype) or given.ordered != back.ordered:
        return False
    one, other = given.categories, back.categories
    return not with_categories or (
        _family(one.dtype) == _family(other.dtype)
        and len(one) == len(other)
        and all(map(_same_label, one, other))
    )
