"""`engram demo`: the main job, where everything that the store promises is seen at work."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from engram.cli.app import app, examples
from engram.demo import run


@app.command(epilog=examples("engram demo", "engram demo --out results --file sst.nc"))
def demo(
    *,
    out: Annotated[Path, typer.Option(metavar="DIR", help="The folder for results.")] = Path(
        "demo-out"
    ),
    file: Annotated[
        Path | None, typer.Option(metavar="FILE", help="A netCDF file to import and compute on.")
    ] = None,
) -> None:
    """Run a small simulation in several processes, kill one, and check that nothing is lost.

    It leaves its pool, whose path it prints with the `engram destroy` that removes it, and the
    folder of results, demo-out if no other is named: rm -r demo-out removes that.
    """
    if not run(out, file=file):
        raise typer.Exit(1)
