"""Queries over several namespaces: each is asked for itself, and what they find is merged.

An object is ordered by bytes that are the same in every namespace (`Query.keyed`), as in a cluster,
where nodes are asked. Each namespace is looked at as of one commit of its own: there is no moment
that several of them share.
"""

import heapq
import itertools
from collections import Counter
from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING, Any, NamedTuple, overload

import numpy as np

from engram import _engram
from engram.arguments import several
from engram.errors import AccessError, ArgumentError, NotFoundError, QueryError
from engram.figures import Figures, told_rows
from engram.handle import make
from engram.plain import printable
from engram.query import Asked, native_query, order_text, place_of, text_of

if TYPE_CHECKING:
    import pandas as pd
    from numpy.typing import NDArray

    from engram.array import Array
    from engram.blob import Blob

    Oids = NDArray[np.uint64]

_PAGE = 1024
"""So many objects are made handles of at a time."""


class Part(NamedTuple):
    """What is asked of one namespace."""

    namespace: _engram.Namespace
    group: int


class _Hit(NamedTuple):
    """An object, with what orders it: the key, then the namespace's place, then its own there."""

    key: bytes
    part: int
    place: int
    oid: int


def parts_of(
    pool: _engram.Pool, names: Sequence[str] | None, below: str | None
) -> tuple[list[Part], dict[str, str]]:
    """Return what is asked of which namespaces, and which were left out, each with why.

    Without names all are meant that this user may enter.

    Raises
    ------
    AccessError
        If this user may not enter one that was named.
    NotFoundError
        If there is none of a name; if none of them has the group.
    ArgumentError
        If one is named twice, or what is below is no group.

    """
    parts: list[Part] = []
    left_out: dict[str, str] = {}
    if names is None:
        wanted = sorted(info.name for info in pool.namespaces())
    else:
        wanted = list(several("names", names))
        twice = [name for name, count in Counter(wanted).items() if count > 1]
        if twice or not wanted:
            raise ArgumentError(
                f"namespace {twice[0]!r} is named twice: name each once"
                if twice
                else "no namespace is named: name some, or leave names= out for all"
            )
    for name in wanted:
        try:
            namespace = pool.namespace(name)
            group = _group_in(namespace, below)
        except AccessError as error:
            if names is not None:
                raise AccessError(
                    f"{error}; leave namespace {name!r} out, or name none, to ask all that you "
                    "may enter"
                ) from error
            left_out[name] = str(error)
            continue
        if group is not None:
            parts.append(Part(namespace, group))
    if wanted and not parts and len(left_out) < len(wanted):
        raise NotFoundError(f"none of the namespaces {', '.join(wanted)} has a group {below!r}")
    return parts, left_out


def _group_in(namespace: _engram.Namespace, below: str | None) -> int | None:
    """Return the group of a path; None if it is not there."""
    if below is None or below.strip("/") == "":
        return namespace.root
    found = _engram.find(namespace, namespace.root, below)
    if found is None:
        return None
    if found[0] != 0:
        raise ArgumentError(f"{below!r} of namespace {namespace.name!r} is no group: give a group")
    return found[1]


def ask(parts: list[Part], left_out: dict[str, str], expr: Any, asked: Asked) -> "UnitedResult":
    """Make the result of a query; it is looked up when it is used."""
    text = text_of(expr)
    query = native_query(text, asked)
    if query.is_of_totals:
        raise QueryError(
            f"{query.text!r} gives figures, and no objects: ask it by aggregate(), or leave the "
            "figures out"
        )
    check_names(parts, query, text, asked)
    return UnitedResult(parts, left_out, query)


def work_out(parts: list[Part], text: str, asked: Asked) -> Figures:
    """Work out figures of the objects of all namespaces together."""
    query = native_query(text, asked)
    if not query.is_of_totals:
        raise QueryError(
            f"{query.text!r} finds objects, and gives no figures: begin it with some, as in "
            "count(), mean(temperature) where orbit = 4; or ask it by query()"
        )
    check_names(parts, query, text, asked)
    columns, rows = query.totals_of([(part.namespace, part.group) for part in parts])
    return Figures(query.text, tuple(columns), told_rows(rows))


def check_names(parts: list[Part], query: _engram.Query, text: str, asked: Asked) -> None:
    """Tell the caller's caller's caller of attributes that nothing has in any namespace."""
    in_vain = [_engram.named_in_vain(query, part.namespace) for part in parts] or [[]]
    everywhere = [each for each in in_vain[0] if all(each in other for other in in_vain)]
    if everywhere:
        from engram import naming  # noqa: PLC0415 - only for queries that name what nothing has

        order = "" if asked.order_by is None else order_text(asked.order_by)
        naming.tell(parts[0].namespace, (text, order), everywhere, 5, strict=asked.strict)


class UnitedResult:
    """The objects that a query finds in several namespaces: looked up when it is first used, once.

    `len(r)`, `list(r)` and `r[0]` are of handles, each of which knows its `namespace`. Without an
    order, objects come namespace by namespace; with one, all together, and those that are equal in
    it in the order of their namespaces. What is told of the objects is as it is when it is asked:
    those that are deleted meanwhile are left out.
    """

    __slots__ = ("_found", "_parts", "_query", "left_out")

    def __init__(self, parts: list[Part], left_out: dict[str, str], query: _engram.Query) -> None:
        self._parts = parts
        self._query = query
        self._found: list[_Hit] | None = None
        self.left_out = left_out
        """The namespaces that this user may not enter, each with why."""

    @property
    def query(self) -> str:
        """The query in its own language, with its order and limit."""
        return self._query.text

    def _hits(self) -> list[_Hit]:
        if self._found is None:
            # What is left out in front is known only once all are merged.
            whole = self._query.whole()
            answers = (
                [
                    _Hit(key, number, place, oid)
                    for place, (_, key, oid) in enumerate(whole.keyed(*part))
                ]
                for number, part in enumerate(self._parts)
            )
            merged = heapq.merge(*answers, key=lambda hit: hit[:3])
            self._found = list(itertools.islice(merged, *self._ends()))
        return self._found

    def _ends(self) -> tuple[int, int | None]:
        offset, limit = self._query.part
        return offset, None if limit is None else offset + limit

    def __len__(self) -> int:
        return len(self._hits())

    def count(self) -> int:
        """Count the objects; a result that was not used yet does so without listing them."""
        if self._found is not None:
            return len(self._found)
        whole = self._query.whole()
        total = sum(whole.count(*part) for part in self._parts)
        begin, end = self._ends()
        return max(0, (total if end is None else min(total, end)) - begin)

    def count_attributes(self) -> int:
        """Count the attributes of all the objects."""
        return sum(self.attribute_keys().values())

    def attribute_keys(self) -> dict[str, int]:
        """Give the keys of the objects' attributes in byte order, each with how many have it."""
        keys: Counter[str] = Counter()
        for part, (oids, _) in self._by_part():
            keys.update(dict(_engram.attribute_keys_of(part.namespace, oids)))
        return {key: keys[key] for key in sorted(keys, key=str.encode)}

    def __iter__(self) -> "Iterator[Array | Blob]":
        hits = self._hits()
        for start in range(0, len(hits), _PAGE):
            yield from (each for each in self._handles(hits[start : start + _PAGE]) if each)

    def _handles(self, hits: list[_Hit]) -> list[Any]:
        """Make handles; None of what is gone."""
        made: list[Any] = [None] * len(hits)
        for number, part in enumerate(self._parts):
            places = [place for place, hit in enumerate(hits) if hit.part == number]
            oids = np.array([hits[place].oid for place in places], np.uint64)
            for place, found in zip(places, _engram.handles(part.namespace, oids), strict=True):
                made[place] = None if found is None else make(part.namespace, found)
        return made

    @overload
    def __getitem__(self, key: int) -> "Array | Blob": ...
    @overload
    def __getitem__(self, key: slice) -> "UnitedResult": ...
    def __getitem__(self, key: Any) -> Any:
        """Give the handle at a place, or the part of the result that a slice is of.

        Raises
        ------
        IndexError
            If there are fewer objects.
        NotFoundError
            If the object was deleted since it was found.

        """
        hits = self._hits()
        if isinstance(key, slice):
            some = UnitedResult(self._parts, self.left_out, self._query)
            some._found = hits[key]
            return some
        hit = hits[place_of(key, len(hits))]
        (found,) = self._handles([hit])
        if found is None:
            raise NotFoundError(
                f"object {hit.oid:#x}, which was found, was deleted or replaced since: ask again"
            )
        return found

    def namespaces(self) -> list[str]:
        """Give the name of each object's namespace, in the result's order."""
        return [self._parts[hit.part].namespace.name for hit in self._hits()]

    def names(self) -> list[tuple[str, str]]:
        """Give the namespace and the name of each object that is there still."""
        return self._told(_engram.names_of)

    def paths(self) -> list[tuple[str, str]]:
        """Give the namespace and the path of each object that is there still."""
        return self._told(_engram.paths_of)

    def _told(self, native: Any) -> list[tuple[str, str]]:
        found: list[Any] = [None] * len(self)
        for part, (oids, places) in self._by_part():
            for place, text in zip(places, native(part.namespace, oids), strict=True):
                found[place] = None if text is None else (part.namespace.name, text)
        return [each for each in found if each is not None]

    def _by_part(self) -> "Iterator[tuple[Part, tuple[Oids, list[int]]]]":
        """Yield each namespace with what was found there: the ids, and their places."""
        hits = self._hits()
        for number, part in enumerate(self._parts):
            places = [place for place, hit in enumerate(hits) if hit.part == number]
            yield part, (np.array([hits[place].oid for place in places], np.uint64), places)

    def to_pandas(self, columns: Sequence[str] | None = None) -> "pd.DataFrame":
        """Make a table as `QueryResult.to_pandas` does, with the column `@namespace` in front.

        Raises
        ------
        ArgumentError
            If a column is no field, or named twice.
        UnsupportedError
            If pandas is not installed.

        """
        from engram.results import pandas_of_several  # noqa: PLC0415 - only who has pandas

        return pandas_of_several(self._for_tables(), columns)

    def _for_tables(self) -> "list[tuple[_engram.Namespace, Oids, list[int]]]":
        return [(part.namespace, oids, places) for part, (oids, places) in self._by_part()]

    def __repr__(self) -> str:
        names = ", ".join(part.namespace.name for part in self._parts)
        count = "not looked up yet" if self._found is None else f"{len(self._found):,} objects"
        return f"<engram.UnitedResult of {printable(self.query)!r} in {names}: {count}>"
