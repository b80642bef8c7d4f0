"""A group of a pool as a store of Zarr's: what zarr writes there is blobs, and what it reads views.

A value is put as any blob is, whole or not at all, by as many processes as there are; a value that
is read is the pool's own memory, read-only, and stays what it was for as long as somebody has it,
whoever replaces it meanwhile. Where values are is told in `keys.py`, and batches in `batch.py`.
"""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any, Self

from zarr.abc.store import OffsetByteRequest, RangeByteRequest, SuffixByteRequest
from zarr.abc.store import Store as ZarrStore
from zarr.core.buffer import Buffer, default_buffer_prototype

from engram import _engram
from engram.errors import (
    ArgumentError,
    BusyError,
    ExistsError,
    InvalidNameError,
    NotFoundError,
    PoolFullError,
)
from engram.group import Group
from engram.member import REPLACING, new_member
from engram.members import delete_all
from engram.zarr import keys
from engram.zarr.batch import Slot, StoreBatch
from engram.zarr.keys import VALUE, Place

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Iterable

    import numpy as np

_KEEPING = new_member()
_TRIES = 100
"""So often is a key put again, where others make values and groups of one name meanwhile."""

_ASIDE = f"{VALUE}.aside"
"""What a value is called, within one commit, while a group takes its name."""


class Store(ZarrStore):  # type: ignore[misc] # mypy does not read zarr
    """A store of Zarr's over a group of a pool.

    ::

        store = engram.zarr.Store(pool.require_group("model"))
        root = zarr.create_group(store)
        with store.batch():                      # all of it at once, or nothing
            root.create_array("T", data=values)

    Each key is a blob below the group. zarr, xarray and dask take it wherever they take a store,
    any number of processes may write at once, and it pickles as where it is. It is open while its
    pool is.

    Parameters
    ----------
    group
        The group: a pool, a namespace, a snapshot, or a group in one.
    read_only
        Whether it refuses to write; if it is not given, whether the pool was opened with mode "r".

    Raises
    ------
    ArgumentError
        If `group` is none, or something is to be written to a pool that is open for reading.

    """

    supports_writes = True
    supports_deletes = True
    supports_listing = True

    def __init__(self, group: Group, *, read_only: bool | None = None) -> None:
        if not isinstance(group, Group):
            raise ArgumentError(f"{group!r} is no group: give a group of a pool, or a pool")
        writable = group._namespace.writable
        if read_only is False and not writable:
            raise ArgumentError(
                f"read_only=False, and {group!r} can only be read: open its pool with mode 'r+'"
            )
        super().__init__(read_only=not writable if read_only is None else bool(read_only))
        self._group = group
        self._place = Place(group._namespace, group._id)
        self._slot = Slot()

    @property
    def group(self) -> Group:
        """The group that has the keys."""
        return self._group

    def batch(self) -> StoreBatch:
        """Begin a with-block: all that this store is asked to do, by any thread, in one commit.

        (`Pool.batch` is of the thread that begins it, and zarr asks in a thread of its own.)

        Raises
        ------
        BusyError
            If another thread runs a batch of this store; when the block ends, if others have
            changed meanwhile what it has written to. Nothing of it is kept then.

        """
        self._check_writable()
        return StoreBatch(self._slot, self._place.namespace)

    def with_read_only(self, read_only: bool = False) -> Self:
        """Give the same store, for reading alone or for writing as well."""
        made = type(self)(self._group, read_only=read_only)
        made._slot = self._slot
        return made

    async def _open(self) -> None:
        self._slot.do(keys.check_there, self._place)
        await super()._open()

    # Reading

    def get_sync(
        self,
        key: str,
        *,
        prototype: Any = None,
        byte_range: Any = None,
    ) -> Any:
        """Give a key's value, or a part of it: a buffer on the pool's own memory, read-only."""
        if not isinstance(key, str):
            raise TypeError(f"{key!r} is no key: a key of a store is a str")
        self._is_open = True
        found = self._slot.do(keys.value, self._place, key)
        return None if found is None else buffer_of(found, prototype, byte_range)

    async def get(self, key: str, prototype: Any = None, byte_range: Any = None) -> Any:
        """Give a key's value, or a part of it; None if it has none."""
        return self.get_sync(key, prototype=prototype, byte_range=byte_range)

    async def get_partial_values(
        self, prototype: Any, key_ranges: Iterable[tuple[str, Any]]
    ) -> list[Any]:
        """Give parts of values, in the order in which they are asked for."""
        return [
            self.get_sync(key, prototype=prototype, byte_range=byte_range)
            for key, byte_range in key_ranges
        ]

    async def exists(self, key: str) -> bool:
        """Whether a key has a value."""
        return self._slot.do(keys.find, self._place, key) is not None

    async def getsize(self, key: str) -> int:
        """Tell how many bytes a value has, without a look at them."""
        found = self._slot.do(keys.find, self._place, key)
        if found is None:
            raise FileNotFoundError(key)
        return found.nbytes

    async def getsize_prefix(self, prefix: str) -> int:
        """Tell how many bytes all values have whose keys begin with a prefix and a slash."""
        return self._slot.do(_nbytes, self._place, prefix.strip("/"))

    # Writing

    def set_sync(self, key: str, value: Any) -> None:
        """Put a value, replacing the one that was there."""
        self._put(key, value, is_new=False)

    async def set(self, key: str, value: Any) -> None:
        """Put a value, replacing the one that was there."""
        self._put(key, value, is_new=False)

    async def set_if_not_exists(self, key: str, value: Any) -> None:
        """Put a value, unless the key has one: of several that do so at once, one does."""
        self._put(key, value, is_new=True)

    async def _set_many(self, values: Iterable[tuple[str, Any]]) -> None:
        """Put several values in one commit."""
        self._check_writable()
        given = [(keys.check(key), _bytes_of(value)) for key, value in values]
        self._is_open = True
        self._slot.do(_put_all, self._place, given)

    def delete_sync(self, key: str) -> None:
        """Delete a key's value, if it has one."""
        self._check_writable()
        self._is_open = True
        self._slot.do(_delete, self._place, key)

    async def delete(self, key: str) -> None:
        """Delete a key's value, if it has one."""
        self.delete_sync(key)

    async def delete_dir(self, prefix: str) -> None:
        """Delete all keys that begin with a prefix and a slash, at once."""
        self._check_writable()
        self._is_open = True
        self._slot.do(_delete_below, self._group, prefix.strip("/"))

    async def clear(self) -> None:
        """Delete all keys, at once. Members of the group that are no blobs stay."""
        await self.delete_dir("")

    # Listing

    async def list(self) -> AsyncIterator[str]:
        """List all keys."""
        async for key in self.list_prefix(""):
            yield key

    async def list_prefix(self, prefix: str) -> AsyncIterator[str]:
        """List the keys that begin with a prefix."""
        for key in self._slot.do(_listed, self._place, prefix):
            yield key

    async def list_dir(self, prefix: str) -> AsyncIterator[str]:
        """List the names that come next in keys which begin with a prefix and a slash."""
        for name in self._slot.do(_named, self._place, prefix):
            yield name

    async def is_empty(self, prefix: str) -> bool:
        """Whether no key begins with a prefix and a slash."""
        return not self._slot.do(_has_below, self._place, prefix)

    # What it is

    def _put(self, key: str, value: Any, *, is_new: bool) -> None:
        self._check_writable()
        keys.check(key)
        self._is_open = True
        self._slot.do(_put, self._place, key, _bytes_of(value), is_new)

    def __eq__(self, other: object) -> bool:
        return isinstance(other, type(self)) and self._group == other._group

    def __hash__(self) -> int:
        return hash(self._group)

    def __reduce__(self) -> tuple[Any, ...]:
        if self._slot.here() is not None:
            raise BusyError(
                f"{self} runs a batch, which no other process can take part in: end it before the "
                "store is pickled, or write with threads"
            )
        return _again, (type(self), self._group, self.read_only)

    def __dask_tokenize__(self) -> object:
        """By what name dask knows it: another one each time, as it may change."""
        return self._group.__dask_tokenize__()

    def __str__(self) -> str:
        return url_of(self._group)

    def __repr__(self) -> str:
        return f"{type(self).__name__}({str(self)!r})"


def url_of(group: Group) -> str:
    """Tell where a group is, also after its pool was closed."""
    at = Path(group._namespace.pool_path)
    try:
        return f"engram://{at / group.path}"
    except (NotFoundError, ArgumentError):
        return f"engram://{at}"


def buffer_of(found: np.ndarray[Any, Any], prototype: Any, byte_range: Any) -> Any:
    """Return bytes, or a part of them, as a buffer of zarr's, which is not copied.

    Raises
    ------
    ValueError
        If `byte_range` is none of zarr's.

    """
    if byte_range is not None:
        found = found[_part(len(found), byte_range)]
    return (prototype or default_buffer_prototype()).buffer.from_array_like(found)


def _part(length: int, byte_range: Any) -> slice:
    if isinstance(byte_range, RangeByteRequest):
        return slice(byte_range.start, byte_range.end)
    if isinstance(byte_range, OffsetByteRequest):
        return slice(byte_range.offset, None)
    if isinstance(byte_range, SuffixByteRequest):
        return slice(max(0, length - byte_range.suffix), None)
    message = f"Unexpected byte_range, got {byte_range}."
    raise ValueError(message)


def _bytes_of(value: Any) -> Any:
    if not isinstance(value, Buffer):
        raise TypeError(f"{value!r} is no value: a store of Zarr's takes a zarr Buffer")
    return value.as_numpy_array() if len(value) else b""


def _again(kind: type[Store], group: Group, read_only: bool) -> Store:
    return kind(group, read_only=read_only)


def _put(place: Place, key: str, data: Any, is_new: bool) -> None:
    """Put a value."""
    path, left = key, _TRIES
    while True:
        try:
            _engram.put_blob(*place, path, data, _KEEPING if is_new else REPLACING)
        except InvalidNameError as error:
            raise InvalidNameError(
                f"{key!r} cannot be a key of a store in a pool: {error}"
            ) from None
        except ExistsError:
            if is_new and keys.find(place, key) is not None:
                return
            left -= 1
            if not left:
                raise
            path = _make_way(place, key)
        else:
            return


def _make_way(place: Place, key: str) -> str:
    """Make a group of each beginning of a key that has a value; return where the key's own goes.

    Raises
    ------
    ExistsError
        If something else than a value or a group is in its way.

    """
    head = ""
    for name in key.split("/")[:-1]:
        head = f"{head}/{name}" if head else name
        found = keys.member(place, head)
        if found is None:
            return key
        if found[0] == keys.BLOB:
            _make_group(place, head)
        elif found[0] != keys.GROUP:
            raise ExistsError(
                f"{key!r} cannot be put: {head!r} is an array of the pool, and nothing can be "
                "below it; make the store over a group of its own"
            )
    found = keys.member(place, key)
    return f"{key}/{VALUE}" if found is not None and found[0] == keys.GROUP else key


def _make_group(place: Place, head: str) -> None:
    """Make a group of a key's value, and put the value into it."""
    above = head.rpartition("/")[0]
    aside = f"{above}/{_ASIDE}" if above else _ASIDE
    try:
        with _engram.Batch(place.namespace):
            _engram.rename(*place, head, aside)
            _engram.create_group(*place, head, None, b"", False)
            _engram.rename(*place, aside, f"{head}/{VALUE}")
    except (BusyError, NotFoundError, ExistsError):  # somebody else was faster
        if _engram.in_batch():  # of which nothing is kept now
            raise


def _put_all(place: Place, given: list[tuple[str, Any]]) -> None:
    with _engram.Batch(place.namespace):
        for key, data in given:
            _put(place, key, data, False)


def _delete(place: Place, key: str) -> None:
    found = keys.member(place, key) if keys.find(place, key) is not None else None
    if found is None:
        return
    path = f"{key}/{VALUE}" if found[0] == keys.GROUP else key
    try:
        _engram.delete(*place, path)
    except NotFoundError:  # somebody else was faster
        keys.check_there(place)


def _delete_below(group: Group, prefix: str) -> None:
    """Delete the keys below a prefix."""
    place = Place(group._namespace, group._id)
    keys.check_there(place)
    inner = keys.group(place, prefix)
    if inner is None:
        return
    found = list(keys.walk(inner))
    if any(where is None for _, where in found):  # arrays, or the value of the prefix as a key
        _delete_each(inner, [key for key, where in found if where is not None])
    elif prefix:
        try:
            _engram.delete(*place, prefix)
        except NotFoundError:  # somebody else was faster
            keys.check_there(place)
    else:
        delete_all(group)


def _delete_each(place: Place, found: list[str]) -> None:
    try:
        with _engram.Batch(place.namespace):
            for key in found:
                _delete(place, key)
    except PoolFullError:  # one by one needs little room, and makes some
        for key in found:
            _delete(place, key)


def _listed(place: Place, prefix: str) -> list[str]:
    keys.check_there(place)
    return [key for key, _ in keys.below(place, prefix)]


def _named(place: Place, prefix: str) -> list[str]:
    keys.check_there(place)
    return list(keys.names(place, prefix))


def _has_below(place: Place, prefix: str) -> bool:
    keys.check_there(place)
    inner = keys.group(place, prefix)
    return inner is not None and any(where is not None for _, where in keys.walk(inner))


def _nbytes(place: Place, prefix: str) -> int:
    keys.check_there(place)
    inner = keys.group(place, prefix)
    total = 0 if inner is None else sum(w.nbytes for _, w in keys.walk(inner) if w is not None)
    found = keys.find(place, prefix) if prefix and inner is None else None
    return total + (0 if found is None else found.nbytes)
