"""Processes that do the same at once: they wait for each other before each phase, as by MPI."""

from __future__ import annotations

import subprocess
import time
from typing import TYPE_CHECKING, Self

from bench.own import rust

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping
    from types import TracebackType


class Crew:
    """So many processes at one place; a with-block ends them."""

    def __init__(
        self, place: str, ranks: int, environment: Mapping[str, str] | None = None
    ) -> None:
        self._members = [
            subprocess.Popen(  # noqa: S603 - our own program
                [str(rust.PROGRAM), "rank", place, str(rank)],
                env=None if environment is None else dict(environment),
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                text=True,
            )
            for rank in range(ranks)
        ]

    def run(self, work: Callable[[int], str]) -> float:
        """Have every rank do the work that it is given; seconds until all have."""
        start = time.perf_counter()
        for rank, member in enumerate(self._members):
            assert member.stdin is not None  # noqa: S101 - it is a pipe
            member.stdin.write(work(rank) + "\n")
            member.stdin.flush()
        for rank, member in enumerate(self._members):
            assert member.stdout is not None  # noqa: S101 - it is a pipe
            if member.stdout.readline() != "done\n":
                message = f"rank {rank} has not done {work(rank)!r}"
                raise OSError(message)
        return time.perf_counter() - start

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        _kind: type[BaseException] | None,
        _error: BaseException | None,
        _trace: TracebackType | None,
    ) -> None:
        for member in self._members:
            member.communicate()
