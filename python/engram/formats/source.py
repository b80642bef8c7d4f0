"""What a format gives: a file seen as groups and arrays, and the list of what it cannot give.

A format turns a file into a `Source`; `load` pours any source into a group. So a new format knows
nothing of pools, and the rules of an import (all or nothing, names, what is told) stand once.

A source has looked at the file's whole structure when it is made; values and attributes are read
when they are asked for. `left_out` and `noted` grow while that happens.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Protocol

from engram.errors import EngramError, FormatError
from engram.formats.report import Entry

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence
    from pathlib import Path
    from types import TracebackType
    from typing import Self

    import numpy as np

    from engram.formats.blocks import Region

READ_ERRORS = (OSError, RuntimeError, ValueError, LookupError, TypeError, ArithmeticError)
"""What the libraries of file formats raise where a file is damaged."""

HEAD_BYTES = 512
"""So much of a file is shown to each format that is asked whether it is its own."""

Attributes = dict[str, Any]
Origin = dict[str, Any]


@dataclass(frozen=True, slots=True)
class GroupNode:
    """A group of the file.

    Attributes
    ----------
    path
        Its path relative to the file's root, which is ``""``.
    describe
        Reads its attributes and its `origin`.

    """

    path: str
    describe: Callable[[], tuple[Attributes, Origin]]


@dataclass(frozen=True, slots=True)
class Plain:
    """Where a file has a variable's values one after another in C order, as they lie in memory.

    Attributes
    ----------
    file
        A descriptor of the file, which is open as long as the source.
    start
        The byte of the file at which the first value begins.

    """

    file: int
    start: int


@dataclass(frozen=True, slots=True)
class ArrayNode:
    """A variable of numbers, characters or records: anything of a fixed size.

    Attributes
    ----------
    path
        Its path relative to the file's root.
    shape
        Its shape, without wildcards.
    dtype
        Its dtype, as its values lie in memory.
    dims
        The names of its dimensions, or None.
    chunks
        The file's chunk shape, of the length of `shape`, or None.
    describe
        Reads its attributes and its `origin`.
    read
        ``read(out, region)`` reads a region of the file into all of `out`, which has the region's
        shape and is contiguous or a view. Each slice of the region has a start, a stop and a step
        of at least 1 within its axis.
    plain
        ``plain()`` says where the file has its values as they lie in memory, so that the kernel can
        read them; None if it has them in another form. No more is read of the file for that.

    """

    path: str
    shape: tuple[int, ...]
    dtype: np.dtype[Any]
    dims: tuple[str, ...] | None
    chunks: tuple[int, ...] | None
    describe: Callable[[], tuple[Attributes, Origin]]
    read: Callable[[np.ndarray[Any, Any], Region], None]
    plain: Callable[[], Plain | None] = lambda: None

    @property
    def nbytes(self) -> int:
        """Bytes of its values."""
        total: int = self.dtype.itemsize
        for length in self.shape:
            total *= length
        return total


@dataclass(frozen=True, slots=True)
class TextNode:
    """A variable of variable-length strings; its size is known once it is read.

    Attributes
    ----------
    path
        Its path relative to the file's root.
    shape
        Its shape.
    dims
        The names of its dimensions, or None.
    describe
        Reads its attributes and its `origin`.
    load
        ``load(region)`` reads a region, as `ArrayNode.read` has it: an array of `StringDType`, or
        of ``S`` where it is not UTF-8.
    raw
        ``raw(region)`` reads a region as a list of bytes without NULs, in C order, for what is too
        large to be held as a whole; None where the format has no such way.
    chunks
        The file's chunk shape, of the length of `shape`, or None.

    """

    path: str
    shape: tuple[int, ...]
    dims: tuple[str, ...] | None
    describe: Callable[[], tuple[Attributes, Origin]]
    load: Callable[[Region], np.ndarray[Any, Any]]
    raw: Callable[[Region], list[bytes]] | None = None
    chunks: tuple[int, ...] | None = None


@dataclass(frozen=True, slots=True)
class RaggedNode:
    """A variable of sequences of any length, which becomes a group of two arrays (`ragged`).

    Attributes
    ----------
    path
        Its path relative to the file's root.
    shape
        Its shape: how many sequences.
    dtype
        The dtype of the sequences' elements; `StringDType` for strings.
    dims
        The names of its dimensions, or None.
    describe
        Reads its attributes and its `origin`, which become the group's.
    load
        ``load(region)`` reads a region, as `ArrayNode.read` has it: an array of objects, each one
        sequence as an array of `dtype` (of bytes for strings), or None for an empty one.

    """

    path: str
    shape: tuple[int, ...]
    dtype: np.dtype[Any]
    dims: tuple[str, ...] | None
    describe: Callable[[], tuple[Attributes, Origin]]
    load: Callable[[Region], np.ndarray[Any, Any]]


Node = GroupNode | ArrayNode | TextNode | RaggedNode


def state_of(file: Path) -> object:
    """Return what tells a file from a later version of it."""
    found = file.stat()
    return found.st_ino, found.st_size, found.st_mtime_ns


class Source:
    """An open file, for reading. A with-block closes it.

    Attributes
    ----------
    before
        The state of the file before it was opened; None of a folder, whose files are read later.

    """

    def __init__(self, path: Path, format_name: str) -> None:
        """Begin with nothing in it; a subclass fills `nodes`."""
        self.path = path
        self.format = format_name
        self.before: object = None
        self.nodes: list[Node] = []
        self.left_out: list[Entry] = []
        self.noted: list[Entry] = []

    def leave_out(self, path: str, what: str, why: str) -> None:
        """Say that something of the file cannot be represented."""
        self.left_out.append(Entry("/" + path, what, why))

    def note(self, path: str, what: str, why: str) -> None:
        """Say that something of the file is represented in another way."""
        self.noted.append(Entry("/" + path, what, why))

    def state(self) -> object:
        """Return what tells the file from a later version of it."""
        return state_of(self.path)

    def close(self) -> None:
        """Close the file."""

    def __enter__(self) -> Self:
        """Return the source."""
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        """Close the file."""
        self.close()


def reading(call: Callable[..., Any], *arguments: Any) -> Any:
    """Call what reads the file, and turn what its library raises into `FormatError`."""
    try:
        return call(*arguments)
    except EngramError:
        raise
    except READ_ERRORS as error:
        message = f"cannot be read: {error}. The file may be damaged; nothing was imported"
        raise FormatError(message) from error


class Declined(Exception):  # noqa: N818 - an answer between formats, never seen by a user
    """A format's answer to a file that is of its kind, but better read by another."""


class Format(Protocol):
    """A file format, as registered under the entry point group ``engram.formats``.

    The object must be had without the format's own library, which is imported by `open` and
    `write`, through `engram.formats.registry.library` where it is an extra. A format that can
    write as well is a `target.WritableFormat`.

    Attributes
    ----------
    name
        Its word in messages and for ``--format``.
    rank
        Formats that match the same file are asked in this order, least first.
    suffixes
        File name endings, with the dot, that it is known by.

    """

    name: str
    rank: int
    suffixes: Sequence[str]

    def matches(self, path: Path, head: bytes) -> bool:
        """Whether the content at `path` is of this format.

        Parameters
        ----------
        path
            A file or a folder.
        head
            The file's first `HEAD_BYTES`; nothing for a folder.

        """
        ...

    def open(self, path: Path) -> Source:
        """Open the file.

        Raises
        ------
        Declined
            Another format should be asked.
        FormatError
            The file is damaged.
        BusyError
            Another process is writing it.
        UnsupportedError
            A library is missing.

        """
        ...
