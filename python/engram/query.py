"""Queries: which objects, by their attributes, names and built-in fields; and what they found.

A result is looked up once, when it is first used, and keeps the OIDs of that moment. What is then
told of the objects (names, attributes, handles) is as it is when it is asked: objects that are
deleted meanwhile are left out, and `result[i]` of one raises `NotFoundError`.
"""

import time
from collections.abc import Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any, Literal, NamedTuple, TypeAlias, overload

import numpy as np
from numpy.typing import NDArray

from engram import _engram, later, telemetry, tokens
from engram.arguments import whole_number
from engram.errors import ArgumentError, NotFoundError, QueryError
from engram.expression import Expression, Field, Measure, given
from engram.handle import make
from engram.index import check_settings
from engram.plain import printable
from engram.sharing import Moved, move_all

if TYPE_CHECKING:
    import pandas as pd
    import pyarrow as pa
    import xarray as xr

    from engram.array import Array
    from engram.blob import Blob
    from engram.explanation import Explanation

Consistency: TypeAlias = Literal["strong", "eventual"]
"""What a query sees: "strong", every object; "eventual", what the queue holds only once indexed."""

_CONSISTENCIES = ("strong", "eventual")

_PAGE = 1024
"""So many objects are made handles of at a time."""

_SHOWN = 60
"""So many characters of a query are shown in a line."""

_MOST = 2**63 - 1

_log = telemetry.Log("engram.query")


class Asked(NamedTuple):
    """What a query is asked with, beside its condition."""

    order_by: Any = None
    limit: int | None = None
    offset: int | None = None
    params: Mapping[str, Any] | None = None
    consistency: Consistency = "strong"
    threads: int | None = None
    merge: bool = False
    brute_force: bool = False
    hints: dict[str, Any] | None = None
    strict: bool = False
    by_hand: bool = True
    """Whether somebody wrote the query who is told of a key that nothing has."""


def ask(namespace: _engram.Namespace, group: int, expr: Any, asked: Asked) -> "QueryResult":
    """Make the result of a query on what lies below a group; it is looked up when it is used."""
    text = text_of(expr)
    query = native_query(text, asked)
    if query.is_of_totals:
        raise QueryError(
            f"{query.text!r} gives figures, and no objects: ask it by aggregate(), or leave the "
            "figures out"
        )
    check_names(namespace, query, text, asked)
    return QueryResult(namespace, group, query)


def hints_of(
    split_on: tuple[str, Any] | None, split_threshold: int | None
) -> dict[str, Any] | None:
    """Give the hints for the index's layout that a query comes with, if it comes with any."""
    if split_on is None and split_threshold is None:
        return None
    given = {"split_on": split_on, "split_threshold": split_threshold}
    return {name: hint for name, hint in given.items() if hint is not None}


def native_query(text: str, asked: Asked) -> _engram.Query:
    """Parse a query, with all that it is asked with."""
    if asked.consistency not in _CONSISTENCIES:
        raise ArgumentError(
            f'consistency {asked.consistency!r} is unknown: use "strong" or "eventual"'
        )
    query = _engram.Query(
        text,
        None if asked.order_by is None else order_text(asked.order_by),
        None if asked.limit is None else whole_number("limit", asked.limit, 0),
        asked.consistency == "eventual",
        None if asked.threads is None else whole_number("threads", asked.threads, 1),
        asked.merge,
        asked.brute_force,
        None if asked.offset is None else whole_number("offset", asked.offset, 0),
        None if asked.params is None else given(asked.params),
    )
    return query.hinted(check_settings(asked.hints)) if asked.hints else query


def check_names(
    namespace: _engram.Namespace, query: _engram.Query, text: str, asked: Asked
) -> None:
    """Tell the caller's caller's caller of attributes that a query names and nothing has."""
    if not asked.by_hand:
        return
    in_vain = _engram.named_in_vain(query, namespace)
    if in_vain:
        from engram import naming  # noqa: PLC0415 - only for queries that name what nothing has

        order = "" if asked.order_by is None else order_text(asked.order_by)
        naming.tell(namespace, (text, order), in_vain, 5, strict=asked.strict)


def text_of(expr: Any) -> str:
    """Write a condition in the query language."""
    if expr is None:
        return ""
    if isinstance(expr, str | Expression):
        return str(expr)
    raise ArgumentError(
        f"{expr!r} is no query: give a str such as 'temperature < -15', or an expression such as "
        'engram.attr("temperature") < -15'
    )


def place_of(key: Any, count: int) -> int:
    """Give the place in a result of so many objects that an index means.

    Raises
    ------
    IndexError
        If there are fewer objects.

    """
    if not isinstance(key, int | np.integer):
        raise ArgumentError(f"a result cannot be indexed by {key!r}: use an integer or a slice")
    if not -count <= key < count:
        raise IndexError(f"[{key}] of a result of {count} objects")
    return int(key) % count


def order_text(order_by: Any) -> str:
    """Write what to order by in the query language."""
    if isinstance(order_by, str | Field | Measure):
        return str(order_by)
    if isinstance(order_by, Sequence) and order_by:
        return ", ".join(order_text(part) for part in order_by)
    raise ArgumentError(
        f"order_by {order_by!r} is no order: give a str such as 'temperature desc, @path', or a "
        "list of them"
    )


class QueryResult:
    """The objects that a query finds: looked up when it is first used, and once.

    `len(r)`, `list(r)`, `r[0]`, `r[:10]` are of handles; `names`, `paths`, `oids`, `to_pandas` and
    `to_arrow` tell of all at once. `count`, `count_attributes` and `attribute_keys` do not make a
    list of the objects: of a result that was not used yet, they are of the moment at which they
    are asked. A result is an iterable of objects for `engram.export_file`.

    Raises
    ------
    ArgumentError
        If the pool was closed.
    NotFoundError
        If the group that was asked is gone.

    """

    __slots__ = ("_found", "_group", "_namespace", "_query")

    def __init__(
        self,
        namespace: _engram.Namespace,
        group: int,
        query: _engram.Query,
        found: NDArray[np.uint64] | None = None,
    ) -> None:
        self._namespace = namespace
        self._group = group
        self._query = query
        self._found = found

    @property
    def query(self) -> str:
        """The query in its own language, with its order and limit."""
        return self._query.text

    def oids(self) -> NDArray[np.uint64]:
        """Give the objects' ids: a uint64 array of shape (len(r),), in the result's order.

        That is the order of `order_by`, and of their ids where none was given.
        """
        if self._found is None:
            self._found = self._asked("oids")
            self._found.flags.writeable = False
        return self._found

    def __len__(self) -> int:
        return len(self.oids())

    def count(self) -> int:
        """Count the objects; a result that was not used yet does so without listing them."""
        if self._found is not None:
            return len(self._found)
        return int(self._asked("count"))

    def count_attributes(self) -> int:
        """Count the attributes of all the objects."""
        if self._found is not None:
            return sum(self.attribute_keys().values())
        return int(self._asked("count_attributes"))

    def attribute_keys(self) -> dict[str, int]:
        """Give the keys of the objects' attributes in byte order, each with how many have it."""
        if self._found is not None:
            return dict(_engram.attribute_keys_of(self._namespace, self._found))
        return dict(self._asked("attribute_keys"))

    def _asked(self, what: str) -> Any:
        """Ask the query for something, and tell of that who listens."""
        ask = getattr(self._query, what)
        if telemetry.is_off() and not _log.is_debugging:
            return ask(self._namespace, self._group)
        begun = time.perf_counter()
        with telemetry.span("engram.query", _facts, self, what) as span:
            found = ask(self._namespace, self._group)
            span.set(_hits, found)
        if _log.is_debugging:
            took = time.perf_counter() - begun
            (hits,) = _hits(found).values()
            said = (what, self.query, self._namespace.pool_path, hits, took)
            _log.debug("%s of %r in %s: %d in %.6f s", *said)
        return found

    def __iter__(self) -> Iterator["Array | Blob"]:
        oids = self.oids()
        for start in range(0, len(oids), _PAGE):
            for found in _engram.handles(self._namespace, oids[start : start + _PAGE]):
                if found is not None:
                    yield make(self._namespace, found)

    @overload
    def __getitem__(self, key: int) -> "Array | Blob": ...
    @overload
    def __getitem__(self, key: slice) -> "QueryResult": ...
    def __getitem__(self, key: Any) -> Any:
        """Give the handle at a place, or the part of the result that a slice is of.

        Raises
        ------
        IndexError
            If there are fewer objects.
        NotFoundError
            If the object was deleted since it was found.

        """
        oids = self.oids()
        if isinstance(key, slice):
            return QueryResult(self._namespace, self._group, self._query, oids[key])
        place = place_of(key, len(oids))
        (found,) = _engram.handles(self._namespace, oids[place : place + 1])
        if found is None:
            raise NotFoundError(
                f"object {int(oids[place]):#x}, which {self._shortly()} found, was deleted or "
                "replaced since: ask again"
            )
        return make(self._namespace, found)

    def names(self) -> list[str]:
        """Give the objects' names, without those of objects that are gone."""
        return [n for n in _engram.names_of(self._namespace, self.oids()) if n is not None]

    def paths(self) -> list[str]:
        """Give the objects' paths in the namespace, without those of objects that are gone."""
        return [p for p in _engram.paths_of(self._namespace, self.oids()) if p is not None]

    def to_pandas(self, columns: Sequence[str] | None = None) -> "pd.DataFrame":
        """Make a table: one row for each object, one column for each field.

        Columns are called as fields are in queries: attributes by their keys, built-in fields as
        `@path`. Without `columns` there are `@path @name @dtype @shape @nbytes @owner @created
        @modified`, and every attribute that an object has; `group.x` is the attribute of the
        nearest group above that has it. An attribute that all have, in one dtype, keeps it; where
        some lack it, whole numbers and truth values are of pandas' nullable dtypes, and others NaN,
        NaT or None. Values that share no dtype are Python objects. Times of several units have one
        that holds them all exactly; where there is none, they are objects too, `datetime64` scalars
        in their own units. Built-in instants are in UTC.

        Raises
        ------
        ArgumentError
            If a column is no field, or named twice.
        UnsupportedError
            If pandas is not installed.

        """
        from engram.results import pandas_of  # noqa: PLC0415 - only those who have pandas need it

        return pandas_of(self._namespace, self.oids(), columns)

    def to_arrow(self, columns: Sequence[str] | None = None) -> "pa.Table":
        """Make a table as `to_pandas` does, for Arrow; what is missing is null.

        Values that share no type of Arrow's are told as text: numbers and texts in one column, and
        numbers that no one type holds exactly; times likewise, as ISO 8601 has them. NaT is null.

        Raises
        ------
        ArgumentError
            If a column is no field, or named twice.
        UnsupportedError
            If pyarrow is not installed.

        """
        from engram.results import arrow_of  # noqa: PLC0415 - only those who have pyarrow need it

        return arrow_of(self._namespace, self.oids(), columns)

    def to_numpy(self, columns: Sequence[str]) -> "dict[str, NDArray[Any]]":
        """Give fields of the objects as arrays of shape (len(r),), by their names.

        A column is of the dtype that its values share, as in `to_pandas`, or of Python objects.
        Where objects lack a field, it is a masked array. Numbers come from the index, where it
        knows their dtype, and no object is looked at.

        Raises
        ------
        ArgumentError
            If a column is no field, or named twice.

        """
        from engram.results import numpy_of  # noqa: PLC0415 - as the others

        return numpy_of(self._namespace, self.oids(), columns)

    def __arrow_c_stream__(self, requested_schema: object | None = None) -> object:
        """Give what `to_arrow` does to any library that knows Arrow's interface.

        ::

            hits = pool.query("temperature < -15")
            duckdb.sql('select "@owner", count(*) from hits group by all')
        """
        return self.to_arrow().__arrow_c_stream__(requested_schema)

    def __arrow_c_schema__(self) -> object:
        """Give the schema of what `to_arrow` gives."""
        return self.to_arrow().schema.__arrow_c_schema__()

    def to_xarray(self, chunks: Any = None) -> "xr.Dataset":
        """Make a dataset of the objects' values: a variable for each name.

        Objects of one group are the variables of a dataset, with the coordinates that are beside
        them. Objects of several groups are put together along a new dimension `group`, whose
        coordinate is the groups' paths, in the order of the result. With `chunks`, as
        `xarray.open_dataset` has it, dask reads them when they are needed; without, those of
        several groups are read now.

        Raises
        ------
        ArgumentError
            If nothing was found, a group lacks a name that others have, or shapes disagree.
        UnsupportedError
            If xarray is not installed.

        """
        found: xr.Dataset = later.hits(self, chunks)
        return found

    def share(self) -> Moved:
        """Share those of the objects that are private, all or nothing (see `Group.share`)."""
        return move_all(self._namespace, self.oids(), "share")

    def unshare(self) -> Moved:
        """Make those of the objects private that are shared, all or nothing."""
        return move_all(self._namespace, self.oids(), "unshare")

    def publish(self, *, closed: bool = False) -> Moved:
        """Publish those of the objects that are not yet, all or nothing (see `Group.publish`)."""
        return Moved(*_engram.publish_all(self._namespace, self.oids(), closed))

    def unpublish(self) -> Moved:
        """Withdraw those of the objects that are published: they are shared again."""
        return move_all(self._namespace, self.oids(), "unpublish")

    def explain(self) -> "Explanation":
        """Tell how the query is answered: what of the index is read, by whom, and why.

        It is asked anew for that.
        """
        from engram.explanation import Explanation  # noqa: PLC0415 - seldom asked for

        return Explanation(self.query, self._query.explain(self._namespace, self._group))

    def __reduce__(self) -> tuple[Any, ...]:
        raise ArgumentError(
            f"a result does not pickle: send list(r), its handles, or r.query, {self._shortly()}, "
            "and ask it there"
        )

    def __dask_tokenize__(self) -> object:
        """By what name dask knows the result: another one each time, as its objects may change."""
        return tokens.new()

    def _shortly(self) -> str:
        text = printable(self.query)
        return repr(text if len(text) <= _SHOWN else f"{text[:_SHOWN]}…")

    def _repr_html_(self) -> str:
        return later.card(self)

    def __repr__(self) -> str:
        if self._found is not None:
            count = len(self._found)
            state = f"{count:,} object{'' if count == 1 else 's'}"
        else:
            state = "not looked up yet"
        return f"<engram.QueryResult of {self._shortly()}: {state}>"


def _facts(result: QueryResult, what: str) -> Mapping[str, telemetry.Value]:
    return {
        "db.system.name": "engram",
        "db.namespace": result._namespace.name,
        "db.operation.name": what,
        "db.query.text": result.query,
        "engram.pool": str(result._namespace.pool_path),
    }


def _hits(found: Any) -> Mapping[str, int]:
    hits = found if isinstance(found, int) else len(found)
    return {"db.response.returned_rows": hits}
