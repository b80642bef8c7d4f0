"""`engram backup` and `engram compact`: copies of a pool, and what it can give back."""

from __future__ import annotations

from pathlib import Path  # noqa: TC003 - read by Typer
from typing import Annotated

import typer

import engram
from engram.cli import terminal
from engram.cli.app import JsonOption, PoolArgument, app, examples, file_path
from engram.cli.terminal import counted
from engram.size import human


@app.command(
    epilog=examples(
        "engram backup /dev/shm/run /scratch/run-of-monday",
        "engram backup /dev/shm/run /scratch/run-of-monday --json",
    )
)
def backup(
    pool: PoolArgument,
    dest: Annotated[
        Path,
        typer.Argument(metavar="DEST", help="A folder that is made.", parser=file_path),
    ],
    *,
    force: Annotated[
        bool, typer.Option("--force", help="Accept a filesystem that has not been tried.")
    ] = False,
    json: JsonOption = False,
) -> None:
    """Copy a pool, as it is at one moment, while others write; the copy is a pool."""
    with engram.open(pool, mode="r") as handle:
        done = handle.backup(dest, force=force)
    if json:
        terminal.print_json(
            {
                "path": done.path,
                "realms": done.realms,
                "objects": done.objects,
                "nbytes": done.nbytes,
                "skipped": list(done.skipped),
            }
        )
        return
    terminal.say(f"copied {counted(done.objects, 'object')}, {human(done.nbytes)}, to {done.path}")
    for name in done.skipped:
        terminal.say(f"  not copied: {name}, not this user's")


@app.command(epilog=examples("engram compact /dev/shm/run", "engram compact /dev/shm/run --json"))
def compact(pool: PoolArgument, *, json: JsonOption = False) -> None:
    """Give back space that a pool does not need any more; nobody may have it open."""
    done = engram.compact(pool)
    parts = {"catalog": done.catalog, "values": done.arena}
    if json:
        told = {what: {"before": a, "after": b} for what, (a, b) in parts.items()}
        terminal.print_json({"realms": done.realms, **told, "skipped": list(done.skipped)})
        return
    if all(before == after for before, after in parts.values()):
        sizes = ", ".join(f"{what} {human(after)}" for what, (_, after) in parts.items())
        terminal.say(f"nothing to give back: {sizes}")
    else:
        for what, (before, after) in parts.items():
            terminal.say(f"{what}: {human(before)} before, {human(after)} after")
    for name in done.skipped:
        terminal.say(f"  not compacted: {name}, which this user may not open")
