"""Where work is done: a tmpfs, a mount of a pool there, and a FUSE that does nothing."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import tempfile
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import TYPE_CHECKING

import engram
from bench.files import null
from bench.files.turns import MOUNT, NULL, TMPFS

if TYPE_CHECKING:
    from collections.abc import Iterator

    from bench.setting import Setting


PREFIX = "engram-posix-"
"""A folder of a run begins so; then comes the number of its process."""


@contextmanager
def folder(where: Path) -> Iterator[Path]:
    """Give a run its folder; what killed runs have left mounted goes first."""
    left = re.compile(rf"/{PREFIX}(\d+)-")
    for line in reversed(Path("/proc/self/mounts").read_text(encoding="utf-8").splitlines()):
        point = line.split(" ")[1]
        if (found := left.search(point)) and not Path(f"/proc/{found[1]}").exists():
            unmount = ["umount", "-l"] if os.geteuid() == 0 else ["fusermount3", "-u", "-z"]
            subprocess.run([*unmount, point], check=False)  # noqa: S603
    for old in where.glob(f"{PREFIX}*"):
        if (found := left.search(str(old))) and not Path(f"/proc/{found[1]}").exists():
            shutil.rmtree(old, ignore_errors=True)
    with tempfile.TemporaryDirectory(prefix=f"{PREFIX}{os.getpid()}-", dir=where) as made:
        yield Path(made)


@contextmanager
def mount(pool: Path, place: Path, size: int) -> Iterator[Path]:
    """Make a pool, and mount it upon a folder that nothing else uses."""
    place.mkdir()
    engram.create(pool, size=size).close()
    try:
        with engram.mount(pool, place, cache="job"):
            yield place
    finally:
        engram.destroy(pool)
        place.rmdir()


@contextmanager
def places(setting: Setting, size: int, *, nothing: bool = True) -> Iterator[dict[str, Path]]:
    """Give a folder of each; without mounts where FUSE is not offered.

    Without `nothing` the file system that does nothing is left out: for work that reads what it has
    written.
    """
    plain, empty = setting.folder / "plain", setting.folder / "null"
    plain.mkdir()
    found = {TMPFS: plain}
    with ExitStack() as stack:
        try:
            pool = mount(setting.folder / "mounted.pool", setting.folder / "mount", size)
            found[MOUNT] = stack.enter_context(pool)
        except engram.UnsupportedError as refusal:
            setting.absent[MOUNT] = setting.absent[NULL] = str(refusal)
        else:
            if nothing:
                empty.mkdir(exist_ok=True)
                found[NULL] = stack.enter_context(null.mounted(empty))
        yield found
    plain.rmdir()
