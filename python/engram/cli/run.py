"""One run of the command line: the verb, what it writes, and how it ends."""

from __future__ import annotations

import io
import itertools
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any, NoReturn

import typer

from engram import _starting
from engram.cli import completion, output
from engram.cli.app import VERBS, app, arrange
from engram.cli.terminal import AS_JSON, fail, fail_below, kind_of
from engram.errors import EngramError, PoolNotFoundError, QueryError
from engram.paths import POOL_FILE

if TYPE_CHECKING:
    from collections.abc import Sequence

ABORTED = 1
"""The exit code of what was asked about, and not agreed to."""

USAGE = 2
"""The exit code of a command that is itself wrong."""

WrongUsage: type[Any] = typer.BadParameter.__mro__[1]
"""What Typer raises then; it has no other name for it that is public."""

QUIET_VERBS = frozenset(VERBS) - {
    "ls",
    "tree",
    "info",
    "query",
    "watch",
    "stats",
    "doctor",
    "active",
    "attr",
    "dump",
    "diff",
    "cluster",
}
"""What these print is a word on what they have done: where stdout is closed they do without."""

_TO_STDOUT = {output.STDIO, "/dev/stdout", "/dev/fd/1", "/proc/self/fd/1"}


def run(arguments: Sequence[str] | None = None) -> NoReturn:
    """Run the command line and exit."""
    arrange()  # a program may have imported modules of verbs
    completion.put_together()
    words = sys.argv[1:] if arguments is None else list(arguments)
    AS_JSON.set("--json" in itertools.takewhile("--".__ne__, words))
    output.stand_in(shows=AS_JSON.get() or _shows(words))
    for stream in (sys.stdout, sys.stderr):
        if isinstance(stream, io.TextIOWrapper):  # a terminal of another encoding gets escapes
            stream.reconfigure(errors="backslashreplace")
    try:
        code = _done(words)
    except WrongUsage as error:
        _refuse(error)
    except typer.Abort:
        fail("not agreed to: nothing has changed", ABORTED, "Aborted")
    except QueryError as error:
        fail_below(str(error), error.exit_code, kind_of(error))
    except EngramError as error:
        hint = _pool_first(words) if isinstance(error, PoolNotFoundError) else ""
        fail(f"{error}{hint}", error.exit_code, kind_of(error))
    except KeyboardInterrupt:
        sys.exit(_starting.INTERRUPTED)
    except BrokenPipeError:
        sys.exit(0)  # the reader of our output has seen enough
    except OSError as error:
        fail(str(error), EngramError.exit_code, EngramError.__name__)
    sys.exit(code if isinstance(code, int) else 0)


def _done(words: list[str]) -> object:
    """Do what the words say, and write all that is to be written; give what the verb does."""
    with output.written(output.STDOUT):
        try:
            return app(words, prog_name="engram", standalone_mode=False)
        except SystemExit as ended:
            if isinstance(ended.__context__, BrokenPipeError):  # which rich makes an exit with 1
                raise ended.__context__ from None
            raise
        finally:
            output.flush()


def _refuse(error: Any) -> NoReturn:
    """Say what is wrong with a command, and how to get its help, and exit."""
    if type(error).__name__ == "NoArgsIsHelpError":  # the help has been printed
        sys.exit(USAGE)
    said = error.format_message().rstrip(".")
    command = "engram" if error.ctx is None else error.ctx.command_path
    message = f"{said[:1].lower()}{said[1:]}; `{command} --help` tells more"
    fail(message, USAGE, "UsageError")


def _shows(words: list[str]) -> bool:
    """Whether a command is there for what it writes to stdout."""
    return not words or words[0] not in QUIET_VERBS or not _TO_STDOUT.isdisjoint(words[1:])


def _pool_first(words: list[str]) -> str:
    """Return a hint for a user who named the pool after the path in it."""
    if words[0] == "run":  # what stands behind its pools is a program's
        return ""
    found = [word for word in words[2:] if Path(word, POOL_FILE).is_file()]
    return f"; the pool comes first: `engram {words[0]} {found[0]} ...`" if found else ""
