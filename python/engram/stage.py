"""Stages: trees of files brought into a pool before a job, and safely back after it.

::

    engram.stage.bring_in("/dev/shm/run", {"/pfs/case-7": "case-7"})
    ...
    report = engram.stage.bring_out("/dev/shm/run", {"case-7/out": "/pfs/case-7/out"})
    assert report.whole, report.troubles

A copy is under its name once it is whole: what dies half-way leaves no short file. The same stage
again goes on where the first one ended, and copies nothing that is there. A stage-out reads what it
has written again, past the cache, before it counts as there, and leaves a manifest beside it.
"""

import os
from types import TracebackType
from typing import TYPE_CHECKING, Literal, NamedTuple, Self, TypedDict, Unpack

from engram import _engram
from engram.arguments import truth
from engram.errors import ArgumentError, EngramError
from engram.namespace import Namespace
from engram.pool import Pool
from engram.pool import open as open_pool
from engram.size import parse

if TYPE_CHECKING:
    from collections.abc import Mapping

__all__ = [
    "InOptions",
    "OutOptions",
    "Progress",
    "Report",
    "Stage",
    "Trouble",
    "begin_in",
    "begin_out",
    "bring_in",
    "bring_out",
    "verify",
]

_VERIFY = ("size", "written", "readback")
_EXISTING = ("refuse", "overwrite", "update")


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


class Stage:
    """A stage that goes on while the program does something else.

    ::

        with engram.stage.begin_in(pool, {"/pfs/in": "in"}) as stage:
            while (report := stage.wait(1.0)) is None:
                print(stage.progress().nbytes)

    Leaving the block waits for it; after an exception it is stopped first.
    """

    def __init__(self, native: "_engram.Stage", opened: Pool | None) -> None:
        self._native = native
        self._opened = opened
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
            except EngramError:
                self._close()
                raise
            if native is None:
                return None
            self._report = _report(native)
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
        self._native.set_pace(_rate(rate), files_per_second)

    def _close(self) -> None:
        if self._opened is not None:
            self._opened.close()
            self._opened = None


def begin_in(
    pool: "Pool | Namespace | str | os.PathLike[str]",
    sources: "Mapping[str, str]",
    **options: Unpack[InOptions],
) -> Stage:
    """Begin to copy folders and files into a pool, and give the stage, which goes on.

    The arguments, and what is raised, are those of `bring_in`.
    """
    pairs = [(os.fspath(source), target) for source, target in sources.items()]
    return _begin(pool, pairs, _with(options, "written"), inward=True)


def bring_in(
    pool: "Pool | Namespace | str | os.PathLike[str]",
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
    PoolFullError
        If there is no room. What is there stays, and the same stage goes on from there.
    ArgumentError
        If an argument does not fit.

    """
    return _brought(begin_in(pool, sources, **options))


def begin_out(
    pool: "Pool | Namespace | str | os.PathLike[str]",
    targets: "Mapping[str, str]",
    **options: Unpack[OutOptions],
) -> Stage:
    """Begin to copy folders and files out of a pool, and give the stage, which goes on.

    The arguments, and what is raised, are those of `bring_out`.
    """
    pairs = [(source, os.fspath(target)) for source, target in targets.items()]
    return _begin(pool, pairs, _with(options, "readback"), inward=False)


def bring_out(
    pool: "Pool | Namespace | str | os.PathLike[str]",
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
    PoolFullError
        If the file system outside has no room, or the pool none to note what was done. What is
        there stays, and the same stage goes on from there.
    ArgumentError
        If an argument does not fit.

    """
    return _brought(begin_out(pool, targets, **options))


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
    )


def _rate(rate: int | str | None) -> int | None:
    return None if rate is None else parse(rate)


def _begin(
    pool: "Pool | Namespace | str | os.PathLike[str]",
    pairs: list[tuple[str, str]],
    options: OutOptions,
    *,
    inward: bool,
) -> Stage:
    opened: Pool | None = None
    checked = _checked(pairs, options)
    place = pool
    if not isinstance(place, Namespace):
        opened = open_pool(place)
        place = opened
        if (name := options.get("namespace", "default")) != "default":
            place = opened.namespaces[name]
    try:
        native = _engram.Stage(place._namespace, inward, pairs, *checked)
    except BaseException:
        if opened is not None:
            opened.close()
        raise
    return Stage(native, opened)


def _checked(
    pairs: list[tuple[str, str]], options: OutOptions
) -> tuple[int, str, str, bool, bool | None, int | None, int | None]:
    """Give a stage's options as the native takes them."""
    if not pairs:
        raise ArgumentError("nothing to stage: name at least one folder or file")
    how, existing = options.get("verify"), options.get("existing", "refuse")
    if how not in _VERIFY:
        raise ArgumentError(f"verify={how!r}: pass one of {', '.join(map(repr, _VERIFY))}")
    if existing not in _EXISTING:
        raise ArgumentError(f"existing={existing!r}: pass one of {', '.join(map(repr, _EXISTING))}")
    workers = options.get("workers", 0)
    if workers < 0:
        raise ArgumentError(f"workers={workers}: pass how many files are copied at a time, or 0")
    return (
        workers,
        how,
        existing,
        truth("sha256", options.get("sha256", False)),
        options.get("keep_owners"),
        _rate(options.get("rate")),
        options.get("files_per_second"),
    )
