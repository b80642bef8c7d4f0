"""What an import or an export did, and what it left out and why."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from engram.errors import EngramError


@dataclass(frozen=True, slots=True)
class Entry:
    """One thing of a file that the import has something to say about.

    Attributes
    ----------
    path
        Where it stands in the file, beginning with ``/``.
    what
        What it is, such as ``"dataset"``, ``"attribute units"`` or ``"soft link"``.
    why
        Why it was left out, or how it differs from what the file holds.

    """

    path: str
    what: str
    why: str

    def __str__(self) -> str:
        """Return the entry as one line."""
        return f"{self.path}: {self.what}: {self.why}"


@dataclass(frozen=True, slots=True)
class Progress:
    """How far an import or export is, as its ``progress`` callback is told.

    Attributes
    ----------
    path
        The variable being read or written, beginning with ``/``.
    done
        Bytes of values so far.
    total
        Bytes of values in all.

    """

    path: str
    done: int
    total: int


class _Report:
    """What the reports of an import and of an export have in common: what is not as it was."""

    __slots__: tuple[str, ...] = ()

    left_out: tuple[Entry, ...]
    noted: tuple[Entry, ...]

    @property
    def complete(self) -> bool:
        """Whether everything that was there to be brought in, or asked to be written, was."""
        return not self.left_out

    def to_dict(self) -> dict[str, Any]:
        """Return the report as plain values, for JSON."""
        plain: dict[str, Any] = {name: getattr(self, name) for name in self.__slots__}
        for name in ("left_out", "noted"):
            plain[name] = [
                {"path": e.path, "what": e.what, "why": e.why} for e in getattr(self, name)
            ]
        return plain

    def _with_entries(self, numbers: str) -> str:
        """Return a report's numbers and entries as lines."""
        lines = [numbers]
        lines += [f"left out: {entry}" for entry in self.left_out]
        lines += [f"noted: {entry}" for entry in self.noted]
        return "\n".join(lines)


@dataclass(frozen=True, slots=True)
class ImportReport(_Report):
    """What an import brought in.

    Attributes
    ----------
    file
        The file that was read.
    format
        How it was read: ``NETCDF3_CLASSIC``, ``NETCDF3_64BIT_OFFSET``,
        ``NETCDF3_64BIT_DATA``, ``NETCDF4``, ``NETCDF4_CLASSIC`` or ``HDF5``, or the word
        of a format that registered itself.
    group
        The path, in its namespace, of the group that received it.
    groups
        Groups made.
    arrays
        Arrays made.
    attributes
        Attributes set, on groups and arrays.
    nbytes
        Bytes of values (strings: of their UTF-8).
    seconds
        How long it took.
    left_out
        What could not be represented, each with its reason. Nothing else is missing.
    noted
        What is there in another way than the file has it, each with its reason.

    """

    file: str
    format: str
    group: str
    groups: int
    arrays: int
    attributes: int
    nbytes: int
    seconds: float
    left_out: tuple[Entry, ...] = field(default=())
    noted: tuple[Entry, ...] = field(default=())

    def __str__(self) -> str:
        """Return the report as lines of text: one of numbers, then one for each entry."""
        numbers = (
            f"{self.file} ({self.format}) into {'/' + self.group}: {self.arrays} arrays, "
            f"{self.groups} groups, {self.attributes} attributes, {self.nbytes} bytes "
            f"in {self.seconds:.2f} s"
        )
        return self._with_entries(numbers)


@dataclass(frozen=True, slots=True)
class FilesProgress:
    """How far an import of many files is.

    Attributes
    ----------
    path
        The file that was last heard of.
    files_done
        Files that are done, well or not.
    files_total
        Files in all.
    done
        Bytes of files so far.
    total
        Bytes of files in all.

    """

    path: str
    files_done: int
    files_total: int
    done: int
    total: int


@dataclass(frozen=True, slots=True)
class ImportFailure:
    """A file of many that was not imported; nothing of it is there.

    Attributes
    ----------
    file
        The file.
    group
        The path, in its namespace, of the group that it was to go into.
    error
        What `engram.import_file` would have raised.

    """

    file: str
    group: str
    error: EngramError

    def to_dict(self) -> dict[str, Any]:
        """Return the failure as plain values, for JSON."""
        kind = type(self.error)
        said = {"kind": kind.__name__, "message": str(self.error), "exit_code": kind.exit_code}
        return {"file": self.file, "group": self.group, "error": said}

    def __str__(self) -> str:
        """Return the error's message."""
        return str(self.error)


@dataclass(frozen=True, slots=True)
class ExportReport(_Report):
    """What an export wrote.

    Attributes
    ----------
    file
        The file or folder that was written.
    format
        What it is: a word as in `ImportReport.format`, or of the format that wrote it.
    source
        The path, in its namespace, of what was exported.
    groups
        Groups written, the root not counted.
    arrays
        Arrays written, blobs included.
    attributes
        Attributes written, on groups and arrays.
    nbytes
        Bytes of values.
    file_nbytes
        Bytes of what was written, compressed as it is.
    seconds
        How long it took.
    left_out
        What the format cannot hold, each with its reason: what was allowed to be left out, and
        what nobody expects in such a file, as attributes in ``.npy``.
    noted
        What is there in another way than the pool has it, each with its reason.

    """

    file: str
    format: str
    source: str
    groups: int
    arrays: int
    attributes: int
    nbytes: int
    file_nbytes: int
    seconds: float
    left_out: tuple[Entry, ...] = field(default=())
    noted: tuple[Entry, ...] = field(default=())

    def __str__(self) -> str:
        """Return the report as lines of text: one of numbers, then one for each entry."""
        numbers = (
            f"/{self.source} to {self.file} ({self.format}): {self.arrays} arrays, "
            f"{self.groups} groups, {self.attributes} attributes, {self.nbytes} bytes "
            f"in {self.seconds:.2f} s"
        )
        return self._with_entries(numbers)
