"""What groups, arrays and blobs have in common: a handle is a namespace and an id.

A handle holds no memory and no lock. It stays what it is when its object is renamed or moved, and
answers `NotFoundError` when that object is deleted or replaced; the pool's closing ends it.
"""

import contextlib
import os
from collections.abc import Callable, Iterator
from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING, Any, ClassVar, Literal, Self

from engram import _engram, later, owners, reflexes, tokens
from engram.arguments import truth
from engram.attrs import Attributes
from engram.errors import ArgumentError, EngramError, NotFoundError
from engram.lock import Lock
from engram.plain import printable

if TYPE_CHECKING:
    from engram._engram import GroupInfo, ObjectInfo, Posix, _Found
    from engram.group import Group
    from engram.scope import Scope

_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)

makers: dict[int, Callable[[_engram.Namespace, int, Any, Any], Any]] = {}
"""How to make a handle of what the natives find; each class enters itself."""

reopen: list[Callable[[str, str, str, str | None], _engram.Namespace]] = []
"""How an unpickled handle gets its namespace: by the pool's path, a mode, its name, and the pool's
uuid, if it is to be no other.
"""


def make(namespace: _engram.Namespace, found: "_Found") -> Any:
    """Make the handle of what a native found."""
    kind, member, dtype, shape = found
    return makers[kind](namespace, member, dtype, shape)


def this_host() -> str:
    """Give the name of this host, which what is pickled takes along."""
    return os.uname().nodename


@contextlib.contextmanager
def pickled_on(host: str | None, path: str) -> Iterator[None]:
    """Say of a pool that is not found here that it is another host's, where it is."""
    try:
        yield
    except NotFoundError as error:
        here = this_host()
        if host in {None, here}:
            raise
        raise type(error)(
            f"what was pickled lies in the pool {path!r} of the host {host!r}, which is not on "
            f"this one, {here!r}: unpickle it there; or if it is a cluster's, send its name, and "
            "read cluster[NAME] here"
        ) from error


def unpickle(  # noqa: PLR0917 - as it was pickled
    path: str,
    mode: str,
    namespace: str,
    kind: int,
    member: int,
    uuid: str | None = None,
    host: str | None = None,
) -> Any:
    """Make a handle in this process of one that was pickled in another."""
    with pickled_on(host, path):
        opened = reopen[0](path, mode, namespace, uuid)
    if kind == 0:
        return makers[0](opened, member, None, None)
    info = _engram.object_info(opened, member)
    return makers[kind](opened, member, info.dtype, info.shape)


class Handle:
    """A group, an array or a blob: its place in the pool, who made it and when, its attributes.

    Handles are equal if they are of the same thing in the same pool; they pickle as (path and uuid
    of the pool, namespace, OID, host), and are true while their pool is open.
    """

    __slots__ = ("__weakref__", "_id", "_namespace")

    _kind: ClassVar[int]
    _is_group: ClassVar[bool] = False
    """Whether its id is a group's: of a group, or of a table."""
    _has_members: ClassVar[bool] = False
    """Whether others see members in it."""

    _id: int
    _namespace: _engram.Namespace

    @property
    def path(self) -> str:
        """The path from the namespace's root, without a leading slash; "" at the root."""
        return _engram.path_of(self._namespace, self._is_group, self._id)

    @property
    def name(self) -> str:
        """The last component of the path."""
        return self._info().name

    @property
    def namespace(self) -> str:
        """The namespace's name."""
        return self._namespace.name

    @property
    def parent(self) -> "Group":
        """The group that this is in; at the root, itself."""
        group: Group = makers[0](self._namespace, self._info().parent, None, None)
        return group

    @property
    def owner(self) -> str:
        """The user who made it: a name, or the uid's digits where it has none."""
        return owners.user(self._info().owner)

    @property
    def created(self) -> datetime:
        """When it was made, in UTC."""
        return _EPOCH + timedelta(microseconds=self._info().created // 1000)

    @property
    def modified(self) -> datetime:
        """When it was last changed, in UTC. In-place writes through a view do not count."""
        return _EPOCH + timedelta(microseconds=self._info().modified // 1000)

    @property
    def posix(self) -> "Posix":
        """What a mount shows of it: kind, mode, uid, gid, nlink, size, mtime_ns and so on."""
        return _engram.posix_of(self._namespace, self._is_group, self._id)

    @property
    def scope(self) -> "Scope":
        """Who sees it: its user alone, all who share the namespace, or all who may enter it.

        That is "private", "shared" or "published".
        """
        return self._info().scope

    @property
    def read_only(self) -> bool:
        """Whether changes of it are refused: a hint against mistakes, which can be set and unset.

        A read-only member, and all that is below a read-only group, is not written, replaced,
        deleted, renamed or annotated, and nothing is made there: that is `ReadOnlyError`. It can
        only be taken back where it was set. It keeps out nobody who may write in the namespace.
        """
        return _engram.is_read_only(self._namespace, self._is_group, self._id)

    @read_only.setter
    def read_only(self, on: bool) -> None:
        _engram.set_read_only(self._namespace, self._is_group, self._id, truth("read_only", on))

    @property
    def attrs(self) -> Attributes:
        """The attributes: a mapping of names to values."""
        return Attributes(self._namespace, self._is_group, self._id)

    @property
    def _origin(self) -> bytes:
        """What an import kept beside it: JSON, or nothing."""
        return self._info().origin

    def lock(self, mode: 'Literal["r", "w"]' = "w", *, timeout: float | None = None) -> Lock:
        """Lock it for a with-block, against others that lock it: threads and processes.

        ::

            with pool["counters"].lock("w", timeout=5):
                pool["counters"][0] += 1

        "w" excludes all others, "r" those who ask for "w". Nobody else is kept out: a lock binds
        those who ask for one. The kernel drops it with the process, however that ends. `timeout`
        is in seconds; None waits for ever, until Ctrl-C. A locked member is not shared, unshared or
        published until the lock is let go of.

        Raises
        ------
        BusyError
            If it could not be had in time; the message names its holder, or the process that moves
            it to another scope. Also for "w" inside this thread's own "r".
        NotFoundError
            If it is gone, or went while one waited.
        ReadOnlyError
            For "w", if the pool was opened with mode "r", or it is published.

        """
        return Lock(self._namespace, self._is_group, self._id, mode, timeout)

    def _info(self) -> "GroupInfo | ObjectInfo":
        if self._is_group:
            return _engram.group_info(self._namespace, self._id)
        return _engram.object_info(self._namespace, self._id)

    if not TYPE_CHECKING:  # checkers are to know what there is not

        def __getattr__(self, name: str) -> Any:
            """Say what is called otherwise in h5py."""
            raise reflexes.of_handle(self, name, is_group=self._is_group)

    def __bool__(self) -> bool:
        return self._namespace.is_open

    def __eq__(self, other: object) -> bool:
        if not isinstance(other, Handle):
            return NotImplemented
        return (
            self._id == other._id
            and self._is_group == other._is_group
            and self._namespace.same_pool(other._namespace)
        )

    def __hash__(self) -> int:
        return hash((self._namespace.uuid, self._id))

    def __copy__(self) -> Self:
        return self

    def __deepcopy__(self, memo: object) -> Self:
        return self

    def __reduce__(self) -> tuple[Any, ...]:
        namespace = self._namespace
        if namespace.is_snapshot:
            raise ArgumentError(
                f"{self.path!r} is of a snapshot, which is of this process alone and cannot be "
                "pickled: pickle it as it is in the pool"
            )
        mode = "r+" if namespace.writable else "r"
        place = (str(namespace.pool_path), mode, namespace.name)
        return unpickle, (*place, self._kind, self._id, namespace.uuid, this_host())

    def __dask_tokenize__(self) -> object:
        """By what name dask knows what this holds: another one each time, as it may change."""
        return tokens.new()

    def _repr_html_(self) -> str:
        return later.card(self)

    def _shown(self, facts: str) -> str:
        """One line: class, path and `facts`; what has become of it, if it is gone."""
        title = f"engram.{type(self).__name__}"
        try:
            return f"<{title} '{printable(self.path)}' {facts}>"
        except EngramError:
            state = "gone" if self._namespace.is_open else "closed"
            return f"<{title} {self._id:#x} ({state}) {facts}>"
