"""`engram config`: what a compiler has to be told about the C library of this installation."""

from typing import Annotated

import typer

from engram import libraries
from engram.cli import terminal
from engram.cli.app import app, examples


def _asked(word: str) -> typer.models.OptionInfo:
    option: typer.models.OptionInfo = typer.Option(f"--{word}", help=libraries.WORDS[word])
    return option


@app.command(
    epilog=examples(
        "engram config --cflags --libs",
        "engram config --cmakedir",
        "engram config",
    )
)
def config(
    *,
    cflags: Annotated[bool, _asked("cflags")] = False,
    libs: Annotated[bool, _asked("libs")] = False,
    cmakedir: Annotated[bool, _asked("cmakedir")] = False,
    prefix: Annotated[bool, _asked("prefix")] = False,
) -> None:
    """Tell a compiler where the C library of this installation is.

    `cc model.c $(engram config --cflags --libs)` compiles a program, and CMake takes
    `-D engram_DIR=$(engram config --cmakedir)`. Without an option, all of it is told.
    `python -m engram config` does the same, and needs no extra.
    docs/guide/from-simulations.md tells more.
    """
    given = {"cflags": cflags, "libs": libs, "cmakedir": cmakedir, "prefix": prefix}
    terminal.print_lines(
        libraries.told([word for word, asked in given.items() if asked]).split("\n")
    )
