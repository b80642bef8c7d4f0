"""Ctrl-C while the command line starts: it ends with 130 at once, without a word.

Loading all that a verb needs takes a moment. An interruption then would show where in it Python
was, though nothing has begun that could be broken off. So this is loaded before all else, and
`main` ends it. In a program that is not the command line it does nothing.
"""

import itertools
import os
import signal
import sys
from types import FrameType

INTERRUPTED = 130
"""The exit code of what Ctrl-C has ended, as shells have it."""

_OURS = "engram.cli"


def _is_command() -> bool:
    """Whether this process is `engram`, the script that pip makes, or `python -m engram.cli`."""
    words = sys.orig_argv
    if ("-m", _OURS) in itertools.pairwise(words):
        return True
    outermost = sys._getframe()
    while outermost.f_back is not None:
        outermost = outermost.f_back
    named = sys.argv[0].rpartition("/")[2] == "engram"
    return named and _OURS in outermost.f_code.co_names


def _end(_signal: int, _frame: FrameType | None) -> None:
    os._exit(INTERRUPTED)


def begun() -> None:
    """From now on Ctrl-C is `KeyboardInterrupt` again."""
    if signal.getsignal(signal.SIGINT) is _end:
        signal.signal(signal.SIGINT, signal.default_int_handler)


if signal.getsignal(signal.SIGINT) is signal.default_int_handler and _is_command():
    signal.signal(signal.SIGINT, _end)
