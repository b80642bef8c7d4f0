"""What `diff` compares: members of a pool, or blocks of a dump, in the order of their paths."""

from __future__ import annotations

import contextlib
import sys
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

from engram.cli import blocks, damage, literals, output, walk
from engram.cli.app import clean, opened
from engram.cli.everywhere import found_in
from engram.errors import ArgumentError, EngramError, FormatError, UnsupportedError
from engram.paths import cluster_of, is_url, pool_above

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from typing import TextIO

    from engram.cli.blocks import Fields


class Asked(NamedTuple):
    """What is compared."""

    namespace: str | None
    """A namespace of each pool; None for all of them, with the settings of the pools."""

    values: bool


class Entry(NamedTuple):
    """A member: what is said of it, and how the sum of its values is had."""

    path: tuple[str, ...]
    kind: str
    fields: Fields
    known: Fields
    """The sum of its values, or what is wrong with them, where nothing is read for that."""

    read: Callable[[], Fields]

    def total(self) -> Fields:
        """Return the sum of its values; what is wrong, if they are damaged."""
        return self.known or self.read()

    @property
    def key(self) -> tuple[bytes, ...]:
        """What entries are in the order of."""
        return tuple([name.encode() for name in self.path])


class Side(NamedTuple):
    """One of the two that are compared."""

    word: str
    """As it was given."""

    place: Path | None
    """A pool's folder, or the file of a dump; None for stdin."""

    group: str | None
    """The group in the pool; None for a dump."""

    lines: TextIO | None = None
    """What follows the first line of a dump that is open."""

    says: tuple[str, ...] = ()
    """What the first line of a dump that is open says of it."""

    @contextlib.contextmanager
    def opened(self) -> Iterator[Side]:
        """Give this side with its text open behind the first line, if it is a dump.

        Raises
        ------
        FormatError
            If it is no dump.

        """
        if self.group is not None:
            yield self
            return
        with self._text() as lines:
            yield self._replace(lines=lines, says=tuple(_read_header(lines, self.word)))

    def entries(
        self, asked: Asked, wrong_values: Callable[[str, str | None], dict[int, str]]
    ) -> Iterator[Entry]:
        """Yield all entries; each is to be used before the next is asked for. A dump is open.

        `wrong_values` is asked what is damaged in a pool that has checksums, as `dump` does.

        Raises
        ------
        FormatError
            If it is a dump, and not a whole one.
        ArgumentError
            If all namespaces are asked for, and it is of one; or the other way round.

        """
        if self.lines is not None:
            _refuse_other(self.says, self.word, everywhere=asked.namespace is None)
            yield from _read(self.lines, self.word)
            return
        if self.group is None or self.place is None:
            raise AssertionError("a dump is to be open")
        if asked.namespace is None and self.group:
            message = (
                f"{self.word} is a group, and all namespaces are compared: give the pool, or "
                "compare groups alone"
            )
            raise ArgumentError(message)
        wanted = walk.Wanted(self.group, more=False, at=lambda *_: None, again=lambda _: None)
        with opened(self.place, asked.namespace or "default") as (handle, root):
            is_checked = asked.values and handle.checksums
            wrong = wrong_values(handle.path, asked.namespace) if is_checked else {}
            below = None if asked.namespace is None else root
            for found in found_in(handle, below, wanted):
                known = damage.known(found, wrong)
                yield Entry(found.path, found.kind, found.fields, known, found.total)

    @contextlib.contextmanager
    def _text(self) -> Iterator[TextIO]:
        """Open the file of a dump, or stdin."""
        if self.place is None:
            yield sys.stdin
            return
        with self.place.open(encoding="utf-8", newline="\n") as lines:
            yield lines


def side_of(word: str) -> Side:
    """Tell what a word means: a pool, POOL:GROUP, the file of a dump, or - for stdin.

    Raises
    ------
    UnsupportedError
        If it is a cluster.
    ArgumentError
        If it is empty.

    """
    if not word:
        message = "the path is empty; perhaps a variable of the shell is not set"
        raise ArgumentError(message)
    if word == output.STDIO:
        return Side(word, None, None)
    if cluster_of(word) is not None:
        message = (
            f"{word} is a cluster, and `engram diff` compares pools and dumps: run it on the pool "
            "of each node"
        )
        raise UnsupportedError(message)
    if is_url(word):
        found = pool_above(word)
        return Side(word, *found) if found is not None else Side(word, Path(word), "")
    path = Path(word)
    if path.exists():
        return Side(word, path, "" if path.is_dir() else None)
    head, colon, group = word.partition(":")
    while colon:
        if Path(head).is_dir():
            return Side(word, Path(head), clean(group or "/"))
        more, colon, group = group.partition(":")
        head = f"{head}:{more}"
    return Side(word, path, "")  # opening it says what is there instead


def _read(lines: TextIO, word: str) -> Iterator[Entry]:
    """Yield the blocks of a dump that follow its first line."""
    numbered = _Numbered(lines)
    behind: tuple[bytes, ...] | None = None
    try:
        for entry in _parsed(numbered):
            if entry.kind != blocks.UNREADABLE:
                _refuse_disorder(entry, behind)
                behind = entry.key
            yield entry
    except ValueError as error:  # bytes that are no UTF-8 are one, too
        if isinstance(error, EngramError):
            raise
        message = f"{word}: line {numbered.at} is none of a dump: {error}; make the dump again"
        raise FormatError(message) from None
    if not numbered.ended:
        message = f"{word}: is cut off after line {numbered.at}: make the dump again"
        raise FormatError(message)


class _Numbered:
    """The lines of a dump after its first one, up to its end."""

    def __init__(self, lines: TextIO) -> None:
        self.at = 1
        self.ended = False
        self._lines = lines

    def __iter__(self) -> Iterator[str]:
        for line in self._lines:
            self.at += 1
            if line == f"{blocks.END}\n":
                self.ended = True
                return
            yield line.removesuffix("\n")


def _parsed(lines: _Numbered) -> Iterator[Entry]:
    """Yield the blocks of a dump; one that may be cut off is none.

    Raises
    ------
    ValueError
        If a line is none of a block.

    """
    head = ""
    fields: Fields = {}
    for line in lines:
        if head and line.startswith("  "):
            name, text = _field(line[2:])
            fields[name] = text
            continue
        if head:
            yield _entry(head, fields)
        head, fields = line, {}
    if head and lines.ended:
        yield _entry(head, fields)


def _refuse_disorder(entry: Entry, behind: tuple[bytes, ...] | None) -> None:
    if behind is not None and entry.key <= behind:
        message = f"{walk.shown(entry.path)} does not come in the order of paths"
        raise ValueError(message)


def _read_header(lines: TextIO, word: str) -> list[str]:
    """Refuse what is no dump, or of another version; return the words that say what is in it."""
    try:
        line = lines.readline()
    except ValueError:
        line = ""
    magic, _, rest = line.rstrip("\n").rpartition(f"{blocks.MAGIC} ")
    version = rest.partition(" ")[0]
    if magic or not line.startswith(blocks.MAGIC) or not version.isdecimal():
        message = (
            f"{word}: is no dump: it does not begin with {blocks.MAGIC!r}; give a pool, or what "
            "`engram dump POOL --text -o FILE` has written"
        )
        raise FormatError(message)
    if int(version) != blocks.VERSION:
        message = (
            f"{word}: is a dump of version {version}, and this engram reads {blocks.VERSION}: make "
            "the dump again"
        )
        raise FormatError(message)
    return rest.split()[1:]


def _refuse_other(words: tuple[str, ...], word: str, *, everywhere: bool) -> None:
    """Refuse a dump of one namespace where all are compared, and one of all where one is."""
    if everywhere and blocks.ALL_NAMESPACES not in words:
        message = (
            f"{word}: is a dump of one namespace, and all are compared: make the dump again with "
            "--all-namespaces, or compare one namespace"
        )
        raise ArgumentError(message)
    if not everywhere and blocks.ALL_NAMESPACES in words:
        message = (
            f"{word}: is a dump of all namespaces, and one is compared: give --all-namespaces, and "
            "no --namespace"
        )
        raise ArgumentError(message)


def _field(text: str) -> tuple[str, str]:
    """Split the line of a field."""
    prefix = next((each for each in blocks.KEYED if text.startswith(each)), None)
    if prefix is None:
        name, sign, value = text.partition(" ")
    else:
        key, rest = literals.split_word(text[len(prefix) :])
        name, value = f"{prefix}{literals.word(key)}", rest[3:]
        sign = rest[:3] if rest[:3] == " = " else ""
    if not sign:
        raise ValueError(f"{text[:40]!r} is no field")
    return name, value


def _entry(head: str, fields: Fields) -> Entry:
    """Return the block that has a head and fields."""
    kind, _, rest = head.partition(" ")
    path, more = literals.split_word(rest)
    if more or not path.startswith("/"):
        raise ValueError(f"{head[:40]!r} is no head of a block")
    total = {name: text for name, text in fields.items() if name in (blocks.SUM, blocks.ERROR)}
    names = tuple(path[1:].split("/")) if path != "/" else ()
    return Entry(names, kind, fields, total, dict)
