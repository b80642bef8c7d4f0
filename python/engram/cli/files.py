"""`engram import`: files of scientific formats in."""

from __future__ import annotations

from pathlib import Path  # noqa: TC003 - read by Typer
from typing import TYPE_CHECKING, Annotated

import typer

import engram
from engram.cli import terminal
from engram.cli.app import JsonOption, NamespaceOption, PoolArgument, app, clean, examples, opened
from engram.cli.terminal import counted
from engram.size import human

if TYPE_CHECKING:
    from engram.formats import ImportReport, Progress


@app.command(
    "import",
    epilog=examples(
        "engram import /dev/shm/run observations/2020 sst.nc",
        "engram import /dev/shm/run / model.h5 --overwrite --json",
    ),
)
def import_(
    pool: PoolArgument,
    group: Annotated[
        str, typer.Argument(metavar="GROUP", help="The group to import into, made if missing.")
    ],
    file: Annotated[Path, typer.Argument(metavar="FILE", help="A netCDF or HDF5 file.")],
    *,
    overwrite: Annotated[
        bool, typer.Option("--overwrite", help="Replace members and attributes of the same names.")
    ] = False,
    namespace: NamespaceOption = "default",
    json: JsonOption = False,
) -> None:
    """Import a netCDF or HDF5 file: its whole tree, or nothing."""
    where = clean(group)
    with opened(pool, namespace, "r+") as (_, root), terminal.Bar(file.name, 0) as bar:

        def show(progress: Progress) -> None:
            bar.update(progress.done, f"{file.name}{progress.path}", progress.total)

        # The group is made in the batch of the import, so that a failed one leaves none.
        with root.batch():
            target = root.require_group(where) if where else root
            report = engram.import_file(file, target, overwrite=overwrite, progress=show)
    if json:
        terminal.print_json(report.to_dict())
    else:
        _tell(report)


def _tell(report: ImportReport) -> None:
    """Print what was imported, and each thing that was not."""
    terminal.say(
        f"{report.file} ({report.format}) into /{report.group}: {counted(report.arrays, 'array')}, "
        f"{counted(report.groups, 'group')}, {counted(report.attributes, 'attribute')}, "
        f"{human(report.nbytes)} in {report.seconds:.2f} s"
    )
    for word, entries in (("left out", report.left_out), ("noted", report.noted)):
        for entry in entries:
            terminal.say(f"  {word}: {entry}")
