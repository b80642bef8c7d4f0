"""`engram rm` and `engram protect`: members deleted, and kept from changes."""

from __future__ import annotations

from typing import Annotated

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
from engram.errors import ArgumentError


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
