"""`engram create`, `engram destroy`, `engram adopt` and `engram verify`: whole pools."""

from __future__ import annotations

import dataclasses
import enum
import sys
from pathlib import Path  # noqa: TC003 - read by Typer
from typing import TYPE_CHECKING, Annotated

import typer

import engram
from engram.cli import terminal
from engram.cli.app import (
    IndexOption,
    JsonOption,
    PoolArgument,
    PoolOrClusterArgument,
    app,
    bits_of,
    examples,
    group_of,
    mode_of,
)
from engram.errors import ArgumentError, NotFoundError, PoolNotFoundError
from engram.size import human

if TYPE_CHECKING:
    from engram.index import IndexSettings

_IN_BYTES = {"used", "free", "pending", "arena", "checked_bytes"}
_SURVIVES = {
    "process": "survives the death of any process, not a power cut",
    "system": "survives a power cut too",
}


class Durability(enum.StrEnum):
    """What a pool may promise."""

    auto = "auto"
    process = "process"
    system = "system"


@app.command(
    epilog=examples(
        "engram create /dev/shm/run --size 4GiB",
        "engram create /scratch/run --size 2TiB --device /nvme0 --device /nvme1",
    )
)
def create(
    pool: PoolArgument,
    *,
    size: Annotated[
        str, typer.Option(metavar="BYTES", help="Most bytes of values, such as 500MB or 4GiB.")
    ] = ("4 GiB"),
    device: Annotated[
        list[Path] | None,
        typer.Option(
            metavar="DIR",
            help="A further folder, or devdax node, to put values in; may be repeated.",
        ),
    ] = None,
    durability: Annotated[
        Durability, typer.Option(help="What must survive; auto asks the filesystem.")
    ] = Durability.auto,
    prefault: Annotated[
        bool,
        typer.Option(
            "--prefault", help="Take all of the space now, and touch it, so that writing is fast."
        ),
    ] = False,
    checksums: Annotated[
        bool,
        typer.Option("--checksums", help="Keep checksums of all values, for `verify` to compare."),
    ] = False,
    emulate: Annotated[
        str | None,
        typer.Option(
            metavar="pmem", help="Copy at the pace of persistent memory, for evaluation alone."
        ),
    ] = None,
    force: Annotated[
        bool, typer.Option("--force", help="Accept a filesystem that has not been tried.")
    ] = False,
    mode: Annotated[
        str | None,
        typer.Option(
            metavar="OCTAL",
            help="Who may enter: 700, you; 755, all read what is published; 770, its group writes.",
        ),
    ] = None,
    group: Annotated[
        str | None, typer.Option(metavar="GROUP", help="Its Unix group, by name or number.")
    ] = None,
    index: IndexOption = None,
) -> None:
    """Create a pool in a new folder."""
    indexed = mode_of(index)
    settings: IndexSettings = {} if indexed is None else {"index": indexed}
    with engram.create(
        pool,
        size=size,
        devices=[str(d) for d in device or ()] or None,
        durability=durability.value,
        prefault=prefault,
        force=force,
        checksums=checksums,
        emulate=emulate,
        mode=0o700 if mode is None else bits_of(mode),
        group=group_of(group),
        **settings,
    ) as made:
        terminal.say(
            f"created {made.path}: up to {human(made.size)}, durability "
            f"{made.durability} ({_SURVIVES[made.durability]})"
            + (", emulated persistent memory: for evaluation alone" if made.emulated else "")
        )


@app.command(epilog=examples("engram destroy /dev/shm/run", "engram destroy /dev/shm/run --yes"))
def destroy(
    pool: PoolArgument,
    *,
    yes: Annotated[bool, typer.Option("--yes", "-y", help="Do not ask.")] = False,
    force: Annotated[
        bool, typer.Option("--force", help="Leave what is on a device that is missing.")
    ] = False,
) -> None:
    """Delete a pool, with all that is in it."""
    if not yes:
        if not pool.exists():
            message = f"{pool}: there is no pool; check the path"
            raise NotFoundError(message)
        if not sys.stdin.isatty():
            message = f"{pool}: nobody is there to be asked; add --yes to delete all that is in it"
            raise ArgumentError(message)
        terminal.confirm(f"Delete {pool} and all that is in it?")
    engram.destroy(pool, force=force)
    terminal.say(f"destroyed {pool}")


@app.command(epilog=examples("engram adopt /scratch/run"))
def adopt(pool: PoolArgument) -> None:
    """Say that a pool that was moved or restored is the one its devices belong to."""
    engram.adopt(pool)
    terminal.say(f"adopted {pool}: no other copy of it can use its devices any more")


@app.command(epilog=examples("engram verify /dev/shm/run", "engram verify /dev/shm/run --json"))
def verify(pool: PoolOrClusterArgument, *, json: JsonOption = False) -> None:
    """Walk all of a pool, and say whether it is whole."""
    try:
        pool.lstat()
    except FileNotFoundError:
        message = f"there is no pool at {pool}: check the path, or `engram create {pool}` makes one"
        raise PoolNotFoundError(message) from None
    except OSError:
        pass  # what opening it says is better
    report = engram.verify(pool)
    if json:
        terminal.print_json(dataclasses.asdict(report))
    else:
        counts = report.counts
        told = ", ".join(
            f"{what} {human(count) if what in _IN_BYTES else count}"
            for what, count in counts.items()
        )
        terminal.say(f"{report.path}: {told}")
        for problem in report.problems:
            terminal.say(f"  wrong: {problem}")
        for name in report.skipped:
            terminal.say(f"  not walked: namespace {name}, which this user may not open")
        if report:
            terminal.say("all of it is whole")
    report.check()
