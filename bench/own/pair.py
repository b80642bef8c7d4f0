"""Two processes at once: putting large arrays, and committing small ones.

    python -m bench.own.pair FOLDER WHO

is one of the two: it does a round of the work that each line of its input names and answers with a
line, so that both begin together.
"""

from __future__ import annotations

import subprocess
import sys
from itertools import count
from pathlib import Path
from typing import IO, TYPE_CHECKING

import engram
from bench.compare.memory import Mapping
from bench.harness import Bound, Contestant, Line, measure, timed
from bench.own.large import NAME, WARM_UP, large
from bench.own.small import VALUES
from bench.own.store import Engram

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from bench.setting import Setting

PUTS = 6
CREATES = 2000


class Worker:
    """What one of the two can be asked to do."""

    def __init__(self, folder: Path, who: str) -> None:
        """Open the pool in `folder` that the other has open too, and a mapping of its own."""
        self.pool = engram.open(folder / "own.pool")
        self.values = large()
        self.mapping = Mapping(folder, self.values.nbytes, f"plain-{who}").warm()
        self.who = who
        self.rounds = count()

    def put(self) -> None:
        """Put large arrays."""
        for _ in range(PUTS):
            self.pool.create_array(f"{NAME}-{self.who}", data=self.values, overwrite=True)

    def copy(self) -> None:
        """Copy as much with memcpy."""
        for _ in range(PUTS):
            self.mapping.copy(self.values)

    def create(self) -> None:
        """Create small arrays, one commit each."""
        group = self.pool.create_group(f"small/{self.who}/{next(self.rounds)}")
        for i in range(CREATES):
            group.create_array(f"x{i:06d}", data=VALUES)


class Pair:
    """Both processes, seen from the one that asks them."""

    def __init__(self, folder: Path) -> None:
        """Start both and wait until they are ready."""
        self.processes = [
            subprocess.Popen(  # noqa: S603
                [sys.executable, "-m", "bench.own.pair", str(folder), who],
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                text=True,
            )
            for who in ("a", "b")
        ]
        self.answers(2)

    def ask(self, work: str, processes: int = 2) -> None:
        """Let the first `processes` of them do `work` at once, and wait for all."""
        for process in self.processes[:processes]:
            pipe(process.stdin).write(f"{work}\n")
            pipe(process.stdin).flush()
        self.answers(processes)

    def answers(self, processes: int) -> None:
        """Read a line of each; RuntimeError if one has died."""
        for process in self.processes[:processes]:
            if not pipe(process.stdout).readline():
                message = f"a process of the pair ended with {process.wait()}"
                raise RuntimeError(message)

    def close(self) -> None:
        """End both."""
        for process in self.processes:
            pipe(process.stdin).close()
            process.wait()
            pipe(process.stdout).close()


def pipe(stream: IO[str] | None) -> IO[str]:
    """Return the stream, which is there because a pipe was asked for."""
    assert stream is not None  # noqa: S101 - for the type checker
    return stream


def lines(setting: Setting) -> Iterator[Line]:
    """Two processes putting 64 MiB beside two copying; two creating small arrays beside one."""
    own = Engram(setting.folder)
    pair = Pair(setting.folder)
    for _ in range(WARM_UP):
        pair.ask("put")

    def asking(work: str, units: int, processes: int = 2) -> Callable[[], float]:
        return lambda: timed(lambda: pair.ask(work, processes), units)

    contestants = [
        Contestant("engram", asking("put", 2 * PUTS)),
        Contestant("memcpy", asking("copy", 2 * PUTS)),
    ]
    line = Line("two processes putting 64 MiB", "ms", [Bound("engram", "memcpy", "speed", 0.9)])
    yield measure(line, contestants, 2 * setting.rounds)

    contestants = [
        Contestant("engram", asking("create", 2 * CREATES)),
        Contestant("one process", asking("create", CREATES, 1)),
    ]
    line = Line("two processes creating 256 B arrays", "us", [])
    line.bounds.append(Bound("engram", "one process", "show"))
    yield measure(line, contestants, 2 * setting.rounds)
    pair.close()
    own.close()


def main() -> None:
    """Be one of the two."""
    worker = Worker(Path(sys.argv[1]), sys.argv[2])
    print("ready", flush=True)  # noqa: T201 - the answer
    for request in sys.stdin:
        getattr(worker, request.strip())()
        print("done", flush=True)  # noqa: T201 - the answer


if __name__ == "__main__":
    main()
