"""Numbers of text: where they stand in a file, and any run of them, without holding all of it.

Numbers are parted by blanks, commas and ends of lines, as Fortran's list-directed output parts
them; ``3*1.0`` stands for three. Exponents may be written with D.
"""

from __future__ import annotations

import bisect
import re
from typing import TYPE_CHECKING, Any, BinaryIO

import numpy as np

if TYPE_CHECKING:
    from collections.abc import Iterator

_PIECE = 1 << 20
_TOKEN_MOST = 512
_REPEATED = re.compile(rb"(\d+)\*(.+)")
_REPEAT_MOST = 1 << 40
TEXT = re.compile(rb"\s*[+-]?\d+[\s,][-+0-9.eEdDnNaAiIfFtTyY*,\s]*")
"""What a text of numbers begins with: an integer, and then nothing but numbers."""

Array = np.ndarray[Any, Any]


class Numbers:
    """The numbers of a text file."""

    def __init__(self, file: BinaryIO) -> None:
        """Count them."""
        self._file = file
        self._places: list[int] = []
        self._before: list[int] = []
        self.count = 0
        for place, tokens in self._pieces(0):
            self._places.append(place)
            self._before.append(self.count)
            self.count += sum(_times(token) for token in tokens) if _star(tokens) else len(tokens)

    def _pieces(self, place: int) -> Iterator[tuple[int, list[bytes]]]:
        """Yield the tokens of the file from a place on, a piece at a time, and where each begins.

        Raises
        ------
        ValueError
            Something is no number: it is longer than any.

        """
        self._file.seek(place)
        rest = b""
        while True:
            read = self._file.read(_PIECE)
            content = (rest + read).replace(b",", b" ")
            end = len(content)
            if read:
                end = max(content.rfind(blank) for blank in (b" ", b"\n", b"\t", b"\r")) + 1
            if len(content) - end > _TOKEN_MOST:
                message = f"has no number at byte {place + end}: {content[end:][:20]!r}"
                raise ValueError(message)
            yield place, content[:end].split()
            if not read:
                return
            rest = content[end:]
            place += end

    def read(self, start: int, count: int) -> Array:
        """Return so many numbers, as float64.

        Raises
        ------
        ValueError
            They are not there, or no numbers.

        """
        at = bisect.bisect_right(self._before, start) - 1
        out = np.empty(count, "f8")
        if at < 0 or start + count > self.count:
            message = f"has {self.count} numbers, and not {start + count}"
            raise ValueError(message)
        skip, done = start - self._before[at], 0
        for _, tokens in self._pieces(self._places[at]):
            values = _values(tokens, skip + count - done)
            part = values[skip : skip + count - done]
            out[done : done + len(part)] = part
            done += len(part)
            skip = max(0, skip - len(values))
            if done == count:
                break
        return out

    def integers(self, start: int, count: int) -> list[int] | None:
        """Return so many integers; None if they are not there, or not all are integers."""
        try:
            found = self.read(start, count)
        except ValueError:
            return None
        whole = bool(np.all(np.isfinite(found)) and np.all(found == np.floor(found)))
        return [int(n) for n in found] if whole else None


def _star(tokens: list[bytes]) -> bool:
    """Whether some tokens are repeated."""
    return any(b"*" in token for token in tokens)


def _times(token: bytes) -> int:
    """Return how many numbers a token stands for."""
    found = _REPEATED.fullmatch(token)
    if found is None:
        return 1
    times = int(found[1])
    if not 1 <= times <= _REPEAT_MOST:
        message = f"has {token[:40]!r}, which repeats a number too often"
        raise ValueError(message)
    return times


def _values(tokens: list[bytes], most: int) -> Array:
    """Return the numbers that tokens are, no more of them than are wanted."""
    tokens = tokens[:most]
    times: list[int] | None = None
    if _star(tokens):
        times, left = [], most
        for token in tokens:
            times.append(min(_times(token), left))
            left -= times[-1]
            if left == 0:
                break
        tokens = [token.rpartition(b"*")[2] for token in tokens[: len(times)]]
    if not tokens:
        return np.empty(0)
    try:
        values = np.array([token.decode("ascii") for token in tokens]).astype("f8")
    except ValueError:
        translated = [t.decode("ascii").upper().replace("D", "E") for t in tokens]
        values = np.array(translated).astype("f8")
    return values if times is None else np.repeat(values, times)
