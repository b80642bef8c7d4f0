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
def mounted(place: Path, folder: str = "", files: int = 0) -> Iterator[Path]:
    """Mount one upon a folder; in `folder` it has so many files when it begins."""
    words = [str(PROGRAM), str(place), *([folder, str(files)] if folder else [])]
    # A session of its own, as a pool's mount has: the kernel shares processors among sessions.
    process = subprocess.Popen(  # noqa: S603 - our own program
        words, stdout=subprocess.PIPE, text=True, start_new_session=True
    )
    assert process.stdout is not None  # noqa: S101 - it is a pipe
    if process.stdout.readline().strip() != "ready":
        message = f"the null file system does not serve {place}"
        raise OSError(message)
    try:
        yield place
    finally:
        unmount = ["umount"] if os.geteuid() == 0 else ["fusermount3", "-u"]
        subprocess.run([*unmount, str(place)], check=True)  # noqa: S603
        process.wait(END_S)
