"""Namespaces: parts of a pool with an owner, a group, a mode and a size of their own."""

import operator
from collections.abc import Iterator, Mapping
from typing import TYPE_CHECKING, Any, SupportsIndex

import numpy as np
from numpy.typing import DTypeLike, NDArray

from engram import _engram, later, size, tokens
from engram.arguments import truth, whole_number
from engram.batch import Batch
from engram.errors import ArgumentError, EngramError, NotFoundError
from engram.group import Group
from engram.handle import make
from engram.query import Asked

if TYPE_CHECKING:
    from collections.abc import Sequence
    from os import PathLike

    from engram._engram import NamespaceInfo, Space
    from engram.array import Array
    from engram.blob import Blob
    from engram.expression import Expression, Field, Measure
    from engram.figures import Figures
    from engram.housekeeping import Stats
    from engram.query import Consistency
    from engram.snapshot import Snapshot
    from engram.united import UnitedResult

_MOST_OID = 2**64 - 1


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

    def by_oid(self, oid: SupportsIndex, /) -> "Array | Blob":
        """Give the object of this OID, wherever it lies in the namespace, as its path would.

        ::

            oid = pool["run-17/T"].oid
            pool.move("run-17", "archive")
            pool.by_oid(oid).path       # "archive/T"

        A pool looks in its default namespace alone: `pool.namespaces["ice"].by_oid(oid)` looks in
        another.

        Raises
        ------
        NotFoundError
            If there is no such object here that this user sees: it was deleted or replaced, it is
            in another namespace, or the number is a group's.
        ArgumentError
            If it is no OID.

        """
        number = _oid(oid)
        (found,) = _engram.handles(self._namespace, np.array([number], np.uint64))
        if found is None:
            raise NotFoundError(
                f"no object of namespace {self.namespace!r} has the OID {number:#x}: it was "
                "deleted or replaced, this user does not see it, or it lies in another namespace: "
                "look there with `pool.namespaces[NAME].by_oid(oid)`, or look it up by its path"
            )
        return make(self._namespace, found)  # type: ignore[no-any-return]  # as `found` says

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


def _oid(value: Any) -> int:
    """Refuse what is no OID."""
    is_truth = isinstance(value, bool | np.bool_)
    try:
        number = None if is_truth else operator.index(value)
    except TypeError:
        number = None
    if number is None or not 0 <= number <= _MOST_OID:
        raise ArgumentError(
            f"{value!r} is no OID: give a whole number of 64 bits, such as an object's `oid`"
        )
    return number


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

    def query(
        self,
        expr: "str | Expression | None" = None,
        *,
        names: "Sequence[str] | None" = None,
        below: str | None = None,
        order_by: "str | Field | Sequence[str | Field] | None" = None,
        limit: int | None = None,
        offset: int | None = None,
        params: Mapping[str, Any] | None = None,
        consistency: "Consistency" = "strong",
        threads: int | None = None,
        strict: bool = False,
    ) -> "UnitedResult":
        """Find the objects of several namespaces that a condition is true of.

        ::

            for array in pool.namespaces.query("temperature < -15", names=["ice", "ocean"]):
                print(array.namespace, array.path)

        Each namespace is looked at as of one commit of its own. Order, limit and offset are of all
        that they find together; without an order, objects come namespace by namespace.

        Parameters
        ----------
        expr, order_by, limit, offset, params, consistency, threads, strict
            As for `Group.query`; `strict` refuses an attribute that nothing has in any of them.
        names
            The namespaces, in their order. Without them, all that this user may enter, by name;
            the others are in the result's `left_out`.
        below
            The path of a group: only objects below it, in those namespaces that have it.

        Raises
        ------
        AccessError
            If this user may not enter a namespace that is named.
        NotFoundError
            If there is no namespace of a name; if none has the group.
        QueryError, ArgumentError
            As `Group.query`.

        """
        from engram import united  # noqa: PLC0415 - seldom asked for

        parts, left_out = united.parts_of(self._pool, names, below)
        asked = Asked(order_by, limit, offset, params, consistency, threads)
        return united.ask(parts, left_out, expr, asked._replace(strict=truth("strict", strict)))

    def aggregate(
        self,
        figures: "str | Measure | Sequence[str | Measure]",
        where: "str | Expression | None" = None,
        *,
        names: "Sequence[str] | None" = None,
        below: str | None = None,
        group_by: "str | Field | Sequence[str | Field] | None" = None,
        order_by: "str | Field | Measure | Sequence[str | Field | Measure] | None" = None,
        limit: int | None = None,
        offset: int | None = None,
        params: Mapping[str, Any] | None = None,
        consistency: "Consistency" = "strong",
        threads: int | None = None,
        strict: bool = False,
    ) -> "Figures":
        """Work out figures of the objects of several namespaces, of all of them together.

        ::

            pool.namespaces.aggregate("count(), mean(temperature) group by level")

        Parameters
        ----------
        figures, where, group_by, order_by, limit, offset, params, consistency, threads, strict
            As for `Group.aggregate`.
        names, below
            As for `query`.

        Raises
        ------
        AccessError, NotFoundError
            As `query`.
        QueryError, ArgumentError
            As `Group.aggregate`.

        """
        from engram import united  # noqa: PLC0415 - seldom asked for
        from engram.figures import text_of_figures  # noqa: PLC0415

        parts, _ = united.parts_of(self._pool, names, below)
        asked = Asked(order_by, limit, offset, params, consistency, threads)
        asked = asked._replace(strict=truth("strict", strict))
        return united.work_out(parts, text_of_figures(figures, where, group_by), asked)

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
