"""`engram index`, `engram reindex`: the queue drained, objects indexed anew, figures."""

from __future__ import annotations

from dataclasses import asdict
from typing import TYPE_CHECKING, Annotated, Any

import typer

import engram
from engram import _engram
from engram.cli import completion, terminal
from engram.cli.app import (
    JsonOption,
    NamespaceOption,
    PoolArgument,
    app,
    clean,
    examples,
    mode_of,
    opened,
)
from engram.cli.bar import Bar
from engram.cli.terminal import counted
from engram.errors import ArgumentError

if TYPE_CHECKING:
    from engram.index_stats import IndexStats
    from engram.namespace import Namespace
    from engram.pool import Pool

GroupArgument = Annotated[
    str,
    typer.Argument(
        metavar="GROUP",
        help="Objects below this group; all if none.",
        autocompletion=completion.groups,
    ),
]

_PART = 4096
"""So many objects are indexed between two looks at the progress bar."""


@app.command(
    epilog=examples(
        "engram index /dev/shm/run",
        "engram index /dev/shm/run --status",
        "engram index /dev/shm/run run-17 --mode async",
        "engram index /dev/shm/run -n icesat --json",
    )
)
def index(
    pool: PoolArgument,
    group: GroupArgument = "/",
    *,
    mode: Annotated[
        str | None,
        typer.Option(
            metavar="MODE", help="Of what is stored below it from now on: sync, async or none."
        ),
    ] = None,
    status: Annotated[bool, typer.Option("--status", help="Print figures alone.")] = False,
    namespace: NamespaceOption = "default",
    json: JsonOption = False,
) -> None:
    """Index what waits in the queue of async indexing, and tell what the index is made of.

    A process that has the pool open for writing does so by itself; this is for when there is none.
    With --mode, it is set first; with a group, attribute groups are told of what lies below it.
    """
    chosen = mode_of(mode)
    if status and chosen:
        raise ArgumentError("--status changes nothing: leave it out, or --mode")
    with opened(pool, namespace, "r" if status else "r+") as (_, root):
        start = _group(root, group)
        if chosen:
            start.set_index(index=chosen)
        done = 0 if status else _drained(root)
        stats = start.index_stats()
    if json:
        terminal.print_json({"indexed": done, **_plain(stats)})
        return
    if not status:
        terminal.say(f"indexed {counted(done, 'object')} that waited in the queue")
    terminal.print_lines(str(stats).split("\n"))


def _group(root: Namespace | Pool, path: str) -> engram.Group:
    """Return the group at a path."""
    where = clean(path)
    start = root[where] if where else root
    if not isinstance(start, engram.Group):
        raise ArgumentError(f"{where!r} is no group: name one, or none for all objects")
    return start


def _drained(root: Namespace | Pool) -> int:
    """Index what is queued, do what maintenance is due, and return how many objects it were."""
    done, total = 0, root.index_stats().queued
    with Bar("indexing", total, unit="items") as bar:
        while part := root.drain_index(_PART):
            done += part
            bar.update(done)
        _engram.maintain(root._namespace)
    return done


def _plain(stats: IndexStats) -> dict[str, Any]:
    """Return figures as plain values."""
    return {**stats, "groups": [asdict(group) for group in stats.groups]}


@app.command(
    epilog=examples(
        "engram reindex /dev/shm/run",
        "engram reindex /dev/shm/run run-17 --index async",
    )
)
def reindex(
    pool: PoolArgument,
    group: GroupArgument = "/",
    *,
    mode: Annotated[
        str, typer.Option("--index", metavar="MODE", help="Their mode: sync, async or none.")
    ] = "sync",
    namespace: NamespaceOption = "default",
    json: JsonOption = False,
) -> None:
    """Index all objects below a group anew, those that were stored without an index too."""
    where = clean(group)
    with opened(pool, namespace, "r+") as (_, root):
        done = _group(root, group).reindex(index=mode_of(mode) or "sync")
    if json:
        terminal.print_json({"group": where, "index": mode, "objects": done})
    else:
        terminal.say(f"indexed {counted(done, 'object')} below /{where} anew, mode {mode}")
