"""The messages of a file: found one by one, and what lies between them.

cfgrib's index is made without a file beside the user's. eccodes looks for the next message
wherever the last one ended, so a damaged one would be passed over: what belongs to no message is
looked at here.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, BinaryIO

from cfgrib import cfmessage, dataset, messages

from engram.errors import FormatError

if TYPE_CHECKING:
    from collections.abc import Iterator

    from engram.formats.source import Source

PACKING = ("bitsPerValue", "packingType", "precision")
"""The keys that say how exact a message's values are."""

SINGLE = (
    *dataset.GLOBAL_ATTRIBUTES_KEYS,
    *("discipline", "parameterCategory", "parameterNumber"),  # of edition 2
    *("table2Version", "indicatorOfParameter"),  # of edition 1
)
"""Keys that have one value in all messages of a variable, beside those that cfgrib has so."""

GRID = "md5GridSection"

_BEGIN, _END = b"GRIB", b"7777"
_WIDE, _LENGTH_AT = 2, 8  # edition 2 states its length in 8 bytes there


def index(source: Source) -> Any:
    """Return cfgrib's index of all messages of a file.

    Raises
    ------
    FormatError
        A message is truncated or damaged.

    """
    stream = messages.FileStream(str(source.path.absolute()), errors="raise")
    keys = sorted({*dataset.INDEX_KEYS, "time", "step", *PACKING, *SINGLE, GRID})
    spans: list[tuple[int, int]] = []
    found = messages.FileIndex.from_fieldset_and_iteritems(
        stream, _walk(source, stream, spans), keys, cfmessage.COMPUTED_KEYS
    )
    _check_gaps(source, spans)
    return found


def _walk(source: Source, stream: Any, spans: list[tuple[int, int]]) -> Iterator[tuple[Any, Any]]:
    """Yield where each message lies, and it; and keep where it begins and ends."""
    try:
        with source.path.open("rb") as file:
            for place, message in stream.items():
                begin = message.message_get("offset", int)
                spans.append((begin, begin + _length(file, begin, message)))
                yield place, message
    except EOFError:
        message = f"{source.path}: there is no whole message in it. Get it again"
        raise FormatError(message) from None
    except Exception as error:  # eccodes has its own kinds, without a common base
        if isinstance(error, FormatError):
            raise
        after = spans[-1][1] if spans else 0
        message = (
            f"{source.path}: message {len(spans) + 1}, at byte {after} or later, cannot be read: "
            f"{error}. The file is truncated or damaged: get it again"
        )
        raise FormatError(message) from error


def _length(file: BinaryIO, begin: int, message: Any) -> int:
    """Return a message's bytes in the file, which one of several fields does not know itself."""
    file.seek(begin + _LENGTH_AT)
    stated = int.from_bytes(file.read(8), "big")
    return stated if message["edition"] == _WIDE else int(message["totalLength"])


def _check_gaps(source: Source, spans: list[tuple[int, int]]) -> None:
    """Look at what lies before, between and after the messages."""
    ends = [0, *(end for _, end in spans)]
    begins = [*(begin for begin, _ in spans), source.path.stat().st_size]
    with source.path.open("rb") as file:
        for number, (end, begin) in enumerate(zip(ends, begins, strict=True)):
            if begin <= end:
                continue
            file.seek(end)
            between = file.read(begin - end)
            if _BEGIN in between or _END in between:
                message = (
                    f"{source.path}: what follows message {number}, at byte {end}, is a damaged "
                    "message: get the file again"
                )
                raise FormatError(message)
            if between.strip(b"\0"):
                why = f"{begin - end} bytes that belong to no message, as a bulletin's heading"
                source.leave_out("", f"bytes from {end}", why)
