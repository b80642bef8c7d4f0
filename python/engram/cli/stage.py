"""`engram stage`: trees of files brought into a pool before a job, and safely back after it."""

from __future__ import annotations

import os
import time
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Literal

import typer

from engram import jobs
from engram import stage as stages
from engram.cli import terminal
from engram.cli.app import (
    JsonOption,
    NamespaceOption,
    PoolArgument,
    clean,
    dress,
    examples,
    group_of_verbs,
)
from engram.cli.terminal import counted
from engram.errors import ArgumentError
from engram.size import human

if TYPE_CHECKING:
    from engram.stage import InOptions, OutOptions, Progress, Report, Stage

Verify = Literal["size", "written", "readback"]
LOOK_S = 0.2
"""Between two looks how far a stage is."""
INCOMPLETE = 4
"""The exit code of a stage that has left something out."""

verbs = group_of_verbs(
    "stage",
    "Bring trees of files into a pool before a job, and safely back after it.",
    examples(
        "engram stage in /dev/shm/run /pfs/case-7 --to case-7",
        "engram stage out /dev/shm/run case-7/out --to /pfs/case-7/out",
        "engram stage verify /pfs/case-7/out",
    ),
)

WorkersOption = Annotated[
    int,
    typer.Option("--workers", metavar="N", help="So many files at a time; 0 suits the machine."),
]
OverwriteOption = Annotated[
    bool, typer.Option("--overwrite", help="Replace other files of the same names.")
]
UpdateOption = Annotated[
    bool, typer.Option("--update", help="Replace other files of the same names that are older.")
]
RateOption = Annotated[
    str | None, typer.Option("--rate", metavar="SIZE", help="So many bytes a second, as 200MiB.")
]
FilesOption = Annotated[
    int | None,
    typer.Option("--files-per-second", metavar="N", help="So many files a second.", min=1),
]


@verbs.command(
    "in",
    epilog=examples(
        "engram stage in /dev/shm/run /pfs/case-7",
        "engram stage in /dev/shm/run /pfs/case-7/grid.nc --to input/grid.nc",
        "engram stage in /dev/shm/run /pfs/case-7 --rate 200MiB --update",
    ),
)
def stage_in(
    pool: PoolArgument,
    sources: Annotated[
        list[str], typer.Argument(metavar="SOURCE...", help="Folders and files outside.")
    ],
    *,
    to: Annotated[
        str | None,
        typer.Option(
            metavar="PATH",
            help="The path of the one source in the pool; its own name, if none is said.",
        ),
    ] = None,
    verify: Annotated[Verify, typer.Option(help="How copies are looked at.")] = "written",
    overwrite: OverwriteOption = False,
    update: UpdateOption = False,
    workers: WorkersOption = 0,
    rate: RateOption = None,
    files_per_second: FilesOption = None,
    namespace: NamespaceOption = "default",
    json: JsonOption = False,
) -> None:
    """Copy folders and files into a pool; what is there and unchanged is not copied again."""
    options: InOptions = {
        "verify": verify,
        "existing": _existing(overwrite=overwrite, update=update),
        "workers": workers,
        "rate": rate,
        "files_per_second": files_per_second,
        "namespace": namespace,
    }
    begun = stages.begin_in(pool, dict(_named(sources, to)), **options)
    _end(_watched(begun, "stage"), "in the pool", json=json)


@verbs.command(
    "out",
    epilog=examples(
        "engram stage out /dev/shm/run case-7/out --to /pfs/case-7/out",
        "engram stage out /dev/shm/run case-7/out --to /pfs/case-7/out --sha256",
    ),
)
def stage_out(
    pool: PoolArgument,
    path: Annotated[
        str, typer.Argument(metavar="PATH", help="A folder or file in the pool; / is all of it.")
    ],
    *,
    to: Annotated[
        str, typer.Option(metavar="PATH", help="Where it is to be outside.", show_default=False)
    ],
    verify: Annotated[Verify, typer.Option(help="How copies are looked at.")] = "readback",
    overwrite: OverwriteOption = False,
    update: UpdateOption = False,
    sha256: Annotated[
        bool, typer.Option("--sha256", help="Leave MANIFEST.sha256 too, for `sha256sum -c`.")
    ] = False,
    workers: WorkersOption = 0,
    rate: RateOption = None,
    files_per_second: FilesOption = None,
    namespace: NamespaceOption = "default",
    json: JsonOption = False,
) -> None:
    """Copy a folder or file out of a pool; each copy is read again before it counts as there.

    The pool keeps its files. A folder gets MANIFEST.engram once all of it is there.
    """
    options: OutOptions = {
        "verify": verify,
        "existing": _existing(overwrite=overwrite, update=update),
        "sha256": sha256,
        "workers": workers,
        "rate": rate,
        "files_per_second": files_per_second,
        "namespace": namespace,
    }
    begun = stages.begin_out(pool, {path: to}, **options)
    _end(_watched(begun, "stage"), f"at {to}", json=json)


@verbs.command("verify", epilog=examples("engram stage verify /pfs/case-7/out"))
def stage_verify(
    folder: Annotated[Path, typer.Argument(metavar="FOLDER", help="A folder that was staged out.")],
    *,
    json: JsonOption = False,
) -> None:
    """Compare a folder with the manifest that a stage-out has left there."""
    _end(stages.verify(folder), "as the manifest says", json=json)


@verbs.command(
    "tag",
    epilog=examples(
        "engram stage tag /dev/shm/run out/restart.nc persistent",
        "engram stage tag /dev/shm/run out/scratch temporary",
    ),
)
def stage_tag(
    pool: PoolArgument,
    path: Annotated[str, typer.Argument(metavar="PATH", help="A file or folder in the pool.")],
    tag: Annotated[
        Literal["persistent", "temporary", "none"],
        typer.Argument(metavar="TAG", help="persistent, temporary, or none: as its folder."),
    ],
) -> None:
    """Say whether a file or folder of a job is brought out at its end."""
    jobs.tag(pool, clean(path), None if tag == "none" else tag)


def _named(sources: list[str], to: str | None) -> list[tuple[str, str]]:
    """Return each source with its path in the pool."""
    if to is not None:
        if len(sources) > 1:
            raise ArgumentError("--to names one path: pass one source, or leave --to away")
        return [(sources[0], to)]
    named = []
    for source in sources:
        name = Path(os.path.abspath(source)).name  # noqa: PTH100 - links are kept as they are
        if not name:
            raise ArgumentError(f"{source!r} has no name of its own: say where it goes, by --to")
        named.append((source, name))
    return named


def _existing(*, overwrite: bool, update: bool) -> Literal["refuse", "overwrite", "update"]:
    if overwrite and update:
        raise ArgumentError("--overwrite and --update: pass one of them")
    return "overwrite" if overwrite else "update" if update else "refuse"


def _watched(stage: Stage, what: str) -> Report:
    """Wait for a stage, and show how far it is where somebody looks."""
    begun = time.monotonic()
    try:
        with terminal.Bar(what, 0) as bar:
            while (report := stage.wait(LOOK_S)) is None:
                progress = stage.progress()
                line = _line(progress, time.monotonic() - begun)
                bar.update(progress.nbytes, line, progress.nbytes_in_all)
    except KeyboardInterrupt:
        stage.stop()
        stage.wait()
        raise
    return report


def _line(progress: Progress, seconds: float) -> str:
    """Say how far a stage is, how fast, and how long it will take."""
    rate = (progress.nbytes - progress.nbytes_reused) / seconds
    left = max(progress.nbytes_in_all - progress.nbytes, 0)
    rest = f", {left / rate:.0f} s left" if rate > 0 else ""
    done = f"{progress.files} of {counted(progress.files_in_all, 'file')}"
    return f"{done}, {human(int(rate))}/s{rest}"


def _end(report: Report, where: str, *, json: bool) -> None:
    """Say what came of a stage; the exit code says whether all of it was done."""
    if json:
        told: dict[str, Any] = report._asdict()
        told["troubles"] = [trouble._asdict() for trouble in report.troubles]
        terminal.print_json(told)
    else:
        for trouble in report.troubles:
            terminal.note(f"{trouble.path}: {trouble.why}")
        reused = f", {report.files_reused} of them before" if report.files_reused else ""
        terminal.say(
            f"{counted(report.files, 'file')}, {human(report.nbytes)}, {where}{reused} "
            f"({report.seconds:.1f} s)"
        )
        if report.troubles:
            terminal.say(
                f"not done: {len(report.troubles)}; the same stage again does what is left"
            )
    if not report.whole:
        raise typer.Exit(INCOMPLETE)


dress(verbs)
