"""Engram in this process on other media: emulated persistent memory, inputs copied first, disks.

Emulated is what the pool copies itself: arrays that are stored, and inputs that `pre_copy` copies.
Methods without it look at views, which are as quick as the memory beneath.
"""

from __future__ import annotations

import os

from bench.active.ways.engram_blocks import Copied
from bench.active.ways.engram_here import Here, Roomy


class PreCopy(Here):
    """The plain medium, inputs copied first."""

    name = "engram-pre-copy"
    kind = Copied


class Emulated(Here):
    """Emulated persistent memory, methods on views."""

    name = "engram-emulated"
    emulate = "pmem"


class EmulatedPreCopy(Emulated):
    """Emulated persistent memory, inputs copied first."""

    name = "engram-emulated-pre-copy"
    kind = Copied


class Disk(Roomy):
    """A pool on a disk, where what was put is durable when the call returns."""

    name = "engram-disk"
    durability = "system"


class Background(Roomy):
    """A pool on a disk that the kernel writes to in the background."""

    name = "engram-disk-background"
    durability = "process"

    def settle(self) -> None:
        """Wait until all is on the disk."""
        for place in self.path.rglob("*"):
            if place.is_file():
                with place.open("rb") as file:
                    os.fsync(file)
