"""`engram backup`, `compact`, `upgrade`: a pool copied, made small, made one of this format."""

from __future__ import annotations

import dataclasses
from pathlib import Path  # noqa: TC003 - read by Typer
from typing import Annotated, Any

import typer

import engram
from engram.cli import terminal
from engram.cli.app import (
    LEFT_OUT,
    JsonOption,
    PoolArgument,
    app,
    examples,
    file_path,
)
from engram.cli.terminal import counted
from engram.size import human

AllowPartialOption = Annotated[
    bool,
    typer.Option(
        "--allow-partial", help="Leave out also what is damaged and yours, and exit with 0."
    ),
]


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
    allow_partial: AllowPartialOption = False,
    json: JsonOption = False,
) -> None:
    """Copy a pool, as it is at one moment, while others write; the copy is a pool.

    What is another user's and damaged is left out, as told, and the exit code is 4.
    """
    with engram.open(pool, mode="r") as handle:
        done = handle.backup(dest, force=force, allow_partial=allow_partial)
    if json:
        terminal.print_json(
            {
                "path": done.path,
                "realms": done.realms,
                "objects": done.objects,
                "nbytes": done.nbytes,
                "skipped": list(done.skipped),
                "left_out": _told(done),
            }
        )
        _end(done, allow_partial=allow_partial)
        return
    terminal.say(f"copied {counted(done.objects, 'object')}, {human(done.nbytes)}, to {done.path}")
    for name in done.skipped:
        terminal.say(f"  not copied: {name}, not this user's")
    for part in done.left_out:
        terminal.say(f"  left out: {part}")
    _end(done, allow_partial=allow_partial)


def _told(done: engram.Backup | engram.Compaction) -> list[dict[str, Any]]:
    """Return what was left out, for JSON."""
    return [dataclasses.asdict(part) for part in done.left_out]


def _end(done: engram.Backup | engram.Compaction, *, allow_partial: bool) -> None:
    """Say by the exit code that something was left out."""
    if done.left_out and not allow_partial:
        raise typer.Exit(LEFT_OUT)


@app.command(epilog=examples("engram compact /dev/shm/run", "engram compact /dev/shm/run --json"))
def compact(
    pool: PoolArgument, *, allow_partial: AllowPartialOption = False, json: JsonOption = False
) -> None:
    """Give back space that a pool does not need any more; nobody may have it open.

    What is another user's and damaged stays as it is, as told, and the exit code is 4.
    """
    done = engram.compact(pool, allow_partial=allow_partial)
    parts = {"catalog": done.catalog, "values": done.arena}
    if json:
        told = {what: {"before": a, "after": b} for what, (a, b) in parts.items()}
        left = {"skipped": list(done.skipped), "left_out": _told(done)}
        terminal.print_json({"realms": done.realms, **told, "joined": done.joined, **left})
        _end(done, allow_partial=allow_partial)
        return
    if all(before == after for before, after in parts.values()):
        sizes = ", ".join(f"{what} {human(after)}" for what, (_, after) in parts.items())
        terminal.say(f"nothing to give back: {sizes}")
    else:
        for what, (before, after) in parts.items():
            terminal.say(f"{what}: {human(before)} before, {human(after)} after")
    if done.joined:
        terminal.say(f"files in fragments, now in one piece each: {done.joined}")
    for name in done.skipped:
        terminal.say(f"  not compacted: {name}, which this user may not open")
    for part in done.left_out:
        terminal.say(f"  left out: {part}")
    _end(done, allow_partial=allow_partial)


@app.command(
    epilog=examples(
        "engram upgrade /dev/shm/run",
        "engram upgrade /dev/shm/run --to /scratch/run",
        "engram upgrade /dev/shm/run --json",
    )
)
def upgrade(
    pool: PoolArgument,
    *,
    to: Annotated[
        Path | None,
        typer.Option(
            metavar="NEWPOOL",
            help="Leave the pool as it is, and make the new one in this folder.",
            parser=file_path,
        ),
    ] = None,
    force: Annotated[
        bool, typer.Option("--force", help="With --to: accept a filesystem that was not tried.")
    ] = False,
    json: JsonOption = False,
) -> None:
    """Make a pool of an earlier format one of this engram's; run it again if it was interrupted.

    The new pool is made beside the old one, verified, and takes its name. Nobody may have it open.
    """
    done = engram.upgrade(pool, to, force=force)
    if json:
        terminal.print_json(
            {
                "path": done.path,
                "before": done.before,
                "after": done.after,
                "resumed": done.resumed,
                "realms": done.realms,
                "objects": done.objects,
                "nbytes": done.nbytes,
                "skipped": list(done.skipped),
            }
        )
        return
    if done.before == done.after:
        terminal.say(f"{done.path} has format {done.after} already: there is nothing to do")
    elif done.resumed:
        terminal.say(f"{done.path} has format {done.after}: the rest of its upgrade is done")
    else:
        what = f"{counted(done.objects, 'object')}, {human(done.nbytes)}"
        terminal.say(f"upgraded from format {done.before} to {done.after}: {what}, in {done.path}")
    for name in done.skipped:
        terminal.say(f"  left out: {name}")
