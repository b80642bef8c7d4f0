"""Results as data frames, for pandas and Arrow: a row for each object, a column for each field.

Columns are called as fields are in queries. Attributes come from the natives by key and dtype, so
that a column of numbers is never made of Python objects.
"""

import re
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from engram import _engram, owners
from engram.errors import ArgumentError, NotFoundError, UnsupportedError
from engram.extras import library

if TYPE_CHECKING:
    import pandas as pd
    import pyarrow as pa

    from engram._engram import ObjectInfo

    Oids = NDArray[np.uint64]
    Parts = list[tuple[NDArray[np.uint32] | None, Any]]
    """Rows, None for all of them, and their values."""

USUAL = ("path", "name", "dtype", "shape", "nbytes", "owner", "created", "modified")
"""The built-in fields of a table whose columns were not named."""

NAMESPACE = "@namespace"
"""The column of a table that says in which namespace an object is."""

_GROUP = "group."
_QUOTED = re.compile(r"`((?:[^`]|``)*)`")
_PIECE = re.compile(r"`(?:[^`]|``)*`|[^.`]+")
"""The attribute's key, or a field, in the name of a field of a structure."""
_OF_STRUCTURE = re.compile(rf"(?:{_PIECE.pattern})(?:\.(?:{_PIECE.pattern}))+")
_NULLABLE = {f"int{bits}": f"Int{bits}" for bits in (8, 16, 32, 64)}
_NULLABLE |= {f"uint{bits}": f"UInt{bits}" for bits in (8, 16, 32, 64)} | {"bool": "boolean"}
"""Pandas' dtypes that can lack values, by those that cannot."""
_EXACT = 2**53
"""Whole numbers up to this are numbers of double precision too."""


class _Column(NamedTuple):
    """Values, and which of them are missing; the values are a numpy array or a list.

    `kind` is "text" or "instant" (in UTC) of a built-in field that is one, whatever its values.
    """

    values: Any
    missing: NDArray[np.bool_]
    kind: str = ""


def pandas_of(
    namespace: _engram.Namespace, oids: "Oids", columns: Sequence[str] | None
) -> "pd.DataFrame":
    """Make a DataFrame of the objects."""
    pd = _library("pandas")
    found = _columns(namespace, oids, columns)
    _tell_in_vain(namespace, found, columns)
    series = {name: _series(pd, column) for name, column in found.items()}
    return pd.DataFrame(series)


def pandas_of_several(
    parts: "list[tuple[_engram.Namespace, Oids, list[int]]]", columns: Sequence[str] | None
) -> "pd.DataFrame":
    """Make a DataFrame of objects of several namespaces, each with its place in the table."""
    pd = _library("pandas")
    if columns is not None:
        _wanted(columns)
    frames = [_frame_of(pd, *part, columns) for part in parts]
    full = [frame for frame in frames if len(frame)] or frames[:1]
    if not full:
        return pd.DataFrame({NAMESPACE: []})
    everywhere = set(full[0].columns).intersection(*(frame.columns for frame in full))
    for frame in full:
        for name in set(frame.columns) - everywhere:
            frame[name] = _nullable(frame[name])
    united = pd.concat(full).sort_index().reset_index(drop=True)
    return united[[NAMESPACE, *(name for name in united.columns if name != NAMESPACE)]]


def _frame_of(
    pd: Any,
    namespace: _engram.Namespace,
    oids: "Oids",
    places: list[int],
    columns: Sequence[str] | None,
) -> Any:
    """Make the DataFrame of one namespace's objects, by places; again if some go meanwhile."""
    while True:
        paths = _engram.paths_of(namespace, oids)
        there = np.array([path is not None for path in paths], bool)
        found = _columns(namespace, oids[there], columns)
        frame = pd.DataFrame({name: _series(pd, column) for name, column in found.items()})
        if not found or len(frame) == there.sum():
            break
    frame.index = np.array(places, np.int64)[there]
    frame[NAMESPACE] = namespace.name
    return frame


def _nullable(series: Any) -> Any:
    """Give whole numbers and truth values of a dtype that can lack some."""
    if getattr(series.dtype, "kind", "") not in "iub" or not isinstance(series.dtype, np.dtype):
        return series
    name = series.dtype.name
    return series.astype(_NULLABLE[name])


def arrow_of(
    namespace: _engram.Namespace, oids: "Oids", columns: Sequence[str] | None
) -> "pa.Table":
    """Make a table of Arrow's of the objects."""
    pa = _library("pyarrow")
    found = _columns(namespace, oids, columns)
    _tell_in_vain(namespace, found, columns)
    arrays = [_arrow(pa, column) for column in found.values()]
    return pa.Table.from_arrays(arrays, names=list(found))


def numpy_of(
    namespace: _engram.Namespace, oids: "Oids", columns: Sequence[str]
) -> dict[str, NDArray[Any]]:
    """Give fields of the objects as arrays, masked where a value is missing."""
    made = {}
    found = _columns(namespace, oids, columns)
    _tell_in_vain(namespace, found, columns)
    for name, (values, missing, _) in found.items():
        array = values if isinstance(values, np.ndarray) else _objects(values)
        made[name] = np.ma.array(array, mask=missing) if missing.any() else array
    return made


def _tell_in_vain(
    namespace: _engram.Namespace, found: dict[str, _Column], columns: Sequence[str] | None
) -> None:
    """Tell the caller of the caller's caller of columns that nothing has, if there are objects."""
    for name in columns or ():
        kind, key = _field(name)
        missing = found[name].missing
        if kind != "builtin" and len(missing) and missing.all():
            from engram import naming  # noqa: PLC0415 - only for columns that are empty

            naming.tell_of_column(namespace, key, 6, is_group=kind == "group")


def _objects(values: list[Any]) -> NDArray[Any]:
    made = np.empty(len(values), object)
    made[:] = values
    return made


def lists_of(
    namespace: _engram.Namespace, oids: "Oids", columns: Sequence[str] | None
) -> dict[str, list[Any]]:
    """Give the fields of the objects as lists, None where one is missing.

    The columns are those of `QueryResult.to_pandas`; objects that are gone are left out.
    """
    return {
        name: [
            None if is_missing else value
            for value, is_missing in zip(column.values, column.missing.tolist(), strict=True)
        ]
        for name, column in _columns(namespace, oids, columns).items()
    }


def _library(name: str) -> Any:
    """Import a library that makes tables."""
    try:
        return library(name, name, "a result as a data frame")
    except UnsupportedError as error:
        raise UnsupportedError(
            f"{error}; r.paths(), r.names() and r.oids() need no library"
        ) from None


def _columns(
    namespace: _engram.Namespace, oids: "Oids", columns: Sequence[str] | None
) -> dict[str, _Column]:
    """Read the fields of all objects that are there still."""
    if columns is not None:
        return _projected(namespace, oids, columns)
    found, gone = _engram.columns(namespace, oids, None)
    infos = _engram.object_infos(namespace, oids)
    paths = _engram.paths_of(namespace, oids)
    keep = np.array(
        [i is not None and p is not None for i, p in zip(infos, paths, strict=True)], bool
    )
    keep[gone] = False
    rows = _Rows(namespace, [i for i, k in zip(infos, keep, strict=True) if k and i is not None])
    rows.paths = [p for p, k in zip(paths, keep, strict=True) if k and p is not None]
    attributes = {key: _kept(_merged(parts, len(oids)), keep) for key, parts in found}
    usual = {f"@{name}": rows.builtin(name) for name in USUAL}
    return usual | attributes


_NATIVE = {"attr": 0, "builtin": 2, "group": 3}
"""The natives' numbers of what a column is asked for by; of a group's attribute, by its group."""


def _projected(
    namespace: _engram.Namespace, oids: "Oids", columns: Sequence[str]
) -> dict[str, _Column]:
    """Read named fields of all objects that are there still: nothing else is looked at."""
    wanted = _wanted(columns)
    order = None
    if len(oids) > 1 and not (oids[:-1] < oids[1:]).all():
        oids, order = np.unique(oids, return_inverse=True)
    found, gone = _engram.project(namespace, oids, [(_NATIVE[kind], key) for kind, key in wanted])
    keep = np.ones(len(oids), bool)
    keep[gone] = False
    made = {}
    for name, (kind, key), parts in zip(columns, wanted, found, strict=True):
        column = _merged(parts, len(oids))
        if kind == "attr" and column.missing.any() and _OF_STRUCTURE.fullmatch(name):
            column = _filled(column, _of_structures(namespace, oids, name))
        if kind == "group":
            column = _of_groups(namespace, column, key)
        elif kind == "builtin":
            column = _told_builtin(key, column)
        if order is not None:
            column = _taken(column, order)
        made[name] = _kept(column, keep if order is None else keep[order])
    return made


def _of_structures(namespace: _engram.Namespace, oids: "Oids", name: str) -> _Column:
    """Give a field of structures, which is named as in queries: the attribute, a dot, the field."""
    key, *fields = (_unquoted(piece) for piece in _PIECE.findall(name))
    (parts,), _ = _engram.project(namespace, oids, [(_NATIVE["attr"], key)])
    values, missing, _ = _merged(parts, len(oids))
    for field in fields:
        if isinstance(values, np.ndarray) and values.dtype.names and field in values.dtype.names:
            values = values[field]
        else:
            values = [_field_of(value, field) for value in values]
            missing = np.array([value is None for value in values], bool)
    if isinstance(values, np.ndarray):
        return _Column(values, missing)
    return _tightened(values, missing)


def _filled(column: _Column, other: _Column) -> _Column:
    """Give a column, and where its values are missing those of another."""
    if column.missing.all() or other.missing.all():
        return other if column.missing.all() else column
    pairs = zip(column.values, other.values, column.missing.tolist(), strict=True)
    values = [there if is_missing else own for own, there, is_missing in pairs]
    missing = column.missing & other.missing
    return _tightened([None if m else v for v, m in zip(values, missing, strict=True)], missing)


def _field_of(value: Any, field: str) -> Any:
    """Give a field of a structure or a tree; None of what is none, or has no such field."""
    if isinstance(value, dict):
        return value.get(field)
    if isinstance(value, list):
        return value[int(field)] if field.isdecimal() and int(field) < len(value) else None
    if isinstance(value, np.void) and value.dtype.names and field in value.dtype.names:
        return value[field]
    return None


def _told_builtin(name: str, column: _Column) -> _Column:
    """Give a built-in field as tables have it."""
    values, missing, _ = column
    if name in _TIMES:
        return _Column(np.asarray(values, "M8[ns]"), missing, "instant")
    if name in _NUMBERS:
        return column if len(values) else _Column(np.zeros(0, np.int64), missing)
    if name == "owner":
        users = {uid: owners.user(uid) for uid in np.unique(values).tolist()}
        return _Column([users[uid] for uid in values], missing, "text")
    return column._replace(kind="text")


def _of_groups(namespace: _engram.Namespace, groups: _Column, key: str) -> _Column:
    """Give the attribute of the nearest group above each object that has it."""
    known: dict[int, Any] = {}
    rows = _Rows(namespace, [])
    gids, *_ = groups
    values = [rows.of_group(int(gid), key, known) for gid in gids]
    return _tightened(values, np.array([value is None for value in values], bool))


def _taken(column: _Column, places: NDArray[np.intp]) -> _Column:
    """Take rows at some places, each as often as it is named."""
    values, missing, kind = column
    if isinstance(values, np.ndarray):
        return _Column(values[places], missing[places], kind)
    return _Column([values[place] for place in places.tolist()], missing[places], kind)


def _wanted(columns: Sequence[str]) -> list[tuple[str, str]]:
    """Tell what the columns' names stand for; each may come once."""
    if isinstance(columns, str):
        raise ArgumentError(f"columns {columns!r} is one name: give a list, [{columns!r}]")
    for place, name in enumerate(columns):
        if name in columns[:place]:
            raise ArgumentError(f"column {name!r} is there twice: name each column once")
    return [_field(name) for name in columns]


def _field(name: str) -> tuple[str, str]:
    """Tell what a column's name stands for, as in the query language."""
    if not isinstance(name, str):
        raise ArgumentError(f"column {name!r} is no field: give a str, such as '@path'")
    if name.startswith("@"):
        if name[1:] not in _BUILTIN:
            there = " ".join(f"@{known}" for known in _BUILTIN)
            raise ArgumentError(f"column {name!r} is no built-in field: there are {there}")
        return "builtin", name[1:]
    kind = "group" if name.startswith(_GROUP) else "attr"
    key = name.removeprefix(_GROUP) if kind == "group" else name
    return kind, _unquoted(key)


def _unquoted(key: str) -> str:
    """Give a key that may stand in backquotes."""
    quoted = _QUOTED.fullmatch(key)
    return quoted[1].replace("``", "`") if quoted else key


_BUILTIN: dict[str, Callable[["ObjectInfo", str], Any]] = {
    "name": lambda info, _: info.name,
    "path": lambda _, path: path,
    "group": lambda _, path: path.rpartition("/")[0],
    "owner": lambda info, _: owners.user(info.owner),
    "dtype": lambda info, _: "bytes" if info.kind == "blob" else str(info.dtype),
    "shape": lambda info, _: str(info.shape),
    "ndim": lambda info, _: len(info.shape),
    "size": lambda info, _: int(np.prod(info.shape, dtype=object)),
    "nbytes": lambda info, _: info.nbytes,
    "scope": lambda info, _: info.scope,
    "created": lambda info, _: info.created,
    "modified": lambda info, _: info.modified,
}

_NUMBERS = ("ndim", "size", "nbytes")
_TIMES = ("created", "modified")


class _Rows:
    """The objects of a table: what is built in, and what their groups say."""

    def __init__(self, namespace: _engram.Namespace, infos: "list[ObjectInfo]") -> None:
        self.infos = infos
        self.paths: list[str] = []
        self._namespace = namespace

    def builtin(self, name: str) -> _Column:
        """Give a built-in field of each."""
        read = _BUILTIN[name]
        values: Any = [read(info, path) for info, path in zip(self.infos, self.paths, strict=True)]
        none = np.zeros(len(self.infos), bool)
        if name in _NUMBERS:
            return _Column(np.array(values, np.int64), none)
        if name in _TIMES:
            return _Column(np.array(values, "M8[ns]"), none, "instant")
        return _Column(values, none, "text")

    def of_group(self, group: int, key: str, known: dict[int, Any]) -> Any:
        """Give the attribute of a group, or of the nearest one above that has it."""
        if group not in known:
            try:
                found = _engram.attr_get(self._namespace, True, group, key)
                if found is None and group != self._namespace.root:
                    above = _engram.group_info(self._namespace, group).parent
                    found = self.of_group(above, key, known)
            except NotFoundError:  # deleted meanwhile
                found = None
            known[group] = found
        return known[group]


def _merged(parts: "Parts", count: int) -> _Column:
    """Put the parts of an attribute together, in one dtype where they share one."""
    if len(parts) == 1 and parts[0][0] is None:
        values = parts[0][1]
        if isinstance(values, np.ndarray):
            values = values.astype(values.dtype.newbyteorder("="), copy=False)
        return _Column(values, np.zeros(count, bool))
    missing = np.ones(count, bool)
    for rows, _ in parts:
        missing[rows] = False
    dtype = _common([part for _, part in parts])
    if dtype is None:
        items: list[Any] = [None] * count
        for rows, part in parts:
            there = range(count) if rows is None else rows.tolist()
            for row, value in zip(there, part, strict=True):
                items[row] = value
        return _Column(items, missing)
    filled = np.zeros(count, dtype)
    for rows, part in parts:
        filled[rows] = part
    return _Column(filled, missing)


def _common(parts: list[Any]) -> np.dtype[Any] | None:
    """Find the native dtype that holds all values of all parts exactly; None if there is none."""
    if not parts or not all(isinstance(part, np.ndarray) for part in parts):
        return None
    families = {_FAMILIES.get(part.dtype.kind) for part in parts}
    if len(families) != 1 or None in families:
        return None
    if families <= {"m", "M"}:
        return _common_time(parts)
    try:
        dtype = np.result_type(*(part.dtype for part in parts))
    except TypeError:
        return None
    if dtype.kind == "f" and any(
        part.dtype.kind in "iu" and part.size and max(-int(part.min()), int(part.max())) > _EXACT
        for part in parts
    ):
        return None
    return dtype.newbyteorder("=")


def _common_time(parts: list[NDArray[Any]]) -> np.dtype[Any] | None:
    """Find a unit in which all times of all parts are exact: the coarsest that their units share.

    Where a time is too far away for that, a coarser one may do; None if none does.
    """
    if len({part.dtype.newbyteorder("=") for part in parts}) == 1:
        return parts[0].dtype.newbyteorder("=")
    named = [part for part in parts if np.datetime_data(part.dtype)[0] != "generic"]
    if any(not np.isnat(part).all() for part in parts if part.dtype not in _dtypes(named)):
        return None  # numbers without a unit are of no other
    try:
        shared = np.result_type(*_dtypes(named))
    except TypeError:
        return None
    coarser = [np.dtype(f"{shared.kind}8[{unit}]") for unit in ("ns", "us", "ms", "s")]
    for dtype in (shared, *coarser):
        if all(_exactly(part, dtype) is not None for part in named):
            return dtype.newbyteorder("=")
    return None


def _dtypes(parts: list[NDArray[Any]]) -> set[np.dtype[Any]]:
    return {part.dtype for part in parts}


def _exactly(times: NDArray[Any], dtype: np.dtype[Any]) -> NDArray[Any] | None:
    """Give times in another unit; None if one of them is not exact in it, or does not fit."""
    native = times.astype(times.dtype.newbyteorder("="))
    try:
        made = native.astype(dtype)
        back = made.astype(native.dtype)
    except (OverflowError, TypeError):
        return None
    same = np.array_equal(back.view(np.int64), native.view(np.int64))
    return made if same else None


_FAMILIES = {"b": "truth", "i": "number", "u": "number", "f": "number"} | {
    kind: kind for kind in "cmM"
}


def _tightened(values: list[Any], missing: NDArray[np.bool_]) -> _Column:
    """Make an array of numpy's scalars, where they share a dtype."""
    there = [value for value, lacks in zip(values, missing, strict=True) if not lacks]
    if there and all(isinstance(value, np.generic) for value in there):
        dtype = _common([np.asarray([value]) for value in there])
        if dtype is not None:
            filled = np.zeros(len(values), dtype)
            filled[~missing] = there
            return _Column(filled, missing)
    return _Column(values, missing)


def _kept(column: _Column, keep: NDArray[np.bool_]) -> _Column:
    """Leave out the rows of objects that are gone."""
    if keep.all():
        return column
    values, missing, kind = column
    if isinstance(values, np.ndarray):
        return _Column(values[keep], missing[keep], kind)
    kept = [value for value, k in zip(values, keep, strict=True) if k]
    return _Column(kept, missing[keep], kind)


def _series(pd: Any, column: _Column) -> Any:
    """Make a column of pandas'."""
    values, missing, kind = column
    if not isinstance(values, np.ndarray):
        return pd.Series(values, dtype=None if _are_text(values) else object)
    if kind == "instant":
        return pd.Series(values).dt.tz_localize("UTC")
    if missing.any() and values.dtype.kind in "iub":
        array = pd.arrays.BooleanArray if values.dtype.kind == "b" else pd.arrays.IntegerArray
        return pd.Series(array(values, missing))
    if missing.any():
        values = values.copy()
        values[missing] = "NaT" if values.dtype.kind in "mM" else np.nan
    if values.dtype.kind in "mM":
        told = _told(values)
        if told is None:  # of a unit, or too far away, for pandas
            plain = [pd.NaT if np.isnat(value) else value for value in values]
            return pd.Series(plain, dtype=object)
        values = told
    try:
        return pd.Series(values)
    except (ValueError, TypeError, OverflowError):
        return pd.Series(list(values), dtype=object)


def _are_text(values: list[Any]) -> bool:
    there = [value for value in values if value is not None]
    return bool(there) and all(type(value) is str for value in there)


_TOLD_TIMES = {"Y": "s", "M": "s", "W": "s", "D": "s", "h": "s", "m": "s"} | {
    unit: unit for unit in ("s", "ms", "us", "ns")
}


def _told(times: NDArray[Any]) -> NDArray[Any] | None:
    """Give times in a unit that pandas and Arrow have; None if they are not exact in it."""
    unit, _ = np.datetime_data(times.dtype)
    if unit == "generic" and not np.isnat(times).all():
        return None
    return _exactly(times, np.dtype(f"{times.dtype.kind}8[{_TOLD_TIMES.get(unit, 'ns')}]"))


def _arrow(pa: Any, column: _Column) -> Any:
    """Make a column of Arrow's."""
    values, missing, kind = column
    if kind == "text":
        return pa.array(values, pa.string())
    if isinstance(values, np.ndarray) and values.dtype.kind in "mM":
        missing = missing | np.isnat(values)
        told = _told(values)
        if kind == "instant":
            return pa.array(told, pa.timestamp("ns", tz="UTC"), mask=missing)
        if told is not None:
            return pa.array(told, mask=missing)
    narrow = isinstance(values, np.ndarray) and values.dtype.itemsize <= np.dtype("f8").itemsize
    if narrow and values.dtype.kind in "biuf":
        return pa.array(values, mask=missing)
    plain = [None if m else _plain(v) for v, m in zip(values, missing, strict=True)]
    try:
        return pa.array(plain)
    except (pa.ArrowException, OverflowError, TypeError, ValueError):
        return pa.array([None if value is None else str(value) for value in plain], pa.string())


def _plain(value: Any) -> Any:
    """Give a value as Python has it, where Arrow may know that; times as ISO text."""
    if isinstance(value, np.ndarray):
        return [_plain(item) for item in value] if value.dtype.kind in "mM" else value.tolist()
    if isinstance(value, np.datetime64 | np.timedelta64):
        return None if np.isnat(value) else str(value)
    if isinstance(value, np.generic) and not isinstance(value, np.longdouble):
        return value.item()
    return value
