"""Errors that are what h5py raises, and say what to do.

h5py lets HDF5's errors through as whatever built-in exception fits, and programs catch that. Here
they are errors of Engram as well. What h5py raises as one class in one place and as another in
another, is both.
"""

from engram.errors import (
    ArgumentError,
    EngramError,
    ExistsError,
    NotFoundError,
    ReadOnlyError,
    UnsupportedError,
)


class TakenError(ExistsError, OSError, RuntimeError):
    """The name is taken in its group."""


class MissingError(NotFoundError, RuntimeError):
    """There is no such member, or a link leads to nothing."""


class NoWriteError(ReadOnlyError, ValueError, KeyError):
    """A change of a file that was opened with mode "r"."""


class ClosedError(ArgumentError, KeyError, RuntimeError):
    """The file is closed."""


class BeyondError(ArgumentError, RuntimeError):
    """A dataset cannot be resized so."""


class FileError(EngramError, OSError):
    """What is at a path cannot be opened, or cannot be replaced."""

    _errno = 22  # EINVAL


class RefusedError(UnsupportedError, TypeError, RuntimeError):
    """What HDF5 has and a pool has not: each by name, with what to do instead."""

    _errno = 95  # EOPNOTSUPP
