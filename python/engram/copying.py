"""Copies of members, and moves to another namespace: within a pool, or into another one.

A copy is made by the engine in one commit of its target (`engine/pool/src/namespace/copies.rs`,
with the essay): all of it is there, or nothing. Here stands what the engine does not know: which
members cannot be copied, and which words of an import know members by their ids.
"""

from typing import TYPE_CHECKING, Any, NamedTuple

from engram import _engram, later
from engram.arguments import truth
from engram.errors import ArgumentError, ExistsError, NotFoundError, UnsupportedError

if TYPE_CHECKING:
    from collections.abc import Callable

    from engram.scope import Scope

    Told = Callable[["CopyProgress"], object]

_ACTIVE = ".active"
"""The group in which active objects lie, which know each other by their ids."""


class CopyProgress(NamedTuple):
    """How far a copy is."""

    path: str
    """What is copied: its path."""
    done: int
    """How many bytes of values have been copied."""
    total: int
    """How many there are; holes, and values that stand in records, are none."""


class Copied(NamedTuple):
    """What was copied."""

    is_group: bool
    """Whether it is a group."""
    id: int
    """The copy's id."""
    objects: int
    """How many objects."""
    groups: int
    """How many groups."""
    nbytes: int
    """How many bytes their values have."""


class Spot(NamedTuple):
    """A path from a group of a namespace."""

    namespace: _engram.Namespace
    group: int
    path: str

    @property
    def full(self) -> str:
        """The path from the namespace's root."""
        if self.path.startswith("/"):
            return self.path.strip("/")
        above = _engram.path_of(self.namespace, True, self.group)
        return f"{above}/{self.path}".strip("/")


def copy(
    source: Spot,
    target: Spot,
    *,
    overwrite: bool = False,
    scope: "Scope | None" = None,
    progress: "Told | None" = None,
    words: bytes | None = None,
) -> Copied:
    """Copy a member, a group with all that is below it, to another path.

    `words` are the origin of the copy of an object, if they are not its own. The other arguments,
    and what is raised, are as of `Group.copy`.
    """
    _refuse_active(source, target)
    truth("overwrite", overwrite)
    if _is_same_namespace(source, target) and source.full == target.full:
        raise ArgumentError(
            f"{source.full or '/'!r} cannot be copied to where it is: give the copy another path"
        )
    if _is_inside(source, target):
        raise ArgumentError(
            f"{source.path!r} cannot be copied into itself, to {target.full!r}: copy it beside "
            "itself first"
        )
    plan = _plan(source)
    if words is None:
        words = _words(plan, source)
    return _put(plan, source, target, overwrite, scope, progress, words)


def move(
    source: Spot,
    target: Spot,
    *,
    scope: "Scope | None" = None,
    progress: "Told | None" = None,
) -> Copied | None:
    """Move a member, a group with all that is below it, to another path.

    Within a namespace it is renamed: that is None. To another one it is copied, and goes here once
    it is there. Arguments, and what is raised, are as of `Group.move`.
    """
    if _is_same_namespace(source, target):
        if scope is not None:
            raise ArgumentError(
                f"scope={scope!r} is of a move to another namespace: within one, a member keeps "
                "its scope until share(), unshare() or publish()"
            )
        new = target.path if source.group == target.group else f"/{target.full}"
        _engram.rename(source.namespace, source.group, source.path, new)
        return None
    _refuse_active(source, target)
    if not source.full:
        raise ArgumentError(
            "the root of a namespace is not moved: name what is in it, or copy it with '/'"
        )
    leaving = _engram.Leaving(source.namespace, source.group, source.path)
    try:
        plan = _plan(source)
        try:
            made = _put(plan, source, target, False, scope, progress, _words(plan, source))
        except ExistsError as error:
            made = _is_there(plan, source, target, error)
        leaving.go(plan)
    finally:
        leaving.stay()
    return made


def _plan(source: Spot) -> "_engram.Copying":
    return _engram.Copying(source.namespace, source.group, source.path)


def _words(plan: "_engram.Copying", source: Spot) -> bytes | None:
    """Give the words of an object's copy, if its group has some of it that are to go along."""
    is_group, oid = plan.member
    if is_group:
        return None
    info = _engram.object_info(source.namespace, oid)
    of_group = _engram.group_info(source.namespace, info.parent).origin
    words = later.words_of_copy(info.origin, of_group, oid) if of_group else info.origin
    return None if words == info.origin else words


def _put(  # noqa: PLR0917 - as its callers have it
    plan: "_engram.Copying",
    source: Spot,
    target: Spot,
    overwrite: bool,
    scope: "Scope | None",
    progress: "Told | None",
    words: bytes | None,
) -> Copied:
    """Make a copy of what was looked at."""
    objects, groups, nbytes = plan.counts()
    total, done = plan.nbytes_to_copy(), 0
    own = plan.member[1]

    def told(more: int) -> None:
        nonlocal done
        done += more
        if progress is not None:
            progress(CopyProgress(source.full, done, total))

    def origins(ids: dict[int, int], kept: list[tuple[int, bytes]]) -> list[tuple[int, bytes]]:
        if words is not None:
            kept = [each for each in kept if each[0] != own] + [(own, words)]
        return later.renumbered(kept, ids) if kept else kept

    place = (target.namespace, target.group, target.path)
    is_group, member = plan.put(*place, overwrite, scope, told, origins)
    return Copied(is_group, member, objects, groups, nbytes)


def _is_there(plan: "_engram.Copying", source: Spot, target: Spot, error: ExistsError) -> Copied:
    """Tell of the copy that a move has left which was cut short, if it is one."""
    try:
        there = _plan(target)
    except NotFoundError:  # a name on the way is taken
        raise error from None
    if (unlike := plan.difference(there)) is not None:
        path, why = unlike
        raise ExistsError(
            f"{target.full!r} exists in namespace {target.namespace.name!r} of "
            f"{target.namespace.pool_path}, and is not what {source.full!r} is: "
            f"{'/'.join(filter(None, (target.full, path.strip('/'))))!r} {why}; nothing was moved. "
            "Move it to another name, or delete one of the two first"
        ) from None
    return Copied(*there.member, *plan.counts())


def _is_same_namespace(source: Spot, target: Spot) -> bool:
    one, other = source.namespace, target.namespace
    return one.same_pool(other) and one.name == other.name


def _is_inside(source: Spot, target: Spot) -> bool:
    if not _is_same_namespace(source, target):
        return False
    return f"{target.full}/".startswith(f"{source.full}/" if source.full else "")


def _refuse_active(source: Spot, target: Spot) -> None:
    """Refuse active objects: they know each other, and their classes, by ids of their pool."""
    for spot in (source, target):
        full = spot.full
        is_one = full == _ACTIVE or full.startswith(f"{_ACTIVE}/")
        if is_one or (spot is source and not full and _has_active(spot.namespace)):
            raise UnsupportedError(
                f"{full or '/'!r} has active objects, which are not copied: they know each other "
                "by their ids. Copy the groups and arrays beside them, and make the objects anew "
                "there, as with dc_clone()"
            )


def _has_active(namespace: _engram.Namespace) -> bool:
    return _engram.contains(namespace, namespace.root, _ACTIVE)


def spot_of(group: Any, path: str) -> Spot:
    """Give the place of a path from a group.

    Raises
    ------
    ArgumentError
        If it is no group, or the path no text.

    """
    if not getattr(group, "_has_members", False):
        raise ArgumentError(
            f"target {group!r} is no group: give one, such as another pool, or none for this group"
        )
    if not isinstance(path, str):
        raise ArgumentError(
            f"{path!r} is of type {type(path).__name__}, and names and paths are str"
        )
    return Spot(group._namespace, group._id, path)
