"""Engram in this process, with inputs copied first, or on emulated persistent memory, or both.

Emulated is what the pool copies itself: arrays that are stored, and inputs that `pre_copy` copies.
Methods without it look at views, which are as quick as the memory beneath.
"""

from __future__ import annotations

from bench.active.ways.engram_blocks import Copied
from bench.active.ways.engram_here import Here


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
