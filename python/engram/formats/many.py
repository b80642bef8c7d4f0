"""Many files into one group: each as a whole or not at all, one failing alone.

Each file gets a group of its own, named after it. With several workers, each file is read by one of
them: a process started apart, which opens the pool itself, is handed one file at a time with the
next one waiting, and answers with a report or a failure. If a worker dies, as of memory or of a
library that a damaged file leads astray, the file that it was reading has failed, and another
worker takes its place. If the caller is interrupted, the workers are ended: what they had not
finished was never there.
"""

from __future__ import annotations

import contextlib
import os
import signal
import socket
import subprocess
import sys
from collections import deque
from multiprocessing.connection import Connection, wait
from pathlib import Path
from typing import TYPE_CHECKING, Any

from engram import _stack, telemetry
from engram.arguments import file_path
from engram.batch import Batch
from engram.errors import ArgumentError, EngramError, NotFoundError, ReadOnlyError
from engram.formats.load import Options, load, receiver
from engram.formats.registry import open_source
from engram.formats.report import FilesProgress, ImportFailure, Progress
from engram.formats.select import Selection
from engram.formats.telling import failed, imported, importing, importing_files, numbers
from engram.pool import Pool

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping, Sequence

    from engram.formats.report import ImportReport
    from engram.group import Group

    Outcome = ImportReport | ImportFailure
    Tell = Callable[[FilesProgress], None]

_SHOWN = 5

PLENTY = 16
"""While so many files are waiting, each worker has its next at hand, and need not ask for it."""


def import_one(
    path: Path,
    group: Group,
    where: str,
    options: Options,
    progress: Callable[[Progress], None] | None,
) -> Outcome:
    """Import one file into a group below `group`, which is made in the same batch."""
    try:
        with (
            importing(path, group._namespace) as span,
            open_source(path) as source,
            Batch(group._namespace),
        ):
            report = load(source, receiver(group, where, path), options, progress)
            span.set(numbers, report)
    except EngramError as error:
        return ImportFailure(str(path), place_of(group, where), error)
    return report


def place_of(group: Group, where: str) -> str:
    """Return the path, in its namespace, of what is at `where` in a group."""
    try:
        above = "" if isinstance(group, Pool) else group.path
    except NotFoundError:  # deleted meanwhile, of which the failure itself tells
        above = ""
    return f"{above}/{where}" if above and where else above or where


def import_many(
    paths: Iterable[str | os.PathLike[str]],
    group: Group,
    workers: int,
    options: Options,
    progress: Tell | None,
) -> list[Outcome]:
    """Import as `engram.import_files` says."""
    if isinstance(paths, str | bytes | os.PathLike):
        message = f"{paths!r} is one path: give a list of files, or use import_file"
        raise ArgumentError(message)
    files = _once(file_path("path", path) for path in paths)
    if workers < 1:
        message = f"workers={workers}: give at least 1"
        raise ArgumentError(message)
    if not group._namespace.writable:
        message = (
            f"the pool {str(group._namespace.pool_path)!r} is open read-only: open it with 'r+'"
        )
        raise ReadOnlyError(message)
    Selection(options.select, options.slices)  # what is wrong with these is no file's fault
    tasks = [(path, where) for path, where in zip(files, places(files), strict=True)]
    count = _Count(files, progress)
    with importing_files(group._namespace) as span:
        found = _imported(group, tasks, options, count, min(workers, len(files)))
        span.set(_totals, found)
    return [_told(outcome) for outcome in found]


def _totals(found: list[Outcome]) -> Mapping[str, int]:
    failures = sum(isinstance(outcome, ImportFailure) for outcome in found)
    return {"engram.files": len(found) - failures, "engram.failures": failures}


def _told(outcome: Outcome) -> Outcome:
    return failed(outcome) if isinstance(outcome, ImportFailure) else imported(outcome)


def _imported(
    group: Group,
    tasks: list[tuple[Path, str]],
    options: Options,
    count: _Count,
    workers: int,
) -> list[Outcome]:
    """Import each file: here, or with several workers."""
    if workers <= 1:
        found = []
        for number, (path, where) in enumerate(tasks):
            within = count.within(number) if count.wants_parts else None
            found.append(import_one(path, group, where, options, within))
            count.finish(number)
        return found
    return _Crew(group, tasks, options, count).run(workers)


def _once(paths: Iterable[Path]) -> list[Path]:
    """Return the paths without those that spell an earlier one in another way."""
    found: dict[tuple[str, str], Path] = {}
    for path in paths:
        found.setdefault((os.path.realpath(path.parent), path.name), path)
    return list(found.values())


def places(files: Sequence[Path]) -> list[str]:
    """Return the path of each file's group: its stem, or more of its path where stems collide.

    Where two stems are the same, all files are named by their paths relative to the folder that
    they have in common; with their suffixes, if these alone tell them apart.
    """
    stems = [path.stem for path in files]
    if _distinct(stems):
        return stems
    absolute = [Path(os.path.abspath(path)) for path in files]  # noqa: PTH100 - links are kept
    common = os.path.commonpath([path.parent for path in absolute])
    relative = [path.relative_to(common) for path in absolute]
    for names in ([str(path.with_suffix("")) for path in relative], list(map(str, relative))):
        if _distinct(names):
            return names
    names = [str(path) for path in relative]
    alike = [n for n in names if names.count(n) > 1 or any(m.startswith(f"{n}/") for m in names)]
    message = (
        f"{len(files)} files cannot be told apart by name below {common}: "
        f"{', '.join(alike[:_SHOWN])}: import these by themselves"
    )
    raise ArgumentError(message)


def _distinct(names: list[str]) -> bool:
    """Whether names are all different, and none is inside another."""
    there = set(names)
    within = (name.rpartition("/")[0] for name in names)
    return len(there) == len(names) and not any(above in there for above in within if above)


class _Count:
    """How far it is, in files and in their bytes."""

    def __init__(self, files: list[Path], tell: Tell | None) -> None:
        self._files = files
        self._tell = tell
        self._sizes = [_size(path) for path in files] if tell else [0] * len(files)
        self._total = sum(self._sizes)
        self._done = 0
        self._finished = 0
        self._parts: dict[int, float] = {}

    def finish(self, number: int) -> None:
        """Count a file as done, well or not."""
        self._parts.pop(number, None)
        self._done += self._sizes[number]
        self._finished += 1
        self._say(number)

    def part(self, number: int, progress: Progress) -> None:
        """Take in how far a file is."""
        share = progress.done / progress.total if progress.total else 0.0
        self._parts[number] = share * self._sizes[number]
        self._say(number)

    def within(self, number: int) -> Callable[[Progress], None]:
        """Return what a file's own progress is told to."""
        return lambda progress: self.part(number, progress)

    def _say(self, number: int) -> None:
        if self._tell is None:
            return
        done = self._done + int(sum(self._parts.values()))
        said = FilesProgress(
            str(self._files[number]), self._finished, len(self._files), done, self._total
        )
        self._tell(said)

    @property
    def wants_parts(self) -> bool:
        """Whether anybody listens."""
        return self._tell is not None


def _size(path: Path) -> int:
    """Return a file's bytes; nothing for what is none."""
    try:
        return path.stat().st_size
    except OSError:
        return 0


class _Worker:
    """A process that imports files, and what it has been given."""

    def __init__(self, group: Group, options: Options, *, parts: bool) -> None:
        ours, theirs = socket.socketpair()
        with theirs:
            os.set_inheritable(theirs.fileno(), True)
            path = os.pathsep.join(entry for entry in sys.path if entry)
            # A group of its own: what interrupts the caller at a terminal leaves it to the caller.
            with _stack.for_child():
                self.process = subprocess.Popen(  # noqa: S603 - this package's own
                    [sys.executable, "-m", "engram.formats.worker", str(theirs.fileno())],
                    pass_fds=[theirs.fileno()],
                    stdin=subprocess.DEVNULL,
                    process_group=0,
                    env={**os.environ, "PYTHONPATH": path},
                )
        self.line = Connection(ours.detach())
        self.given: deque[int] = deque()
        with contextlib.suppress(OSError):  # its end is found when it is listened to
            self.line.send((group, options, parts, telemetry.here()))

    def give(self, number: int, task: tuple[Path, str]) -> None:
        """Give it a file."""
        self.given.append(number)
        with contextlib.suppress(OSError):
            self.line.send((number, *task))

    def end(self) -> None:
        """End it, whatever it does."""
        self.line.close()
        self.process.kill()
        self.process.wait()


class _Crew:
    """The workers at their work."""

    def __init__(
        self,
        group: Group,
        tasks: list[tuple[Path, str]],
        options: Options,
        count: _Count,
    ) -> None:
        self._group = group
        self._tasks = tasks
        self._options = options
        self._count = count
        self._waiting = deque(range(len(tasks)))
        self._found: dict[int, Outcome] = {}

    def run(self, number: int) -> list[Outcome]:
        """Import all, with so many workers."""
        workers: list[_Worker] = []
        try:
            workers += [self._hire() for _ in range(number)]
            while len(self._found) < len(self._tasks):
                for line in wait([worker.line for worker in workers]):
                    worker = next(w for w in workers if w.line is line)
                    if not self._listen(worker):
                        workers.remove(worker)
                        self._reap(worker)
                        if self._waiting:
                            workers.append(self._hire())
        finally:
            for worker in workers:
                worker.end()
        return [self._found[number] for number in range(len(self._tasks))]

    def _hire(self) -> _Worker:
        """Start a worker, and give it its first files."""
        worker = _Worker(self._group, self._options, parts=self._count.wants_parts)
        self._feed(worker)
        if len(self._waiting) >= PLENTY:
            self._feed(worker)
        return worker

    def _feed(self, worker: _Worker) -> None:
        """Give a worker one file more, if there is one."""
        if self._waiting:
            number = self._waiting.popleft()
            worker.give(number, self._tasks[number])

    def _listen(self, worker: _Worker) -> bool:
        """Take in what a worker says; whether it is still alive."""
        try:
            number, said = worker.line.recv()
        except (EOFError, OSError):
            return False
        if isinstance(said, Progress):
            self._count.part(number, said)
        elif number is None:  # it could not begin
            raise said
        else:
            worker.given.remove(number)
            self._settle(number, said)
            if not worker.given or len(self._waiting) >= PLENTY:
                self._feed(worker)
        return True

    def _reap(self, worker: _Worker) -> None:
        """Note the file that a dead worker was reading as failed, and take back the others."""
        worker.end()
        code = worker.process.returncode
        if not worker.given:
            return
        number, *rest = worker.given
        self._waiting.extendleft(reversed(rest))
        path, where = self._tasks[number]
        ended = f"by {signal.Signals(-code).name}" if code < 0 else f"with exit code {code}"
        scarcity = _stack.scarcity() if code < 0 else None
        why = scarcity or "the file is damaged, or this job's memory is used up"
        message = (
            f"{path}: the process that imported it was ended {ended}; {why}. Nothing of it was "
            "imported"
        )
        self._settle(
            number, ImportFailure(str(path), place_of(self._group, where), EngramError(message))
        )

    def _settle(self, number: int, outcome: Any) -> None:
        """Take in a file's outcome."""
        self._found[number] = outcome
        self._count.finish(number)
