"""Writing classic netCDF: CDF-1, CDF-2 and CDF-5, after the format's specification.

A classic file is a header and then values: those of fixed size, one variable after the other, then
the records, each with a part of every variable that has the unlimited dimension first. All is
big-endian and padded to four bytes, but the only record variable of a file, which is not padded.
So a file that netCDF's library wrote at one go comes back byte by byte, but for what stands in the
padding; text without a character, which netCDF4 cannot write, and the place of `_FillValue` among
the attributes are kept too.
"""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Any

import numpy as np

from engram.formats.blocks import BLOCK_BYTES, index, regions
from engram.formats.netcdf import attributes
from engram.formats.netcdf.classic import ATTRIBUTE, DIMENSION, MAGIC, VARIABLE
from engram.formats.netcdf.kinds import DEFAULT_FILLS
from engram.formats.netcdf.plan import fill_value
from engram.formats.target import Problem

if TYPE_CHECKING:
    from collections.abc import Iterable
    from pathlib import Path
    from typing import BinaryIO

    from engram.formats.netcdf.attributes import Attribute
    from engram.formats.netcdf.plan import Plan, Variable
    from engram.formats.target import Tell

    Array = np.ndarray[Any, Any]

_TYPES = {
    "i1": 1, "S1": 2, "i2": 3, "i4": 4, "f4": 5, "f8": 6,
    "u1": 7, "u2": 8, "u4": 9, "i8": 10, "u8": 11,
}  # fmt: skip
_ALIGN = 4
_WIDE = 5
_VSIZE_MAX = (1 << 32) - 1


BEGIN_MAX = (1 << 31) - 1
"""Where the last variable of a CDF-1 file may begin."""


def too_far(plan: Plan) -> list[Problem]:
    """Return the variables that would begin where a plan's kind of file has no number for."""
    if plan.kind.version != 1:
        return []
    begins = _Layout(plan).begins
    why = "it would begin at byte {}, and {} has numbers up to {}; netcdf3-64bit-offset has more"
    return [
        Problem(name, "variable", why.format(begin, plan.kind.model, BEGIN_MAX))
        for name, begin in begins.items()
        if begin > BEGIN_MAX
    ]


def write3(plan: Plan, path: Path, tell: Tell) -> None:
    """Write a classic file."""
    layout = _Layout(plan)
    with path.open("xb") as file:
        file.write(layout.header())
        for variable in layout.fixed:
            _write_fixed(file, layout, variable, tell)
        if layout.records:
            _write_records(file, layout, tell)


class _Layout:
    """Where everything stands in the file."""

    def __init__(self, plan: Plan) -> None:
        """Lay the variables out behind the header."""
        self.root = plan.groups[""]
        self.version = plan.kind.version
        self.numbers = {name: number for number, name in enumerate(self.root.dims)}
        self.records = [v for v in self.root.variables if _is_record(v)]
        self.fixed = [v for v in self.root.variables if not _is_record(v)]
        self.padded = {v.name: _nbytes(v) + -_nbytes(v) % _ALIGN for v in self.root.variables}
        self.begins = dict.fromkeys(self.padded, 0)
        at = len(self.header())
        for variable in [*self.fixed, *self.records]:
            self.begins[variable.name] = at
            at += self.padded[variable.name]
        # A file's only record variable stands without padding between its records.
        alone = len(self.records) == 1
        self.record_bytes = (
            _nbytes(self.records[0]) if alone else sum(self.padded[v.name] for v in self.records)
        )

    def header(self) -> bytes:
        """Return the header, as long as any with other places of the values."""
        grow = [d.size for d in self.root.dims.values() if d.unlimited]
        dims = [
            self._name(d.name) + self._count(0 if d.unlimited else d.size)
            for d in self.root.dims.values()
        ]
        variables = [self._variable(v) for v in self.root.variables]
        return b"".join((
            MAGIC,
            bytes([self.version]),
            self._count(grow[0] if grow else 0),
            self._list(DIMENSION, dims),
            self._attributes(self.root.attrs),
            self._list(VARIABLE, variables),
        ))  # fmt: skip

    def _count(self, number: int) -> bytes:
        """Return a number of elements."""
        return number.to_bytes(8 if self.version == _WIDE else 4, "big")

    def _name(self, name: str) -> bytes:
        """Return a name."""
        raw = name.encode()
        return self._count(len(raw)) + _pad(raw)

    def _list(self, tag: int, entries: list[bytes]) -> bytes:
        """Return a list, which has no tag if it is empty."""
        head = (tag if entries else 0).to_bytes(4, "big")
        return head + self._count(len(entries)) + b"".join(entries)

    def _attributes(self, found: Iterable[Attribute]) -> bytes:
        """Return a list of attributes."""
        entries = []
        for attribute in found:
            if attribute.kind == attributes.TEXT:
                code, number, raw = _TYPES["S1"], len(attribute.value), attribute.value
            else:
                value = attribute.value
                code, number = _TYPES[value.dtype.str[1:]], value.size
                raw = _big(value).tobytes()
            head = self._name(attribute.name) + code.to_bytes(4, "big")
            entries.append(head + self._count(number) + _pad(raw))
        return self._list(ATTRIBUTE, entries)

    def _variable(self, variable: Variable) -> bytes:
        """Return a variable's entry."""
        dims = variable.dims or []
        size = self.padded[variable.name]
        if self.version != _WIDE:
            size = min(size, _VSIZE_MAX)
        begin = self.begins[variable.name].to_bytes(4 if self.version == 1 else 8, "big")
        return b"".join((
            self._name(variable.name),
            self._count(len(dims)),
            *(self._count(self.numbers[d.name]) for d in dims),
            self._attributes(variable.attrs),
            _TYPES[variable.form.dtype.str[1:]].to_bytes(4, "big"),
            self._count(size),
            begin,
        ))  # fmt: skip


def _write_fixed(file: BinaryIO, layout: _Layout, variable: Variable, tell: Tell) -> None:
    """Write a variable of fixed size."""
    _write_values(file, variable, variable.item.load(), tell)
    file.write(_padding(variable, layout.padded[variable.name] - _nbytes(variable)))


def _write_values(file: BinaryIO, variable: Variable, values: Array, tell: Tell) -> None:
    """Write values where the file stands, in C order, a bounded piece at a time."""
    tell(variable.item.path, 0)
    for region in regions(values.shape, None, variable.item.dtype.itemsize):
        piece = values[index(region)]
        file.write(_raw(variable, piece))
        tell(variable.item.path, piece.nbytes)


def _write_records(file: BinaryIO, layout: _Layout, tell: Tell) -> None:
    """Write the records: as many at a time as are bounded, or one in pieces."""
    loaded = [(v, v.item.load()) for v in layout.records]
    number = loaded[0][1].shape[0]
    if layout.record_bytes > BLOCK_BYTES:
        for record in range(number):
            for variable, values in loaded:
                _write_values(file, variable, values[record], tell)
                if len(loaded) > 1:
                    missing = layout.padded[variable.name] - _nbytes(variable)
                    file.write(_padding(variable, missing))
        return
    step = max(1, BLOCK_BYTES // max(1, layout.record_bytes))
    for start in range(0, number, step):
        stop = min(start + step, number)
        block = np.empty((stop - start, layout.record_bytes), "u1")
        at = 0
        for variable, values in loaded:
            piece, width = values[start:stop], _nbytes(variable)
            raw = np.frombuffer(_raw(variable, piece), "u1").reshape(stop - start, width)
            block[:, at : at + width] = raw
            at += width
            if len(loaded) > 1:
                missing = layout.padded[variable.name] - width
                block[:, at : at + missing] = np.frombuffer(_padding(variable, missing), "u1")
                at += missing
            tell(variable.item.path, piece.nbytes)
        file.write(block.tobytes())


def _raw(variable: Variable, piece: Array) -> bytes:
    """Return a piece of values as the file has them."""
    convert = variable.form.convert
    return _big(piece if convert is None else convert(piece)).tobytes()


def _big(values: Array) -> Array:
    """Return values in big-endian order."""
    return values.astype(values.dtype.newbyteorder(">"), copy=False)


def _padding(variable: Variable, nbytes: int) -> bytes:
    """Return so many bytes of a variable's fill value."""
    if not nbytes:
        return b""
    code = variable.form.dtype.str[1:]
    value = fill_value(variable)
    if value is None:
        value = DEFAULT_FILLS.get(code, b"\0")
    one = np.zeros((), variable.form.dtype.newbyteorder(">"))
    one[()] = value
    return (one.tobytes() * nbytes)[:nbytes]


def _pad(raw: bytes) -> bytes:
    """Return bytes of the header with the zeros after them."""
    return raw + bytes(-len(raw) % _ALIGN)


def _is_record(variable: Variable) -> bool:
    """Whether a variable has the unlimited dimension."""
    return variable.dims is not None and any(d.unlimited for d in variable.dims[:1])


def _nbytes(variable: Variable) -> int:
    """Return a variable's bytes; of one record, if it has records."""
    shape = variable.shape
    return variable.form.dtype.itemsize * math.prod(shape[1:] if _is_record(variable) else shape)
