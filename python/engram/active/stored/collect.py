"""Collecting what is unreachable: objects that no alias leads to.

An object is *reachable* if it has an alias, if an object of another pool or namespace refers to it,
if it is published, or if a reachable object refers to it: in a field, as its original, its
version's way there, its replica, or the place that it has moved to. The note of one that has moved
is an object, too; but once what it leads to is gone, no reference from elsewhere keeps it.

A collection may be given objects that count as reachable though nothing in the pool leads to them:
those that this process has as Python objects (`collecting.py`). It asks for them after the snapshot
was made: what was reachable then stays in any case, and what was not is one of them, if it was in
hand all the time. It asks again before it deletes a piece.

Others may work meanwhile, and only what is unreachable at the moment of its deletion may go. So:
(1) note when each object was changed last; (2) find what is reachable, both in a snapshot, so
that what moves from one field to another is seen in one of them; (3) take the others in pieces
that no reference joins, and delete each piece in one commit, which relies on none of its
objects having been changed since (1). A commit that makes an object refer to another one changes
that, too (`home.py`, touching). So of a link that is made meanwhile either the mark sees it, or the
commit sees the touch and the piece stays; or the piece was deleted first, and the linking process
is told that the object is gone. Objects made after (1) are none of it.

What does not decode, since something else has written it, is no reason to leave the rest: an object
of which something cannot be read stays, with all that the rest of it leads to.
"""

import time
from collections.abc import Callable
from contextlib import ExitStack, contextmanager, suppress
from itertools import chain
from typing import TYPE_CHECKING, Any, Final, NamedTuple

import numpy as np

from engram import _engram, tokens
from engram.active import using
from engram.active.places import ways
from engram.active.places.placing import DEVICE, REPLICA_OF, REPLICAS
from engram.active.places.versions import CHAIN, ORIGINAL, before_deletion
from engram.active.stored import values
from engram.active.stored.home import Home
from engram.active.stored.layout import (
    ALIASES_OF,
    ARRIVING,
    CLASS,
    HELD,
    LINKS,
    MOVED,
    OBJECTS,
    OUTSIDE,
    SHARING,
)
from engram.active.stored.meanwhile import again
from engram.active.stored.records import GIDS
from engram.errors import BusyError, CorruptError, NotFoundError, ReadOnlyError

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator
    from collections.abc import Set as AbstractSet


_TIES: Final = (ORIGINAL, CHAIN, REPLICA_OF, REPLICAS, MOVED)
"""Notes that hold references."""

_NO_REFERENCES: Final = frozenset(
    (*_TIES, CLASS, ALIASES_OF, ARRIVING, LINKS, OUTSIDE, SHARING, DEVICE, HELD, ways.LEFT)
)

_PIECE: Final = 256
"""About how many objects go in one commit."""

_NOTHING: Final[frozenset[int]] = frozenset()


class StoppedError(Exception):
    """A collection is to end, and nothing was deleted yet."""


class Unreachable(NamedTuple):
    """An object that nothing leads to."""

    id: int
    """Its number."""
    kind: str
    """Its class, with version."""
    nbytes: int
    """Bytes that its arrays and large values have."""


class Collected(NamedTuple):
    """What was collected."""

    objects: int
    """How many objects went."""
    nbytes: int
    """How many bytes their arrays and large values had."""
    kept: int
    """How many unreachable ones stay: too young, or changed meanwhile."""
    reachable: int
    """How many are reachable."""


def gc(pool: Any = None, *, dry_run: bool = False, older_than: float = 0.0) -> Collected:
    """Delete the objects that no alias leads to, and nothing else.

    Objects that were made persistent without an alias, and that a program holds in a variable
    alone, are unreachable, too: collect while no such program runs, or with `older_than`, which
    leaves those that were changed within that many seconds. With `dry_run` nothing is deleted.
    `collect` does it again and again in the background.

    A node of a cluster collects its own; of a cluster, each node that serves does, one after the
    other.

    Raises
    ------
    ReadOnlyError
        If the pool was opened with mode "r", unless it is a dry run.

    """
    each = [_gc_at(home, dry_run, older_than) for home in using.homes_of(pool)]
    return Collected(*map(sum, zip(*each, strict=True)))


def _gc_at(home: Any, dry_run: bool, older_than: float) -> Collected:
    """Delete the objects of one home that no alias leads to."""
    if home.is_far:
        return Collected(*home.collect(dry_run, older_than))
    if not dry_run and not home.namespace.writable:
        raise ReadOnlyError(
            f'the pool {home.pool_path} is open read-only: open it with mode "r+" to collect, or '
            "give dry_run=True"
        )
    return collected_at(home, older_than, dry_run=dry_run)


def collected_at(
    home: Home,
    older_than: float,
    *,
    dry_run: bool = False,
    in_hand: Callable[[], "AbstractSet[int]"] = lambda: _NOTHING,
    is_over: Callable[[], bool] = lambda: False,
    seen: "dict[int, tuple[Any, float]] | None" = None,
) -> Collected:
    """Delete the objects of a home that neither an alias nor one that is in hand leads to.

    `seen` is what a collector keeps from one round to the next: since when each object was found
    unreachable, and as what it was noted then. With it, an object has to have been so for
    `older_than` seconds, too. Once it `is_over`, the pieces that are left stay.

    Raises
    ------
    StoppedError
        If it is over before anything was deleted.

    """
    before = time.time_ns() - int(older_than * 1e9)
    with _as_it_is(home) as then:
        noted = {}
        for gid, touched, modified in _noticed(then):
            _go_on(is_over)
            noted[gid] = touched, modified
        reached = _reached(then, in_hand() & noted.keys(), is_over)
        left = [gid for gid in noted if gid not in reached]
        joined = _joined(then, left, is_over)
    old = {gid for gid in left if noted[gid][1] <= before}
    if seen is not None:
        old &= _seen_long(seen, {gid: noted[gid][0] for gid in left}, older_than)
    found = sizes = 0
    for piece in _pieces(some for some in joined if old.issuperset(some)):
        if is_over():
            break
        # Who came into hand since stays, with those that it is deleted with.
        hand = in_hand()
        going = [some for some in piece if hand.isdisjoint(some)]
        nbytes = {gid: nbytes_of(home, gid) for gid in chain(*going)}
        for gid in nbytes if dry_run else _deleted(home, going, noted):
            found += 1
            sizes += nbytes[gid]
    return Collected(found, sizes, len(left) - found, len(noted) - len(left))


def _go_on(is_over: Callable[[], bool]) -> None:
    if is_over():
        raise StoppedError


def _seen_long(
    seen: "dict[int, tuple[Any, float]]", left: dict[int, Any], older_than: float
) -> set[int]:
    """Note what is unreachable; give what has been so for that many seconds, as far as is known.

    An object that was referred to meanwhile is noted as another.
    """
    now = time.monotonic()
    for gid in seen.keys() - left.keys():
        del seen[gid]
    for gid, touched in left.items():
        if gid not in seen or seen[gid][0] != touched:
            seen[gid] = touched, now
    return {gid for gid, (_, since) in seen.items() if now - since >= older_than}


def _deleted(
    home: Home, piece: list[list[int]], noted: dict[int, tuple[Any, int]]
) -> "Iterator[int]":
    """Delete a piece, or what of it can be deleted; give what went."""
    whole = [*chain(*piece)]
    if _delete(home, {gid: noted[gid][0] for gid in whole}):
        yield from whole
    elif len(piece) > 1:
        for some in piece:
            if _delete(home, {gid: noted[gid][0] for gid in some}):
                yield from some


def unreachable(pool: Any = None) -> "list[Unreachable]":
    """Give the objects that no alias leads to, in the order in which they were made.

    Of a cluster, they are those of one node after the other.
    """
    return [found for home in using.homes_of(pool) for found in _unreachable_at(home)]


def _unreachable_at(home: Any) -> "list[Unreachable]":
    if home.is_far:
        return [Unreachable(*each) for each in home.unreachable()]
    with _as_it_is(home) as then:
        made = [gid for gid, _, _ in _noticed(then)]
        reached = _reached(then)
    return [
        Unreachable(gid, str(_noted(home, gid, CLASS)), nbytes_of(home, gid))
        for gid in made
        if gid not in reached
    ]


@contextmanager
def _as_it_is(home: Home) -> "Iterator[Home]":
    """Give a home as one commit has left it."""
    namespace = home.namespace.snapshot(None, tokens.new())
    try:
        yield Home(namespace)
    finally:
        namespace.end_snapshot()


def objects(home: Home) -> "Iterator[int]":
    """Give the ids of all objects."""
    group = home.group_if_there(OBJECTS)
    after = None
    while group is not None:
        members, after = _engram.members(home.namespace, group, after, 1024)
        for _, found in members:
            if found[0] == 0:
                yield found[1]
        if after is None:
            return


def _noticed(home: Home) -> "Iterator[tuple[int, Any, int]]":
    """Give all objects, what was noted when each was touched, and when it was changed last."""
    for gid in objects(home):
        try:
            yield gid, _noted(home, gid, LINKS), _engram.group_info(home.namespace, gid).modified
        except NotFoundError:  # deleted meanwhile
            continue


def _reached(
    home: Home, in_hand: "Iterable[int]" = (), is_over: Callable[[], bool] = lambda: False
) -> set[int]:
    """Give all objects that are reachable, also from some that are in hand."""
    reached = {gid for gid in home.aliases().values() if gid is not None}
    reached.update(in_hand)
    reached.update(gid for gid in objects(home) if _is_wanted(home, gid))
    _follow(home, list(reached), reached, is_over)
    for gid in objects(home):
        if gid not in reached and not _is_readable(home, gid):
            reached.add(gid)
            _follow(home, [gid], reached, is_over)
    return reached


def _follow(home: Home, waiting: list[int], reached: set[int], is_over: Callable[[], bool]) -> None:
    """Add what some objects lead to."""
    while waiting:
        _go_on(is_over)
        for gid in references(home, waiting.pop()):
            if gid not in reached:
                reached.add(gid)
                waiting.append(gid)


def _is_readable(home: Home, gid: int) -> bool:
    """Tell whether all can be read that collecting an object needs."""
    found: list[CorruptError] = []
    references(home, gid, found)
    for name in (CLASS, ALIASES_OF, LINKS, OUTSIDE, SHARING):
        with suppress(NotFoundError), _noting(found):
            home.notes(gid, name)
    return not found


def _is_wanted(home: Home, gid: int) -> bool:
    """Tell whether an object is referred to from elsewhere, or published."""
    try:
        if _engram.group_info(home.namespace, gid).scope == "published":
            return True
        if home.notes(gid, OUTSIDE) is None:
            return home.notes(gid, ARRIVING) is not None and ways.has_arrived(home, gid)
        return not ways.leads_to_nothing(home, gid)
    except NotFoundError:
        return False
    except CorruptError:
        return True


@contextmanager
def _noting(unread: "list[CorruptError]") -> "Iterator[None]":
    """Go on after what does not decode."""
    try:
        yield
    except CorruptError as error:
        unread.append(error)


def references(home: Home, gid: int, unread: "list[CorruptError] | None" = None) -> set[int]:
    """Give the objects of the same home that an object refers to; note what does not decode."""
    found: set[int] = set()
    unread = [] if unread is None else unread
    try:
        for name, value in _engram.attr_items(home.namespace, True, gid):
            if isinstance(value, np.ndarray) and name not in _NO_REFERENCES:
                with _noting(unread):
                    found.update(_near(values.references(value.tobytes())))
        for name in _TIES:
            with _noting(unread):
                tie = home.notes(gid, name)
                ties = tie if isinstance(tie, list) else [tie]
                # A list may be one reference to another home: it begins with a text.
                found.update(_near(ties) if not (ties and isinstance(ties[0], str)) else ())
        for _, (kind, oid, _, _) in _members(home, gid):
            if kind not in {0, 1}:
                with _noting(unread):
                    found.update(_near(values.references(_engram.read_blob(home.namespace, oid))))
    except NotFoundError:  # it refers to what was deleted, or was deleted itself
        pass
    return found


def _near(found: "Iterable[Any]") -> "Iterator[int]":
    return (each for each in found if isinstance(each, int) and each in GIDS)


def _members(home: Home, gid: int) -> "list[tuple[str, Any]]":
    found, _ = _engram.members(home.namespace, gid, None, 1_000_000)
    return found


def _noted(home: Home, gid: int, name: str) -> Any:
    try:
        return home.notes(gid, name)
    except (CorruptError, NotFoundError):
        return None


def nbytes_of(home: Home, gid: int) -> int:
    """Give how many bytes an object's arrays and large values have."""
    try:
        return sum(
            _engram.object_info(home.namespace, oid).nbytes
            for _, (kind, oid, _, _) in _members(home, gid)
            if kind != 0
        )
    except NotFoundError:
        return 0


def _joined(home: Home, left: list[int], is_over: Callable[[], bool]) -> list[list[int]]:
    """Put objects that refer to each other together."""
    parent = {gid: gid for gid in left}

    def root(gid: int) -> int:
        while parent[gid] != gid:
            parent[gid] = gid = parent[parent[gid]]
        return gid

    for gid in left:
        _go_on(is_over)
        for other in references(home, gid) | _sharers(home, gid):
            if other in parent:
                parent[root(gid)] = root(other)
    joined: dict[int, list[int]] = {}
    for gid in left:
        joined.setdefault(root(gid), []).append(gid)
    return list(joined.values())


def _pieces(joined: "Iterable[list[int]]") -> "Iterator[list[list[int]]]":
    """Put those that are few into one piece."""
    piece: list[list[int]] = []
    for some in joined:
        piece.append(some)
        if sum(map(len, piece)) >= _PIECE:
            yield piece
            piece = []
    if piece:
        yield piece


def _sharers(home: Home, gid: int) -> set[int]:
    """Give the objects that lend arrays to an object, or borrow them."""
    sharing = _noted(home, gid, SHARING) or {}
    lent = (each for some in sharing.get("lent", {}).values() for each in some)
    return {*lent, *sharing.get("borrowed", {}).values()}


@contextmanager
def _let_be(home: Home, piece: "Iterable[int]") -> "Iterator[None]":
    """Keep moves from being ended whose copies are to go; raise if some go on, or have ended."""
    with ExitStack() as locks:
        for gid in piece:
            if home.notes(gid, ARRIVING) is not None:
                locks.enter_context(_engram.Lock(home.namespace, True, gid, "w", 0.0))
                if ways.has_arrived(home, gid):
                    raise BusyError
            elif not ways.settle_end(home, gid):
                raise BusyError
        yield


def _delete(home: Home, piece: dict[int, Any]) -> bool:
    """Delete a piece, all or nothing; tell whether it went."""

    def delete() -> None:
        with home.batch():
            for gid, touched in piece.items():
                home.hold(gid)
                reached = home.notes(gid, ALIASES_OF) or _is_wanted(home, gid)
                if reached or home.notes(gid, LINKS) != touched:
                    raise NotFoundError  # unreachable no more
            for gid in piece:
                before_deletion(home, gid)
                home.delete(gid)

    try:
        with _let_be(home, piece):
            again(delete)
    except (BusyError, CorruptError, NotFoundError):
        return False
    for gid in piece:
        home.live.pop(gid, None)
    return True
