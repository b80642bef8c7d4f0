"""A process that imports files for `many`, one after the other, until it is told no more.

    python -m engram.formats.worker FD

It is started apart, not forked, so that it shares nothing with its caller but the connection at FD;
when that ends, it ends.
"""

from __future__ import annotations

import sys
import time
from multiprocessing.connection import Connection
from typing import TYPE_CHECKING

from engram import telemetry
from engram.errors import EngramError
from engram.formats.many import import_one

if TYPE_CHECKING:
    from collections.abc import Callable

    from engram.formats.report import Progress

EVERY_S = 0.1
"""How often a caller is told how far a file is, at most."""


def main() -> None:
    """Import what the connection asks for."""
    with Connection(int(sys.argv[1])) as line:
        try:
            group, options, parts, trace = line.recv()
        except EngramError as error:  # the pool cannot be opened here
            line.send((None, error))
            return
        while True:
            try:
                number, path, where = line.recv()
                tell = _teller(line, number) if parts else None
                with telemetry.within(trace):
                    outcome = import_one(path, group, where, options, tell)
                line.send((number, outcome))
            except (EOFError, OSError):
                return


def _teller(line: Connection, number: int) -> Callable[[Progress], None]:
    """Return what tells the caller of a file's progress, now and then."""
    last = time.monotonic()

    def tell(progress: Progress) -> None:
        nonlocal last
        if time.monotonic() - last >= EVERY_S:
            last = time.monotonic()
            line.send((number, progress))

    return tell


if __name__ == "__main__":
    main()
