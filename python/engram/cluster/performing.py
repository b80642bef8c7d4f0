"""What a worker of a node does for callers on other nodes.

Classes come from the node's pool, where making an object has put them, by the rules of one node:
their source runs if nobody but this user can have written it there.
"""

import pickle
import traceback
from collections.abc import Callable
from contextlib import suppress
from typing import Any, Final

from engram import telemetry
from engram.active import using
from engram.active.code import classes
from engram.active.errors import ClassUnknownError, ObjectDeletedError, gone
from engram.active.object import ActiveObject
from engram.active.places import far, moving, parcels, ways
from engram.active.places.placing import DEVICE, REPLICA_OF
from engram.active.stored import collect
from engram.active.stored.home import Home
from engram.active.stored.layout import CLASS, OUTSIDE
from engram.active.workers.wire import Thrown
from engram.cluster.calling import FAILED, GAVE, MOVED, OF_OBJECTS, Ask, packed, running
from engram.errors import ArgumentError, NotFoundError

_found: set[tuple[str, str]] = set()
"""Homes whose classes this worker has, once they are asked for."""


def perform(home: Home, opened: Any, facts: tuple[Any, ...], request: bytes) -> bytes:
    """Do what another node asks; give how that ended, pickled."""
    try:
        opened(*facts)
        ask = Ask(*pickle.loads(request))  # noqa: S301 - of a member, as its certificate proves
        with running(ask):
            return done(home, ask)
    except BaseException as error:  # noqa: BLE001 - it is the caller's
        return _failure(error)


def done(home: Home, ask: Ask) -> bytes:
    """Do what another node asks, in a process that has the cluster open."""
    try:
        home = using.other_namespace(home, ask.namespace)
        _have_classes(home)
        if ask.verb in OF_OBJECTS or ask.verb == "look":
            end, gid = ways.end_of(home, ask.gid)
            if end.is_far:
                return _ended(MOVED, ways.full(end, gid))
            return _ended(GAVE, _of_object(end, gid, ask))
        content = pickle.loads(ask.content)  # noqa: S301 - as above
        return _ended(GAVE, packed(_verb(ask.verb)(home, ask.gid, *content), "a result"))
    except BaseException as error:  # noqa: BLE001 - it is the caller's
        return _failure(error)


def _verb(name: str) -> Callable[..., Any]:
    found = _VERBS.get(name) or _SLOW.get(name)
    if found is None:
        raise ArgumentError(f"{name!r} is nothing that this version of Engram can do")
    return found


def _ended(how: str, content: Any) -> bytes:
    return pickle.dumps((how, content), protocol=5)


def _failure(error: BaseException) -> bytes:
    text = "".join(traceback.format_exception(type(error), error, error.__traceback__))
    return _ended(FAILED, (text, _pickled(error)))


def _pickled(error: BaseException) -> bytes | None:
    ways_: list[Any] = [error]
    if hasattr(type(error).__reduce__, "__objclass__"):  # Python's own
        ways_.append(Thrown(type(error), error.args, dict(vars(error))))
    for content in ways_:
        with suppress(Exception):
            whole = packed(content, "an exception")
            if type(pickle.loads(whole)) is type(content):  # noqa: S301 - our own
                return whole
    return None


def _have_classes(home: Home) -> None:
    """Find classes in a home that this process lacks."""
    if home.key in _found:
        return
    _found.add(home.key)

    def find(name: str) -> Any:
        with suppress(ClassUnknownError):
            return classes._load(home, name, trust=False)
        return None

    classes.finders.append(find)


def _of_object(home: Home, gid: int, ask: Ask) -> bytes:
    if ask.verb == "look":
        stored = home.notes(gid, CLASS)
        if not stored:
            raise NotFoundError(f"the group {gid:#x} is no active object")
        return packed((stored, home.notes(gid, REPLICA_OF)), "a note")
    obj = ActiveObject._handle(home, gid)
    using._used.set(_namespace(home))
    content = pickle.loads(ask.content)  # noqa: S301 - of a member, as its certificate proves
    if ask.verb == "call":
        args, kwargs = content
        with telemetry.within(ask.trace):
            result = getattr(obj, ask.name)(*args, **kwargs)
    elif ask.verb == "get":
        result = getattr(obj, ask.name)
    elif ask.verb == "set":
        setattr(obj, ask.name, content[0])
        result = None
    else:
        delattr(obj, ask.name)
        result = None
    if ask.name == "get_all_locations":
        result = list(map(_as_others_know, result))
    what = f"{type(obj).__qualname__}.{ask.name} was run and committed, but what it gave"
    return packed(result, what)


def _as_others_know(location: str) -> str:
    """Give a backend of this node as other nodes name it."""
    if location.startswith("engram://"):
        return location
    path, _, namespace = location.partition("#")[0].partition("?")
    home = using.at_path(path, namespace or "default")
    for name in far.locators:
        found = name(home)
        if found is not None:
            return str(found)
    return location


def _namespace(home: Home) -> Any:
    """Give a handle of a home's namespace, in which methods make objects."""
    kept = _handles.get(home.key)
    if kept is None or not kept._namespace.is_open:
        from engram.namespace import Namespace  # noqa: PLC0415 - needed here alone

        kept = _handles[home.key] = Namespace(home.namespace)
    return kept


_handles: dict[tuple[str, str], Any] = {}

# Verbs of a home


def _make(home: Home, _: int, parcel: parcels.Parcel, alias: str | None, scope: Any) -> list[int]:
    kept = parcels.install(home, parcel)
    scope = "private" if scope == "private" else None
    if scope:
        home.make_groups()
    with home.batch():
        made = [home.create({CLASS: kept[each.cls]}, scope) for each in parcel.objects]
        parcels.unpack(home, parcel, made)
        if alias is not None:
            home.add_alias(made[0], alias)
    return made


def _arrive(home: Home, _: int, parcel: parcels.Parcel) -> int:
    return moving.arrive(home, parcel)


def _replicate(home: Home, _: int, parcel: parcels.Parcel) -> list[int]:
    kept = parcels.install(home, parcel)
    with home.batch():
        made = [home.create({CLASS: kept[each.cls]}, None) for each in parcel.objects]
        parcels.unpack(home, parcel, made)
        have = home.aliases()
        for gid, each in zip(made, parcel.objects, strict=True):
            home.note(gid, OUTSIDE, 1)
            home.note(gid, REPLICA_OF, each.source)
            for alias in each.aliases:
                if alias not in have:
                    home.add_alias(gid, alias)
    return made


def _refresh(home: Home, gid: int, parcel: parcels.Parcel) -> None:
    device = home.notes(gid, DEVICE)
    (only,) = parcel.objects
    kept = parcels.install(home, parcel)
    with home.batch():
        home.hold(gid)
        for name in classes.stored_class(home, only.cls).fields:
            home.delete_field(gid, name)
        home.note(gid, CLASS, kept[only.cls])
        parcels.unpack(home, parcel, [gid], device)


def _notes(home: Home, gid: int, name: str) -> Any:
    try:
        return home.notes(gid, name)
    except ObjectDeletedError:
        raise
    except NotFoundError:
        raise gone("active", gid) from None


def _stored_class(home: Home, _: int, name: str, version: int | None) -> Any:
    return classes.stored_class(home, name, version)


def _settle(home: Home, gid: int) -> bool:
    return ways.settle(home, gid)


def _is_there(home: Home, gid: int) -> bool:
    return home.is_there(gid)


def _by_alias(home: Home, _: int, alias: str) -> int:
    return home.by_alias(alias)


def _keep_for_others(home: Home, gid: int) -> None:
    home.keep_for_others(gid)


def _delete_alias(home: Home, _: int, alias: str) -> None:
    with home.batch():
        home.delete_alias(alias)


def _collect(home: Home, _: int, dry_run: bool, older_than: float) -> tuple[int, int, int, int]:
    return (*collect.gc(_namespace(home), dry_run=dry_run, older_than=older_than),)


def _unreachable(home: Home, _: int) -> list[tuple[int, str, int]]:
    return [(*each,) for each in collect.unreachable(_namespace(home))]


_SLOW: Final[dict[str, Callable[..., Any]]] = {"collect": _collect, "unreachable": _unreachable}
"""Verbs that look at all objects of the home: a worker does them."""
_VERBS: Final[dict[str, Callable[..., Any]]] = {
    "arrive": _arrive,
    "by_alias": _by_alias,
    "delete_alias": _delete_alias,
    "is_there": _is_there,
    "keep_for_others": _keep_for_others,
    "make": _make,
    "notes": _notes,
    "refresh": _refresh,
    "replicate": _replicate,
    "settle": _settle,
    "stored_class": _stored_class,
}
QUICK: Final = frozenset({*_VERBS, "look"})
"""What needs no worker: it runs no method, and waits for none that does."""
LOOKS: Final = frozenset(
    {"by_alias", "is_there", "keep_for_others", "look", "notes", "settle", "stored_class"}
)
"""What of it may be done again, so that nobody need remember it."""
