"""How the command line speaks: lines, sizes, times, JSON, one-line errors.

What a terminal gets is laid out by `drawing`, with rich, which takes about as long to load as numpy
does. So rich is loaded where something is drawn: not by this module, nor for lines into a pipe.
"""

from __future__ import annotations

import contextlib
import datetime as dt
import itertools
import json
import math
import os
import re
import shutil
import sys
import textwrap
import traceback
import unicodedata
import warnings
from contextvars import ContextVar
from typing import TYPE_CHECKING, NoReturn, TextIO

import numpy as np
import typer

from engram.errors import EngramWarning, NotFoundError

if TYPE_CHECKING:
    from collections.abc import Collection, Iterable, Iterator, Sequence

HEADING = "bold"
GROUP = "bold blue"
KIND = "cyan"
SHAPE = "green"
FAINT = "dim"
GOOD = "green"
MEDIOCRE = "yellow"
WRONG = "bold red"

INTERRUPTED = "KeyboardInterrupt"
"""What JSON calls an interruption."""

AT_A_GLANCE = 200
"""Up to so many rows are laid out together; what is longer is printed as it comes."""

_OUR_WORDS = (
    (r"pass overwrite=True to", "add --overwrite to"),
    (r"overwrite=True", "--overwrite"),
    (r"etcd=\[…\]", "--etcd URL,…, which the verbs of `engram cluster` take"),
    (r"etcd=3", "--etcd 3"),
    (r"(with |give )lost=True", r"add --lost"),
    (r"give host= (an address|one)", r"give --host \1"),
    (r"export a part \(select\), or pass lossy=True to", "--select a part, or add --lossy to"),
    (
        r"(nothing was imported\. Import into another group, or|; import) with overwrite$",
        r"\1 with --overwrite",
    ),
    (r"(with |pass )?force=True", "--force"),
    (r"mount=DIR or anyway=True starts", "--mount DIR or --anyway starts"),
    (r"give trace or trace_ring,", "give --trace or --trace-ring,"),
    (
        r"make one with engram\.create or (`engram create [^`]*`)",
        r"check the path, or \1 makes one",
    ),
    (r"engram\.verify on", "`engram verify` on"),
    (r"resize it \(pool\.resize\)", "give it room (`engram ns POOL NAME --size ...`)"),
    (r"list its members with keys\(\) or tree\(\)", "`engram ls` lists its members"),
    (r"delete it first, or use require_group", "`engram rm -r` deletes it"),
    (r"there are 1 members, such as", "there is one member:"),
)
"""How the package tells of a remedy in Python, and how the command line does."""

AS_JSON: ContextVar[bool] = ContextVar("AS_JSON", default=False)
"""Whether errors are told as JSON: `--json` stands on the command line."""

_GAP = "  "
"""What stands between columns."""

_UNPRINTABLE = re.compile(r"[^\n -~]")


def plain(text: object) -> str:
    r"""Return text with what would not show as itself escaped, such as `\x1b` and `\u202e`."""
    shown = str(text)
    if shown.isprintable():
        return shown
    return "".join(c if c.isprintable() else c.encode("unicode_escape").decode() for c in shown)


def say(message: str) -> None:
    """Print one line for people, which a terminal breaks between words."""
    if sys.stdout.isatty():
        from engram.cli import drawing  # noqa: PLC0415 - a pipe needs no rich

        drawing.show_text(plain(message))
    else:
        sys.stdout.write(f"{plain(message)}\n")
        sys.stdout.flush()  # a program may wait for it


def counted(number: int, what: str) -> str:
    """Return a number of things: 1 array, 2 arrays."""
    return f"{number} {what}" + ("" if number == 1 else "s")


def text_width() -> int:
    """Return the columns of the terminal."""
    return shutil.get_terminal_size().columns


def fail(message: str, code: int, kind: str) -> NoReturn:
    """Say an error on stderr, in one line where that is no terminal, and exit."""
    _show_traceback()
    warn(message, kind)
    sys.exit(code)


def warn(message: str, kind: str) -> None:
    """Say an error on stderr, in one line where that is no terminal, and go on."""
    words = in_our_words(" ".join(message.split()))
    if AS_JSON.get():
        _tell_json(error={"kind": kind, "message": words})
    else:
        _tell(words)


def note(message: str) -> None:
    """Say on stderr, in one line where that is no terminal, what is no error of this command."""
    if AS_JSON.get():
        _tell_json(note={"message": message})
    else:
        _tell(message)


@contextlib.contextmanager
def noting() -> Iterator[None]:
    """Say the package's warnings as notes, whatever Python's filters say of them."""
    with warnings.catch_warnings(record=True) as warned:
        warnings.simplefilter("always", EngramWarning)
        yield
    for each in warned:
        if issubclass(each.category, EngramWarning):
            note(str(each.message))
        else:
            warnings.warn_explicit(each.message, each.category, each.filename, each.lineno)


def fail_below(message: str, code: int, kind: str) -> NoReturn:
    """Say an error whose further lines show where it is, on stderr as they are, and exit."""
    _show_traceback()
    first, *rest = message.split("\n")
    if AS_JSON.get():
        line, caret = [row[2:] for row in rest[:2]] if len(rest) > 1 else ("", "")
        told = {"kind": kind, "message": in_our_words(first), "line": line, "caret": caret}
        _tell_json(error=told)
    else:
        warn(first, kind)
        _to_stderr("".join(f"{line}\n" for line in rest))
    sys.exit(code)


def _show_traceback() -> None:
    """Show where an error was raised, if that is asked for."""
    if os.environ.get("ENGRAM_TRACEBACK"):
        _to_stderr(traceback.format_exc())


def _tell(words: str) -> None:
    """Write a line of ours to stderr; a terminal would break it in the middle of a word."""
    line = f"engram: {plain(words)}"
    if sys.stderr.isatty():
        line = textwrap.fill(line, text_width(), break_long_words=False, break_on_hyphens=False)
    _to_stderr(f"{line}\n")


def _tell_json(**told: object) -> None:
    """Write a line of JSON to stderr."""
    _to_stderr(f"{json.dumps(told, ensure_ascii=True)}\n")


def _to_stderr(text: str) -> None:
    """Write to stderr; that it takes nothing changes nothing of how the command ends."""
    try:
        sys.stderr.write(text)
        sys.stderr.flush()
    except OSError:
        give_up(sys.stderr)


def give_up(stream: TextIO) -> None:
    """Let what is still to be written go nowhere: nothing more can be written there."""
    with contextlib.suppress(OSError, ValueError):  # it is no file
        nowhere = os.open(os.devnull, os.O_WRONLY)
        os.dup2(nowhere, stream.fileno())
        os.close(nowhere)


def kind_of(error: BaseException) -> str:
    """Return the kind of an error by its name in the guide, where a missing pool is missing."""
    return "NotFoundError" if isinstance(error, NotFoundError) else type(error).__name__


def confirm(question: str) -> None:
    """Ask on stderr, and end with 1 if the answer is no, as if interrupted if there is none."""
    try:
        agreed = typer.confirm(plain(question), err=True)
    except typer.Abort as error:
        if isinstance(error.__context__, KeyboardInterrupt):
            raise KeyboardInterrupt from None
        raise
    if not agreed:
        raise typer.Abort


def in_our_words(message: str) -> str:
    """Return a message of the package with its remedies as words of the command line."""
    for python, ours in _OUR_WORDS:
        message = re.sub(python, ours, message)
    return message


def print_stream(
    headings: Sequence[str],
    rows: Iterable[Sequence[str]],
    *,
    key: str,
    right: Collection[str] = (),
) -> None:
    """Print a line for each row: fitted to a terminal if they are few, else as they come.

    What a row is about, the column `key`, stands last.
    """
    found = (tuple(map(plain, row)) for row in rows)
    first = list(itertools.islice(found, AT_A_GLANCE + 1))
    if sys.stdout.isatty() and len(first) <= AT_A_GLANCE:
        from engram.cli import drawing  # noqa: PLC0415 - a pipe needs no rich

        drawing.print_table(headings, first, key=key, right=right)
        return
    # The first rows say how wide the columns are; a later one that is wider sticks out.
    widths = [max(map(len, column)) for column in zip(headings, *first, strict=True)]
    for row in itertools.chain([headings], first, found):
        words = [
            word.rjust(width) if heading in right else word.ljust(width)
            for word, width, heading in zip(row[:-1], widths, headings, strict=False)
        ]
        sys.stdout.write(" ".join([*words, row[-1]]) + "\n")


def print_columns(words: Sequence[str], strong: Sequence[bool]) -> None:
    """Print words on a terminal, column by column, in as few lines as fit; the strong ones blue.

    Rich would draw the same, and take as long to load as numpy does: this is what `ls` shows.
    """
    widths = [_cells(word) for word in words]
    room = text_width() + len(_GAP)
    # The fewest lines whose columns, each as wide as its widest word, stand side by side.
    height = next(
        (
            height
            for height in range(1, len(words))
            if sum(max(widths[n : n + height]) + len(_GAP) for n in range(0, len(words), height))
            <= room
        ),
        len(words),
    )
    drawn = [
        _as_group(word) if marked else word for word, marked in zip(words, strong, strict=True)
    ]
    for row in range(height):
        line = ""
        for n in range(row, len(words), height):
            column = widths[n - row : n - row + height]
            line += drawn[n] + " " * (max(column) - widths[n] + len(_GAP))
        sys.stdout.write(line.rstrip() + "\n")


def _cells(word: str) -> int:
    """Return the columns that a printable word takes: ideographs take two, accents none."""
    kinds = ((unicodedata.combining(c), unicodedata.east_asian_width(c)) for c in word)
    return sum(0 if accent else 1 + (width in "WF") for accent, width in kinds)


def _as_group(word: str) -> str:
    """Return a word as `GROUP` says, if the terminal has colours and may show them."""
    if os.environ.get("NO_COLOR") or os.environ.get("TERM", "dumb") in ("dumb", "unknown"):
        return word
    return f"\x1b[1;34m{word}\x1b[0m"


def print_lines(lines: Iterable[str]) -> None:
    """Print lines as they come; what would not show as itself is escaped."""
    for line in lines:
        sys.stdout.write("\n".join(map(plain, line.split("\n"))) + "\n")


def iso(when: dt.datetime) -> str:
    """Return a time as ISO 8601 in local time, to the second."""
    return when.astimezone().isoformat(timespec="seconds")


def print_json(value: object, indent: int | None = 2) -> None:
    """Print a value as JSON, in which what would not show as itself is escaped."""
    text = json.dumps(jsonable(value), indent=indent, ensure_ascii=False, allow_nan=False)
    if not text.replace("\n", "").isprintable():
        text = _UNPRINTABLE.sub(_json_escape, text)
    sys.stdout.write(text + "\n")


def _json_escape(found: re.Match[str]) -> str:
    """Return a character that may not be printable as JSON writes it then."""
    character = found[0]
    return character if character.isprintable() else json.dumps(character)[1:-1]


def jsonable(value: object) -> object:
    """Return a value of an attribute, a time or a path as JSON has it."""
    if isinstance(value, dict):
        return {str(name): jsonable(inner) for name, inner in value.items()}
    if isinstance(value, (list, tuple)):
        return [jsonable(inner) for inner in value]
    if isinstance(value, np.ndarray):
        return [jsonable(inner) for inner in value] if value.ndim else jsonable(value[()])
    if isinstance(value, np.void) and value.dtype.names is not None:
        return {name: jsonable(value[name]) for name in value.dtype.names}
    # What JSON has no number for (times, extended precision) is told as text.
    as_text = (np.datetime64, np.timedelta64, np.longdouble)
    if isinstance(value, np.generic) and not isinstance(value, as_text):
        return _scalar(value.item())
    return _scalar(value)


def _scalar(value: object) -> object:
    """Return a plain value as JSON has it."""
    if isinstance(value, bytes):
        return value.decode("utf-8", "backslashreplace")
    if isinstance(value, complex):
        return [_scalar(value.real), _scalar(value.imag)]
    if isinstance(value, dt.datetime):
        return iso(value)
    plain = isinstance(value, (str, int, bool, type(None)))
    finite = isinstance(value, float) and math.isfinite(value)
    return value if plain or finite else str(value)
