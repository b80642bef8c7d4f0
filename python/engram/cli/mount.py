"""`engram mount`, `engram unmount`: a pool as a folder, for programs that know files."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Literal

import typer

from engram import jobs, mounts
from engram.cli import completion, terminal
from engram.cli.app import NamespaceOption, app, examples, file_path, pool_place
from engram.cli.bar import Bar
from engram.cli.job import ConfigOption, OverwriteOption, options_of, tell
from engram.errors import ArgumentError

_POOL = typer.Argument(
    metavar="POOL",
    help="The pool's folder.",
    autocompletion=completion.pools,
    parser=pool_place,
)
_WHERE = typer.Argument(
    metavar="DIR", help="The folder where the pool is to be seen.", parser=file_path
)
DirArgument = Annotated[Path, _WHERE]


@app.command(
    epilog=examples(
        "engram mount /dev/shm/run /mnt/run",
        "engram mount /dev/shm/run /mnt/run --cache job",
        "engram mount /dev/shm/run /mnt/run --read-only",
        "engram mount /dev/shm/run /mnt/run --trace run.trace",
        "engram mount -c job.yaml",
        "engram mount -f -c job.yaml",
    )
)
def mount(
    pool: Annotated[Path | None, _POOL] = None,
    directory: Annotated[Path | None, _WHERE] = None,
    *,
    config: ConfigOption = None,
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
        bool, typer.Option("--foreground", "-f", help="Serve it here, until Ctrl-C or an unmount.")
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
    """Show a namespace as a folder: groups are folders, blobs and arrays are files.

    With -c, the pool and the folder are those of a job's description: its files are brought in
    first, and `engram unmount` brings its results out.
    """
    if config is not None:
        if pool is not None:
            raise ArgumentError("-c says which pool and where: leave POOL and DIR away")
        _mount_job(config, foreground=foreground)
        return
    if pool is None or directory is None:
        raise ArgumentError("which pool, and where? give POOL and DIR, or -c FILE for a job's")
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
def unmount(directory: DirArgument, *, overwrite: OverwriteOption = False) -> None:
    """Take a mount away; also one whose process was killed.

    The results of a job's mount are brought out, and its pool goes when they are safe.
    """
    with Bar("stage", 0) as bar:
        ended = jobs.unmount(directory, **options_of(bar, overwrite=overwrite))
    if ended is not None:
        tell(ended)
        terminal.say(f"{directory} is unmounted; the results are out")
        return
    mounts.unmount(directory)
    terminal.say(f"{directory} is unmounted; all that was written is in the pool")


def _mount_job(config: str, *, foreground: bool) -> None:
    """Mount the pool of a job."""
    with Bar("stage", 0) as bar:
        options = options_of(bar, overwrite=False)
        if foreground:
            tell(jobs.serve(config, **options))
            return
        made = jobs.mount(config, **options)
    terminal.say(
        f"the job's files are at {made.path}, served by process {made.pid}; "
        f"`engram unmount {made.path}` brings the results out"
    )
