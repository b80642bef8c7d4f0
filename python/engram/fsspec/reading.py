"""A file that is open for reading: the bytes of one blob, as they were when it was opened.

The blob is looked up once, and its memory is held from then on. So a reader sees the file whole,
as it was, whatever is put in its place meanwhile. What is read is copied once, into what the reader
gives or gets; `read_buffer`, which pyarrow asks for, and `getbuffer` copy nothing.
"""

from __future__ import annotations

import io
from typing import TYPE_CHECKING, Any

from engram.fsspec.entry import told_of
from engram.fsspec.errors import Told

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

    from engram import _engram
    from engram.fsspec.entry import Entry
    from engram.fsspec.place import Place

_BUFFERED = 1 << 16
"""Bytes that small reads are served from, so that they do not come to Python each."""


class _Memory(io.RawIOBase):
    """Bytes in memory, as a file."""

    mode = "rb"

    def __init__(self, content: NDArray[np.uint8], name: str) -> None:
        self.content = content.data
        self.name = name
        self._at = 0

    def readable(self) -> bool:
        return True

    def seekable(self) -> bool:
        return True

    def readinto(self, into: Any) -> int:
        target = memoryview(into).cast("B")
        count = max(0, min(len(target), len(self.content) - self._at))
        target[:count] = self.content[self._at : self._at + count]
        self._at += count
        return count

    def readall(self) -> bytes:
        found = bytes(self.content[self._at :])
        self._at = max(self._at, len(self.content))
        return found

    def seek(self, offset: int, whence: int = io.SEEK_SET) -> int:
        begin = {io.SEEK_SET: 0, io.SEEK_CUR: self._at, io.SEEK_END: len(self.content)}[whence]
        if begin + offset < 0:
            message = f"seek to {begin + offset}: a file begins at 0"
            raise ValueError(message)
        self._at = begin + offset
        return self._at

    def close(self) -> None:
        super().close()
        self.content = memoryview(b"")  # so the pool may use its memory again

    def tell(self) -> int:
        return self._at


class ReadFile(io.BufferedReader):
    """A file of a pool, open for reading."""

    blocksize = _BUFFERED
    autocommit = True

    def __init__(
        self, fs: Any, place: Place, content: NDArray[np.uint8], found: _engram._Found
    ) -> None:
        self._memory = _Memory(content, place.path)
        super().__init__(self._memory, _BUFFERED)
        self.fs = fs
        self.path = place.path
        self.size = len(content)
        self._place = place
        self._found = found

    @property
    def closed(self) -> bool:
        """Whether it was closed: caches of fsspec set it, after the close."""
        return super().closed

    @closed.setter
    def closed(self, is_closed: bool) -> None:
        pass

    @property
    def full_name(self) -> str:
        """The URL of the file."""
        return str(self.fs.unstrip_protocol(self.path))

    def info(self) -> Entry:
        """Tell of the file that was opened: of one that was replaced since, FileMissingError."""
        with Told(self.path):
            return told_of(self._place, self._found)

    @property
    def details(self) -> Entry:
        """What `info` gives."""
        return self.info()

    def getbuffer(self) -> memoryview:
        """Give all of it, read-only, without a copy."""
        return self._memory.content

    def read_buffer(self, size: int | None = -1) -> memoryview:
        """Read on without a copy: pyarrow asks for it."""
        at = self.tell()
        size = self.size if size is None or size < 0 else size
        found = self._memory.content[at : at + size]
        self.seek(at + len(found))
        return found

    def readuntil(self, char: bytes = b"\n", blocks: int | None = None) -> bytes:
        """Read up to a byte or several, and these; to the end where there are none."""
        if char == b"\n":
            return self.readline()
        found = b""
        while part := self.read(blocks or self.blocksize):
            found += part
            end = found.find(char, max(0, len(found) - len(part) - len(char)))
            if end >= 0:
                end += len(char)
                self.seek(end - len(found), io.SEEK_CUR)
                return found[:end]
        return found

    def _fetch_range(self, start: int, end: int) -> bytes:
        """Give a part: caches of fsspec ask for it."""
        return bytes(self._memory.content[start:end])

    def __reduce__(self) -> tuple[Any, ...]:
        return _again, (self.fs, self.path, self.tell())

    def __repr__(self) -> str:
        return f"<engram.fsspec.ReadFile {self.full_name!r} ({self.size} bytes)>"


def _again(fs: Any, path: str, at: int) -> ReadFile:
    """Open a file that was pickled, in another process."""
    found: ReadFile = fs.open(path, "rb")
    found.seek(at)
    return found
