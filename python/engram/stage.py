"""Stages: trees of files brought into a pool before a job, and safely back after it.

::

    engram.stage.bring_in("/dev/shm/run", {"/pfs/case-7": "case-7"})
    ...
    report = engram.stage.bring_out("/dev/shm/run", {"case-7/out": "/pfs/case-7/out"})
    assert report.whole, report.troubles

A copy is under its name once it is whole: what dies half-way leaves no short file. The same stage
again goes on where the first one ended, and copies nothing that is there. A stage-out reads what it
has written again, past the cache, before it counts as there, and leaves a manifest beside it.

Each stage has a name in its namespace. `stages` lists them, `resume` goes on with one that has died
or was stopped, in any process. `drop` gives back the room that its files have in the pool.
"""

import glob
import os
import shlex
from collections.abc import Mapping
from pathlib import Path
from types import TracebackType
from typing import TYPE_CHECKING, Literal, NamedTuple, Self, TypedDict, TypeVar, Unpack

from engram import _engram, telemetry
from engram.arguments import truth
from engram.errors import ArgumentError, BusyError, EngramError, FormatError, NotFoundError
from engram.namespace import Namespace
from engram.pool import Pool
from engram.pool import open as open_pool
from engram.size import parse

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Sequence
    from typing import Any

    AnyPool = Pool | Namespace | str | os.PathLike[str]
    Device = int | str | os.PathLike[str]

__all__ = [
    "Dropped",
    "Early",
    "InOptions",
    "OutOptions",
    "Progress",
    "Report",
    "Stage",
    "Status",
    "Trouble",
    "begin_in",
    "begin_out",
    "bring_in",
    "bring_out",
    "drop",
    "listed",
    "matching",
    "resume",
    "set_rate",
    "set_slots",
    "stages",
    "status",
    "stop",
    "verify",
]

_log = telemetry.Log("engram.stage")

_VERIFY = ("size", "written", "readback")
_EXISTING = ("refuse", "overwrite", "update")
_ORDERS = ("found", "smallest", "largest")
_Told = TypeVar("_Told")
_COLUMNS = 2
"""A list of files has so many at most."""
_SLOTS_MOST = 1024
_WORK = ".engram-stage"
_SHOWN = 5
"""So many of the files that would be lost are named."""


class InOptions(TypedDict, total=False):
    """How files are brought into a pool."""

    workers: int
    """So many files are copied at a time; 0, if nothing is said: what suits the machine."""
    verify: Literal["size", "written", "readback"]
    """How a copy is looked at: its size, that its bytes were summed up as they were written and are
    as durable as the place can make them, or that they are the same when they are read again."""
    existing: Literal["refuse", "overwrite", "update"]
    """What becomes of another file of the same name: it stays, and is named among the troubles; it
    goes; or it goes if it is older. "refuse", if nothing is said."""
    keep_owners: bool | None
    """Whether each copy belongs to whom its source belongs to; None: if that is root's stage."""
    rate: int | str | None
    """So many bytes a second, such as "200MiB"; None: as fast as it goes."""
    files_per_second: int | None
    """So many files a second; None: as fast as it goes."""
    order: "Literal['found', 'smallest', 'largest'] | Sequence[str]"
    """Which files come first: as they are found, by size, or by a list of paths in the pool."""
    only_listed: bool
    """Whether what is not in that list is left out; else it comes last."""
    device: "Device | Mapping[str, Device] | None"
    """Of a stage-in: on which device of the pool the bytes of its files lie, by path or index; or a
    mapping that says so for the paths that sources have in the pool. None: where there is room."""
    awaited: bool
    """Of a stage-in: whether a program that opens a file which is on its way waits until it is
    there, on a mount and below a prefix; else it finds nothing yet. Paths given to this package
    raise BusyError then. False, if nothing is said."""
    slots: "str | os.PathLike[str] | None"
    """A folder of slots, at which the stage waits for its turn; `set_slots` makes one."""
    name: str
    """The stage's name; if none is given, one that is made of its paths."""
    namespace: str
    """The namespace, if a pool is given; "default", if nothing is said."""


class OutOptions(InOptions, total=False):
    """How files are brought out of a pool."""

    sha256: bool
    """Whether MANIFEST.sha256 is left too, which `sha256sum -c` reads."""


class Trouble(NamedTuple):
    """Something that could not be done; the rest of the stage went on."""

    path: str
    """Of what."""
    why: str
    """What was wrong, and what to do."""


class Progress(NamedTuple):
    """How far a stage is."""

    files: int
    """How many files, links and special files are there, copied or found so."""
    files_in_all: int
    """How many there are to be, as far as is known."""
    nbytes: int
    """How many bytes are there."""
    nbytes_in_all: int
    """How many there are to be."""
    files_reused: int
    """How many of the files were there before."""
    nbytes_reused: int
    """How many bytes those have."""


class Early(NamedTuple):
    """How much of a stage-in has to be there before its job begins."""

    nbytes: int
    """So many bytes."""
    files: int
    """So many files."""

    @classmethod
    def parse(cls, text: str) -> Self:
        """Read "2GiB" or "100files".

        Raises
        ------
        ArgumentError
            If it is neither.

        """
        why = f"early {text}: say how much is to be there: 2GiB, or 100files"
        files = text.removesuffix("files").removesuffix("file").strip()
        try:
            found = cls(parse(text), 0) if files == text.strip() else cls(0, int(files))
        except ValueError:
            raise ArgumentError(why) from None
        if max(found) < 1:
            raise ArgumentError(why)
        return found

    def is_there(self, progress: Progress) -> bool:
        """Say whether so much is there, or all there is."""
        files = min(self.files, max(progress.files_in_all, 1))
        nbytes = min(self.nbytes, max(progress.nbytes_in_all, 1))
        return progress.files >= files and progress.nbytes >= nbytes


class Report(NamedTuple):
    """What came of a stage."""

    files: int
    """How many files, links and special files are there."""
    nbytes: int
    """How many bytes they have."""
    files_reused: int
    """How many of them were there before, and were not copied."""
    nbytes_reused: int
    """How many bytes those have."""
    seconds: float
    """How long it took."""
    whole: bool
    """Whether all of it was done: nothing is in `troubles`, and nobody has stopped it."""
    troubles: tuple[Trouble, ...]
    """What could not be done, by path."""
    changed: tuple[str, ...] = ()
    """The sources that changed while they were read, and were read again."""


class Status(NamedTuple):
    """How a stage stands, as the pool knows it."""

    name: str
    """The stage's name."""
    direction: Literal["in", "out"]
    """Whether it brings files into the pool, or out of it."""
    paths: tuple[tuple[str, str], ...]
    """Each pair of paths: from where, and where to."""
    state: Literal["waiting", "running", "died", "whole", "incomplete", "stopped", "failed"]
    """"waiting": a process waits for a slot; "running": it works at it; "died": that process has;
    "whole": all of it was done; "incomplete": something could not be done; "stopped": by somebody;
    "failed": nobody could go on.
    """
    progress: Progress
    """How far it is, or was when it ended."""
    begun: float
    """When it was begun last, in seconds since 1970."""
    noted: float
    """When all this was noted, in seconds since 1970."""
    pid: int
    """The process that works at it, or did."""
    troubles: tuple[Trouble, ...]
    """What could not be done: the first hundred."""


class Dropped(NamedTuple):
    """What came of dropping a stage."""

    files: int
    """How many files and links have gone from the pool."""
    nbytes: int
    """How many bytes they had."""
    lost: tuple[str, ...]
    """Those that were nowhere else, by their paths in the namespace; dropped by force."""


class Stage:
    """A stage that goes on while the program does something else.

    ::

        with engram.stage.begin_in(pool, {"/pfs/in": "in"}) as stage:
            while (report := stage.wait(1.0)) is None:
                print(stage.progress().nbytes)

    Leaving the block waits for it; after an exception it is stopped first.
    """

    def __init__(self, native: "_engram.Stage", opened: Pool | None, span: telemetry.Span) -> None:
        self._native = native
        self._opened = opened
        self._span = span
        self._report: Report | None = None

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        if kind is not None:
            self.stop()
            try:
                self.wait()
            except EngramError:
                return
        elif self._report is None:
            self.wait()

    @property
    def name(self) -> str:
        """Its name in the namespace."""
        return self._native.name

    def wait(self, timeout: float | None = None) -> Report | None:
        """Wait until it has ended, or for `timeout` seconds; give its report, or None.

        Raises
        ------
        EngramError
            If nobody could go on: the pool or the file system has no room, say, or is gone. The
            same stage again goes on from there.

        """
        if self._report is None:
            try:
                native = self._native.wait(timeout)
            except EngramError as error:
                self._span.end(error)
                _log.warning("stage %r failed: %s", self.name, error)
                self._close()
                raise
            if native is None:
                return None
            self._report = _report(native)
            self._span.set(_outcome, self._report)
            self._span.end()
            _tell(self.name, self._report)
            self._close()
        return self._report

    def progress(self) -> Progress:
        """Say how far it is."""
        return Progress(*self._native.progress())

    def stop(self) -> None:
        """Ask it to end. What is half done is gone on with when the same stage is begun again."""
        self._native.stop()

    def set_rate(self, rate: int | str | None = None, files_per_second: int | None = None) -> None:
        """Limit it to so many bytes and files a second from now on; None lifts a limit.

        Raises
        ------
        ArgumentError
            If one is no such number.

        """
        self._native.set_pace(_rate(rate), _per_second(files_per_second))

    def _close(self) -> None:
        if self._opened is not None:
            self._opened.close()
            self._opened = None


def begin_in(
    pool: "AnyPool",
    sources: "Mapping[str, str]",
    **options: Unpack[InOptions],
) -> Stage:
    """Begin to copy folders and files into a pool, and give the stage, which goes on.

    The arguments, and what is raised, are those of `bring_in`.
    """
    pairs = [(os.fspath(source), target) for source, target in _items(sources, "sources")]
    return _begin(pool, pairs, _with(options, "written"), inward=True)


def bring_in(
    pool: "AnyPool",
    sources: "Mapping[str, str]",
    **options: Unpack[InOptions],
) -> Report:
    """Copy folders and files into a pool.

    `sources` says for each folder or file outside which path it is to have in the namespace; a
    folder that is there gets what it lacks. Modes, times, owners, symbolic and hard links, holes
    and `user.` attributes are kept. A file whose source is what it was when it was staged last is
    not copied again. `options` are `InOptions`; copies are looked at by `"written"`.

    Raises
    ------
    NotFoundError, AccessError
        If the pool cannot be opened.
    BusyError, ExistsError
        If another process works at this stage, or another stage has the name.
    PoolFullError
        If there is no room. What is there stays, and the same stage goes on from there.
    ArgumentError
        If an argument does not fit.

    """
    return _brought(begin_in(pool, sources, **options))


def begin_out(
    pool: "AnyPool",
    targets: "Mapping[str, str]",
    **options: Unpack[OutOptions],
) -> Stage:
    """Begin to copy folders and files out of a pool, and give the stage, which goes on.

    The arguments, and what is raised, are those of `bring_out`.
    """
    pairs = [(source, os.fspath(target)) for source, target in _items(targets, "targets")]
    return _begin(pool, pairs, _with(options, "readback"), inward=False)


def bring_out(
    pool: "AnyPool",
    targets: "Mapping[str, str]",
    **options: Unpack[OutOptions],
) -> Report:
    """Copy folders and files out of a pool.

    `targets` says for each path in the namespace where it is to be outside. Each file is written
    beside its place, made durable, read again past the cache, and then takes its name. If all of it
    was done, each folder gets a manifest, `MANIFEST.engram`. `options` are `OutOptions`; copies are
    looked at by `"readback"`.

    Raises
    ------
    NotFoundError, AccessError
        If the pool cannot be opened.
    BusyError, ExistsError
        If another process works at this stage, or another stage has the name.
    PoolFullError
        If the file system outside has no room, or the pool none to note what was done. What is
        there stays, and the same stage goes on from there.
    ArgumentError
        If an argument does not fit.

    """
    return _brought(begin_out(pool, targets, **options))


def resume(pool: "AnyPool", name: str, *, namespace: str = "default") -> Stage:
    """Go on with a stage that has died, was stopped or could not do all, and give it.

    It does what is left, by the options that it had. One that was whole looks again whether all is
    there, and brings what has changed.

    Raises
    ------
    NotFoundError
        If there is no pool, or no stage of this name.

    """
    span = telemetry.span("engram.stage.resume", _facts, pool, name, [])
    return _with_native(pool, namespace, lambda native: _engram.Stage.resumed(native, name), span)


def stages(pool: "AnyPool", *, namespace: str = "default") -> list[Status]:
    """Give the stages of a namespace, by name: how each stands.

    Raises
    ------
    NotFoundError, AccessError
        If the pool cannot be opened, or the stages are another user's.

    """
    return [_status(one) for one in _asked(pool, namespace, _engram.stages)]


def status(pool: "AnyPool", name: str, *, namespace: str = "default") -> Status:
    """Say how a stage stands.

    Raises
    ------
    NotFoundError
        If there is no pool, or no stage of this name.

    """
    return _status(_asked(pool, namespace, lambda native: _engram.stage_status(native, name)))


def stop(pool: "AnyPool", name: str, *, namespace: str = "default") -> bool:
    """Ask a stage that any process works at to end; say whether there is such a process.

    It ends within a second. `resume` goes on with it.

    Raises
    ------
    NotFoundError
        If there is no pool, or no stage of this name.

    """
    return _asked(pool, namespace, lambda native: _engram.stop_stage(native, name))


def set_rate(
    pool: "AnyPool",
    name: str,
    rate: int | str | None = None,
    files_per_second: int | None = None,
    *,
    namespace: str = "default",
) -> bool:
    """Limit a stage that any process works at to so many bytes and files a second from now on.

    None lifts a limit. It says whether there is such a process.

    Raises
    ------
    ArgumentError
        If one is no such number.
    NotFoundError
        If there is no pool, or no stage of this name.

    """
    limits = (_rate(rate), files_per_second)
    return _asked(pool, namespace, lambda native: _engram.pace_stage(native, name, *limits))


def set_slots(
    folder: "str | os.PathLike[str]",
    slots: int = 1,
    rate: int | str | None = None,
    files_per_second: int | None = None,
) -> None:
    """Make a folder of slots, or change what the stages that take turns there may do together.

    It lies on the file system that the stages share, where all of them see it. `slots` of them work
    at a time, the others wait; all together move so many bytes and files a second, each an equal
    part. Stages that work go by a change within a second.

    Raises
    ------
    ArgumentError
        If one is no such number.
    AccessError, OSError
        If the folder cannot be made or written to.

    """
    if not 1 <= slots <= _SLOTS_MOST:
        raise ArgumentError(f"slots={slots}: pass 1 to {_SLOTS_MOST}")
    for name, limit in (("rate", rate := _rate(rate)), ("files_per_second", files_per_second)):
        if limit is not None and limit < 1:
            raise ArgumentError(f"{name}={limit}: pass at least 1, or None for no limit")
    _engram.set_slots(os.fspath(folder), slots, rate, files_per_second)


def drop(
    pool: "AnyPool",
    name: str,
    *,
    keep_files: bool = False,
    force: bool = False,
    namespace: str = "default",
) -> Dropped:
    """Drop a stage: its files in the pool, its half-made copies on both sides, and its status.

    A stage-in's files are those that it has brought and whose sources are what they were; a
    stage-out's are those that it has brought out. Files that nobody has safely outside are not
    dropped, unless it is done by `force`. With `keep_files`, all files stay in the pool.

    Raises
    ------
    BusyError
        If a process works at it; or if files would be lost, which are named: nothing was dropped.
    NotFoundError
        If there is no pool, or no stage of this name.

    """
    ask = (truth("keep_files", keep_files), truth("force", force))
    files, nbytes, lost, is_gone = _asked(
        pool, namespace, lambda native: _engram.drop_stage(native, name, *ask)
    )
    if not is_gone:
        shown = ", ".join(map(repr, lost[:_SHOWN])) + (", ..." if len(lost) > _SHOWN else "")
        raise BusyError(
            f"{len(lost)} of {files} files of the stage {name!r} are not outside as they are in "
            f"the pool, and would be lost: {shown}; bring them out first, see that what they lie "
            f"on is mounted, or drop it by force"
        )
    _log.info("stage %r dropped: %d files, %d bytes, %d lost", name, files, nbytes, len(lost))
    return Dropped(files, nbytes, tuple(lost))


def listed(file: "str | os.PathLike[str]") -> dict[str, str]:
    """Read which files are to be brought, and where to: a list as UnifyFS has them.

    Each line has a path and, behind spaces, the path that it is to have; a path with spaces stands
    in quotes. Without a second path it keeps its own, without the slash at its beginning. Empty
    lines are left out, and lines that begin with `#`.

    Raises
    ------
    NotFoundError
        If there is no such file.
    FormatError
        If a line has more than two paths, or a quote that does not end; with its number.

    """
    found = {}
    for number, raw in enumerate(Path(file).read_bytes().splitlines(), 1):
        try:
            line = raw.decode()
        except UnicodeDecodeError:
            raise FormatError(
                f"{os.fspath(file)}:{number}: {raw!r} is no UTF-8: name its folder instead"
            ) from None
        if not line.strip() or line.lstrip().startswith("#"):
            continue
        try:
            words = shlex.split(line)
        except ValueError as error:
            raise FormatError(f"{os.fspath(file)}:{number}: {error}: {line!r}") from None
        if len(words) > _COLUMNS:
            raise FormatError(
                f"{os.fspath(file)}:{number}: {len(words)} paths, and a line has one or two: put "
                f"a path with spaces in quotes: {line!r}"
            )
        found[words[0]] = words[1] if len(words) == _COLUMNS else words[0].lstrip("/")
    return found


def matching(pattern: str, to: str = "") -> dict[str, str]:
    """Give the files and folders outside that a pattern matches, and where each is to be in a pool.

    `*`, `?` and `[...]` are as in a shell, and `**` is any folders. What is found has below `to`
    the path that it has below the last folder without a pattern.

    Raises
    ------
    NotFoundError
        If nothing matches.

    """
    parts = Path(pattern).parts
    plain = next((at for at, part in enumerate(parts) if glob.has_magic(part)), len(parts) - 1)
    base = Path(*parts[:plain])
    found = set(base.glob(str(Path(*parts[plain:])))) - {base}
    if not found:
        raise NotFoundError(f"nothing matches {pattern!r}: see what `ls -d {pattern}` finds")
    # What lies in a folder that is found comes with it.
    found = {path for path in found if found.isdisjoint(path.parents)}
    return {str(path): str(Path(to) / path.relative_to(base)) for path in sorted(found)}


def _status(native: "_engram.StageStatus") -> Status:
    return Status(
        native.name,
        native.direction,
        tuple(native.pairs),
        native.state,
        Progress(
            native.files,
            native.files_in_all,
            native.nbytes,
            native.nbytes_in_all,
            native.files_reused,
            native.nbytes_reused,
        ),
        native.begun / 1e9,
        native.noted / 1e9,
        native.pid,
        tuple(Trouble(*one) for one in native.troubles),
    )


def _with(options: InOptions, verify: Literal["written", "readback"]) -> OutOptions:
    """Give options as they are, but for one that is to be looked at by this if none is said."""
    every: OutOptions = {"verify": verify}
    every.update(options)  # type: ignore[typeddict-item]
    return every


def _brought(stage: Stage) -> Report:
    try:
        while (report := stage.wait()) is None:
            pass
    except BaseException:
        stage.stop()
        raise
    return report


def verify(folder: "str | os.PathLike[str]") -> Report:
    """Compare a folder with the manifest that a stage-out has left there.

    Each file is read past the cache. What is not as the manifest says is in `troubles`. Files that
    the manifest does not name are not looked at.

    Raises
    ------
    NotFoundError
        If there is no manifest.
    CorruptError
        If it is cut off, or none.

    """
    return _report(_engram.check_manifest(os.fspath(folder)))


def _report(native: "_engram.StageReport") -> Report:
    troubles = tuple(Trouble(*one) for one in native.troubles)
    return Report(
        native.files,
        native.nbytes,
        native.files_reused,
        native.nbytes_reused,
        native.seconds,
        native.whole,
        troubles,
        tuple(native.changed),
    )


def _rate(rate: int | str | None) -> int | None:
    """Give a rate in bytes a second."""
    if rate is None:
        return None
    why = 'pass bytes a second from 1 on, such as "200MiB", or None for no limit'
    try:
        nbytes = parse(rate)
    except ArgumentError as error:
        raise ArgumentError(f"rate: {error}") from None
    if nbytes < 1:
        raise ArgumentError(f"rate={rate!r}: {why}")
    return nbytes


def _per_second(files: int | None) -> int | None:
    """Give how many files a second."""
    if files is not None and files < 1:
        raise ArgumentError(f"files_per_second={files}: pass at least 1, or None for no limit")
    return files


def _opened(pool: "AnyPool", namespace: str) -> tuple[Namespace, Pool | None]:
    """Give a namespace, and the pool that was opened for it."""
    if isinstance(pool, Namespace):
        return pool, None
    opened = open_pool(pool)
    if namespace == "default":
        return opened, opened
    try:
        return opened.namespaces[namespace], opened
    except BaseException:
        opened.close()
        raise


def _with_native(
    pool: "AnyPool",
    namespace: str,
    make: "Callable[[_engram.Namespace], _engram.Stage]",
    span: telemetry.Span,
) -> Stage:
    """Give a stage of a namespace, which stays open until the stage has ended."""
    opened = None
    try:
        place, opened = _opened(pool, namespace)
        begun = Stage(make(place._namespace), opened, span)
    except BaseException as error:
        span.end(error)
        if opened is not None:
            opened.close()
        raise
    span.set(lambda: {"engram.stage.name": begun.name})
    _log.info("stage %r begun", begun.name)
    return begun


def _facts(
    pool: "AnyPool", name: str | None, pairs: list[tuple[str, str]]
) -> Mapping[str, telemetry.Value]:
    """Give a span the paths of a stage: the first of them, if there are many."""
    place = pool._namespace.pool_path if isinstance(pool, Namespace) else os.fspath(pool)
    said = {} if name is None else {"engram.stage.name": name}
    paths = [f"{source}: {target}" for source, target in pairs[:_SHOWN]]
    return {"engram.pool": str(place), "engram.stage.paths": paths, **said}


def _outcome(report: Report) -> Mapping[str, telemetry.Value]:
    return {
        "engram.files": report.files,
        "engram.bytes": report.nbytes,
        "engram.files_reused": report.files_reused,
        "engram.troubles": len(report.troubles),
        "engram.whole": report.whole,
    }


def _tell(name: str, report: Report) -> None:
    """Log what came of a stage."""
    how = "whole" if report.whole else "incomplete"
    said = (name, how, report.files, report.nbytes, report.files_reused, report.seconds)
    _log.info("stage %r is %s: %d files, %d bytes, %d files reused, in %.3f s", *said)
    for trouble in report.troubles[:_SHOWN]:
        _log.warning("stage %r: %s: %s", name, trouble.path, trouble.why)
    if (more := len(report.troubles) - _SHOWN) > 0:
        _log.warning("stage %r: %d more could not be done", name, more)


def _asked(pool: "AnyPool", namespace: str, ask: "Callable[[_engram.Namespace], _Told]") -> "_Told":
    """Ask something of a namespace."""
    place, opened = _opened(pool, namespace)
    try:
        return ask(place._namespace)
    finally:
        if opened is not None:
            opened.close()


def _items(pairs: object, name: str) -> "Iterable[tuple[Any, Any]]":
    """Give what a mapping of paths has."""
    if not isinstance(pairs, Mapping):
        raise ArgumentError(
            f"{name}={pairs!r}: pass a mapping that says for each path where it is to be, such as "
            f'{{"case-7": "case-7"}}'
        )
    return pairs.items()


def _check_places(pool: Path, pairs: list[tuple[str, str]], *, inward: bool) -> None:
    """See that nothing goes into the pool's own folder, or comes from there."""
    pool = pool.resolve()
    for pair in pairs:
        outside, inside = pair if inward else pair[::-1]
        place = Path(outside).absolute()
        place = place.parent.resolve() / place.name
        if place == pool or pool in place.parents:
            raise ArgumentError(f"{outside} lies in the pool's own folder, {pool}: name another")
        if inward and place in pool.parents:
            raise ArgumentError(f"{outside} holds the pool itself, {pool}: name what is beside it")
        if Path(inside.strip("/")).parts[:1] == (_WORK,):
            raise ArgumentError(f"{inside} is the stages' own folder in the pool: name another")


def _begin(
    pool: "AnyPool", pairs: list[tuple[str, str]], options: OutOptions, *, inward: bool
) -> Stage:
    checked = _checked(pairs, options)

    def begin(native: "_engram.Namespace") -> "_engram.Stage":
        _check_places(native.pool_path, pairs, inward=inward)
        return _engram.Stage(native, options.get("name"), inward, pairs, checked)

    way = "engram.stage.in" if inward else "engram.stage.out"
    span = telemetry.span(way, _facts, pool, options.get("name"), pairs)
    return _with_native(pool, options.get("namespace", "default"), begin, span)


def _checked(pairs: list[tuple[str, str]], options: OutOptions) -> "_engram._StageOptions":
    """Give a stage's options as the native takes them."""
    if not pairs:
        raise ArgumentError("nothing to stage: name at least one folder or file")
    how, existing = options.get("verify", ""), options.get("existing", "refuse")
    if how not in _VERIFY:
        raise ArgumentError(f"verify={how!r}: pass one of {', '.join(map(repr, _VERIFY))}")
    if existing not in _EXISTING:
        raise ArgumentError(f"existing={existing!r}: pass one of {', '.join(map(repr, _EXISTING))}")
    workers = options.get("workers", 0)
    if workers < 0:
        raise ArgumentError(f"workers={workers}: pass how many files are copied at a time, or 0")
    order, listed_paths = _order(options)
    return {
        "workers": workers,
        "verify": how,
        "existing": existing,
        "sha256": truth("sha256", options.get("sha256", False)),
        "keep_owners": options.get("keep_owners"),
        "awaited": truth("awaited", options.get("awaited", False)),
        "order": order,
        "listed": listed_paths,
        "rate": _rate(options.get("rate")),
        "files_per_second": _per_second(options.get("files_per_second")),
        "slots": None if (slots := options.get("slots")) is None else os.fspath(slots),
        "devices": _devices(options.get("device"), pairs),
    }


def _devices(
    device: "Device | Mapping[str, Device] | None", pairs: list[tuple[str, str]]
) -> list[int | str | None]:
    """Give the device of each pair of a stage-in."""
    if isinstance(device, Mapping):
        paths = {path for _, path in pairs}
        if unknown := [path for path in device if path not in paths]:
            raise ArgumentError(
                f"device: no source has the path {unknown[0]!r} in the pool: they have "
                f"{', '.join(map(repr, sorted(paths)))}"
            )
        found = [device.get(path) for _, path in pairs]
    else:
        found = [device] * len(pairs)
    return [one if one is None or isinstance(one, int) else os.fspath(one) for one in found]


def _order(options: OutOptions) -> tuple[str, list[str]]:
    """Give the word of an order, and the list of paths that it goes by."""
    order, only = (
        options.get("order", "found"),
        truth("only_listed", options.get("only_listed", False)),
    )
    if isinstance(order, str):
        if order not in _ORDERS:
            known = ", ".join(map(repr, _ORDERS))
            raise ArgumentError(f"order={order!r}: pass one of {known}, or a list of paths")
        if only:
            raise ArgumentError(f"only_listed with order={order!r}: pass a list of paths as order")
        return order, []
    return "only-listed" if only else "listed", list(order)
