"""Reading Plot3D: blocks as groups of arrays; a file of one block without a number as its arrays.

Arrays have numpy's order, k before j before i: their values are then as the file has them. Binary
ones are read from where they lie; a text's are read array by array, as float64.
"""

from __future__ import annotations

import contextlib
import functools
import itertools
from typing import TYPE_CHECKING, Any, BinaryIO

import numpy as np

from engram.errors import FormatError
from engram.formats.blocks import index
from engram.formats.npy import Header, Values
from engram.formats.plot3d import layout as layouts
from engram.formats.plot3d.layout import ASCII, FORTRAN, IBLANK, INT_BYTES, STREAM, Layout, Order
from engram.formats.plot3d.numbers import TEXT, Numbers
from engram.formats.source import HEAD_BYTES, ArrayNode, GroupNode, Source

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence
    from pathlib import Path

    from engram.formats.blocks import Region
    from engram.formats.source import Attributes, Origin

Array = np.ndarray[Any, Any]

_ORDERS: tuple[Order, ...] = ("<", ">")
_SHOWN = 3


class _Binary:
    """A binary file: its header, and its markers."""

    def __init__(self, file: BinaryIO, nbytes: int) -> None:
        self._file = file
        self.nbytes = nbytes

    def possible(self, encoding: str) -> Iterator[Layout]:
        """Yield the layouts that the header could be of."""
        markers = (4, 8) if encoding == FORTRAN else (0,)
        for order, marker in itertools.product(_ORDERS, markers):
            ints = functools.partial(self._ints, order, marker)
            yield from layouts.possible(encoding, order, marker, ints)

    def fits(self, layout: Layout) -> bool:
        """Whether the file is as long, and has the markers; or, without these, a number there."""
        if layout.total() != self.nbytes:
            return False
        if not layout.marker:
            return self._is_real(layout)
        place = 0
        for length in layout.lengths():
            for at in (place, place + layout.marker + length):
                if self._int(layout.order, layout.marker, at) != length:
                    return False
            place += length + 2 * layout.marker
        return True

    def _is_real(self, layout: Layout) -> bool:
        """Whether the first number behind the header can be one, and is no integer of a header."""
        self._file.seek(layouts.header_bytes(layout))
        return layouts.begins_with_a_real(layout, self._file.read(layout.real))

    def _ints(self, order: str, marker: int, record: int, count: int) -> Sequence[int] | None:
        """Read a record of the header, which the number of blocks is before in the second."""
        place = record * (INT_BYTES + 2 * marker)
        nbytes = INT_BYTES * count
        if place + nbytes + 2 * marker > self.nbytes:
            return None
        if marker and self._int(order, marker, place) != nbytes:
            return None
        self._file.seek(place + marker)
        found: list[int] = np.frombuffer(self._file.read(nbytes), f"{order}i4").tolist()
        return found

    def _int(self, order: str, nbytes: int, place: int) -> int:
        """Read an integer."""
        self._file.seek(place)
        return int(np.frombuffer(self._file.read(nbytes), f"{order}i{nbytes}")[0])


class Plot3DSource(Source):
    """A Plot3D file, block by block."""

    def __init__(self, path: Path, file: BinaryIO) -> None:
        """Find out how the file lies."""
        super().__init__(path, "PLOT3D")
        self._file = file
        self._numbers: Numbers | None = None
        with self._telling():
            self._layout = self._found(file)
        layout = self._layout
        names = [f"block{n}" for n in range(1, len(layout.blocks) + 1)]
        facts: Origin = {
            "format": self.format,
            "source": path.name,
            "plot3d": {"file": layout.file, "encoding": layout.encoding, "marker": layout.marker},
            "order": names if layout.is_multi else layout.names(layout.blocks[0]),
        }
        root: Attributes = {}
        self.nodes.append(GroupNode("", lambda: (root, facts)))
        place = self._start()
        for name, block in zip(names, layout.blocks, strict=True):
            attrs: Attributes = root
            if layout.is_multi:
                attrs = {}
                order = {"format": self.format, "order": layout.names(block)}
                self.nodes.append(GroupNode(name, functools.partial(_said, attrs, order)))
            place = self._add(name if layout.is_multi else "", block, attrs, place)

    def close(self) -> None:
        """Close the file."""
        self._file.close()

    def _found(self, file: BinaryIO) -> Layout:
        """Return the layout of the file."""
        head = file.read(HEAD_BYTES)
        if TEXT.fullmatch(head) is not None:
            numbers = self._numbers = Numbers(file)
            tried = list(layouts.possible(ASCII, "<", 0, numbers.integers))
            tried = [each for each in tried if _has_lines(each, head)]
            fitting = [each for each in tried if each.total() == numbers.count]
            return self._chosen(tried, fitting, numbers.count, "numbers")
        nbytes = file.seek(0, 2)
        binary = _Binary(file, nbytes)
        tried = list(binary.possible(FORTRAN))
        fitting = [each for each in tried if binary.fits(each)]
        if not tried:
            tried = list(binary.possible(STREAM))
            fitting = [each for each in tried if binary.fits(each)]
        return self._chosen(tried, fitting, nbytes, "bytes")

    def _chosen(self, tried: list[Layout], fitting: list[Layout], length: int, unit: str) -> Layout:
        """Return the one layout that the file is of.

        Raises
        ------
        ValueError
            It is of none, or of several.

        """
        wanted = layouts.kind_of(self.path.name)
        liked = [each for each in fitting if each.file == wanted]
        if wanted is None or (fitting and fitting[0].marker):
            liked = liked or fitting
        if len(liked) == 1:
            return liked[0]
        if liked:
            several = "; or a ".join(str(each) for each in liked[:_SHOWN])
            advice = (
                "" if wanted else "name a grid .xyz, a solution .q, and a function file .f, or "
            )
            message = (
                f"could be a {several}, and nothing in the file tells which: {advice}write it "
                "with Fortran's record markers"
            )
            raise ValueError(message)
        if not tried:
            message = "does not begin as a Plot3D file does, with the lengths of its blocks"
            raise ValueError(message)
        near = [each for each in tried if each.file == wanted] or tried
        near = sorted(near, key=lambda each: abs(each.total() - length))[:_SHOWN]
        sizes = "; ".join(f"{each.total()} as a {each}" for each in near)
        message = (
            f"has {length} {unit}, and with such a header would have {sizes}. It is truncated or "
            "damaged, or no Plot3D file: get it again, or name it as what it is (a grid .xyz, a "
            "solution .q, a function file .f)"
        )
        raise ValueError(message)

    def _start(self) -> int:
        """Return where the first block begins: its marker, or number."""
        lengths = self._layout.lengths()
        records = 2 if self._layout.is_multi else 1
        return sum(next(lengths) + 2 * self._layout.marker for _ in range(records))

    def _add(self, name: str, block: layouts.Block, attrs: Attributes, place: int) -> int:
        """Add a block's arrays, and its numbers to its attributes; return where the next begins."""
        layout = self._layout
        place += layout.marker
        if layout.file == layouts.SOLUTION:
            with self._telling():
                values = self._four(place)
            attrs.update(zip(layouts.CONDITIONS, values, strict=True))
            place += len(values) * layout.size("mach") + 2 * layout.marker
        dims = ("k", "j", "i")[-len(block.shape) :]
        for array in layout.names(block):
            dtype = np.dtype("i4" if array == IBLANK else f"f{layout.real}")
            dtype = dtype.newbyteorder(layout.order)
            path = f"{name}/{array}".strip("/")
            describe = functools.partial(_said, {}, {"format": self.format})
            chunks: tuple[int, ...] | None = None
            if self._numbers is None:
                there = Values(self._file, Header(dtype, block.shape, fortran=False), place)
                ways: tuple[Any, ...] = (there.read, there.plain)
            else:
                chunks, ways = block.shape, (self._read_text(path, block, dtype, place),)
            self.nodes.append(ArrayNode(path, block.shape, dtype, dims, chunks, describe, *ways))
            place += block.points * layout.size(array)
        return place + layout.marker

    def _four(self, place: int) -> list[Any]:
        """Return the numbers before a solution."""
        count = len(layouts.CONDITIONS)
        if self._numbers is not None:
            return list(self._numbers.read(place, count))
        dtype = np.dtype(f"{self._layout.order}f{self._layout.real}")
        self._file.seek(place)
        found = np.frombuffer(self._file.read(count * dtype.itemsize), dtype)
        return list(found.astype(dtype.newbyteorder("=")))

    def _read_text(self, path: str, block: layouts.Block, dtype: np.dtype[Any], place: int) -> Any:
        """Return the reader of an array in a text."""
        numbers = self._numbers
        assert numbers is not None  # noqa: S101 - it is one

        def read(out: Array, region: Region) -> None:
            with self._telling(path):
                found = numbers.read(place, block.points)
                if dtype.kind == "i" and not np.array_equal(found.astype(dtype), found):
                    message = "has numbers that are no 32-bit integers"
                    raise ValueError(message)
            out[...] = found.reshape(block.shape)[index(region)]

        return read

    @contextlib.contextmanager
    def _telling(self, path: str = "") -> Iterator[None]:
        """Turn what is wrong with the file into an error that names it."""
        try:
            yield
        except (ValueError, OverflowError) as error:
            where = f"{self.path}: /{path}" if path else f"{self.path}"
            message = f"{where}: {error}"
            raise FormatError(message) from error


def _has_lines(layout: Layout, head: bytes) -> bool:
    """Whether a text's header ends with a line, and the number of blocks has one, too."""
    lines = head.replace(b",", b" ").split(b"\n")[:-1]
    ends = list(itertools.accumulate(len(line.split()) for line in lines))
    if len(lines) < 2:  # noqa: PLR2004 - all of it in one line says nothing
        return True
    if layout.is_multi != (1 in ends):
        return False
    count = sum(map(len, layout.header()))
    return count > ends[-1] or count in ends


def _said(attrs: Attributes, facts: Origin) -> tuple[Attributes, Origin]:
    """Return an attribute's words as a node's description."""
    return attrs, facts


def open_plot3d(path: Path) -> Source:
    """Open a Plot3D file and find out how it lies."""
    file = path.open("rb")
    try:
        return Plot3DSource(path, file)
    except BaseException:
        file.close()
        raise
