"""`engram dump`: what a pool holds as text, for people and version control."""

from __future__ import annotations

import contextlib
import io
import sys
from typing import TYPE_CHECKING, Annotated, NamedTuple

import typer

from engram.cli import apart, blocks, completion, damage, literals, output, terminal, walk
from engram.cli.app import NamespaceOption, PoolArgument, app, clean, examples, opened
from engram.cli.everywhere import AllNamespacesOption, found_in, one_or_all
from engram.cli.terminal import counted
from engram.errors import ArgumentError, CorruptError

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from pathlib import Path

    from engram.cli.apart import Say

_AT, _BLOCK, _AGAIN = "at", "block", "again"
_LITTLE = 1 << 16
"""So long a block waits until the child says what it reads next."""
_NAMED = 3
"""So many paths of what could not be read are named on stderr."""

GroupArgument = Annotated[
    str,
    typer.Argument(
        metavar="GROUP",
        help="The group that is dumped; the root if none.",
        autocompletion=completion.groups,
    ),
]


class Asked(NamedTuple):
    """What is dumped."""

    pool: Path
    group: str
    namespace: str | None
    """The namespace; None for all of them, with the settings of the pool."""

    values: bool
    more: bool


@app.command(
    epilog=examples(
        "engram dump /dev/shm/run --text -o run.txt",
        "engram dump /dev/shm/run run-17 --text --no-values | less",
        "engram dump /dev/shm/run --text --all-namespaces -o run.txt",
        "engram dump /dev/shm/run --text -o run.txt --overwrite && git diff run.txt",
    )
)
def dump(
    pool: PoolArgument,
    group: GroupArgument = "/",
    *,
    text: Annotated[
        bool, typer.Option("--text", show_default=False, help="As text, the only form.")
    ] = True,
    file: Annotated[
        str,
        typer.Option("--output", "-o", metavar="FILE", help="Where to; - is stdout."),
    ] = output.STDIO,
    overwrite: Annotated[
        bool, typer.Option("--overwrite", help="Replace a file of this name.")
    ] = False,
    no_values: Annotated[
        bool, typer.Option("--no-values", help="Read no values: leave their sums out.")
    ] = False,
    everything: Annotated[
        bool,
        typer.Option("--all", "-a", help="Also what differs between copies: ids, owners, times."),
    ] = False,
    namespace: NamespaceOption = "default",
    all_namespaces: AllNamespacesOption = False,
) -> None:
    """Write all that describes a namespace, a group or a whole pool, as sorted text with sums.

    Namespaces of the same contents give the same text, however they were made. The text of each is
    of one commit, while others write. What is damaged has an error in place of its sum.
    """
    del text
    one = one_or_all(namespace, everywhere=all_namespaces)
    asked = Asked(pool, clean(group), one, values=not no_values, more=everything)
    if one is None and asked.group:
        message = f"--all-namespaces is of the whole pool: leave it out, or the group {group}"
        raise ArgumentError(message)
    broken: dict[str, str] = {}
    with _written(file, overwrite=overwrite) as write:
        for piece in _texts(asked, broken):
            write(piece)
    if broken:
        paths = [*broken]
        more = f" and {len(paths) - _NAMED} more" if len(paths) > _NAMED else ""
        message = (
            f"{counted(len(broken), 'member')} of {pool} could not be read, as the dump says: "
            f"{', '.join(map(literals.word, paths[:_NAMED]))}{more}; `engram verify {pool}` tells "
            "more, and `engram export --salvage` takes out what is sound"
        )
        raise CorruptError(message)


@contextlib.contextmanager
def _written(file: str, *, overwrite: bool) -> Iterator[Callable[[str], object]]:
    """Give what writes text as UTF-8 to stdout, or to a file that appears once it is whole."""
    if file == output.STDIO or output.standard(file) is sys.stdout:
        if isinstance(sys.stdout, io.TextIOWrapper):
            sys.stdout.reconfigure(encoding="utf-8")
        yield sys.stdout.write
        return
    with output.writing(file, overwrite=overwrite) as stream:
        yield lambda piece: stream.write(piece.encode())


def _texts(asked: Asked, broken: dict[str, str]) -> Iterator[str]:
    """Yield the text of a dump, and note the paths of what could not be read.

    The pool is read in a child. If something kills it, that is told of, and another child goes on.
    """
    yield from _begun(asked, reader := _Reader(asked, broken))
    while reader.died:
        yield reader.lost()
        yield from reader.texts()
    yield f"{blocks.END}\n"


def _begun(asked: Asked, reader: _Reader) -> Iterator[str]:
    """Yield the header, once it is known that there is a pool, and what the first child reads."""
    everywhere = asked.namespace is None
    header = f"{blocks.header(values=asked.values, more=asked.more, everywhere=everywhere)}\n\n"
    for text in reader.texts():
        yield f"{header}{text}"
        header = ""
    if header:
        yield header


class _Reader:
    """What reads a pool by a child, and by another one after each that the pool has killed."""

    def __init__(self, asked: Asked, broken: dict[str, str]) -> None:
        self.died = ""
        """What has killed the last child, if anything has."""
        self._asked = asked
        self._is_of_moments = False
        self._broken = broken
        self._resume: walk.Resume | None = None
        self._at: tuple[tuple[str, ...], bool] | None = None

    def texts(self) -> Iterator[str]:
        """Yield the blocks that a child reads."""
        self.died, self._at = "", None
        for tag, *words in apart.lines_of(self._dump):
            if tag == _AT:
                self._at = (tuple(words[0]), words[1])
            elif tag == _BLOCK:
                text, path, error = words
                if error:
                    self._broken[path] = error
                yield text
            elif tag == _AGAIN:
                self._tell_moment(words[0])
            else:
                self.died = words[0]

    def lost(self) -> str:
        """Return the block of what has killed the child, and let the next one go on behind it.

        Raises
        ------
        CorruptError
            If nothing can be read any more.

        """
        pool, resume = self._asked.pool, self._resume
        if self._at is None:
            message = (
                f"who read {pool} was killed by {self.died}: `engram verify {pool}` tells what is "
                "damaged, and `engram export --salvage` takes out what is sound"
            )
            raise CorruptError(message)
        path, is_listed = self._at
        again = resume is not None and resume.path == path and not is_listed
        self._resume = walk.Resume(path, below=not again and not is_listed)
        if again:  # the member has been told of, and what is below it cannot be read either
            return ""
        self._tell_moment(walk.shown(path))
        self._broken[walk.shown(path)] = self.died
        error = walk.told(CorruptError(f"who read it was killed by {self.died}"), names=is_listed)
        return blocks.block(blocks.UNREADABLE, walk.shown(path), error)

    def _tell_moment(self, path: str) -> None:
        """Say once that the dump is not of one commit any more."""
        if not self._is_of_moments:
            terminal.note(
                f"{literals.word(path)}: is damaged, and ended the snapshot: what follows it in "
                "the dump is of later commits, if anybody writes meanwhile"
            )
        self._is_of_moments = True

    def _dump(self, say: Say) -> None:
        _dump(self._asked, self._resume, say)


def _dump(asked: Asked, resume: walk.Resume | None, say: Say) -> None:
    """Say the block of each member: in a child."""
    with opened(asked.pool, asked.namespace or "default") as (handle, root):
        is_checked = asked.values and handle.checksums
        wrong = damage.wrong_values(handle.path, asked.namespace) if is_checked else {}
        below = None if asked.namespace is None else root
        wanted = walk.Wanted(
            asked.group,
            asked.more,
            at=lambda path, is_listed: say(_AT, path, is_listed),
            again=lambda path: say(_AGAIN, walk.shown(path)),
        )
        for found in found_in(handle, below, wanted, resume):
            fields = found.fields
            if asked.values:
                fields = fields | (damage.known(found, wrong) or found.total())
            path = walk.shown(found.path)
            text, error = blocks.block(found.kind, path, fields), fields.get(blocks.ERROR)
            say(_BLOCK, text, path, error, later=len(text) < _LITTLE)
