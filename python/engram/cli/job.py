"""`engram job`: a program with its files in memory, as a description says, and its results out."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated, Literal

import typer

from engram import jobs
from engram.cli import terminal
from engram.cli.app import LEFT_OUT, JsonOption, app, examples
from engram.cli.bar import Bar
from engram.cli.terminal import counted
from engram.errors import ArgumentError

if TYPE_CHECKING:
    from engram.jobs import Ended, JobOptions
    from engram.stage import Progress

ConfigOption = Annotated[
    str | None,
    typer.Option("--config", "-c", metavar="FILE", help="The description of the job."),
]
OverwriteOption = Annotated[
    bool,
    typer.Option("--overwrite", help="Replace other files of the same names in results-dir."),
]


@app.command(
    context_settings={"allow_interspersed_args": False},  # the program's options are its own
    epilog=examples(
        "engram job -c job.yaml -- srun simulate --steps 10",
        "engram job -c job.yaml --front run -- simulate --steps 10",
        "engram job -c job.yaml --early 2GiB -- simulate --steps 10",
        "engram job --resume -c job.yaml",
        "engram job --drop weather",
        "engram job --expire",
    ),
)
def job(
    program: Annotated[
        list[str] | None,
        typer.Argument(metavar="PROGRAM", help="The program, and its arguments."),
    ] = None,
    *,
    config: ConfigOption = None,
    front: Annotated[
        Literal["mount", "run"],
        typer.Option(help="How the program reaches its files: a mount, or a preloaded library."),
    ] = "mount",
    grace: Annotated[
        float,
        typer.Option(
            metavar="SECONDS",
            min=0.0,
            help="So long it has to end after a signal, then it is killed.",
        ),
    ] = jobs.GRACE,
    early: Annotated[
        str | None,
        typer.Option(
            metavar="SIZE|FILES",
            help="Begin the program once so much is there: 2GiB, or 100files.",
        ),
    ] = None,
    overwrite: OverwriteOption = False,
    resume: Annotated[
        bool, typer.Option("--resume", help="Bring out what a killed job has left; run nothing.")
    ] = False,
    drop: Annotated[
        str | None,
        typer.Option(metavar="NAME", help="Drop the persistent pool of this name; run nothing."),
    ] = None,
    force: Annotated[
        bool, typer.Option("--force", help="Drop it with files that are nowhere else.")
    ] = False,
    expire: Annotated[
        bool,
        typer.Option("--expire", help="Drop your pools here whose time is over; run nothing."),
    ] = False,
    json: JsonOption = False,
) -> None:
    """Bring a job's files into memory, run its program, and bring its results safely out.

    The program finds its files below the description's mount-dir, and ENGRAM_POOL and ENGRAM_MOUNT
    in its environment. The exit code is the program's, or 74 if not all files could be brought.
    """
    if drop is not None or expire:
        if program or config is not None or resume or (expire and drop is not None):
            raise ArgumentError("--drop and --expire stand alone: leave the rest away")
        _drop(drop, force=force, json=json)
        return
    if force:
        raise ArgumentError("--force goes with --drop NAME: leave it away")
    if config is None:
        raise ArgumentError("which job? -c FILE names its description")
    with Bar("stage", 0) as bar:
        options = options_of(bar, overwrite=overwrite)
        if early is not None:
            options["early"] = early
        if resume:
            if program:
                raise ArgumentError("--resume runs nothing: leave the program away")
            ended = jobs.resume(config, **options)
        elif not program:
            raise ArgumentError("there is no program: name it behind --, with its arguments")
        else:
            ended = jobs.run(config, program, front=front, grace=grace, **options)
    tell(ended, json=json)


def _drop(name: str | None, *, force: bool, json: bool) -> None:
    """Drop the pools of a name, or those whose time is over; say which went, and which stay."""
    every = (*jobs.drop(name, force=force),) if name is not None else ()
    came = jobs.expire() if name is None else jobs.Expired(every, ())
    if json:
        dropped, left = ([one._asdict() for one in each] for each in came)
        terminal.print_json({"dropped": dropped, "left": left})
    else:
        for one in came.dropped:
            lost = f", and with it {counted(len(one.lost), 'file')}" if one.lost else ""
            terminal.say(f"the pool {one.path} is gone{lost}")
    for trouble in came.left:
        terminal.note(f"{trouble.path}: {trouble.why}")
    if came.left:
        raise typer.Exit(LEFT_OUT)


def options_of(bar: Bar, *, overwrite: bool) -> JobOptions:
    """Give a job's options, by which it says on stderr what it does."""

    def watch(what: str, progress: Progress) -> None:
        line = f"{what}: {progress.files} of {progress.files_in_all} files"
        bar.update(progress.nbytes, line, progress.nbytes_in_all)

    return {"overwrite": overwrite, "tell": terminal.note, "watch": watch}


def tell(ended: Ended, *, json: bool = False) -> None:
    """Exit as a job has ended; with `json`, say how."""
    if json:
        told = ended._asdict() | {"troubles": [one._asdict() for one in ended.troubles]}
        if ended.results is not None:
            troubles = [one._asdict() for one in ended.results.troubles]
            told["results"] = ended.results._asdict() | {"troubles": troubles}
        terminal.print_json(told)
    if ended.exit_code:
        raise typer.Exit(ended.exit_code)
