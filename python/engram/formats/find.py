"""Finding files of known formats in folders, by content, as an import would open them."""

from __future__ import annotations

from typing import TYPE_CHECKING

from engram.errors import EngramError, NotFoundError
from engram.formats.registry import matching

if TYPE_CHECKING:
    from collections.abc import Iterable
    from pathlib import Path


def find_files(paths: Iterable[Path]) -> list[Path]:
    """Return the files named, and those of known formats in the folders named, sorted.

    A folder that is itself of a format, such as a Zarr store, is one file. Names that begin with a
    dot are passed over, and links to folders are not followed.

    Raises
    ------
    NotFoundError
        A folder has no file of a known format.

    """
    found: list[Path] = []
    for path in paths:
        if not path.is_dir() or matching(path):
            found.append(path)
            continue
        inside = _inside(path)
        if not inside:
            message = f"{path}: has no file of a known format in it"
            raise NotFoundError(message)
        found += inside
    return found


def _inside(folder: Path) -> list[Path]:
    """Return the files of known formats in a folder, all the way down."""
    found: list[Path] = []
    waiting = [folder]
    while waiting:
        below = []
        for path in sorted(waiting.pop().iterdir()):
            if path.name.startswith("."):
                continue
            if path.is_dir() and path.is_symlink():
                continue
            if path.is_file() or path.is_dir():
                if _is_known(path):
                    found.append(path)
                elif path.is_dir():
                    below.append(path)
        waiting += reversed(below)
    return found


def _is_known(path: Path) -> bool:
    """Whether a format takes a file for its own; of one that cannot be read an import tells."""
    try:
        return bool(matching(path))
    except EngramError:
        return True
