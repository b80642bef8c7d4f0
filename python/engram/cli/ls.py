"""`engram ls`: what is in a group."""

from __future__ import annotations

import contextlib
import itertools
import sys
from typing import TYPE_CHECKING, Annotated, Any

import typer

import engram
from engram import owners
from engram.cli import describe, terminal
from engram.cli.app import (
    JsonOption,
    NamespaceOption,
    PoolOrClusterArgument,
    WhereArgument,
    app,
    clean,
    examples,
    opened,
)
from engram.cli.terminal import plain
from engram.errors import NotFoundError
from engram.size import human

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

    from engram.cli.describe import Member

_HEADINGS = ("kind", "dtype", "shape", "bytes", "scope", "owner", "modified", "name")
_RIGHT = ("bytes",)


@app.command(
    epilog=examples(
        "engram ls /dev/shm/run",
        "engram ls -l /dev/shm/run run-17/step-0400",
        "engram ls -r --json /dev/shm/run",
    )
)
def ls(
    pool: PoolOrClusterArgument,
    path: WhereArgument = "/",
    *,
    long: Annotated[
        bool, typer.Option("--long", "-l", help="Add dtype, shape, bytes, scope, owner, time.")
    ] = False,
    recursive: Annotated[bool, typer.Option("--recursive", "-r", help="Go into groups.")] = False,
    namespace: NamespaceOption = "default",
    json: JsonOption = False,
) -> None:
    """List what is in a group."""
    where = clean(path)
    with opened(pool, namespace) as (_, root):
        start: Member = root[where] if where else root
        found = members(start, where, recursive=recursive)
        if json:
            terminal.print_json([facts for _, facts in _told(found)])
        elif long:
            _print_long(found)
        else:
            _print_names(found)


def members(start: Member, path: str, *, recursive: bool) -> Iterator[tuple[str, Member]]:
    """Yield members with the names to show: relative to `start`, or of `start` if an object."""
    if not isinstance(start, engram.Group):
        yield path, start
        return
    waiting = [("", start)]
    while waiting:
        prefix, group = waiting.pop()
        below = []
        for name, member in group.items():
            shown = f"{prefix}{name}"
            yield shown, member
            if recursive and isinstance(member, engram.Group):
                below.append((f"{shown}/", member))
        waiting.extend(reversed(below))


def _told(found: Iterable[tuple[str, Member]]) -> Iterator[tuple[str, dict[str, Any]]]:
    """Yield members' names and facts, without those that somebody deletes meanwhile."""
    for name, member in found:
        with contextlib.suppress(NotFoundError):
            yield name, describe.facts(name, member)


def _print_names(found: Iterable[tuple[str, Member]]) -> None:
    """Print names alone: in columns on a terminal, else one a line, as they come."""
    names: Iterator[str] = (
        plain(name) + ("/" if isinstance(m, engram.Group) else "") for name, m in found
    )
    if sys.stdout.isatty():
        first = list(itertools.islice(names, terminal.AT_A_GLANCE + 1))
        if len(first) <= terminal.AT_A_GLANCE:
            terminal.print_columns(first, [name.endswith("/") for name in first])
            return
        names = itertools.chain(first, names)
    for name in names:
        sys.stdout.write(f"{name}\n")


def _print_long(found: Iterable[tuple[str, Member]]) -> None:
    """Print a line of facts for each: fitted to a terminal if they are few, else as they come."""
    rows = _rows(found)
    first = next(rows, None)
    if sys.stdout.isatty() and first is None:
        terminal.say("no members")
        return
    every = rows if first is None else itertools.chain([first], rows)
    terminal.print_stream(_HEADINGS, every, key="name", right=_RIGHT)


def _shape(member: Member) -> str:
    """Return an array's shape; of a chunked one also its chunks and codec."""
    if isinstance(member, engram.Table):
        return terminal.counted(len(member), "row")
    if not isinstance(member, engram.Array):
        return "-"
    return describe.shape_text(member.shape) + describe.layout_text(member)


def _rows(found: Iterable[tuple[str, Member]]) -> Iterator[tuple[str, ...]]:
    """Yield what `ls -l` shows of each; what somebody deletes meanwhile is left out."""
    for name, member in found:
        with contextlib.suppress(NotFoundError):
            about = member._info()
            is_group = isinstance(member, engram.Group)
            row = (
                describe.kind(member),
                describe.dtype_text(member.dtype) if isinstance(member, engram.Array) else "-",
                _shape(member),
                "-" if isinstance(member, engram.Group) else human(member.nbytes),
                about.scope,
                owners.user(about.owner),
                describe.time(about.modified),
                name + ("/" if is_group else ""),
            )
            yield tuple(map(plain, row))
