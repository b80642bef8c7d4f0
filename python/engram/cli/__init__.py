"""The command line `engram`: one verb, then the pool, then a path in it.

Each verb is a thin caller of the Python package. An error is one line on stderr that says what to
do next, and an exit code by the error's kind; `ENGRAM_TRACEBACK=1` shows where it was raised.

The verbs need libraries that the extra `cli` brings. This module does without, so that the command
can say so where they are missing.
"""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING, NoReturn

from engram.errors import UnsupportedError
from engram.extras import library

if TYPE_CHECKING:
    from collections.abc import Sequence

__all__ = ["main"]


def main(arguments: Sequence[str] | None = None) -> NoReturn:
    """Run the command line and exit.

    Parameters
    ----------
    arguments
        The words after ``engram``; those of the process if not given.

    """
    try:
        for module in ("typer", "rich"):
            library(module, "cli", "the command line")
    except UnsupportedError as error:
        words = list(sys.argv[1:] if arguments is None else arguments)
        if words[:1] == ["config"]:  # who compiles C needs none of them
            from engram import libraries  # noqa: PLC0415 - for this verb alone

            libraries.main(words[1:])
        sys.stderr.write(f"engram: {error}\n")
        sys.exit(error.exit_code)
    from engram.cli.run import run  # noqa: PLC0415 - it imports them

    run(arguments)
