"""The files of a job brought into its pool, and what is persistent brought out of it."""

import contextlib
import time
from collections.abc import Callable
from datetime import UTC, datetime
from pathlib import Path
from typing import NamedTuple, overload

from engram import telemetry
from engram.errors import AccessError, EngramError, NotFoundError, PoolFullError
from engram.jobs import arrays, tags
from engram.jobs.description import Description, Resource, is_below
from engram.jobs.pools import JobPool
from engram.size import human
from engram.stage import (
    Early,
    InOptions,
    OutOptions,
    Progress,
    Report,
    Stage,
    Trouble,
    begin_in,
    begin_out,
)

_log = telemetry.Log("engram.jobs")

_LOOK_SECONDS = 0.1
"""Between two looks how far a stage is."""
_LOG_ROOM = 64 << 20
"""Bytes that a pool may have beyond its backends, so that a stage-out has room for its notes."""

Tell = Callable[[str], None]
"""Is called with a sentence on what was done, or was not."""
Watch = Callable[[str, Progress], None]
"""Is called now and then with "stage in" or "stage out", and how far that is."""


class Hooks(NamedTuple):
    """Who is told what happens, and who is asked whether to go on."""

    tell: Tell
    watch: Watch | None
    stops: Callable[[], bool]


class Log:
    """Tells what happens: to whoever asked, and to the description's `log-file`."""

    def __init__(self, file: Path | None, tell: Tell | None) -> None:
        self._file = file
        self._tell = tell

    def __call__(self, message: str) -> None:
        """Tell it."""
        _log.info("%s", message)
        if self._tell is not None:
            self._tell(message)
        if self._file is None:
            return
        when = datetime.now(UTC).isoformat(timespec="seconds")
        try:
            with self._file.open("a", encoding="utf-8", errors="backslashreplace") as log:
                log.write(f"{when} {message}\n")
        except OSError as error:
            file, self._file = self._file, None
            if self._tell is not None:
                self._tell(f"{file} takes no more lines: {error.strerror}")


class Outcome(NamedTuple):
    """What came of a job's files."""

    report: Report | None
    """What the stage says; None: there was nothing to copy."""
    troubles: tuple[Trouble, ...]
    """What could not be done."""
    stopped: bool = False
    """Whether somebody has stopped it."""

    @property
    def whole(self) -> bool:
        """Whether all of it was done."""
        return not self.troubles and not self.stopped


def check_sources(description: Description) -> None:
    """See that what is to be brought in is there.

    What is persistent may come later, and so may what is temporary in another resource's folder.

    Raises
    ------
    NotFoundError, AccessError
        If it is not, or this user may not look at it; with line and column.

    """
    for resource in description.resources:
        try:
            is_there = _is_there(resource)
        except PermissionError:
            raise AccessError(
                f"{resource.place}: {resource.path} cannot be looked at: this user may not"
            ) from None
        needed = not resource.is_persistent and not _is_inner(resource, description)
        if needed and not is_there:
            raise NotFoundError(
                f"{resource.place}: there is no {resource.path}: name a file or folder that is "
                f"there, or say persistent of what the job is to make"
            )


def _is_inner(resource: Resource, description: Description) -> bool:
    return any(
        other is not resource and is_below(resource.to, other.to) for other in description.resources
    )


def _is_there(resource: Resource) -> bool:
    try:
        resource.path.stat()
    except (FileNotFoundError, NotADirectoryError):
        return False
    return True


class Incoming:
    """Files that are on their way while the program runs."""

    def __init__(self, held: JobPool, stage: Stage, hooks: Hooks) -> None:
        self._held = held
        self._stage = stage
        self._hooks = hooks

    def stop(self) -> None:
        """Let no more of them come: programs that wait for one find what is there."""
        self._stage.stop()
        with contextlib.suppress(EngramError):
            self._stage.wait()

    def rest(self) -> Outcome:
        """Wait until all are there, or somebody stops the job."""
        try:
            report, stopped = _waited(self._stage, "stage in", self._hooks)
        except EngramError as error:
            return Outcome(None, (Trouble(str(self._held.folder), str(error)),))
        self._hooks.tell(_told(report, f"in {self._held.folder}"))
        return Outcome(report, report.troubles, stopped)


def bring_in(held: JobPool, hooks: Hooks, early: Early | None = None) -> Outcome | Incoming:
    """Bring a job's files into its pool: those that are there already are not copied again.

    With `early`, give the rest of them once so much is there.

    Raises
    ------
    PoolFullError
        If they are more than the backends may hold: what was asked, what there is, who has it.

    """
    description = held.description
    there = [one for one in description.resources if _is_there(one)]
    files = [one for one in there if one.type == "file" and not _is_covered(one, there)]
    for resource in description.resources:
        if resource not in there:
            hooks.tell(f"{resource.path} is not there yet: what the job makes of it is brought out")
    for resource in there:
        if resource.type == "array" and not hooks.stops():
            nbytes = arrays.bring_in(held.pool, resource)
            hooks.tell(f"{resource.path} is imported as arrays, {human(nbytes)}")
    if not files or hooks.stops():
        return Outcome(None, (), hooks.stops())
    pairs = {str(one.path): one.to or "/" for one in files}
    options: InOptions = {
        "workers": description.workers,
        "rate": description.rate,
        "existing": "update",
        "device": _devices(held, files),
        "awaited": early is not None,
    }
    begun = begin_in(held.pool, pairs, **options)
    try:
        report, stopped = _waited(begun, "stage in", hooks, early)
    except PoolFullError as error:
        raise PoolFullError(_too_small(held, begun.progress(), error)) from None
    if report is None:
        progress = begun.progress()
        hooks.tell(
            f"the program begins with {progress.files} of {progress.files_in_all} files, "
            f"{human(progress.nbytes)} of {human(progress.nbytes_in_all)}: the rest comes meanwhile"
        )
        return Incoming(held, begun, hooks)
    hooks.tell(_told(report, f"in {held.folder}"))
    return Outcome(report, report.troubles, stopped)


def devices(held: JobPool) -> dict[str, int]:
    """Say which device of the pool each backend is, by its id; of a single one, nothing."""
    backends = held.description.backends
    if len(backends) == 1:
        return {}
    index = {device.path.resolve(): device.index for device in held.pool.devices}
    # The pool's own folder lies in the first one's: that is its device 0.
    return {one.id: index.get(one.daxfs.resolve(), 0) for one in backends}


def _devices(held: JobPool, files: list[Resource]) -> dict[str, int]:
    """Say on which device of the pool each resource's bytes lie: that of its backend.

    Raises
    ------
    PoolFullError
        If the resources of a backend are more than it may hold.

    """
    of_backends = devices(held)
    found: dict[str, int] = {}
    for backend in held.description.backends if of_backends else ():
        own = [one for one in files if one.backend == backend]
        sizes = [_size_of(one.path) for one in own]
        if sum(sizes) > backend.capacity:
            most = max(zip(sizes, own, strict=True), key=lambda each: each[0])
            raise PoolFullError(
                f"{backend.place}: backend {backend.id!r} may hold {human(backend.capacity)}, and "
                f"its resources have {human(sum(sizes))}, most of it {most[1].path} with "
                f"{human(most[0])}: raise its capacity, or name another backend for some"
            )
        found |= {one.to or "/": of_backends[backend.id] for one in own}
    return found


def _is_covered(resource: Resource, there: list[Resource]) -> bool:
    """Whether the folder that it is in brings it to the same place."""
    for other in there:
        covers = other is not resource and is_below(resource.to, other.to)
        if covers and other.type == "file" and resource.path.is_relative_to(other.path):
            inner = resource.path.relative_to(other.path).as_posix()
            if resource.to == (f"{other.to}/{inner}" if other.to else inner):
                return True
    return False


def bring_out(held: JobPool, hooks: Hooks, *, overwrite: bool) -> Outcome:
    """Bring what is persistent out of a job's pool, and see that it is there as it should be.

    What goes wrong is in the outcome, whatever it is: the pool stays then.
    """
    description = held.description
    results = description.results_dir
    troubles: list[Trouble] = []
    report, stopped = None, False
    held.make_room(_LOG_ROOM)
    try:
        planned = tags.plan(held.pool, description)
        troubles += planned.troubles
        for resource in planned.absent:
            hooks.tell(f"{resource.to} is persistent, and not there: the job has not made it")
        if planned.targets:
            for folder, mode in planned.folders:
                folder.mkdir(parents=True, exist_ok=True)
                folder.chmod(mode)
            options: OutOptions = {
                "workers": description.workers,
                "rate": description.rate,
                "verify": "readback",
                "existing": "overwrite" if overwrite else "refuse",
            }
            begun = begin_out(held.pool, planned.targets, **options)
            report, stopped = _waited(begun, "stage out", hooks)
            troubles += report.troubles
            hooks.tell(_told(report, f"in {results}"))
        for resource in planned.arrays:
            if not stopped:
                target = results / resource.to
                troubles += arrays.bring_out(held.pool, resource, target, overwrite=overwrite)
                hooks.tell(f"{resource.to} is exported to {target}")
    except EngramError as error:
        troubles.append(Trouble(str(results), str(error)))
    except OSError as error:
        why = error.strerror or str(error)
        troubles.append(Trouble(str(error.filename or results), why))
    if report is not None and not report.whole and not troubles and not stopped:
        troubles.append(Trouble(str(results), "not all of it was brought out"))
    return Outcome(report, tuple(troubles), stopped)


@overload
def _waited(stage: Stage, what: str, hooks: Hooks) -> tuple[Report, bool]: ...
@overload
def _waited(
    stage: Stage, what: str, hooks: Hooks, early: Early | None
) -> tuple[Report | None, bool]: ...
def _waited(
    stage: Stage, what: str, hooks: Hooks, early: Early | None = None
) -> tuple[Report | None, bool]:
    """Wait for a stage; give its report, and whether it was stopped.

    With `early`, there is no report if so much is there before it ends.
    """
    stopped = False
    try:
        while (report := stage.wait(_LOOK_SECONDS)) is None:
            progress = stage.progress()
            if hooks.watch is not None:
                hooks.watch(what, progress)
            if early is not None and not stopped and early.is_there(progress):
                return None, False
            if hooks.stops() and not stopped:
                stopped = True
                stage.stop()
    except BaseException:
        stage.stop()
        with contextlib.suppress(EngramError):
            stage.wait()
        raise
    return report, stopped and not report.whole


def _told(report: Report, where: str) -> str:
    """Say what a stage has done."""
    reused = f", {report.files_reused} of them before" if report.files_reused else ""
    files = f"{report.files} file" + ("" if report.files == 1 else "s")
    return f"{files}, {human(report.nbytes)}, {where}{reused} ({report.seconds:.1f} s)"


def _too_small(held: JobPool, progress: Progress, error: PoolFullError) -> str:
    """Say what was asked for, what there is, and who has it."""
    description = held.description
    capacity = sum(one.capacity for one in description.backends)
    sizes = []
    for resource in description.resources:
        with contextlib.suppress(OSError):
            sizes.append((_size_of(resource.path), resource))
    sizes.sort(key=lambda each: -each[0])
    most = ", ".join(f"{one.path} has {human(size)}" for size, one in sizes[:3])
    first = description.backends[0]
    return (
        f"{first.place}: the job's files have {human(progress.nbytes_in_all)}, and its backends "
        f"may hold {human(capacity)}: {most}. Raise the capacity, or name less ({error})"
    )


def _size_of(path: Path) -> int:
    if not path.is_dir():
        return path.stat().st_size
    return sum(one.lstat().st_size for one in path.rglob("*") if one.is_file())


def wait_until(done: Callable[[], bool], seconds: float) -> bool:
    """Wait until something is so, for so many seconds at most; give whether it is."""
    until = time.monotonic() + seconds
    while not done():
        if time.monotonic() > until:
            return False
        time.sleep(0.05)
    return True
