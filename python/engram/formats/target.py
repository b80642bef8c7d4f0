"""What an export gives a format to write: part of a pool, seen as groups and arrays.

The mirror of `source`: a format that writes knows nothing of pools, and the rules of an export
(what is wanted, all or nothing, what stands at the target) stand once, in `save`.

A tree is taken as it is at one moment for each object, not for all of them together: an array's
values are a view that outlives its replacement. `origin` is a hint and never an authority: what it
says of an object that has been changed since, or of another object, is ignored where it does not
fit the dtype, shape, dims and attributes that are there.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Protocol, runtime_checkable

from engram.formats.report import Entry
from engram.formats.source import Format

if TYPE_CHECKING:
    from collections.abc import Sequence
    from pathlib import Path

    import numpy as np

    from engram.formats.source import Attributes, Origin


@dataclass(frozen=True, slots=True)
class GroupItem:
    """A group to be written.

    Attributes
    ----------
    path
        Its path relative to the root of what is exported, which is ``""``.
    attrs
        Its attributes, as `engram.Group.attrs` gives them.
    origin
        What its import kept, as `engram.formats.origin` tells; empty if it was not imported.
    asked
        Whether it was asked for, and not only as the place of what was.

    """

    path: str
    attrs: Attributes
    origin: Origin
    asked: bool = True


@dataclass(frozen=True, slots=True)
class ArrayItem:
    """An array to be written, or a blob as its bytes.

    Attributes
    ----------
    path
        Its path relative to the root.
    shape
        Its shape, after slicing.
    dtype
        Its dtype, byte order included; `StringDType` for strings of variable length.
    dims
        The names of its dimensions, or None.
    attrs
        Its attributes.
    origin
        What its import kept; empty if it was not imported.
    load
        Gives its values, of `shape` and `dtype`, read-only: the pool's own memory where that can
        be, so that a slice of it is read from there and nothing else.
    is_blob
        Whether it is a blob, whose values are uint8 of shape (nbytes,).
    text_nbytes
        Bytes of its strings in UTF-8; None if it has none.

    """

    path: str
    shape: tuple[int, ...]
    dtype: np.dtype[Any]
    dims: tuple[str, ...] | None
    attrs: Attributes
    origin: Origin
    load: Callable[[], np.ndarray[Any, Any]]
    is_blob: bool = False
    text_nbytes: int | None = None

    @property
    def nbytes(self) -> int:
        """Bytes of its values; of strings, of what tells where they are."""
        total: int = self.dtype.itemsize
        for length in self.shape:
            total *= length
        return total


Item = GroupItem | ArrayItem


@dataclass(frozen=True, slots=True)
class Problem:
    """Something that a format cannot hold.

    Attributes
    ----------
    path
        The group or array, relative to the root. A group goes with all that is in it.
    what
        What it is, such as ``"group"`` or ``"attribute flags"``.
    why
        Why it cannot be held.
    attribute
        The attribute's name, if it is that alone.

    """

    path: str
    what: str
    why: str
    attribute: str | None = None

    def __str__(self) -> str:
        """Return the problem as one line."""
        return f"/{self.path}: {self.what}: {self.why}"


@dataclass(slots=True)
class Tree:
    """What is to be written: parents before children, the root (``""``) first.

    Attributes
    ----------
    items
        The groups and arrays. Within a group they stand in the order of the file that they came
        from, where that is known.
    name
        What the whole is called: the path in its namespace; "" for a whole namespace.
    noted
        What the format writes in another way than the pool has it; grows while it writes.
    left_out
        What the format has no place for and leaves out unasked, as it always does; grows so, too.

    """

    items: list[Item]
    name: str
    noted: list[Entry] = field(default_factory=list)
    left_out: list[Entry] = field(default_factory=list)

    @property
    def root(self) -> GroupItem:
        """The root group."""
        root = self.items[0]
        assert isinstance(root, GroupItem)  # noqa: S101 - as the class says
        return root

    @property
    def groups(self) -> list[GroupItem]:
        """The groups, the root first."""
        return [item for item in self.items if isinstance(item, GroupItem)]

    @property
    def arrays(self) -> list[ArrayItem]:
        """The arrays and blobs."""
        return [item for item in self.items if isinstance(item, ArrayItem)]

    def note(self, path: str, what: str, why: str) -> None:
        """Say that something is written in another way than the pool has it."""
        self.noted.append(Entry("/" + path, what, why))

    def leave_out(self, path: str, what: str, why: str) -> None:
        """Say that something is not written, which the format is not expected to hold."""
        self.left_out.append(Entry("/" + path, what, why))


Tell = Callable[[str, int], None]
"""Called with an array's path and how many more bytes of its values have been written.

Called with 0 before an array is begun, so that what goes wrong is told of that array."""


@runtime_checkable
class WritableFormat(Format, Protocol):
    """A format that files can be written in, too.

    Attributes
    ----------
    kinds
        What ``--format`` may name: `name` itself, which chooses by the tree's origin, and
        variants, such as ``"netcdf3"``.
    makes_folder
        Whether it writes a folder, not a file.

    """

    kinds: Sequence[str]
    makes_folder: bool

    def problems(self, tree: Tree, kind: str) -> list[Problem]:
        """Return what of the tree a file of this kind cannot hold.

        Raises
        ------
        UnsupportedError
            A library is missing.

        """
        ...

    def write(self, tree: Tree, path: Path, kind: str, tell: Tell) -> str:
        """Write all of the tree, which has no problems, and return the name of what was written.

        Whatever is raised, `save` removes what stands at `path`.

        Parameters
        ----------
        tree
            What to write; what differs is told with `Tree.note`, and with
            `Tree.leave_out` what nobody expects in such a file.
        path
            Where: nothing is there yet, and the folder that it is in is there.
        kind
            One of `kinds`.
        tell
            Called after each piece of values; pieces are bounded (`blocks.regions`).

        """
        ...


@runtime_checkable
class NamedFormat(WritableFormat, Protocol):
    """A format of several kinds of files, whose suffixes say which kind a file is."""

    def misnamed(self, tree: Tree, name: str, kind: str) -> str | None:
        """Say why a file of this name would be taken for another kind; None if it would not be.

        Parameters
        ----------
        tree
            What is to be written; there may be problems with it.
        name
            The file's name.
        kind
            One of `kinds`.

        """
        ...
