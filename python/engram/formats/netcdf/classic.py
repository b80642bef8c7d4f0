"""The header of a classic netCDF file, read to learn how long the file must be.

The netCDF library reads zeros where a classic file has been cut off, and says nothing. So the
header is read here as well (CDF-1, CDF-2 and CDF-5, after the format's specification), and the
end of the last value compared with the file's size.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from engram.errors import FormatError

if TYPE_CHECKING:
    from pathlib import Path
    from typing import BinaryIO

MAGIC = b"CDF"
VERSIONS = (1, 2, 5)

DIMENSION, VARIABLE, ATTRIBUTE = 10, 11, 12
_TYPE_BYTES = {1: 1, 2: 1, 3: 2, 4: 4, 5: 4, 6: 8, 7: 1, 8: 2, 9: 4, 10: 8, 11: 8}
_CHAR = 2
_WIDE = 5
_WIDE_OFFSETS = 2


@dataclass(frozen=True, slots=True)
class _Variable:
    """Where a variable's values lie."""

    name: str
    nuls: dict[str, int]
    begin: int
    nbytes: int  # of one record, or of all of it
    record: bool


class _Header:
    """The header's fields, one after the other."""

    def __init__(self, file: BinaryIO, nbytes: int, path: Path) -> None:
        self._file = file
        self._nbytes = nbytes
        self._path = path
        self.version = self.take(4)[3]
        self.count_bytes = 8 if self.version == _WIDE else 4
        self.offset_bytes = 8 if self.version >= _WIDE_OFFSETS else 4

    def fail(self, what: str) -> FormatError:
        """Return the error to raise."""
        message = (
            f"{self._path}: {what}. The file is truncated or damaged: get it again, and compare "
            "its size with its source's"
        )
        return FormatError(message)

    def take(self, nbytes: int) -> bytes:
        """Read so many bytes."""
        if nbytes > self._nbytes - self._file.tell():
            raise self.fail(f"its header ends beyond the file's {self._nbytes} bytes")
        return self._file.read(nbytes)

    def number(self, nbytes: int) -> int:
        """Read a big-endian number."""
        return int.from_bytes(self.take(nbytes), "big")

    def count(self) -> int:
        """Read a number of elements."""
        return self.number(self.count_bytes)

    def skip(self, nbytes: int) -> None:
        """Pass over so many bytes and the padding after them."""
        padded = nbytes + -nbytes % 4
        if padded > self._nbytes - self._file.tell():
            raise self.fail(f"its header ends beyond the file's {self._nbytes} bytes")
        self._file.seek(padded, 1)

    def list_of(self, tag: int) -> int:
        """Read the beginning of a list, and return its length."""
        found, length = self.number(4), self.count()
        if found not in (0, tag) or (found == 0 and length != 0):
            raise self.fail(f"its header has the tag {found} where {tag} should stand")
        return length

    def element_bytes(self) -> int:
        """Read a type, and return the bytes of one element."""
        kind = self.number(4)
        if kind not in _TYPE_BYTES:
            raise self.fail(f"its header names the type {kind}, which does not exist")
        return _TYPE_BYTES[kind]

    def name(self) -> str:
        """Read a name."""
        return self.padded(self.count()).decode("utf-8", "replace")

    def padded(self, nbytes: int) -> bytes:
        """Read so many bytes, and pass over the padding after them."""
        return self.take(nbytes + -nbytes % 4)[:nbytes]

    def attributes(self) -> dict[str, int]:
        """Pass over a list of attributes; return how many NULs end each text that has some."""
        nuls = {}
        for _ in range(self.list_of(ATTRIBUTE)):
            name = self.name()
            kind = self.number(4)
            if kind not in _TYPE_BYTES:
                raise self.fail(f"its header names the type {kind}, which does not exist")
            nbytes = _TYPE_BYTES[kind] * self.count()
            if kind != _CHAR or not nbytes:
                self.skip(nbytes)
                continue
            raw = self.padded(nbytes)
            if raw.endswith(b"\0"):
                nuls[name] = nbytes - len(raw.rstrip(b"\0"))
        return nuls

    def variable(self, lengths: list[int]) -> _Variable:
        """Read a variable's entry."""
        name = self.name()
        dims = [self.count() for _ in range(self.count())]
        if any(d >= len(lengths) for d in dims):
            raise self.fail(f"its header names a dimension {max(dims)} of {len(lengths)}")
        nuls = self.attributes()
        nbytes = self.element_bytes()
        self.count()  # the stated size; it is capped, so it is computed instead
        begin = self.number(self.offset_bytes)
        record = bool(dims) and lengths[dims[0]] == 0
        for dim in dims[1:] if record else dims:
            nbytes *= lengths[dim]
        return _Variable(name, nuls, begin, nbytes, record)


def check_length(path: Path) -> dict[str, dict[str, int]]:
    """Compare a classic file's size with what its header needs.

    Returns
    -------
    How many NULs, which netCDF4 does not show, end the text of each attribute that has some: by
    variable, `""` for the file, and by attribute.

    Raises
    ------
    FormatError
        The header is damaged, or the file shorter than its values.

    """
    with path.open("rb") as file:
        nbytes = file.seek(0, 2)
        file.seek(0)
        header = _Header(file, nbytes, path)
        records = header.count()
        streaming = records == (1 << 8 * header.count_bytes) - 1
        lengths = []
        for _ in range(header.list_of(DIMENSION)):
            header.skip(header.count())
            lengths.append(header.count())
        nuls = {"": header.attributes()}
        variables = [header.variable(lengths) for _ in range(header.list_of(VARIABLE))]
    end = max((v.begin + v.nbytes for v in variables if not v.record and v.nbytes), default=0)
    recorded = [v for v in variables if v.record]
    if recorded and records and not streaming:
        padded = sum(v.nbytes + -v.nbytes % 4 for v in recorded)
        stride = recorded[0].nbytes if len(recorded) == 1 else padded
        last = max(v.begin + v.nbytes for v in recorded)
        end = max(end, last + (records - 1) * stride)
    if end > nbytes:
        raise header.fail(f"its header needs {end} bytes, and the file has {nbytes}")
    return {**nuls, **{v.name: v.nuls for v in variables}}
