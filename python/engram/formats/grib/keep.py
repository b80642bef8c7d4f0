"""What an array keeps of the messages that it came from, so that they can go out again.

That is each message without its values: all that GRIB says of a field. The values are the array's,
in the order of its grid. A coordinate stands in the messages, too, so that it need not go out: it
keeps a checksum, which tells whether it has been changed. So do attributes.
"""

from __future__ import annotations

import base64
import binascii
import zlib
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import eccodes
import numpy as np

from engram.formats.grib.grid import Scan
from engram.formats.grib.messages import GRID

if TYPE_CHECKING:
    from collections.abc import Iterator

    from engram.formats.source import Attributes, Origin

Array = np.ndarray[Any, Any]

WORD = "grib"
SUMS = "sums"
_PACKING = ("packingType", "bitsPerValue")
_SLICE = 64 << 10
"""Bytes that are unpacked together: what is left of them is copied for each message."""


@dataclass(frozen=True, slots=True)
class Kept:
    """A message without its values.

    Attributes
    ----------
    place
        Where its values stand along the dimensions that are not the grid's.
    order
        What sorts it among the messages of its file.
    packing
        How its values were packed, and in how many bits.
    packed
        The message, all of whose values are zero, compressed.
    section
        Its grid, as `grid_of` has it.

    """

    place: tuple[int, ...]
    order: tuple[int, ...]
    packing: tuple[str, int]
    packed: bytes
    section: str

    @property
    def content(self) -> bytes:
        """The message, all of whose values are zero."""
        return zlib.decompress(self.packed)


def of_cube(fields: Any, messages: dict[tuple[int, ...], Any], scan: Scan) -> Origin:
    """Return what an array keeps; nothing if a message cannot be emptied of its values.

    Messages are compressed as they come: some packings spend as many bytes on zeros as on values.
    """
    facts, section = [], ""
    packer, packed = zlib.compressobj(), bytearray()
    for place, field in messages.items():
        message = fields.get_field(field)
        handle = getattr(message, "context", message).codes_id
        packing = [eccodes.codes_get(handle, key) for key in _PACKING]
        section = grid_of(handle)  # is the same for all messages of an array
        copy = eccodes.codes_clone(handle)
        try:
            eccodes.codes_set_values(copy, np.zeros(eccodes.codes_get_size(copy, "values")))
            content = eccodes.codes_get_message(copy)
        except eccodes.CodesInternalError:
            return {}
        finally:
            eccodes.codes_release(copy)
        order = list(field) if isinstance(field, tuple) else [field]
        facts.append([list(place), order, packing, len(content)])
        packed += packer.compress(content)
    packed += packer.flush()
    contents = base64.b64encode(packed).decode("ascii")
    grid = {"shape": scan.shape, "columns": scan.columns, "alternating": scan.alternating}
    return {WORD: {"messages": facts, "contents": contents, "grid": grid, GRID: section}}


def grid_of(handle: Any) -> str:
    """Return the type of a message's grid, and a checksum of it."""
    return f"{eccodes.codes_get(handle, 'gridType')} {eccodes.codes_get(handle, GRID)}"


def messages(facts: Any) -> tuple[list[Kept], Scan] | None:
    """Return the messages that `of_cube` has kept, and how they scan; None if there are none."""
    try:
        contents = _apart(base64.b64decode(facts["contents"]), [m[3] for m in facts["messages"]])
        found = [
            Kept(
                tuple(place),
                tuple(order),
                (str(packing[0]), int(packing[1])),
                zlib.compress(content),
                str(facts[GRID]),
            )
            for (place, order, packing, _), content in zip(facts["messages"], contents, strict=True)
        ]
        grid = facts["grid"]
        scan = Scan(tuple(grid["shape"]), columns=grid["columns"], alternating=grid["alternating"])
    except (LookupError, TypeError, ValueError, binascii.Error, zlib.error):
        return None
    return found, scan


def _apart(packed: bytes, lengths: list[int]) -> Iterator[bytes]:
    """Yield messages of these lengths that were compressed one behind the other."""
    stream, at, rest = zlib.decompressobj(), 0, b""
    for length in lengths:
        content = bytearray()
        while len(content) < length:
            if not rest:
                rest = packed[at : at + _SLICE]
                at += _SLICE
            piece = stream.decompress(rest, length - len(content))
            if not piece and at >= len(packed) and not stream.unconsumed_tail:
                message = f"a message has {len(content)} bytes, and not {length}"
                raise ValueError(message)
            content += piece
            rest = stream.unconsumed_tail
        yield bytes(content)


def sums(attrs: Attributes) -> dict[str, int]:
    """Return a checksum of each attribute."""
    return {name: zlib.crc32(repr(np.asarray(v).tolist()).encode()) for name, v in attrs.items()}


def sum_of(values: Array) -> int:
    """Return the checksum of a coordinate's values."""
    return zlib.crc32(np.ascontiguousarray(values).tobytes())
