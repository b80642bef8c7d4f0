"""Finding files of known formats in folders, by content, as an import would open them.

Nothing is lost from sight. A name that a format is known by is a claim: what has one goes to the
import, which fails by that name if its content is of no format, as if it had been named. All else
is passed over, and told of.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from engram.errors import EngramError, NotFoundError
from engram.formats.registry import formats, matching

if TYPE_CHECKING:
    from collections.abc import Iterable
    from pathlib import Path


@dataclass(frozen=True, slots=True)
class PassedOver:
    """Something in a folder that is not to be imported.

    Attributes
    ----------
    file
        Where it is.
    why
        Why it is passed over.

    """

    file: str
    why: str

    def to_dict(self) -> dict[str, str]:
        """Return it as plain values, for JSON."""
        return {"file": self.file, "passed_over": self.why}


@dataclass(frozen=True, slots=True)
class Found:
    """What stands in folders.

    Attributes
    ----------
    files
        What is to be imported.
    passed_over
        What is not. Names that begin with a dot are not among it.

    """

    files: list[Path] = field(default_factory=list)
    passed_over: list[PassedOver] = field(default_factory=list)


def find_files(paths: Iterable[Path]) -> Found:
    """Return the files named, and those of the folders named that are of formats or claim to be.

    A folder that is itself of a format, such as a Zarr store, is one file. Names that begin with a
    dot are not looked at, and links to folders are not followed.

    Raises
    ------
    NotFoundError
        A folder has no such file.

    """
    found = Found()
    for path in paths:
        if not path.is_dir() or _is_wanted(path):
            found.files.append(path)
            continue
        before = len(found.files)
        _look(path, found)
        if len(found.files) == before:
            message = f"{path}: has no file of a known format in it"
            raise NotFoundError(message)
    return found


def _look(folder: Path, found: Found) -> None:
    """Find what stands in a folder, all the way down."""
    waiting = [folder]
    while waiting:
        above = waiting.pop()
        try:
            members = sorted(above.iterdir())
        except OSError:  # of what cannot be read an import tells
            found.files.append(above)
            continue
        below = []
        for path in members:
            if path.name.startswith("."):
                continue
            if path.is_dir() and path.is_symlink():
                found.passed_over.append(PassedOver(str(path), "a link to a folder"))
            elif _is_wanted(path):
                found.files.append(path)
            elif path.is_dir():
                below.append(path)
            else:
                why = "of no known format" if path.is_file() else "neither a file nor a folder"
                found.passed_over.append(PassedOver(str(path), why))
        waiting += reversed(below)


def _is_wanted(path: Path) -> bool:
    """Whether a format takes a path for its own, or is known by such a name."""
    is_folder = path.is_dir()
    kin = [f for f in formats() if not is_folder or getattr(f, "makes_folder", False)]
    # Suffixes that other files have, too, say nothing: there the content does.
    kin = [f for f in kin if getattr(f, "has_own_suffixes", True)]
    if path.name.lower().endswith(tuple(suffix for known in kin for suffix in known.suffixes)):
        return True
    if not (is_folder or path.is_file()):  # a pipe would be waited for
        return False
    try:
        return bool(matching(path))
    except EngramError:  # as above
        return True
