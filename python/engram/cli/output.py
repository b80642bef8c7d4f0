"""Where verbs write bytes: a file that appears once it is whole, a pipe, stdout."""

from __future__ import annotations

import contextlib
import errno
import os
import stat
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any, BinaryIO, TextIO

from engram.cli.terminal import give_up, plain
from engram.errors import ArgumentError, EngramError, ExistsError, NotFoundError, PoolFullError

if TYPE_CHECKING:
    from collections.abc import Iterator

STDIO = "-"
STDOUT = "stdout"
stand_ins: list[int] = []
"""The descriptors of standard streams that were closed when this process began."""
_NO_ROOM = (errno.ENOSPC, errno.EDQUOT)


@contextlib.contextmanager
def written(target: str) -> Iterator[None]:
    """Tell of a full filesystem, or quota, as of any lack of room: with what has none.

    Raises
    ------
    PoolFullError
        If the operating system says that there is no room.

    """
    try:
        yield
    except OSError as error:
        if isinstance(error, EngramError):
            raise
        if target == STDOUT and error.errno == errno.EBADF and error.filename is None:
            message = "stdout: cannot be written: it is closed; open it, or send it to a file"
            raise EngramError(message) from error
        if error.errno not in _NO_ROOM:
            raise
        name = plain(error.filename or (STDOUT if target == STDIO else target))
        message = f"{name}: cannot be written: {error.strerror}; make room, or write elsewhere"
        raise PoolFullError(message) from error


def stand_in(*, shows: bool) -> None:
    """Put something in the place of standard streams that are closed, which Python has as None.

    What is opened next would get their numbers, and what is meant for them. There is nothing to be
    read from stdin then, and what is written to stderr goes nowhere; so does what is written to
    stdout, unless the command is there to show it: then that fails, as on a full device.
    """
    if sys.stdin is None:
        sys.stdin = _stream(_dead_end(), "r")
    if sys.stdout is None:
        sys.stdout = _stream(_dead_end() if shows else os.open(os.devnull, os.O_WRONLY), "w")
    if sys.stderr is None:
        sys.stderr = _stream(os.open(os.devnull, os.O_WRONLY), "w")


def _dead_end() -> int:
    """Open what is empty for a reader, and refuses a writer."""
    reading, writing = os.pipe()
    os.close(writing)
    return reading


def _stream(descriptor: int, mode: str) -> Any:
    """Open a descriptor as Python opens the standard streams."""
    os.set_inheritable(descriptor, True)
    stand_ins.append(descriptor)
    return os.fdopen(descriptor, mode, encoding="utf-8", errors="backslashreplace")


def flush() -> None:
    """Write what is still to be written to stdout, while a failure can still be told of.

    One of stderr can be told of nowhere, and changes nothing of how the command ends.
    """
    try:
        sys.stderr.flush()
    except OSError:
        give_up(sys.stderr)
    try:
        sys.stdout.flush()
    except OSError:
        give_up(sys.stdout)
        raise


@contextlib.contextmanager
def writing(target: str, *, overwrite: bool) -> Iterator[BinaryIO]:
    """Open a file, a device, a pipe or stdout for writing bytes; a file appears once it is whole.

    Links are followed. What is there and no regular file is written to; it is never replaced.
    """
    with written(target), _opened(target, overwrite=overwrite) as file:
        yield file


@contextlib.contextmanager
def _opened(target: str, *, overwrite: bool) -> Iterator[BinaryIO]:
    """Open it as `writing` says."""
    there = _status(target)
    stream = _standard(target, there)
    if stream is not None:
        if stream.isatty():
            message = "would write bytes to a terminal; name a file, or pipe it on"
            raise ArgumentError(message)
        yield stream.buffer
        stream.buffer.flush()
        return
    if there is not None and stat.S_ISDIR(there.st_mode):
        message = f"{plain(target)}: is a folder; name a file in it"
        raise ArgumentError(message)
    # A character device or a pipe holds nothing that could be lost.
    passes_on = there is not None and (stat.S_ISCHR(there.st_mode) or stat.S_ISFIFO(there.st_mode))
    if there is not None and not overwrite and not passes_on:
        message = f"{plain(target)}: exists; add --overwrite to replace it"
        raise ExistsError(message)
    if there is not None and not stat.S_ISREG(there.st_mode):
        with os.fdopen(os.open(target, os.O_WRONLY), "wb") as opened:
            yield opened
        return
    path = Path(os.path.realpath(target))
    if not path.parent.is_dir():
        message = f"{plain(path.parent)}: no such folder to write {plain(path.name)} into"
        raise NotFoundError(message)
    from tempfile import NamedTemporaryFile  # noqa: PLC0415 - most verbs write no file

    with NamedTemporaryFile(dir=path.parent, prefix=".engram-", delete=False) as new:
        try:
            yield new  # type: ignore[misc]
            new.flush()
            Path(new.name).chmod(0o666 & ~_umask())
            Path(new.name).replace(path)
        except BaseException:
            Path(new.name).unlink(missing_ok=True)
            raise


def standard(target: str) -> TextIO | None:
    """Return stdout or stderr if `target` is it, whatever it is called: -, /dev/stdout, ..."""
    return _standard(target, _status(target))


def _status(target: str) -> os.stat_result | None:
    """Return what is at a path, behind all links; None if nothing is."""
    try:
        return Path(target).stat()
    except (FileNotFoundError, NotADirectoryError):
        return None


def _standard(target: str, there: os.stat_result | None) -> TextIO | None:
    if target == STDIO:
        return sys.stdout
    for descriptor, stream in ((1, sys.stdout), (2, sys.stderr)):
        with contextlib.suppress(OSError):  # it is closed
            if there is not None and os.path.samestat(there, os.fstat(descriptor)):
                return stream
    return None


def _umask() -> int:
    """Return the process's umask."""
    mask = os.umask(0)
    os.umask(mask)
    return mask
