"""Ways to objects that have moved: notes that lead on, and copies that are about to be objects.

An object that moves away leaves a *note* where it was, with the reference to where it is
(`__moved__`). It knows the notes that lead to it (`__left__`), so that in a home that it comes back
to its own note is the object again: there is one note in a home, and a way has at most as many
steps as there are homes.

A move is one commit of the home that the object leaves: the one that makes the note. Until then the
copy is no object: it says what it is a copy of (`__arriving__`), and a process that finds it is led
there. So a process that dies while it moves an object leaves that where it was. The next move takes
the copy, or the next collection does.
"""

from collections import Counter
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from typing import Any, Final

from engram.active import using
from engram.active.errors import gone
from engram.active.places import far
from engram.active.stored.home import Home
from engram.active.stored.layout import ARRIVING, CLASS, FROM_AFAR, MOVED, OUTSIDE
from engram.active.stored.records import GIDS
from engram.errors import (
    AccessError,
    ArgumentError,
    BusyError,
    CorruptError,
    FormatError,
    NotFoundError,
)

LEFT: Final = "__left__"
MOST_TRIES: Final = 100
"""How often it is looked again where somebody moves the object meanwhile."""


def full(home: Home, gid: int) -> list[Any]:
    """Give the reference to an object that any home can keep."""
    uuid, namespace = home.key
    return [uuid, home.pool_path, namespace, gid]


def home_again(uuid: str, namespace: str, path: str | None, pool: Any = None) -> Home:
    """Find the home of an object by its pool's uuid; the pool at `path` is opened if need be."""
    for home in using.all_homes(pool):
        if home.key[0] == uuid:
            return home if home.key[1] == namespace else using.other_namespace(home, namespace)
    elsewhere = far.find(uuid, namespace)
    if elsewhere is not None:
        return elsewhere  # type: ignore[return-value]  # it answers what ways are asked for
    if path is not None:
        home = using.followed(path, namespace)
        if home.key[0] == uuid:
            return home
    where = f" at {path!r}" if path else ""
    raise NotFoundError(f"the pool {uuid}{where}, which the object is in, is not open: open it")


def place_of_id(object_id: str, pool: Any = None) -> tuple[Home, int]:
    """Give the home and the number that an object's id, as text, names.

    Raises
    ------
    ArgumentError
        If it is none.

    """
    try:
        uuid, namespace, number = object_id.split(":")
        gid = int(number, 16)
        if gid not in GIDS:
            raise ValueError(gid)  # noqa: TRY301
    except ValueError:
        raise ArgumentError(
            f"{object_id!r} is no id of an active object: get_id() gives one"
        ) from None
    return home_again(uuid, namespace, None, pool), gid


def place_of(home: Home, reference: Any) -> tuple[Home, int]:
    """Give the home and the id that a reference names, which was found in a home."""
    if isinstance(reference, int):
        return home, reference
    if reference is None:
        raise CorruptError(f"an active object of {home.pool_path!r} was moved, it says not where")
    uuid, path, namespace, gid = reference
    return home_again(uuid, namespace, path), gid


def next_of(home: Home, gid: int) -> tuple[Home, int] | None:
    """Give where a note, or a copy that has not arrived, leads; None of what is an object.

    Raises
    ------
    ObjectDeletedError
        If it is gone.
    NotFoundError
        If it leads to a pool that is.

    """
    following = None
    for _ in range(MOST_TRIES):
        try:
            is_note = home.notes(gid, CLASS) == ""
            if not is_note and has_arrived(home, gid):
                return None
            following = home.notes(gid, MOVED if is_note else ARRIVING)
        except NotFoundError:
            raise gone("active", gid) from None
        if following is not None:  # else it has become the other one between two looks
            break
    return place_of(home, following)


def has_arrived(home: Home, gid: int) -> bool:
    """Tell whether what is here is the object, not a copy of one that has not moved here yet.

    If the pool that it came from is gone, this is all that there is.
    """
    source = home.notes(gid, ARRIVING)
    if source is None:
        return True
    try:
        before, number = place_of(home, source)
    except (AccessError, FormatError, NotFoundError):
        if home.notes(gid, OUTSIDE) == FROM_AFAR:
            raise BusyError(
                f"the object {gid:#x} in {home.pool_path!r} was about to come from another node of "
                "a cluster, and only that knows whether it did: open the cluster first"
            ) from None
        return True
    try:
        return bool(before.notes(number, MOVED) == full(home, gid))
    except NotFoundError:  # deleted, before it was moved
        return False


def way_of(home: Home, gid: int) -> Iterator[tuple[Home, int]]:
    """Give each place on the way to where an object is, from here on.

    Raises
    ------
    NotFoundError
        If it is gone, or a pool on the way is.
    CorruptError
        If notes lead in a circle. An object that is moved to and fro meanwhile leads back to a
        place too, but not each time.

    """
    passed: Counter[tuple[Any, int]] = Counter()
    following: tuple[Home, int] | None = (home, gid)
    while following is not None:
        home, gid = following
        yield home, gid
        following = next_of(home, gid)
        passed[home.key, gid] += 1
        if following is not None and passed[home.key, gid] > MOST_TRIES:
            raise CorruptError(f"the notes of moved objects lead in a circle, at {gid:#x}")


def end_of(home: Home, gid: int) -> tuple[Home, int]:
    """Give where an object is; errors are those of its way."""
    *_, end = way_of(home, gid)
    return end


def settle(home: Home, gid: int) -> bool:
    """Let a copy that has arrived be an object as any other; tell whether it is one.

    It is a commit of its own, in a thread of its own: what this one may have in a batch is no fact.
    """
    if home.is_far:
        return bool(home.settle(gid))  # type: ignore[attr-defined]  # of far homes

    def end() -> bool:
        if home.notes(gid, ARRIVING) is None:
            return True
        if not has_arrived(home, gid):
            return False
        with home.batch():
            home.note(gid, OUTSIDE, 1)  # its note refers to it
            home.note(gid, ARRIVING, None)
        return True

    with ThreadPoolExecutor(1) as other:
        return other.submit(end).result()


def settle_end(home: Home, gid: int) -> bool:
    """Have what a note leads to settled, before the note goes; tell whether it may go."""
    moved = home.notes(gid, MOVED)
    if moved is None or isinstance(moved, int):
        return True
    try:
        there, number = place_of(home, moved)
    except (AccessError, BusyError, NotFoundError):
        return False
    try:
        if there.notes(number, ARRIVING) is None:
            return True
    except NotFoundError:
        return True
    return (there.is_far or there.namespace.writable) and settle(there, number)


def leads_to_nothing(home: Home, gid: int) -> bool:
    """Tell whether it is a note of an object that is gone; of what cannot be asked it is not."""
    try:
        for there, number in way_of(home, gid):
            try:
                there.notes(number, CLASS)
            except NotFoundError:
                return True
    except CorruptError:
        return True
    except (AccessError, BusyError, NotFoundError):
        pass
    return False
