"""Classic netCDF files: values read where the header says they lie, straight into memory.

Values stay raw, and characters stay characters. They are big-endian in the file and native here,
as netCDF4 gives them; of a file that is cut off while it is read, a read tells.
"""

from __future__ import annotations

import functools
import math
import os
from typing import TYPE_CHECKING, Any

import numpy as np

from engram.formats import text, trees
from engram.formats.blocks import BLOCK_BYTES, region_shape
from engram.formats.names import name_problem
from engram.formats.netcdf import classic
from engram.formats.netcdf.attributes import text_facts
from engram.formats.source import ArrayNode, GroupNode, Source

if TYPE_CHECKING:
    from pathlib import Path

    from engram.formats.blocks import Region
    from engram.formats.netcdf.classic import Variable
    from engram.formats.source import Attributes, Origin

Array = np.ndarray[Any, Any]

_RECORD_BYTES = 64 << 10
"""Records up to this size are read many at once, with those of other variables between them."""


class ClassicSource(Source):
    """A classic netCDF file."""

    def __init__(self, path: Path) -> None:
        """Read the header.

        Raises
        ------
        FormatError
            The file is damaged.

        """
        self._header = classic.read_header(path)
        super().__init__(path, self._header.model)
        self._file = path.open("rb", buffering=0)
        lengths = [length or self._header.records for _, length in self._header.dimensions]
        names = [_name(name) for name, _ in self._header.dimensions]
        self.nodes.append(GroupNode("", self._describe))
        for variable in self._header.variables:
            name = _name(variable.name)
            why = name_problem(variable.name)
            if why is not None:
                self.leave_out(name, "variable", why)
                continue
            shape = tuple([lengths[d] for d in variable.dims])
            dims = tuple([names[d] for d in variable.dims]) or None
            dtype = variable.dtype.newbyteorder("=")
            describe = functools.partial(self._describe_variable, variable, name)
            read = functools.partial(self._read, variable, shape)
            self.nodes.append(ArrayNode(name, shape, dtype, dims, None, describe, read))

    def close(self) -> None:
        """Close the file."""
        self._file.close()

    def _describe(self) -> tuple[Attributes, Origin]:
        """Return the file's attributes and origin."""
        header = self._header
        origin: Origin = {"format": self.format, "source": self.path.name}
        if header.dimensions:
            origin["dimensions"] = {
                _name(name): {"size": length or header.records, "unlimited": length == 0}
                for name, length in header.dimensions
            }
        values, types = self._attributes(header.attributes, "")
        if types:
            origin["attributes"] = types
        origin["order"] = [_name(variable.name) for variable in header.variables]
        return values, origin

    def _describe_variable(self, variable: Variable, path: str) -> tuple[Attributes, Origin]:
        """Return a variable's attributes and origin."""
        values, types = self._attributes(variable.attributes, path)
        return values, {"format": self.format, **({"attributes": types} if types else {})}

    def _attributes(self, found: dict[bytes, Any], path: str) -> tuple[Attributes, Origin]:
        """Return attributes as netCDF4 has them, and where the NULs of each text were.

        Text is without NULs, and one number a scalar.
        """
        values: Attributes = {}
        types: Origin = {}
        for encoded, value in found.items():
            name = _name(encoded)
            if not isinstance(value, bytes):
                native = value.astype(value.dtype.newbyteorder("="))
                values[name] = native[0] if native.size == 1 else native
                continue
            content = value.replace(b"\0", b"")
            if content != value:
                types[name] = text_facts(value)
            if name == "_FillValue":
                values[name] = np.array(content, dtype=f"S{len(content) or 1}")
                continue
            values[name], exact = text.text_value(content)
            if not exact:
                self.note(path, f"attribute {name}", text.NOT_UTF8)
        for name in trees.restore(values):
            types.pop(name, None)
        return values, types

    def _read(self, variable: Variable, shape: tuple[int, ...], out: Array, region: Region) -> None:
        """Read a region of a variable."""
        target = out if out.flags.c_contiguous else np.empty(out.shape, out.dtype)
        raw = target.view(variable.dtype)
        if variable.is_record:
            self._read_records(variable, shape, raw, region)
        else:
            self._read_run(variable.begin, shape, raw, region)
        if variable.dtype != target.dtype:
            target.byteswap(inplace=True)
        if target is not out:
            out[...] = target

    def _read_records(
        self, variable: Variable, shape: tuple[int, ...], raw: Array, region: Region
    ) -> None:
        """Read what lies in one piece in each record."""
        records, inner, stride = region[0], region[1:], self._header.stride
        numbers = range(records.start, records.stop, records.step)
        if stride > _RECORD_BYTES or records.step > 1:
            for place, number in enumerate(numbers):
                at = variable.begin + number * stride
                self._read_run(at, shape[1:], raw[place : place + 1].reshape(raw.shape[1:]), inner)
            return
        several = max(1, BLOCK_BYTES // stride)
        for first in range(0, len(numbers), several):
            count = min(several, len(numbers) - first)
            # The last record ends with the variable: nothing of the file need follow it.
            block = bytearray((count - 1) * stride + variable.nbytes)
            self._fill(memoryview(block), variable.begin + numbers[first] * stride)
            of_record = variable.dtype.itemsize
            strides = [of_record * math.prod(shape[n + 1 :]) for n in range(1, len(shape))]
            found: Array = np.ndarray(
                (count, *shape[1:]), variable.dtype, block, strides=(stride, *strides)
            )
            raw[first : first + count] = found[(slice(None), *inner)]

    def _read_run(self, at: int, shape: tuple[int, ...], raw: Array, region: Region) -> None:
        """Read a region of what lies in one piece, of this shape, from `at` on."""
        if not shape:
            self._fill(raw.reshape(1).view(np.uint8).data, at)
            return
        first, row = region[0], raw.dtype.itemsize * math.prod(shape[1:])
        span = (first.stop - first.start) * row
        if first.step == 1 and region_shape(region[1:]) == shape[1:]:
            self._fill(raw.reshape(-1).view(np.uint8).data, at + first.start * row)
        elif span <= BLOCK_BYTES:
            run: Array = np.empty((first.stop - first.start, *shape[1:]), raw.dtype)
            self._fill(run.reshape(-1).view(np.uint8).data, at + first.start * row)
            raw[...] = run[(slice(None, None, first.step), *region[1:])]
        else:
            for place, number in enumerate(range(first.start, first.stop, first.step)):
                below = raw[place : place + 1].reshape(raw.shape[1:])
                self._read_run(at + number * row, shape[1:], below, region[1:])

    def _fill(self, memory: memoryview, at: int) -> None:
        """Read so many bytes from `at` on."""
        while memory.nbytes:
            count = os.preadv(self._file.fileno(), [memory], at)
            if count == 0:
                message = f"the file ends at {at}, within its values"
                raise ValueError(message)
            memory, at = memory[count:], at + count


def _name(name: bytes) -> str:
    """Return a name as text, whatever its bytes."""
    return name.decode("utf-8", "backslashreplace")
