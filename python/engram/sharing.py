"""Sharing: who sees an object or a group, and moving it from one scope to another.

A scope is a realm of the namespace, and the kernel keeps out whom it does not concern. What moves
stays itself: the same object, with the same attributes, under the same path.
"""

from typing import Literal, NamedTuple, TypeAlias

import numpy as np
from numpy.typing import NDArray

from engram import _engram

Way: TypeAlias = Literal["share", "unshare", "unpublish"]
"""The ways in which members move between scopes; to publish is one more, with a rule of its own."""

_WAYS: dict[str, tuple[list[str], str]] = {
    "share": (["private"], "shared"),
    "unshare": (["shared"], "private"),
    "unpublish": (["published"], "shared"),
}


class Moved(NamedTuple):
    """What has moved; nothing of it, if all was there already."""

    objects: int
    """How many objects."""
    groups: int
    """How many groups."""
    nbytes: int
    """How many bytes the objects' values have."""


def move(namespace: _engram.Namespace, group: int, path: str, way: Way) -> Moved:
    """Move a member of a group, a group with all that is below it, to another scope."""
    sources, target = _WAYS[way]
    return Moved(*_engram.transfer(namespace, group, path, sources, target))


def move_all(namespace: _engram.Namespace, oids: NDArray[np.uint64], way: Way) -> Moved:
    """Move objects to another scope: those that are where this way begins."""
    sources, target = _WAYS[way]
    return Moved(*_engram.transfer_all(namespace, oids, sources, target))


class Sharing:
    """What a group does with its members' scopes.

    Each method moves one member, a group with all that is below it, all or nothing, and returns
    what has moved. While it moves it can be read, and is not changed. Views that were taken before
    stay valid, and show what was then.

    Raises
    ------
    NotFoundError
        If there is no such member.
    ExistsError
        If somebody has another member of the name where it is to be.
    PoolFullError
        If there is no room for its values there.
    AccessError
        If you may not write there. To publish, you must be allowed to write what is shared.
    BusyError
        If it is on its way already, or a batch runs; or if somebody has it locked, or anything
        that would move with it: the message names who has.
    ArgumentError
        If it is of a scope from which this does not lead.
    ClosedNamespaceError
        If it is to be published where nobody but the owner may enter.

    """

    __slots__ = ()

    _namespace: _engram.Namespace
    _id: int

    def share(self, name: str) -> Moved:
        """Let the namespace's owner and group see what is private; they may change it, too."""
        return move(self._namespace, self._id, name, "share")

    def unshare(self, name: str) -> Moved:
        """Keep what is shared to yourself: it becomes private."""
        return move(self._namespace, self._id, name, "unshare")

    def publish(self, name: str, *, closed: bool = False) -> Moved:
        """Let all read it whom the namespace's mode admits; nobody changes it any more.

        Where that is nobody but the owner it is refused, unless `closed` is true: open the
        namespace (`engram.chmod`), or publish in one that is open.
        """
        return Moved(*_engram.publish(self._namespace, self._id, name, closed))

    def unpublish(self, name: str) -> Moved:
        """Withdraw what is published: it is shared again, and may be changed."""
        return move(self._namespace, self._id, name, "unpublish")
