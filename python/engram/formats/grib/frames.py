"""The frame of a file: where its messages lie, and that their sections fill them.

eccodes looks for the next message wherever the last one ended, so it would pass over a damaged one,
and some damage inside makes it end the process. So the lengths that messages and sections state are
followed here first, as the formats of edition 1 and 2 are specified.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, BinaryIO

from engram.errors import FormatError

if TYPE_CHECKING:
    from collections.abc import Iterator

    from engram.formats.source import Source

_BEGIN, _END = b"GRIB", b"7777"
_HEAD_BYTES = {1: 8, 2: 16}
_LONG = 1 << 23  # edition 1: what is longer states its length in another way
_HAS_GRID, _HAS_BITMAP = 0x80, 0x40
_STEP = 1 << 20


def check(source: Source) -> None:
    """See that the file consists of whole messages; leave out by name what is between them.

    Raises
    ------
    FormatError
        A message is truncated or damaged.

    """
    with source.path.open("rb") as file:
        nbytes = file.seek(0, 2)
        number, end = 0, 0
        while (begin := _find(file, end)) is not None:
            _tell_gap(source, file, end, begin)
            number += 1
            try:
                stop = _message(file, begin, nbytes)
            except ValueError as error:
                message = (
                    f"{source.path}: message {number}, at byte {begin}, {error}. The file is "
                    "truncated or damaged: get it again"
                )
                raise FormatError(message) from None
            if stop is None:
                return
            end = stop
        _tell_gap(source, file, end, nbytes)


def _find(file: BinaryIO, start: int) -> int | None:
    """Return where the next message begins."""
    while True:
        file.seek(start)
        found = file.read(_STEP)
        at = found.find(_BEGIN)
        if at >= 0:
            return start + at
        if len(found) < _STEP:
            return None
        start += _STEP - len(_BEGIN) + 1


def _tell_gap(source: Source, file: BinaryIO, end: int, begin: int) -> None:
    """Tell of bytes between messages; the end of a message among them is one that lost its head."""
    if begin <= end:
        return
    is_blank = True
    for start in range(end, begin, _STEP):
        file.seek(max(end, start - len(_END)))  # an end that lies across two pieces is met, too
        piece = file.read(min(begin, start + _STEP) - file.tell())
        is_blank = is_blank and not piece.strip(b"\0")
        if _END not in piece:
            continue
        message = (
            f"{source.path}: at byte {end} is a message without its beginning. The file is "
            "damaged: get it again"
        )
        raise FormatError(message)
    if not is_blank:
        why = f"{begin - end} bytes that belong to no message, as the heading of a bulletin"
        source.leave_out("", f"bytes from {end}", why)


def _message(file: BinaryIO, begin: int, nbytes: int) -> int | None:
    """Return where a message ends; None if edition 1 states that in its way for long ones.

    Raises
    ------
    ValueError
        It does not end there, or its sections do not fill it.

    """
    file.seek(begin)
    head = file.read(max(_HEAD_BYTES.values()))
    edition = head[7] if len(head) > _HEAD_BYTES[1] else 0
    if edition not in _HEAD_BYTES:
        message = f"has the edition {edition}; 1 and 2 are known"
        raise ValueError(message)
    length = int.from_bytes(head[4:7] if edition == 1 else head[8:16], "big")
    if edition == 1 and length >= _LONG:
        return None
    end = begin + length
    if end > nbytes:
        message = f"ends at byte {end}, and the file has {nbytes}"
        raise ValueError(message)
    file.seek(end - len(_END))
    if length < _HEAD_BYTES[edition] + len(_END) or file.read(len(_END)) != _END:
        message = "does not end as a message does"
        raise ValueError(message)
    sections = _sections1 if edition == 1 else _sections2
    at = begin + _HEAD_BYTES[edition]
    for size in sections(file, at, end - len(_END)):
        at += size
    if at != end - len(_END):
        message = f"has sections that end at byte {at} instead of {end - len(_END)}"
        raise ValueError(message)
    return end


def _sections1(file: BinaryIO, at: int, stop: int) -> Iterator[int]:
    """Yield the lengths of the sections of edition 1, of which two are optional."""
    file.seek(at)
    head = file.read(8)
    flags = head[7]
    for there in (1, flags & _HAS_GRID, flags & _HAS_BITMAP, 1):
        if there and at < stop:
            file.seek(at)
            size = int.from_bytes(file.read(3), "big")
            at += size
            yield size


def _sections2(file: BinaryIO, at: int, stop: int) -> Iterator[int]:
    """Yield the lengths of the sections of edition 2."""
    while at < stop:
        file.seek(at)
        size = int.from_bytes(file.read(4), "big")
        if not size:
            return
        at += size
        yield size
