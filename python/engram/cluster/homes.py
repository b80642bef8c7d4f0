"""Active objects on other nodes: what stands here for one, and what is done with it there.

An object of another node is a Python object of its class here, but that its fields are read and
written there, and its methods run there. It knows its node's pool, so a call asks nobody where the
object is. If it has moved, the node that it left says where to, which is followed and kept.
"""

import contextlib
import inspect
import pickle
import weakref
from concurrent.futures import ThreadPoolExecutor
from typing import TYPE_CHECKING, Any, Final

from engram import telemetry
from engram.active.code import classes
from engram.active.errors import AliasNotFoundError, AliasTakenError, WentFarError
from engram.active.method import ActiveMethod
from engram.active.object import ActiveObject
from engram.active.places import far, parcels, ways
from engram.active.places.placing import REPLICA_OF, backend_of
from engram.active.stored.home import home_of
from engram.cluster.calling import FAILED, GAVE, MOVED, Ask, packed, raised
from engram.errors import (
    AccessError,
    ArgumentError,
    CoordinatorError,
    CorruptError,
    NodeAwayError,
    NotFoundError,
)

if TYPE_CHECKING:
    from concurrent.futures import Future

    from engram.cluster.cluster import Cluster

_MOST_MOVES: Final = 100
_ASKED: Final = 32
"""Nodes that are asked at once."""
_THERE: Final = frozenset(
    {
        "add_alias",
        "consolidate_version",
        "delete",
        "get_aliases",
        "get_all_locations",
        "get_properties",
        "move",
        "new_replica",
        "new_version",
        "sync",
    }
)
"""What an object is asked to do where it lies."""
_PLACES: Final = frozenset({"move", "new_replica"})
"""What of it is given backends."""
_LOOKS: Final = frozenset({"get_aliases", "get_all_locations", "get_properties"})
"""What of it changes nothing."""
_far_classes: "dict[type, type]" = {}


class FarObject:
    """What an object of another node does otherwise than one that lies here."""

    _home: "NodeHome"
    _gid: int
    _near_class: type
    _fields: dict[str, Any]

    def __init_subclass__(cls, **options: Any) -> None:
        """Be no class of the program's own: nothing enters it."""

    def __getattribute__(self, name: str) -> Any:
        if name.startswith("_"):
            return super().__getattribute__(name)
        kind = type(self)
        if name in kind._fields:
            return self._home.field("get", self, name)
        if name in _THERE:
            return lambda *args, **kwargs: self._home.call(
                self, name, args, kwargs, again=name in _LOOKS
            )
        return super().__getattribute__(name)

    def __setattr__(self, name: str, value: Any) -> None:
        if name in type(self)._fields:
            self._home.field("set", self, name, value)
        else:
            super().__setattr__(name, value)

    def __delattr__(self, name: str) -> None:
        if name in type(self)._fields:
            self._home.field("delete", self, name)
        else:
            super().__delattr__(name)

    def get_location(self) -> str:
        """Give the backend that it is in, as text that `backend_id` takes."""
        return self._home.location

    def make_persistent(self, alias: str | None = None, backend_id: Any = None, **_: Any) -> None:
        """Give it an alias, and move it to another backend; it is persistent."""
        if backend_id is not None:
            self.move(backend_id)
        if alias is not None:
            self.add_alias(alias)

    def _follow(self) -> bool:
        return False

    def _check_writable(self) -> None:
        """Leave it to the node."""

    def __reduce__(self) -> Any:
        cluster = self._home.cluster
        uuid, namespace = self._home.key
        place = (uuid, self._home.pool_path, namespace, self._gid)
        return far_again, (*cluster.__reduce__(), place)

    def __repr__(self) -> str:
        return f"<{type(self).__qualname__} {self._gid:#x} in {self._home.location}>"


def location_of(cluster: "Cluster", node: str, namespace: str) -> str:
    """Give a node as a backend, in text."""
    more = "" if namespace == "default" else f"?{namespace}"
    return f"engram://{cluster.name}/{node}{more}"


def far_class(cls: type) -> type:
    """Give the class of those objects of a class that lie on other nodes."""
    near = getattr(cls, "_near_class", cls)
    made = _far_classes.get(near)
    if made is None:
        body = {
            "_near_class": near,
            "__module__": near.__module__,
            "__qualname__": near.__qualname__,
            "__doc__": near.__doc__,
        }
        made = _far_classes[near] = type(near)(near.__name__, (FarObject, near), body)
    return made


class NodeHome(far.FarHome):
    """A namespace of another node's pool."""

    def __init__(self, cluster: "Cluster", node: str, uuid: str, path: str, namespace: str) -> None:
        self.cluster = cluster
        self.node = node
        self.key = (uuid, namespace)
        self.pool_path = path
        self.location = location_of(cluster, node, namespace)
        self.live: Any = weakref.WeakValueDictionary()

    def __getattr__(self, name: str) -> Any:
        """Have what a home of this process can do asked where it can: the object has gone there."""
        if name.startswith("__"):
            raise AttributeError(name)
        raise WentFarError(f"an object was moved to {self.location} meanwhile: do it again")

    @property
    def is_open(self) -> bool:
        """Whether its cluster is open."""
        return self.cluster.is_open

    # What is asked of the node

    def ask(self, verb: str, gid: int, name: str, content: Any, *, again: bool) -> Any:
        """Have the node do something; gives how that ended, and with what."""
        label = f"{name or verb} of {gid:#x} in {self.location}"
        what = f"an argument of {label}"
        ask = Ask(verb, self.key[1], gid, name, packed(content, what), trace=telemetry.here())
        how, given = self.cluster._caller.call(self.node, ask, label, again=again)
        if how == FAILED:
            raise raised(given, label)
        return how, given

    def _asked(self, verb: str, gid: int, *content: Any, again: bool = True) -> Any:
        """Ask the home itself, where nothing moves."""
        how, given = self.ask(verb, gid, "", content, again=again)
        if how != GAVE:
            raise CorruptError(f"{self.location} says {how!r} of {gid:#x}, which it cannot")
        return pickle.loads(given)  # noqa: S301 - of a member, as its certificate proves

    def _of(self, obj: Any, verb: str, name: str, content: Any, *, again: bool) -> Any:
        """Ask for something of an object, wherever it has moved to."""
        for _ in range(_MOST_MOVES):
            home, gid = obj._home, obj._gid
            if not home.is_far:  # it has moved here
                return _done_here(obj, verb, name, content)
            how, given = home.ask(verb, gid, name, content, again=again)
            if how == GAVE:
                return pickle.loads(given)  # noqa: S301 - as above
            if how == MOVED:
                _moved(obj, given)
        raise NodeAwayError(f"{obj!r} moves again and again: try it again")

    def field(self, verb: str, obj: Any, name: str, *value: Any) -> Any:
        """Read, assign or delete a field."""
        return self._of(obj, verb, name, value, again=verb == "get")

    def call(self, obj: Any, name: str, args: Any, kwargs: Any, *, again: bool) -> Any:
        """Run a method of an object; once at most, unless it may be run `again`."""
        _check_outputs(obj, name, args, kwargs)
        if name in _PLACES:
            args = tuple(map(self._sent, args))
            kwargs = {key: self._sent(value) for key, value in kwargs.items()}
        given = self._of(obj, "call", name, (args, kwargs), again=again)
        if name == "move" and obj._home.is_far:
            self._of(obj, "look", "", (), again=True)  # it says where the object is now
        return given

    def _sent(self, backend: Any) -> Any:
        """Give a backend as every node knows it."""
        if isinstance(backend, str) and not backend.startswith("engram://"):
            raise ArgumentError(
                f"{backend!r} is a path, and an object of another node knows no path of this one: "
                "name a node of the cluster, such as engram://job/h2"
            )
        if not isinstance(backend, str | int | bool | None):
            home: Any = backend_of(backend).home
            if home.is_far:
                return home.location
            if self.cluster.node is not None and home.key[0] == self.cluster.pool.uuid:
                return location_of(self.cluster, self.cluster.node, home.key[1])
            raise ArgumentError(
                f"{backend!r} is a pool of this host alone, which another node cannot reach: name "
                "a node of the cluster"
            )
        return backend

    def submit(self, obj: Any, name: str, args: Any, kwargs: Any, *, again: bool) -> "Future[Any]":
        """Do as `call`, and do not wait for the end."""
        _check_outputs(obj, name, args, kwargs)
        trace = telemetry.here()

        def work() -> Any:
            with telemetry.within(trace):
                return self._of(obj, "call", name, (args, kwargs), again=again)

        return self.cluster._caller.submit(work)

    # What ways and moves ask

    def handle(self, gid: int, wanted: type[ActiveObject]) -> ActiveObject:
        """Give the Python object of a stored one, or of what it has become elsewhere."""
        there = self.live.get(gid)
        if there is not None and there._gid == gid and not there._outdated:
            return there  # type: ignore[no-any-return]
        how, given = self.ask("look", gid, "", (), again=True)
        if how == MOVED:
            home, number = _place(given)
            return wanted._handle(home, number)
        stored, replica_of = pickle.loads(given)  # noqa: S301 - as above
        home_: Any = self  # it has what is asked of a home
        kind = classes.class_of(home_, stored, wanted)
        made: Any = object.__new__(far_class(kind))
        made._become(self, gid)
        made._replica_of = replica_of
        return made  # type: ignore[no-any-return]

    def fit(self, obj: Any) -> None:
        """Make of an object one that lies here."""
        obj.__class__ = far_class(type(obj))

    def notes(self, gid: int, name: str) -> Any:
        """Give what an object notes under a name."""
        return self._asked("notes", gid, name)

    def is_there(self, gid: int) -> bool:
        """Tell whether there is an object."""
        return bool(self._asked("is_there", gid))

    def by_alias(self, alias: str) -> int:
        """Give the id of the object that has an alias."""
        return int(self._asked("by_alias", 0, alias))

    def delete_alias(self, alias: str) -> None:
        """Take an alias away from its object."""
        self._asked("delete_alias", 0, alias, again=False)

    def keep_for_others(self, gid: int) -> None:
        """Note that something of another home refers to an object."""
        self._asked("keep_for_others", gid)

    def settle(self, gid: int) -> bool:
        """Let a copy that has arrived be an object as any other; tell whether it is one."""
        return bool(self._asked("settle", gid))

    def make(self, parcel: parcels.Parcel, alias: str | None, scope: str | None) -> list[int]:
        """Make new objects, the first with an alias; give their ids."""
        return list(self._asked("make", 0, parcel, alias, scope, again=False))

    def arrive(self, parcel: parcels.Parcel) -> int:
        """Make the copy of an object that is about to move here; give its id."""
        return int(self._asked("arrive", 0, parcel, again=False))

    def replicate(self, parcel: parcels.Parcel) -> list[int]:
        """Make replicas of objects; give their ids."""
        return list(self._asked("replicate", 0, parcel, again=False))

    def collect(self, dry_run: bool, older_than: float) -> tuple[int, int, int, int]:
        """Delete objects that no alias leads to, as `gc` does; give what `Collected` has."""
        given: tuple[int, int, int, int] = self._asked("collect", 0, dry_run, older_than)
        return given

    def unreachable(self) -> list[tuple[int, str, int]]:
        """Give the objects that no alias leads to, each as `Unreachable` has it."""
        return list(self._asked("unreachable", 0))

    def refresh(self, gid: int, parcel: parcels.Parcel) -> None:
        """Bring a replica up to date."""
        self._asked("refresh", gid, parcel)

    def stored_class(self, name: str, version: int | None) -> Any:
        """Give what the pool keeps of a class."""
        return self._asked("stored_class", 0, name, version)

    def __reduce__(self) -> Any:
        return home_again, (*self.cluster.__reduce__(), self.key)


def _check_outputs(obj: Any, name: str, args: Any, kwargs: Any) -> None:
    """Refuse an array that the method is to write into: its node has a copy of it."""
    method = inspect.getattr_static(type(obj), name, None)
    if not isinstance(method, ActiveMethod) or not (args or kwargs):
        return
    try:
        given = inspect.signature(method.function).bind(obj, *args, **kwargs).arguments
    except (TypeError, ValueError):  # the call says so itself
        return
    out = given.get("out", kwargs.get("out"))
    if out is not None and not isinstance(out, ActiveObject):
        raise ArgumentError(
            f"{name} of {obj!r} cannot write into out= from another node, which gets a copy: give "
            "the object that has the array as a field"
        )


def _done_here(obj: Any, verb: str, name: str, content: Any) -> Any:
    """Do something with an object that lies here by now."""
    if verb == "call":
        args, kwargs = content
        return getattr(obj, name)(*args, **kwargs)
    if verb == "get":
        return getattr(obj, name)
    if verb == "look":
        return None
    if verb == "set":
        setattr(obj, name, content[0])
    else:
        delattr(obj, name)
    return None


def _place(reference: Any) -> tuple[Any, int]:
    uuid, path, namespace, gid = reference
    return ways.home_again(uuid, namespace, path), gid


def _moved(obj: Any, reference: Any) -> None:
    """Have an object be where it has moved to."""
    home, gid = _place(reference)
    obj._home.live.pop(obj._gid, None)
    obj._become(home, gid)


# What clusters enter


def home_in(cluster: "Cluster", uuid: str, namespace: str) -> NodeHome | None:
    """Give the home of a pool, if it is that of another node of a cluster."""
    known = cluster._homes.get((uuid, namespace))
    if known is not None:
        return known
    for member in cluster._nodes():
        if member["pool"] == uuid and member["node"] != cluster.node:
            return _far_home(cluster, member, namespace)
    return None


def _far_home(cluster: "Cluster", member: dict[str, Any], namespace: str) -> NodeHome:
    """Give the home of another node's pool, as the map tells of the node."""
    uuid = member["pool"]
    known = cluster._homes.get((uuid, namespace))
    if known is None:
        known = NodeHome(cluster, member["node"], uuid, member["path"], namespace)
        cluster._homes[uuid, namespace] = known
    return known


def home_of_node(cluster: "Cluster", node: str, namespace: str = "default") -> Any:
    """Give the home of a node, by its uuid or host: this process's own if it is this host's."""
    nodes = cluster._nodes()
    found = [each for each in nodes if node in {each["node"], each["host"]}]
    if not found:
        known = ", ".join(f"{each['host']} ({each['node']})" for each in nodes)
        raise NotFoundError(f"{node!r} is no node of {cluster.name!r}: it has {known or 'none'}")
    if len(found) > 1:
        raise ArgumentError(f"{node!r} has several nodes of {cluster.name!r}: name one by its uuid")
    return _home_at(cluster, found[0], namespace)


def _home_at(cluster: "Cluster", member: dict[str, Any], namespace: str = "default") -> Any:
    """Give the home of a node as the map tells of it: this process's own if it is this host's."""
    if member["node"] == cluster.node:
        pool = cluster.pool
        return home_of(pool if namespace == "default" else pool.namespaces[namespace])
    return _far_home(cluster, member, namespace)


def serving_homes(cluster: "Cluster") -> list[Any]:
    """Give the homes of the nodes that serve, this host's own first."""
    serving = [each for each in cluster._nodes() if each["state"] == "serving"]
    return sorted((_home_at(cluster, each) for each in serving), key=lambda home: home.is_far)


def _having(cluster: "Cluster", alias: str, asked: list[Any]) -> list[tuple[Any, int]]:
    """Give the objects that have an alias, of the homes that are asked.

    Raises
    ------
    NodeAwayError
        If none has it, and some do not answer.

    """
    away: list[str] = []

    def look(home: Any) -> int | None:
        try:
            return int(home.by_alias(alias))
        except AliasNotFoundError:
            return None
        except NodeAwayError as error:
            away.append(str(error))
            return None

    # Threads of their own: those of calls may all be taken by methods that ask for aliases.
    with ThreadPoolExecutor(max(1, min(len(asked), _ASKED))) as at_once:
        looked = zip(asked, at_once.map(look, asked), strict=True)
        found = [(home, gid) for home, gid in looked if gid is not None]
    if away and not found:
        raise NodeAwayError(
            f"no node of {cluster.name!r} that answers has the alias {alias!r}; {away[0]}"
        )
    return found


def place_of_alias(cluster: "Cluster", alias: str) -> tuple[Any, int]:
    """Find the object of an alias: here, or else on whichever node has it.

    Raises
    ------
    AliasNotFoundError
        If none has it, of those that answer.
    ArgumentError
        If several other nodes have objects of this alias.
    NodeAwayError
        If none has it, and some are away or do not answer.

    """
    serving = serving_homes(cluster)
    for home in serving:
        if not home.is_far:
            with contextlib.suppress(AliasNotFoundError):
                return home, int(home.by_alias(alias))
    found = _having(cluster, alias, [home for home in serving if home.is_far])
    if not found:
        away = [each for each in cluster.members if each.state == "away"]
        if away:  # it is not asked: its lease has ended, and what it has may come back
            raise NodeAwayError(
                f"no node of {cluster.name!r} that serves has the alias {alias!r}, and "
                f"{away[0].host} ({away[0].node}) is away: try again later"
            )
        raise AliasNotFoundError(
            f"no object of the cluster {cluster.name!r} has the alias {alias!r}"
        )
    if len(found) > 1 and len(set(_objects_at(found))) > 1:
        where = " and ".join(sorted(home.location for home, _ in found))
        raise ArgumentError(
            f"different objects have the alias {alias!r} on {where}: say which by pool=, with a "
            "member, and give one of them another alias"
        )
    return found[0]


def _objects_at(found: list[tuple[Any, int]]) -> list[tuple[Any, int]]:
    """Give the keys and the ids of the objects that notes, replicas or objects are, at one moment.

    One that is moved meanwhile is seen where it was first, and then where it is: so what differs is
    looked at again, until it is as it was.
    """
    ends: list[tuple[Any, int]] = []
    for _ in range(_MOST_MOVES):
        before, ends = ends, [_object_at(home, gid) for home, gid in found]
        if len(set(ends)) == 1 or ends == before:
            break
    return ends


def _object_at(home: Any, gid: int) -> tuple[Any, int]:
    """Give the key and the id of the object that a note, a replica or the object itself is."""
    home, gid = ways.end_of(home, gid)
    original = home.notes(gid, REPLICA_OF)
    if original is not None:
        home, gid = ways.end_of(*ways.place_of(home, original))
    return home.key, gid


def check_alias(cluster: "Cluster", home: Any, alias: str, gid: int | None) -> None:
    """Refuse an alias that another object has on another node that answers.

    Raises
    ------
    AliasTakenError
        If one has.

    """
    try:
        others = [each for each in serving_homes(cluster) if each.key[0] != home.key[0]]
        found = _having(cluster, alias, others)
        if found and gid is not None:
            own, *ends = _objects_at([(home, gid), *found])
            found = [each for each, end in zip(found, ends, strict=True) if end != own]
    except (AccessError, CoordinatorError, NodeAwayError):
        return  # without TLS nobody is asked, and a node that is away may have it: nobody knows
    if found:
        raise AliasTakenError(
            f"the alias {alias!r} is taken by an object of {found[0][0].location}: choose another, "
            f"or delete_alias({alias!r}) there first"
        )


def far_again(opened: Any, facts: tuple[Any, ...], place: tuple[Any, ...]) -> ActiveObject:
    """Give an object that was pickled in another process; its cluster is opened if need be."""
    opened(*facts)
    home, gid = _place(place)
    return ActiveObject._handle(home, gid)


def home_again(opened: Any, facts: tuple[Any, ...], key: tuple[str, str]) -> Any:
    """Give a home that was pickled in another process."""
    cluster = opened(*facts)
    for member in cluster._nodes():
        if member["pool"] == key[0]:
            return _home_at(cluster, member, key[1])
    raise NotFoundError(f"no node of {cluster.name!r} has the pool {key[0]}")
