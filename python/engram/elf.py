"""What a program's file says of how it is started: ELF, as the kernel and the linker read it.

Any bytes may stand in such a file. What the kernel would not start is a `FormatError`; what only
others read (sections, notes, the linker's table) counts as missing where it is damaged.
"""

import contextlib
import os
import struct
from collections.abc import Iterator
from typing import BinaryIO, NamedTuple

from engram.errors import FormatError

__all__ = ["MAGIC", "Elf", "read"]

MAGIC = b"\x7fELF"

_MOST = 16 << 20
"""No part that is read is longer than this."""
_PATH_MOST = 4096
_EXECUTABLE, _SHARED = 2, 3
_LOAD, _DYNAMIC, _INTERPRETER, _NOTE = 1, 2, 3, 4
_NEEDED, _STRINGS, _SONAME = 1, 5, 14
_NOTE_STEPS = {8: 8}
"""Notes are padded to four bytes, or to this by the alignment of their segment."""
_GO = {"Go", ".note.go.buildid"}
_WIDE = 2
"""The class of files with 64 bits."""
_ORDERS = ("<", ">")


class Elf(NamedTuple):
    """What is read of a program or library."""

    bits: int
    """32 or 64."""
    order: str
    """The order of bytes: "<" or ">"."""
    machine: int
    """The processor's number."""
    interpreter: str
    """The dynamic linker that the kernel starts it by; "" if none does."""
    needed: tuple[str, ...]
    """The libraries that it is linked with."""
    soname: str
    """The name of a library; "" if it says none."""
    notes: frozenset[str]
    """The owners of its notes, and the names of sections that are notes."""

    @property
    def is_go(self) -> bool:
        """Whether Go's tools have linked it."""
        return not _GO.isdisjoint(self.notes)


class _Segment(NamedTuple):
    kind: int
    offset: int
    address: int
    size: int
    alignment: int


class _Image:
    """The bytes of a file, each part within its bounds."""

    def __init__(self, file: BinaryIO) -> None:
        self._file = file
        self._size = file.seek(0, os.SEEK_END)
        start = self.part(0, 16)
        if start[:4] != MAGIC or start[4] not in {1, _WIDE} or start[5] not in {1, 2}:
            raise FormatError("it is no ELF file")
        self.is_wide = start[4] == _WIDE
        self.order = _ORDERS[start[5] - 1]

    def part(self, offset: int, size: int) -> bytes:
        """Give some bytes, or refuse where they are not all there."""
        if size > _MOST or offset + size > self._size:
            raise FormatError(f"{size} bytes from {offset} on are not in the file: it is cut off")
        self._file.seek(offset)
        part = self._file.read(size)
        if len(part) != size:
            raise FormatError("it has become shorter while it was read")
        return part

    def numbers(self, narrow: str, wide: str, offset: int) -> tuple[int, ...]:
        """Give the numbers of a header: its form with 32 bits, or with 64."""
        return next(self.rows(narrow, wide, offset, 1))

    def rows(self, narrow: str, wide: str, offset: int, count: int) -> Iterator[tuple[int, ...]]:
        """Give the rows of a table."""
        form = struct.Struct(self.order + (wide if self.is_wide else narrow))
        yield from form.iter_unpack(self.part(offset, form.size * count))

    def row_size(self, narrow: str, wide: str) -> int:
        """Give how long a row of a table is."""
        return struct.calcsize(self.order + (wide if self.is_wide else narrow))


_HEADER = ("HHIIIIIHHHHHH", "HHIQQQIHHHHHH")
_SEGMENT = ("8I", "IIQQQQQQ")
_SECTION = ("10I", "IIQQQQIIQQ")
_ENTRY = ("iI", "qQ")


def read(file: BinaryIO) -> Elf:
    """Read an ELF file.

    Raises
    ------
    FormatError
        If it is none, or one that the kernel would not start and the linker would not load.

    """
    image = _Image(file)
    kind, machine, _, _, segments_at, sections_at, _, _, *sizes = image.numbers(*_HEADER, 16)
    segment_size, segment_count, section_size, section_count, names_at = sizes
    if kind not in {_EXECUTABLE, _SHARED}:
        raise FormatError("it is neither a program nor a library, but an object file or a core")
    if segment_size != image.row_size(*_SEGMENT) or segment_count == 0:
        raise FormatError("it has no table of segments")
    segments = [
        _Segment(row[0], row[2], row[3], row[5], row[7])
        if image.is_wide
        else _Segment(row[0], row[1], row[2], row[4], row[7])
        for row in image.rows(*_SEGMENT, segments_at, segment_count)
    ]
    notes: set[str] = set()
    for segment in segments:
        if segment.kind == _NOTE:
            with contextlib.suppress(FormatError):
                notes.update(_owners(image, segment))
    if section_size == image.row_size(*_SECTION):
        with contextlib.suppress(FormatError):
            notes.update(_sections(image, sections_at, section_count, names_at))
    needed, soname = _linked(image, segments)
    return Elf(
        64 if image.is_wide else 32,
        image.order,
        machine,
        _interpreter(image, segments),
        needed,
        soname,
        frozenset(notes),
    )


def _interpreter(image: _Image, segments: list[_Segment]) -> str:
    """Give the path of the dynamic linker."""
    for segment in segments:
        if segment.kind == _INTERPRETER:
            path = image.part(segment.offset, min(segment.size, _PATH_MOST + 1))
            if segment.size > _PATH_MOST or not path.endswith(b"\0") or path == b"\0":
                raise FormatError("the path of its dynamic linker is none")
            return os.fsdecode(path.partition(b"\0")[0])
    return ""


def _owners(image: _Image, segment: _Segment) -> Iterator[str]:
    """Give the owners of the notes in a segment."""
    data = image.part(segment.offset, segment.size)
    step = _NOTE_STEPS.get(segment.alignment, 4)
    place = 0
    while place + 12 <= len(data):
        name_size, value_size, _ = struct.unpack_from(image.order + "III", data, place)
        value = _up(place + 12 + name_size, step)
        yield os.fsdecode(data[place + 12 : place + 12 + name_size].rstrip(b"\0"))
        place = _up(value + value_size, step)


def _up(place: int, step: int) -> int:
    return (place + step - 1) // step * step


def _sections(image: _Image, at: int, count: int, names_at: int) -> Iterator[str]:
    """Give the names of those sections that are notes."""
    rows = list(image.rows(*_SECTION, at, count))
    if names_at >= len(rows):
        return
    names = image.part(rows[names_at][4], rows[names_at][5])
    for row in rows:
        name = _text(names, row[0])
        if name.startswith(".note"):
            yield name


def _linked(image: _Image, segments: list[_Segment]) -> tuple[tuple[str, ...], str]:
    """Give the libraries that a file is linked with, and its own name as one."""
    found: tuple[tuple[str, ...], str] = ((), "")
    for segment in segments:
        if segment.kind == _DYNAMIC:
            with contextlib.suppress(FormatError):
                count = segment.size // image.row_size(*_ENTRY)
                rows = list(image.rows(*_ENTRY, segment.offset, count))
                ends = (place for place, row in enumerate(rows) if row[0] == 0)
                rows = rows[: next(ends, len(rows))]
                strings = _strings(image, segments, rows)
                needed = tuple(_text(strings, row[1]) for row in rows if row[0] == _NEEDED)
                own = [_text(strings, row[1]) for row in rows if row[0] == _SONAME]
                found = needed, own[0] if own else ""
    return found


def _strings(image: _Image, segments: list[_Segment], rows: list[tuple[int, ...]]) -> bytes:
    """Give the names of the dynamic linker: all from where they begin to the segment's end."""
    addresses = [row[1] for row in rows if row[0] == _STRINGS]
    for address in addresses:
        for segment in segments:
            within = address - segment.address
            if segment.kind == _LOAD and 0 <= within < segment.size:
                rest = segment.size - within
                return image.part(segment.offset + within, min(rest, _MOST))
    return b""


def _text(strings: bytes, place: int) -> str:
    """Give the text that begins at a place; "" if none does."""
    end = strings.find(b"\0", place) if place < len(strings) else -1
    return os.fsdecode(strings[place:end]) if end > place else ""
