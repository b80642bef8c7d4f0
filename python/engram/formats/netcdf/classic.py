"""The header of a classic netCDF file (CDF-1, CDF-2 and CDF-5, after the format's specification).

It is read here, not by netCDF's library: for a small file that takes longer to open it than all of
its values take to read, and where a file has been cut off it reads zeros and says nothing. So the
end of the last value is compared with the file's size before anything is read. All numbers of the
header are bounded by that size, or refused.
"""

from __future__ import annotations

import struct
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np

from engram.errors import FormatError

if TYPE_CHECKING:
    from pathlib import Path

MAGIC = b"CDF"
VERSIONS = {1: "NETCDF3_CLASSIC", 2: "NETCDF3_64BIT_OFFSET", 5: "NETCDF3_64BIT_DATA"}

DIMENSION, VARIABLE, ATTRIBUTE = 10, 11, 12
_DTYPES = {
    1: ">i1", 2: "S1", 3: ">i2", 4: ">i4", 5: ">f4", 6: ">f8",
    7: ">u1", 8: ">u2", 9: ">u4", 10: ">i8", 11: ">u8",
}  # fmt: skip
_TYPES = {code: np.dtype(name) for code, name in _DTYPES.items()}
_WIDE = 5
_WIDE_OFFSETS = 2
_FIRST_BYTES = 64 << 10
_TAG = struct.Struct(">I")


class _Short(Exception):  # noqa: N818 - an answer within this module
    """More of the file is needed."""


@dataclass(frozen=True, slots=True)
class Variable:
    """A variable, and where its values lie.

    Attributes
    ----------
    name
        Its name's bytes.
    dims
        Its dimensions, as places among the file's.
    attributes
        Its attributes: text as bytes, numbers as arrays of the file's byte order.
    dtype
        The dtype of its values in the file.
    begin
        Where they begin.
    nbytes
        Bytes of all of them, or of one record.
    is_record
        Whether its first dimension is the one without a limit.

    """

    name: bytes
    dims: tuple[int, ...]
    attributes: dict[bytes, Any]
    dtype: np.dtype[Any]
    begin: int
    nbytes: int
    is_record: bool


@dataclass(frozen=True, slots=True)
class Header:
    """What the header says.

    Attributes
    ----------
    model
        Which of the classic formats it is, in netCDF4's words.
    records
        The length of the dimension without a limit.
    stride
        Bytes from one record to the next.
    dimensions
        Names and lengths; that without a limit has the length 0.
    attributes
        The file's attributes, as `Variable.attributes`.
    variables
        The variables, in the file's order.

    """

    model: str
    records: int
    stride: int
    dimensions: list[tuple[bytes, int]]
    attributes: dict[bytes, Any]
    variables: list[Variable]


class _Reader:
    """The header's fields, one after the other."""

    def __init__(self, data: bytes, nbytes: int, path: Path) -> None:
        self._data = data
        self._nbytes = nbytes
        self._path = path
        self._at = 4
        self.version = data[3]
        self._count = struct.Struct(">Q" if self.version == _WIDE else ">I")
        self._offset = struct.Struct(">Q" if self.version >= _WIDE_OFFSETS else ">I")
        self.streaming = (1 << 8 * self._count.size) - 1

    def fail(self, what: str) -> FormatError:
        """Return the error to raise."""
        message = (
            f"{self._path}: {what}. The file is truncated or damaged: get it again, and compare "
            "its size with its source's"
        )
        return FormatError(message)

    def _pass(self, nbytes: int) -> int:
        """Go on by so many bytes, and return where they begin."""
        at, self._at = self._at, self._at + nbytes
        if self._at > len(self._data):
            if self._at > self._nbytes:
                raise self.fail(f"its header ends beyond the file's {self._nbytes} bytes")
            raise _Short
        return at

    def tag(self) -> int:
        """Read a number of 4 bytes."""
        found: int = _TAG.unpack_from(self._data, self._pass(4))[0]
        return found

    def count(self) -> int:
        """Read a number of elements."""
        found: int = self._count.unpack_from(self._data, self._pass(self._count.size))[0]
        return found

    def offset(self) -> int:
        """Read a place in the file."""
        found: int = self._offset.unpack_from(self._data, self._pass(self._offset.size))[0]
        return found

    def padded(self, nbytes: int) -> bytes:
        """Read so many bytes, and pass over the padding after them."""
        at = self._pass(nbytes + -nbytes % 4)
        return self._data[at : at + nbytes]

    def name(self) -> bytes:
        """Read a name: up to a NUL, as all readers do; old writers padded names with them."""
        return self.padded(self.count()).partition(b"\0")[0]

    def list_of(self, tag: int) -> range:
        """Read the beginning of a list."""
        found, length = self.tag(), self.count()
        if found not in {0, tag} or (found == 0 and length != 0):
            raise self.fail(f"its header has the tag {found} where {tag} should stand")
        return range(length)

    def dtype(self) -> np.dtype[Any]:
        """Read a type."""
        kind = self.tag()
        if kind not in _TYPES:
            raise self.fail(f"its header names the type {kind}, which does not exist")
        return _TYPES[kind]

    def attributes(self) -> dict[bytes, Any]:
        """Read a list of attributes."""
        found: dict[bytes, Any] = {}
        for _ in self.list_of(ATTRIBUTE):
            name, dtype = self.name(), self.dtype()
            content = self.padded(dtype.itemsize * self.count())
            found[name] = content if dtype.kind == "S" else np.frombuffer(content, dtype)
        return found

    def variable(self, dimensions: list[tuple[bytes, int]]) -> Variable:
        """Read a variable's entry."""
        name = self.name()
        dims = tuple([self.count() for _ in range(self.count())])
        if any(d >= len(dimensions) for d in dims):
            raise self.fail(f"its header names a dimension {max(dims)} of {len(dimensions)}")
        attributes = self.attributes()
        dtype = self.dtype()
        nbytes = dtype.itemsize
        self.count()  # the stated size; it is capped, so it is computed instead
        begin = self.offset()
        lengths = [dimensions[d][1] for d in dims]
        is_record = bool(lengths) and lengths[0] == 0
        for length in lengths[1:] if is_record else lengths:
            nbytes *= length
        if 0 in lengths[1:]:
            raise self.fail(f"its variable {name!r} has records that are not its first dimension")
        return Variable(name, dims, attributes, dtype, begin, nbytes, is_record)


def read_header(path: Path) -> Header:
    """Read a classic file's header, and compare the file's size with what it needs.

    Raises
    ------
    FormatError
        The header is damaged, or the file shorter than its values.

    """
    with path.open("rb") as file:
        nbytes = file.seek(0, 2)
        asked = _FIRST_BYTES
        while True:
            file.seek(0)
            data = file.read(asked)
            try:
                return _parsed(_Reader(data, nbytes, path), nbytes)
            except _Short:
                asked *= 4


def _parsed(reader: _Reader, nbytes: int) -> Header:
    """Return a header whose values are all within the file."""
    records = reader.count()
    dimensions = [(reader.name(), reader.count()) for _ in reader.list_of(DIMENSION)]
    attributes = reader.attributes()
    variables = [reader.variable(dimensions) for _ in reader.list_of(VARIABLE)]
    for names in ([name for name, _ in dimensions], [v.name for v in variables]):
        if len(set(names)) < len(names):
            raise reader.fail("its header names two things alike")
    recorded = [v for v in variables if v.is_record]
    padded = sum(v.nbytes + -v.nbytes % 4 for v in recorded)
    stride = recorded[0].nbytes if len(recorded) == 1 else padded
    if records == reader.streaming:
        # Its writer did not know how many there would be: as many as the file has room for.
        begin = min((v.begin for v in recorded), default=nbytes)
        records = max(0, nbytes - begin) // stride if stride else 0
    end = max((v.begin + v.nbytes for v in variables if not v.is_record and v.nbytes), default=0)
    if recorded and records:
        end = max(end, max(v.begin + v.nbytes for v in recorded) + (records - 1) * stride)
    if end > nbytes:
        raise reader.fail(f"its header needs {end} bytes, and the file has {nbytes}")
    model = VERSIONS[reader.version]
    return Header(model, records, stride, dimensions, attributes, variables)
