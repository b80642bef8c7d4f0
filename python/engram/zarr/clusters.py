"""A cluster's names, and what lies below its groups, as a store of Zarr's.

Documents are made when they are asked for, and chunks are read from where their parts lie; from the
moment in which the store has told of an array it knows that one: chunks are never those of another
generation. What is written is kept in this process until the block of `batch()` ends: then each
array is cut into parts, and all names are published together. Zarr decodes what was written, so any
codecs and shards will do; in the cluster an array is as `Cluster.put` makes it. What lies below a
group is put at its home then, one by one, before the names are published.
"""

from __future__ import annotations

import asyncio
import itertools
import threading
import warnings
from typing import TYPE_CHECKING, Any, Self

import numpy as np
import zarr
from zarr.abc.store import Store as ZarrStore
from zarr.core.buffer import Buffer

from engram import cluster as clusters
from engram.cluster import ClusterGroup
from engram.cluster.listing import NameGroup, found_at, is_group, walked
from engram.errors import (
    ArgumentError,
    BusyError,
    EngramWarning,
    FormatError,
    NotFoundError,
)
from engram.formats.zarr import attributes
from engram.paths import ClusterPath, cluster_of
from engram.zarr import nodes
from engram.zarr.shown import DOCUMENT
from engram.zarr.store import buffer_of
from engram.zarr.view import parsed

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Iterable, Iterator
    from types import TracebackType

    from engram.cluster import Cluster
    from engram.zarr.nodes import Known

_CHUNKS = "c"
_PARTS_MOST = 1024
"""An array of more chunks is cut into as many parts as there are nodes."""

Where = str | ClusterPath | ClusterGroup | NameGroup


class ClusterStore(ZarrStore):  # type: ignore[misc] # mypy does not read zarr
    """A store of Zarr's over a group of a cluster.

    ::

        store = engram.zarr.ClusterStore("engram://job/run")
        zarr.open_group(store, mode="r")["T"][:100]
        with store.batch():                      # all of it at once, or nothing
            zarr.create_array(store, name="U", data=values, chunks=(1000, 1000))

    It pickles as where it is. It closes the cluster if it has opened it.

    Parameters
    ----------
    where
        A URL, `engram://NAME/GROUP`; or a group of an open cluster.
    read_only
        Whether it refuses to write.

    Raises
    ------
    ArgumentError
        If it is neither.
    NotFoundError
        If nothing is known here of the cluster.

    """

    supports_writes = True
    supports_deletes = True
    supports_listing = True
    supports_consolidated_metadata = False

    def __init__(self, where: Where, *, read_only: bool = False) -> None:
        super().__init__(read_only=bool(read_only))
        self._own: Cluster | None = None
        if isinstance(where, str):
            url = cluster_of(where)
            if url is None:
                raise ArgumentError(
                    f"{where!r} is no URL of a cluster: give engram://NAME/GROUP; of a pool, "
                    "engram.zarr.Store(pool[...])"
                )
            self._cluster = self._own = clusters.open(url.name)
            self._path = url.path
        elif isinstance(where, ClusterPath | ClusterGroup | NameGroup):
            self._cluster, self._path = where.cluster, where.path.strip("/")
        else:
            raise ArgumentError(
                f"{where!r} is no group of a cluster: give its URL, engram://NAME/GROUP"
            )
        self._known: dict[str, Known] = {}
        self._warned: set[str] = set()
        self._staged: _Staged | None = None

    def with_read_only(self, read_only: bool = False) -> Self:
        """Give the same store, for reading alone or for writing as well."""
        made = type(self)(ClusterPath(self._cluster, self._path), read_only=read_only)
        made._known, made._staged = self._known, self._staged
        return made

    def close(self) -> None:
        """Close the store, and the cluster if it was opened for it."""
        super().close()
        if self._own is not None:
            self._own.close()
            self._own = None

    # Reading

    def get_sync(self, key: str, *, prototype: Any = None, byte_range: Any = None) -> Any:
        """Give a document or a chunk, or a part of it; None if there is none."""
        staged = self._staged
        if staged is not None and key in staged.values:
            return buffer_of(staged.values[key], prototype, byte_range)
        path, place = parsed(key)
        if staged is not None and staged.hides(path, key):
            return None
        if place is None:
            document = self._document(path)
            found = None if document is None else np.frombuffer(document, np.uint8)
        else:
            known = self._told(path)
            found = known.load(place) if known is not None and known.has(place) else None
        return None if found is None else buffer_of(found, prototype, byte_range)

    async def get(self, key: str, prototype: Any = None, byte_range: Any = None) -> Any:
        """Give a document or a chunk, or a part of it; several are fetched at once."""
        return await asyncio.to_thread(
            self.get_sync, key, prototype=prototype, byte_range=byte_range
        )

    async def get_partial_values(
        self, prototype: Any, key_ranges: Iterable[tuple[str, Any]]
    ) -> list[Any]:
        """Give parts of values, in the order in which they are asked for."""
        asked = [self.get(key, prototype, byte_range) for key, byte_range in key_ranges]
        return list(await asyncio.gather(*asked))

    async def exists(self, key: str) -> bool:
        """Whether there is such a document or chunk."""
        return await asyncio.to_thread(self._has, key)

    def _has(self, key: str) -> bool:
        staged = self._staged
        if staged is not None and key in staged.values:
            return True
        path, place = parsed(key)
        if staged is not None and staged.hides(path, key):
            return False
        if place is None:
            return self._document(path) is not None
        known = self._told(path)
        return known is not None and known.has(place)

    def _document(self, path: str) -> bytes | None:
        """Return the document of a node; None if there is none."""
        thing = self._thing(path)
        if thing is None:
            return None
        why = nodes.refusal(path.rpartition("/")[2], thing)
        if why is not None:
            raise FormatError(f"{path!r} is not shown: {why}")
        if is_group(thing):
            document, left_out = nodes.of_group(thing)
        else:
            self._known[path], document, left_out = nodes.of_array(thing, path)
        for name, reason in left_out.items():
            self._warn(f"{path}@{name}", reason)
        return document

    def _told(self, path: str) -> Known | None:
        """Return an array as it was told of; None if there is none at a path."""
        if path not in self._known:
            self._document(path)
        return self._known.get(path)

    def _thing(self, path: str) -> Any:
        if path.startswith("/") or path.endswith("/"):
            return None
        try:
            return found_at(self._cluster, "/".join(filter(None, (self._path, path))))
        except (NotFoundError, ArgumentError):  # no thing has such a name
            # A group that is to be made has nothing in it yet, and is there all the same.
            return None

    def _warn(self, what: str, why: str) -> None:
        if what not in self._warned:
            self._warned.add(what)
            message = f"{what!r} is left out of {self}: {why}"
            warnings.warn(message, EngramWarning, stacklevel=2)

    # Listing

    async def list(self) -> AsyncIterator[str]:
        """List all documents and chunks."""
        async for key in self.list_prefix(""):
            yield key

    async def list_prefix(self, prefix: str) -> AsyncIterator[str]:
        """List the documents and chunks whose keys begin with a prefix."""
        for key in await asyncio.to_thread(lambda: list(self._keys(prefix))):
            yield key

    def _keys(self, prefix: str) -> Iterator[str]:
        staged = self._staged
        found: dict[str, None] = {}
        for path, thing in (("", self._thing("")), *walked(self._thing(""))):
            if thing is not None and nodes.refusal(path.rpartition("/")[2], thing) is None:
                found |= dict.fromkeys(self._keys_of(path, thing))
        if staged is not None:
            found = {key: None for key in found if not staged.hides(parsed(key)[0], key)}
            found |= dict.fromkeys(staged.values)
        yield from (key for key in found if key.startswith(prefix))

    def _keys_of(self, path: str, thing: Any) -> Iterator[str]:
        start = f"{path}/" if path else ""
        known = None
        if not is_group(thing):
            try:
                known = self._told(path)
            except FormatError as error:
                self._warn(path, str(error))
            if known is None:
                return
        yield start + DOCUMENT
        if known is not None:
            for place in itertools.product(*map(range, known.grid)):
                yield start + "/".join((_CHUNKS, *map(str, place)))

    async def list_dir(self, prefix: str) -> AsyncIterator[str]:
        """List the names that come next in keys which begin with a prefix and a slash."""
        for name in await asyncio.to_thread(self._names, prefix.strip("/")):
            yield name

    def _names(self, prefix: str) -> tuple[str, ...]:
        start = f"{prefix}/" if prefix else ""
        found: dict[str, None] = {}
        staged = self._staged
        thing = self._thing(prefix)
        if is_group(thing):
            names = [DOCUMENT]
            for name, each in thing.listed():
                why = nodes.refusal(name, each)
                if why is None:
                    names.append(name)
                else:
                    self._warn(start + name, why)
            found = {
                name: None
                for name in names
                if staged is None or not staged.hides(start + name, start + name)
            }
        else:
            keys = self._keys_of(prefix, thing) if thing is not None else self._keys(start)
            found = {key[len(start) :].partition("/")[0]: None for key in keys}
        if staged is not None:
            inner = (key[len(start) :] for key in staged.values if key.startswith(start))
            found |= dict.fromkeys(each.partition("/")[0] for each in inner)
        return tuple(found)

    # Writing

    def batch(self) -> _Batch:
        """Begin a with-block: names that are written in it are published together when it ends.

        Until then all is kept in this process's memory, and this store alone shows it. If the block
        raises, nothing of it is kept. (Below a group of the cluster, arrays are put one by one.)

        Raises
        ------
        BusyError
            If the store runs a batch already.
        ConflictError
            When the block ends, if somebody else has published one of the names meanwhile.

        """
        self._check_writable()
        return _Batch(self)

    async def set(self, key: str, value: Any) -> None:
        """Keep a document or a chunk until the batch ends.

        Raises
        ------
        ArgumentError
            Without a batch.

        """
        if not isinstance(value, Buffer):
            raise TypeError(f"{value!r} is no value: a store of Zarr's takes a zarr Buffer")
        self._batch(key).values[key] = value.as_numpy_array().view(np.uint8).copy()

    async def set_if_not_exists(self, key: str, value: Any) -> None:
        """Keep a value until the batch ends, unless the key has one."""
        if not await self.exists(key):
            await self.set(key, value)

    async def delete(self, key: str) -> None:
        """Take a document or a chunk away when the batch ends."""
        staged = self._batch(key)
        staged.values.pop(key, None)
        path, place = parsed(key)
        if place is None:
            staged.gone[path] = None
        else:
            staged.gone_keys[key] = None

    async def delete_dir(self, prefix: str) -> None:
        """Take all away whose keys begin with a prefix and a slash, when the batch ends."""
        path = prefix.strip("/")
        staged = self._batch(prefix)
        start = f"{path}/" if path else ""
        for key in [key for key in staged.values if key.startswith(start)]:
            del staged.values[key]
        staged.gone[path] = None

    async def clear(self) -> None:
        """Take all away when the batch ends."""
        await self.delete_dir("")

    def _batch(self, key: str) -> _Staged:
        self._check_writable()
        if self._staged is None:
            raise ArgumentError(
                f"{key!r} cannot be written by itself: names of a cluster are published as a "
                "whole; write within `with store.batch():`"
            )
        return self._staged

    # What it is

    def __eq__(self, other: object) -> bool:
        return (
            isinstance(other, type(self))
            and (self._cluster.name, self._path) == (other._cluster.name, other._path)
            and self.read_only == other.read_only
        )

    def __hash__(self) -> int:
        return hash((self._cluster.name, self._path))

    def __reduce__(self) -> tuple[Any, ...]:
        if self._staged is not None:
            raise BusyError(
                f"{self} runs a batch, which no other process can take part in: end it before the "
                "store is pickled, or write with threads"
            )
        where = ClusterPath(self._cluster, self._path)
        return _again, (type(self), where, self.read_only, dict(self._known))

    def __str__(self) -> str:
        return self._cluster.url(self._path)

    def __repr__(self) -> str:
        return f"{type(self).__name__}({str(self)!r})"


def _again(
    kind: type[ClusterStore], where: ClusterPath, read_only: bool, known: dict[str, Known]
) -> ClusterStore:
    made = kind(where, read_only=read_only)
    made._known.update(known)
    return made


class _Staged:
    """What was written in a batch."""

    def __init__(self) -> None:
        self.values: dict[str, np.ndarray[Any, Any]] = {}
        self.gone: dict[str, None] = {}
        """Paths that go, with all below them."""
        self.gone_keys: dict[str, None] = {}

    def hides(self, path: str, key: str) -> bool:
        """Whether what the cluster has under a key is not to be seen any more."""
        if key in self.gone_keys:
            return True
        return any(path == gone or not gone or path.startswith(f"{gone}/") for gone in self.gone)


class _Batch:
    """The with-block of a batch."""

    def __init__(self, store: ClusterStore) -> None:
        self._store = store
        self._lock = threading.Lock()

    def __enter__(self) -> ClusterStore:
        if self._store._staged is not None:
            raise BusyError(f"{self._store} runs a batch already: end it first")
        self._store._staged = _Staged()
        return self._store

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        store = self._store
        staged = store._staged
        try:
            if kind is None and staged is not None:
                _publish(store, staged)
        finally:
            store._staged = None
            store._known.clear()


def _publish(store: ClusterStore, staged: _Staged) -> None:
    """Bring what was written into the cluster: names at once, and below groups one by one."""
    documents = {parsed(key)[0] for key in staged.values}
    arrays: dict[str, Any] = {}
    for path in sorted(documents):
        opened = zarr.open(store, path=path, mode="r", zarr_format=3)
        if isinstance(opened, zarr.Array):
            arrays[path] = opened
        else:
            _check_group(store, path, opened)
    cluster = store._cluster
    gone = _names_gone(store, staged, arrays)
    with cluster.batch() as batch:
        for path, array in arrays.items():
            whole = "/".join(filter(None, (store._path, path)))
            said: dict[str, Any] = {"attrs": _attributes_of(array), "dims": _dims_of(array, path)}
            values = np.asarray(array[...])
            home = cluster._find(whole)
            if isinstance(home, ClusterGroup) and home.path != whole:
                home.put(home.inside(whole), values, **said)
            else:
                batch.put(whole, values, parts=_parts(array), **said)
        for name in gone:
            batch.remove(name)


def _names_gone(store: ClusterStore, staged: _Staged, arrays: dict[str, Any]) -> list[str]:
    """Give the names that go, and remove what goes below groups."""
    names = []
    for path in staged.gone:
        thing = store._thing(path)
        found = [("", thing)] if thing is not None and not is_group(thing) else []
        if isinstance(thing, NameGroup):
            found = [
                (name, each) for name, each in walked(thing) if not isinstance(each, NameGroup)
            ]
        elif isinstance(thing, ClusterGroup):
            found = [*thing.listed()]
        for inner, each in found:
            key = "/".join(filter(None, (path, inner)))
            whole = "/".join(filter(None, (store._path, key)))
            home = store._cluster._find(whole)
            if isinstance(home, ClusterGroup) and home.path != whole:
                if key not in arrays:
                    del store._cluster[whole]
            elif key not in arrays and not isinstance(each, ClusterGroup):
                names.append(whole)
    return names


def _check_group(store: ClusterStore, path: str, group: Any) -> None:
    """Set a group's attributes, or refuse those that have no place."""
    said = dict(group.attrs)
    if not said:
        return
    thing = store._thing(path)
    whole = "/".join(filter(None, (store._path, path)))
    if not isinstance(thing, ClusterGroup):
        raise ArgumentError(
            f"the attributes {sorted(said)} of {whole!r} have no place: what names begin with has "
            f"none; leave them out, or make a group of it first, cluster.create_group({whole!r})"
        )
    thing.attrs.update(attributes.read(said)[0])


def _attributes_of(array: Any) -> dict[str, Any]:
    return attributes.read(dict(array.attrs), array.dtype)[0]


def _dims_of(array: Any, path: str) -> list[str] | None:
    """Give the names of dimensions that are no invented ones."""
    names = array.metadata.dimension_names
    name = path.rpartition("/")[2]
    if names is None or None in names:
        return None
    invented = [f"{name}_dim_{axis}" for axis in range(array.ndim)]
    return None if list(names) == invented else list(names)


def _parts(array: Any) -> list[int] | None:
    """Give into how many parts each dimension is cut: as many as it has chunks."""
    pairs = zip(array.shape, array.chunks, strict=True)
    grid = [max(1, -(-length // part)) for length, part in pairs]
    return grid if grid and np.prod(grid, dtype=np.int64) <= _PARTS_MOST else None
