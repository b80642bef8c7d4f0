"""Homes of active objects on other nodes: what the rest of this package asks of one.

A cluster has them (`engram.cluster.homes`), and enters what finds one by its pool. An object that
lies in such a home is of a class of its own, below the object's: what is done with it is done
there, in a process of that node.
"""

import functools
from abc import ABC, abstractmethod
from collections.abc import Callable, MutableMapping
from typing import TYPE_CHECKING, Any, ClassVar, Final, ParamSpec, TypeVar

from engram.active.errors import WentFarError

if TYPE_CHECKING:
    from concurrent.futures import Future

    from engram.active.object import ActiveObject
    from engram.active.places.parcels import Parcel


P = ParamSpec("P")
R = TypeVar("R")


class FarHome(ABC):
    """A namespace of another node's pool, as the home of active objects."""

    is_far: ClassVar[bool] = True
    key: tuple[str, str]
    """The uuid of the pool, and the namespace."""
    pool_path: str
    """Where the pool lies on its node."""
    location: str
    """The backend, as text that `backend_id` takes."""
    live: MutableMapping[int, Any]
    """The objects of it that this process has."""

    @abstractmethod
    def handle(self, gid: int, wanted: "type[ActiveObject]") -> "ActiveObject":
        """Give the Python object of a stored one, or of what it has become elsewhere."""

    @abstractmethod
    def fit(self, obj: Any) -> None:
        """Make of an object one that lies here."""

    @abstractmethod
    def call(self, obj: Any, name: str, args: Any, kwargs: Any, *, again: bool) -> Any:
        """Run a method of an object; once at most, unless it may be run `again`."""

    @abstractmethod
    def submit(self, obj: Any, name: str, args: Any, kwargs: Any, *, again: bool) -> "Future[Any]":
        """Do as `call`, and do not wait for the end."""

    @abstractmethod
    def notes(self, gid: int, name: str) -> Any:
        """Give what an object notes under a name."""

    @abstractmethod
    def is_there(self, gid: int) -> bool:
        """Tell whether there is an object."""

    @abstractmethod
    def keep_for_others(self, gid: int) -> None:
        """Note that something of another home refers to an object."""

    @abstractmethod
    def settle(self, gid: int) -> bool:
        """Let a copy that has arrived be an object as any other; tell whether it is one."""

    @abstractmethod
    def make(self, parcel: "Parcel", alias: str | None, scope: str | None) -> list[int]:
        """Make new objects, the first with an alias; give their ids."""

    @abstractmethod
    def arrive(self, parcel: "Parcel") -> int:
        """Make the copy of an object that is about to move here; give its id."""

    @abstractmethod
    def replicate(self, parcel: "Parcel") -> list[int]:
        """Make replicas of objects; give their ids."""

    @abstractmethod
    def collect(self, dry_run: bool, older_than: float) -> tuple[int, int, int, int]:
        """Delete objects that no alias leads to, as `gc` does; give what `Collected` has."""

    @abstractmethod
    def unreachable(self) -> list[tuple[int, str, int]]:
        """Give the objects that no alias leads to, each as `Unreachable` has it."""

    @abstractmethod
    def refresh(self, gid: int, parcel: "Parcel") -> None:
        """Bring a replica up to date."""


class Near:
    """What tells a home of this process's own from one on another node."""

    is_far: ClassVar[bool] = False

    def fit(self, obj: Any) -> None:
        """Make of an object one that lies here."""
        near = getattr(type(obj), "_near_class", None)
        if near is not None:
            obj.__class__ = near


finders: Final[list[Callable[[str, str], FarHome | None]]] = []
"""What finds the home of a pool's uuid and a namespace; None if it is on no other node."""

namers: Final[list[Callable[[Any], Any]]] = []
"""What finds the home, near or far, that a cluster's name for a backend means; None if none."""


def follows(method: Callable[P, R]) -> Callable[P, R]:
    """Have what an object is asked done elsewhere, if it is found to have gone there meanwhile."""

    @functools.wraps(method)
    def asked(*args: P.args, **kwargs: P.kwargs) -> R:
        try:
            return method(*args, **kwargs)
        except WentFarError:
            obj, *rest = args
            if not getattr(obj, "_home").is_far:  # noqa: B009 - of whatever object it is
                raise
            there: R = getattr(obj, method.__name__)(*rest, **kwargs)
            return there

    return asked


locators: Final[list[Callable[[Any], str | None]]] = []
"""What names a home of this process's own as other nodes name it; None if no cluster has it."""


alias_checks: Final[list[Callable[[Any, str, int | None], None]]] = []
"""What refuses an alias for an object of a home, or a new one, that another node's object has."""


def check_alias(home: Any, alias: str, gid: int | None = None) -> None:
    """Refuse an alias that an object of another node has.

    Nothing is kept of the answer: two nodes that give an alias at one moment both do.
    """
    for check in alias_checks:
        check(home, alias, gid)


def find(uuid: str, namespace: str) -> FarHome | None:
    """Give the home of a pool on another node, if a cluster has it."""
    for finder in finders:
        found = finder(uuid, namespace)
        if found is not None:
            return found
    return None


def named(backend: Any) -> Any:
    """Give the home that a cluster's name for a backend means, if it is one."""
    for namer in namers:
        found = namer(backend)
        if found is not None:
            return found
    return None
