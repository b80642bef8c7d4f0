"""`engram mv`, `engram rm` and `engram protect`: members moved, deleted, kept from changes."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated

import typer

import engram
from engram.cli import completion, terminal
from engram.cli.app import (
    NamespaceOption,
    PoolArgument,
    PoolOrClusterArgument,
    app,
    clean,
    examples,
    object_path,
    opened,
)
from engram.cli.terminal import plain
from engram.errors import ArgumentError, ExistsError

if TYPE_CHECKING:
    from engram.group import Group


@app.command(
    epilog=examples(
        "engram mv /dev/shm/run run-17/T run-17/temperature",
        "engram mv /dev/shm/run run-17 archive/    # into a group",
    )
)
def mv(
    pool: PoolArgument,
    old: Annotated[
        str,
        typer.Argument(
            metavar="OLD", help="What to rename or move.", autocompletion=completion.members
        ),
    ],
    new: Annotated[
        str,
        typer.Argument(
            metavar="NEW",
            help="Its new path, or a group to move it into.",
            autocompletion=completion.groups,
        ),
    ],
    *,
    namespace: NamespaceOption = "default",
) -> None:
    """Rename a member, or move it: it stays the same object, with all that is below it."""
    with opened(pool, namespace, "r+") as (_, root):
        source = object_path(old)
        root[source]  # which says what is there instead, if it is missing
        target = _target(root, source, new)
        try:
            root.move(source, target)
        except ExistsError:
            message = f"{target}: exists already; `engram rm` it first, or choose another name"
            raise ExistsError(message) from None
        terminal.say(f"{source} is now {target}")


def _target(root: Group, source: str, new: str) -> str:
    """Return the path that a member moves to: in a group, if `new` is one or ends with a slash."""
    target = clean(new)
    into = not target or new.endswith("/")
    if not into and target != source:
        into = isinstance(root.get(target), engram.Group)
    return f"{target}/{source.rpartition('/')[2]}".lstrip("/") if into else target


@app.command(epilog=examples("engram rm /dev/shm/run run-17/T", "engram rm -r /dev/shm/run run-17"))
def rm(
    pool: PoolOrClusterArgument,
    paths: Annotated[
        list[str],
        typer.Argument(
            metavar="PATH...", help="What to delete.", autocompletion=completion.members
        ),
    ],
    *,
    recursive: Annotated[
        bool, typer.Option("--recursive", "-r", help="Delete groups, with all in them.")
    ] = False,
    namespace: NamespaceOption = "default",
) -> None:
    """Delete objects and groups: all of those named, or none."""
    with opened(pool, namespace, "r+") as (_, root), root.batch():
        names = [object_path(path) for path in paths]
        # A name that is missing is told of while everything is there still.
        for name in names:
            root[name]
        for name in names:
            member = root.get(name)
            if not recursive and isinstance(member, engram.Group) and len(member):
                message = (
                    f"{plain(name)}: is a group with members; add -r to delete it with all in it"
                )
                raise ArgumentError(message)
            if member is not None:  # else it went with one named before
                del root[name]


@app.command(
    epilog=examples(
        "engram protect /dev/shm/run run-17", "engram protect /dev/shm/run run-17 --off"
    )
)
def protect(
    pool: PoolArgument,
    path: Annotated[
        str,
        typer.Argument(
            metavar="PATH",
            help="What to keep as it is; / for all.",
            autocompletion=completion.members,
        ),
    ],
    *,
    off: Annotated[bool, typer.Option("--off", help="Allow changes again.")] = False,
    namespace: NamespaceOption = "default",
) -> None:
    """Refuse changes of a member, and of all that is below a group: a hint against mistakes."""
    with opened(pool, namespace, "r+") as (_, root):
        name = clean(path)
        member = root[name] if name else root
        member.read_only = not off
        terminal.say(
            f"{plain(name) or '/'} {'may be changed again' if off else 'is read-only now'}"
        )
