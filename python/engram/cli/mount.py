"""`engram mount`, `engram unmount`: a pool as a folder, for programs that know files."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Literal

import typer

from engram import mounts
from engram.cli import terminal
from engram.cli.app import NamespaceOption, PoolArgument, app, examples

DirArgument = Annotated[
    Path, typer.Argument(metavar="DIR", help="The folder where the pool is to be seen.")
]


@app.command(
    epilog=examples(
        "engram mount /dev/shm/run /mnt/run",
        "engram mount /dev/shm/run /mnt/run --cache job",
        "engram mount /dev/shm/run /mnt/run --read-only",
        "engram mount /dev/shm/run /mnt/run --trace run.trace",
    )
)
def mount(
    pool: PoolArgument,
    directory: DirArgument,
    *,
    cache: Annotated[
        Literal["job", "shared", "none"],
        typer.Option(
            help="What the kernel may keep: everything (job), what others may not have changed "
            "(shared), nothing (none)."
        ),
    ] = "shared",
    read_only: Annotated[
        bool, typer.Option("--read-only", help="Refuse all changes through it.")
    ] = False,
    foreground: Annotated[
        bool, typer.Option("--foreground", help="Serve it here, until Ctrl-C or an unmount.")
    ] = False,
    segment_size: Annotated[
        str | None,
        typer.Option(metavar="SIZE", help="By how much files grow at least, such as 1MiB."),
    ] = None,
    trace: Annotated[
        str | None,
        typer.Option(
            metavar="FILE",
            help="Append a line for each operation to this file; `engram trace` shows it.",
        ),
    ] = None,
    trace_ring: Annotated[
        str | None,
        typer.Option(
            metavar="FILE[:SIZE]",
            help="The same in a file of fixed size, 16MiB if none is said, that keeps the newest "
            "lines.",
        ),
    ] = None,
    namespace: NamespaceOption = "default",
) -> None:
    """Show a namespace as a folder: groups are folders, blobs and arrays are files."""
    if foreground:
        terminal.say(f"{pool} is served at {directory}, until Ctrl-C or `engram unmount`")
    do = mounts.serve if foreground else mounts.mount
    made = do(
        pool,
        directory,
        namespace=namespace,
        cache=cache,
        read_only=read_only,
        segment_size=segment_size,
        trace=trace,
        trace_ring=trace_ring,
    )
    if made is not None:
        terminal.say(
            f"{pool} is at {made.path}, served by process {made.pid}; "
            f"`engram unmount {directory}` takes it away"
        )


@app.command(epilog=examples("engram unmount /mnt/run"))
def unmount(directory: DirArgument) -> None:
    """Take a mount away; also one whose process was killed."""
    mounts.unmount(directory)
    terminal.say(f"{directory} is unmounted; all that was written is in the pool")
