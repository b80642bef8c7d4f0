"""Namespaces: parts of a pool with an owner, a group, a mode and a size of their own."""

from collections.abc import Iterator, Mapping
from typing import TYPE_CHECKING, Any, SupportsIndex

from numpy.typing import DTypeLike, NDArray

from engram import _engram, later, size, tokens
from engram.arguments import whole_number
from engram.batch import Batch
from engram.errors import EngramError
from engram.group import Group

if TYPE_CHECKING:
    from collections.abc import Sequence
    from os import PathLike

    from engram._engram import NamespaceInfo, Space
    from engram.housekeeping import Stats
    from engram.snapshot import Snapshot


class Namespace(Group):
    """A namespace: its root group, with its space and its batches."""

    __slots__ = ()

    def __init__(self, namespace: _engram.Namespace) -> None:
        super().__init__(namespace, namespace.root)

    @property
    def name(self) -> str:
        """The namespace's name."""
        return self._namespace.name

    @property
    def size(self) -> int:
        """The bound on the bytes of its arrays and blobs (small ones in the catalog apart)."""
        return self._namespace.space().size

    @property
    def used(self) -> int:
        """Bytes of memory that its arrays and blobs have."""
        return self._namespace.space().used

    @property
    def space(self) -> "Space":
        """Its space in bytes: size, arena, used, free, pending, vacant, catalog; also pids."""
        return self._namespace.space()

    def stats(self) -> "Stats":
        """Tell who holds what: processes with their views and reservations, readers, the catalog.

        ::

            for lease in pool.stats()["leases"]:
                print(lease["pid"], lease["views"], lease["reserved"], lease["held"])
        """
        return _engram.holders(self._namespace)

    def __repr__(self) -> str:
        if not self:
            return f"<engram.Namespace {self.namespace!r} (closed)>"
        try:
            count = len(self)
        except EngramError:
            return f"<engram.Namespace {self.namespace!r} (gone)>"
        return f"<engram.Namespace {self.namespace!r} ({count} member{'' if count == 1 else 's'})>"

    def resize(self, size_: str | SupportsIndex, /) -> None:
        """Set the bound on the bytes of its arrays and blobs, such as "8 GiB".

        It bounds what is shared, what this user has in private, and what is published, each by
        itself. What is private has at least the space that it has taken already.

        Raises
        ------
        ArgumentError
            If it is no size, or less than what is allocated.

        """
        self._namespace.resize(size.parse(size_))

    def chmod(self, mode: int, /) -> None:
        """Set the POSIX mode: who may enter, and read what is published, from now on.

        The owner may, and root. `namespaces.info(name).mode` tells it. Whether the group writes
        changes only while nobody has the namespace open: `engram.chmod` does that.

        Raises
        ------
        AccessError
            If the namespace is another user's.
        ArgumentError
            If no namespace can have the mode.
        BusyError
            If whether the group writes is to change.
        ReadOnlyError
            If the pool was opened with mode "r".

        """
        self._namespace.set_mode(whole_number("mode", mode))

    def batch(self) -> Batch:
        """Begin a with-block of operations that happen all at once, or not at all."""
        return Batch(self._namespace)

    def snapshot(self, *, max_growth: "str | SupportsIndex | None" = None) -> "Snapshot":
        """Give the namespace as it is now, to be looked at for longer: a with-block.

        ::

            with pool.snapshot() as then:
                total = sum(then[name][...].sum() for name in then)

        All that is found through it is of one commit. `max_growth` bounds, in bytes, how much of
        the catalog it may keep from reuse while others write, before it is given up (default:
        256 MiB, or four times the catalog).

        Raises
        ------
        BusyError
            Inside a batch.

        """
        from engram.snapshot import Snapshot  # noqa: PLC0415 - it is a namespace itself

        bound = None if max_growth is None else size.parse(max_growth)
        return Snapshot(self._namespace.snapshot(bound, tokens.new()))

    def drain_index(self, most: int | None = None) -> int:
        """Index what waits in the queue of async indexing, at most so many; give how many it were.

        With the queue empty, segments and runs that wait to be united, split or merged are, so that
        queries after a large load are as fast as they get. A thread of each process that has the
        pool open for writing does so anyway, a little later.

        Raises
        ------
        BusyError
            Inside a batch.
        ReadOnlyError
            If the pool was opened with mode "r".

        """
        bound = 2**63 - 1 if most is None else whole_number("most", most)
        done = _engram.drain_queue(self._namespace, bound)
        if done < bound:
            _engram.maintain(self._namespace)
        return done

    def scratch(
        self,
        shape: "int | Sequence[int]",
        dtype: DTypeLike | None = None,
        *,
        device: "int | str | PathLike[str] | None" = None,
    ) -> NDArray[Any]:
        """Give an unnamed array on the pool's memory, which holds anything at first.

        Its space returns when the last array on it is gone, or with the process.

        Raises
        ------
        PoolFullError
            If there is no room.

        """
        return _engram.scratch(self._namespace, shape, dtype, device)


class Namespaces(Mapping[str, Namespace]):
    """A pool's namespaces by name."""

    __slots__ = ("_pool",)

    def __init__(self, pool: _engram.Pool) -> None:
        self._pool = pool

    def __getitem__(self, name: str) -> Namespace:
        return Namespace(self._pool.namespace(name))

    def __iter__(self) -> Iterator[str]:
        return iter(sorted(info.name for info in self._pool.namespaces()))

    def __len__(self) -> int:
        return len(self._pool.namespaces())

    def info(self, name: str) -> "NamespaceInfo":
        """Tell who owns a namespace: name, owner (uid), group (gid), mode."""
        for info in self._pool.namespaces():
            if info.name == name:
                return info
        self._pool.namespace(name)  # raises, and tells why
        raise KeyError(name)

    def _ipython_key_completions_(self) -> list[str]:
        """Give the names, for the tab key behind `pool.namespaces["`."""
        return list(self)

    def _repr_html_(self) -> str:
        return later.card(self)

    def __repr__(self) -> str:
        try:
            return f"<engram.Namespaces {', '.join(map(repr, self))}>"
        except EngramError:
            state = "unreadable" if self._pool.is_open else "closed"
            return f"<engram.Namespaces of {str(self._pool.path)!r} ({state})>"
