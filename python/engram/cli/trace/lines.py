"""Lines of a trace: read from a file or a ring, one by one, however many there are.

`posix/fs/src/trace.rs` tells how they are written, `docs/format.md` how a ring lies.
"""

from __future__ import annotations

import contextlib
import heapq
import re
import stat
import zlib
from typing import TYPE_CHECKING, BinaryIO, NamedTuple

from engram.cli.terminal import plain
from engram.errors import FormatError, NotFoundError

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

FIELDS = {
    **dict.fromkeys(("access", "close", "closedir", "create", "fsync", "open", "opendir"), ()),
    **dict.fromkeys(("readdir", "stat", "truncate", "unlink"), ()),
    **dict.fromkeys(("read", "write"), ("offset", "size")),
    **dict.fromkeys(("nvml_read", "nvml_write"), ("address", "size")),
    # What follows is no part of the paper's format.
    **dict.fromkeys(("getlk", "listxattr", "readlink", "setattr", "setlk", "statfs"), ()),
    **dict.fromkeys(("exchange", "link", "rename"), ("to",)),
    **dict.fromkeys(("getxattr", "removexattr", "setxattr"), ("name",)),
    "fallocate": ("offset", "size"),
    "seek": ("offset",),
    "refused": ("call", "remedy"),
    "lost": ("lines",),
}
"""The operations, and the names of their arguments."""

MOVES = {"read": "read", "write": "written", "nvml_read": "read", "nvml_write": "written"}
"""Operations that move bytes, and which way."""

_LOW = "nvml_"
_NUMBERS = {"offset", "size", "lines"}
_NUMBER = r"(0|[1-9][0-9]*)"
_LINE = re.compile(
    rf"(0|[1-9][0-9]{{0,9}})\.([0-9]{{6}}):([a-z_]+):{_NUMBER}:{_NUMBER}:([^:\n]*)((?::[^:\n]*)*)"
)
_TIME = re.compile(rb"(?=[0-9]{10}\.[0-9]{6}:)")
_ADDRESS = re.compile(r"0x(?:0|[1-9a-f][0-9a-f]{0,15})")
_ESCAPED = re.compile(r"%(3A|0A|25|)")
_SIGNS = {"3A": ":", "0A": "\n", "25": "%"}
_ID_END, _NUMBER_END = 1 << 32, 1 << 64
_MICRO = 1_000_000

_LINE_MAX = 1 << 20
"""What is longer is no line."""

_MAGIC = b"engram ring 1\n\0\0"
_HEADER, _FIRST, _RECORD_HEAD = 4096, 16, 8


class Line(NamedTuple):
    """A line of a trace."""

    at: int
    """When it was done, in µs since 1970."""
    operation: str
    pid: int
    tid: int
    place: str
    """The path from the pool's root on; of operations of the lower level, the pool."""
    arguments: tuple[int | str, ...]

    @property
    def is_low_level(self) -> bool:
        """Whether its place is a pool."""
        return self.operation.startswith(_LOW)

    def named(self) -> dict[str, int | str]:
        """Return the arguments by their names."""
        return dict(zip(FIELDS[self.operation], self.arguments, strict=True))

    @property
    def nbytes(self) -> int:
        """The bytes that it moved."""
        size = self.arguments[1] if self.operation in MOVES else 0
        return size if isinstance(size, int) else 0


class _DamagedError(ValueError):
    """What is wrong with a line."""


def parsed(raw: bytes) -> Line:
    """Read a line, without its end.

    Raises
    ------
    ValueError
        If it is none; the message says what is wrong.

    """
    try:
        text = raw.decode()
    except UnicodeDecodeError:
        message = "it is no text of UTF-8"
        raise _DamagedError(message) from None
    found = _LINE.fullmatch(text)
    if found is None:
        message = "it is no timestamp:operation:pid:tid:path[:argument...]"
        raise _DamagedError(message)
    seconds, micros, operation, pid, tid, place, rest = found.groups()
    names = FIELDS.get(operation)
    if names is None:
        message = f"{operation!r} is no operation"
        raise _DamagedError(message)
    words = rest.split(":")[1:] if rest else []
    if len(words) != len(names):
        message = f"{operation} has {len(names)} arguments, not {len(words)}"
        raise _DamagedError(message)
    path = _unescaped(place)
    if path and path[0] != "/" and not operation.startswith(_LOW):
        message = f"the path {path!r} does not begin with a slash"
        raise _DamagedError(message)
    at = int(seconds) * _MICRO + int(micros)
    arguments = tuple(map(_argument, names, words))
    return Line(at, operation, _below(pid, _ID_END), _below(tid, _ID_END), path, arguments)


def _behind_damage(raw: bytes) -> tuple[bytes, Line] | None:
    """Return the line that stands in a damaged one behind what is left of another.

    A process was killed within its line, and another went on behind it. Nothing within a line looks
    like a time.
    """
    for found in _TIME.finditer(raw, 1):
        with contextlib.suppress(ValueError):
            return raw[found.start() :], parsed(raw[found.start() :])
    return None


def escaped(text: str) -> str:
    """Return a path as a line of a trace has it."""
    return text.replace("%", "%25").replace(":", "%3A").replace("\n", "%0A")


def _argument(name: str, word: str) -> int | str:
    if name in _NUMBERS:
        if not (word.isdigit() and word.isascii()) or (word[0] == "0" and word != "0"):
            message = f"{word!r} is no whole number"
            raise _DamagedError(message)
        return _below(word, _NUMBER_END)
    if name == "address":
        if _ADDRESS.fullmatch(word) is None:
            message = f"{word!r} is no address, such as 0x7f00"
            raise _DamagedError(message)
        return int(word, 16)
    return _unescaped(word)


def _below(word: str, end: int) -> int:
    number = int(word)
    if number >= end:
        message = f"{word} is too large a number"
        raise _DamagedError(message)
    return number


def _unescaped(text: str) -> str:
    if "%" not in text:
        return text

    def sign(found: re.Match[str]) -> str:
        if not found[1]:
            message = f"in {text!r} is a percent sign before neither 3A, 0A nor 25"
            raise _DamagedError(message)
        return _SIGNS[found[1]]

    return _ESCAPED.sub(sign, text)


class Trace:
    """A trace, which is read from its beginning as often as is needed.

    Raises
    ------
    NotFoundError
        If there is no such file.
    FormatError
        If it is no trace, or, while it is read, if a line of it is damaged.

    """

    def __init__(self, path: Path, *, skip_damaged: bool = False) -> None:
        self._path = path
        self._skip_damaged = skip_damaged
        self.skipped = 0
        """So many damaged lines were left out when it was last read."""
        with self._opened() as file:
            self.is_ring = file.read(len(_MAGIC)) == _MAGIC

    def _opened(self) -> BinaryIO:
        try:
            is_file = stat.S_ISREG(self._path.stat().st_mode)
        except (FileNotFoundError, NotADirectoryError):
            message = f"no trace {self._name}: `engram run` or `mount` with --trace FILE writes one"
            raise NotFoundError(message) from None
        if not is_file:
            message = f"{self._name} is no regular file, as a trace is"
            raise FormatError(message)
        return self._path.open("rb")

    @property
    def _name(self) -> str:
        return plain(self._path)

    def lines(self) -> Iterator[Line]:
        """Yield each line: of a file in its order, of a ring by time."""
        for _, line in self.both():
            yield line

    def both(self) -> Iterator[tuple[bytes, Line]]:
        """Yield each line as it stands there, and what it says."""
        self.skipped = 0
        good = False
        with self._opened() as file:
            found = _in_ring(file, self._name) if self.is_ring else _in_file(file)
            for number, raw in found:
                try:
                    line = parsed(raw)
                except ValueError as why:
                    if not self._skip_damaged:
                        raise self._damaged(number, str(why), good=good) from None
                    self.skipped += 1
                    if (behind := _behind_damage(raw)) is None:
                        continue
                    raw, line = behind  # noqa: PLW2901 - what is whole of it
                good = True
                yield raw, line
        if self.skipped and not good:
            message = f"{self._name} is no trace: none of its lines is one of a trace"
            raise FormatError(message)

    def _damaged(self, number: int, why: str, *, good: bool) -> FormatError:
        if not good:
            return FormatError(f"{self._name} is no trace, or its line {number} is damaged: {why}")
        return FormatError(
            f"{self._name}: line {number} is damaged: {why}; --skip-damaged leaves such out"
        )


def _in_file(file: BinaryIO) -> Iterator[tuple[int, bytes]]:
    """Yield the lines of a file with their numbers; the last one once it is finished."""
    number = 0
    while raw := file.readline(_LINE_MAX):
        number += 1
        # An empty one ends what a full disk has left of a line.
        if raw.endswith(b"\n") and len(raw) > 1:
            yield number, raw[:-1]
        elif len(raw) == _LINE_MAX:
            yield number, raw


def _in_ring(file: BinaryIO, name: str) -> Iterator[tuple[int, bytes]]:
    """Yield the lines of a ring by time, as far as its blocks overlap in time."""
    file.seek(0)
    header = file.read(_HEADER)
    size = int.from_bytes(header[24:28], "little")
    blocks = int.from_bytes(header[28:32], "little")
    if size <= _FIRST or blocks == 0:
        message = f"{name} is a damaged ring: its header names {blocks} blocks of {size} bytes"
        raise FormatError(message)
    waiting: list[tuple[bytes, int, bytes]] = []
    given = 0
    for number, place in sorted(_numbers(file, size, blocks)):
        lines = [raw for text in _records(file, size, number, place) for raw in text.split(b"\n")]
        for raw in filter(None, lines):
            given += 1
            heapq.heappush(waiting, (_time_of(raw), given, raw))
        # A thread puts lines into its block for as long as there is room: what is earlier than the
        # first line of the next block is complete.
        first = _time_of(lines[0]) if lines else b""
        while waiting and waiting[0][0] < first:
            _, at, raw = heapq.heappop(waiting)
            yield at, raw
    while waiting:
        _, at, raw = heapq.heappop(waiting)
        yield at, raw


def _time_of(raw: bytes) -> bytes:
    """Return what lines are sorted by: times are alike in length for three hundred years."""
    return raw.partition(b":")[0]


def _numbers(file: BinaryIO, size: int, blocks: int) -> Iterator[tuple[int, int]]:
    """Yield the number of each block that was given, and its place."""
    for place in range(blocks):
        file.seek(_HEADER + place * size)
        head = file.read(12)
        number = int.from_bytes(head[:8], "little")
        right = int.from_bytes(head[8:], "little") == _sum(number, 0, b"")
        if number and (number - 1) % blocks == place and right:
            yield number, place


def _records(file: BinaryIO, size: int, number: int, place: int) -> Iterator[bytes]:
    """Yield the records of a block that are whole; of one that was given again there is none."""
    file.seek(_HEADER + place * size)
    block = file.read(size)
    at = _FIRST
    while at + _RECORD_HEAD <= len(block):
        length = int.from_bytes(block[at : at + 4], "little")
        text = block[at + _RECORD_HEAD : at + _RECORD_HEAD + length]
        told = int.from_bytes(block[at + 4 : at + 8], "little")
        if 0 < length == len(text) and told == _sum(number, at, text):
            yield text
            at += (_RECORD_HEAD + length + 7) // 8 * 8
        else:
            at += 8


def _sum(number: int, at: int, text: bytes) -> int:
    """Return the sum of a text at its place."""
    place = number.to_bytes(8, "little") + at.to_bytes(4, "little")
    return zlib.crc32(text, zlib.crc32(place))
