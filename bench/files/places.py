"""Where work is done: a tmpfs, a mount of a pool there, and a FUSE that does nothing."""

from __future__ import annotations

from contextlib import ExitStack, contextmanager
from typing import TYPE_CHECKING

import engram
from bench.files import null
from bench.files.turns import MOUNT, NULL, TMPFS

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from bench.setting import Setting


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
