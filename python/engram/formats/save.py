"""Exporting: part of a pool as one file or folder, all of it, or none of it.

The order: the format is chosen, by word or by suffix; the target looked at; the tree gathered; what
the format cannot hold is all found before a byte is written, and refuses the export unless it may
be left out. Then the format writes under another name beside the target. When that is whole and on
the medium, it takes the target's name, in one step. Whatever goes wrong, what stood at the target
stands there still, and the other name is gone.
"""

from __future__ import annotations

import contextlib
import os
import re
import secrets
import shutil
import time
from typing import TYPE_CHECKING

from engram.errors import (
    AccessError,
    ArgumentError,
    EngramError,
    ExistsError,
    FormatError,
    NotFoundError,
)
from engram.formats.gather import gather
from engram.formats.registry import formats, writable
from engram.formats.report import Entry, ExportReport, Progress
from engram.formats.select import Selection
from engram.formats.source import READ_ERRORS

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from pathlib import Path

    from engram.formats.gather import Exported
    from engram.formats.select import Patterns, Slices
    from engram.formats.target import Item, Problem, Tree, WritableFormat

_SHOWN = 5
_ERRNO = re.compile(r"errno = (\d+)")


def export(  # noqa: PLR0917 - called by `engram.export_file` alone
    source: Exported,
    target: Path,
    kind: str | None,
    overwrite: bool,
    lossy: bool,
    select: Patterns,
    slices: Slices,
    progress: Callable[[Progress], None] | None,
) -> ExportReport:
    """Export as `engram.export_file` says."""
    began = time.monotonic()
    written_in, kind = _chosen(target, kind)
    _check_target(target, written_in, overwrite=overwrite)
    tree = gather(source, Selection(select, slices))
    problems = written_in.problems(tree, kind)
    if problems and not lossy:
        raise FormatError(_refusal(target, kind, problems))
    _drop(tree, problems)
    counter = _Counter(tree, progress)
    with _beside(target) as part:
        with _writing(target, counter):
            name = written_in.write(tree, part, kind, counter.tell)
            nbytes = _settle(part)
        _take_name(part, target, written_in, overwrite=overwrite)
    return ExportReport(
        file=str(target),
        format=name,
        source=tree.name,
        groups=len(tree.groups) - 1,
        arrays=len(tree.arrays),
        attributes=sum(len(item.attrs) for item in tree.items),
        nbytes=sum(item.nbytes for item in tree.arrays),
        file_nbytes=nbytes,
        seconds=time.monotonic() - began,
        left_out=tuple(Entry("/" + p.path, p.what, p.why) for p in problems),
        noted=tuple(sorted(set(tree.noted), key=lambda e: (e.path, e.what))),
    )


def _chosen(target: Path, kind: str | None) -> tuple[WritableFormat, str]:
    """Return the format to write in, and which kind of it."""
    known = writable()
    if kind is not None:
        for candidate in known:
            if kind in candidate.kinds:
                return candidate, kind
        readable = [f.name for f in formats() if f.name == kind]
        words = ", ".join(k for f in known for k in f.kinds)
        problem = "can be imported, not exported" if readable else "is unknown"
        message = f"the format {kind!r} {problem}; those that can be exported are {words}"
        raise ArgumentError(message)
    for candidate in known:
        if any(target.name.lower().endswith(suffix) for suffix in candidate.suffixes):
            return candidate, candidate.name
    suffixes = ", ".join(suffix for f in known for suffix in f.suffixes)
    message = (
        f"{target}: its suffix says no format; name one (`--format`), or end with one of {suffixes}"
    )
    raise ArgumentError(message)


def _check_target(target: Path, written_in: WritableFormat, *, overwrite: bool) -> None:
    """Refuse a target that could not take the file."""
    if not target.parent.is_dir():
        message = f"{target.parent}: no such folder to write {target.name} into; make it first"
        raise NotFoundError(message)
    if not os.path.lexists(target):
        return
    if not overwrite:
        message = f"{target}: exists; pass overwrite=True to replace it"
        raise ExistsError(message)
    if not target.is_dir():
        return
    empty = not any(target.iterdir())
    if not (written_in.makes_folder and (empty or written_in.matches(target, b""))):
        message = (
            f"{target}: is a folder, and nothing that was exported as {written_in.name}; it is not "
            "replaced. Choose another name"
        )
        raise ExistsError(message)


def _refusal(target: Path, kind: str, problems: list[Problem]) -> str:
    """Say what the format cannot hold, each by name."""
    shown = "; ".join(str(p) for p in problems[:_SHOWN])
    more = f"; and {len(problems) - _SHOWN} more" if len(problems) > _SHOWN else ""
    return (
        f"{target}: {kind} cannot hold {len(problems)} of what is to be exported: {shown}{more}. "
        "Nothing was written. Choose another format, export a part (select), or pass lossy=True "
        "to leave these out"
    )


def _drop(tree: Tree, problems: list[Problem]) -> None:
    """Take out of the tree what cannot be held."""
    gone = {p.path for p in problems if p.attribute is None}

    def kept(item: Item) -> bool:
        parts = item.path.split("/")
        return not any("/".join(parts[:n]) in gone for n in range(1, len(parts) + 1))

    tree.items[:] = [item for item in tree.items if not item.path or kept(item)]
    by_path = {item.path: item for item in tree.items}
    for problem in problems:
        if problem.attribute is not None and problem.path in by_path:
            by_path[problem.path].attrs.pop(problem.attribute, None)


class _Counter:
    """What has been written so far; tells a caller's `progress`."""

    def __init__(self, tree: Tree, progress: Callable[[Progress], None] | None) -> None:
        self._total = sum(item.nbytes for item in tree.arrays)
        self._done = 0
        self._progress = progress
        self.path = ""

    def tell(self, path: str, nbytes: int) -> None:
        """Count so many more bytes of an array."""
        self.path = path
        self._done += nbytes
        if self._progress is not None:
            self._progress(Progress("/" + path, self._done, self._total))


@contextlib.contextmanager
def _beside(target: Path) -> Iterator[Path]:
    """Give a name beside the target; what stands there in the end is removed."""
    part = target.parent / f".engram-{secrets.token_hex(8)}{target.suffix}"
    try:
        yield part
    finally:
        _remove(part)


def _remove(path: Path) -> None:
    """Remove a file or a folder, if it is there."""
    if path.is_dir() and not path.is_symlink():
        shutil.rmtree(path, ignore_errors=True)
    else:
        path.unlink(missing_ok=True)


@contextlib.contextmanager
def _writing(target: Path, counter: _Counter) -> Iterator[None]:
    """Turn what a format's library raises while it writes into an error that names the array."""
    try:
        yield
    except EngramError:
        raise
    except READ_ERRORS as error:
        where = f"{target}: /{counter.path}" if counter.path else f"{target}"
        code = getattr(error, "errno", None) or _told_errno(error)
        why = os.strerror(code) if code else f"{error}"
        message = f"{where}: cannot be written: {why}. Nothing is left of it"
        kinds = {13: AccessError, 1: AccessError}
        raise kinds.get(code or 0, EngramError)(message) from error


def _told_errno(error: BaseException | None) -> int | None:
    """Return the errno that HDF5's library has put into its message, or a cause's."""
    while error is not None:
        found = _ERRNO.search(str(error))
        if found is not None:
            return int(found[1])
        error = error.__cause__ or error.__context__
    return None


def _settle(part: Path) -> int:
    """Bring what was written onto the medium, and return its bytes."""
    files = [part] if part.is_file() else sorted(p for p in part.rglob("*") if p.is_file())
    nbytes = 0
    for file in files:
        with file.open("rb") as stream:
            os.fsync(stream.fileno())
            nbytes += os.fstat(stream.fileno()).st_size
    return nbytes


def _take_name(part: Path, target: Path, written_in: WritableFormat, *, overwrite: bool) -> None:
    """Give what was written the target's name, and keep what has come there meanwhile."""
    _check_target(target, written_in, overwrite=overwrite)
    if part.is_dir():
        old = part.with_name(part.name + ".old")
        if os.path.lexists(target):
            target.rename(old)
        try:
            part.rename(target)
        except BaseException:
            if os.path.lexists(old):
                old.rename(target)
            raise
        _remove(old)
    elif overwrite:
        part.replace(target)
    else:
        try:
            os.link(part, target)
        except FileExistsError:
            message = f"{target}: exists; somebody else has made it meanwhile"
            raise ExistsError(message) from None
        except OSError:  # a filesystem without hard links
            part.rename(target)
    with contextlib.suppress(OSError):
        folder = os.open(target.parent, os.O_RDONLY | os.O_DIRECTORY)
        try:
            os.fsync(folder)
        finally:
            os.close(folder)
