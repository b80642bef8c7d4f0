"""Work in a forked child, which a damaged pool may kill: what it says is lines of JSON in a pipe.

What has been said before the death is not lost, and says how far the child had come.
"""

from __future__ import annotations

import contextlib
import json
import os
import signal
from typing import TYPE_CHECKING, Any

from engram import errors
from engram._starting import INTERRUPTED
from engram.cli.terminal import noting
from engram.errors import EngramError

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    Say = Callable[..., None]

DIED = "died"
"""The last line of a child that a signal has ended: it is followed by the signal's name."""

_ERROR, _DONE = "error", "done"


def lines_of(work: Callable[[Say], None]) -> Iterator[list[Any]]:
    """Do some work in a child, and yield what it says.

    `say(*words)` hands all over that was said before it returns; `say(*words, later=True)` keeps
    the words for the next time.

    Raises
    ------
    EngramError
        What the work has raised, if it is one; of any other error its type and text; or that the
        child has ended without a word before its work was done.
    OSError
        What the work has raised, if it is one.

    """
    reader, writer = os.pipe()
    child = os.fork()
    if child == 0:
        os.close(reader)
        _work(work, writer)
    os.close(writer)
    ended, is_done = None, False
    try:
        with os.fdopen(reader, encoding="utf-8") as pipe:
            for line in pipe:
                if not line.endswith("\n"):
                    break
                words = json.loads(line)
                if words[0] == _ERROR:
                    raise _error(*words[1:])
                if words[0] == _DONE:
                    is_done = True
                else:
                    yield words
        _, ended = os.waitpid(child, 0)
    finally:
        if ended is None:
            with contextlib.suppress(ProcessLookupError):
                os.kill(child, signal.SIGKILL)
            os.waitpid(child, 0)
    code = os.waitstatus_to_exitcode(ended)
    if code == INTERRUPTED:
        raise KeyboardInterrupt
    if code < 0 and not is_done:
        yield [DIED, signal.Signals(-code).name]
    elif code != 0 or not is_done:
        message = (
            f"who read for this command ended with exit code {code} before all was told: run the "
            "command again"
        )
        raise EngramError(message)


def _work(work: Callable[[Say], None], writer: int) -> None:
    """Do the work, and end this process."""
    code = 1
    try:
        with os.fdopen(writer, "wb", buffering=0) as pipe:
            kept: list[str] = []

            def say(*words: Any, later: bool = False) -> None:
                kept.append(f"{json.dumps(words)}\n")
                if not later:
                    left = memoryview("".join(kept).encode())
                    kept.clear()
                    while left:
                        left = left[pipe.write(left) :]

            try:
                with noting():
                    work(say)
                say(_DONE)
            except BrokenPipeError:
                raise
            except Exception as error:  # noqa: BLE001 - it is raised again where it can be told
                say(_ERROR, *_as_words(error))
        code = 0
    except KeyboardInterrupt:
        code = INTERRUPTED
    except BrokenPipeError:
        pass  # nobody listens any more
    finally:
        os._exit(code)


def _as_words(error: Exception) -> list[Any]:
    """Return what an error is made of again by `_error`."""
    if isinstance(error, EngramError):
        return [type(error).__name__, str(error)]
    if isinstance(error, OSError):
        named = error.filename if isinstance(error.filename, str | bytes | os.PathLike) else None
        what = error.strerror or str(error)
        return [OSError.__name__, what, error.errno, None if named is None else os.fsdecode(named)]
    message = f"who read for this command failed: {in_full(error)}; `engram verify` tells of damage"
    return [EngramError.__name__, message]


def _error(
    kind: str, message: str, errno: int | None = None, named: str | None = None
) -> Exception:
    """Return an error as it was raised."""
    if kind == OSError.__name__:
        return OSError(message) if errno is None else OSError(errno, message, named)
    found: type[EngramError] = getattr(errors, kind, EngramError)
    return found(message)


def in_full(error: Exception) -> str:
    """Return the type and the text of an error that is none of Engram's."""
    return f"{type(error).__name__}: {error}"
