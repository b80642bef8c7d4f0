"""Paths of pools and devices, as users give them."""

import os
from pathlib import Path

from engram.errors import ArgumentError, InvalidNameError, NotFoundError

POOL_FILE = "pool.toml"
"""The file that makes a folder a pool."""


def absolute(path: str | os.PathLike[str]) -> Path:
    """Give the absolute path of what can be one; the working directory only where it is named."""
    try:
        text = os.fspath(path)
    except TypeError:
        text = None
    if not isinstance(text, str):
        raise ArgumentError(f"{path!r} is no path: give a str or a pathlib.Path")
    if not text or "\0" in text:
        raise InvalidNameError(f"{text!r} cannot be a path: give the path of a directory")
    try:
        return Path(text).absolute()
    except FileNotFoundError:
        raise NotFoundError(
            f"{text!r} is relative to the folder that this process works in, which is gone: give "
            "an absolute path, or change to a folder that is there"
        ) from None


def pool_above(path: str | os.PathLike[str]) -> tuple[Path, str] | None:
    """Split a path into that of a pool's folder and that of a member in it; None without a pool.

    `/dev/shm/pool/run-17/co2` is the pool at `/dev/shm/pool`, and `run-17/co2` in it: this is how
    other programs' interfaces name what a pool holds.

    Raises
    ------
    PermissionError
        If it leads through a folder that this user may not enter.

    """
    whole = absolute(os.fspath(path))
    for folder in (whole, *whole.parents):
        try:
            (folder / POOL_FILE).lstat()
        except (FileNotFoundError, NotADirectoryError):
            continue
        inner = whole.relative_to(folder).as_posix()
        return folder, "" if inner == "." else inner
    return None
