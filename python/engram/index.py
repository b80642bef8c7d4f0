"""The index: when objects come into it, and how it is laid out."""

from typing import Literal, TypeAlias

from engram.errors import ArgumentError

IndexMode: TypeAlias = Literal["sync", "async", "none"]
"""When an object's attributes are indexed.

"sync"
    In the object's own commit.
"async"
    A little later, by a thread of any process that has the pool open for writing. Queries see the
    object at once all the same.
"none"
    Not at all: queries find the object by its built-in fields alone.
"""

MODES = ("sync", "async", "none")


def check_mode(mode: IndexMode | None) -> IndexMode | None:
    """Refuse what is no mode."""
    if mode is None or (isinstance(mode, str) and mode in MODES):
        return mode
    raise ArgumentError(f'index {mode!r} is unknown: use "sync", "async" or "none"')
