"""Formats by entry point, and which of them a file is of, by its content."""

from __future__ import annotations

import functools
import os
import stat
import warnings
from importlib import metadata
from typing import TYPE_CHECKING

from engram.errors import AccessError, EngramError, FormatError, NotFoundError
from engram.formats.source import HEAD_BYTES, READ_ERRORS, Declined, state_of
from engram.formats.target import WritableFormat

if TYPE_CHECKING:
    from pathlib import Path

    from engram.formats.source import Format, Source

GROUP = "engram.formats"

# Files that people try, and what they can do with them.
_KNOWN = (
    (b"\x0e\x03\x13\x01", "an HDF4 file; convert it with `h4toh5` first"),
    (b"\x1f\x8b", "compressed with gzip; decompress it first"),
    (b"BZh", "compressed with bzip2; decompress it first"),
    (b"\xfd7zXZ", "compressed with xz; decompress it first"),
    (b"\x28\xb5\x2f\xfd", "compressed with zstd; decompress it first"),
    (b"PK\x03\x04", "a zip archive, neither .npz nor .zarr.zip; unpack it first"),
    (b"GRIB", "a GRIB file, for which no format is installed"),
    (b"SIMPLE  =", "a FITS file, for which no format is installed"),
    (b"version https://git-lfs", "a Git LFS pointer, not the file itself; `git lfs pull` gets it"),
    (b"<!DOCTYPE", "a web page, perhaps of a failed download"),
    (b"<html", "a web page, perhaps of a failed download"),
)


_KINDS = {stat.S_IFIFO: "a pipe", stat.S_IFSOCK: "a socket"}


@functools.cache
def formats() -> tuple[Format, ...]:
    """Return the registered formats, in the order in which they are asked."""
    found: list[Format] = []
    for entry in metadata.entry_points(group=GROUP):
        try:
            found.append(entry.load())
        except Exception as error:  # noqa: BLE001 - another package's module may raise anything
            # A format that is broken must not keep the others from their files.
            warnings.warn(f"the format {entry.name!r} cannot be loaded: {error}", stacklevel=2)
    return tuple(sorted(found, key=lambda f: (f.rank, f.name)))


def open_source(path: Path) -> Source:
    """Open a file with the first format whose content it has.

    Raises
    ------
    NotFoundError
        There is no such file.
    AccessError
        The kernel refuses this user.
    FormatError
        The file is of no known format, or damaged.
    BusyError
        Another process is writing it.

    """
    declined: list[str] = []
    candidates = matching(path)
    before = None if path.is_dir() else state_of(path)
    for candidate in candidates:
        try:
            source = candidate.open(path)
        except Declined as answer:
            declined.append(f"{candidate.name}: {answer}")
        except EngramError:
            raise
        except READ_ERRORS as error:
            message = (
                f"{path}: its structure cannot be read: {error}. The file is damaged: get it again"
            )
            raise FormatError(message) from error
        else:
            source.before = before
            return source
    if declined:
        message = f"{path}: no format reads this file ({'; '.join(declined)})"
        raise FormatError(message)
    raise FormatError(_unknown(path))


def writable() -> tuple[WritableFormat, ...]:
    """Return the formats that can write, in the order in which they are asked."""
    return tuple(f for f in formats() if isinstance(f, WritableFormat))


def matching(path: Path) -> list[Format]:
    """Return the formats that the content at a path is of."""
    try:
        mode = path.stat().st_mode
        if not stat.S_ISDIR(mode) and not stat.S_ISREG(mode):
            kind = _KINDS.get(stat.S_IFMT(mode), "a device")
            message = f"{path}: is no file, but {kind}; copy what it gives into one"
            raise FormatError(message)
        head = b"" if stat.S_ISDIR(mode) else _head(path)
        return [candidate for candidate in formats() if candidate.matches(path, head)]
    except FileNotFoundError:
        message = f"{path}: no such file; check the path"
        if path.parts[0].endswith(":"):  # `Path` made one slash of the two
            url = str(path).replace(":/", "://", 1)
            message = f"{url}: is no file, but a URL, and these are not read; download it first"
        raise NotFoundError(message) from None
    except PermissionError:
        message = f"{path}: this user may not read it; ask its owner, or `chmod +r` it"
        raise AccessError(message) from None
    except OSError as error:
        message = f"{path}: cannot be read: {error.strerror or error}"
        raise EngramError(message) from None


def _head(path: Path) -> bytes:
    """Return a file's first bytes."""
    with path.open("rb") as file:
        return file.read(HEAD_BYTES)


def _unknown(path: Path) -> str:
    """Say what the file is instead, as well as its first bytes tell."""
    known = ", ".join(f.name for f in formats())
    if path.is_dir():
        if not os.access(path, os.R_OK | os.X_OK):
            message = f"{path}: this user may not look into it; ask its owner, or `chmod +rx` it"
            raise AccessError(message)
        return f"{path}: is a folder of no known format (formats here: {known}); name its files"
    head = _head(path)
    if not head:
        return f"{path}: the file is empty"
    for magic, what in _KNOWN:
        if head.startswith(magic):
            return f"{path}: is {what} (formats here: {known})"
    return (
        f"{path}: of no known format: it begins with {head[:8]!r} (formats here: {known}). "
        "If it was transferred, check that it is whole"
    )
