"""The command line `engram`: one verb, then the pool, then a path in it.

Each verb is a thin caller of the Python package. An error is one line on stderr that says what to
do next, and an exit code by the error's kind; `ENGRAM_TRACEBACK=1` shows where it was raised.
"""

from __future__ import annotations

import io
import sys
from pathlib import Path
from typing import TYPE_CHECKING

from engram import _starting
from engram.cli import output
from engram.cli.app import app, arrange
from engram.cli.terminal import fail, fail_below
from engram.errors import EngramError, PoolNotFoundError, QueryError

# Each of these modules adds its verbs to `app`.
from engram.cli import (  # noqa: F401  # isort: skip
    demo,
    doctor,
    export,
    files,
    housekeeping,
    index,
    info,
    ls,
    names,
    ns,
    plot,
    pools,
    query,
    share,
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
    _starting.begun()
    for stream in (sys.stdout, sys.stderr):
        if isinstance(stream, io.TextIOWrapper):  # a terminal of another encoding gets escapes
            stream.reconfigure(errors="backslashreplace")
    words = sys.argv[1:] if arguments is None else list(arguments)
    try:
        with output.written("stdout"):
            try:
                app(words, prog_name="engram")
            finally:
                output.flush()
    except QueryError as error:
        fail_below(str(error), error.exit_code)
    except EngramError as error:
        hint = _pool_first(words) if isinstance(error, PoolNotFoundError) else ""
        fail(f"{error}{hint}", error.exit_code)
    except KeyboardInterrupt:
        sys.exit(_starting.INTERRUPTED)
    except BrokenPipeError:
        sys.exit(0)  # whoever read our output has seen enough
    except OSError as error:
        fail(str(error), OS_EXIT_CODE)


def _pool_first(words: list[str]) -> str:
    """Return a hint for who named the pool after the path in it."""
    found = [word for word in words[2:] if Path(word, "pool.toml").is_file()]
    return f"; the pool comes first: `engram {words[0]} {found[0]} ...`" if found else ""
