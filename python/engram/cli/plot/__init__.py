"""`engram plot`: a picture of an array, by what its dimensions are."""

from __future__ import annotations

from typing import Annotated

import typer

import engram
from engram.cli import completion, describe, output, terminal
from engram.cli.app import (
    NamespaceOption,
    PathArgument,
    PoolOrClusterArgument,
    app,
    examples,
    object_path,
    opened,
)
from engram.cli.pictures import form_of
from engram.cli.plot.choose import choose
from engram.cli.plot.draw import draw
from engram.cli.terminal import plain
from engram.errors import ArgumentError

_DPI = 150
_KINDS = {"line": "a line", "image": "an image", "map": "a map", "points": "points on a map"}


@app.command(
    epilog=examples(
        "engram plot /dev/shm/run co2/tcco2",
        "engram plot /dev/shm/run co2/tcco2 -o co2.pdf --at time=12",
        "engram plot /dev/shm/run run-17/T --at step=-1 --at z=0 -o - | display",
    )
)
def plot(
    pool: PoolOrClusterArgument,
    path: PathArgument,
    *,
    out: Annotated[
        str | None,
        typer.Option(
            "--output",
            "-o",
            metavar="FILE.png|-",
            help="Where to: png, pdf, svg, jpg; - for stdout.",
        ),
    ] = None,
    at: Annotated[
        list[str] | None,
        typer.Option(
            metavar="DIM=INDEX",
            autocompletion=completion.places,
            help="Which place of a dimension; may be repeated. The first if none.",
        ),
    ] = None,
    dpi: Annotated[int, typer.Option(min=10, max=1200, help="Dots per inch.")] = _DPI,
    overwrite: Annotated[
        bool, typer.Option("--overwrite", help="Replace a file of this name.")
    ] = False,
    namespace: NamespaceOption = "default",
) -> None:
    """Draw an array: a line, an image, or a map where it has latitudes and longitudes.

    Coordinates are found by the dimensions' names, units and calendars read, missing values left
    out and packed ones unpacked, as the CF conventions say. It needs matplotlib: engram[plot].
    """
    places = dict(_place(word) for word in at or ())
    with opened(pool, namespace) as (_, root):
        name = object_path(path)
        array = root[name]
        if not isinstance(array, engram.Array):
            what = f"a {describe.kind(array)}"
            message = f"{plain(name)}: is {what}; name an array (`engram ls {pool} {name}`)"
            raise ArgumentError(message)
        target = out or f"{array.name}.png"
        form = form_of(target)
        choice = choose(array, places)
        with output.writing(target, overwrite=overwrite) as file:
            draw(choice, file, form, dpi)
    if output.standard(target) is None:
        size = " x ".join(map(str, choice.whole))
        fixed = f" at {', '.join(choice.fixed)}" if choice.fixed else ""
        part = f" (one of every {choice.step})" if choice.step > 1 else ""
        terminal.say(f"{target}: {_KINDS[choice.kind]} of {size} values{part}{fixed}")


def _place(word: str) -> tuple[str, int]:
    """Read DIM=INDEX."""
    name, equals, index = word.partition("=")
    try:
        if equals and name:
            return name, int(index)
    except ValueError:
        pass
    message = f"--at {word!r} is not DIM=INDEX, such as time=0 or step=-1"
    raise ArgumentError(message)
