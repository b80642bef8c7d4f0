"""Moving an object to another pool or namespace, where two commits have to be as one.

First it is copied (`__arriving__`: no object yet), then a note takes its place, which is the move,
then the copy is an object as any other (`ways.py`). It lets go of what it shares with its versions
in the commit that makes the note, so that a move that fails has changed nothing. A lock on the
object, from beginning to end, keeps out others that move it, or whose methods change it; one on the
copy keeps out those that collect what such moves have left.
"""

import random
import time
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from typing import Any, Final, NamedTuple

from engram import _engram
from engram.active import undoing
from engram.active.errors import ConflictError, gone
from engram.active.places import parcels
from engram.active.places.placing import REPLICA_OF, TIES, Backend
from engram.active.places.ways import LEFT, end_of, full, settle
from engram.active.stored.home import Home
from engram.active.stored.identity import ByIdentity
from engram.active.stored.layout import ALIASES_OF, ARRIVING, CLASS, FROM_AFAR, MOVED, OUTSIDE
from engram.active.stored.meanwhile import again
from engram.active.transaction import local, locked
from engram.errors import BusyError, EngramError, NotFoundError

_TRIES: Final = 100
_PATIENCE: Final = 60.0
_FORMER: Final = "former"
"""In a parcel, the copy that a try before has left."""


def move(obj: Any, target: Backend) -> None:
    """Move an object to another home, or its arrays to another device of the same.

    Raises
    ------
    AliasTakenError, PoolFullError
        If it cannot be there; it stays where it is.
    BusyError
        If others move it, too, again and again.

    """
    for _ in range(_TRIES):
        home, gid = obj._home, obj._gid
        near = home.key == target.home.key
        if not near:
            undoing.refuse_batch(f"moving {obj!r} to another pool or namespace")
        try:
            with locked(obj, _PATIENCE):
                if _is_here(home, gid) and _moved(obj, target):
                    if local.transaction is not None:
                        local.transaction.changes_life(obj)
                    return
        except ConflictError:
            pass
        except NotFoundError:
            if home.is_there(gid):  # something else is missing
                raise
            raise gone(type(obj).__qualname__, gid) from None
        time.sleep(random.random() * 0.001)  # noqa: S311 - so that two do not meet again
        if (obj._home, obj._gid) == (home, gid):
            obj._go_to(*end_of(home, gid))
        if obj._home.is_far:  # another process has moved it to another node meanwhile
            obj.move(target)
            return
    raise BusyError(f"{obj!r} could not be moved: others move it, or collect copies; try it again")


def _moved(obj: Any, target: Backend) -> bool:
    """Move an object that is here; tell whether it went."""
    if obj._home.key != target.home.key:
        return _move_away(obj, target)
    again(lambda: obj._move_arrays(target))
    return True


def _move_away(obj: Any, target: Backend) -> bool:
    """Move an object that is here; tell whether it went."""
    here = Here(obj, obj._home, obj._gid)
    if target.home.is_far:
        return _move_far(here, target.home)
    there = again(lambda: _copy(here, target))
    if not _hand_over(here, target.home, there):
        return False
    here.home.live.pop(here.gid, None)
    obj._become(target.home, there)
    return True


def _move_far(here: "Here", there: Any) -> bool:
    """Move an object to another node.

    The copy that arrives there is kept for its source, so nobody collects it as long as the object
    is here. It becomes the object with the commit that leaves a note here, and no sooner.
    """
    obj, home, gid = here
    here.check()
    modified = home.modified(gid)
    notes = {name: obj._tie_for(there, name) for name in TIES}
    parcel = parcels.of_stored([obj], lambda _: notes)
    left, aliases = obj._noted(LEFT) or [], obj._noted(ALIASES_OF) or []
    notes[LEFT] = left
    (only,) = parcel.objects
    # A copy of a try before this one is taken again.
    former = getattr(obj, "_copied", None)
    notes[_FORMER] = former[1] if former is not None and former[0] == there.key else None
    parcel = parcel._replace(objects=[only._replace(notes=notes, aliases=tuple(aliases))])
    number = there.arrive(parcel)
    obj._copied = (there.key, number)

    def leave() -> None:
        with home.batch():
            home.hold(gid)
            here.check()
            with ThreadPoolExecutor(1) as other:  # this thread's batch has changed it itself
                if other.submit(home.modified, gid).result() != modified:
                    raise ConflictError(f"{obj!r} was changed meanwhile")
            obj._before_deletion()
            home.forward(gid, full(there, number))

    again(leave)
    home.live.pop(gid, None)
    obj._copied = None
    obj._become(there, number)
    with suppress(EngramError):  # whoever finds it there looks here, and sees that it has moved
        there.settle(number)
    return True


def arrive(home: Home, parcel: Any) -> int:
    """Make the copy of an object that another node is about to move here; give its id."""
    (only,) = parcel.objects
    left = only.notes.get(LEFT) or []
    kept = parcels.install(home, parcel)
    with home.batch():
        there = _note_here(home, left, only)
        if there is None:
            there = home.create({CLASS: kept[only.cls]}, None)
        else:
            home.hold(there)
            home.forward(there, only.source)
            home.note(there, MOVED, None)
            home.note(there, CLASS, kept[only.cls])
        home.note(there, ARRIVING, only.source)
        home.note(there, OUTSIDE, FROM_AFAR)
        parcels.unpack(home, parcel, [there])
        others = [each for each in left if (each[0], each[2]) != home.key]
        home.note(there, LEFT, [*others, only.source])
        for name in TIES:
            home.note(there, name, only.notes.get(name))
        have = home.notes(there, ALIASES_OF) or []
        for alias in only.aliases:
            if alias not in have:
                _give_way(home, alias, only.source)
                home.add_alias(there, alias)
    return there


def _note_here(home: Home, left: list[Any], only: Any) -> int | None:
    """Give the note that the object has left here, or the copy of a move that was not ended."""
    for each in left:
        if (each[0], each[2]) == home.key and home.is_there(each[3]):
            return int(each[3])
    former = only.notes.get(_FORMER)
    if former is not None:
        with suppress(NotFoundError):
            if home.notes(former, ARRIVING) == only.source:
                return int(former)
    for alias in only.aliases:
        with suppress(EngramError):
            gid = home.by_alias(alias)
            if home.notes(gid, ARRIVING) == only.source:
                return gid
    return None


def _give_way(home: Home, alias: str, source: Any) -> None:
    """Take an alias from a replica of the object that comes; in a batch."""
    with suppress(NotFoundError):
        gid = home.by_alias(alias)
        if home.notes(gid, REPLICA_OF) == source:
            home.delete_alias(alias)


def _is_here(home: Home, gid: int) -> bool:
    """Tell whether the object itself is here, not a note of it nor a copy that is to arrive."""
    if home.notes(gid, CLASS) == "":
        return False
    return home.notes(gid, ARRIVING) is None or settle(home, gid)


class Here(NamedTuple):
    """An object, and where it is moved from."""

    obj: Any
    home: Home
    gid: int

    def check(self) -> None:
        """Refuse if it is there no more: what was read may be of a note, or of what it is now."""
        is_same = (self.obj._home, self.obj._gid) == (self.home, self.gid)
        if not is_same or not _is_here(self.home, self.gid):
            raise ConflictError(f"{self.obj!r} was moved by another process meanwhile")


def _copy(here: Here, target: Backend) -> int:
    """Copy the object, into the note that it has left there if there is one; give the copy's id."""
    here.check()
    obj, home, source = here.obj, target.home, full(here.home, here.gid)
    left = obj._noted(LEFT) or []
    aliases = obj._noted(ALIASES_OF) or []
    with home.batch():
        there = _own_note(obj, home, left, aliases)
        if there is None:
            there = home.create({CLASS: obj._class_there(home)}, None)
        else:
            home.hold(there)
            home.forward(there, source)
            home.note(there, MOVED, None)
            home.note(there, CLASS, obj._class_there(home))
        home.note(there, ARRIVING, source)
        obj._copy_to(target, ByIdentity.of(obj, there), there)
        others = [each for each in left if (each[0], each[2]) != home.key]
        home.note(there, LEFT, [*others, source])
        for name in TIES:
            home.note(there, name, obj._tie_for(home, name))
        have = home.notes(there, ALIASES_OF) or []
        for alias in aliases:
            if alias not in have:
                _leave_no_alias(obj, home, alias)
                home.add_alias(there, alias)
        here.check()
    return there


def _own_note(obj: Any, home: Home, left: list[Any], aliases: list[str]) -> int | None:
    """Give the note, or the copy of a move that was not ended, that leads to the object."""
    found: list[int] = [each[3] for each in left if (each[0], each[2]) == home.key]
    for alias in aliases:
        with suppress(NotFoundError):
            found.append(home.by_alias(alias))
    for gid in found:
        with suppress(EngramError):
            end, number = end_of(home, gid)
            if end.key == obj._home.key and number == obj._gid:
                return gid
    return None


def _leave_no_alias(obj: Any, home: Home, alias: str) -> None:
    """Take an alias from what else there is of the object where it comes to; in a batch."""
    with suppress(NotFoundError):
        found = obj._at(home, home.by_alias(alias))
        original = found._replica_of
        if found is obj or (original is not None and obj._at(home, original) is obj):
            home.delete_alias(alias)


def _hand_over(here: Here, target: Home, there: int) -> bool:
    """Let the copy be the object, unless it is gone; tell whether it is."""
    obj, home, gid = here

    def leave() -> None:
        with home.batch():
            home.hold(gid)
            here.check()
            obj._before_deletion()
            home.forward(gid, full(target, there))

    lock = _engram.Lock(target.namespace, True, there, "w", _PATIENCE)
    try:
        lock.__enter__()
    except NotFoundError:
        return False
    try:
        try:
            if target.notes(there, ARRIVING) is None:
                return False
        except NotFoundError:
            return False
        try:
            again(leave)
        except NotFoundError:
            raise gone(type(obj).__qualname__, gid) from None
        with suppress(NotFoundError):
            settle(target, there)
    finally:
        lock.__exit__(None, None, None)
    return True
