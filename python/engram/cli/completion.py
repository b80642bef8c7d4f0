"""What a shell may put in where a pool, a namespace or a path in a pool is due.

The shell runs this at each press of the key, so it must be cheap, never fail and never hang: an
error is no candidate, a look that takes over `PATIENCE_S` ends the process with none, and no more
than `MOST` are given. Names that a shell would read as more than a word are left out.

A shell puts a blank after the only candidate. So a folder alone is left to the shell's own
completion of files, and a group alone comes with its members. Bash takes a URL apart at its colon,
and sees in `engram://job` three words: they are put together again, and it is given what follows
the colon.
"""

from __future__ import annotations

import contextlib
import os
import re
import threading
from contextvars import ContextVar
from itertools import islice
from pathlib import Path
from typing import TYPE_CHECKING, Any

import typer  # noqa: TC002 - read by Typer

import engram
from engram.expression import BUILTINS
from engram.paths import POOL_FILE

if TYPE_CHECKING:
    from collections.abc import Iterator

PATIENCE_S = 2.0
MOST = 200
_SEEN = 2000
_SAFE = re.compile(r"[\w.+,@%=:/-]+")
_URL = "engram:"
_IS_CUT: ContextVar[bool] = ContextVar("_IS_CUT", default=False)
"""Whether the shell is given what follows the colon alone."""


def pools(incomplete: str) -> list[str]:
    """Return the pools, and the folders on the way to one, that begin so."""
    found: list[str] = []
    with _in_time():
        found += _clusters(incomplete) if incomplete.startswith(_URL) else _pools(incomplete)
    return found


def put_together() -> None:
    """Put the last words together that bash has taken apart, if they are a URL of a cluster."""
    words = os.environ.get("COMP_WORDS", "").split("\n")
    place = os.environ.get("COMP_CWORD", "")
    last = int(place) if place.isdecimal() else 0
    for first in (last - 1, last - 2):
        if first > 0 and words[first : first + 2] == [_URL[:-1], _URL[-1:]]:
            words[first:] = ["".join(words[first : last + 1])]
            os.environ |= {"COMP_WORDS": "\n".join(words), "COMP_CWORD": str(first)}
            _IS_CUT.set(True)
            return


def _clusters(incomplete: str) -> list[str]:
    """Return the URLs that begin so of clusters that are known here."""
    from engram.cluster import known  # noqa: PLC0415 - the module of clusters is built apart

    found = sorted(f"{_URL}//{file.stem}" for file in known.folder().glob("*.json"))
    fitting = [each for each in found if _fits(each, incomplete)][:MOST]
    return [_AfterColon(each) if _IS_CUT.get() else each for each in fitting]


class _AfterColon(str):
    """A URL that begins as what is completed does, and of which bash is given what follows."""

    __slots__ = ()

    def __format__(self, spec: str) -> str:
        return self.removeprefix(_URL)


def namespaces(ctx: typer.Context, incomplete: str) -> list[str]:
    """Return the pool's namespaces that begin so."""
    found: list[str] = []
    with _in_time(), _opened(ctx) as pool:
        found += [name for name in pool.namespaces if _fits(name, incomplete)][:MOST]
    return found


def members(ctx: typer.Context, incomplete: str) -> list[str]:
    """Return the paths of groups and objects that begin so."""
    found: list[str] = []
    with _in_time(), _opened(ctx) as pool:
        found += _members(_root(ctx, pool), incomplete, groups=False)
    return found


def groups(ctx: typer.Context, incomplete: str) -> list[str]:
    """Return the paths of groups that begin so."""
    found: list[str] = []
    with _in_time(), _opened(ctx) as pool:
        found += _members(_root(ctx, pool), incomplete, groups=True)
    return found


def places(ctx: typer.Context, incomplete: str) -> list[str]:
    """Return the array's dimensions as `--at` wants them, each with its first place."""
    found: list[str] = []
    with _in_time(), _opened(ctx) as pool:
        words = [word for word in (ctx.params.get("path"), *ctx.args[-1:]) if word]
        array = _root(ctx, pool)[words[0].strip("/")]
        names = array.dims or range(array.ndim)
        found += [word for name in names if _fits(word := f"{name}=0", incomplete)][:MOST]
    return found


def fields(ctx: typer.Context, incomplete: str) -> list[str]:
    """Return the fields that begin so: built-in ones, and attributes that the index knows."""
    found: list[str] = []
    with _in_time(), _opened(ctx) as pool:
        groups = _root(ctx, pool).index_stats().groups
        keys = {key for group in groups for key in group.keys}
        words = [*(f"@{name}" for name in BUILTINS), *sorted(keys)]
        found += [word for word in words if _fits(word, incomplete)][:MOST]
    return found


def _pools(incomplete: str) -> Iterator[str]:
    """Yield pools, and folders with a slash; nothing for a folder alone."""
    head, _, _ = incomplete.rpartition("/")
    above = f"{head}/" if "/" in incomplete else ""
    found: list[str] = []
    is_pool = False
    with os.scandir(Path(above).expanduser() if above else ".") as entries:
        for entry in islice(entries, _SEEN):
            word = above + entry.name
            if entry.name.startswith(".") and not incomplete.startswith(f"{above}."):
                continue
            if _fits(word, incomplete) and entry.is_dir():
                is_pool = Path(entry.path, POOL_FILE).exists()
                found.append(word if is_pool else f"{word}/")
    if len(found) > 1 or is_pool:
        yield from sorted(found)[:MOST]


def _members(root: engram.Group, incomplete: str, *, groups: bool) -> list[str]:
    """Return paths; a group alone with what is in it, so that the shell goes on."""
    head, slash, _ = incomplete.rpartition("/")
    group = root[head] if head else root
    found = _below(group, head + slash, incomplete, groups=groups)
    if len(found) == 1 and found[0].endswith("/"):
        inner = root[found[0].strip("/")]
        found += _below(inner, found[0], found[0], groups=groups)
    return found[:MOST]


def _below(group: engram.Group, head: str, incomplete: str, *, groups: bool) -> list[str]:
    """Return the members of a group that begin so, in a page or two of it."""
    found = []
    for name, member in islice(group.items(), _SEEN):
        is_group = isinstance(member, engram.Group)
        if _fits(head + name, incomplete) and (is_group or not groups):
            found.append(f"{head}{name}/" if is_group else head + name)
    return found


def _fits(word: str, incomplete: str) -> bool:
    """Whether a word begins so, and is one word to a shell."""
    return word.startswith(incomplete) and _SAFE.fullmatch(word) is not None


@contextlib.contextmanager
def _opened(ctx: typer.Context) -> Iterator[engram.Pool]:
    """Open the pool that the command line names so far."""
    # While an option's value is due, the words are not yet given to the arguments.
    words = [ctx.params.get("pool"), *ctx.args]
    with engram.open(next(str(word) for word in words if word), mode="r") as pool:
        yield pool


def _root(ctx: typer.Context, pool: engram.Pool) -> Any:
    """Return the root group of the namespace that the command line names."""
    name = ctx.params.get("namespace") or "default"
    return pool if name == "default" else pool.namespaces[name]


@contextlib.contextmanager
def _in_time() -> Iterator[None]:
    """Swallow every error, and end the process, with no candidate, if it takes too long."""
    done = threading.Event()

    def watch() -> None:
        if not done.wait(PATIENCE_S):
            os._exit(0)

    threading.Thread(target=watch, daemon=True).start()
    # Whatever is wrong, a shell is no place to say it; the verb will.
    with contextlib.suppress(Exception):
        yield
    done.set()
