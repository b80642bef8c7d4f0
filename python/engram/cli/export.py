"""`engram export`: a group or an object of a pool out, as a file of a scientific format."""

from __future__ import annotations

import contextlib
import signal
from pathlib import Path  # noqa: TC003 - read by Typer
from typing import TYPE_CHECKING, Annotated

import typer

import engram
from engram.cli import terminal
from engram.cli.app import (
    JsonOption,
    NamespaceOption,
    PathArgument,
    PoolOrClusterArgument,
    app,
    clean,
    examples,
    file_path,
    opened,
)
from engram.cli.bar import Bar
from engram.cli.entries import tell_export
from engram.cli.salvaged import Wanted, salvaged, tell

if TYPE_CHECKING:
    from collections.abc import Iterator

    from engram.formats import Progress


def _kinds(incomplete: str) -> list[str]:
    """Return what `--format` may name, for completion."""
    from engram.formats.registry import writable  # noqa: PLC0415 - formats are loaded when needed

    return [k for found in writable() for k in found.kinds if k.startswith(incomplete)]


_SalvageOption = Annotated[
    bool,
    typer.Option(
        "--salvage",
        help="Take what is sound out of a damaged pool; `--format pool` makes FILE a new pool.",
    ),
]


@contextlib.contextmanager
def _ended_by_signals() -> Iterator[None]:
    """Let SIGTERM and SIGHUP end the export as an error does: nothing is left of the file."""

    def end(number: int, frame: object) -> None:
        del frame
        raise SystemExit(128 + number)  # as a shell tells of a signal

    before = {}
    for number in (signal.SIGTERM, signal.SIGHUP):
        if signal.getsignal(number) == signal.SIG_DFL:
            before[number] = signal.signal(number, end)
    try:
        yield
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)


@app.command(
    epilog=examples(
        "engram export /dev/shm/run run-17 run-17.nc",
        "engram export /dev/shm/run / all.h5 --overwrite",
        'engram export /dev/shm/run run-17 part.nc --select "*/T" --slice t=0:9',
        "engram export /dev/shm/run sst old.nc --format netcdf3 --lossy",
        "engram export /dev/shm/run / saved.h5 --salvage",
    )
)
def export(
    pool: PoolOrClusterArgument,
    path: PathArgument,
    file: Annotated[
        Path, typer.Argument(metavar="FILE", help="The file to write.", parser=file_path)
    ],
    *,
    kind: Annotated[
        str | None,
        typer.Option(
            "--format",
            metavar="WORD",
            help="The file's format, such as netcdf3; by FILE's suffix if none.",
            autocompletion=_kinds,
        ),
    ] = None,
    overwrite: Annotated[
        bool, typer.Option("--overwrite", help="Replace FILE, once the new one is whole.")
    ] = False,
    lossy: Annotated[
        bool, typer.Option("--lossy", help="Leave out what the format cannot hold, and list it.")
    ] = False,
    select: Annotated[
        list[str] | None,
        typer.Option("--select", metavar="PATTERN", help="Only these paths; can be repeated."),
    ] = None,
    slices: Annotated[
        list[str] | None,
        typer.Option("--slice", metavar="DIM=A:B", help="Only these indices; can be repeated."),
    ] = None,
    salvage: _SalvageOption = False,
    namespace: NamespaceOption = "default",
    json: JsonOption = False,
) -> None:
    """Export a group or an object as a file: all of it, or nothing.

    The format is told by FILE's suffix, or by --format. What was imported goes out as it came in:
    values, attributes, dimensions and how they were stored. With --salvage, the pool may be
    damaged: what is sound of PATH goes out, what is not is listed, and the exit code says so.
    """
    where = clean(path)
    if salvage:
        wanted = Wanted(where, namespace, kind, overwrite, lossy, select or [], slices or [])
        with _ended_by_signals():
            found = salvaged(pool, file, wanted)
        tell(found, json=json)
        return
    with (
        opened(pool, namespace) as (_, root),
        Bar(file.name, 0) as bar,
        _ended_by_signals(),
    ):

        def show(progress: Progress) -> None:
            bar.update(progress.done, f"{file.name}{progress.path}", progress.total)

        report = engram.export_file(
            root[where] if where else root,
            file,
            format=kind,
            overwrite=overwrite,
            lossy=lossy,
            select=select,
            slices=slices,
            progress=show,
        )
    if json:
        terminal.print_json(report.to_dict())
    else:
        tell_export(report)
