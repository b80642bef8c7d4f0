"""Where the doctor looks: the folder that is meant, its mount, and how it may be tried.

What is asked for may be a pool (then each of its devices is a place), a folder, or not there yet.
"""

from __future__ import annotations

import contextlib
import functools
import os
import tempfile
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

import engram
from engram import machine
from engram.errors import EngramError, NotFoundError
from engram.paths import POOL_FILE, absolute

if TYPE_CHECKING:
    from collections.abc import Iterator

    from engram._engram import Standing

_PREFIX = ".engram-doctor-"


@dataclass(eq=False)
class Place:
    """A folder, and what it is on."""

    folder: Path
    title: str
    standing: Standing
    promised: str | None
    """The durability of the pool that this is a device of; None if there is no pool."""

    @functools.cached_property
    def ground(self) -> Path:
        """Where something may be tried: beside a pool rather than in its folder."""
        parent = self.folder.parent
        if (
            os.access(self.folder / POOL_FILE, os.F_OK)
            and parent.stat().st_dev == self.folder.stat().st_dev
        ):
            return parent
        return self.folder

    @functools.cached_property
    def refusal(self) -> OSError | None:
        """Why this user can make no file here; None if that works."""
        try:
            with self.file():
                return None
        except OSError as error:
            return error

    @property
    def is_node(self) -> bool:
        """Whether it is a devdax node, where no file can be made."""
        return self.standing.filesystem == "devdax"

    @property
    def in_memory(self) -> bool:
        """Whether its files are memory and nothing else."""
        return self.standing.filesystem == "tmpfs"

    @property
    def mount(self) -> str:
        """Where its filesystem is mounted."""
        return self.standing.mount or str(self.folder)

    @contextlib.contextmanager
    def file(self) -> Iterator[int]:
        """Give the descriptor of a new file here that has no name, or none any more."""
        with tempfile.TemporaryFile(dir=self.ground, prefix=_PREFIX) as file:
            yield file.fileno()

    @contextlib.contextmanager
    def pool(self, nbytes: int) -> Iterator[engram.Pool]:
        """Give a new pool here of so many bytes, gone afterwards.

        Raises
        ------
        EngramError
            If there can be none.

        """
        with tempfile.TemporaryDirectory(
            dir=self.ground, prefix=_PREFIX, ignore_cleanup_errors=True
        ) as folder:
            path = Path(folder, "pool")
            with engram.create(path, size=nbytes, force=True) as pool:
                yield pool
            engram.destroy(path)


def places(path: Path) -> list[Place]:
    """Return the places that a path means.

    Raises
    ------
    NotFoundError
        If not even a parent of it can be looked at.

    """
    if absolute(path).is_char_device():
        return [_place(absolute(path), str(path), None)]
    there = _nearest(absolute(path))
    if there != absolute(path):
        return [_place(there, f"{there} (there is no {path} yet)", None)]
    if not os.access(there / POOL_FILE, os.F_OK):
        return [_place(there, str(there), None)]
    try:
        with engram.open(there, mode="r", force=True) as pool:
            promised = pool.durability
            devices = [Path(device.path) for device in pool.devices]
    except EngramError as error:
        return [_place(there, f"{there} (a pool that does not open: {error})", None)]
    titles = [f"{folder} (device {number} of the pool)" for number, folder in enumerate(devices)]
    if len(devices) == 1:
        titles = [f"{there} (a pool)"]
    return [_place(*pair, promised) for pair in zip(devices, titles, strict=True)]


def _place(folder: Path, title: str, promised: str | None) -> Place:
    return Place(folder, title, machine.standing(folder), promised)


def _nearest(path: Path) -> Path:
    """Return the path, or the nearest folder above it that is there."""
    for candidate in (path, *path.parents):
        with contextlib.suppress(OSError):  # this user may not look there
            if candidate.is_dir():
                return candidate
    message = f"{path}: no folder on the way to it can be looked at; check the path"
    raise NotFoundError(message)
