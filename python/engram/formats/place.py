"""Where an exported file comes to stand: under another name first, then under its own in one step.

Until it is whole and on the medium it stands beside the target as `.engram-` and random digits.
Whatever is raised removes that; a process that is killed outright leaves it, and it can be deleted.
A reader of a file that is replaced sees the old one whole or the new one whole. A folder cannot be
replaced in one step: for an instant nothing stands under its name.
"""

from __future__ import annotations

import contextlib
import os
import secrets
import shutil
import stat
from typing import TYPE_CHECKING

from engram.errors import ArgumentError, ExistsError, NotFoundError
from engram.paths import POOL_FILE

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from engram.formats.target import WritableFormat

_NAME_BYTES = 255


def check(target: Path, written_in: WritableFormat, *, overwrite: bool) -> None:
    """Refuse a target that could not take the file.

    Raises
    ------
    ArgumentError
        It can be no file's name, is a device, or is in a pool's own folder.
    NotFoundError
        The folder that it would stand in is not there.
    ExistsError
        Something stands there already, and may not be replaced.

    """
    if "\0" in str(target) or len(os.fsencode(target.name)) > _NAME_BYTES or not target.name:
        message = f"{str(target)[:80]!r} can be no file's name; choose another"
        raise ArgumentError(message)
    real = target.resolve()
    if not real.parent.is_dir():
        message = f"{real.parent}: no such folder to write {target.name} into; make it first"
        raise NotFoundError(message)
    pool = next((above for above in real.parents if (above / POOL_FILE).exists()), None)
    if pool is not None:
        message = f"{target}: is in the pool {pool}, which has its own files; choose another folder"
        raise ArgumentError(message)
    if os.path.lexists(target):
        _check_taken(target, real, written_in, overwrite=overwrite)


def _check_taken(target: Path, real: Path, written_in: WritableFormat, *, overwrite: bool) -> None:
    """Refuse to replace what stands there, unless that is wanted and safe."""
    if real.exists() and not (real.is_file() or real.is_dir()):
        message = (
            f"{target}: is a device or the like, which cannot be replaced; choose another name"
        )
        raise ArgumentError(message)
    if not overwrite:
        message = f"{target}: exists; pass overwrite=True to replace it"
        raise ExistsError(message)
    if not real.is_dir():
        return
    empty = not any(real.iterdir())
    if not (written_in.makes_folder and (empty or written_in.matches(real, b""))):
        message = (
            f"{target}: is a folder, and nothing that was exported as {written_in.name}; it is not "
            "replaced. Choose another name"
        )
        raise ExistsError(message)


@contextlib.contextmanager
def beside(target: Path) -> Iterator[Path]:
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
        return
    with contextlib.suppress(OSError):
        # A library that failed to close the file may keep it open: its space returns at once. Not
        # so if it has got its name already, and this is the other one.
        if path.lstat().st_nlink == 1:
            os.truncate(path, 0)
    path.unlink(missing_ok=True)


def settle(part: Path) -> int:
    """Bring what was written onto the medium, and return its bytes."""
    files = [part] if part.is_file() else sorted(p for p in part.rglob("*") if p.is_file())
    nbytes = 0
    for file in files:
        with file.open("rb") as stream:
            os.fsync(stream.fileno())
            nbytes += os.fstat(stream.fileno()).st_size
    return nbytes


def take_name(part: Path, target: Path, written_in: WritableFormat, *, overwrite: bool) -> None:
    """Give what was written the target's name, and keep what has come there meanwhile."""
    check(target, written_in, overwrite=overwrite)
    if part.is_dir():
        _replace_folder(part, target)
    elif overwrite:
        with contextlib.suppress(OSError):  # the new file is as readable as the old one was
            part.chmod(stat.S_IMODE(target.stat().st_mode))
        part.replace(target)
    else:
        _link(part, target)
    with contextlib.suppress(OSError):
        folder = os.open(target.parent, os.O_RDONLY | os.O_DIRECTORY)
        try:
            os.fsync(folder)
        finally:
            os.close(folder)


def _replace_folder(part: Path, target: Path) -> None:
    """Put a folder in another's place; that one is back if it fails."""
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


def _link(part: Path, target: Path) -> None:
    """Give a file its name if nobody has taken it."""
    try:
        os.link(part, target)
    except FileExistsError:
        message = f"{target}: exists; somebody else has made it meanwhile"
        raise ExistsError(message) from None
    except OSError:  # a filesystem without hard links
        part.rename(target)
