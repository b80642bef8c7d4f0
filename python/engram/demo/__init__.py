"""The main job: a small real simulation, three processes, one pool and one SIGKILL.

Two processes simulate a shallow-water jet straight into a pool, step by step; a third, started
apart, computes on the steps in place as they appear; a netCDF file is imported and computed on
beside them; one writer is killed half-way and another takes over. Every claim is checked.
`python -m engram.demo` and `engram demo` run it; `job.run` reads top to bottom.
"""

from pathlib import Path
from typing import Any

from engram.extras import library

__all__ = ["check_libraries", "run"]


def check_libraries() -> None:
    """Refuse to begin where a library that the job needs is missing.

    Raises
    ------
    UnsupportedError
        With the library, and the extra that brings it.

    """
    for module in ("h5py", "matplotlib", "netCDF4", "rich"):
        library(module, "demo", "the demo")


def run(out: Path, **how: Any) -> bool:
    """Run the main job; `job.run` tells of its arguments, and of what it gives."""
    check_libraries()
    from engram.demo import job  # noqa: PLC0415 - it imports them

    return job.run(out, **how)
