"""The tree of names: members are moved, and groups without members removed, each in one commit."""

from __future__ import annotations

import contextlib
import threading
from typing import TYPE_CHECKING

from engram import _engram
from engram.batch import Batch
from engram.errors import ExistsError, NotFoundError
from engram.fsspec.change import check_way
from engram.fsspec.entry import BLOB, GROUP, missing
from engram.fsspec.errors import (
    FileBusyError,
    FileTakenError,
    NoGroupError,
    NotEmptyError,
    Told,
)

if TYPE_CHECKING:
    from engram.fsspec.place import Place


def at(place: Place) -> tuple[_engram.Namespace, int]:
    """Give what natives take before a path."""
    return place.namespace, place.namespace.root


def taken(old: str, new: str) -> FileTakenError:
    """Return what to say of a member that is in a move's way."""
    return FileTakenError(
        f"{new} exists, and {old} cannot take its place, as a file alone replaces a file: remove "
        "it first"
    )


def move_all(steps: list[tuple[Place, Place]]) -> None:
    """Move members: all of them, or none."""
    if len(steps) == 1 and steps[0][1].find() is None:
        _move(*steps[0])
        return
    with Told(steps[0][0].path), Batch(steps[0][0].namespace):
        for old, new in steps:
            _move(old, new)


def _move(old: Place, new: Place) -> None:
    with Told(old.path):
        found, there = old.find(), new.find()
        if found is None:
            raise missing(old)
        if old.inner == new.inner:
            return
        if there is None:
            check_way(new)
        elif found[0] != BLOB or there[0] != BLOB:
            raise taken(old.path, new.path)
        else:
            with contextlib.suppress(NotFoundError):  # another process has just removed it
                _engram.delete(*at(new), new.inner)
        try:
            _engram.rename(*at(old), old.inner, new.inner)
        except ExistsError as error:  # another process has just made it: look again
            raise FileBusyError(f"{new.path} was made while {old.path} was moved to it") from error


def remove_empty(place: Place) -> None:
    """Remove a group, if it has no members when it goes.

    The batch lists them when it is told to delete the group, and is not applied if others come
    later. Those that came before that, another thread tells, which does not see the batch.
    """
    with Told(place.path), Batch(place.namespace):
        found = place.find()
        if found is None:
            raise missing(place)
        if found[0] != GROUP:
            raise NoGroupError(f"{place.path} is no group: remove it with rm")
        members = _engram.count(place.namespace, found[1])
        if not members:
            _engram.delete(*at(place), place.inner)
            members = _members_before(place, found[1])
        if members:
            raise NotEmptyError(
                f"{place.path} has {members} members: remove it with rm(recursive=True)"
            )


def _members_before(place: Place, group: int) -> int:
    """Count the members of a group without what this thread's batch does."""
    seen: list[int] = []

    def look() -> None:
        with contextlib.suppress(LookupError):  # made in a batch of this thread's
            seen.append(_engram.count(place.namespace, group))

    looking = threading.Thread(target=look)
    looking.start()
    looking.join()
    return sum(seen)
