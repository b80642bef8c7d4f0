"""Work in a child process: what a damaged pool may kill, and what may go on for ever.

The child says `.` on stderr when it has started, and once a second while it works. One that says
nothing at all for a long time is ended, and that is told like any other death. One that dies
without ever having said it where stacks are small has died of that, and not of the pool.
"""

import os
import selectors
import signal
import subprocess
import sys
from dataclasses import dataclass
from typing import IO

from engram import _stack
from engram.errors import UnsupportedError

QUIET_SECONDS = 300.0
"""A child that says nothing for so long does not work any more."""

_PIECE = 1 << 16


@dataclass(frozen=True)
class Ended:
    """How a child ended, and what it said."""

    code: int
    """Its exit code; of one that a signal ended, the signal, negative."""

    said: str
    """Its standard output."""

    told: str
    """Its standard error, without the signs of life."""

    quiet: bool
    """Whether it was ended for having said nothing."""

    @property
    def death(self) -> str | None:
        """How it died, in words; None if it ended by itself."""
        if self.quiet:
            return f"went on without a sign of life for {QUIET_SECONDS:.0f} s, and was ended"
        if self.code < 0:
            return f"was killed by {signal.Signals(-self.code).name}"
        return None


def run(module: str, *arguments: str) -> Ended:
    """Run a module of this package in a child process, until it ends or is silent for long.

    Raises
    ------
    UnsupportedError
        If it died of too small a stack as it started.

    """
    with _stack.for_child():
        process = subprocess.Popen(  # noqa: S603 - our own module, no shell
            [sys.executable, "-m", f"engram.{module}", *arguments],
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
        )
    with process as child:
        try:
            said, told, quiet = _heard(child)
        except BaseException:
            child.kill()
            raise
    scarcity = None if told or child.returncode >= 0 else _stack.scarcity()
    if scarcity is not None:
        raise UnsupportedError(scarcity)
    text = told.decode(errors="replace").strip(".\n")
    return Ended(child.returncode, said.decode(errors="replace"), text, quiet)


def _heard(child: "subprocess.Popen[bytes]") -> tuple[bytes, bytes, bool]:
    """Read what the child says until it ends."""
    parts: dict[int, list[bytes]] = {}
    pipes: list[IO[bytes]] = [pipe for pipe in (child.stdout, child.stderr) if pipe is not None]
    quiet = False
    with selectors.DefaultSelector() as waiting:
        for pipe in pipes:
            waiting.register(pipe, selectors.EVENT_READ)
            parts[pipe.fileno()] = []
        while waiting.get_map() and not quiet:
            ready = waiting.select(QUIET_SECONDS)
            quiet = not ready
            for key, _ in ready:
                piece = os.read(key.fd, _PIECE)
                parts[key.fd].append(piece)
                if not piece:
                    waiting.unregister(key.fileobj)
    if quiet:
        child.kill()
    said, told = (b"".join(parts[pipe.fileno()]) for pipe in pipes)
    return said, told, quiet
