"""The processes of the kernels, seen from the one that asks them."""

from __future__ import annotations

import subprocess
import sys
from typing import IO, TYPE_CHECKING

if TYPE_CHECKING:
    from pathlib import Path


class Crew:
    """Several processes that do the same at once."""

    def __init__(self, folder: Path, processes: int) -> None:
        """Start them and wait until they are ready."""
        self.processes = [
            subprocess.Popen(  # noqa: S603
                [sys.executable, "-m", "bench.kernels.worker", str(folder), str(rank)],
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                text=True,
            )
            for rank in range(processes)
        ]
        self.answers()

    def ask(self, method: str, *words: object) -> None:
        """Let all do something at once, and wait for all."""
        request = "\t".join([method, *map(str, words)])
        for process in self.processes:
            pipe(process.stdin).write(f"{request}\n")
            pipe(process.stdin).flush()
        self.answers()

    def answers(self) -> None:
        """Read a line of each; RuntimeError if one has died."""
        for process in self.processes:
            if not pipe(process.stdout).readline():
                message = f"a process of the kernels ended with {process.wait()}"
                raise RuntimeError(message)

    def close(self) -> None:
        """End them."""
        for process in self.processes:
            pipe(process.stdin).close()
            process.wait()
            pipe(process.stdout).close()


def pipe(stream: IO[str] | None) -> IO[str]:
    """Return the stream, which is there because a pipe was asked for."""
    assert stream is not None  # noqa: S101 - for the type checker
    return stream
