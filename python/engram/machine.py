"""What this machine gives to a pool: what a path is on, and how much memory may be taken."""

from typing import TYPE_CHECKING

from engram import _engram
from engram.paths import absolute

if TYPE_CHECKING:
    import os

    from engram._engram import Standing


def standing(path: "str | os.PathLike[str]") -> "Standing":
    """Say what a path, which exists, is on, and whether that may carry a pool.

    Raises
    ------
    NotFoundError
        If there is nothing at `path`.

    """
    return _engram.standing(absolute(path))


def memory_limits() -> list[tuple[str, int, int]]:
    """Give what bounds the memory of this process: (the file that says so, limit, used), in bytes.

    The tightest of its memory cgroups, if one has a limit; and the machine, /proc/meminfo.
    """
    return [(str(file), limit, used) for file, limit, used in _engram.memory_limits()]
