"""Snapshots: a namespace as one commit has left it, for many looks."""

from types import TracebackType
from typing import Any, Self

from engram.errors import ArgumentError, EngramError
from engram.namespace import Namespace


class Snapshot(Namespace):
    """A namespace as one commit has left it: all that is found in it is of that commit.

    A group, and a with-block at whose end it ends, with all handles that came of it; views that
    were taken stay. What others replace or delete meanwhile is there as it was. Nothing can be
    written through it. In-place writes are not kept out: they show.

    Any thread may use it, one at a time; a forked child may not. While it is held, no page of the
    catalog and no space that others free is used again; so it is given up, and looks are
    `BusyError`, once it keeps more of the catalog than `max_growth` bytes. An `EngramWarning` says
    so at half of them.
    """

    __slots__ = ()

    def close(self) -> None:
        """End it. Ending twice is no error."""
        self._namespace.end_snapshot()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.close()

    def __reduce__(self) -> tuple[Any, ...]:
        raise ArgumentError(
            "a snapshot is of this process alone and cannot be pickled: pickle the pool, and take "
            "a snapshot there"
        )

    def __repr__(self) -> str:
        try:
            count = len(self)
        except EngramError:
            return f"<engram.Snapshot of {self.namespace!r} (ended)>"
        return (
            f"<engram.Snapshot of {self.namespace!r} ({count} member{'' if count == 1 else 's'})>"
        )
