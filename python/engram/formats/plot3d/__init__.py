"""Plot3D: what can be one of its files; they have no signature."""

from __future__ import annotations

import itertools
from typing import TYPE_CHECKING, Literal

from engram.formats.plot3d.numbers import TEXT

if TYPE_CHECKING:
    from pathlib import Path

    from engram.formats.source import Source
    from engram.formats.target import Problem, Tell, Tree

_WORDS = ("plot3d", "plot3d-grid", "plot3d-solution", "plot3d-function")
_ENCODINGS = ("", "-fortran", "-stream", "-ascii")
_HEADER_INTS = (1, 2, 3, 4)
_LARGEST = 1 << 24
_ORDERS: tuple[Literal["little", "big"], ...] = ("little", "big")


class Plot3DFormat:
    """Plot3D's grids, solutions and functions."""

    name = "plot3d"
    rank = 90
    suffixes = (".p3d", ".xyz", ".x", ".g", ".grd", ".q", ".f", ".fun")
    has_own_suffixes = False
    kinds = tuple(word + how for word, how in itertools.product(_WORDS, _ENCODINGS))
    makes_folder = False

    def matches(self, path: Path, head: bytes) -> bool:
        """Whether Fortran's records begin there, or numbers that a suffix of Plot3D's announces."""
        if _is_record(head):
            return True
        if not path.name.lower().endswith(self.suffixes) or not head:
            return False
        return TEXT.fullmatch(head) is not None or _is_stream(head)

    def open(self, path: Path) -> Source:
        """Open the file and find out how it lies."""
        from engram.formats.plot3d import read  # noqa: PLC0415 - for such files alone

        return read.open_plot3d(path)

    def misnamed(self, tree: Tree, name: str, kind: str) -> str | None:
        """Say why the suffix of a name is that of another kind of file."""
        from engram.formats.plot3d import write  # noqa: PLC0415 - as above

        return write.misnamed(tree, name, kind)

    def problems(self, tree: Tree, kind: str) -> list[Problem]:
        """Return what a file of this kind has no place for, and what it lacks."""
        from engram.formats.plot3d import write  # noqa: PLC0415 - as above

        return write.planned(tree, kind).problems

    def write(self, tree: Tree, path: Path, kind: str, tell: Tell) -> str:
        """Write the tree's blocks."""
        from engram.formats.plot3d import write  # noqa: PLC0415 - as above

        return write.write_tree(tree, path, kind, tell)


def _is_record(head: bytes) -> bool:
    """Whether a header of Plot3D's stands there between markers, of either size and order."""
    for marker, order in itertools.product((4, 8), _ORDERS):
        length = int.from_bytes(head[:marker], order)
        behind = head[marker + length :][:marker] if length < len(head) else b""
        if length in {4 * n for n in _HEADER_INTS} and behind == head[:marker]:
            numbers = head[marker : marker + length]
            return all(0 < n <= _LARGEST for n in _ints(numbers, order))
    return False


def _is_stream(head: bytes) -> bool:
    """Whether a file begins with lengths, in either order: with two at least."""
    few = head[:8]
    return len(few) == 8 and any(  # noqa: PLR2004 - two integers
        all(0 < n <= _LARGEST for n in _ints(few, order)) for order in _ORDERS
    )


def _ints(content: bytes, order: Literal["little", "big"]) -> list[int]:
    """Return the integers that lie there."""
    return [int.from_bytes(content[at : at + 4], order) for at in range(0, len(content), 4)]


FORMAT = Plot3DFormat()
