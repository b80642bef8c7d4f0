"""A FUSE file system that does nothing: names in memory, bytes dropped, zeros read.

It is served with the options, the threads and the caching of a pool's mount, so what a mount takes
beyond it is Engram's own.
"""

from __future__ import annotations

import os
import subprocess
from contextlib import contextmanager
from typing import TYPE_CHECKING

from bench.own import rust

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

PROGRAM = rust.PROGRAM.with_name("engram-null-fs")
END_S = 60


@contextmanager
def served(program: Path, place: Path, *words: object) -> Iterator[Path]:
    """Have a program serve a folder that says "ready" then, and unmount it."""
    # A session of its own, as a pool's mount has: the kernel shares processors among sessions.
    process = subprocess.Popen(  # noqa: S603 - our own program
        [str(program), str(place), *map(str, words)],
        stdout=subprocess.PIPE,
        text=True,
        start_new_session=True,
    )
    assert process.stdout is not None  # noqa: S101 - it is a pipe
    if process.stdout.readline().strip() != "ready":
        message = f"{program.name} does not serve {place}"
        raise OSError(message)
    try:
        yield place
    finally:
        unmount = ["umount"] if os.geteuid() == 0 else ["fusermount3", "-u"]
        subprocess.run([*unmount, str(place)], check=True)  # noqa: S603
        process.wait(END_S)


@contextmanager
def mounted(place: Path, folder: str = "", files: int = 0) -> Iterator[Path]:
    """Mount one upon a folder; in `folder` it has so many files when it begins."""
    with served(PROGRAM, place, *((folder, files) if folder else ())):
        yield place
