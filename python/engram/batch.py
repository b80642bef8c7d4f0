"""Batches: many operations, one commit."""

import contextlib
from types import TracebackType
from typing import TYPE_CHECKING, Self

from engram.errors import EngramError

if TYPE_CHECKING:
    from engram._engram import Realm


class Batch:
    """A with-block whose operations happen all at once when it ends, or not at all if it raises.

    A batch belongs to its thread and to one namespace. Reads inside the block see what it has done
    so far; nobody else does until it ends. A batch within a batch joins it. A conflict with what
    others did meanwhile raises when the block ends, and undoes all of it.

    Raises
    ------
    BusyError
        If the block touches another namespace, or writes in place to what was there before it.
    PoolFullError
        If there is no room for all of it.

    """

    __slots__ = ("_realm",)

    def __init__(self, realm: "Realm") -> None:
        self._realm = realm

    def __enter__(self) -> Self:
        self._realm.begin_batch()
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        if kind is None:
            self._realm.commit_batch()
            return
        with contextlib.suppress(EngramError):  # the block's own error is the one to tell
            self._realm.abort_batch()
