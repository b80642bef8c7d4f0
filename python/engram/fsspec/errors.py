"""Engram's errors as the built-in ones that users of file systems catch.

Each is the error that Engram has for it and an `OSError` as well, with its errno. So programs that
know files alone do what they do with files: look elsewhere, give up, tell the user.
"""

from __future__ import annotations

import errno
from typing import TYPE_CHECKING, ClassVar

from engram.errors import (
    ArgumentError,
    BusyError,
    CorruptError,
    EngramError,
    ExistsError,
    FormatError,
    InvalidNameError,
    NotFoundError,
    PoolFullError,
    UnverifiedError,
)

if TYPE_CHECKING:
    from types import TracebackType


class FileMissingError(NotFoundError, FileNotFoundError):
    """There is no such file or directory in the pool."""


class FileTakenError(ExistsError, FileExistsError):
    """The name is taken."""


class IsGroupError(ArgumentError, IsADirectoryError):
    """It is a group, where a file is needed."""

    _errno: ClassVar[int] = errno.EISDIR


class NoGroupError(ArgumentError, NotADirectoryError):
    """It is an object, where a group is needed."""

    _errno: ClassVar[int] = errno.ENOTDIR


class IsArrayError(ArgumentError, PermissionError):
    """It is an array, which files do not write."""

    _errno: ClassVar[int] = errno.EPERM


class NoHomeError(ArgumentError, PermissionError):
    """No group of the cluster is above it, and a file lies below one."""

    _errno: ClassVar[int] = errno.EPERM


class NotEmptyError(BusyError, OSError):
    """The group has members."""

    _errno: ClassVar[int] = errno.ENOTEMPTY


class NoRoomError(PoolFullError, OSError):
    """The pool has no room."""


class FileNameError(InvalidNameError, OSError):
    """No member can have such a name."""


class FileBusyError(BusyError, OSError):
    """Somebody else holds it, or changed it meanwhile."""


class FileReplacedError(FileBusyError):
    """The file that was to be changed is another one now."""


class FileCorruptError(CorruptError, OSError):
    """What is on media is not what was written."""


class PoolUnverifiedError(UnverifiedError, OSError):
    """A loss of power may have damaged the pool, and nobody has verified it since."""


class NoPoolError(FormatError, OSError):
    """What is there is no pool that this version can open."""


_KIN: dict[type[BaseException], type[EngramError]] = {
    NotFoundError: FileMissingError,
    ExistsError: FileTakenError,
    PoolFullError: NoRoomError,
    InvalidNameError: FileNameError,
    BusyError: FileBusyError,
    CorruptError: FileCorruptError,
    FormatError: NoPoolError,
    UnverifiedError: PoolUnverifiedError,
}


class Told:
    """A with-block that tells an error of Engram's with its path, as the built-in one it is too."""

    __slots__ = ("_path",)

    def __init__(self, path: str) -> None:
        self._path = path

    def __enter__(self) -> None:
        pass

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        kin = _KIN.get(kind) if kind is not None else None
        if kin is not None:
            raise kin(f"{self._path}: {error}") from error
