"""A job from its beginning to its end: files in, a program or a mount, results out."""

import contextlib
import errno
import os
import stat
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Literal, NamedTuple, TypedDict, Unpack

from engram import mounts, programs, running
from engram.errors import (
    ArgumentError,
    BusyError,
    EngramError,
    NotFoundError,
    PoolNotFoundError,
    UnsupportedError,
)
from engram.housekeeping import compact
from engram.jobs import dropping, pools, registry, staging
from engram.jobs.description import Description
from engram.jobs.pools import JobPool, Record
from engram.jobs.signals import Signals
from engram.jobs.staging import Hooks, Incoming, Log, Outcome, Tell, Watch, wait_until
from engram.mounts import Mount
from engram.paths import POOL_FILE, absolute
from engram.stage import Early, Report, Trouble, stages

FAILED = 74
"""The exit code of a job whose files could not be brought in or out, whatever its program did."""
_NOT_FOUND, _NOT_RUN = 127, 126
"""What shells end with where a program is not there, or cannot be started."""
GRACE = 20.0
"""So many seconds a program has to end after a signal, if nothing else is said."""
_BUSY_SECONDS = 5.0
"""So long a mount may be in use after the program has ended."""
_FUSE = Path("/dev/fuse")

Front = Literal["mount", "run"]


class JobOptions(TypedDict, total=False):
    """How a job is done."""

    overwrite: bool
    """Whether other files of the same names in results-dir are replaced."""
    tell: Tell | None
    """Is called with a sentence on each thing that was done, or could not be."""
    watch: Watch | None
    """Is called while files are copied, with "stage in" or "stage out" and how far that is."""
    early: str | None
    """So much of the files has to be there before the program of `run` begins, such as "2GiB" or
    "100files". The rest comes while it runs; an open of what is on its way waits. None: all."""


class Ended(NamedTuple):
    """How a job ended."""

    code: int | None
    """What its program ended with; of one that a signal ended, 128 and its number. None: there
    was none, or it did not begin."""
    troubles: tuple[Trouble, ...]
    """What could not be brought in or out."""
    results: Report | None
    """What was brought out; None: there was nothing."""
    pool: Path | None
    """The pool that stays: for further jobs, or since not all of it is out. None: it is gone."""
    whole: bool
    """Whether what is persistent is outside, looked at."""

    @property
    def exit_code(self) -> int:
        """What `engram job` ends with: the program's code, or 74 if not all was brought."""
        if not self.whole:
            return FAILED
        return self.code or 0


def run(
    description: "Description | str | os.PathLike[str]",
    program: "Sequence[str | os.PathLike[str]]",
    *,
    front: Front = "mount",
    grace: float = GRACE,
    **options: Unpack[JobOptions],
) -> Ended:
    """Bring a job's files in, run its program, and bring out what is persistent.

    ::

        ended = engram.jobs.run("job.yaml", ["srun", "simulate", "--steps", "10"])
        assert ended.whole, ended.troubles

    The program finds its files below the description's `mount-dir`: by a mount, or, with `front`
    "run", by a preloaded library as with `engram.run`. Its environment has `ENGRAM_POOL`,
    `ENGRAM_MOUNT`, and what the C interface of `efs-api.h` asks for: `ENGRAM_ROOT` and
    `ENGRAM_BACKENDS`. In the main thread SIGTERM, SIGUSR1, SIGINT and SIGHUP are handed on to it;
    `grace` seconds later it is killed; what is persistent is brought out all the same. The pool
    goes once all that is outside has been read again, unless the description says `reuse`.

    Called again after a process that was killed, it goes on: it brings in what is missing, or
    begins the program again in the pool as it was left, or, if that had ended, brings the rest out.

    Raises
    ------
    FormatError, NotFoundError, AccessError
        If the description is none, or a file, backend or the program is not there.
    PoolFullError
        If the files are more than a backend has, or may have.
    BusyError
        If another process does this job, or its program is still there.
    UnsupportedError
        If there is no FUSE here: `front="run"` does without; or a backend can carry no pool.

    """
    described = _described(description)
    words = [os.fsdecode(word) for word in program]
    if not words:
        raise ArgumentError("there is no program: name one, and its arguments")
    if front not in {"mount", "run"}:
        raise ArgumentError(f'front {front!r} is unknown: use "mount" or "run"')
    asked = options.get("early")
    early = None if asked is None else Early.parse(asked)
    said = _check_front(described, front, words[0])
    with Signals() as signals:
        hooks = _hooks(described, signals, options)
        with _begun(described, hooks) as held:
            for message in said:
                hooks.tell(message)
            _check_not_shown(held)
            if held.record.step == "out":
                hooks.tell("the program has ended before: what is left goes out")
                return _finish(held, hooks, signals, options)
            ready = _ready(held, hooks, early)
            if isinstance(ready, Ended):
                return ready
            with _fronted(held, front, hooks, ready) as environment:
                code = _worked(held, words, environment, signals, hooks, grace=grace)
                late = _rest(ready, hooks)
                in_use = _unmounted(held, front, hooks)
            held.note(held.record._replace(step="out", code=code, program=0))
            ended = _finish(held, hooks, signals, options, in_use=in_use)
            whole = ended.whole and not late
            return ended._replace(troubles=late + ended.troubles, whole=whole)


def resume(
    description: "Description | str | os.PathLike[str]", **options: Unpack[JobOptions]
) -> Ended:
    """Bring out what a job has left that was killed, or that could not bring out all.

    What the description said when that job began holds, also if it was changed since.

    Raises
    ------
    NotFoundError
        If there is no pool of this job: all of it is done, or it never began.
    BusyError
        If another process does this job, or its program is still there, or its mount is in use.

    """
    described = _described(description)
    with Signals() as signals:
        held = pools.find(described)
        if held is None:
            raise NotFoundError(
                f"there is no pool {pools.folder_of(described)}: this job has nothing left to do, "
                f"or has not begun on this machine"
            )
        hooks = _hooks(held.description, signals, options)
        with contextlib.closing(held):
            pools.check_idle(held)
            record = held.record
            if record.step == "kept":
                hooks.tell(f"all of it is out; {held.folder} stays for further jobs")
                return Ended(record.code, (), None, held.folder, whole=True)
            with contextlib.suppress(NotFoundError):
                mounts.unmount(held.description.mount_dir)
            if record.step == "in":
                return _left(held, hooks)
            held.note(record._replace(step="out", program=0))
            return _finish(held, hooks, signals, options)


def mount(
    description: "Description | str | os.PathLike[str]", **options: Unpack[JobOptions]
) -> Mount:
    """Bring a job's files in, and show them at the description's `mount-dir`.

    A process of its own serves the mount. `engram.jobs.unmount` takes it away, and brings out what
    is persistent; so does `engram unmount`.

    Raises
    ------
    FormatError, NotFoundError, AccessError, PoolFullError, BusyError, UnsupportedError
        As `run` does.
    EngramError
        If not all files could be brought in.

    """
    described = _described(description)
    with Signals() as signals:
        return _shown(described, _hooks(described, signals, options))


def serve(
    description: "Description | str | os.PathLike[str]", **options: Unpack[JobOptions]
) -> Ended:
    """Mount as `mount` does, wait for a signal or for the mount to go, and bring results out.

    What is raised is that of `mount`.
    """
    described = _described(description)
    with Signals() as signals:
        hooks = _hooks(described, signals, options)
        made = _shown(described, hooks)
        hooks.tell(f"the job's files are at {made.path}, until Ctrl-C or `engram unmount`")
        while not signals.came() and mounts.mounted(made.path) is not None:
            wait_until(signals.came, 0.2)
        held = pools.find(described, wait=True)
        if held is None:
            hooks.tell("the results are out: whoever unmounted it has brought them")
            return Ended(None, (), None, None, whole=True)
        with contextlib.closing(held):
            in_use = _unmounted(held, "mount", hooks)
            held.note(Record("out"))
            return _finish(held, hooks, signals, options, in_use=in_use)


def unmount(path: "str | os.PathLike[str]", **options: Unpack[JobOptions]) -> Ended | None:
    """Take away the mount of a job, and bring out what is persistent; None: it is no job's.

    Raises
    ------
    NotFoundError
        If no pool is mounted there.
    BusyError
        If somebody has files of it open, or stands in it; or it is of a job whose program runs.

    """
    place = Path(absolute(path))
    served = mounts._served_at(place)
    if served is None or not (Path(served.pool) / POOL_FILE).exists():
        return None
    described = pools.described(served.pool)
    if described is None:
        return None
    with Signals() as signals:
        held = pools.find(described)
        if held is None:
            raise PoolNotFoundError(f"the pool {served.pool} has gone meanwhile: nothing is left")
        hooks = _hooks(held.description, signals, options)
        with contextlib.closing(held):
            mounts.unmount(place)
            held.note(Record("out"))
            return _finish(held, hooks, signals, options)


def check_fuse() -> None:
    """See that this user can mount.

    Raises
    ------
    UnsupportedError
        If not, with what does without.

    """
    instead = "`engram job --front run` does without a mount"
    try:
        if not stat.S_ISCHR(_FUSE.stat().st_mode):
            raise FileNotFoundError(errno.ENOENT, os.strerror(errno.ENOENT))
        os.close(os.open(_FUSE, os.O_RDWR | os.O_CLOEXEC))
    except OSError as error:
        raise UnsupportedError(
            f"nothing can be mounted here: {_FUSE}: {error.strerror}; {instead}"
        ) from None


def _check_front(described: Description, front: Front, program: str) -> list[str]:
    """See that a program will find its files, before any is brought; give what is to be told."""
    found = programs.look(program, search=os.get_exec_path(), prefixes=[str(described.mount_dir)])
    if front == "mount":
        _check_mount(described)
        return []
    place = _place_of(described)
    running._check_prefixes([place])
    running._check_room(place, None)
    return running.permit(found, running.Settings([place]))


def _check_mount(described: Description) -> None:
    """See that the job can be mounted, where no other pool is."""
    check_fuse()
    place = described.mount_dir
    served = mounts._served_at(place)
    if served is not None and Path(served.pool) != pools.folder_of(described):
        raise BusyError(
            f"the pool {served.pool} is mounted at {place}: `engram unmount {place}` takes it "
            f"away, or name another mount-dir"
        )


def _place_of(described: Description) -> running.Place:
    return running.parse_place(f"{pools.folder_of(described)}={described.mount_dir}")


def _described(description: "Description | str | os.PathLike[str]") -> Description:
    if isinstance(description, Description):
        return description
    return Description.read(description)


def _hooks(description: Description, signals: Signals, options: JobOptions) -> Hooks:
    if unknown := options.keys() - JobOptions.__annotations__:
        known = ", ".join(JobOptions.__annotations__)
        raise ArgumentError(f"{min(unknown)!r} is no option of a job: use {known}")
    log = Log(description.log_file, options.get("tell"))
    return Hooks(log, options.get("watch"), signals.came)


@contextlib.contextmanager
def _begun(description: Description, hooks: Hooks) -> Iterator[JobPool]:
    """Give the job's pool, with its files not yet there, or as a killed job has left them."""
    staging.check_sources(description)
    _expire(description, hooks)
    with contextlib.closing(pools.find_or_make(description)) as held:
        pools.check_idle(held)
        hooks.tell(f"the job's pool is {held.folder}")
        _note(held, hooks)
        yield held


def _expire(description: Description, hooks: Hooks) -> None:
    """Drop this user's persistent pools on this node whose time is over, but for the job's own."""
    expired = dropping.expire(pools.folder_of(description))
    for pool in expired.dropped:
        hooks.tell(f"the pool {pool.path} is dropped: its time was over, and all of it is outside")
    for trouble in expired.left:
        hooks.tell(f"{trouble.path}: {trouble.why}")


def _note(held: JobPool, hooks: Hooks) -> None:
    """Note where a pool lies that stays for further jobs, and that it is used now."""
    name = held.description.reuse
    if name is None:
        return
    try:
        size = sum(one.capacity for one in held.description.backends)
        registry.note(name, held.folder, size, held.description.expires)
    except (OSError, EngramError) as error:
        hooks.tell(f"`engram stage nodes {name}` will not find {held.folder}: {error}")


def _refuse_ended(held: JobPool) -> None:
    if held.record.step == "out":
        raise BusyError(
            f"{held.folder} has results of this job that are not out: "
            f"`engram job --resume -c {held.description.path}` brings them out"
        )


def _ready(held: JobPool, hooks: Hooks, early: Early | None = None) -> Ended | Incoming | None:
    """Bring the files in; give how the job has ended if that could not be done.

    With `early`, give those that are still on their way once so much is there.
    """
    record = held.record
    if record.step in {"ready", "running", "shown"}:
        hooks.tell("its files are there, as the job has left them that was not ended well")
        if not _is_cut(held):
            return None
    try:
        outcome = staging.bring_in(held, hooks, early)
    except BaseException:
        if record.step == "in" and held.description.reuse is None:
            held.drop()
        raise
    if isinstance(outcome, Incoming):
        return outcome
    if outcome.whole:
        held.note(Record("ready"))
        return None
    return _not_begun(held, outcome, hooks)


def _is_cut(held: JobPool) -> bool:
    """Whether the job began its program early, and was killed before all files were there."""
    own = {str(one.path) for one in held.description.resources}
    begun = (one for one in stages(held.pool) if one.direction == "in")
    return any(one.state != "whole" and own & {path for path, _ in one.paths} for one in begun)


def _rest(ready: Incoming | None, hooks: Hooks) -> tuple[Trouble, ...]:
    """Wait for what is still on its way once the program has ended; give what could not come."""
    if ready is None:
        return ()
    late = ready.rest().troubles
    for trouble in late:
        hooks.tell(f"{trouble.path}: {trouble.why}")
    if late:
        hooks.tell("not all files could be brought in while the program ran")
    return late


def _not_begun(held: JobPool, outcome: Outcome, hooks: Hooks) -> Ended:
    """End a job whose files could not be brought in: they are outside, so the pool may go."""
    for trouble in outcome.troubles:
        hooks.tell(f"{trouble.path}: {trouble.why}")
    hooks.tell("the program was not begun: not all files could be brought in")
    folder: Path | None = held.folder
    if held.description.reuse is None:
        held.drop()
        folder = None
    return Ended(None, outcome.troubles, None, folder, whole=False)


def _left(held: JobPool, hooks: Hooks) -> Ended:
    """End a job that was killed before its files were there: there are no results."""
    hooks.tell("its files were not all there yet, and no program has run: there are no results")
    if held.description.reuse is not None:
        return Ended(None, (), None, held.folder, whole=True)
    held.drop()
    return Ended(None, (), None, None, whole=True)


def _shown(described: Description, hooks: Hooks) -> Mount:
    """Bring a job's files in, and mount them."""
    _check_mount(described)
    with _begun(described, hooks) as held:
        _refuse_ended(held)
        if isinstance(ended := _ready(held, hooks), Ended):
            why = "; ".join(f"{one.path}: {one.why}" for one in ended.troubles)
            raise EngramError(f"not all files could be brought in: {why or 'stopped'}")
        before = held.record
        _check_not_shown(held)
        held.note(Record("shown"))  # first: whoever dies now may have been seen
        try:
            return _mounted(held)
        except BaseException:
            held.note(before)
            _drop_unseen(held, hooks)
            raise


def _check_not_shown(held: JobPool) -> None:
    """See that nobody has the job's files by a mount that is to be taken away by hand."""
    place = held.description.mount_dir
    if held.record.step == "shown" and mounts.mounted(place) is not None:
        raise BusyError(
            f"{place} is mounted already: `engram unmount {place}` takes it away, and brings out "
            f"the results of the job whose mount it is"
        )


def _drop_unseen(held: JobPool, hooks: Hooks) -> None:
    """Drop a pool that this process has made, and that no program has seen."""
    is_unseen = held.record.step in {"in", "ready"}
    if held.is_new and is_unseen and held.description.reuse is None:
        hooks.tell("no program was begun, and the pool goes: nothing of it is lost")
        held.drop()


def _mounted(held: JobPool) -> Mount:
    place = held.description.mount_dir
    if mounts._served_at(place) is not None:  # of a job that was killed
        mounts.unmount(place)
    place.mkdir(parents=True, exist_ok=True)
    try:
        return mounts.mount(held.pool, place)
    except UnsupportedError as error:
        raise UnsupportedError(f"{error}; `engram job --front run` does without") from None


@contextlib.contextmanager
def _fronted(
    held: JobPool, front: Front, hooks: Hooks, ready: Incoming | None
) -> Iterator[dict[str, str]]:
    """Have a program find the pool's files, and give its environment."""
    described = held.description
    devices = staging.devices(held)
    backends = [
        f"{name}\t{devices.get(one.id, '')}"
        for one in described.backends
        for name in (one.id, one.type)
    ]
    own = {
        "ENGRAM_POOL": str(held.folder),
        "ENGRAM_MOUNT": str(described.mount_dir),
        "ENGRAM_ROOT": str(described.root_dir),
        "ENGRAM_BACKENDS": "\n".join(backends),
    }
    try:
        if front == "run":
            settings = running.Settings([_place_of(held.description)])
            yield settings.environment() | own
        else:
            _mounted(held)
            yield os.environ | own
    except BaseException:
        if ready is not None:
            ready.stop()
        with contextlib.suppress(EngramError):
            mounts.unmount(held.description.mount_dir)
        _drop_unseen(held, hooks)
        raise


def _worked(
    held: JobPool,
    words: list[str],
    environment: dict[str, str],
    signals: Signals,
    hooks: Hooks,
    *,
    grace: float,
) -> int:
    """Run the program; give what it ends with."""
    if signals.came():
        return 128 + (signals.first or 0)

    def note() -> None:
        pid = signals.program
        held.note(Record("running", None, pid, pools.began(pid)))

    held.note(Record("running"))
    try:
        code = signals.run(words, environment, grace, note)
    except FileNotFoundError:
        hooks.tell(f"{words[0]}: there is no such program")
        return _NOT_FOUND
    except OSError as error:
        hooks.tell(f"{words[0]} cannot be started: {error.strerror}")
        return _NOT_RUN
    if signals.first is not None:
        hooks.tell(f"signal {signals.first} came: the program has ended with {code}")
    return code


def _unmounted(held: JobPool, front: Front, hooks: Hooks) -> bool:
    """Take the mount away; give whether somebody uses it still."""
    place = held.description.mount_dir
    if front == "run":
        return False
    said = ""

    def gone() -> bool:
        nonlocal said
        try:
            mounts.unmount(place)
        except NotFoundError:  # somebody else has
            return True
        except BusyError as error:
            said = str(error)
            return False
        return True

    if wait_until(gone, _BUSY_SECONDS):
        return False
    hooks.tell(f"{said}. What is there now is brought out, and the pool stays")
    return True


def _finish(
    held: JobPool,
    hooks: Hooks,
    signals: Signals,
    options: JobOptions,
    *,
    in_use: bool = False,
) -> Ended:
    """Bring out what is persistent; the pool goes if all of it is outside."""
    code, folder = held.record.code, held.folder
    signals.forget()
    overwrite = options.get("overwrite", False)
    outcome = staging.bring_out(held, hooks._replace(stops=signals.insist), overwrite=overwrite)
    troubles = outcome.troubles
    if in_use:
        troubles += (Trouble(str(held.description.mount_dir), "is in use still"),)
    for trouble in troubles:
        hooks.tell(f"{trouble.path}: {trouble.why}")
    if troubles or outcome.stopped:
        hooks.tell(
            f"not all of the results are out: the pool {folder} stays, with all that is in it. "
            f"`engram job --resume -c {held.description.path}` brings out the rest; --overwrite "
            f"replaces other files of the same names"
        )
        return Ended(code, troubles, outcome.report, folder, whole=False)
    if held.description.reuse is not None:
        held.note(Record("kept", code))
        _note(held, hooks)
        hooks.tell(f"the pool {folder} stays for further jobs")
        _compact(held, hooks)
        return Ended(code, (), outcome.report, folder, whole=True)
    try:
        held.drop()
    except BusyError as error:
        hooks.tell(
            f"the results are out as they were, and the pool {folder} stays: {error}. "
            f"`engram job --resume -c {held.description.path}` brings out what has changed since"
        )
        return Ended(code, (Trouble(str(folder), str(error)),), outcome.report, folder, whole=False)
    return Ended(code, (), outcome.report, None, whole=True)


def _compact(held: JobPool, hooks: Hooks) -> None:
    """Close a pool that stays, and make it small, and its files whole, unless somebody has it."""
    held.close()
    try:
        done = compact(held.folder)
    except BusyError:
        return
    except EngramError as error:
        hooks.tell(f"the pool {held.folder} stays as large as it is: {error}")
        return
    if done.joined:
        files = f"{done.joined} file" + (" lies" if done.joined == 1 else "s lie")
        hooks.tell(f"{files} in one piece now in {held.folder}")
