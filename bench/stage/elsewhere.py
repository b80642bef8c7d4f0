"""Where stages are measured besides the folder in memory."""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

if TYPE_CHECKING:
    from pathlib import Path


class Elsewhere(NamedTuple):
    """Further places."""

    disk: Path
    """A new folder on a disk."""
    pfs: Path | None
    """A new folder on the parallel file system that is to be measured; None: an emulated one."""
