"""A pool's arrays as Zarr arrays: a store of Zarr's that is made up, for reading alone.

Nothing is written anywhere. A document is made when it is asked for, from what is in the pool then,
and a chunk is the array's memory (`shown.py`). From the moment in which a view has told of an array
it knows that object: chunks are never those of another one that has taken its name, whose dtype or
shape may differ.

What Zarr has no like of is left out, and named.
"""

from __future__ import annotations

import contextlib
import itertools
import warnings
from typing import TYPE_CHECKING, Any, Self

import numpy as np
from zarr.abc.store import Store as ZarrStore

from engram import size
from engram.array import Array
from engram.blob import Blob
from engram.errors import (
    ArgumentError,
    EngramWarning,
    FormatError,
    InvalidNameError,
    NotFoundError,
)
from engram.group import Group
from engram.zarr import runs
from engram.zarr.keys import Place, check_there
from engram.zarr.shown import DOCUMENT, Shown, of_array, of_group, refusal
from engram.zarr.store import buffer_of, url_of

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Iterable, Iterator
    from typing import SupportsIndex
_CHUNKS = "c"
_TRIES = 1000
"""So often is a name looked up that is replaced each time before it has been told of."""

_Place = tuple[int, ...]


class View(ZarrStore):  # type: ignore[misc] # mypy does not read zarr
    """A read-only store of Zarr's that shows the arrays of a group, and of the groups below it.

    `view(group)` makes one. It pickles as where the group is.

    Parameters
    ----------
    group
        The group.
    chunk_bytes
        Bytes of a virtual chunk, more or less; None for one chunk an array.

    Raises
    ------
    ArgumentError
        If `group` is none, or `chunk_bytes` no size.

    """

    supports_writes = False
    supports_deletes = False
    supports_listing = True
    supports_consolidated_metadata = False  # all of it is in one catalog already

    def __init__(self, group: Group, *, chunk_bytes: int | None = runs.CHUNK_BYTES) -> None:
        if not isinstance(group, Group):
            raise ArgumentError(f"{group!r} is no group: give a group of a pool, or a pool")
        super().__init__(read_only=True)
        self._group = group
        self._chunk_bytes = chunk_bytes
        self._known: dict[str, Shown] = {}
        self._warned: set[str] = set()

    @property
    def group(self) -> Group:
        """The group that is shown."""
        return self._group

    @property
    def left_out(self) -> dict[str, str]:
        """What is not shown, and why: members by their paths, attributes as `path@attribute`."""
        found: dict[str, str] = {}
        for path, member in self._walk(found):
            try:
                lacking = self._told(path, member)[1]
            except FormatError as error:
                found[path] = str(error)
            else:
                found |= {f"{path}@{name}": why for name, why in lacking.items()}
        return dict(sorted(found.items()))

    def with_read_only(self, read_only: bool = False) -> Self:
        """Give the same view.

        Raises
        ------
        ArgumentError
            If it is to be written: a view is for reading.

        """
        if not read_only:
            raise ArgumentError(
                "a view of a pool's arrays is for reading: write to the arrays themselves, or "
                "make a store, engram.zarr.Store(group)"
            )
        return self

    # Reading

    def get_sync(self, key: str, *, prototype: Any = None, byte_range: Any = None) -> Any:
        """Give a document, or a chunk on the pool's own memory, or a part of it."""
        path, place = parsed(key)
        if place is None:
            document = self._document(path)
            if document is None:
                return None
            found = np.frombuffer(document, np.uint8)
        else:
            chunk = self._chunk(path, place)
            if chunk is None:
                return None
            found = chunk
        return buffer_of(found, prototype, byte_range)

    async def get(self, key: str, prototype: Any = None, byte_range: Any = None) -> Any:
        """Give a document or a chunk, or a part of it; None if there is none."""
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
        """Whether there is such a document or chunk."""
        path, place = parsed(key)
        if place is None:
            return self._document(path) is not None
        shown = self._shown(path)
        return shown is not None and shown.has(place)

    async def getsize(self, key: str) -> int:
        """Tell how many bytes a document or a chunk has."""
        path, place = parsed(key)
        shown = None if place is None else self._shown(path)
        if shown is not None and place is not None and shown.has(place) and not shown.is_encoded:
            return shown.nbytes
        found = self.get_sync(key)
        if found is None:
            raise FileNotFoundError(key)
        return len(found)

    # Writing

    async def set(self, key: str, value: Any) -> None:
        """Refuse, as a store that is opened for reading does."""
        del key, value
        self._check_writable()

    async def delete(self, key: str) -> None:
        """Refuse, as `set` does."""
        del key
        self._check_writable()

    async def delete_dir(self, prefix: str) -> None:
        """Refuse, as `set` does."""
        del prefix
        self._check_writable()

    async def clear(self) -> None:
        """Refuse, as `set` does."""
        self._check_writable()

    # Listing

    async def list(self) -> AsyncIterator[str]:
        """List all documents and chunks."""
        async for key in self.list_prefix(""):
            yield key

    async def list_prefix(self, prefix: str) -> AsyncIterator[str]:
        """List the documents and chunks whose keys begin with a prefix."""
        for path, member in self._shown_members():
            start = f"{path}/" if path else ""
            if not start.startswith(prefix) and not prefix.startswith(start):
                continue
            for key in self._keys_of(path, member):
                if key.startswith(prefix):
                    yield key

    async def list_dir(self, prefix: str) -> AsyncIterator[str]:
        """List the names that come next in keys which begin with a prefix and a slash."""
        for name in self._names(prefix.strip("/")):
            yield name

    # What is shown

    def _document(self, path: str) -> bytes | None:
        """Return the document of a node; None if there is none."""
        for left in reversed(range(_TRIES)):
            member = self._member(path)
            if member is None:
                return None
            why = refusal(path.rpartition("/")[2], member) if path else None
            if why is not None:
                raise FormatError(f"{path!r} is not shown: {why}")
            try:
                document, left_out = self._told(path, member)
            except NotFoundError:  # replaced since it was found
                if not left or member is self._group:
                    raise
                continue
            except FormatError as error:
                raise FormatError(
                    f"{path!r} is not shown: {error}. Read it from the pool itself"
                ) from None
            for name, why in left_out.items():
                self._warn(f"{path}@{name}", why)
            return document
        return None

    def _told(self, path: str, member: Any) -> tuple[bytes, dict[str, str]]:
        """Make a member's document, and know the array from now on."""
        if isinstance(member, Group):
            return of_group(member)
        shown, document, left_out = of_array(member, path, self._chunk_bytes)
        self._known[path] = shown
        return document, left_out

    def _shown(self, path: str) -> Shown | None:
        """Return how an array is shown; None if there is none at a path."""
        if path not in self._known and isinstance(self._member(path), Array | Blob):
            self._document(path)
        return self._known.get(path)

    def _chunk(self, path: str, place: _Place) -> np.ndarray[Any, Any] | None:
        shown = self._shown(path)
        if shown is None or not shown.has(place):
            return None
        try:
            return shown.load(self._group._namespace, place)
        except NotFoundError:
            raise NotFoundError(
                f"{path!r} was deleted or replaced since it was opened as a Zarr array: open it "
                "again"
            ) from None
        except ArgumentError as error:
            if not shown.is_chunked or not self._group:
                raise
            raise NotFoundError(
                f"{path!r} has got another shape since it was opened as a Zarr array ({error}): "
                "open it again"
            ) from None

    def _member(self, path: str) -> Any:
        if not path:
            return self._group
        found = None
        if path[0] != "/":  # which would begin at the namespace's root
            with contextlib.suppress(InvalidNameError):  # so nothing is called that
                found = self._group.get(path)
        if found is None:
            check_there(Place(self._group._namespace, self._group._id))
        return found

    def _walk(self, left_out: dict[str, str]) -> Iterator[tuple[str, Any]]:
        """Yield all that is below the group, and the group itself; note what has no node's name."""
        waiting: list[tuple[str, Any]] = [("", self._group)]
        while waiting:
            path, member = waiting.pop()
            yield path, member
            if not isinstance(member, Group):
                continue
            inner = member._members() if member is self._group else member._members_if_there()
            for name, each in inner:
                at = f"{path}/{name}" if path else name
                why = refusal(name, each)
                if why is None:
                    waiting.append((at, each))
                else:
                    left_out[at] = why

    def _shown_members(self) -> Iterator[tuple[str, Any]]:
        left_out: dict[str, str] = {}
        for path, member in self._walk(left_out):
            if self._is_shown(path, member):
                yield path, member
        for path, why in left_out.items():
            self._warn(path, why)

    def _is_shown(self, path: str, member: Any) -> bool:
        """Whether Zarr has a like of a member; if not, it is told once."""
        if isinstance(member, Group):
            return True
        try:
            self._known.setdefault(path, of_array(member, path, self._chunk_bytes)[0])
        except NotFoundError:  # deleted meanwhile
            return False
        except FormatError as error:
            self._warn(path, str(error))
            return False
        return True

    def _keys_of(self, path: str, member: Any) -> Iterator[str]:
        start = f"{path}/" if path else ""
        yield start + DOCUMENT
        if not isinstance(member, Group):
            for place in itertools.product(*map(range, self._known[path].grid)):
                yield start + "/".join((_CHUNKS, *map(str, place)))

    def _names(self, prefix: str) -> Iterator[str]:
        member = self._member(prefix)
        if isinstance(member, Group):
            yield DOCUMENT
            for name, each in member._members():
                at = f"{prefix}/{name}" if prefix else name
                why = refusal(name, each)
                if why is not None:
                    self._warn(at, why)
                elif self._is_shown(at, each):
                    yield name
        elif member is not None and self._is_shown(prefix, member):
            yield DOCUMENT
            if 0 not in self._known[prefix].grid:
                yield _CHUNKS
        elif member is None:
            yield from self._indices(prefix)

    def _indices(self, prefix: str) -> Iterator[str]:
        """Yield the names that come next in the keys of chunks."""
        path, place = parsed(prefix)
        shown = None if place is None else self._shown(path)
        if shown is None or place is None or len(place) >= len(shown.grid) or 0 in shown.grid:
            return
        if all(0 <= at < n for at, n in zip(place, shown.grid, strict=False)):
            yield from map(str, range(shown.grid[len(place)]))

    def _warn(self, what: str, why: str) -> None:
        if what not in self._warned:
            self._warned.add(what)
            message = f"{what!r} is left out of the view of {self}: {why}"
            warnings.warn(message, EngramWarning, stacklevel=2)

    # What it is

    def __eq__(self, other: object) -> bool:
        if not isinstance(other, type(self)):
            return False
        return self._group == other._group and self._chunk_bytes == other._chunk_bytes

    def __hash__(self) -> int:
        return hash(self._group)

    def __reduce__(self) -> tuple[Any, ...]:
        return _again, (type(self), self._group, self._chunk_bytes, dict(self._known))

    def __dask_tokenize__(self) -> object:
        """By what name dask knows it: another one each time, as it may change."""
        return self._group.__dask_tokenize__()

    def __str__(self) -> str:
        return url_of(self._group)

    def __repr__(self) -> str:
        return f"View({str(self)!r})"


def view(group: Group, *, chunk_bytes: str | SupportsIndex | None = runs.CHUNK_BYTES) -> View:
    """Show the arrays of a group, and of the groups below it, as Zarr arrays: a read-only store.

    ::

        root = zarr.open_group(engram.zarr.view(pool), mode="r")
        ds = xarray.open_zarr(engram.zarr.view(pool["co2"]))

    What is shown of an array in one piece is its memory, and not copied before zarr copies it.
    What Zarr has no like of is left out, with an `EngramWarning`; `View.left_out` names all of it.

    Parameters
    ----------
    group
        A group, or a pool; of a snapshot, to see one moment.
    chunk_bytes
        About how large the virtual chunks of an array in one piece are to be, such as "16 MiB":
        each is a run of its memory, so not any size can be. None for one chunk an array.

    Raises
    ------
    ArgumentError
        If `group` is none, or `chunk_bytes` no size.

    """
    limit = None if chunk_bytes is None else size.parse(chunk_bytes)
    return View(group, chunk_bytes=limit)


def parsed(key: str) -> tuple[str, _Place | None]:
    """Return the node of a key, and the place of a chunk; None for a document."""
    names = key.split("/")
    if names[-1] == DOCUMENT:
        return "/".join(names[:-1]), None
    last = len(names)
    while last and names[last - 1].isdecimal():
        last -= 1
    if not last or names[last - 1] != _CHUNKS:
        return f"{key}/", None  # no node's path
    return "/".join(names[: last - 1]), tuple(map(int, names[last:]))


def _again(kind: type[View], group: Group, limit: int | None, known: dict[str, Shown]) -> View:
    made = kind(group, chunk_bytes=limit)
    made._known.update(known)
    return made
