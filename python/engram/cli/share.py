"""`engram share`, `unshare`, `publish`, `unpublish`: who sees a member, or what a query finds."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated, Literal

import typer

from engram.cli import completion, terminal
from engram.cli.app import (
    NamespaceOption,
    PoolArgument,
    PoolOrClusterArgument,
    app,
    clean,
    examples,
    opened,
)
from engram.cli.terminal import counted
from engram.errors import ArgumentError
from engram.size import human

if TYPE_CHECKING:
    from pathlib import Path

    from engram.sharing import Moved, Way

_DONE = {
    "share": "shared",
    "unshare": "private",
    "publish": "published",
    "unpublish": "shared, and no longer published",
}

PathArgument = Annotated[
    str | None,
    typer.Argument(
        metavar="PATH",
        help="An object, or a group with all that is below it; / is everything.",
        autocompletion=completion.members,
    ),
]
WhereOption = Annotated[
    str | None,
    typer.Option("--where", metavar="QUERY", help="What a query finds, instead of PATH."),
]


def _move(
    pool: Path,
    path: str | None,
    where: str | None,
    namespace: str,
    way: Way | Literal["publish"],
    **asked: bool,
) -> None:
    if (path is None) == (where is None):
        raise ArgumentError(f"engram {way} takes a PATH, or --where QUERY, and one of them")
    with opened(pool, namespace, "r+") as (_, root):
        if where is not None:
            with terminal.noting():
                found = root.query(where)
            moved: Moved = getattr(found, way)(**asked)
            what = f"what {where!r} finds"
        else:
            what = clean(path or "") or "/"
            moved = getattr(root, way)(what, **asked)
    if moved.objects + moved.groups == 0:
        terminal.say(f"{what} is where it is to be: nothing has moved")
        return
    objects = counted(moved.objects, "object")
    groups = f" in {counted(moved.groups, 'group')}" if moved.groups else ""
    terminal.say(f"{objects}{groups} ({human(moved.nbytes)}): {_DONE[way]}")


@app.command(
    epilog=examples(
        "engram share /dev/shm/run run-17/T",
        "engram share /dev/shm/run --where 'quality = 4 and under(\"run-17\")'",
    )
)
def share(
    pool: PoolArgument,
    path: PathArgument = None,
    *,
    where: WhereOption = None,
    namespace: NamespaceOption = "default",
) -> None:
    """Let those who share the namespace see what is private: its owner, and its group."""
    _move(pool, path, where, namespace, "share")


@app.command(epilog=examples("engram unshare /dev/shm/run run-17/T"))
def unshare(
    pool: PoolArgument,
    path: PathArgument = None,
    *,
    where: WhereOption = None,
    namespace: NamespaceOption = "default",
) -> None:
    """Keep to yourself what is shared: it becomes private, and yours alone to see."""
    _move(pool, path, where, namespace, "unshare")


@app.command(
    epilog=examples(
        "engram publish /dev/shm/run run-17",
        "engram publish /dev/shm/run --where 'reviewed = 1'",
    )
)
def publish(
    pool: PoolOrClusterArgument,
    path: PathArgument = None,
    *,
    where: WhereOption = None,
    closed: Annotated[
        bool, typer.Option("--closed", help="Also where nobody but the owner may enter.")
    ] = False,
    namespace: NamespaceOption = "default",
) -> None:
    """Let all read it whom the namespace's mode admits; nobody changes it any more."""
    _move(pool, path, where, namespace, "publish", closed=closed)


@app.command(epilog=examples("engram unpublish /dev/shm/run run-17"))
def unpublish(
    pool: PoolArgument,
    path: PathArgument = None,
    *,
    where: WhereOption = None,
    namespace: NamespaceOption = "default",
) -> None:
    """Withdraw what is published: it is shared again, and may be changed."""
    _move(pool, path, where, namespace, "unpublish")
