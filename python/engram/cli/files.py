"""`engram import`: files of scientific formats in, one or many, whole or in part."""

from __future__ import annotations

import os
from collections import Counter
from pathlib import Path  # noqa: TC003 - read by Typer
from typing import TYPE_CHECKING, Annotated, Any

import typer

import engram
from engram.cli import drawing, terminal
from engram.cli.app import (
    LEFT_OUT,
    JsonOption,
    NamespaceOption,
    PoolOrClusterArgument,
    app,
    clean,
    examples,
    file_path,
    opened,
)
from engram.cli.bar import Bar
from engram.cli.entries import tell_entries
from engram.cli.terminal import counted
from engram.size import human

if TYPE_CHECKING:
    from engram.formats import FilesProgress, ImportFailure, ImportReport, Progress
    from engram.formats.find import PassedOver
    from engram.namespace import Namespace
    from engram.pool import Pool

DIFFERENT_KINDS = 3
"""The exit code where several files failed, for reasons of different kinds."""

_SHOWN = 40
"""So many things that were left out of many files are shown; `--json` has them all."""


ChunksOption = Annotated[
    str | None,
    typer.Option(metavar="keep|auto", help="Keep arrays in chunks: the file's, or chosen ones."),
]
AllowPartialOption = Annotated[
    bool, typer.Option("--allow-partial", help="Exit with 0 though something was left out.")
]
CodecOption = Annotated[
    str | None,
    typer.Option(metavar="CODEC", help="How chunks are encoded: lz4, zstd:9, shuffle+lz4."),
]


@app.command(
    "import",
    epilog=examples(
        "engram import /dev/shm/run observations/2020 sst.nc",
        "engram import /dev/shm/run / model.h5 --overwrite --json",
        "engram import /dev/shm/run days day-*.nc -j 4",
        "engram import /dev/shm/run archive downloads/ -r --index async",
        "engram import /dev/shm/run part sst.nc --select sst --slice time=0:10",
    ),
)
def import_(
    pool: PoolOrClusterArgument,
    group: Annotated[
        str, typer.Argument(metavar="GROUP", help="The group to import into, made if missing.")
    ],
    files: Annotated[
        list[Path],
        typer.Argument(
            metavar="FILES...",
            help="One file, or several, each into GROUP/its-name.",
            parser=file_path,
        ),
    ],
    *,
    recursive: Annotated[
        bool, typer.Option("--recursive", "-r", help="Search folders for files of known formats.")
    ] = False,
    workers: Annotated[
        int | None,
        typer.Option("--workers", "-j", metavar="N", min=1, help="Processes; default: all cores."),
    ] = None,
    select: Annotated[
        list[str] | None,
        typer.Option(
            metavar="PATTERN", help="Only what matches, such as 'group/var*'; repeatable."
        ),
    ] = None,
    slices: Annotated[
        list[str] | None,
        typer.Option("--slice", metavar="DIM=A:B", help="Such as time=0:10; repeatable."),
    ] = None,
    overwrite: Annotated[
        bool, typer.Option("--overwrite", help="Replace members and attributes of the same names.")
    ] = False,
    index: Annotated[
        str | None,
        typer.Option(metavar="MODE", help="When attributes are indexed: sync, async or none."),
    ] = None,
    chunks: ChunksOption = None,
    codec: CodecOption = None,
    allow_partial: AllowPartialOption = False,
    namespace: NamespaceOption = "default",
    json: JsonOption = False,
) -> None:
    """Import files of scientific formats: each as a whole, or nothing of it.

    One file goes into GROUP itself. Several go into groups of their own in it, named after the
    files; by their paths, where names are the same. With something left out the exit code is 4.
    """
    where = clean(group)
    several = recursive or len(files) > 1
    passed_over: list[PassedOver] = []
    if recursive:
        from engram.formats.find import find_files  # noqa: PLC0415 - formats load when needed

        found_there = find_files(files)
        files, passed_over = found_there.files, found_there.passed_over
    part: dict[str, Any] = {"overwrite": overwrite, "select": select, "slices": slices}
    part |= {"index": index, "chunks": True if chunks == "auto" else chunks, "codec": codec}
    found: list[ImportReport | ImportFailure]
    with opened(pool, namespace, "r+") as (_, root):
        if several:
            default = min(len(os.sched_getaffinity(0)), len(files))
            found = _many(root, where, files, workers or default, part)
        else:
            found = [_one(root, where, files[0], part, json=json)]
    if several:
        _summary(found, passed_over, json=json)
    if not allow_partial and any(getattr(outcome, "left_out", ()) for outcome in found):
        raise typer.Exit(LEFT_OUT)


def _one(
    root: Namespace | Pool, where: str, file: Path, part: dict[str, Any], *, json: bool
) -> ImportReport:
    """Import one file into the group itself."""
    from engram.formats.load import receiver  # noqa: PLC0415 - formats are loaded when needed

    with Bar(file.name, 0) as bar:

        def show(progress: Progress) -> None:
            bar.update(progress.done, f"{file.name}{progress.path}", progress.total)

        # The group is made in the batch of the import, so that a failed one leaves none.
        try:
            with root.batch():
                target = receiver(root, where, file)
                report = engram.import_file(file, target, progress=show, **part)
        except KeyboardInterrupt:
            terminal.warn(f"interrupted: nothing of {file} is in", terminal.INTERRUPTED)
            raise
    if json:
        terminal.print_json(report.to_dict())
        return report
    terminal.say(
        f"{report.file} ({report.format}) into /{report.group}: {counted(report.arrays, 'array')}, "
        f"{counted(report.groups, 'group')}, {counted(report.attributes, 'attribute')}, "
        f"{human(report.nbytes)} in {report.seconds:.2f} s"
    )
    tell_entries(report)
    return report


def _many(
    root: Namespace | Pool, where: str, files: list[Path], workers: int, part: dict[str, Any]
) -> list[ImportReport | ImportFailure]:
    """Import files into groups of their own."""
    from engram.formats.load import receiver  # noqa: PLC0415 - formats are loaded when needed

    is_new = bool(where) and where not in root
    target = receiver(root, where, counted(len(files), "file"))
    done = 0
    try:
        with Bar(counted(len(files), "file"), 0) as bar:

            def show(progress: FilesProgress) -> None:
                nonlocal done
                done = progress.files_done
                what = f"{done} of {counted(progress.files_total, 'file')}"
                bar.update(progress.done, what, progress.total)

            return engram.import_files(files, target, workers=workers, progress=show, **part)
    except KeyboardInterrupt:
        what = f"interrupted: {done} of {counted(len(files), 'file')} are done and stay in"
        terminal.warn(what, terminal.INTERRUPTED)
        raise
    finally:
        if is_new and not len(target):
            del root[where]


def _summary(
    found: list[ImportReport | ImportFailure], passed_over: list[PassedOver], *, json: bool
) -> None:
    """Tell what was imported, left out and passed over, and what failed; exit by its kind."""
    from engram.formats import ImportReport  # noqa: PLC0415 - formats are loaded when needed

    if json:
        terminal.print_json([outcome.to_dict() for outcome in [*found, *passed_over]])
    reports = [outcome for outcome in found if isinstance(outcome, ImportReport)]
    failures = [outcome for outcome in found if not isinstance(outcome, ImportReport)]
    if not json:
        terminal.say(
            f"{len(reports)} of {counted(len(found), 'file')}: "
            f"{counted(sum(r.arrays for r in reports), 'array')}, "
            f"{counted(sum(r.attributes for r in reports), 'attribute')}, "
            f"{human(sum(r.nbytes for r in reports))}"
        )
        _left_out(reports)
        for why, times in Counter(entry.why for entry in passed_over).items():
            first = next(entry.file for entry in passed_over if entry.why == why)
            more = f" and {times - 1} more" if times > 1 else ""
            terminal.say(f"passed over {times}, {why}: {first}{more}")
    if not failures:
        return
    for failure in failures[:-1]:
        terminal.warn(str(failure), terminal.kind_of(failure.error))
    codes = {type(failure.error).exit_code for failure in failures}
    code = codes.pop() if len(codes) == 1 else DIFFERENT_KINDS
    terminal.fail(str(failures[-1]), code, terminal.kind_of(failures[-1].error))


def _left_out(reports: list[ImportReport]) -> None:
    """Show what was left out of files as a table, alike things of many files once."""
    files: dict[tuple[str, str, str, str], str] = {}
    times: Counter[tuple[str, str, str, str]] = Counter()
    for report in reports:
        for word, entries in (("left out", report.left_out), ("noted", report.noted)):
            for entry in entries:
                key = (word, entry.path, entry.what, entry.why)
                times[key] += 1
                files.setdefault(key, report.file)
    if not times:
        return
    rows = [
        (word, count, files[word, path, what, why], f"{path}: {what}: {why}")
        for (word, path, what, why), count in times.most_common(_SHOWN)
    ]
    headings = ("how", "files", "first", "what")
    drawing.print_table(headings, rows, key="what", right=("files",))
    if len(times) > _SHOWN:
        terminal.say(f"and {len(times) - _SHOWN} more; --json has them all")
