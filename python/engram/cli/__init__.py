"""The command line `engram`: one verb, then the pool, then a path in it.

Each verb is a thin caller of the Python package. An error is one line on stderr that says what to
do next, and an exit code by the error's kind; `ENGRAM_TRACEBACK=1` shows where it was raised.
"""

from __future__ import annotations

import os
import sys
from typing import TYPE_CHECKING

from engram.cli.app import app, arrange
from engram.cli.terminal import fail
from engram.errors import EngramError

# Each of these modules adds its verbs to `app`.
from engram.cli import (  # noqa: F401  # isort: skip
    demo,
    doctor,
    export,
    files,
    info,
    ls,
    names,
    ns,
    plot,
    pools,
    stats,
    tree,
    values,
)

if TYPE_CHECKING:
    from collections.abc import Sequence

__all__ = ["app", "main"]

OS_EXIT_CODE = 22

arrange()


def main(arguments: Sequence[str] | None = None) -> None:
    """Run the command line and exit.

    Parameters
    ----------
    arguments
        The words after ``engram``; those of the process if not given.

    """
    try:
        app(arguments if arguments is None else list(arguments), prog_name="engram")
    except EngramError as error:
        code = error.exit_code
        fail(str(error), code)
    except BrokenPipeError:
        # Whoever read our output has seen enough; nothing more can be written there.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        sys.exit(0)
    except OSError as error:
        fail(str(error), OS_EXIT_CODE)
