"""Exporting: part of a pool as one file or folder, all of it, or none of it.

The order: the format is chosen, by word or by suffix; the target looked at; the tree gathered; what
the format cannot hold is all found before a byte is written, and refuses the export unless it may
be left out. Then the format writes under another name beside the target. When that is whole and on
the medium, it takes the target's name, in one step. Whatever goes wrong, what stood at the target
stands there still, and the other name is gone.
"""

from __future__ import annotations

import contextlib
import dataclasses
import errno
import os
import re
import time
from typing import TYPE_CHECKING

from engram.errors import AccessError, ArgumentError, EngramError, FormatError, PoolFullError
from engram.formats.gather import gather
from engram.formats.place import beside, check, settle, take_name
from engram.formats.registry import formats, writable
from engram.formats.report import Entry, ExportReport, Progress
from engram.formats.select import Selection
from engram.formats.source import READ_ERRORS
from engram.formats.target import NamedFormat, Tree

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from pathlib import Path

    from engram.formats.gather import Exported
    from engram.formats.select import Patterns, Slices
    from engram.formats.target import Item, Problem, WritableFormat

_SHOWN = 5
_ERRNO = re.compile(r"errno = (\d+)")
_KINDS = {
    errno.EACCES: AccessError,
    errno.EPERM: AccessError,
    errno.ENOSPC: PoolFullError,
    errno.EDQUOT: PoolFullError,
}


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
    written_in, kind = check_target(target, kind, overwrite=overwrite)
    with _writing(target):
        real = target.resolve()  # what a symbolic link leads to is written, and the link is left
    tree = gather(source, Selection(select, slices))
    left_out = _fit(tree, target, written_in, kind, lossy=lossy)
    counter = _Counter(tree, progress)
    with beside(real) as part, _writing(target, counter):
        name = written_in.write(tree, part, kind, counter.tell)
        counter.path = ""
        nbytes = settle(part)
        take_name(part, real, written_in, overwrite=overwrite)
    return ExportReport(
        file=str(target),
        format=name,
        source=tree.name,
        groups=len(tree.groups) - 1,
        arrays=len(tree.arrays),
        attributes=sum(len(item.attrs) for item in tree.items),
        nbytes=sum(
            item.nbytes if item.text_nbytes is None else item.text_nbytes for item in tree.arrays
        ),
        file_nbytes=nbytes,
        seconds=time.monotonic() - began,
        left_out=(*(Entry("/" + p.path, p.what, p.why) for p in left_out), *tree.left_out),
        noted=tuple(sorted(set(tree.noted), key=lambda e: (e.path, e.what))),
    )


def check_target(target: Path, kind: str | None, *, overwrite: bool) -> tuple[WritableFormat, str]:
    """Return the format to write in, and which kind of it; refuse a target that cannot take it."""
    written_in, kind = _chosen(target, kind)
    with _writing(target):
        check(target, written_in, overwrite=overwrite)
    return written_in, kind


def _chosen(target: Path, kind: str | None) -> tuple[WritableFormat, str]:
    """Return the format to write in, and which kind of it."""
    known = writable()
    if kind is not None:
        for candidate in known:
            if kind in candidate.kinds:
                _refuse_archive(target, candidate)
                return candidate, kind
        readable = [f.name for f in formats() if f.name == kind]
        words = ", ".join(k for f in known for k in f.kinds)
        problem = "can be imported, not exported" if readable else "is unknown"
        message = f"the format {kind!r} {problem}; those that can be exported are {words}"
        raise ArgumentError(message)
    for candidate in known:
        if any(target.name.lower().endswith(suffix) for suffix in candidate.suffixes):
            _refuse_archive(target, candidate)
            return candidate, candidate.name
    suffixes = ", ".join(s for f in known for s in f.suffixes if not _is_archive(s, f))
    message = (
        f"{target}: its suffix says no format; name one (`--format`), or end with one of {suffixes}"
    )
    raise ArgumentError(message)


def _is_archive(name: str, written_in: WritableFormat) -> bool:
    """Whether a name is of an archive, where the format writes a folder."""
    return written_in.makes_folder and name.lower().endswith(".zip")


def _refuse_archive(target: Path, written_in: WritableFormat) -> None:
    """Refuse the name of an archive, which can come in, for a format that goes out as a folder."""
    if _is_archive(target.name, written_in):
        message = (
            f"{target}: {written_in.name} is written as a folder, not as an archive; "
            f"end the name with {written_in.suffixes[0]}, and pack the folder afterwards"
        )
        raise ArgumentError(message)


def _fit(
    tree: Tree, target: Path, written_in: WritableFormat, kind: str, *, lossy: bool
) -> list[Problem]:
    """Take out of the tree what the format cannot hold, and return it.

    Raises
    ------
    FormatError
        Nothing may be left out, or it is the whole that cannot be held.
    ArgumentError
        The target's suffix is that of another kind of file.

    """
    left_out: list[Problem] = []
    # What is left may have other problems: a dimension may have had its length from what is gone.
    while True:
        _check_suffix(tree, target, written_in, kind)
        problems = written_in.problems(tree, kind)
        if not problems:
            return left_out
        before = _size(tree)
        if lossy:
            _drop(tree, problems)
        if before == _size(tree):
            helps = not lossy and _fits_in_part(tree, target, written_in, kind)
            raise FormatError(_refusal(target, kind, problems, lossy_helps=helps))
        left_out += problems


def _check_suffix(tree: Tree, target: Path, written_in: WritableFormat, kind: str) -> None:
    """Refuse a suffix that stands for another kind of file than what is to be written."""
    if isinstance(written_in, NamedFormat):
        why = written_in.misnamed(tree, target.name, kind)
        if why is not None:
            message = f"{target}: {why}"
            raise ArgumentError(message)


def _size(tree: Tree) -> tuple[int, int]:
    """Return how many groups, arrays and attributes there are."""
    return len(tree.items), sum(len(item.attrs) for item in tree.items)


def _fits_in_part(tree: Tree, target: Path, written_in: WritableFormat, kind: str) -> bool:
    """Whether the format can hold what is left without what it cannot hold."""
    items: list[Item] = [dataclasses.replace(item, attrs=dict(item.attrs)) for item in tree.items]
    try:
        _fit(Tree(items, tree.name), target, written_in, kind, lossy=True)
    except (ArgumentError, FormatError):
        return False
    return True


def _refusal(target: Path, kind: str, problems: list[Problem], *, lossy_helps: bool) -> str:
    """Say what the format cannot hold, each by name, and what can be done."""
    shown = "; ".join(str(p) for p in problems[:_SHOWN])
    more = f"; and {len(problems) - _SHOWN} more" if len(problems) > _SHOWN else ""
    remedy = "export a part, or mend these: leaving them out is not enough"
    if lossy_helps:
        remedy = "export a part (select), or pass lossy=True to leave these out"
    return (
        f"{target}: {kind} cannot hold {len(problems)} of what is to be exported: {shown}{more}. "
        f"Nothing was written. Choose another format, {remedy}"
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
def _writing(target: Path, counter: _Counter | None = None) -> Iterator[None]:
    """Turn what a format's library raises while it writes into an error that names the array."""
    try:
        yield
    except EngramError:
        raise
    except READ_ERRORS as error:
        path = "" if counter is None else counter.path
        where = f"{target}: /{path}" if path else f"{target}"
        code = getattr(error, "errno", None) or _told_errno(error)
        why = os.strerror(code) if code else f"{error}"
        message = f"{where}: cannot be written: {why}. Nothing is left of it"
        raise _KINDS.get(code or 0, EngramError)(message) from error


def _told_errno(error: BaseException | None) -> int | None:
    """Return the errno that HDF5's library has put into its message, or a cause's."""
    while error is not None:
        found = _ERRNO.search(str(error))
        if found is not None:
            return int(found[1])
        error = error.__cause__ or error.__context__
    return None
