"""Queries over a cluster: asked of every node that has subtrees, and merged in their order.

The names of arrays in parts, with shape, dtype and attributes, stand in etcd. They are judged here,
by the same engine: in a pool of this process that has an object for each, and no values.
"""

from __future__ import annotations

import heapq
import itertools
import json
import threading
from collections.abc import Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from operator import itemgetter
from typing import TYPE_CHECKING, Any, NamedTuple, TypeAlias, overload

import numpy as np

from engram import _engram, later, telemetry
from engram.cluster import values
from engram.cluster.natives import native
from engram.cluster.scratch import Scratch
from engram.errors import BusyError, EngramError, NotFoundError, PartialResultError, QueryError
from engram.query import Asked, native_query, text_of

if TYPE_CHECKING:
    from engram.cluster.cluster import Cluster
    from engram.cluster.trees import ClusterGroup

_log = telemetry.Log("engram.cluster")

_ASKED_AT_ONCE = 32
_INDEX_SIZE = "1 GiB"
_CHUNK = 64
_NAMED = 5
"""Groups that an error names of each node."""
_Trees: TypeAlias = dict[tuple[str, int], dict[str, str]]
"""The groups that each holder has, with the uuid of each one's subtree."""


class Hit(NamedTuple):
    """An object that a query has found, as it was then."""

    path: str
    """Its name in the cluster."""
    node: str | None
    """The node on which it lies; None of an array in parts."""
    dtype: np.dtype[Any] | None
    shape: tuple[int, ...]
    dims: tuple[str, ...] | None
    attrs: dict[str, Any]
    nbytes: int


class Hits(Sequence[Hit]):
    """What a query has found, in its order."""

    def __init__(self, cluster: Cluster, found: list[Hit], missing: dict[str, str]) -> None:
        self.cluster = cluster
        self._found = found
        self.missing = missing
        """The nodes that have not answered, each with why."""

    def __repr__(self) -> str:
        without = f", without {len(self.missing)} nodes" if self.missing else ""
        return f"<{len(self)} hits in engram://{self.cluster.name}{without}>"

    def _repr_html_(self) -> str:
        return later.card(self)

    def __len__(self) -> int:
        return len(self._found)

    @overload
    def __getitem__(self, key: int) -> Hit: ...
    @overload
    def __getitem__(self, key: slice) -> list[Hit]: ...
    def __getitem__(self, key: int | slice) -> Hit | list[Hit]:
        return self._found[key]

    def __iter__(self) -> Iterator[Hit]:
        return iter(self._found)

    def paths(self) -> list[str]:
        """Give the names of the objects."""
        return [hit.path for hit in self._found]

    def objects(self) -> Iterator[Any]:
        """Look each object up; one that has gone since is left out."""
        for hit in self._found:
            try:
                found = self.cluster[hit.path]
            except NotFoundError:
                continue
            yield found


class _Keyed(NamedTuple):
    """A hit with what orders it: the key, then which answer it is of, and its place there."""

    key: bytes
    answer: int
    place: int
    hit: Hit


def of_cluster(cluster: Cluster, expr: Any, asked: Asked, *, partial: bool) -> Hits:
    """Find objects in all subtrees, and arrays."""
    query = _query(expr, asked)
    with telemetry.span("engram.query", _facts, cluster, query) as span:
        found = _of_cluster(cluster, query, partial=partial)
        span.set(_hits, found)
    return found


def _facts(cluster: Cluster, query: _engram.Query) -> Mapping[str, telemetry.Value]:
    return {
        "db.system.name": "engram",
        "db.query.text": query.text,
        "engram.pool": f"engram://{cluster.name}",
    }


def _hits(found: Hits) -> Mapping[str, telemetry.Value]:
    return {"db.response.returned_rows": len(found), "engram.nodes_missing": len(found.missing)}


def _of_cluster(cluster: Cluster, query: _engram.Query, *, partial: bool) -> Hits:
    # What is left out in front is known only once all answers are merged.
    whole = query.whole()
    arrays, trees = _names(cluster)
    answers, missing = _ask(cluster, whole.text, trees, is_from_tree=False)
    if any(isinstance(why, NotFoundError) for why in missing.values()):
        # A group may have gone meanwhile. What has a name yet, and is not there, is missing.
        arrays, trees = _names(cluster)
        answers, missing = _ask(cluster, whole.text, trees, is_from_tree=False)
    if arrays:
        answers.append(cluster._index_of_arrays().find(whole, arrays, len(answers)))
    return _merged(cluster, answers, missing, query.part, partial=partial)


def _names(cluster: Cluster) -> tuple[dict[str, dict[str, Any]], _Trees]:
    """Give the manifests of all arrays, and which subtrees each holder has."""
    trees: _Trees = {}
    arrays: dict[str, dict[str, Any]] = {}
    for path, text in cluster._native.names(""):
        manifest = json.loads(text)
        if manifest["kind"] == "array":
            arrays[path] = manifest
            continue
        for holder in manifest["holders"]:
            of_holder = trees.setdefault((holder["node"], holder["member"]), {})
            of_holder[path] = manifest["uuid"]
    return arrays, trees


def of_tree(group: ClusterGroup, expr: Any, asked: Asked, *, partial: bool) -> Hits:
    """Find objects below a subtree's root."""
    query = _query(expr, asked)
    manifest = json.loads(group._manifest)
    trees = {
        (holder["node"], holder["member"]): {group._root: manifest["uuid"]}
        for holder in manifest["holders"]
    }
    with telemetry.span("engram.query", _facts, group.cluster, query) as span:
        answers, missing = _ask(group.cluster, query.whole().text, trees, is_from_tree=True)
        found = _merged(group.cluster, answers, missing, query.part, partial=partial)
        span.set(_hits, found)
    return found


def _query(expr: Any, asked: Asked) -> _engram.Query:
    query = native_query(text_of(expr), asked)
    if query.is_of_totals:
        raise QueryError(
            f"{query.text!r} gives figures, and a cluster's query finds objects: ask for the "
            "figures of a pool, by pool.aggregate(), or of what this finds, by to_pandas() there"
        )
    return query


def _ask(
    cluster: Cluster,
    text: str,
    trees: _Trees,
    *,
    is_from_tree: bool,
) -> tuple[list[list[_Keyed]], dict[str, EngramError]]:
    """Ask each node; what it has found, or why it has not answered."""
    missing: dict[str, EngramError] = {}
    cluster._native.nodes()  # the addresses of now

    def ask(holder: tuple[str, int]) -> list[tuple[str, bytes, bytes]]:
        node, member = holder
        try:
            return native.query_node(
                cluster._native, node, member, text, list(trees[holder].values()), is_from_tree
            )
        except (BusyError, NotFoundError) as error:
            groups = ", ".join(map(repr, sorted(trees[holder])[:_NAMED]))
            more = ", …" if len(trees[holder]) > _NAMED else ""
            missing[node] = type(error)(f"{error}; it has {groups}{more}")
            return []

    holders = list(trees)
    with ThreadPoolExecutor(max(1, min(len(holders), _ASKED_AT_ONCE))) as threads:
        told = list(threads.map(ask, holders))
    answers = [
        [
            _Keyed(key, number, place, _hit(path, holders[number][0], head))
            for place, (path, head, key) in enumerate(found)
        ]
        for number, found in enumerate(told)
    ]
    return answers, missing


def _hit(path: str, node: str, head: bytes) -> Hit:
    _, dtype, shape, dims, attrs, told = _engram.unpacked(head)
    nbytes = 0 if told is None else told[2]
    return Hit(path, node, dtype, shape, None if dims is None else tuple(dims), dict(attrs), nbytes)


def _merged(
    cluster: Cluster,
    answers: list[list[_Keyed]],
    missing: dict[str, EngramError],
    part: tuple[int, int | None],
    *,
    partial: bool,
) -> Hits:
    if missing and not partial:
        said = "; ".join(f"{node}: {why}" for node, why in sorted(missing.items()))
        raise PartialResultError(
            f"{len(missing)} nodes have not answered ({said}): try again later, or take what the "
            "others have found with partial=True"
        )
    for node, why in missing.items():
        _log.warning("%s: node %s has not answered a query: %s", cluster.name, node, why)
    merged = heapq.merge(*answers, key=lambda each: each[:3])
    offset, limit = part
    end = None if limit is None else offset + limit
    found = [each.hit for each in itertools.islice(merged, offset, end)]
    return Hits(cluster, found, {node: str(why) for node, why in missing.items()})


class ArrayIndex:
    """The arrays of a cluster as objects without values, in pools of this process.

    *Invariant*: a pool has no two arrays of which one's name is below the other's, which a cluster
    may have and a pool may not. So there is one pool for arrays that are below none, a second one
    for those that are below one, and so on: almost always there is one.
    """

    def __init__(self) -> None:
        self._levels: list[_Level] = []
        self._lock = threading.Lock()

    def close(self) -> None:
        """Remove the pools."""
        while self._levels:
            self._levels.pop().close()

    def find(
        self, query: _engram.Query, arrays: dict[str, dict[str, Any]], number: int
    ) -> list[_Keyed]:
        """Find those of these arrays of which the query is true."""
        by_level: dict[int, dict[str, dict[str, Any]]] = {}
        for path, manifest in arrays.items():
            steps = path.split("/")
            above = ("/".join(steps[:count]) for count in range(1, len(steps)))
            by_level.setdefault(sum(each in arrays for each in above), {})[path] = manifest
        with self._lock:
            while len(self._levels) <= max(by_level, default=0):
                self._levels.append(_Level())
            found = [
                level.find(query, by_level.get(at, {})) for at, level in enumerate(self._levels)
            ]
        merged = heapq.merge(*found, key=itemgetter(1))
        return [
            _Keyed(key, number, place, _hit_of(path, arrays[path]))
            for place, (path, key) in enumerate(merged)
        ]


class _Level:
    """A pool of arrays of which none is below another one."""

    def __init__(self) -> None:
        self._scratch = Scratch(_INDEX_SIZE)
        self._pool = self._scratch.pool
        self._known: dict[str, str] = {}

    def close(self) -> None:
        """Remove the pool."""
        self._scratch.close()

    def find(
        self, query: _engram.Query, arrays: dict[str, dict[str, Any]]
    ) -> list[tuple[str, Any]]:
        """Find those of these arrays of which the query is true, and what they are ordered by."""
        self._bring_up(arrays)
        found = query.keyed(self._pool._namespace, self._pool._id)
        return [(path, key) for path, key, _ in found]

    def _bring_up(self, arrays: dict[str, dict[str, Any]]) -> None:
        """Have an object for each array, as its manifest is now."""
        for path in [path for path in self._known if path not in arrays]:
            del self._pool[path]
            del self._known[path]
        for path, manifest in arrays.items():
            sign = f"{manifest['uuid']}/{manifest['generation']}"
            if self._known.get(path) == sign:
                continue
            shape = tuple(manifest["shape"])
            dtype = values.dtype_of(manifest["dtype"])
            # Without chunks it would have a value, and with them it has none, as long as nobody
            # writes one. Items of no bytes have none anyway.
            chunks = (*[1] * (len(shape) - 1), _CHUNK) if shape and dtype.itemsize else None
            self._pool.create_array(
                path,
                shape=shape,
                dtype=dtype,
                dims=manifest.get("dims"),
                attrs=values.decode(manifest.get("attrs", {})),
                overwrite=True,
                chunks=chunks,
            )
            self._known[path] = sign


def _hit_of(path: str, manifest: dict[str, Any]) -> Hit:
    dtype = values.dtype_of(manifest["dtype"])
    shape = tuple(manifest["shape"])
    dims = manifest.get("dims")
    nbytes = int(np.prod(shape, dtype=np.int64)) * dtype.itemsize
    attrs = values.decode(manifest.get("attrs", {}))
    return Hit(path, None, dtype, shape, None if dims is None else tuple(dims), attrs, nbytes)
