"""All members below a group in the order of their paths, as one commit has left them.

Paths are compared component by component, each as its bytes of UTF-8. So a group comes before what
is in it, and all of that before the next member beside the group.

Damage costs what is damaged, and nothing else. A look at a damaged page ends a snapshot: the walk
goes on in a new one. What kills whoever reads it is for `apart`: its parent begins a new walk
behind it.
"""

from __future__ import annotations

import itertools
from typing import TYPE_CHECKING, Any, NamedTuple

import engram
from engram.cli import blocks, literals
from engram.cli.apart import in_full
from engram.errors import BusyError, EngramError, PoolFullError, PoolGoneError

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from engram.cli.blocks import Fields
    from engram.cli.describe import Member
    from engram.group import Group
    from engram.namespace import Namespace

    Path = tuple[str, ...]
    At = Callable[[Path, bool], None]
    _Listed = tuple[Path, Group, Iterator[str]]

FATAL = (BusyError, PoolGoneError, PoolFullError)
"""Errors that are of the whole walk, and no damage of a member."""

_PAGE = 1024
"""A group's names come so many at a time."""


class Resume(NamedTuple):
    """Behind which member a walk begins, and whether it goes into that."""

    path: Path
    below: bool


class Found(NamedTuple):
    """A member, with what is said of it; or, if it could not be read, what was wrong."""

    path: Path
    member: Member | None
    kind: str
    fields: Fields
    troubles: list[str]
    """What was met while it was read: then the snapshot may have ended."""

    def total(self) -> Fields:
        """Return the sum of the values; what was wrong, if they could not be read."""
        if self.member is None or isinstance(self.member, engram.Group):
            return {}
        try:
            return {blocks.SUM: blocks.sum_of(self.member)}
        except FATAL:
            raise
        except Exception as error:  # noqa: BLE001 - damage may look like anything to numpy
            self.troubles.append(str(error))
            return told(error)


class Wanted(NamedTuple):
    """What is walked, and who is told where the walk is before it reads something there."""

    group: str
    """The group's path."""

    more: bool
    """Whether fields are given that pools of the same contents do not share."""

    at: At
    """Is called with a path, and whether the names of its members are read, or it itself."""

    again: Callable[[Path], None]
    """Is called where the walk goes on in another snapshot."""


class _DamageError(Exception):
    """Something could not be read."""

    def __init__(self, path: Path, error: Exception, *, names: bool) -> None:
        super().__init__(str(error))
        self.path = path
        self.fields = told(error, names=names)


def told(error: Exception, *, names: bool = False) -> Fields:
    """Return the field that says what was wrong; of what is no error of Engram, its type, too."""
    what = "its further members could not be listed: " if names else ""
    text = str(error) if isinstance(error, EngramError) else in_full(error)
    return {blocks.ERROR: literals.quoted(f"{what}{text}")}


def shown(path: Path) -> str:
    """Return a path as dumps have it: the group that is dumped is /."""
    return "/" + "/".join(path)


def found_below(root: Namespace, wanted: Wanted, resume: Resume | None = None) -> Iterator[Found]:
    """Yield a group of a namespace, and all that is below it.

    What is yielded is to be used before the next is asked for.

    Raises
    ------
    NotFoundError
        If there is no such group.
    ArgumentError
        If it is no group.

    """
    while True:
        with root.snapshot() as then:
            start: Any = then[wanted.group] if wanted.group else then
            if not isinstance(start, engram.Group):
                message = (
                    f"{wanted.group!r} is no group: give a group, or none for the whole namespace"
                )
                raise engram.ArgumentError(message)
            place = resume
            try:
                for path, member in _members(start, wanted.at, resume):
                    place = Resume(path, below=True)
                    found = _described(path, member, wanted)
                    yield found
                    if found.troubles and _is_broken(then):
                        break
                else:
                    return
            except _DamageError as damage:
                yield Found(damage.path, None, blocks.UNREADABLE, damage.fields, [])
                place = Resume(damage.path, below=False)
        resume = place
        wanted.again(place.path if place is not None else ())


def _described(path: Path, member: Member, wanted: Wanted) -> Found:
    """Return a member with what is said of it."""
    full = "/".join((wanted.group, *path) if wanted.group else path)
    try:
        kind = blocks.kind_of(member)
        fields = blocks.fields_of(member, full, more=wanted.more)
        return Found(path, member, kind, fields, [])
    except FATAL:
        raise
    except Exception as error:  # noqa: BLE001 - damage may look like anything to numpy
        return Found(path, None, blocks.UNREADABLE, told(error), [str(error)])


def _is_broken(then: Namespace) -> bool:
    """Whether a snapshot has met damage, and shows nothing any more."""
    try:
        len(then)
    except FATAL:
        raise
    except EngramError:
        return True
    return False


def _members(start: Group, at: At, resume: Resume | None) -> Iterator[tuple[Path, Member]]:
    """Yield a group and all that is below it, or what comes after a member of these."""
    waiting: list[_Listed] = []
    if resume is None:
        at((), False)
        yield (), start
        waiting.append(((), start, _names(start, (), at)))
    else:
        waiting += _behind(start, at, resume)
    while waiting:
        above, group, names = waiting[-1]
        name = next(names, None)
        if name is None:
            waiting.pop()
            continue
        path = (*above, name)
        member = _member(group, path, at)
        yield path, member
        if isinstance(member, engram.Group):
            waiting.append((path, member, _names(member, path, at)))


def _behind(start: Group, at: At, resume: Resume) -> list[_Listed]:
    """Return the groups whose members, or the rest of them, come after a place in a walk."""
    waiting: list[_Listed] = []
    inner: Any = start
    for depth, name in enumerate(resume.path):
        above = resume.path[:depth]
        waiting.append((above, inner, _names(inner, above, at, after=name)))
        if depth + 1 == len(resume.path) and not resume.below:
            return waiting
        inner = _member(inner, (*above, name), at)
    if resume.below and isinstance(inner, engram.Group):
        waiting.append((resume.path, inner, _names(inner, resume.path, at)))
    return waiting


def _member(group: Group, path: Path, at: At) -> Any:
    """Return a member of a group."""
    at(path, False)
    try:
        return group[path[-1]]
    except FATAL:
        raise
    except Exception as error:  # noqa: BLE001 - damage may look like anything
        raise _DamageError(path, error, names=False) from None


def _names(group: Group, path: Path, at: At, after: str | None = None) -> Iterator[str]:
    """Yield the names in a group, those after one of them if it is given."""
    behind = None if after is None else after.encode()
    names: Iterator[str] | None = None
    for number in itertools.count():
        if number % _PAGE == 0:
            at(path, True)
        try:
            names = names or iter(group)
            name = next(names)
        except StopIteration:
            return
        except FATAL:
            raise
        except EngramError as error:
            raise _DamageError(path, error, names=True) from None
        if behind is None or name.encode() > behind:
            yield name
