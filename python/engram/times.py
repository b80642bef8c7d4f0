"""Times that are converted to another unit: numpy wraps those that it cannot hold; here they fail.

A `datetime64[ns]` holds the years from 1678 to 2262, a `datetime64[us]` some 290,000 years either
way. numpy converts what lies beyond without a word, to some other time. So whatever is converted on
its way into a pool is looked at first, in exact integers.
"""

import datetime as dt
from collections.abc import Iterator
from typing import Any

import numpy as np
from numpy.typing import NDArray

from engram.errors import ArgumentError

_MOST = 2**63 - 1
"""The greatest count of units; as much less than none is the least, for that below it is NaT."""
_DAY = 86_400 * 10**18
_LENGTHS = {
    "W": 7 * _DAY,
    "D": _DAY,
    "h": _DAY // 24,
    "m": _DAY // 1440,
    **{unit: 10 ** (18 - 3 * place) for place, unit in enumerate(("s", "ms", "us", "ns", "ps"))},
    "fs": 1000,
    "as": 1,
}
"""The length of each unit in attoseconds, the shortest; months and years have none."""
_MONTHS = {"Y": 12, "M": 1}
_NO_TIME = np.dtype(object)
_MICROSECOND = dt.timedelta(microseconds=1)


def check(what: str, data: Any, dtype: np.dtype[Any]) -> None:
    """Refuse times in `data` that an array of this dtype cannot hold; `what` names it.

    Raises
    ------
    ArgumentError
        If there is one, which is named.

    """
    if dtype.kind in "mM":
        if np.datetime_data(dtype)[0] != "generic":
            _check(what, data, dtype)
    elif dtype.names:
        for place, name in enumerate(dtype.names):
            base = dtype[name].base
            if base.names or base.kind in "mM":
                for part in _parts(data, place, len(dtype.names)):
                    check(f"{what}, field {name!r},", part, base)


def _parts(data: Any, place: int, count: int) -> Iterator[Any]:
    """Yield what numpy puts into one of `count` fields: it goes by place, not by name."""
    if isinstance(data, np.ndarray | np.void):
        if data.dtype.names and len(data.dtype.names) == count:
            yield data[data.dtype.names[place]]
        elif data.dtype == object:
            yield from _parts(data.tolist(), place, count)
    elif isinstance(data, tuple):
        if len(data) == count:
            yield data[place]
    elif isinstance(data, list):
        for item in data:
            yield from _parts(item, place, count)


def _check(what: str, data: Any, dtype: np.dtype[Any]) -> None:
    for times in _times_of(data, dtype.kind):
        if isinstance(times, np.ndarray):
            beyond = _beyond(times, dtype)
            if beyond is not None and beyond.any():
                raise _refusal(what, times[beyond].flat[0], dtype)
        else:
            most = _bound((_LENGTHS["us"], 1), dtype)
            if most is not None and abs(times // _MICROSECOND) > most:
                raise _refusal(what, times, dtype)


def _times_of(data: Any, kind: str) -> Iterator[NDArray[Any] | dt.timedelta]:
    """Yield the times in what numpy is to convert: arrays of one dtype, and single durations."""
    if hasattr(data, "__array__"):
        data = np.asarray(data)
        if data.dtype.kind not in "OSUT":
            yield data
            return
    try:
        flat = np.asarray(data, object).flat
    except ValueError:  # of no one shape: numpy refuses it
        return
    items: dict[np.dtype[Any], list[Any]] = {}
    for item in flat:
        if isinstance(item, dt.timedelta):
            yield item
        else:
            items.setdefault(_dtype_of(item, kind), []).append(_naive(item))
    items.pop(_NO_TIME, None)
    for dtype, found in items.items():
        try:
            yield np.array(found, dtype)
        except (ValueError, TypeError, OverflowError):  # numpy's own refusal says it better
            return


def _dtype_of(item: object, kind: str) -> np.dtype[Any]:
    """Return the dtype that holds an item as it is."""
    if isinstance(item, np.datetime64 | np.timedelta64):
        return item.dtype
    if isinstance(item, dt.date):
        return np.dtype("M8[us]")
    return np.dtype("M8") if kind == "M" and isinstance(item, str | bytes) else _NO_TIME


def _naive(item: Any) -> Any:
    """Return a time of a zone as numpy has it, in UTC and without a zone; else the item."""
    if not isinstance(item, dt.datetime) or item.tzinfo is None:
        return item
    try:
        return item.astimezone(dt.UTC).replace(tzinfo=None)
    except OverflowError:  # in the first or the last year that there is
        return item.replace(tzinfo=None)


def _step(dtype: np.dtype[Any]) -> tuple[int, int]:
    """Return the length of a step: so many attoseconds, or so many months; the other is 0."""
    unit, count = np.datetime_data(dtype)
    return _LENGTHS.get(unit, 0) * count, _MONTHS.get(unit, 0) * count


def _bound(step: tuple[int, int], dtype: np.dtype[Any]) -> int | None:
    """Return how many steps a dtype holds; None where the two cannot be compared."""
    (length, months), (to_length, to_months) = step, _step(dtype)
    if length and to_length:
        return _MOST * to_length // length
    if months and to_months:
        return _MOST * to_months // months
    return None


def _beyond(times: NDArray[Any], dtype: np.dtype[Any]) -> NDArray[np.bool_] | None:
    """Tell of each time whether the dtype cannot hold it; None if it holds all."""
    if times.dtype.kind not in "mM" or np.datetime_data(times.dtype)[0] == "generic":
        return None
    native = times.astype(times.dtype.newbyteorder("="), copy=False)
    step = _step(native.dtype)
    if step[1] and times.dtype.kind == "M" and _step(dtype)[0]:
        # Months are as long as they are: by days, of which a century has 36,525 at most.
        most = _MOST // 31 // step[1]
        far = _outside(native, most)
        return far | _far(np.where(far, np.datetime64("NaT"), native).astype("M8[D]"), dtype)
    return _far(native, dtype)


def _far(times: NDArray[Any], dtype: np.dtype[Any]) -> NDArray[np.bool_]:
    most = _bound(_step(times.dtype), dtype)
    if most is None or most >= _MOST:
        return np.zeros(times.shape, np.bool_)
    return _outside(times, most)


def _outside(times: NDArray[Any], most: int) -> NDArray[np.bool_]:
    counts = times.astype(np.int64)
    found: NDArray[np.bool_] = ~np.isnat(times) & ((counts > most) | (counts < -most))
    return found


def _refusal(what: str, time: Any, dtype: np.dtype[Any]) -> ArgumentError:
    shown = f"{time!s}" if isinstance(time, np.generic) else repr(time)
    ends = " to ".join(str(np.array(end, np.int64).view(dtype.newbyteorder("="))) for end in
                       (-_MOST, _MOST))  # fmt: skip
    return ArgumentError(
        f"{what} has {shown}, which {dtype} cannot hold ({ends}): give it a coarser unit"
    )
