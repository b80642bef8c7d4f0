"""What the close of a file does to the pool: a new blob is put, in one commit.

An append, and a change of a part, put a new blob as well: what was there, and what is new. They
rely on what was there being there still. An append that finds something else adds to that; so those
of many processes lose nothing. A change of a part is refused then. The check is a change of the
object itself in the batch that puts the new one: if the object is gone by then, or has changed, the
batch is not applied.
"""

from __future__ import annotations

import time
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Literal

import numpy as np

from engram import _engram
from engram.batch import Batch
from engram.errors import BusyError, ExistsError, NotFoundError
from engram.fsspec.entry import BLOB, GROUP, bytes_at
from engram.fsspec.errors import (
    FileBusyError,
    FileReplacedError,
    FileTakenError,
    IsArrayError,
    IsGroupError,
    NoGroupError,
    NotEmptyError,
    Told,
)
from engram.member import new_member

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from engram.fsspec.place import Place

    How = Literal["replace", "create", "append", "change"]

PATIENCE = 1000
"""How often what others were faster with is tried again, every millisecond."""

_WAIT = 0.001


@dataclass
class Change:
    """What a file's close does to the pool.

    Attributes
    ----------
    find
        Gives the place, in the pool as it is open then.
    how
        What becomes of what is there.
    data
        The bytes that are put, or added.
    base
        The object that a change of a part began with.
    attrs
        Attributes of the new blob; those that it has, for an append or a change.

    """

    find: Callable[[], Place]
    how: How
    data: bytes = b""
    base: int = 0
    attrs: Mapping[str, Any] | None = None

    def run(self) -> None:
        """Do it, again while others are faster."""
        again(self.apply)

    def apply(self) -> None:
        """Do it once, or as part of the batch that this thread runs."""
        place = self.find()
        with Told(place.path):
            if self.how == "append":
                self._append(place)
            elif self.how == "change":
                self._change(place)
            else:
                self._put(place, self.data, self.attrs, is_new=self.how == "create")

    def _append(self, place: Place) -> None:
        found = place.find()
        if found is None:
            try:
                self._put(place, self.data, self.attrs, is_new=True)
            except FileTakenError as error:
                raise FileBusyError(f"{place.path} was made by another meanwhile") from error
        elif self.data:
            before, now = bytes_at(place)
            data = np.empty(len(before) + len(self.data), np.uint8)
            data[: len(before)] = before
            data[len(before) :] = np.frombuffer(self.data, np.uint8)
            try:
                self._replace_same(place, now[1], data)
            except NotFoundError as error:
                raise FileBusyError(f"{place.path} was replaced while it grew") from error

    def _change(self, place: Place) -> None:
        try:
            self._replace_same(place, self.base, self.data)
        except NotFoundError as error:
            raise FileReplacedError(
                f"{place.path} was replaced or removed since it was opened, and what was written "
                "to it is not there: open it again"
            ) from error

    def _replace_same(self, place: Place, oid: int, data: Any) -> None:
        """Replace this very object: nothing is done if another one is there by then."""
        namespace = place.namespace
        kept = dict(_engram.attr_items(namespace, False, oid)) | dict(self.attrs or {})
        with Batch(namespace):
            _engram.attr_set(namespace, False, oid, {})  # the batch relies on it from here on
            found = place.find()
            if found is None or found[1] != oid:
                raise NotFoundError(f"{place.path} is another file now")
            self._put(place, data, kept, is_new=False)

    def _put(
        self, place: Place, data: Any, attrs: Mapping[str, Any] | None, *, is_new: bool
    ) -> None:
        check_writable(place)
        new = new_member(attrs=attrs, overwrite=not is_new)
        try:
            _engram.put_blob(place.namespace, place.namespace.root, place.inner, data, new)
        except ExistsError as error:
            check_writable(place)
            raise FileTakenError(f"{place.path} exists: mode 'wb' replaces it") from error


def again(act: Callable[[], None]) -> None:
    """Act again while others are faster; a thread's own batch ends it, which is for all of it."""
    for _ in range(PATIENCE):
        try:
            return act()
        except BusyError as error:
            if _engram.in_batch() or isinstance(error, FileReplacedError | NotEmptyError):
                raise
            time.sleep(_WAIT)
    return act()


def check_writable(place: Place) -> None:
    """Refuse what no file can be written over or below.

    Raises
    ------
    IsGroupError
        If a group is there.
    IsArrayError
        If an array is there.
    NoGroupError
        If the way leads through an object.

    """
    found = place.find()
    if found is None:
        check_way(place)
    elif found[0] == GROUP:
        raise IsGroupError(f"{place.path} is a group, and no file: write to a name in it")
    elif found[0] != BLOB:
        raise IsArrayError(
            f"{place.path} is an array, which is not written as a file: write to it as "
            "pool[name][...] = values, or remove it first"
        )


def check_way(place: Place) -> None:
    """Refuse a way that leads through an object."""
    way = place.inner.split("/")
    for length in range(1, len(way)):
        inner = "/".join(way[:length])
        found = _engram.find(place.namespace, place.namespace.root, inner)
        if found is None:
            return
        if found[0] != GROUP:
            above = place.path[: len(place.path) - len(place.inner)] + inner
            raise NoGroupError(f"{above} is no group: {place.path} cannot be in it")
