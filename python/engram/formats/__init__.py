"""Files in: `import_file`, its report, and the formats that register themselves for it."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

from engram.errors import ArgumentError
from engram.formats.report import Entry, ImportReport, Progress
from engram.group import Group

if TYPE_CHECKING:
    import os
    from collections.abc import Callable


__all__ = ["Entry", "ImportReport", "Progress", "import_file"]


def import_file(
    path: str | os.PathLike[str],
    group: Group,
    *,
    overwrite: bool = False,
    progress: Callable[[Progress], None] | None = None,
) -> ImportReport:
    """Import a file's whole tree into a group: all of it, or none of it.

    The format is found by the file's content, not its name: netCDF (classic, 64-bit, netCDF-4),
    HDF5, and what else is registered under the entry point group ``engram.formats``. Values stay
    as they are in the file, neither masked nor scaled; dimension names become `dims`;
    variable-length strings become arrays of `StringDType`. Large variables are read straight
    into the pool's memory, a bounded piece at a time.

    Parameters
    ----------
    path
        The file.
    group
        The group (or pool: its root) that receives the file's members and attributes.
    overwrite
        Replace members and attributes of the same names.
    progress
        Called after each piece read.

    Returns
    -------
    The report: numbers, and each thing that could not be represented, with its reason.

    Raises
    ------
    NotFoundError
        There is no such file.
    AccessError
        This user may not read it.
    FormatError
        It is of no known format, truncated, or cannot be read; with the variable.
    BusyError
        Another process is writing it, or it changed while it was read.
    ExistsError
        A name or attribute is taken.
    PoolFullError
        The pool has no room; nothing was imported.
    ReadOnlyError
        The pool is open for reading only.

    """
    # The formats' libraries are loaded when a file is imported, not with `import engram`.
    from engram.formats.load import Loader  # noqa: PLC0415
    from engram.formats.registry import open_source  # noqa: PLC0415

    if not isinstance(group, Group):
        raise ArgumentError(f"{group!r} is no group: give a group or a pool to import into")
    with open_source(Path(path)) as source:
        return Loader(source, group, overwrite=overwrite, progress=progress).run()
