"""`engram stage`: trees of files brought into a pool before a job, and safely back after it."""

from __future__ import annotations

import os
import subprocess
import sys
import tempfile
import time
from glob import has_magic
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Literal, cast

import typer

from engram import jobs
from engram import stage as stages
from engram.cli import drawing, nodes, terminal
from engram.cli.app import (
    JsonOption,
    NamespaceOption,
    PoolArgument,
    clean,
    dress,
    examples,
    file_path,
    group_of_verbs,
)
from engram.cli.bar import Bar
from engram.cli.terminal import counted
from engram.cli.trace import sums
from engram.cli.trace.lines import Trace
from engram.errors import ArgumentError, BusyError, NotFoundError
from engram.size import human

if TYPE_CHECKING:
    from engram.stage import InOptions, OutOptions, Progress, Report, Stage, Status, Trouble

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
        "engram stage status /dev/shm/run",
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


NameOption = Annotated[
    str | None,
    typer.Option("--name", help="The stage's name; if none is given, one made of its paths."),
]
OrderOption = Annotated[
    str,
    typer.Option(
        metavar="ORDER",
        help="What comes first: found, smallest, largest, or by a file, list:FILE or trace:FILE.",
    ),
]
OnlyOption = Annotated[
    bool,
    typer.Option("--only-listed", help="Leave out what the order's list or trace does not name."),
]
BackgroundOption = Annotated[
    bool,
    typer.Option("--background", help="Go on in the background, and print the stage's name."),
]
SlotsOption = Annotated[
    Path | None,
    typer.Option("--slots", metavar="FOLDER", help="Wait for a slot there: jobs take turns."),
]
StageArgument = Annotated[str, typer.Argument(metavar="NAME", help="The stage's name.")]


@verbs.command(
    "in",
    epilog=examples(
        "engram stage in /dev/shm/run /pfs/case-7",
        "engram stage in /dev/shm/run /pfs/case-7/grid.nc --to input/grid.nc",
        "engram stage in /dev/shm/run '/pfs/case-7/**/*.nc' --to input",
        "engram stage in /dev/shm/run /pfs/case-7 --order trace:run.trace --early 2GiB",
        "engram stage in /dev/shm/run --list stage.list --background",
    ),
)
def stage_in(
    pool: PoolArgument,
    sources: Annotated[
        list[str] | None,
        typer.Argument(metavar="SOURCE...", help="Folders, files and patterns of them, outside."),
    ] = None,
    *,
    to: Annotated[
        str | None,
        typer.Option(
            metavar="PATH",
            help="The path of the one source in the pool; its own name, if none is said.",
        ),
    ] = None,
    listed: Annotated[
        str | None,
        typer.Option("--list", metavar="FILE", help="A file with a source and its path a line."),
    ] = None,
    verify: Annotated[Verify, typer.Option(help="How copies are looked at.")] = "written",
    overwrite: OverwriteOption = False,
    update: UpdateOption = False,
    workers: WorkersOption = 0,
    rate: RateOption = None,
    files_per_second: FilesOption = None,
    order: OrderOption = "found",
    only_listed: OnlyOption = False,
    slots: SlotsOption = None,
    device: Annotated[
        str | None,
        typer.Option(metavar="DEVICE", help="The pool's device that files lie on: path or index."),
    ] = None,
    background: BackgroundOption = False,
    early: Annotated[
        str | None,
        typer.Option(
            metavar="SIZE|Nfiles",
            help="Wait for so much; the rest in the background, awaited by who opens it.",
        ),
    ] = None,
    awaited: Annotated[
        bool,
        typer.Option("--awaited", help="Programs that open what is on its way wait for it."),
    ] = False,
    name: NameOption = None,
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
        "only_listed": only_listed,
        "slots": slots,
        "awaited": awaited,
        "device": int(device) if device is not None and device.isdecimal() else device,
        **_named_and_ordered(name, order),
    }
    pairs = _sources(sources or [], to, listed)
    if background or early is not None:
        wanted = stages.Early(0, 0) if early is None else stages.Early.parse(early)
        _in_background(pool, namespace, wanted, json=json)
        return
    begun = stages.begin_in(pool, pairs, **options)
    _end(_watched(begun), "in the pool", json=json)


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
    order: OrderOption = "found",
    only_listed: OnlyOption = False,
    slots: SlotsOption = None,
    background: BackgroundOption = False,
    name: NameOption = None,
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
        "only_listed": only_listed,
        "slots": slots,
        **_named_and_ordered(name, order),
    }
    if background:
        _in_background(pool, namespace, stages.Early(0, 0), json=json)
        return
    begun = stages.begin_out(pool, {path: to}, **options)
    _end(_watched(begun), f"at {to}", json=json)


@verbs.command(
    "status",
    epilog=examples("engram stage status /dev/shm/run", "engram stage status /dev/shm/run NAME"),
)
def stage_status(
    pool: PoolArgument,
    name: Annotated[
        str | None, typer.Argument(metavar="[NAME]", help="One stage, with what went wrong.")
    ] = None,
    *,
    namespace: NamespaceOption = "default",
    json: JsonOption = False,
) -> None:
    """List the stages of a pool: how far each is, who works at it, how it ended."""
    if name is None:
        found = stages.stages(pool, namespace=namespace)
    else:
        found = [stages.status(pool, name, namespace=namespace)]
    if json:
        told = [_plain(one) for one in found]
        terminal.print_json(told if name is None else told[0])
        return
    if not found:
        terminal.say("no stages")
        return
    headings = ["way", "state", "files", "bytes", "from", "to", "name"]
    drawing.print_table(headings, map(_row, found), key="name", right=("files", "bytes"))
    if name is not None:
        for trouble in found[0].troubles:
            terminal.say(_told(trouble))


@verbs.command("resume", epilog=examples("engram stage resume /dev/shm/run case-7-in-3fa2c1"))
def stage_resume(
    pool: PoolArgument,
    name: StageArgument,
    *,
    namespace: NamespaceOption = "default",
    json: JsonOption = False,
) -> None:
    """Go on with a stage that has died, was stopped, or could not do all."""
    _end(_watched(stages.resume(pool, name, namespace=namespace)), "there", json=json)


@verbs.command("stop", epilog=examples("engram stage stop /dev/shm/run case-7-in-3fa2c1"))
def stage_stop(
    pool: PoolArgument,
    name: StageArgument,
    *,
    namespace: NamespaceOption = "default",
) -> None:
    """Ask a stage that a process works at to end; `engram stage resume` goes on with it."""
    if not stages.stop(pool, name, namespace=namespace):
        terminal.note(f"no process works at the stage {name!r}")


@verbs.command("pace", epilog=examples("engram stage pace /dev/shm/run NAME --rate 50MiB"))
def stage_pace(
    pool: PoolArgument,
    name: StageArgument,
    *,
    rate: RateOption = None,
    files_per_second: FilesOption = None,
    namespace: NamespaceOption = "default",
) -> None:
    """Change how fast a stage goes that a process works at; without options, as fast as it can."""
    if not stages.set_rate(pool, name, rate, files_per_second, namespace=namespace):
        terminal.note(f"no process works at the stage {name!r}")


@verbs.command(
    "drop",
    epilog=examples(
        "engram stage drop /dev/shm/run case-7-in-3fa2c1",
        "engram stage drop /dev/shm/run case-7-in-3fa2c1 --keep-files",
    ),
)
def stage_drop(
    pool: PoolArgument,
    name: StageArgument,
    *,
    keep_files: Annotated[
        bool, typer.Option("--keep-files", help="Keep all files in the pool.")
    ] = False,
    force: Annotated[
        bool, typer.Option("--force", help="Drop files, too, that are nowhere else.")
    ] = False,
    namespace: NamespaceOption = "default",
    json: JsonOption = False,
) -> None:
    """Drop a stage: its files in the pool that are safe outside, half-made copies, its status."""
    dropped = stages.drop(pool, name, keep_files=keep_files, force=force, namespace=namespace)
    if json:
        terminal.print_json(dropped._asdict())
    else:
        lost = f", {len(dropped.lost)} of them lost" if dropped.lost else ""
        terminal.say(
            f"{counted(dropped.files, 'file')} gone from the pool, {human(dropped.nbytes)}{lost}"
        )


@verbs.command("slots", epilog=examples("engram stage slots /pfs/slots --slots 2 --rate 400MiB"))
def stage_slots(
    folder: Annotated[
        Path, typer.Argument(metavar="FOLDER", help="A folder that all the stages see.")
    ],
    *,
    slots: Annotated[
        int, typer.Option(metavar="N", help="So many stages work at a time.", min=1, max=1024)
    ] = 1,
    rate: RateOption = None,
    files_per_second: FilesOption = None,
) -> None:
    """Make a folder of slots, or change it: stages that name it by --slots take turns.

    The rates are those of all of them together. Stages that work go by a change within a second.
    """
    stages.set_slots(folder, slots, rate, files_per_second)


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


verbs.command("nodes", epilog=nodes.EXAMPLES)(nodes.stage_nodes)


def _sources(sources: list[str], to: str | None, listed: str | None) -> dict[str, str]:
    """Return each source with its path in the pool."""
    if listed is not None:
        if sources or to is not None:
            raise ArgumentError("--list has sources and their paths: pass no others, and no --to")
        return stages.listed(listed)
    if not sources:
        raise ArgumentError("nothing to stage: name at least one folder or file, or pass --list")
    if to is not None and len(sources) > 1:
        raise ArgumentError("--to names one path: pass one source, or leave --to away")
    pairs: dict[str, str] = {}
    for source in sources:
        if has_magic(source) and not os.path.lexists(source):
            pairs.update(stages.matching(source, to or ""))
            continue
        name = to or Path(os.path.abspath(source)).name  # noqa: PTH100 - links are kept as they are
        if not name:
            raise ArgumentError(f"{source!r} has no name of its own: say where it goes, by --to")
        if name in pairs.values():
            raise ArgumentError(f"two sources would be {name!r} in the pool: stage one by --to")
        pairs[source] = name
    return pairs


def _named_and_ordered(name: str | None, order: str) -> InOptions:
    """Return a stage's name, if it is given one, and the order of its files."""
    options: InOptions = {} if name is None else {"name": name}
    kind, _, file = order.partition(":")
    if kind == "trace" and file:
        options["order"] = sums.order(Trace(file_path(file)).lines())
    elif kind == "list" and file:
        options["order"] = [line for line in file_path(file).read_text().splitlines() if line]
    else:
        # Refused by its name, if there is no such order.
        options["order"] = cast("Literal['found', 'smallest', 'largest']", order)
    return options


def _in_background(pool: Path, namespace: str, early: stages.Early, *, json: bool) -> None:
    """Do this stage in a process of its own; return once it is begun, and so much is there."""
    given = iter(sys.argv[1:])
    words = []
    for word in given:
        if word == "--early":
            next(given, None)
        if word.partition("=")[0] == "--early":
            words.append("--awaited")
        elif word != "--background":
            words.append(word)
    with tempfile.TemporaryFile("w+") as told:
        process = subprocess.Popen(  # noqa: S603 - this program again, no shell
            [sys.executable, "-m", "engram", *words],
            stdin=subprocess.DEVNULL,
            stdout=subprocess.DEVNULL,
            stderr=told,
            start_new_session=True,
        )
        while True:
            ended = process.poll()
            own = [one for one in _known(pool, namespace) if one.pid == process.pid]
            if own and (ended is not None or early.is_there(own[0].progress)):
                break
            if ended is not None:
                told.seek(0)
                sys.stderr.write(told.read())
                raise typer.Exit(ended)
            time.sleep(LOOK_S)
    if json:
        terminal.print_json(_plain(own[0]))
    else:
        terminal.say(own[0].name)
    if ended:
        raise typer.Exit(ended)


def _known(pool: Path, namespace: str) -> list[Status]:
    try:
        return stages.stages(pool, namespace=namespace)
    except (BusyError, NotFoundError):
        return []  # the process that was begun says why


def _plain(one: Status) -> dict[str, Any]:
    """Return what is known of a stage as plain values."""
    told = one._asdict()
    told["progress"] = one.progress._asdict()
    told["troubles"] = [trouble._asdict() for trouble in one.troubles]
    return told


def _row(one: Status) -> list[str]:
    """Return what a table says of a stage."""
    progress = one.progress
    files = f"{progress.files} of {progress.files_in_all}"
    nbytes = f"{human(progress.nbytes)} of {human(progress.nbytes_in_all)}"
    source, target = one.paths[0] if one.paths else ("", "")
    more = f" and {len(one.paths) - 1} more" if len(one.paths) > 1 else ""
    is_at_work = one.state in {"running", "waiting"}
    state = f"{one.state} ({one.pid})" if is_at_work else one.state
    return [one.direction, state, files, nbytes, source + more, target or "/", one.name]


def _told(trouble: Trouble) -> str:
    return f"{trouble.path}: {trouble.why}" if trouble.path else trouble.why


def _existing(*, overwrite: bool, update: bool) -> Literal["refuse", "overwrite", "update"]:
    if overwrite and update:
        raise ArgumentError("--overwrite and --update: pass one of them")
    return "overwrite" if overwrite else "update" if update else "refuse"


def _watched(stage: Stage) -> Report:
    """Wait for a stage, and show how far it is where somebody looks."""
    begun = time.monotonic()
    try:
        with Bar("stage", 0) as bar:
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
            terminal.note(_told(trouble))
        reused = f", {report.files_reused} of them before" if report.files_reused else ""
        terminal.say(
            f"{counted(report.files, 'file')}, {human(report.nbytes)}, {where}{reused} "
            f"({report.seconds:.1f} s)"
        )
        if report.troubles:
            terminal.say(
                f"not done: {len(report.troubles)}; once that is mended, the same stage again does "
                "what is left"
            )
    if not report.whole:
        raise typer.Exit(INCOMPLETE)


dress(verbs)
