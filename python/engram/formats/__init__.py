"""Files in and out: `import_file`, `export_file`, their reports, and formats by entry point."""

from __future__ import annotations

from typing import TYPE_CHECKING, Literal

from engram.arguments import file_path
from engram.errors import ArgumentError
from engram.formats.report import (
    Entry,
    ExportReport,
    FilesProgress,
    ImportFailure,
    ImportReport,
    Progress,
)
from engram.formats.telling import exported, exporting, numbers
from engram.group import Group
from engram.index import check_mode

if TYPE_CHECKING:
    import os
    from collections.abc import Callable, Iterable

    from engram.formats.gather import Exported
    from engram.formats.select import Patterns, Slices
    from engram.index import IndexMode

__all__ = [
    "Entry",
    "ExportReport",
    "FilesProgress",
    "ImportFailure",
    "ImportReport",
    "Progress",
    "export_file",
    "import_file",
    "import_files",
]


def import_file(
    path: str | os.PathLike[str],
    group: Group,
    *,
    overwrite: bool = False,
    select: Patterns = None,
    slices: Slices = None,
    index: IndexMode | None = None,
    chunks: Literal["keep"] | bool | None = None,
    codec: str | None = None,
    progress: Callable[[Progress], None] | None = None,
) -> ImportReport:
    """Import a file's tree into a group. If the import fails, nothing of the file is in the group.

    What a pool cannot hold is left out, and the report's `left_out` names it.
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
    select
        Patterns of paths, such as ``"group/var*"``: only these, with the groups they are in.
    slices
        Slices of dimensions: ``"time=0:10"``, several of these, or ``{"time": slice(0, 10)}``.
    index
        When the arrays are indexed: "sync", "async" or "none"; the default is the group's mode.
    chunks, codec
        By default, each array is in one piece, and compressed data are unpacked. With ``"keep"``,
        the arrays that the file has in chunks keep them; with True, every array is in chunks.
        `codec` says how chunks are compressed, as in `Group.create_array`.
    progress
        Called after each piece read.

    Returns
    -------
    The report: numbers, and each thing that could not be represented, with its reason.

    Raises
    ------
    NotFoundError, AccessError
        There is no such file, nothing in it is selected, or this user may not read it.
    FormatError
        It is of no known format, truncated, or cannot be read; with the variable.
    UnsupportedError
        The library of its format, or an HDF5 filter, is not installed; with what to install.
    BusyError
        Another process is writing it, or it changed while it was read.
    ExistsError
        A name or attribute is taken.
    PoolFullError, ReadOnlyError
        The pool has no room, or is open for reading only; nothing was imported.

    """
    # The formats' libraries are loaded when a file is imported, not with `import engram`.
    from engram.formats.load import Options, load_file  # noqa: PLC0415

    if not isinstance(group, Group):
        raise ArgumentError(f"{group!r} is no group: give a group or a pool to import into")
    lies = _layout(chunks, codec)
    options = Options(overwrite, select, slices, check_mode(index), *lies)
    return load_file(file_path("path", path), group, options, progress)


def _layout(
    chunks: Literal["keep"] | bool | None, codec: str | None
) -> tuple[Literal["keep"] | bool, str | None]:
    """Refuse what `chunks` and `codec` cannot be."""
    if not (chunks is None or isinstance(chunks, bool) or chunks == "keep"):
        raise ArgumentError(f'chunks {chunks!r} cannot be: give "keep", True, or nothing')
    if codec is not None and not chunks:
        raise ArgumentError(f'codec {codec!r} is for chunks: give chunks="keep" or True, too')
    return chunks or False, codec


def import_files(
    paths: Iterable[str | os.PathLike[str]],
    group: Group,
    *,
    workers: int = 1,
    overwrite: bool = False,
    select: Patterns = None,
    slices: Slices = None,
    index: IndexMode | None = None,
    chunks: Literal["keep"] | bool | None = None,
    codec: str | None = None,
    progress: Callable[[FilesProgress], None] | None = None,
) -> list[ImportReport | ImportFailure]:
    """Import many files, each into a group of its own, as `import_file` does.

    A file's group is named after it, without its suffix. Where two such names are the same, all
    files are named by their paths relative to the folder that they have in common; each report
    has its `group`. A file that cannot be imported is reported, and the others are imported.

    Parameters
    ----------
    paths
        The files; one that is given twice is imported once.
    group
        The group (or pool: its root) that the files' groups are made in.
    workers
        How many processes read, each of which opens the pool itself. They are started apart and do
        not run the caller's main module; a few hundred milliseconds each.
    overwrite, select, slices, index, chunks, codec
        As `import_file` has them, for each file.
    progress
        Called now and then, and after each file.

    Returns
    -------
    A report or a failure for each file, in the order of `paths`.

    Raises
    ------
    ArgumentError
        What is asked for makes no sense, whatever the files.
    ReadOnlyError
        The pool is open for reading only.

    """
    from engram.formats.load import Options  # noqa: PLC0415 - as above
    from engram.formats.many import import_many  # noqa: PLC0415 - as above

    if not isinstance(group, Group):
        raise ArgumentError(f"{group!r} is no group: give a group or a pool to import into")
    lies = _layout(chunks, codec)
    options = Options(overwrite, select, slices, check_mode(index), *lies)
    return import_many(paths, group, workers, options, progress)


def export_file(
    source: Exported,
    path: str | os.PathLike[str],
    *,
    format: str | None = None,
    overwrite: bool = False,
    lossy: bool = False,
    select: Patterns = None,
    slices: Slices = None,
    progress: Callable[[Progress], None] | None = None,
) -> ExportReport:
    """Export a group, an array, or objects of a pool as a file: all of it, or none of it.

    What was imported goes out as it came in: values, attributes, dimensions, and how the file
    stored them. The file appears under its name once it is whole. Each array is as it was at one
    moment; a group that is being written to meanwhile is not as a whole.

    Parameters
    ----------
    source
        A group (or pool: its root) with all that is in it, an array or blob, or any objects of
        one namespace, which keep their groups.
    path
        The file, or, for formats that are one, the folder.
    format
        Its format, such as ``"netcdf4"``; by the path's suffix if none is given.
    overwrite
        Replace a file that is there.
    lossy
        Leave out what the format cannot hold, and say so in the report, instead of refusing.
    select
        Patterns of paths, such as ``"group/var*"``: only these, with the groups they are in.
    slices
        Slices of dimensions: ``"time=0:10"``, several of these, or ``{"time": slice(0, 10)}``.
    progress
        Called after each piece written.

    Returns
    -------
    The report: numbers, what was left out, and what stands there in another way.

    Raises
    ------
    ExistsError
        Something is there already.
    FormatError
        The format cannot hold what is to be exported; each such thing is named.
    ArgumentError
        The format is unknown, or `source` is nothing of a pool.
    NotFoundError
        The folder to write into, or what is selected, is not there.
    UnsupportedError
        The format's library is missing; with what to install.
    AccessError
        This user may not write there.
    PoolFullError
        The filesystem that is written to is full, or this user's share of it; nothing is left of
        the file.
    EngramError
        Writing failed in another way; nothing is left of the file.

    """
    from engram.formats.save import export  # noqa: PLC0415 - as above

    file = file_path("path", path)
    with exporting(file) as span:
        report = export(source, file, format, overwrite, lossy, select, slices, progress)
        span.set(numbers, report)
    return exported(report)
