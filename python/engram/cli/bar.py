"""A progress bar on stderr, for what takes longer than a moment."""

from __future__ import annotations

import time
from functools import cached_property
from typing import TYPE_CHECKING, Literal, Self

from engram.cli.terminal import plain

if TYPE_CHECKING:
    from types import TracebackType

    from rich.console import Console
    from rich.progress import Progress, ProgressColumn, TaskID

PATIENCE_S = 1.0
"""A progress bar appears once something has taken so long."""

_NARROW = 72
_BAR_WIDTH = 24
_NARROW_BAR = 10


class Bar:
    """A progress bar on stderr that shows itself once the work has taken over a second."""

    def __init__(
        self,
        what: str,
        total: int | None,
        patience_s: float = PATIENCE_S,
        *,
        unit: Literal["bytes", "items"] = "bytes",
    ) -> None:
        """Begin to count to `total` bytes, or items; to no end that is known, if None."""
        self._what = what
        self._unit = unit
        self._total = total
        self._done = 0
        self._shows_from = time.monotonic() + patience_s
        self._progress: Progress | None = None
        self._task: TaskID | None = None

    def update(self, done: int, what: str | None = None, total: int | None = None) -> None:
        """Say that so many bytes are done."""
        self._what = what or self._what
        self._total = self._total if total is None else total
        if self._progress is None:
            if time.monotonic() < self._shows_from or not self._console.is_terminal:
                return
            self._begin()
        if self._progress is not None and self._task is not None:
            told = self._fitted(plain(self._what))
            self._progress.update(self._task, completed=done, description=told, total=self._total)

    @cached_property
    def _console(self) -> Console:
        """The console of stderr."""
        from rich.console import Console  # noqa: PLC0415 - a moment's work needs no rich

        return Console(stderr=True)

    def _begin(self) -> None:
        """Show the bar."""
        from rich import progress  # noqa: PLC0415 - a moment's work needs no rich

        self._progress = progress.Progress(
            progress.TextColumn("{task.description}", markup=False),
            progress.BarColumn(_NARROW_BAR if self._is_narrow else _BAR_WIDTH),
            *self._columns(),
            console=self._console,
            transient=True,
        )
        self._progress.start()
        self._task = self._progress.add_task(self._fitted(plain(self._what)), total=self._total)

    def _columns(self) -> tuple[ProgressColumn, ...]:
        """Return what stands beside the bar."""
        from rich import progress  # noqa: PLC0415 - as above

        if self._unit == "items":
            return (progress.TextColumn("{task.completed:,}"),)
        if self._is_narrow:
            return (progress.TextColumn("{task.percentage:>3.0f}%"),)
        return (
            progress.DownloadColumn(binary_units=True),
            progress.TransferSpeedColumn(),
            progress.TimeRemainingColumn(),
        )

    def _fitted(self, what: str) -> str:
        """Return a description that leaves room for the bar and what stands beside it."""
        beside = _NARROW_BAR + 8 if self._is_narrow else _BAR_WIDTH + 42
        room = max(self._console.width - beside, 8)
        return what if len(what) <= room else what[: room - 1] + "…"

    @property
    def _is_narrow(self) -> bool:
        """Whether there is no room for more than a share."""
        return self._console.width < _NARROW

    def advance(self, nbytes: int) -> None:
        """Say that so many bytes more are done."""
        self._done += nbytes
        self.update(self._done)

    def __enter__(self) -> Self:
        """Return the bar."""
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        """Take the bar away."""
        if self._progress is not None:
            self._progress.stop()
