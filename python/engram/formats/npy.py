"""npy: one array of NumPy's in a file, as `numpy.save` writes it; `npz` holds many.

A file is a header, which names dtype, shape and order, and then the values. Its bytes come back as
they were: padding inside records is moved with them, and a header that is spelled in another way
than here stands in the array's `origin`. Values are read from where they lie, a bounded span of
bytes at a time, and never through a mapping, which a file that shrinks would turn into a signal.

What `.npy` has no place for (names of dimensions, attributes) is left out and told of, and not
refused: that is what this format is. Pickles are never loaded.
"""

from __future__ import annotations

import ast
import base64
import binascii
import io
import math
import re
import struct
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np

from engram.errors import FormatError
from engram.formats.blocks import BLOCK_BYTES, index, regions
from engram.formats.names import name_problem
from engram.formats.source import ArrayNode, Plain, Source
from engram.formats.target import GroupItem, Problem

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path
    from typing import IO

    from engram.formats.blocks import Region
    from engram.formats.source import Origin
    from engram.formats.target import ArrayItem, Tell, Tree

    Read = Callable[[np.ndarray[Any, Any], Region], None]

MAGIC = b"\x93NUMPY"
_LENGTHS = {(1, 0): ("<H", "latin-1"), (2, 0): ("<I", "latin-1"), (3, 0): ("<I", "utf-8")}
_HEADER_BYTES = 1 << 20  # a longer header is no header; parsing one takes long
_ALIGNMENT = 64
_GROWTH_DIGITS = 21  # room in the header for the first length to grow, as numpy leaves it
_PYTHON_2_LONG = re.compile(r"(\d)L\b")


@dataclass(frozen=True, slots=True)
class Header:
    """What stands before an array's values.

    Attributes
    ----------
    dtype
        The dtype of the values.
    shape
        Their shape.
    fortran
        Whether the first axis varies fastest.

    """

    dtype: np.dtype[Any]
    shape: tuple[int, ...]
    fortran: bool

    @property
    def nbytes(self) -> int:
        """Bytes of the values."""
        return self.dtype.itemsize * math.prod(self.shape)

    def encode(self) -> bytes:
        """Return the header's bytes, in the oldest version that can hold it."""
        descr = np.lib.format.dtype_to_descr(self.dtype)
        text = f"{{'descr': {descr!r}, 'fortran_order': {self.fortran}, 'shape': {self.shape}, }}"
        if self.shape:
            grows = self.shape[-1 if self.fortran else 0]
            text += " " * (_GROWTH_DIGITS - len(str(grows)))
        for version, (length, charset) in _LENGTHS.items():
            try:
                body = text.encode(charset)
                before = len(MAGIC) + 2 + struct.calcsize(length)
                body += b" " * (_ALIGNMENT - (before + len(body) + 1) % _ALIGNMENT) + b"\n"
                return MAGIC + bytes(version) + struct.pack(length, len(body)) + body
            except (UnicodeEncodeError, struct.error):
                continue
        message = f"the dtype {self.dtype} is too long for a header of .npy"
        raise FormatError(message)


def read_header(stream: IO[bytes]) -> tuple[Header, bytes]:
    """Read a header, and return it and its bytes; the values come next in the stream.

    Raises
    ------
    ValueError
        It is no header, or one of a version that is unknown.

    """
    start = _exactly(stream, len(MAGIC) + 2)
    version = (start[-2], start[-1])
    if not start.startswith(MAGIC) or version not in _LENGTHS:
        message = f"its header begins with {start!r}, which no known version does"
        raise ValueError(message)
    length, charset = _LENGTHS[version]
    size = _exactly(stream, struct.calcsize(length))
    (nbytes,) = struct.unpack(length, size)
    if nbytes > _HEADER_BYTES:
        message = f"its header claims to have {nbytes} bytes"
        raise ValueError(message)
    body = _exactly(stream, nbytes)
    return _parsed(body.decode(charset)), start + size + body


def _exactly(stream: IO[bytes], nbytes: int) -> bytes:
    """Read so many bytes."""
    found = stream.read(nbytes)
    if len(found) != nbytes:
        message = "it ends within its header: it is truncated"
        raise ValueError(message)
    return found


def _parsed(text: str) -> Header:
    """Return the header that a text is."""
    try:
        try:
            said = ast.literal_eval(text.strip())
        except SyntaxError:  # written by Python 2, which had 10L for large numbers
            before, key, shape = text.strip().rpartition("'shape'")
            said = ast.literal_eval(before + key + _PYTHON_2_LONG.sub(r"\1", shape))
        descr, fortran, shape = said["descr"], said["fortran_order"], said["shape"]
        dtype = np.lib.format.descr_to_dtype(descr)
    except (ValueError, TypeError, LookupError, SyntaxError, MemoryError, RecursionError) as error:
        message = f"its header {text[:80].strip()!r} cannot be read: {error}"
        raise ValueError(message) from None
    lengths = isinstance(shape, tuple) and all(type(n) is int and n >= 0 for n in shape)
    if dtype.subdtype is not None:
        message = f"its header tells of values that are arrays themselves, {dtype}"
        raise ValueError(message)
    if not lengths or type(fortran) is not bool:
        message = f"its header tells of the shape {shape!r} and the Fortran order {fortran!r}"
        raise ValueError(message)
    return Header(dtype, shape, fortran)


class Values:
    """An array's values in a stream that can seek, read in spans of bounded size."""

    def __init__(self, stream: IO[bytes], header: Header, start: int) -> None:
        """Look at the values that begin at the byte `start`."""
        self._stream = stream
        self._start = start
        self._dtype = _as_bytes(header.dtype)
        self._strides = _strides(header)
        self._is_in_c_order = not header.fortran or len(header.shape) < 2  # noqa: PLR2004 - one axis

    def plain(self) -> Plain | None:
        """Say where the values lie, if that is in a file itself, and in C order."""
        stream = self._stream
        is_file = isinstance(stream, io.BufferedReader) and isinstance(stream.raw, io.FileIO)
        return Plain(stream.fileno(), self._start) if is_file and self._is_in_c_order else None

    def read(self, out: np.ndarray[Any, Any], region: Region) -> None:
        """Read the region into all of `out`."""
        if out.nbytes:
            self._read(out.view(self._dtype), region)

    def _read(self, out: np.ndarray[Any, Any], region: Region) -> None:
        """Read the span of bytes that a region lies in; or each half, if that is too long."""
        parts = [(part.start, part.step or 1) for part in region]
        steps = [step * near for (_, step), near in zip(parts, self._strides, strict=True)]
        reach = [step * (length - 1) for step, length in zip(steps, out.shape, strict=True)]
        nbytes = sum(reach) + self._dtype.itemsize
        if nbytes > BLOCK_BYTES and out.size > 1:
            axis = reach.index(max(reach))
            half = out.shape[axis] // 2
            start, step = parts[axis]
            middle, stop = start + half * step, region[axis].stop
            before, after = region[:axis], region[axis + 1 :]
            whole: tuple[Any, ...] = (slice(None),) * axis
            self._read(
                out[(*whole, slice(half), ...)], (*before, slice(start, middle, step), *after)
            )
            self._read(
                out[(*whole, slice(half, None), ...)], (*before, slice(middle, stop, step), *after)
            )
            return
        first = sum(start * near for (start, _), near in zip(parts, self._strides, strict=True))
        self._stream.seek(self._start + first)
        span = self._stream.read(nbytes)
        if len(span) != nbytes:
            message = f"it ends {nbytes - len(span)} bytes too early: it is truncated"
            raise ValueError(message)
        out[...] = np.ndarray(out.shape, self._dtype, span, 0, steps)


def _as_bytes(dtype: np.dtype[Any]) -> np.dtype[Any]:
    """Return the dtype of the same size that is bytes alone, so that padding is moved as well."""
    return np.dtype(f"V{dtype.itemsize}")


def _strides(header: Header) -> list[int]:
    """Return how far apart in the file neighbours along each axis are, in bytes."""
    lengths = header.shape if header.fortran else header.shape[::-1]
    strides = [header.dtype.itemsize * math.prod(lengths[:n]) for n in range(len(lengths))]
    return strides if header.fortran else strides[::-1]


def array_node(
    path: str,
    header: Header,
    said: bytes,
    read: Read,
    name: str,
    *,
    plain: Callable[[], Plain | None] = lambda: None,
) -> ArrayNode:
    """Return the node of an array in a file.

    Parameters
    ----------
    path
        Its path in the source.
    header, said
        Its header, and the header's bytes.
    read
        Reads its values.
    name
        The file's format, for its origin.
    plain
        Says where its values lie, as `ArrayNode.plain` has it.

    """
    facts: Origin = {"format": name}
    if header.fortran:
        facts["memory_order"] = "F"
    if said != header.encode():
        facts["header"] = base64.b64encode(said).decode("ascii")
    chunks = None
    if header.fortran and header.nbytes:  # whole slabs of the slowest axis, which is the last
        slab = header.nbytes // header.shape[-1]
        chunks = (*header.shape[:-1], min(header.shape[-1], max(1, BLOCK_BYTES // slab)))
    return ArrayNode(
        path=path,
        shape=header.shape,
        dtype=header.dtype,
        dims=None,
        chunks=chunks,
        describe=lambda: ({}, facts),
        read=read,
        plain=plain,
    )


class NpySource(Source):
    """A file of one array, which is called as the file is, without its suffix."""

    def __init__(self, path: Path, stream: IO[bytes]) -> None:
        """Read the header; `stream` is closed with the source."""
        super().__init__(path, "NPY")
        self._stream = stream
        try:
            header, said = read_header(stream)
        except ValueError as error:
            message = f"{path}: is no whole .npy file: {error}. Get it again"
            raise FormatError(message) from None
        why = name_problem(path.stem)
        if header.dtype.hasobject:
            why = "it holds Python objects, as a pickle, which is not loaded: it could run anything"
        if why is not None:
            message = f"{path}: cannot be imported: {why}"
            raise FormatError(message)
        more = path.stat().st_size - len(said) - header.nbytes
        if more < 0:
            message = f"{path}: ends {-more} bytes too early: it is truncated. Get it again"
            raise FormatError(message)
        if more:
            self.leave_out(
                path.stem, "bytes after the array", f"{more}, of which .npy says nothing"
            )
        values = Values(stream, header, len(said))
        node = array_node(path.stem, header, said, values.read, self.format, plain=values.plain)
        self.nodes.append(node)

    def close(self) -> None:
        """Close the file."""
        self._stream.close()


def unwritable(item: ArrayItem) -> Problem | None:
    """Say why .npy cannot hold an array; None if it can."""
    if item.dtype.kind == "T":
        if any(value.endswith("\0") for value in item.load().flat):
            why = "a string that ends with NUL; the strings of .npy cannot"
            return Problem(item.path, "strings", why)
        return None
    try:
        again = np.lib.format.descr_to_dtype(np.lib.format.dtype_to_descr(item.dtype))
    except (ValueError, TypeError) as error:
        return Problem(item.path, f"dtype {item.dtype}", str(error))
    if again != item.dtype or again.fields != item.dtype.fields:
        return Problem(item.path, f"dtype {item.dtype}", f"it would be read as {again}")
    return None


def leave_out(tree: Tree) -> None:
    """Leave out the names of dimensions and the attributes of what was asked for."""
    for item in tree.items:
        lost = [f"attribute {name}" for name in item.attrs]
        item.attrs.clear()
        if isinstance(item, GroupItem):
            if not item.asked:
                continue
        elif item.dims:
            lost.append(f"dims {', '.join(item.dims)}")
        if lost:
            tree.leave_out(item.path, "; ".join(lost), "NumPy's files have values alone")


def write_array(stream: IO[bytes], item: ArrayItem, tree: Tree, tell: Tell) -> None:
    """Write one array: its header, and its values in bounded pieces."""
    tell(item.path, 0)
    values = item.load()
    dtype = item.dtype
    if dtype.kind == "T":
        width = int(np.strings.str_len(values).max(initial=1))
        dtype = np.dtype(f"<U{width}")
        tree.note(item.path, "strings", f"of variable length, written as {dtype.str}")
    if item.is_blob:
        tree.note(item.path, "blob", "written as an array of its bytes")
    fortran = item.origin.get("memory_order") == "F"
    header = Header(dtype, item.shape, fortran)
    stream.write(_kept_header(item.origin, header) or header.encode())
    if dtype.itemsize == 0:
        return
    if fortran:
        values = values.T
    if dtype == item.dtype:
        values = values.view(_as_bytes(dtype))
    for region in regions(values.shape, None, dtype.itemsize):
        piece = values[index(region)]
        if dtype != item.dtype:
            piece = piece.astype(dtype)
        stream.write(piece.tobytes())
        tell(item.path, piece.size * item.dtype.itemsize)


def _kept_header(origin: Origin, header: Header) -> bytes | None:
    """Return the header that the array was read with, if it says what is written now."""
    try:
        said = base64.b64decode(origin["header"], validate=True)
        found, read = read_header(io.BytesIO(said))
    except (LookupError, TypeError, ValueError, binascii.Error):
        return None
    same = found == header and found.dtype.fields == header.dtype.fields
    return said if same and read == said else None


class NpyFormat:
    """NumPy's file of one array."""

    name = "npy"
    rank = 30
    suffixes = (".npy",)
    kinds = ("npy",)
    makes_folder = False

    def matches(self, path: Path, head: bytes) -> bool:  # noqa: ARG002 - the content tells
        """Whether it begins as `numpy.save` begins."""
        return head.startswith(MAGIC)

    def open(self, path: Path) -> Source:
        """Open the file and read its header."""
        stream = path.open("rb")
        try:
            return NpySource(path, stream)
        except BaseException:
            stream.close()
            raise

    def problems(self, tree: Tree, kind: str) -> list[Problem]:  # noqa: ARG002 - there is one kind
        """Return what is more than one array, or of a dtype that NumPy does not save."""
        found = [problem for item in tree.arrays if (problem := unwritable(item)) is not None]
        refused = {problem.path for problem in found}
        first, *others = [i.path for i in tree.arrays if i.path not in refused] or [""]
        why = f"an .npy file holds one array, here /{first}; .npz holds many"
        return found + [Problem(path, "array", why) for path in others]

    def write(self, tree: Tree, path: Path, kind: str, tell: Tell) -> str:  # noqa: ARG002 - as above
        """Write the tree's only array."""
        if not tree.arrays:
            message = f"/{tree.name}: there is no array to be written; an .npy file holds one"
            raise FormatError(message)
        leave_out(tree)
        with path.open("wb") as stream:
            write_array(stream, tree.arrays[0], tree, tell)
        return "NPY"


FORMAT = NpyFormat()
