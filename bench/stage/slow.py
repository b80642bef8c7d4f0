"""A file system that is as slow as echofs's Lustre was for its nodes together: an emulation.

One token bucket, by what the white paper's 835.5, 715.3 and 583.2 s say of it. So it is fitted to
the answer: it shows that the coordination works, and what that costs beyond the formula, no more.
"""

from __future__ import annotations

from contextlib import contextmanager
from typing import TYPE_CHECKING

from bench.files.null import served
from bench.own import rust

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

PROGRAM = rust.PROGRAM.with_name("engram-slow-fs")
BYTES_PER_SECOND = 176_800_000
"""For one stream: 3 files of 16 GiB read and written in 583.2 s, one after the other."""
MORE_STREAMS = 0.113
"""Three at once took 715.3 s: 1.226 times as long."""
MIXED = 1.168
"""Three that read and write took 835.5 s: 1.168 times that."""


@contextmanager
def mounted(place: Path) -> Iterator[Path]:
    """Mount one upon a new folder."""
    place.mkdir()
    with served(PROGRAM, place, BYTES_PER_SECOND, MORE_STREAMS, MIXED):
        yield place
    place.rmdir()
